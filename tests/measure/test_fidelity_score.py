"""The named protocols on a corridor where every answer is known by hand."""

import numpy as np
import pytest
from corridor_env import CorridorEnv, FickleEnv, always_one

import lazymdp as lz
from lazymdp.measure.fidelity_score import chosen_steps, longest_run, random_steps

WORTH = np.array([0, 3, 1, 0, 0, 2, 2, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0], dtype=float)
"""20 steps: the single most valuable one is step 11, the best run of three is 5 to 7."""


def score(protocol, env=lambda: CorridorEnv(WORTH), measure=WORTH, **options):
    return lz.measure.fidelity_score(
        always_one, env, lambda x: measure[x], protocol=protocol, default_policy=0, episodes=6, **options
    )


def flags(*steps):
    return np.isin(np.arange(20), steps)


@pytest.mark.parametrize(
    ("protocol", "share", "steps"),
    [
        ("statemask-code", 0.1, (1,)),  # the top 2 are 11 and 1, two runs of one step: the first
        ("statemask-code", 0.25, (5, 6, 7)),  # the top 5: 11, 1, 5, 6, 7
        ("statemask-code", 0.01, (11,)),  # at least one step
        ("rice-spec", 0.05, (11,)),
        ("rice-spec", 0.15, (9, 10, 11)),  # three steps with a sum of 9: the first window
        ("rice-spec", 0.35, (5, 6, 7, 8, 9, 10, 11)),  # a sum of 15
        ("scattered", 0.1, (11, 1)),
        ("scattered", 0.25, (11, 1, 5, 6, 7)),
    ],
)
def test_the_steps_that_are_chosen(protocol, share, steps):
    np.testing.assert_array_equal(chosen_steps(protocol, WORTH, share), flags(*steps))


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_agrees_with_a_brute_force(seed):
    rng = np.random.default_rng(seed)
    importance = rng.random(int(rng.integers(5, 40)))
    length = importance.size
    window = max(1, round(0.2 * length))
    best = max(range(length - window + 1), key=lambda first: importance[first : first + window].mean())
    expected = (np.arange(length) >= best) & (np.arange(length) < best + window)
    np.testing.assert_array_equal(chosen_steps("rice-spec", importance, 0.2), expected)
    top = set(np.argsort(importance)[-max(1, int(0.3 * length)) :].tolist())
    spans = [(a, b) for a in range(length) for b in range(a, length) if set(range(a, b + 1)) <= top]
    first, last = max(spans, key=lambda span: (span[1] - span[0], -span[0]))
    expected = (np.arange(length) >= first) & (np.arange(length) <= last)
    np.testing.assert_array_equal(chosen_steps("statemask-code", importance, 0.3), expected)


def test_runs_and_random_steps():
    np.testing.assert_array_equal(longest_run(np.array([1, 0, 1, 1, 0, 1, 1], bool)), [0, 0, 1, 1, 0, 0, 0])
    assert not longest_run(np.zeros(3, dtype=bool)).any()
    rng = np.random.default_rng(0)
    places = set()
    for _ in range(200):
        window = random_steps("rice-spec", flags(4, 5, 6), rng)
        assert window.sum() == longest_run(window).sum() == 3
        places.add(int(np.argmax(window)))
    assert places == set(range(18))
    scattered = [random_steps("scattered", flags(4, 5, 6), rng) for _ in range(50)]
    assert {int(steps.sum()) for steps in scattered} == {3}
    assert any(longest_run(steps).sum() == 1 for steps in scattered)


def test_statemask_code_by_hand():
    """The run 5 to 7 loses 6 of 20: log(3/20) - log(6/20), lower is better."""
    found = score("statemask-code", share=0.25, scale=20.0)
    assert found.score.mean == found.score.low == found.score.high == pytest.approx(np.log(3 / 20) - np.log(6 / 20))
    assert found.change.mean == -6.0 and not found.higher_is_better
    assert found.share == pytest.approx(3 / 20)
    assert found.random.mean > found.score.mean and found.random_change.mean > -6.0


def test_rice_spec_by_hand():
    """The window 5 to 11 loses 15: log(15/20) - log(7/20), higher is better."""
    found = score("rice-spec", share=0.35, scale=20.0)
    assert found.score.mean == pytest.approx(np.log(15 / 20) - np.log(7 / 20))
    assert found.change.mean == -15.0 and found.higher_is_better
    assert found.random.mean < found.score.mean


def test_scattered_by_hand():
    """Steps 1 and 11 lose 12: log(12/20) - log(2/20), higher is better; a run of two steps could lose 9 at most."""
    found = score("scattered", share=0.1, scale=20.0)
    assert found.score.mean == pytest.approx(np.log(12 / 20) - np.log(2 / 20))
    assert found.change.mean == -12.0 and found.higher_is_better


def test_the_agent_acts_after_the_window_and_an_episode_may_end_in_it():
    """Action 0 in step 6 is fatal: the window 5 to 7 loses what is earned from step 5 on."""
    found = score("statemask-code", lambda: CorridorEnv(WORTH, fatal=(6,)), share=0.25, scale=20.0)
    assert found.change.mean == -WORTH[5:].sum()


def test_no_change_of_return_is_an_infinite_score():
    nothing = score("rice-spec", lambda: CorridorEnv(np.zeros(20)), share=0.1, scale=1.0)
    assert nothing.score.mean == nothing.score.high == -np.inf
    assert score("statemask-code", lambda: CorridorEnv(np.zeros(20)), share=0.1, scale=1.0).score.mean == np.inf


def test_an_environment_that_does_not_repeat_itself_is_an_error():
    with pytest.raises(ValueError, match="took another course at step 0, before any step was handed over"):
        score("scattered", lambda: FickleEnv(WORTH), share=0.1, scale=1.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "other", "scale": 1.0}, "protocol is 'other', expected one of 'statemask-code'"),
        ({"protocol": "scattered", "scale": 0.0}, "scale is 0.0, expected a positive change of return"),
        ({"protocol": "scattered", "scale": 1.0, "share": 0.0}, "share is 0.0"),
    ],
)
def test_errors_name_the_value(options, words):
    with pytest.raises(ValueError, match=words):
        score(**options)
