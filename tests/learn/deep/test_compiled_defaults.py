"""Default policies of deep agents: every form knows its probabilities, Python objects act like compiled ones."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from echo_env import EchoEnv
from small_runs import DQN_SMALL, same

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.defaults.forms import row_of  # noqa: E402
from lazymdp.defaults.protocol import BadDefault  # noqa: E402
from lazymdp.learn.deep import compiled_defaults  # noqa: E402
from lazymdp.learn.deep.config import PQNConfig  # noqa: E402
from lazymdp.learn.deep.factory import make_default_policy, make_env  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.train_config import GIVEN_IN_PYTHON, TrainConfig  # noqa: E402
from lazymdp.learn.deep.trainer import Training, choose_form, run_training  # noqa: E402


def probabilities(form, env):
    """Probabilities of a default policy after the actions 0 and 1."""
    return np.asarray(make_default_policy(form, env)(np.zeros((2, *env.shape), np.float32), np.array([0, 1])))


def test_every_form_of_default_policy_knows_its_probabilities():
    env = make_env("CartPole-v1", 2)
    assert probabilities("uniform", env).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert probabilities("1", env).tolist() == [[0, 1], [0, 1]]
    assert probabilities("noop", env).tolist() == [[1, 0], [1, 0]]
    assert probabilities("repeat", env).tolist() == [[1, 0], [0, 1]]
    rows = [[0.25, 0.75]] * 2
    np.testing.assert_allclose(probabilities(lambda seen: np.tile([0.25, 0.75], (len(seen), 1)), env), rows)
    np.testing.assert_allclose(probabilities(lz.Mixture("uniform", 1, 0.5), env), rows)
    np.testing.assert_allclose(probabilities(lambda seen: np.ones(len(seen), int), env), [[0, 1]] * 2)
    for wrong, message in (
        (lambda seen: np.tile([0.2, 0.2], (len(seen), 1)), r"sum to 0\.4, not 1"),
        (lambda seen: np.ones((len(seen), 3)) / 3.0, r"shape \(3, 3\)"),
        (lambda seen: seen[:, 99], "out of bounds"),
    ):
        with pytest.raises(ValueError, match=f"the default policy fails on first observations of .*{message}"):
            make_default_policy(wrong, env)
    lake = make_env("FrozenLake-v1", 2)
    rows = np.random.default_rng(0).dirichlet(np.ones(4), 16)
    found = make_default_policy(rows, lake)(np.eye(16, dtype=np.float32), np.zeros(16, int))
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    shown = []  # states are shown as numbers, as the environment does it

    def by_number(seen):
        shown.append(seen.tolist())
        return rows[seen]

    found = make_default_policy(by_number, lake)(np.eye(16, dtype=np.float32), np.zeros(16, int))
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    assert shown[-1] == list(range(16))


def test_a_table_for_an_environment_serves_its_model_with_an_added_state():
    name = next(name for name in ("Taxi-v3", "Taxi-v4") if name in gym.registry)
    taxi = make_env(name, 1)
    assert taxi.shape == (501,)
    rows, seen, last = np.random.default_rng(0).dirichlet(np.ones(6), 500), np.eye(501, dtype=np.float32), np.zeros(501)
    found = np.asarray(make_default_policy(rows, taxi)(seen, last.astype(int)))
    np.testing.assert_allclose(found[:500], rows, rtol=1e-5)
    np.testing.assert_allclose(found[500], 1 / 6, rtol=1e-5)
    called = np.asarray(make_default_policy(lambda states: rows[states], taxi)(seen, last.astype(int)))
    np.testing.assert_allclose(called[:500], rows, rtol=1e-5)


def test_networks_as_default_policies():
    q = np.array([[1.0, 3.0, 2.0], [0.5, 0.0, -1.0]], dtype=np.float32)
    last = np.zeros(2, int)
    np.testing.assert_array_equal(compiled_defaults.greedy(lambda seen: q)(q, last), [[0, 1, 0], [1, 0, 0]])
    some = compiled_defaults.greedy(lambda seen: q, 0.3)(q, last)
    np.testing.assert_allclose(some, [[0.1, 0.8, 0.1], [0.8, 0.1, 0.1]], rtol=1e-5)
    soft = compiled_defaults.softmax(lambda seen: q, 0.5)(q, last)
    np.testing.assert_allclose(soft, np.exp(2 * q) / np.exp(2 * q).sum(1, keepdims=True), rtol=1e-5)


def test_a_python_default_policy_acts_like_the_same_one_compiled():
    config = TrainConfig("FrozenLake-v1", PQNConfig(steps=2000, n_envs=4, rollout=8, hidden=(16,)))
    compiled, called = Training(config), Training(config, default_policy=lambda seen: np.full((len(seen), 4), 0.25))
    for run in (compiled, called):
        run.advance()
    for name, array in compiled.arrays().items():
        np.testing.assert_allclose(array, called.arrays()[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_augmented_form_learns_over_a_default_policy_that_returns_actions():
    config = TrainConfig("FrozenLake-v1", replace(DQN_SMALL, control_budget=None), "2")
    compiled, called = Training(config), Training(config, default_policy=lambda seen: np.full(len(seen), 2))
    for run in (compiled, called):
        for _ in range(5):
            run.advance()
    same(compiled.arrays(), called.arrays())
    with pytest.raises(ValueError, match="it chose action 7, expected 0 to 3"):
        Training(config, default_policy=lambda seen: np.full(len(seen), 7))


class Secretive:
    """A `DefaultPolicy` that does not know its probabilities."""

    def sample(self, observations, rng, last_actions):
        return rng.integers(4, size=len(last_actions))

    def probabilities(self, observations, last_actions):
        return None


def test_the_structured_form_needs_probabilities():
    lake, drawn = make_env("FrozenLake-v1", 2), np.random.default_rng(0)
    random = lambda states: drawn.integers(4, size=len(states))  # noqa: E731
    for form in (Secretive(), random):
        with pytest.raises(ValueError, match="probabilities.* or use form='augmented'"):
            make_default_policy(form, lake)
        made = make_default_policy(form, lake, needs_probabilities=False)
        rows = np.asarray(made(np.eye(16, dtype=np.float32), np.zeros(16, int)))
        assert (rows.max(axis=1) == 1.0).all() and (rows.sum(axis=1) == 1.0).all()


DRAWN = np.random.default_rng(0)


def coin(observation):
    """A controller for one observation that draws from a generator of its own."""
    return int(DRAWN.integers(2))


def coins(seed, share=0.5, count=4):
    """A controller for batches of states that takes action 0, and sometimes a random one."""
    drawn = np.random.default_rng(seed)
    return lambda states: np.where(drawn.random(len(states)) < share, drawn.integers(count, size=len(states)), 0)


def form_chosen(default_policy, env="FrozenLake-v1"):
    return choose_form(TrainConfig(env, PQNConfig()), env, default_policy).settings.form


def test_the_form_is_augmented_only_where_the_default_policy_does_not_tell_its_probabilities():
    known = {
        "structured": ("uniform", "noop", "3", 3, lambda state: 2, lambda states: np.full((len(states), 4), 0.25),
                       np.full((16, 4), 0.25), lz.Mixture("uniform", 1, 0.5)),
        "augmented": (Secretive(), lz.Mixture("uniform", Secretive(), 0.5), lambda state: int(DRAWN.integers(4)),
                      lz.Mixture("uniform", coins(0), 0.5)),
    }  # fmt: skip
    for form, policies in known.items():
        for default_policy in policies:
            assert form_chosen(default_policy) == form, default_policy
    for seed in range(30):
        assert form_chosen(coins(seed)) == "augmented"
        assert form_chosen(coins(seed, share=0.0)) == "structured"
    # Even if only 7.5% of its actions are not the usual one; asked twice, half of these would go unnoticed.
    assert sum(form_chosen(coins(seed, share=0.1)) == "augmented" for seed in range(30)) >= 24
    assert form_chosen(coin, "CartPole-v1") == "augmented"
    assert form_chosen(lambda seen: int(seen[2] > 0), "CartPole-v1") == "structured"


@pytest.mark.parametrize("algorithm", ["pqn", "dqn"])
def test_a_run_over_a_default_policy_that_draws_random_actions_is_kept_and_continued(tmp_path, algorithm, capsys):
    given = dict(algorithm=algorithm, default_policy=coin, n_envs=4, rollout=8, hidden=(8,), reward_scale=1.0)
    given |= dict(minibatches=2) if algorithm == "pqn" else dict(learning_starts=16, buffer_size=100)
    folder = tmp_path / "run"
    lz.learn.train("CartPole-v1", steps=64, eta=(0.1, 1.0), folder=folder, show_progress=True, **given)
    said = " ".join(capsys.readouterr().err.split())
    assert "random actions without their probabilities" in said and "form augmented" in said
    assert RunFolder(folder).config().settings.form == "augmented"
    lz.learn.train("CartPole-v1", steps=64, eta=(0.1, 1.0), folder=folder, **given)  # the same run
    lz.learn.resume(folder, steps=128, default_policy=coin)
    loaded = lz.learn.load(folder, default_policy=coin)
    assert np.isfinite(loaded.evaluate([0.0, 1.0], episodes=2, max_steps=20).returns).all()
    assert 0.0 <= loaded.for_control_rate(0.5, episodes=2).control_rate <= 1.0
    with pytest.raises(BadDefault, match="needs probabilities: .* or use form='augmented'"):
        lz.learn.train("CartPole-v1", steps=64, form="structured", **given)


# -- the same forms as `LazyAction` ----------------------------------------------------------------------------------


class Predictor:
    def predict(self, observations, deterministic=False):
        return np.where(observations[:, 1] % 2 == 0, 2, 4), None


TABLE = np.eye(3)[[0, 1, 2, 1, 0, 0]]
FORMS = {
    "noop": ("noop", "vector"),
    "repeat": ("repeat", "vector"),
    "an integer": (4, "vector"),
    "a NumPy integer": (np.int64(3), "vector"),
    "a table": (TABLE, "discrete"),
    "a table in lists": (TABLE.tolist(), "discrete"),
    "an object with predict": (Predictor(), "vector"),
    "a mixture": (lz.Mixture(3, lz.Mixture("noop", 4, 0.0), 0.0), "vector"),
    "an integer for one state": (lambda state: 3 if state % 2 else 4, "discrete"),
    "an integer for one vector": (lambda seen: 2 + int(seen[1]) % 3, "vector"),
    "probabilities for one vector": (lambda seen: np.eye(3)[int(seen[1]) % 3], "vector"),
    "an integer for one dict": (lambda seen: 2 + (seen["both"][0] + len(seen["both"][1])) % 3, "dict"),
    "probabilities for one dict": (lambda seen: np.eye(3)[int(seen["vector"][1]) % 3], "dict"),
}


@pytest.mark.parametrize(("form", "observations"), FORMS.values(), ids=FORMS)
def test_each_form_acts_as_in_lazy_action(form, observations):
    lazy = lz.LazyAction(EchoEnv(observations=observations), form)
    env = make_env(lambda: EchoEnv(observations=observations), 1)
    default, space, last = make_default_policy(form, env), lazy.observation_space, env.noop
    seen, _ = lazy.reset(seed=0)
    for _ in range(5):
        frame = seen if observations == "vector" else gym.spaces.flatten(space, seen)
        row = np.asarray(default(np.array([frame], np.float32), np.array([last])))[0]
        seen, *_, info = lazy.step(lazy.lazy_action)
        last = info["base_action"] - 2
        assert row.tolist() == np.eye(3)[last].tolist()


def test_booleans_are_the_actions_0_and_1():
    env = make_env("CartPole-v1", 2)
    seen = np.array([[0, 0, 0.1, 0], [0, 0, -0.1, 0]], np.float32)
    for leaning in (lambda seen: seen[2] > 0, lambda seen: seen[:, 2] > 0, lambda seen: bool(seen[2] > 0)):
        assert make_default_policy(leaning, env)(seen, np.zeros(2, int)).tolist() == [[0, 1], [1, 0]]


def test_actions_have_the_numbers_of_the_environment():
    env = make_env("lazymdp-tests/Chain-v0", 1)  # on the host, with the actions 5 and 6
    assert probabilities("6", env).tolist() == probabilities(6, env).tolist() == [[0, 1], [0, 1]]
    with pytest.raises(ValueError, match="default_policy is '1', expected .* an action from 5 to 6"):
        make_default_policy("1", env)
    with pytest.raises(ValueError, match="action 1, expected 5 to 6"):
        make_default_policy(1, env)


def test_observations_are_unflattened_to_what_the_environment_returns():
    space = gym.spaces.Dict(
        state=gym.spaces.Discrete(4, start=-1),
        several=gym.spaces.MultiDiscrete([[3, 2], [2, 4]]),
        pair=gym.spaces.Tuple([gym.spaces.MultiBinary(3), gym.spaces.Text(4)]),
        image=gym.spaces.Box(0, 255, (2, 3), np.uint8),
    )
    space.seed(0)
    given = [space.sample() for _ in range(5)]
    flat = np.stack([gym.spaces.flatten(space, one) for one in given]).astype(np.float32)
    batch = compiled_defaults.unflattened(space, flat)
    for row, one in enumerate(given):
        found = row_of(space, batch, row)
        assert found["state"] == one["state"] and found["pair"][1] == one["pair"][1]
        np.testing.assert_array_equal(found["pair"][0], one["pair"][0])
        for name in ("several", "image"):
            np.testing.assert_array_equal(found[name], one[name])
            assert found[name].dtype == space[name].dtype


def test_a_default_policy_that_fails_during_training_is_named():
    settings = PQNConfig(steps=512, n_envs=4, rollout=16, minibatches=2, hidden=(8,))
    with pytest.raises(BadDefault, match=r"failed on array\(\[.*it chose action 9, expected 2 to 4"):
        run_training(
            TrainConfig(GIVEN_IN_PYTHON, settings), env=EchoEnv, default_policy=lambda seen: 9 if seen[1] else 2
        )


def test_a_default_policy_that_fails_in_a_small_program_is_named():
    left = iter(range(100))

    def act(state):
        if next(left, None) is None:
            raise RuntimeError("poisoned")
        return 0

    settings = {"hidden": [8], "n_envs": 4, "rollout": 8, "minibatches": 2, "reward_scale": 1.0}
    with pytest.raises(BadDefault, match=r"failed on array\(\[.*RuntimeError\('poisoned'\)"):
        lz.learn.train("FrozenLake-v1", algorithm="pqn", eta=0.1, default_policy=act, steps=2048, **settings)


@pytest.mark.interop
@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_a_stable_baselines_model_acts_as_in_lazy_action(name, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    model = getattr(sb3, name)("MlpPolicy", "CartPole-v1", seed=0, device="cpu")
    model.save(tmp_path / "model")
    seen, last = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32), np.zeros(8, int)
    expected = lz.LazyAction(gym.make("CartPole-v1"), model).default_policy.probabilities(seen, last)
    for form in (model, tmp_path / "model.zip", str(tmp_path / "model")):
        found = np.asarray(make_default_policy(form, make_env("CartPole-v1", 1))(seen, last))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
