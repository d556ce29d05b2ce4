"""The explorer: an eta-path as one HTML page, in which a slider sets the price.

The page contains the path itself and not samples of it: the breakpoints, the switches and the model, and the line
`V - eta K` of some policies (see `explorer_data`). The browser rebuilds the policy at any price from the switches, as
`EtaPath.action_at` does, evaluates it if its line is not stored, and computes the lazy-gaps with one Bellman backup.
The control states do not depend on rounded numbers.

The page loads nothing from the network; it is assembled from the files in `assets`.
"""

from __future__ import annotations

import html
from collections.abc import Mapping

from lazymdp._arguments import check_type
from lazymdp._colors import DARK_THEME, LIGHT_THEME, css_variables
from lazymdp._html_page import as_json, asset, filled
from lazymdp.exact.path import EtaPath
from lazymdp.show.explorer_data import check_axes, page_data
from lazymdp.show.grid_maps import GridWorld

_SCRIPTS = ("path", "lines", "explorer", "axes", "map", "words", "terms", "card", "table", "curves", "start")
"""The scripts of the page in `assets`, in order. They share one scope."""


def explorer(
    path: EtaPath,
    *,
    world: GridWorld | None = None,
    axes: Mapping[str, int] | None = None,
    title: str | None = None,
) -> str:
    """Returns an HTML page that shows an eta-path: a slider over all optimal policies, curves, and a map or a table.

    Write the page to a file (`Path("explorer.html").write_text(...)`) and open it in a browser. It needs no server and
    no network.

    Args:
        path: The eta-path. If it was computed with a tolerance, the page says so.
        world: The grid world from which the model of the path was read, to draw its map; without it (and without
            `axes`), the page has a table of states.
        axes: Names and sizes of one to three variables whose product is the set of states, such as
            `{"wear": 20, "jobs": 6}`, to draw any model as a map. The last variable changes fastest: state
            `wear * 6 + jobs`. The model may have one more state, the last one, if it is absorbing. Two axes give a map
            of rows and columns, one axis a strip, and three axes one map for each value of the first.
        title: Heading of the page.
    """
    check_type(path, "path", EtaPath, "an EtaPath: compute one with `lz.eta_path(mdp, default_policy)`")
    if title is not None:
        check_type(title, "title", str, "text, or None")
    if world is not None and axes is not None:
        raise ValueError("world and axes are both given, but the page has one map: pass only one of them.")
    if world is not None and len(world.cells) != path.mdp.n_states:
        raise ValueError(
            f"world has {len(world.cells)} states, but the path's model has {path.mdp.n_states}: pass the world from "
            "which the model was read, or None for a table of states."
        )
    if axes is not None:
        check_axes(axes, path.mdp)
    heading = "Lazy-MDP explorer" if title is None else title
    data = page_data(path, world, axes, heading)
    parts = {
        "TITLE": html.escape(heading).encode("ascii", "xmlcharrefreplace").decode(),
        "LIGHT": css_variables(LIGHT_THEME),
        "DARK": css_variables(DARK_THEME),
        "DATA": as_json(data),
        "CSS": asset("explorer.css"),
        "JS": "\n".join(asset(f"{name}.js") for name in _SCRIPTS),
        "UPLOT_CSS": asset("uPlot.min.css"),
        "UPLOT_JS": asset("uPlot.iife.min.js"),
        "UPLOT_LICENSE": asset("uPlot.LICENSE").strip(),
    }
    return filled(asset("explorer.html"), parts)
