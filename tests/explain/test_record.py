"""Recording agents of every form, and replaying what was recorded."""

import tracemalloc
import warnings

import gymnasium as gym
import numpy as np
import pytest

import lazymdp as lz

pytest.importorskip("pyarrow")
WORLD = "lazymdp/KeyDoorTreasure-v0"


def model(env=WORLD, gamma=0.99):
    return lz.MDP.from_gymnasium(gym.make(env), gamma)


def replayed(recording, env, episode=0):
    """Fails unless the executed actions lead to the same rewards, observations and end."""
    steps, summary = recording.steps(episode), recording.summary(episode)
    start = int(env.action_space.start)
    observation, _ = env.reset(seed=summary["seed"])
    for place, action in enumerate(steps["action"]):
        if "observation" in steps:
            np.testing.assert_array_equal(np.ravel(observation).astype(float), steps["observation"][place])
        observation, reward, terminated, _, _ = env.step(int(action) + start)
        assert reward == steps["reward"][place]
        assert terminated == (summary["terminated"] and place == summary["length"] - 1)


# -- exact agents ---------------------------------------------------------------------------------------------------


def test_the_exact_agent(tmp_path):
    mdp, eta = model(), 0.03
    recording = lz.explain.record(mdp, WORLD, folder=tmp_path / "r", eta=eta, episodes=2, seed=7)
    about = recording.about
    assert about["eta"] == eta and about["env"] == WORLD and about["default_policy"] == "uniform"
    assert about["action_names"] == ["up", "right", "down", "left"] and about["frames_per_second"] == 4
    solution = lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), eta))
    critical = lz.eta_path(mdp, lz.policies.uniform(mdp)).critical_eta
    for episode in range(2):
        steps, summary = recording.steps(episode), recording.summary(episode)
        states = steps["observation"][:, 0].astype(int)
        for name in ("value", "q", "lazy_gap", "control"):
            np.testing.assert_array_equal(steps[name], getattr(solution, name)[states], err_msg=name)
        np.testing.assert_array_equal(steps["choice"], solution.action[states])
        np.testing.assert_array_equal(steps["critical_eta"], critical[states])
        np.testing.assert_array_equal(steps["price"], np.where(steps["control"], eta, 0.0))
        np.testing.assert_array_equal(steps["default_probability"], 0.25)
        taken = steps["control"]
        np.testing.assert_array_equal(steps["action"][taken], steps["choice"][taken])
        assert summary["seed"] == 7 + episode and summary["terminated"] and summary["return"] == 1.0
        replayed(recording, gym.make(WORLD), episode)
    world = gym.make(WORLD, render_mode="rgb_array")
    world.reset(seed=7)
    for step, action in enumerate(recording.steps(0)["action"]):
        np.testing.assert_array_equal(recording.frame(0, step), world.render())  # what was seen before the step
        world.step(int(action))


def test_every_form_of_an_exact_agent_is_the_same(tmp_path):
    mdp, eta = model(), 0.03
    default = lz.policies.uniform(mdp)
    mdp.save(tmp_path / "model.npz")
    forms = {
        "mdp": (mdp, dict(env=gym.make(WORLD), eta=eta, default_policy=default)),
        "lazy": (lz.LazyMDP(mdp, default, eta), dict(env=WORLD)),
        "path": (lz.eta_path(mdp, default), dict(env=WORLD, eta=eta)),
        "npz": (tmp_path / "model.npz", dict(env=WORLD, eta=eta)),
        "id": (WORLD, dict(eta=eta)),
    }
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first environment cannot be rendered
        for name, (agent, options) in forms.items():
            found.append(lz.explain.record(agent, folder=tmp_path / name, **options).steps(0))
    for other in found[1:]:
        for name, column in found[0].items():
            np.testing.assert_array_equal(other[name], column, err_msg=name)


def test_a_map_and_gamma(tmp_path):
    (tmp_path / "map.txt").write_text("S.K\n..D\n..T\n")
    recording = lz.explain.record(tmp_path / "map.txt", folder=tmp_path / "r", eta=0.01, gamma=0.9)
    assert recording.has_frames and "gamma 0.9" in recording.about["agent"]


def test_a_model_with_an_added_terminal_state(tmp_path):
    taxi = next(name for name in gym.registry if name.startswith("Taxi-v"))
    recording = lz.explain.record(taxi, folder=tmp_path / "r", eta=0.5, gamma=0.95, default_policy="second-best")
    assert recording.about["action_names"][-1] == "drop off" and recording.summary(0)["terminated"]
    assert recording.about["default_policy"] == "second-best"


@pytest.mark.parametrize(
    ("env", "options", "words"),
    [
        (WORLD, {}, "eta is missing"),
        ("CartPole-v1", {"eta": 0.1}, "expected the 206 states of the model"),
        ("FrozenLake-v1", {"eta": 0.1}, "env has 16 states, but the model has 206"),
        ("Nothing-v0", {"eta": 0.1}, "env is 'Nothing-v0', which Gymnasium cannot make"),
        (WORLD, {"eta": 0.1, "critic": "fit"}, "the agent has values of its own"),
        (WORLD, {"eta": 0.1, "critic": "fir"}, "critic is 'fir'"),
        (WORLD, {"eta": 0.1, "episodes": 0}, "episodes is 0"),
        (WORLD, {"eta": 0.1, "seed": -1}, "seed is -1"),
        (WORLD, {"eta": float("nan")}, "eta is nan"),
    ],
)
def test_errors_of_an_exact_agent_come_before_the_writing(tmp_path, env, options, words):
    with pytest.raises(ValueError, match=words):
        lz.explain.record(model(), env, folder=tmp_path / "r", **options)
    assert not (tmp_path / "r").exists()


# -- trained agents -------------------------------------------------------------------------------------------------


@pytest.fixture
def untrained():
    pytest.importorskip("jax")
    from small_runs import untrained_agent

    return untrained_agent


def test_a_dial(tmp_path, untrained):
    agent, eta = untrained("CartPole-v1", eta=(0.001, 0.5)), 0.002
    recording = lz.explain.record(agent, folder=tmp_path / "r", eta=eta, episodes=2)
    assert recording.has_frames and recording.about["action_names"] == ["push left", "push right"]
    assert recording.about["agent"] == "PQN dial"
    steps = recording.steps(1)
    seen = steps["observation"].astype(np.float32)
    np.testing.assert_allclose(steps["q"], agent.q(seen, eta), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(steps["lazy_gap"], agent.lazy_gap(seen, eta), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(steps["critical_eta"], agent.critical_eta(seen), rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(steps["choice"], agent.predict(seen, eta=eta)[0])
    lazy = (steps["q"] * steps["default_probability"]).sum(axis=1) + eta
    np.testing.assert_allclose(steps["value"], np.maximum(steps["q"].max(axis=1), lazy), rtol=1e-4, atol=1e-5)
    replayed(recording, gym.make("CartPole-v1"), 1)
    with pytest.raises(ValueError, match="dial"):
        lz.explain.record(agent, folder=tmp_path / "no_price")
    with pytest.raises(ValueError, match="action space"):
        lz.explain.record(agent, "Acrobot-v1", folder=tmp_path / "other", eta=eta)
    assert not (tmp_path / "no_price").exists() and not (tmp_path / "other").exists()


def test_an_agent_for_one_price_in_an_environment_of_its_own(tmp_path, untrained):
    agent = untrained("CartPole-v1", eta=0.01)
    env = agent.make_env(render_mode="rgb_array")
    recording = lz.explain.record(agent, env, folder=tmp_path / "r", max_steps=5)
    assert recording.about["eta"] == pytest.approx(0.01) and recording.about["agent"] == "PQN agent"
    assert recording.summary(0)["length"] == 5
    assert recording.summary(0)["truncated"] and not recording.summary(0)["terminated"]
    assert np.isnan(recording.steps(0)["critical_eta"]).all()
    with pytest.raises(ValueError, match="trained with its own"):
        lz.explain.record(agent, folder=tmp_path / "s", default_policy="uniform")


def test_a_default_policy_that_repeats(tmp_path, untrained):
    """Its probabilities, and with them the lazy-gap and the critical price, depend on the last action."""
    agent = untrained("CartPole-v1", "repeat", eta=(0.001, 0.5))
    steps = lz.explain.record(agent, folder=tmp_path / "r", eta=0.4, max_steps=12).steps(0)
    last = np.append(0, steps["action"][:-1])
    np.testing.assert_array_equal(steps["default_probability"], np.eye(2)[last])
    gap = steps["q"].max(axis=1) - steps["q"][np.arange(len(last)), last]
    np.testing.assert_allclose(steps["lazy_gap"], gap, atol=1e-5)


def test_minatar(tmp_path, untrained):
    pytest.importorskip("pgx")
    agent = untrained("minatar/breakout", eta=(0.001, 0.5))
    recording = lz.explain.record(agent, folder=tmp_path / "r", eta=0.01)
    assert recording.about["env"] == "minatar/breakout" and recording.about["frame_shape"] == [240, 240, 3]
    assert recording.about["action_names"] == ["no-op", "left", "right"]
    assert "observation" not in recording.steps(0)  # 400 numbers, which the frames show


def test_the_folder_of_a_run(tmp_path):
    pytest.importorskip("jax")
    settings = dict(steps=2000, n_envs=16, rollout=8, hidden=(16,), eta=0.1)
    agent = lz.learn.train("FrozenLake-v1", algorithm="pqn", folder=tmp_path / "run", **settings)
    recording = lz.explain.record(tmp_path / "run", folder=tmp_path / "r", max_steps=20)
    other = lz.explain.record(agent, folder=tmp_path / "s", max_steps=20)
    np.testing.assert_array_equal(recording.steps(0)["q"], other.steps(0)["q"])
    assert recording.about["default_policy"] == "uniform" and recording.about["env"] == "FrozenLake-v1"
    with pytest.raises(ValueError, match="not the folder of a run"):
        lz.explain.record(tmp_path, folder=tmp_path / "t", eta=0.1)


# -- other agents ---------------------------------------------------------------------------------------------------


class Balance:
    """Keeps the pole up for a while; `predict` as in Stable-Baselines3."""

    def predict(self, observation, state=None, deterministic=False):
        assert deterministic
        return np.array(int(observation[2] + observation[3] > 0)), None


def balance(observation):
    return int(observation[2] + observation[3] > 0)


def test_a_callable_and_an_object_with_predict(tmp_path):
    recording = lz.explain.record(balance, "CartPole-v1", folder=tmp_path / "r", default_policy=0, max_steps=50)
    other = lz.explain.record(Balance(), "CartPole-v1", folder=tmp_path / "s", default_policy=0, max_steps=50)
    assert (recording.about["agent"], other.about["agent"]) == ("balance", "Balance")
    steps = recording.steps(0)
    assert recording.about["eta"] is None and not steps["price"].any() and steps["control"].all()
    for name in ("q", "value", "lazy_gap", "critical_eta"):
        assert np.isnan(steps[name]).all(), name
    np.testing.assert_array_equal(steps["default_probability"], np.tile([1.0, 0.0], (len(steps["q"]), 1)))
    np.testing.assert_array_equal(steps["action"], other.steps(0)["action"])
    replayed(recording, gym.make("CartPole-v1"))


def test_an_agent_made_for_the_lazy_action_may_be_lazy(tmp_path):
    env = lz.LazyAction(gym.make("CartPole-v1", render_mode="rgb_array"), default_policy=1, eta=0.5)
    recording = lz.explain.record(lambda observation: 2, env, folder=tmp_path / "r")
    steps = recording.steps(0)
    assert (steps["choice"] == 2).all() and (steps["action"] == 1).all() and recording.about["eta"] == 0.5
    assert not steps["control"].any() and not steps["price"].any()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (lambda observation: 2, "the agent chose action 2, but the environment has the actions 0 to 1"),
        (lambda observation: 0.5, "the agent chose 0.5, expected an action from 0 to 1"),
        (lambda observation: [0, 1], "expected an action from 0 to 1"),
    ],
)
def test_actions_that_do_not_fit_are_found_before_the_writing(tmp_path, agent, words):
    with pytest.raises(ValueError, match=words):
        lz.explain.record(agent, "CartPole-v1", folder=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_other_errors_before_the_writing(tmp_path):
    with pytest.raises(TypeError, match="expected a trained agent"):
        lz.explain.record(3.0, "CartPole-v1", folder=tmp_path / "r")
    with pytest.raises(TypeError, match=r"agent is the class Balance, expected an object of it, such as Balance\(\)"):
        lz.explain.record(type("Balance", (), {"predict": balance}), "CartPole-v1", folder=tmp_path / "r")
    with pytest.raises(TypeError, match="expected Discrete"):
        lz.explain.record(balance, "Pendulum-v1", folder=tmp_path / "r")
    with pytest.raises(ValueError, match="env is missing"):
        lz.explain.record(balance, folder=tmp_path / "r")
    with pytest.raises(ValueError, match="runs/mistyped is neither a file.*may also be the folder of a run"):
        lz.explain.record("runs/mistyped", folder=tmp_path / "r", eta=0.1)
    with pytest.raises(TypeError, match="env is 3"):
        lz.explain.record(balance, 3, folder=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_an_environment_that_cannot_be_rendered(tmp_path):
    with pytest.warns(UserWarning, match="CartPole-v1 is recorded without frames.*render mode is None"):
        recording = lz.explain.record(balance, gym.make("CartPole-v1"), folder=tmp_path / "r")
    assert not recording.has_frames and recording.steps(0)["observation"].shape[1] == 4


def test_text_needs_trust(tmp_path, monkeypatch):
    (tmp_path / "my_agents.py").write_text("def left(observation):\n    return 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="my_agents:left was not loaded.*trust=True"):
        lz.explain.record("my_agents:left", "CartPole-v1", folder=tmp_path / "r")
    recording = lz.explain.record("my_agents:left", "CartPole-v1", folder=tmp_path / "r", trust=True)
    assert recording.about["agent"] == "my_agents:left" and not recording.steps(0)["action"].any()
    with pytest.raises(ValueError, match="defines no right"):
        lz.explain.record("my_agents:right", "CartPole-v1", folder=tmp_path / "s", trust=True)
    (tmp_path / "model.zip").write_bytes(b"")
    with pytest.raises(ValueError, match="model.zip was not loaded: it is a pickle"):
        lz.explain.record(tmp_path / "model.zip", "CartPole-v1", folder=tmp_path / "s")


@pytest.mark.interop
def test_a_stable_baselines_model(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    trained = sb3.DQN("MlpPolicy", "CartPole-v1", seed=0)
    trained.save(tmp_path / "dqn.zip")
    recording = lz.explain.record(trained, "CartPole-v1", folder=tmp_path / "r")
    other = lz.explain.record(tmp_path / "dqn.zip", "CartPole-v1", folder=tmp_path / "s", trust=True)
    np.testing.assert_array_equal(recording.steps(0)["action"], other.steps(0)["action"])
    assert recording.about["agent"] == "DQN" and other.about["agent"] == "Stable-Baselines3 dqn.zip"
    with pytest.raises(ValueError, match="was made for the actions"):
        lz.explain.record(trained, "Acrobot-v1", folder=tmp_path / "t")
    other = gym.wrappers.FlattenObservation(gym.make("Blackjack-v1"))  # has two actions, too
    with pytest.raises(ValueError, match=r"was made for the observations .*, but the environment has"):
        lz.explain.record(trained, other, folder=tmp_path / "t")


def test_progress(tmp_path):
    seen = []
    lz.explain.record(
        balance, "CartPole-v1", folder=tmp_path / "r", episodes=2, max_steps=3, progress=lambda *done: seen.append(done)
    )
    during = [(f"recording, {step + 1} steps", step // 3, 2) for step in range(6)]
    assert seen == [*during, ("recording, 6 steps", 2, 2)]


class Noise(gym.Env):
    """Never ends; its frames, 30 kB each, can hardly be compressed."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space, action_space = gym.spaces.Box(0, 255, (84, 84), np.uint8), gym.spaces.Discrete(2)
    render_mode = "rgb_array"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((84, 84), np.uint8), {}

    def step(self, action):
        return self.np_random.integers(256, size=(84, 84), dtype=np.uint8), 0.0, False, False, {}

    def render(self):
        return self.np_random.integers(256, size=(100, 100, 3), dtype=np.uint8)


def test_memory_does_not_grow_with_the_length_of_an_episode(tmp_path):
    """`benchmarks/recording.py` measures the same with 27,000 steps of Atari."""

    def peak(steps):
        tracemalloc.start()
        lz.explain.record(lambda seen: 1, Noise(), folder=tmp_path / str(steps), max_steps=steps)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)  # what is imported and cached
    first, second = peak(400), peak(1200)
    assert first > 256 * 84 * 84  # the observations that are judged together
    assert (second - first) / 800 < 1_500  # bytes per step: the table of contents of the file of frames


@pytest.mark.parametrize(
    ("seen", "reward", "message"),
    [
        (
            np.array([np.nan, 0.0]),
            1.0,
            r"step 1 of the episode: observation\[0\] is nan, expected a whole number",
        ),
        (np.array([300, -5]), 1.0, r"observation\[0\] is 300"),
        (["1", "2"], 1.0, "expected numbers"),
        (np.array([0, 1], np.uint8), "1.5", "step 1 of the episode: it returned the reward '1.5', expected a number"),
        (np.array([0, 1], np.uint8), float("nan"), "it returned the reward nan"),
    ],
)
def test_what_would_be_recorded_as_something_else_is_refused(tmp_path, seen, reward, message):
    class Odd(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 255, (2,), np.uint8), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(2, np.uint8), {}

        def step(self, action):
            return seen, reward, False, False, {}

    with warnings.catch_warnings(), pytest.raises(ValueError, match=f"Odd.*{message}"):
        warnings.simplefilter("ignore")  # it is recorded without frames
        lz.explain.record(lambda observation: 0, Odd(), folder=tmp_path / "r", max_steps=3)
