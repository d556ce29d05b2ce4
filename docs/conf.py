"""Sphinx configuration; `make docs` builds the site, and a warning stops it."""

import re
import textwrap
from typing import Any

from sphinx.domains.python import PyObject

import lazymdp

project = "lazymdp"
author = "the lazymdp authors"
version = release = lazymdp.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

html_theme = "furo"
html_show_copyright = False
html_title = f"lazymdp {version}"
html_static_path = ["static"]
html_extra_path = ["extra"]  # the reports that guides/explain.md links, which docs/reports.py builds
html_css_files = ["lazymdp.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b35300", "color-brand-content": "#b35300"},
    "dark_css_variables": {"color-brand-primary": "#f7a14a", "color-brand-content": "#f7a14a"},
}

default_role = "code"  # the docstrings write `name` as Markdown does
autodoc_member_order = "bysource"
autodoc_mock_imports = ["jax", "equinox", "optax"]  # what deep agents need, which reading about them does not
autodoc_typehints = "none"  # the docstrings give shapes, which say more
add_module_names = False
napoleon_use_ivar = True  # attributes as a list, not as entries of their own
napoleon_attr_annotations = False


def from_markdown(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turns what is Markdown in a docstring (headings, fenced and indented blocks) into what Sphinx reads."""
    text = "\n".join(lines)
    text = re.sub(r"^## (.+)$", r".. rubric:: \1", text, flags=re.MULTILINE)
    text = re.sub(r"^```(\w+)\n(.*?)^```$", _code_block, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(
        r"^( *)([^ :.\n].*[:,])\n\n(?=\1    \S)", r"\1\2\n\n\1.. code-block:: text\n\n", text, flags=re.MULTILINE
    )
    lines[:] = text.split("\n")


def _code_block(found: re.Match[str]) -> str:
    return f".. code-block:: {found[1]}\n\n" + textwrap.indent(found[2], "   ")


def without_private(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Leaves arguments that begin with an underscore out of a signature."""
    return signature and re.sub(r", _\w+=[^,)]+", "", signature), returns


def setup(app: Any) -> None:
    """Docstrings are changed after napoleon, whose priority is 500; what it calls variables are attributes."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("autodoc-process-docstring", from_markdown, priority=600)
    app.connect("autodoc-process-signature", without_private)
