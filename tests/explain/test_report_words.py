"""The sentences of the report, from numbers chosen by hand."""

import numpy as np

from lazymdp.explain.report_words import counted, facts_of, ranking_words, summary

ABOUT = {"agent": "A", "env": "E", "eta": 0.1, "default_policy": "noop", "action_names": ["left", "right"]}


def sentences(*gaps, threshold=0.1, returns=None, truncated=(), fps=10.0, **about):
    """The summary of episodes with these lazy-gaps, in control where the gap exceeds the threshold."""
    steps = []
    for row in gaps:
        gap = np.asarray(row, dtype=float)
        control = gap > threshold
        steps.append(
            {
                "lazy_gap": gap, "control": control, "price": np.where(control, 0.1, 0.0),
                "action": np.ones(len(gap), dtype=int),
            }
        )  # fmt: skip
    earned = returns or [1.0] * len(gaps)
    summaries = [{"return": each, "truncated": place in truncated} for place, each in enumerate(earned)]
    facts = facts_of(steps, summaries, fps)
    acts, earns = summary(ABOUT | about, facts, steps)
    return facts, " ".join(acts), " ".join(earns)


def with_peaks(length, peaks):
    row = np.zeros(length)
    for step, gap in peaks.items():
        row[step] = gap
    return row


def test_few_moments_are_listed():
    facts, acts, earns = sentences(with_peaks(50, {10: 0.5, 20: 2.0, 30: 1.0, 40: 0.5}))
    found = [(moment.step, moment.share) for moment in facts.moments]
    assert found == [(20, 0.5), (30, 0.25), (10, 0.125), (40, 0.125)]
    assert acts == (
        "It acts in 8% of the steps and leaves the others to the default policy (noop). One moment accounts for most "
        "of the gain (50%): step 20 (right, lazy-gap 2)."
    )
    assert earns == (
        "The episode has 50 steps. Its return is 1. "
        "Each step in control costs 0.1, which adds up to 0.4 in this episode."
    )


def test_three_moments():
    _, acts, _ = sentences(with_peaks(100, {10: 1.0, 30: 0.9, 50: 0.8, 60: 0.7, 70: 0.7, 80: 0.7}))
    assert "Three moments account for most of the gain (56%): step 10 (right, lazy-gap 1), step 30 (" in acts
    assert "lazy-gap 0.9) and step 50 (right, lazy-gap 0.8)." in acts


def test_a_moment_holds_the_steps_around_its_peak():
    facts, acts, _ = sentences(with_peaks(100, {20: 1.0, 21: 0.9, 22: 0.8, 23: 0.7, 60: 0.6}), fps=4.0)
    assert [moment.step for moment in facts.moments] == [20, 23, 60]
    assert facts.moments[0].share == 2.7 / 4.0
    assert "One moment accounts for most of the gain (68%)" in acts
    assert "One moment accounts for all of the gain: step 5" in sentences(with_peaks(20, {5: 1.0}))[1]


def test_a_gain_that_is_spread_out():
    _, acts, _ = sentences(with_peaks(100, dict.fromkeys(range(0, 100, 5), 1.0)))
    assert "The gain is spread out: the eight largest moments account for 40% of it." in acts


def test_an_agent_that_never_or_always_acts():
    facts, acts, earns = sentences(with_peaks(50, {10: 0.5}), threshold=1.0)
    assert acts == "It never takes control: the default policy (noop) acts in every step."
    assert facts.moments[0].step == 10  # where taking control would have been worth most
    assert "costs" not in earns
    assert "It takes control in every step" in sentences(np.ones(50), eta=None)[1]


def test_several_episodes():
    rows = with_peaks(50, {10: 0.5}), with_peaks(30, {5: 2.0}), np.zeros(20)
    facts, acts, earns = sentences(*rows, returns=[1.0, 3.0, 2.0], truncated={2})
    assert facts.start == 1
    assert [(moment.episode, moment.step) for moment in facts.moments] == [(1, 5), (0, 10)]  # none of a lazy episode
    assert "One moment accounts for all of the gain of episode 1: step 5 (right, lazy-gap 2)." in acts
    assert earns.startswith(
        "The three episodes have 100 steps in all; one episode reached the time limit. "
        "The return is 2 on average, 1 to 3."
    )
    assert "; all of them reached the time limit. The return is 1 in each." in sentences(*rows, truncated={0, 1, 2})[2]
    assert "; both reached the time limit." in sentences(*rows[:2], truncated={0, 1})[2]


def test_values_of_a_critic_are_called_estimates():
    gaps = with_peaks(50, {10: 0.5})
    poor = "The lazy-gaps come from a critic whose values hardly follow the returns"
    assert sentences(gaps, critic={"correlation": 0.9})[2].endswith(
        "The lazy-gaps come from a fitted critic, whose values follow the returns (correlation 0.9)."
    )
    assert sentences(gaps, critic={"correlation": 0.1})[2].endswith(f"{poor} (correlation 0.1): do not rely on them.")
    assert sentences(gaps, critic={"correlation": None})[2].endswith(f"{poor}: do not rely on them.")


def test_counts_are_words_up_to_ten():
    assert [counted(count, "step") for count in (0, 1, 3, 11, 1200)] == [
        "no steps", "one step", "three steps", "11 steps", "1,200 steps",
    ]  # fmt: skip


def replay(lead, low, high=2.0):
    return {"episode": 0, "step": 0, "return_agent": 3.0, "return_default": 3.0 - lead, "low": low, "high": high}


def test_replays_are_told():
    def said(*rows):
        return sentences([0.0, 1.0], counterfactuals=list(rows))[1].rpartition(": step 1 (")[2].partition(". ")[2]

    failed = replay(0.0, 0.0) | {"return_agent": None, "return_default": None}
    left = "replayed with only that step left to the default policy"
    assert said(replay(1.0, 0.5)) == f"One moment was {left}: this loses a return of 1."
    assert said(replay(1.0, 0.5), replay(2.0, 1.0)) == f"Two moments were {left}: both lose return, by 1.5 on average."
    some = said(replay(1.0, 0.5), replay(2.0, 1.0), replay(9.0, -0.1), failed)
    assert some == f"Three moments were {left}: two of them lose return, by 1.5 on average."
    one = said(replay(1.0, 0.5), replay(9.0, -0.1))
    assert one == f"Two moments were {left}: one of them loses a return of 1."
    assert said(replay(0.0, 0.0), replay(1.0, -1.0)) == f"Two moments were {left}: this makes no clear difference."
    assert said(*[replay(1.0, 0.5)] * 3) == f"Three moments were {left}: all of them lose return, by 1 on average."
    assert "replayed" not in said(failed) and "replayed" not in said()


def test_the_fidelity_of_the_ranking_is_told():
    def said(area, low, high):
        rows = [{"measure": "random", "replace_area": 9.0, "low": 8.0, "high": 10.0}]
        return ranking_words(
            {"fidelity": [*rows, {"measure": "lazy_gap", "replace_area": area, "low": low, "high": high}]}
        )

    costs = "Ranked by lazy-gap. Handing the steps with the largest lazy-gaps to the default policy costs "
    assert said(3.0, 1.0, 5.0) == costs + ("more return than handing over random steps, by 3 (95% interval 1 to 5).")
    assert said(3.0, -1.0, 5.0).endswith("by 3 (95% interval -1 to 5): the ranking may be no better than chance.")
    assert said(-3.0, -4.0, 1.0) == costs + (
        "no more return than handing over random steps: the difference is -3 (95% interval -4 to 1). Do not rely on "
        "the ranking."
    )
    assert said(0.0, 0.0, 0.0).endswith("so this says nothing about the ranking.")
    assert ranking_words({}) == ""
