"""The page of results: one HTML file beside the figures, with the claims of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from lazymdp._colors import DARK_THEME, LIGHT_THEME, css_variables


@dataclass(frozen=True)
class Section:
    """One result on the page.

    Attributes:
        name: Name of the experiment.
        title: Heading.
        caption: Description of the figure.
        figure: Path of the figure, relative to the page.
        claims: One tuple per claim: the statement, the expected and the found value, and whether it holds.
        command: The command that makes the result again.
        made: The command, the time and the date of this result.
        files: Paths of the data, relative to the page.
    """

    name: str
    title: str
    caption: str
    figure: str
    claims: Sequence[tuple[str, str, str, bool]]
    command: str
    made: str
    files: Sequence[str]


_STYLE = f"""
:root {{ {css_variables(LIGHT_THEME)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {css_variables(DARK_THEME)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--bg); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }}
h1 {{ font-size: 1.7rem; margin: 0.5rem 0; }}
h2 {{ font-size: 1.2rem; margin: 3rem 0 0.5rem; padding-top: 1rem; border-top: 1px solid var(--rule); }}
a {{ color: inherit; text-decoration-color: var(--control); text-underline-offset: 0.2em; }}
figure {{ margin: 1rem 0; }}
figure a {{ display: block; background: white; border: 1px solid var(--rule); border-radius: 6px; padding: 0.75rem; }}
figure img {{ display: block; max-width: 100%; height: auto; margin: 0 auto; }}
figcaption, .made {{ color: var(--muted); font-size: 0.9rem; margin-top: 0.5rem; overflow-wrap: anywhere; }}
.claims {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 0.92rem; }}
th, td {{ text-align: left; vertical-align: top; padding: 0.35rem 0.8rem 0.35rem 0;
  border-bottom: 1px solid var(--rule); }}
th {{ color: var(--muted); font-weight: 500; }}
td:last-child, th:last-child {{ white-space: nowrap; padding-right: 0; }}
.no {{ color: var(--wrong); font-weight: 700; }}
nav ul {{ padding-left: 1.2rem; }}
code {{ font-family: ui-monospace, monospace; font-size: 0.92em; }}
"""


def results_page(sections: Sequence[Section], versions: Mapping[str, str], links: Mapping[str, str]) -> str:
    """Returns the page as HTML.

    Args:
        sections: The results, in order.
        versions: Versions of the packages, by name.
        links: Paths of other pages, by link text.
    """
    claims = [claim for section in sections for claim in section.claims]
    held = sum(claim[3] for claim in claims)
    pages = "".join(f'<li><a href="{escape(path)}">{escape(words)}</a></li>' for words, path in links.items())
    contents = "".join(
        f'<li><a href="#{escape(section.name)}">{escape(section.title)}</a></li>' for section in sections
    )
    used = ", ".join(f"{escape(name)} {escape(number)}" for name, number in versions.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>lazymdp: results</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>When is it worth taking over?</h1>
<p>A lazy-MDP adds one action, <em>lazy</em>, that leaves the step to a default policy, and charges a price eta for
taking control. {len(sections)} results; {held} of {len(claims)} claims hold.</p>
<nav><ul>{pages}{contents}</ul></nav>
{"".join(map(_section, sections))}
<p class="made">{used}</p>
</body>
</html>
"""


def _section(section: Section) -> str:
    rows = "".join(
        f"<tr><td>{escape(text)}</td><td>{escape(expected)}</td><td>{escape(found)}</td>"
        + ("<td>✓ holds</td></tr>" if holds else '<td class="no">✗ does not</td></tr>')
        for text, expected, found, holds in section.claims
    )
    files = ", ".join(f'<a href="{escape(path)}">{escape(path.rpartition("/")[2])}</a>' for path in section.files)
    figure, name = escape(section.figure), escape(section.name)
    return f"""<section>
<h2 id="{name}">{escape(section.title)}</h2>
<figure><a href="{figure}"><img src="{figure}" alt="{escape(section.title)}"></a>
<figcaption>{escape(section.caption)}</figcaption></figure>
<div class="claims"><table><thead><tr><th>claim</th><th>expected</th><th>found</th><th>holds</th></tr></thead>
<tbody>{rows}</tbody></table></div>
<p class="made">To make it again: <code>{escape(section.command)}</code>. Made by <code>{escape(section.made)}</code>.
Data: {files}.</p>
</section>
"""
