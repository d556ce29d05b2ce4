"""Maps of grid worlds: which cells are drawn, and in which colors."""

import matplotlib
import numpy as np
from pixels import drawn

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure, RiversAndBridges


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


def test_a_heat_map_is_drawn_into_the_axes_given():
    world = RiversAndBridges()
    _, axes = matplotlib.pyplot.subplots()
    assert lz.show.heat_map(world, np.arange(75.0), label="gap", ax=axes) is axes
    assert drawn(axes).std() > 0
    assert drawn(lz.show.heat_map(world, np.zeros(75))).std() > 0  # all zero: no division by nothing


def test_control_cells_are_colored_by_value():
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
