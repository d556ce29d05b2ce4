"""Pictures: what is drawn, where, and in which colours."""

import ast
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure, RiversAndBridges
from lazymdp.measure.statistics import Interval

matplotlib.use("Agg")
SHOW = Path(lz.__file__).parent / "show"


def drawn(axes):
    axes.figure.canvas.draw()
    image = np.asarray(axes.figure.canvas.buffer_rgba())
    matplotlib.pyplot.close(axes.figure)
    return image


def test_a_policy_map_shows_control_in_orange_and_lazy_in_gray():
    world = KeyDoorTreasure()
    lazy = drawn(lz.show.policy_map(world, np.full(206, 4), layer=~world.has_key))
    control = drawn(lz.show.policy_map(world, np.full(206, 1), layer=~world.has_key))

    def share(image, color):
        wanted = np.array(matplotlib.colors.to_rgb(color)) * 255
        return (np.abs(image[..., :3] - wanted).max(axis=-1) < 2).mean()

    assert share(lazy, lz.show.LAZY) > 0.3
    assert share(lazy, lz.show.CONTROL) == 0.0
    assert share(control, lz.show.CONTROL) > 0.3
    assert share(control, lz.show.LAZY) == 0.0


def test_heat_map_and_curves_draw_into_the_axes_given():
    world = RiversAndBridges()
    _, axes = matplotlib.pyplot.subplots()
    assert lz.show.heat_map(world, np.arange(75.0), label="gap", ax=axes) is axes
    assert drawn(axes).std() > 0
    assert drawn(lz.show.heat_map(world, np.zeros(75))).std() > 0  # all zero: no division by nothing
    mdp = lz.MDP.from_gymnasium(world, 0.99)
    path = lz.eta_path(mdp, lz.policies.uniform(mdp))
    axes = lz.show.path_curves(path)
    assert len(axes.collections[0].get_offsets()) == path.start_counts.size
    drawn(axes)


def test_control_cells_are_coloured_by_value():
    world = KeyDoorTreasure()
    values = np.linspace(0.0, 1.0, 206)
    axes = lz.show.policy_map(world, np.where(np.arange(206) % 2, 4, 1), values=values, layer=~world.has_key)
    colors = {matplotlib.colors.to_hex(patch.get_facecolor()) for patch in axes.patches}
    assert lz.show.LAZY in colors and lz.show.CONTROL not in colors
    assert len(colors) > 40  # a shade per control state
    drawn(axes)


def test_a_world_map_shows_every_special_cell():
    axes = lz.show.world_map(KeyDoorTreasure(apple=True))
    assert sorted(text.get_text() for text in axes.texts) == sorted("SKDTA")
    drawn(axes)


def test_a_heat_map_leaves_out_what_is_no_number():
    world = RiversAndBridges()
    values = np.where(np.arange(75) < 10, np.nan, 1.0)
    axes = lz.show.heat_map(world, values, top=2.0)
    mesh = axes.collections[0]
    assert mesh.get_clim() == (0.0, 2.0)
    assert np.ma.count_masked(mesh.get_array()) >= 10
    drawn(axes)


def test_a_frequency_curve_is_a_step_per_policy_with_the_bounds_marked():
    axes = lz.show.frequency_curve([0.1, 0.2], [0.0, 0.5, 1.0], bounds={"eta_min": 0.1, "eta_max": 0.2}, label="play")
    steps = axes.patches[0].get_data()
    np.testing.assert_allclose(steps.values, [0.0, 0.5, 1.0])
    np.testing.assert_allclose(steps.edges[1:3], [0.1, 0.2])
    assert [line.get_xdata()[0] for line in axes.lines[::2]] == [0.1, 0.2]
    drawn(axes)
    with pytest.raises(ValueError, match=r"shape \(2,\), expected \[3\], one more than"):
        lz.show.frequency_curve([0.1, 0.2], [0.0, 0.5])


def test_score_curves_draw_means_with_bands():
    mean = np.linspace(0.0, 1.0, 5)
    curves = {name: Interval(mean + shift, mean + shift - 0.1, mean + shift + 0.1) for shift, name in enumerate("abc")}
    axes = lz.show.score_curves(np.arange(5), curves)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]
    assert len(axes.collections) == 3
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 3
    drawn(axes)
    with pytest.raises(ValueError, match="6 curves in one picture"):
        lz.show.score_curves([0], dict.fromkeys("abcdef", Interval(*np.zeros((3, 1)))))


def test_the_style_is_left_as_it_was():
    before = dict(plt.rcParams)
    with lz.show.styled():
        assert plt.rcParams["legend.frameon"] is False
    drawn(lz.show.world_map(RiversAndBridges()))
    assert dict(plt.rcParams) == before


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
