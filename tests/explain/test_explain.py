"""From an agent to a page in one call, for an exact agent and for a callable; its parts on FrozenLake."""

import functools
import json
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("imageio_ffmpeg")

from recordings import about

import lazymdp as lz
from lazymdp.explain import frontier as frontiers
from lazymdp.explain.critic import fit_critic
from lazymdp.explain.frontier import frontier
from lazymdp.explain.ranking_trust import player_trust
from lazymdp.explain.record import make_player
from lazymdp.explain.recording import RecordingWriter


@pytest.fixture(scope="module")
def lake():
    env = gym.make("FrozenLake-v1", is_slippery=True)
    return lz.MDP.from_gymnasium(env, 0.97)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(frontiers, "EPISODES", 20)
    module = sys.modules["lazymdp.explain.explain"]  # the package has a function of this name
    monkeypatch.setattr(module, "player_trust", functools.partial(player_trust, episodes=5))


def test_an_exact_agent_is_explained_on_one_page(lake, tmp_path):
    told = []
    lz.explain.explain(
        lake, "FrozenLake-v1", path=tmp_path / "page.html", folder=tmp_path / "kept", eta=0.002, episodes=2, moments=2,
        progress=lambda *work: told.append(work),
    )  # fmt: skip
    page = (tmp_path / "page.html").read_text()
    assert "What would have followed" in page and "Loss of return beyond that of random steps" in page
    about = json.loads((tmp_path / "kept" / "recording.json").read_text())
    assert len(about["counterfactuals"]) == 2 and len(about["fidelity"]) == 3
    assert about["frontier"][-1]["eta"] is None and about["frontier"][0]["eta"] == 0.0
    assert 0.002 in [point["eta"] for point in about["frontier"]]  # its own price
    assert {what for what, _, _ in told} >= {"replaying moments", "playing at other prices", "writing the page"}


def test_an_agent_without_values_gets_a_critic(tmp_path):
    def upright(observation):
        return int(observation[2] + 0.3 * observation[3] > 0.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lz.explain.explain(
            upright, gym.make("CartPole-v1"), path=tmp_path / "page.html", episodes=1, moments=1, max_steps=60,
            critic="fit",
        )  # fmt: skip
    page = (tmp_path / "page.html").read_text()
    assert "One moment was replayed" in page and "Ranked by lazy-gap" in page
    assert "The default policy alone earns a return of" in page and "lazy-gap of its critic exceeds the price" in page
    assert "The critic" in page and [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_return_of_an_exact_agent_falls_with_the_price(lake):
    player = make_player(lake, "FrozenLake-v1", 0.02, None)
    points = frontier(player)
    rates = [point["control_rate"] for point in points]
    assert max(np.diff(rates)) < 0.1 and rates[-1] == 0.0 and rates[0] > 0.9  # up to the noise of 20 episodes
    assert points[0]["return"] > points[-1]["return"] and player.eta == 0.02
    assert all(point["low"] <= point["return"] <= point["high"] for point in points)


@pytest.fixture(scope="module")
def lake_policy():
    """The optimal policy of FrozenLake as a function, which knows nothing of values."""
    mdp = lz.MDP.from_gymnasium(gym.make("FrozenLake-v1", is_slippery=False), 0.97)
    best = lz.policies.optimal(mdp).argmax(axis=1)
    return lambda state: best[state]


def test_an_agent_with_a_critic_acts_where_the_gap_exceeds_the_price(lake_policy):
    player = make_player(lake_policy, gym.make("FrozenLake-v1", is_slippery=False), None, None)
    player.critic = fit_critic(player, steps=2_000, updates=400)
    points = frontier(player)
    assert points[0]["eta"] == 0.0 and points[0]["control_rate"] == 1.0 and points[0]["return"] == 1.0
    assert points[-1]["eta"] is None and points[-1]["control_rate"] == 0.0 and points[-1]["return"] < 0.5
    between = [(point["eta"], point["control_rate"]) for point in points[1:-1]]
    assert between and [eta for eta, _ in between] == sorted(eta for eta, _ in between)
    assert all(0.0 < rate < 1.0 for _, rate in between) and between[0][1] > between[-1][1]


@pytest.mark.parametrize("nested", [False, True])
def test_an_agent_without_values_chooses_for_a_batch_of_states(lake_policy, nested):
    """Gymnasium iterates over batches of `Discrete` observations only with the space of the batch."""
    env = gym.make("FrozenLake-v1", is_slippery=False)
    if nested:
        space = gym.spaces.Dict({"place": env.observation_space})
        env = gym.wrappers.TransformObservation(env, lambda state: {"place": state}, space)
    agent = (lambda seen: lake_policy(seen["place"])) if nested else lake_policy
    player = make_player(agent, env, None, None)
    player.critic = fit_critic(player, steps=100, updates=5)
    states = np.arange(16)
    batch = {"place": states} if nested else states
    expected = [lake_policy(state) for state in states]
    assert player.predict(batch)[0].tolist() == expected
    q, gap = player.values(batch)
    np.testing.assert_allclose(gap, q[states, expected] - q.mean(axis=1))


def test_an_agent_without_values_has_no_frontier():
    assert frontier(make_player(lambda observation: 0, gym.make("CartPole-v1"), None, None)) == []


def test_the_lazy_gap_of_an_exact_agent_beats_random_steps(lake):
    rows = player_trust(make_player(lake, "FrozenLake-v1", 0.0, None), episodes=60)
    assert [row["measure"] for row in rows] == ["lazy_gap", "action_gap", "importance_advice"]
    assert rows[0]["replace_area"] > 0.0 and all(row["low"] <= row["replace_area"] <= row["high"] for row in rows)


def test_steps_of_an_agent_without_values_cannot_be_ranked():
    with pytest.raises(ValueError, match="the agent has no values, so its steps cannot be ranked"):
        player_trust(make_player(lambda observation: 0, gym.make("CartPole-v1"), None, None))


def test_bad_arguments_are_refused_before_anything_is_written(lake, tmp_path):
    for bad, message in (({"moments": 0}, "moments is 0"), ({"episodes": 0}, "episodes is 0")):
        with pytest.raises(ValueError, match=message):
            lz.explain.explain(lake, "FrozenLake-v1", path=tmp_path / "x.html", eta=0.1, **bad)
    with pytest.raises(FileNotFoundError, match="there is no recording in"):
        lz.explain.explain(lake, "FrozenLake-v1", path=tmp_path / "x.html", eta=0.1, against=tmp_path / "none")
    with pytest.raises(ValueError, match="critic is 'fit', but the agent has values of its own"):
        lz.explain.explain(lake, "FrozenLake-v1", path=tmp_path / "x.html", eta=0.1, critic="fit")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_or_shown_is_refused_before_the_agent_plays(tmp_path):
    played = []
    for path, error in ((tmp_path / "none" / "x.html", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error, match="cannot write"):
            lz.explain.explain(lambda seen: played.append(seen) or 0, gym.make("CartPole-v1"), path=path)
    RecordingWriter(tmp_path / "empty", about())
    with pytest.raises(ValueError, match=r"^against \(.*empty\) has no whole episode"):
        lz.explain.explain(
            lambda seen: played.append(seen) or 0, gym.make("CartPole-v1"), path=tmp_path / "x.html",
            against=tmp_path / "empty",
        )  # fmt: skip
    assert played == []


def test_a_batch_is_judged_like_single_steps(lake):
    for player in (make_player(lake, "FrozenLake-v1", 0.01, None),):
        seen = np.arange(16)
        q, gap = player.values(seen)
        judged = player.judge(list(seen), np.zeros(16, int), np.zeros(16, int))
        np.testing.assert_array_equal(q, judged.q)
        np.testing.assert_array_equal(gap, judged.lazy_gap)
        assert [player.choose(state, 0) for state in seen] == player.predict(seen)[0].tolist()
