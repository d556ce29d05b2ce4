"""Curves: what is drawn, and which data are refused."""

import numpy as np
import pytest
from pixels import drawn

import lazymdp as lz
from lazymdp.envs import RiversAndBridges
from lazymdp.measure.statistics import Interval


def test_path_curves_have_a_point_per_policy():
    mdp = lz.MDP.from_gymnasium(RiversAndBridges(), 0.99)
    path = lz.eta_path(mdp, lz.policies.uniform(mdp))
    axes = lz.show.path_curves(path)
    assert len(axes.collections[0].get_offsets()) == path.start_control_counts.size
    drawn(axes)


def test_a_frequency_curve_is_a_step_per_policy_with_the_bounds_marked():
    axes = lz.show.frequency_curve([0.1, 0.2], [0.0, 0.5, 1.0], bounds={"eta_min": 0.1, "eta_max": 0.2}, label="play")
    steps = axes.patches[0].get_data()
    np.testing.assert_allclose(steps.values, [0.0, 0.5, 1.0])
    np.testing.assert_allclose(steps.edges[1:3], [0.1, 0.2])
    assert [line.get_xdata()[0] for line in axes.lines[::2]] == [0.1, 0.2]
    drawn(axes)
    with pytest.raises(ValueError, match=r"shape \(2,\), expected \[3\], one more than there are"):
        lz.show.frequency_curve([0.1, 0.2], [0.0, 0.5])


def test_return_curves_draw_means_with_bands():
    mean = np.linspace(0.0, 1.0, 5)
    curves = {name: Interval(mean + shift, mean + shift - 0.1, mean + shift + 0.1) for shift, name in enumerate("abc")}
    axes = lz.show.return_curves(np.arange(5), curves)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]
    assert len(axes.collections) == 3
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 3
    drawn(axes)
    with pytest.raises(ValueError, match="6 curves in one picture"):
        lz.show.return_curves([0], dict.fromkeys("abcdef", Interval(*np.zeros((3, 1)))))
