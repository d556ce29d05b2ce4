"""Replace and Keep: curves that are known by hand, thresholds, and reproducibility."""

import csv

import numpy as np
import pytest
from corridor_env import CorridorEnv, always_one

import lazymdp as lz
from lazymdp.measure.fidelity import Fidelity, threshold

WORTH = np.array([1.0, 5.0, 2.0, 4.0, 3.0])


def corridor():
    return CorridorEnv(WORTH)


def worth(observations):
    return WORTH[observations]


def measured(**options):
    return lz.measure.fidelity(always_one, corridor, worth, default_policy=0, episodes=8, **options)


def test_replace_by_hand():
    """Each handed-over step loses its worth: 1, 2 or 3 of the five steps, the largest or the smallest first."""
    found = measured(shares=(0.2, 0.4, 0.6))
    np.testing.assert_allclose(found.baseline, np.full(8, 15.0))
    np.testing.assert_allclose(found.loss("top").mean, [5.0, 9.0, 12.0])
    np.testing.assert_allclose(found.loss("bottom").mean, [1.0, 3.0, 6.0])
    np.testing.assert_allclose(found.handed["top"], [0.2, 0.4, 0.6])
    area = found.area("bottom")
    assert area.mean == area.low == area.high == pytest.approx(((4 + 6) / 2 * 0.2 + (6 + 6) / 2 * 0.2) / 0.4)
    assert "replace, 8 episodes with a mean return of 15" in repr(found)


def test_keep_by_hand():
    """Only the kept steps earn; keeping the top loses less, and the area is positive again."""
    found = measured(mode="keep", shares=(0.2, 0.4))
    np.testing.assert_allclose(found.loss("top").mean, [10.0, 6.0])
    np.testing.assert_allclose(found.loss("bottom").mean, [14.0, 12.0])
    np.testing.assert_allclose(found.handed["top"], [0.8, 0.6])
    assert found.area("bottom").mean == pytest.approx(5.0)


def test_random_steps_lose_their_share():
    found = lz.measure.fidelity(
        always_one, corridor, worth, default_policy=0, shares=(0.1, 0.4), episodes=2000, confidence=0.999
    )
    loss = found.loss("random")
    assert ((loss.low < [1.5, 6.0]) & (loss.high > [1.5, 6.0])).all()
    np.testing.assert_allclose(found.handed["random"], [0.1, 0.4], atol=0.01)


def test_tied_steps_are_chosen_at_random():
    """With a constant importance, top and bottom are random steps."""
    found = lz.measure.fidelity(always_one, corridor, lambda x: 0.0 * x, default_policy=0, shares=(0.3,), episodes=1000)
    for kind in ("top", "bottom", "random"):
        assert found.handed[kind][0] == pytest.approx(0.3, abs=0.03)
    np.testing.assert_array_equal(found.returns["top"], found.returns["random"])
    assert found.area().mean == 0.0


def test_the_same_seed_gives_the_same_curves():
    one, again, other = (
        lz.measure.fidelity(always_one, "CartPole-v1", lambda x: np.abs(x[:, 2]), episodes=5, shares=(0.3,), seed=seed)
        for seed in (1, 1, 2)
    )
    for kind in ("top", "bottom", "random"):
        np.testing.assert_array_equal(one.returns[kind], again.returns[kind])
    assert not np.array_equal(one.returns["random"], other.returns["random"])


def test_a_threshold_chooses_exactly_the_share():
    scores = np.array([1.0, 1.0, 1.0, 2.0, 3.0, 3.0])
    for share in (0.0, 0.1, 1 / 3, 0.4, 0.5, 0.9, 1.0):
        edge, probability = threshold(scores, share)
        assert 0.0 <= probability <= 1.0
        assert (scores > edge).mean() + probability * (scores == edge).mean() == pytest.approx(share)


def test_curves_are_written(tmp_path):
    measured(shares=(0.2,)).to_csv(tmp_path / "curves.csv")
    with open(tmp_path / "curves.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == ["top", "bottom", "random"]
    assert float(rows[0]["loss"]) == 5.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shares": (0.4, 0.2)}, r"shares is \[0.4, 0.2\], expected increasing"),
        ({"shares": (1.5,)}, "a share is 1.5, expected a number between 0 and 1"),
        ({"mode": "swap"}, "mode is 'swap', expected one of 'replace', 'keep'"),
        ({"gamma": 2.0}, "gamma is 2.0"),
    ],
)
def test_errors_name_the_value(options, words):
    with pytest.raises(ValueError, match=words):
        measured(**options)
    with pytest.raises(ValueError, match="kind is 'middle'"):
        Fidelity("replace", np.array([0.1]), np.zeros(1), {}, {}, 0.95).loss("middle")
