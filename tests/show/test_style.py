"""The style of the pictures does not change matplotlib's settings."""

from matplotlib import pyplot as plt
from pixels import drawn

import lazymdp as lz
from lazymdp.envs import RiversAndBridges


def test_the_style_is_left_as_it_was():
    before = dict(plt.rcParams)
    with lz.show.styled():
        assert plt.rcParams["legend.frameon"] is False
    drawn(lz.show.world_map(RiversAndBridges()))
    assert dict(plt.rcParams) == before
