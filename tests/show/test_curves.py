"""Curves: what is drawn, and which data are refused."""

from types import SimpleNamespace

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


NAMES = ["$\\bad$", "_x", "a$b", "$$", "\\$c$", "__", "50% {x} ^ & #"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_user_are_shown_as_they_are(name):
    """A dollar sign begins no formula, and an underscore does not keep a name out of the legend."""
    mean = Interval(*np.zeros((3, 2)))
    curves = SimpleNamespace(mode="keep", shares=np.array([0.1, 0.5]), loss=lambda kind: mean)
    for axes in (
        lz.show.frontier({name: points(), "other": points(1.0)}),
        lz.show.return_curves([0, 1], {name: mean, "other": mean}),
        lz.show.frequency_curve([0.1], [0.0, 1.0], label=name, bounds={name: 0.1}),
        lz.show.fidelity(curves, measure=name),
    ):
        axes.legend()
        drawn(axes)
        texts = axes.get_legend().get_texts()
        shown = [text._preprocess_math(text.get_text()) for text in texts]
        assert all(kind is False for _, kind in shown)
        assert any(name in text for text, _ in shown) and len(texts) >= 2


def points(shift=0.0, alone=None):
    """Three prices, the highest first, and the default policy alone."""
    mean = np.array([1.0, 2.0, 2.5]) + shift
    other = (
        None
        if alone is None
        else SimpleNamespace(return_interval=Interval(*(np.array([alone + x]) for x in (0, -1, 1))))
    )
    return SimpleNamespace(
        etas=np.array([0.5, 0.1, 0.0]), control_rate=np.array([0.1, 0.4, 1.0]),
        return_interval=Interval(mean, mean - 0.2, mean + 0.3), default_alone=other,
    )  # fmt: skip


def test_a_frontier_has_a_point_per_price_with_its_interval_and_the_default_alone():
    axes = lz.show.frontier({"first": points(alone=0.5), "second": points(1.0, alone=0.5), "third": points(2.0, 0.2)})
    lines = [container.lines[0] for container in axes.containers]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "first",
        "second",
        "third",
        "default policy alone",
    ]
    np.testing.assert_array_equal(lines[0].get_xydata(), [[1.0, 2.5], [0.4, 2.0], [0.1, 1.0]])  # by price
    np.testing.assert_array_equal([line.get_xydata()[0] for line in lines[3:]], [[0.0, 0.5], [0.0, 0.2]])  # each once
    bar = axes.containers[0].lines[2][0].get_segments()[0]
    np.testing.assert_allclose(bar, [[1.0, 2.3], [1.0, 2.8]])
    assert len({(line.get_color(), line.get_linestyle()) for line in lines[:3]}) == 3
    drawn(axes)
    alone = lz.show.frontier(points())
    assert [text.get_text() for text in alone.get_legend().get_texts()] == ["agent"]
    with pytest.raises(ValueError, match="6 curves in one picture"):
        lz.show.frontier(dict.fromkeys("abcdef", points()))


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("replace", "Replace. The chosen steps are handed over:\nthe highest should lose more than random steps"),
        ("keep", "Keep. All other steps are handed over:\nthe highest should lose less than random steps"),
    ],
)
def test_fidelity_says_which_curve_should_be_higher(mode, told):
    heights = {"top": 3.0, "random": 2.0, "bottom": 1.0}

    def loss(kind):
        return Interval(*(np.full(2, heights[kind]) + shift for shift in (0.0, -0.5, 0.5)))

    axes = lz.show.fidelity(SimpleNamespace(mode=mode, shares=np.array([0.1, 0.4]), loss=loss), measure="lazy-gap")
    assert axes.get_title(loc="left") == told
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "highest lazy-gap", "random steps", "lowest lazy-gap"
    ]  # fmt: skip
    for line, height in zip(axes.lines, heights.values(), strict=True):
        np.testing.assert_allclose(line.get_xydata(), [[10.0, height], [40.0, height]])
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (2.5, 3.5)
    drawn(axes)
