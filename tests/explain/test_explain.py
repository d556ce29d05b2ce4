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
from lazymdp.explain import critic
from lazymdp.explain import frontier as frontiers
from lazymdp.explain.critic import fit_critic
from lazymdp.explain.env_copies import copies_of
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
    monkeypatch.setattr(critic, "fit_critic", functools.partial(fit_critic, steps=2_000, updates=200))
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


def test_a_saved_model_is_played_itself(tmp_path):
    """Of a user's own model there is no environment: everything but the pictures is on the page."""
    waits = [[0.8, 0.2, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]  # a broken pump is sold
    repairs = [[0.8, 0.0, 0.2], [0.8, 0.0, 0.2], [0.0, 0.0, 1.0]]
    rewards = np.array([[1.0, 0.5], [0.8, 0.3], [0.0, 0.0]])
    names = dict(state_names=["new", "<worn>", "broken"], action_names=["wait", "repair"])
    mdp = lz.MDP(np.stack([waits, repairs], axis=1), rewards, 0.95, start=0, **names)
    mdp.save(tmp_path / "pump.npz")
    with pytest.warns(UserWarning, match="pump is recorded without frames"):
        lz.explain.explain(
            tmp_path / "pump.npz", path=tmp_path / "page.html", folder=tmp_path / "kept", eta=0.03, episodes=4
        )
    recording, page = lz.explain.load(tmp_path / "kept"), (tmp_path / "page.html").read_text()
    about, steps = recording.about, recording.steps(1)
    assert about["env"] == "pump" and about["action_names"] == ["wait", "repair"]
    assert about["state_names"] == ["new", "<worn>", "broken"] and len(about["fidelity"]) == 3
    assert about["frontier"][-1]["eta"] is None and about["counterfactuals"] and "no_fidelity" not in about
    assert all(row["note"] is None for row in about["counterfactuals"])
    assert page.count("&lt;worn&gt;") >= 1 and "<worn>" not in page.split("<script", 1)[0]
    states = steps["observation"][:, 0].astype(int)
    np.testing.assert_array_equal(steps["reward"], rewards[states, steps["action"]])
    assert recording.summary(1)["terminated"] and "the same state and choice" in page


def test_an_mdp_alone_is_played_to_its_time_limit(tmp_path):
    mdp = lz.MDP([[[0.5, 0.5], [0.0, 1.0]]] * 2, np.eye(2), 0.9)
    for agent, options in ((mdp, {"eta": 0.1}), (lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.1), {})):
        with pytest.warns(UserWarning, match="model is recorded without frames"):
            recording = lz.explain.record(agent, folder=tmp_path / type(agent).__name__, **options)
        assert recording.summary(0)["length"] == 1000 and recording.about["state_names"] == ["state 0", "state 1"]


def test_the_return_of_an_exact_agent_falls_with_the_price(lake):
    player = make_player(lake, "FrozenLake-v1", 0.02, None)
    points = frontier(player)
    rates = [point["control_rate"] for point in points]
    assert max(np.diff(rates)) < 0.1 and rates[-1] == 0.0 and rates[0] > 0.9  # up to the noise of 20 episodes
    assert points[0]["return"] > points[-1]["return"] and player.eta == 0.02
    assert all(point["low"] <= point["return"] <= point["high"] for point in points)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_trained_agent_plays_the_given_environment(wrapped, monkeypatch):
    pytest.importorskip("jax")
    from small_runs import untrained_agent

    monkeypatch.setattr(frontiers, "FEWER_EPISODES", 3)
    agent, env = untrained_agent("CartPole-v1", eta=(0.001, 0.5)), gym.make("CartPole-v1", max_episode_steps=5)
    player = make_player(agent, agent.wrap(env, 0.03) if wrapped else env, 0.03, None)
    points = frontier(player)
    assert [point["return"] for point in points] == [5.0] * len(points)  # no pole falls that soon
    assert points[-1]["eta"] is None and points[-1]["control_rate"] == 0.0 == player.at(0.5).eta - 0.5
    assert {0.0, 0.001, 0.03, 0.5} <= {point["eta"] for point in points} and player.eta == 0.03
    alone = untrained_agent("CartPole-v1", eta=0.01)
    assert [point["eta"] for point in frontier(make_player(alone, env, None, None))] == [pytest.approx(0.01), None]


@pytest.mark.filterwarnings("ignore:.*train longer")
def test_a_trained_agent_without_an_environment_plays_many_episodes_at_once(monkeypatch):
    pytest.importorskip("jax")
    from small_runs import untrained_agent

    monkeypatch.setattr(frontiers, "_play", None)  # which plays one by one
    agent = untrained_agent("CartPole-v1", eta=0.01)
    points = frontier(make_player(agent, None, None, None))
    assert [point["eta"] for point in points] == [pytest.approx(0.01), None] and points[-1]["return"] > 8.0


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
    player = make_player(lake, "FrozenLake-v1", 0.0, None)
    rows = player_trust(player, copies_of(player), episodes=60)
    assert [row["measure"] for row in rows] == ["lazy_gap", "action_gap", "importance_advice"]
    assert rows[0]["replace_area"] > 0.0 and all(row["low"] <= row["replace_area"] <= row["high"] for row in rows)
    for row in rows:  # what was in fact handed over, as `fidelity` counts it
        assert row["shares"] == [0.1, 0.2, 0.4] and all(0.0 < share < 1.0 for share in row["handed"])
        np.testing.assert_allclose(row["handed_random"], row["shares"], atol=0.05)
        assert row["handed_random"] == rows[0]["handed_random"]
    assert rows[0]["handed"] != rows[2]["handed"]


def test_steps_of_an_agent_without_values_cannot_be_ranked():
    with pytest.raises(ValueError, match="the agent has no values, so its steps cannot be ranked"):
        player = make_player(lambda observation: 0, gym.make("CartPole-v1"), None, None)
        player_trust(player, copies_of(player))


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
