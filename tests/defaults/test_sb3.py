"""Stable-Baselines3: its models as default policies, its learners in lazy environments (`make test-interop`)."""

import functools
import importlib.util
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.env_checker import check_env  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402

from lazymdp.defaults.protocol import BadDefault, Mixture, make_default  # noqa: E402
from lazymdp.wrappers.lazy_action import LazyAction  # noqa: E402
from lazymdp.wrappers.lazy_vector_action import LazyVectorAction  # noqa: E402

pytestmark = pytest.mark.interop
EXAMPLE = Path(__file__).parents[2] / "examples" / "sb3_cartpole.py"
LAZY = 2
torch.set_num_threads(1)  # the networks are tiny, and pytest uses the cores


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("sb3_cartpole", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.half_trained = functools.cache(module.half_trained)
    return module


@pytest.fixture(scope="module")
def half_trained(example):
    return example.half_trained(seed=0)


# -- models as defaults --------------------------------------------------------------------------------------------


def untrained(name):
    settings = {"PPO": {"n_steps": 32, "batch_size": 32}, "A2C": {}, "DQN": {}}[name]
    return getattr(sb3, name)("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **settings)


def executed(default, seed=0, steps=60):
    """Returns the actions that 4 environments execute that are always lazy."""
    venv = LazyVectorAction(gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync"), default)
    venv.reset(seed=seed)
    return np.array([venv.step(np.full(4, LAZY))[-1]["base_action"] for _ in range(steps)])


@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN"])
def test_a_model_or_its_path_is_a_default(name, tmp_path):
    model = untrained(name)
    model.save(tmp_path / "model")
    expected = executed(model)
    for path in (tmp_path / "model.zip", str(tmp_path / "model.zip"), str(tmp_path / "model")):
        np.testing.assert_array_equal(executed(path), expected)
    assert executed(Mixture(model, "noop", 0.5)).shape == (60, 4)
    env = LazyAction(gym.make("CartPole-v1"), str(tmp_path / "model.zip"))
    env.reset(seed=0)
    assert env.step(LAZY)[-1]["base_action"] in (0, 1)
    assert gym.make(env.spec).action_space.n == 3
    assert isinstance(env.spec.to_json(), str)


def test_actor_critics_know_their_probabilities_and_dqn_is_sure(half_trained):
    space = gym.make("CartPole-v1")
    rng = np.random.default_rng(0)
    observations, last = rng.normal(0, 0.05, (5, 4)).astype(np.float32), np.zeros(5, dtype=np.int64)
    default = make_default(half_trained, space.action_space, space.observation_space, 0, batched=True)
    with torch.no_grad():
        expected = half_trained.policy.get_distribution(torch.as_tensor(observations)).distribution.probs.numpy()
    np.testing.assert_allclose(default.probabilities(observations, last), expected, rtol=1e-6)
    many = np.repeat(observations[:1], 4000, axis=0)
    found = default.sample(many, rng, np.zeros(4000, dtype=np.int64)).mean()
    assert abs(found - expected[0, 1]) <= 4 * np.sqrt(expected[0, 1] * expected[0, 0] / 4000)
    model = untrained("DQN")
    sure = make_default(model, space.action_space, space.observation_space, 0, batched=True)
    np.testing.assert_array_equal(sure.probabilities(observations, last).argmax(axis=1), model.predict(observations)[0])


def test_the_seed_decides_and_no_other_generator_is_touched(half_trained):
    dqn = untrained("DQN")
    numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first = executed(half_trained, seed=3)
    executed(dqn)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)
    torch.manual_seed(1)
    np.testing.assert_array_equal(executed(half_trained, seed=3), first)
    assert (executed(half_trained, seed=4) != first).any()


def test_a_model_of_another_world_is_refused(half_trained):
    with pytest.raises(ValueError, match=r"a model for Discrete\(2\), but this environment has Discrete\(4\)"):
        LazyAction(gym.make("FrozenLake-v1"), half_trained)
    acrobot = sb3.DQN("MlpPolicy", "Acrobot-v1", device="cpu")
    with pytest.raises(ValueError, match=r"a model for Discrete\(3\)"):
        LazyAction(gym.make("CartPole-v1"), acrobot)
    mountain = LazyAction(gym.make("MountainCar-v0"), acrobot)  # three actions too, but two numbers to see, not six
    mountain.reset(seed=0)
    with pytest.raises(BadDefault, match="step 0 of the episode"):
        mountain.step(3)


# -- learners on top -----------------------------------------------------------------------------------------------


def test_stable_baselines_checks_monitors_and_sets_the_price():
    check_env(LazyAction(gym.make("CartPole-v1"), "uniform", 0.1))
    keywords = ("control_rate", "base_return")
    venv = make_vec_env(
        lambda: LazyAction(gym.make("CartPole-v1"), "uniform", 0.25),
        2,
        seed=0,
        monitor_kwargs={"info_keywords": keywords},
    )
    venv.reset()
    info = {}
    while "episode" not in info:  # the first environment is always in control
        _, _, _, (info, _) = venv.step(np.array([0, LAZY]))
    assert info["episode"]["control_rate"] == info["control_rate"] == 1.0
    assert info["episode"]["base_return"] == info["base_return"]
    assert info["episode"]["r"] == pytest.approx(0.75 * info["base_return"])
    venv.env_method("set_eta", 0.5)
    venv.reset()
    assert venv.get_attr("eta") == [0.5, 0.5]
    assert venv.step(np.array([0, LAZY]))[1].tolist() == [0.5, 1.0]


PAIRS = [
    ("DQN", "uniform"),
    ("PPO", "half-trained"),
    pytest.param("DQN", "half-trained", marks=pytest.mark.long),
    pytest.param("PPO", "uniform", marks=pytest.mark.long),
]


@pytest.mark.learning
@pytest.mark.parametrize(("algorithm", "default"), PAIRS)
def test_control_falls_with_the_price_and_the_return_beats_the_default(example, algorithm, default, seed):
    policy = example.half_trained(seed=seed) if default == "half-trained" else default
    alone = example.play(example.lazy_always, policy)
    cheap, dear = (
        example.play(example.greedy(example.train(algorithm, policy, eta, seed)), policy) for eta in example.ETAS
    )
    print(f"{algorithm} on {default}: {alone=}, {cheap=}, {dear=}")
    assert alone.control_rate == 0.0
    assert dear.control_rate < cheap.control_rate
    assert cheap.base_return > 1.2 * alone.base_return
    assert dear.base_return > 1.2 * alone.base_return
