"""The palette: one file spells every color."""

import ast
from pathlib import Path

import lazymdp as lz

SHOW = Path(lz.__file__).parent / "show"


def test_colours_stand_in_one_file_only():
    """Control orange, lazy gray, everywhere: so no other Python file of the library spells a colour."""
    for path in SHOW.parent.rglob("*.py"):
        if path.name in ("_colors.py", "results_page.py"):  # the page has colours of its own for text and lines
            continue
        strings = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        spelled = [text for text in strings if isinstance(text, str) and len(text) == 7 and text.startswith("#")
                   and all(digit in "0123456789abcdef" for digit in text[1:])]  # fmt: skip
        assert not spelled, f"{path}: {spelled}"
    style = (SHOW / "lazymdp.mplstyle").read_text()
    for color in (lz.show.CONTROL, lz.show.LAZY):
        assert color[1:] in style
