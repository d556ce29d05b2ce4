"""LunarLander with a price per action: the score of the thesis, the jobs, and claims about made-up runs."""

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import lunarlander_cost
from lazymdp.experiments.experiment import stacked, table
from lazymdp.experiments.lunarlander_cost import ETAS, PUBLISHED, Config

matplotlib.use("Agg")
OURS = {"specialist": (220.0, 150.0, 60.0, -10.0), "dial": (215.0, 140.0, 20.0, -60.0), "never": (-131.0,) * 4,
        "heuristic": (200.0, 120.0, 10.0, -70.0)}  # fmt: skip


def made_up(**changed):
    parts = [
        table(game="LunarLander-v3", agent=agent, eta=ETAS, seed=seed, net_return=np.array(numbers) + seed - 4.5)
        for agent, numbers in {**OURS, "cold": (np.nan, 100.0, 0.0, -131.0), **changed}.items()
        for seed in range(10)
    ]
    rows = stacked(parts)
    return {"runs": {name: column[~np.isnan(rows["net_return"])] for name, column in rows.items()}}


def test_every_run_is_a_job_and_the_dials_come_first():
    names = lunarlander_cost.jobs(Config(seeds=2))
    assert names[:3] == ["rules", "dial_dial_0", "dial_dial_1"]
    assert (
        names[-1] == "cold_2.0_1"
        and len(names) == len(set(names)) == 1 + 2 * (1 + 4 + 3)
        and "cold_0.0_0" not in names
        and "specialist_1.6_1" in names
    )
    many = lunarlander_cost.jobs(Config())
    assert len(many) == len(set(many)) == 81 and many.index("specialist_2.0_4") < many.index("dial_dial_5")
    with pytest.raises(ValueError, match="agents has 'sb3', expected one or more of specialist, cold, dial"):
        lunarlander_cost.jobs(Config(agents=("dial", "sb3")))


def test_claims_compare_with_the_best_published_number_at_each_price():
    found = lunarlander_cost.claims(made_up())
    assert len(found) == 1 + 4 + 4 + 8 + 3 and all(claim.holds for claim in found)
    assert [claim.expected for claim in found[1:5]] == ["> 210 (Lazy-MDP)", "> 103 (Lazy-MDP)", "> -56 (Lazy-MDP)",
                                                        "> -131.3 (never acting)"]  # fmt: skip
    worse = lunarlander_cost.claims(made_up(dial=(209.0, 140.0, -57.0, -60.0), never=(-150.0,) * 4))
    assert [claim.holds for claim in worse[:9]] == [False, *[True] * 4, False, True, False, True]
    assert [claim.holds for claim in worse[9:17]] == [*[True] * 6, False, True]
    assert not lunarlander_cost.claims(made_up(cold=(np.nan, 151.0, 0.0, -131.0)))[-3].holds


def test_the_figure_shows_our_agents_and_the_published_ones():
    figure = lunarlander_cost.plot(made_up())
    words = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert len(words) == len(PUBLISHED) + 4 and {"specialist", "dial", "cold", "TempoRL (thesis)"} <= set(words)
    plt.close(figure)


def test_executed_actions_other_than_the_noop_are_counted():
    pytest.importorskip("Box2D")
    never, fired = (lunarlander_cost.play(lambda seen, a=a: np.full(len(seen), a), [500_000, 500_001]) for a in (0, 2))
    assert (never[1] == 0).all() and (fired[1] == fired[2]).all() and (never[2] > 50).all()
    rows = lunarlander_cost.make_job(Config(seeds=1, episodes=2, etas=(0.0, 2.0)), "rules")
    np.testing.assert_allclose(rows["net_return"], rows["mean_return"] - rows["eta"] * rows["actions"], atol=2e-3)
    assert rows["mean_return"][0] == pytest.approx(never[0].mean(), abs=1e-3)
