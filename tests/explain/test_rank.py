"""The measures of importance, with values computed by hand."""

import numpy as np
import pytest
import small_recordings as recordings

import lazymdp as lz
from lazymdp.explain.rank import HIGHLIGHTS_INTERVAL, MEASURES, Ranking

pytest.importorskip("pyarrow")
RNG = np.random.default_rng(0)


def steps(q):
    return {"q": np.asarray(q, dtype=float), "action": np.zeros(len(q))}


def test_measures_of_values():
    given = steps([[1.0, 3.0, 2.5], [4.0, 4.0, 4.0]])
    np.testing.assert_allclose(MEASURES["action_gap"](given, RNG), [0.5, 0.0])
    np.testing.assert_allclose(MEASURES["importance_advice"](given, RNG), [2.0, 0.0])
    np.testing.assert_allclose(MEASURES["highlights"](given, RNG), [2.0, 0.0])


def test_entropy_does_not_depend_on_the_scale():
    given = np.array([[0.0, 2.0], [1.0, 1.0], [0.0, 1.0]])
    found = MEASURES["entropy"](steps(given), RNG)
    assert found[0] > found[2] > found[1] == pytest.approx(-np.log(2.0))
    np.testing.assert_allclose(MEASURES["entropy"](steps(7.0 + 100.0 * given), RNG), found)
    scale = np.std([-1.0, 1.0, 0.0, 0.0, -0.5, 0.5])
    chance = 1.0 / (1.0 + np.exp(-2.0 / scale))
    assert found[0] == pytest.approx(chance * np.log(chance) + (1 - chance) * np.log(1 - chance))
    np.testing.assert_allclose(MEASURES["entropy"](steps([[3.0, 3.0]]), RNG), -np.log(2.0))


def test_rank_of_a_recording(tmp_path):
    recording = recordings.write(tmp_path / "r", [[0.1, 0.5, 0.2, 0.9], [0.3, 0.9, 0.4]])
    ranking = lz.explain.rank(recording)
    assert ranking.by == "lazy_gap" and [len(score) for score in ranking.score] == [4, 3]
    assert ranking.top(3) == [(0, 3), (1, 1), (0, 1)]
    assert len(ranking.top(100)) == 7
    one, other, again = (lz.explain.rank(recording, "random", seed=seed).score for seed in (0, 1, 0))
    np.testing.assert_array_equal(one[1], again[1])
    assert not np.array_equal(one[1], other[1])
    with pytest.raises(ValueError, match="critical_eta is unknown in step 0 of episode 0 .* dials"):
        lz.explain.rank(recording, "critical_eta")
    with pytest.raises(ValueError, match="by is 'gap', expected one of 'lazy_gap'"):
        lz.explain.rank(recording, "gap")
    with pytest.raises(ValueError, match="k is 0"):
        ranking.top(0)


def test_highlights_keep_a_distance():
    score = np.arange(3.0 * HIGHLIGHTS_INTERVAL)
    chosen = Ranking("highlights", [score, score], HIGHLIGHTS_INTERVAL).top(4)
    last = len(score) - 1
    assert chosen == [(0, last), (1, last), (0, last - HIGHLIGHTS_INTERVAL), (1, last - HIGHLIGHTS_INTERVAL)]


@pytest.mark.parametrize("by", ["lazy_gap", "action_gap", "highlights", "entropy"])
def test_unknown_values_are_an_error(tmp_path, by, monkeypatch):
    plain = recordings.columns
    unknown = {"q": np.full((2, 3), np.nan), "lazy_gap": np.full(2, np.nan)}
    monkeypatch.setattr(recordings, "columns", lambda *given: plain(*given) | unknown)
    recording = recordings.write(tmp_path / "r", [[0.1, 0.2]])
    with pytest.raises(ValueError, match=f"{by} is unknown in step 0 of episode 0 .*critic='fit'"):
        lz.explain.rank(recording, by)
