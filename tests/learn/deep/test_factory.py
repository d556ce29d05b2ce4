"""What is made from names and folders: environments, default policies, agents, networks to start from."""

import shutil
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from small_runs import DQN_SMALL, SMALL

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep import factory  # noqa: E402
from lazymdp.learn.deep.config import DQNConfig  # noqa: E402
from lazymdp.learn.deep.dqn import DQN  # noqa: E402
from lazymdp.learn.deep.factory import load, make_algorithm, make_default_policy, make_env  # noqa: E402
from lazymdp.learn.deep.host_env import GymnasiumHost  # noqa: E402
from lazymdp.learn.deep.jax_env import JaxEnv  # noqa: E402
from lazymdp.learn.deep.pqn import PQN  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.train_config import TrainConfig  # noqa: E402
from lazymdp.learn.deep.trainer import Training, run_training, train  # noqa: E402

STATES, NOTHING = np.eye(16, dtype=np.float32), np.zeros(16, int)
DQN_RUN = replace(DQN_SMALL, steps=4000, form="structured", control_budget=None)


@pytest.fixture(scope="module")
def dqn_run(tmp_path_factory):
    """The folder of a dqn run in FrozenLake, structured, at one price."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    run_training(TrainConfig("FrozenLake-v1", DQN_RUN), folder=RunFolder(folder))
    return folder


def test_environments_are_compiled_where_possible():
    assert isinstance(make_env("FrozenLake-v1", 2), JaxEnv) and isinstance(make_env("CartPole-v1", 2), GymnasiumHost)
    lake = make_env("FrozenLake-v1", 2)
    assert (lake.max_steps, lake.space.n) == (100, 16)
    with pytest.raises(ValueError, match="env is 'nowhere-v0', which cannot be made"):
        make_env("nowhere-v0", 2)
    with pytest.raises(ValueError, match=r"Pendulum-v1 has the action space Box.*expected Discrete"):
        make_env("Pendulum-v1", 2)


def test_wrappers_keep_an_environment_with_a_table_on_the_host():
    firm = make_env("FrozenLake-v1", 2, env_kwargs={"is_slippery": False, "max_episode_steps": 9})
    assert isinstance(firm, JaxEnv) and firm.max_steps == 9

    def lake():
        return gym.make("FrozenLake-v1")

    assert isinstance(make_env(lake, 2), JaxEnv)
    doubled = make_env(lambda: gym.wrappers.TransformReward(lake(), lambda reward: 2 * reward), 2)
    assert isinstance(doubled, GymnasiumHost)


def test_a_table_whose_actions_do_not_begin_at_0():
    class Shifted(FrozenLakeEnv):
        def __init__(self):
            super().__init__()
            self.action_space = gym.spaces.Discrete(4, start=3)

        def get_action_meanings(self):
            return ["LEFT", "DOWN", "NOOP", "UP"]

    lake = make_env(Shifted, 1)
    assert isinstance(lake, JaxEnv) and (lake.first_action, lake.noop) == (3, 2)
    for form, column in (
        ("4", 1),
        (6, 3),
        ("noop", 2),
        (lambda state: 3, 0),
        (lambda states: np.full(len(states), 5), 2),
    ):
        np.testing.assert_array_equal(make_default_policy(form, lake)(STATES, NOTHING), np.eye(4)[[column] * 16])


CONTROLLERS = """
import numpy as np

def one(state):
    return 1 if state < 8 else 2

class Some:
    @staticmethod
    def batch(states):
        return np.where(states < 8, 1, 2)
"""


def test_a_function_is_imported_from_its_module(tmp_path, monkeypatch):
    (tmp_path / "some_controllers.py").write_text(CONTROLLERS)
    monkeypatch.syspath_prepend(tmp_path)
    lake = make_env("FrozenLake-v1", 1)
    for name in ("some_controllers:one", "some_controllers:Some.batch"):
        found = make_default_policy(name, lake)(STATES, NOTHING)
        np.testing.assert_array_equal(found, np.eye(4)[np.where(np.arange(16) < 8, 1, 2)])
    missing = r"the module no_such_module cannot be imported: No module .*or add that folder to PYTHONPATH"
    with pytest.raises(ValueError, match=missing):
        make_default_policy("no_such_module:one", lake)
    with pytest.raises(ValueError, match=r"'some_controllers:two', but .*some_controllers\.py defines no two"):
        make_default_policy("some_controllers:two", lake)


def test_bad_default_policies_are_refused():
    env, lake = make_env("CartPole-v1", 2), make_env("FrozenLake-v1", 2)
    with pytest.raises(ValueError, match=r"default_policy is '7', expected uniform.* 0 to 1"):
        make_default_policy("7", env)
    with pytest.raises(TypeError, match="needs Discrete observations"):
        make_default_policy(np.ones((4, 2)), env)
    with pytest.raises(ValueError, match=r"shape \(3, 2\), expected \(16, 4\)"):
        make_default_policy(np.ones((3, 2)), lake)
    with pytest.raises(ValueError, match=r"sum to 28\.0, not 1"):
        make_default_policy(np.full((16, 4), 7.0), lake)
    agent = train("FrozenLake-v1", algorithm="pqn", steps=128, n_envs=16, rollout=8, hidden=(16,))
    with pytest.raises(TypeError, match=r"default_policy is an Agent: give agent\.as_default\(\)"):
        make_default_policy(agent, lake)
    found = make_default_policy(agent.as_default(), lake)(STATES, NOTHING)
    np.testing.assert_array_equal(found, np.eye(4)[agent.q(STATES, 0.0).argmax(1)])


def test_the_algorithm_follows_from_its_settings():
    for settings, kind in ((SMALL, PQN), (DQN_SMALL, DQN)):
        made = make_algorithm(TrainConfig("CartPole-v1", settings), n_envs=3)
        assert isinstance(made, kind) and made.config is settings and made.env.groups == (slice(0, 3),)
        made.env.close()


def test_a_run_can_be_the_default_policy_of_another(dqn_run, tmp_path):
    agent, env = load(dqn_run), make_env("FrozenLake-v1", 2)
    q = agent.q(STATES)
    greedy = np.eye(4)[q.argmax(1)]

    def found(form):
        return make_default_policy(form, env)(STATES, NOTHING)

    for form in (str(dqn_run), dqn_run, f"{dqn_run}:greedy"):
        np.testing.assert_allclose(found(form), greedy)
    np.testing.assert_allclose(found(f"{dqn_run}:epsilon=0.2"), 0.8 * greedy + 0.05, rtol=1e-5)
    soft = np.exp(q / 0.5) / np.exp(q / 0.5).sum(1, keepdims=True)
    np.testing.assert_allclose(found(f"{dqn_run}:softmax=0.5"), soft, rtol=1e-4)
    for manner in ("epsilon=2", "softmax=0", "rarely", "epsilon=x", "greedy=5", "=3", "epsilon", "softmax"):
        with pytest.raises(ValueError, match="RUN:epsilon=0.1|is not a number"):
            found(f"{dqn_run}:{manner}")
    with pytest.raises(ValueError, match=r"trained on observations of shape \(16,\) with 4 actions"):
        make_default_policy(str(dqn_run), make_env("CartPole-v1", 2))
    colon = shutil.copytree(dqn_run, tmp_path / "a:b")  # environments of other modules have such names
    np.testing.assert_allclose(found(str(colon)), greedy)
    np.testing.assert_allclose(found(f"{colon}:epsilon=0.2"), 0.8 * greedy + 0.05, rtol=1e-5)
    assert RunFolder(tmp_path)._copied(f"{colon}:epsilon=0.2")[0] == "./default:epsilon=0.2"
    assert RunFolder(tmp_path)._copied(str(colon))[0] == "./default"


def test_a_dial_is_a_default_policy_at_price_0():
    dial = train("FrozenLake-v1", algorithm="pqn", steps=256, n_envs=16, rollout=8, hidden=(16,))
    policy = dial.as_default(epsilon=0.2).probabilities(STATES, NOTHING)
    np.testing.assert_allclose(policy, 0.8 * np.eye(4)[dial.q(STATES, 0.0).argmax(1)] + 0.05, rtol=1e-5)


def test_a_run_starts_from_the_network_of_another(dqn_run):
    lazy = replace(DQN_RUN, steps=128, form="augmented", learning_starts=100, learning_rate=1e-30)
    config = TrainConfig("FrozenLake-v1", replace(lazy, warm_start=dqn_run))
    run = Training(config)
    np.testing.assert_allclose(run.agent().q(STATES), load(dqn_run).q(STATES), rtol=1e-5, atol=1e-6)
    gap = run.agent().lazy_gap(STATES)  # the lazy output starts as the mean of the others plus the price
    np.testing.assert_allclose(gap, load(dqn_run).lazy_gap(STATES), rtol=1e-4, atol=1e-5)
    for changed, message in (
        (
            {"hidden": (8,)},
            r"another architecture: use its --network, --hidden and kind of price \(none, 16, eta 0\.1\)",
        ),
        ({"eta": (0.1, 0.5)}, "another architecture"),
        ({"warm_start": "nowhere"}, "nowhere is not the folder of a run"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            factory.check(TrainConfig("FrozenLake-v1", replace(config.settings, **changed)))
    with pytest.raises(ValueError, match=r"trained on observations of shape \(16,\)"):
        factory.check(TrainConfig("CartPole-v1", config.settings))


def test_only_a_dqn_run_can_start_one(tmp_path):
    train("FrozenLake-v1", algorithm="pqn", folder=tmp_path / "pqn", steps=128, n_envs=16, rollout=8, hidden=(16,))
    settings = replace(DQN_RUN, warm_start=tmp_path / "pqn")
    with pytest.raises(ValueError, match="pqn, which is not a dqn run: its network cannot start one"):
        factory.check(TrainConfig("FrozenLake-v1", settings))


def test_a_loaded_agent_is_the_trained_one(dqn_run):
    agent = lz.learn.load(dqn_run)
    assert agent.eta == 0.1 and isinstance(agent.algorithm.config, DQNConfig)
    assert agent.algorithm.config == RunFolder(dqn_run).config().settings
    np.testing.assert_array_equal(load(Path(dqn_run), "best").q(STATES).shape, (16, 4))
    with pytest.raises(ValueError, match="which is 'newest', expected one of 'last', 'best'"):
        load(dqn_run, "newest")
    left = load(dqn_run, default_policy="0")
    np.testing.assert_allclose(left.lazy_gap(STATES), (agent.q(STATES).T - agent.q(STATES)[:, 0]).max(0), atol=1e-6)
