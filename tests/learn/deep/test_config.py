"""Settings: their defaults by environment, the prices reported on, and values that are refused."""

import math
import subprocess
import sys
from dataclasses import fields, replace

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from small_runs import DQN_SMALL

from lazymdp.learn.deep.config import ALGORITHMS, DQNConfig, PQNConfig, default_config
from lazymdp.learn.deep.train_config import GIVEN_IN_PYTHON, TrainConfig

BAD_PQN = [
    ({"steps": 0}, "steps is 0"),
    ({"eta": (0.0, 0.5)}, r"eta is \(0\.0, 0\.5\), expected a range \(low, high\) with 0 < low < high"),
    ({"eta": (0.5, 0.1)}, r"eta is \(0\.5, 0\.1\), expected a range"),
    ({"eta": (0.1, 0.1)}, r"with 0 < low < high, or one price"),
    ({"eta": (0.1, math.inf)}, "expected a range"),
    ({"eta": math.inf}, "eta is inf, expected prices between"),
    ({"eta": 1e300}, r"eta is 1e\+300, expected prices between -1e\+12 and 1e\+12"),
    ({"eta": (0.1, 1e300)}, r"eta is \(0\.1, 1e\+300\), expected prices between"),
    ({"eta": (1e-99, 0.1)}, r"eta is \(1e-99, 0\.1\), expected a lowest price of at least 1e-30"),
    ({"reward_scale": 1e300}, r"reward_scale is 1e\+300, expected a number above 0, from 1e-30 to 1e\+38"),
    ({"learning_rate": 1e-99}, "learning_rate is 1e-99, expected a number above 0, from 1e-30"),
    ({"hidden": (64, 10**9)}, r"hidden is \(64, 1000000000\), expected layer widths of .* at most 1000000"),
    ({"n_envs": 10**9}, "n_envs is 1000000000, expected at least 1 and at most 1000000"),
    ({"rollout": 10**12}, "rollout is 1000000000000, expected at least 1 and at most 1000000"),
    ({"prices_per_step": 10**9}, "prices_per_step is 1000000000, expected at least 1 and at most 1000000"),
    ({"eta": -0.1, "control_budget": 0.2}, r"eta is -0\.1, expected a price of at least 0 to steer"),
    ({"eta": math.nan}, "eta is nan"),
    ({"zero_share": 0.0}, r"zero_share is 0\.0"),  # a range always includes price 0
    ({"zero_share": 1.0}, r"zero_share is 1\.0"),
    ({"gamma": 1.5}, r"gamma is 1\.5"),
    ({"hidden": ()}, "hidden"),
    ({"minibatches": 10_000}, "minibatches is 10000, but an iteration has only 4096 steps"),
    ({"learning_rate": -1.0}, r"learning_rate is -1\.0"),
    ({"final_learning_rate": math.nan}, "final_learning_rate is nan"),
    ({"exploration_fraction": 0.0}, "exploration_fraction is 0"),
    ({"lambda_": 1.5}, r"lambda_ is 1\.5"),
    ({"max_grad_norm": 0.0}, r"max_grad_norm is 0\.0"),
    ({"form": 3}, "form is 3, expected one of structured, augmented"),
    ({"form": "plain"}, "form is 'plain', expected one of structured, augmented"),
    ({"network": "resnet"}, "network is 'resnet', expected one of None, nature, minatar, mlp"),
    ({"eta": 0.1, "control_budget": 1.5}, r"control_budget is 1\.5"),
]
BAD_DQN = [
    ({"batch_size": 0}, "batch_size is 0"),
    ({"gamma": 1.5}, r"gamma is 1\.5"),
    ({"learning_starts": 3}, "learning_starts is 3 with 4 environments"),
    ({"buffer_size": 10**15}, "buffer_size is 1000000000000000, expected at least 1 and at most 1000000000"),
    ({"batch_size": 10**12}, "batch_size is 1000000000000, expected at least 1 and at most 1000000"),
    ({"buffer_size": 7}, "buffer_size is 7 with 4 environments"),
    ({"eta": -0.1, "control_budget": 0.2}, r"eta is -0\.1"),
    ({"hidden": ()}, "hidden"),
    ({"control_budget": 1.5}, r"control_budget is 1\.5"),
    ({"control_budget": 0.5, "budget_step": 0.0}, "budget_step is 0"),
    ({"learning_starts": 6000}, "nothing would be learned"),
    ({"adam_epsilon": 0.0}, r"adam_epsilon is 0\.0"),
]
BAD_TYPES = [
    (PQNConfig, {"steps": "10"}, "steps is '10', expected an integer"),
    (PQNConfig, {"gamma": True}, "gamma is True, expected a number"),
    (PQNConfig, {"eta": "0.1"}, "eta is '0.1', expected a price or a range"),
    (PQNConfig, {"eta": ("low", "high")}, r"eta is \('low', 'high'\), expected a price or a range"),
    (PQNConfig, {"eta": (0.1,)}, r"eta is \(0\.1,\), expected a price or a range"),
    (PQNConfig, {"eta": (0.1, 0.2, 0.3)}, r"eta is \(0\.1, 0\.2, 0\.3\), expected a price or a range"),
    (PQNConfig, {"hidden": 3}, "hidden is 3, expected layer widths"),
    (PQNConfig, {"hidden": (16.5,)}, r"hidden is \(16\.5,\), expected layer widths"),
    (PQNConfig, {"eta": 0.1, "control_budget": "half"}, "control_budget is 'half', expected a number"),
    (DQNConfig, {"target_update_interval": 1.5}, r"target_update_interval is 1\.5, expected an integer"),
    (DQNConfig, {"clip_rewards": 1}, "clip_rewards is 1, expected True or False"),
    (DQNConfig, {"warm_start": 3}, "warm_start is 3, expected a path"),
]


@pytest.mark.parametrize(("changed", "message"), BAD_PQN, ids=lambda x: str(x)[:40])
def test_settings_of_pqn_that_are_out_of_range_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        PQNConfig(**changed)


@pytest.mark.parametrize(("changed", "message"), BAD_DQN, ids=lambda x: str(x)[:40])
def test_settings_of_dqn_that_are_out_of_range_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(DQN_SMALL, **changed)


@pytest.mark.parametrize(("kind", "changed", "message"), BAD_TYPES, ids=lambda x: str(x)[:40])
def test_settings_of_another_type_are_refused(kind, changed, message):
    with pytest.raises(TypeError, match=message):
        kind(**changed)


anything = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**7), st.floats(), st.text(max_size=3),
    st.lists(st.floats(-1, 2) | st.integers(-1, 9) | st.text(max_size=1), max_size=3).map(tuple),
)  # fmt: skip


@examples(max_examples=300)
@given(st.sampled_from(sorted(ALGORITHMS)), st.data())
def test_any_value_makes_a_config_or_an_error_that_names_the_setting(algorithm, data):
    names = [field.name for field in fields(ALGORITHMS[algorithm])]
    given = {name: data.draw(anything) for name in data.draw(st.lists(st.sampled_from(names), max_size=3))}
    try:
        config = ALGORITHMS[algorithm](**given)
    except (ValueError, TypeError) as error:
        setting, _, rest = str(error).partition(" is ")
        assert setting in names and len(rest) > 10
        return
    low, high = config.eta_range
    assert -math.inf < low <= high < math.inf and (low >= 0.0 or not config.is_range)  # a single price may be a bonus
    assert config.reported_etas and config.total_steps >= config.steps_per_iteration


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_range_and_a_control_budget_exclude_each_other(algorithm):
    with pytest.raises(
        ValueError, match=r"control_budget is 0\.3 and eta the range \(0\.01, 0\.5\): a budget steers a single price"
    ):
        ALGORITHMS[algorithm](eta=(0.01, 0.5), control_budget=0.3)
    with pytest.raises(ValueError, match=r"ask the trained agent: agent\.for_control_rate\(share\)"):
        default_config("CartPole-v1", algorithm, eta=(0.01, 0.5), control_budget=0.3)
    made = default_config("CartPole-v1", algorithm, control_budget=0.3)  # without eta, the budget finds its price
    assert not made.is_range and made.eta_range == (0.01, 0.01)
    assert default_config("CartPole-v1", algorithm, control_budget=0.3, eta=0.2).eta_range == (0.2, 0.2)


def test_unknown_settings_are_named():
    with pytest.raises(TypeError, match=r"pqn has no setting 'buffer_size'; it has budget_step, .*, zero_share"):
        default_config("CartPole-v1", "pqn", buffer_size=3)
    with pytest.raises(TypeError, match="dqn has no setting 'lambda_'"):
        default_config("CartPole-v1", "dqn", lambda_=0.5, steps=9)
    with pytest.raises(TypeError, match=r"no settings 'epsilon_decay', 'structured'"):
        default_config("CartPole-v1", "dqn", structured=True, epsilon_decay=9, eta=0.1)
    with pytest.raises(ValueError, match="algorithm is 'sarsa', expected one of 'pqn', 'dqn'"):
        default_config("CartPole-v1", "sarsa")


def test_default_settings_depend_on_the_algorithm_and_the_environment():
    made = default_config("CartPole-v1", "dqn", eta=0.1)
    assert (made.eta, made.network, made.clip_rewards, made.buffer_size) == (0.1, None, False, 100_000)
    assert made.layer_norm and made == DQNConfig.control(eta=0.1) == default_config("CartPole-v1", eta=0.1)
    assert default_config("CartPole-v1", "pqn") == PQNConfig()
    assert default_config("ALE/Breakout-v5", "pqn") == PQNConfig.atari()
    assert default_config("ALE/Pong-v5", "pqn", steps=9_000) == PQNConfig.atari(steps=9_000)
    assert default_config("ALE/Pong-v5") == DQNConfig.atari()
    assert default_config("minatar/breakout") == PQNConfig()
    assert default_config("ALE/Pong-v5", "dqn", eta=0.1) == DQNConfig.atari(eta=0.1)
    assert default_config("minatar/breakout", "dqn") == DQNConfig.minatar()
    atari = default_config("ALE/Breakout-v5", "pqn")
    assert atari.n_envs == 512 and atari.clip_rewards
    assert default_config("ALE/Breakout-v5", "dqn").buffer_size == 1_000_000
    assert DQNConfig.atari().act_with_target and not DQNConfig.minatar().act_with_target
    assert (DQNConfig.atari().zero_fraction, DQNConfig.atari(eta=0.1).zero_fraction) == (0.8, 0.0)
    minatar = DQNConfig.minatar(n_envs=16, eta=0.1)
    assert (minatar.n_envs, minatar.buffer_size, minatar.learning_rate) == (16, 100_000, 2.5e-4)
    assert (minatar.network, minatar.clip_rewards, minatar.adam_epsilon) == ("minatar", True, 3.125e-4)


def test_settings_for_control_are_sized_to_the_run_and_to_the_rewards():
    short, long = DQNConfig.control(steps=50_000), DQNConfig.control(steps=2_000_000)
    assert (short.buffer_size, short.target_update_interval) == (100_000, 50)
    assert (long.buffer_size, long.target_update_interval) == (1_000_000, 1_000)
    assert DQNConfig.control(steps=100).learning_starts == 10
    assert default_config("CartPole-v1", reward_scale=10.0).eta == (0.05, 50.0)
    assert default_config("CartPole-v1", reward_scale=10.0, eta=0.3).eta == 0.3
    assert default_config("CartPole-v1", reward_scale=10.0, control_budget=0.3).eta == 0.0
    for bad in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="reward_scale is"):
            default_config("CartPole-v1", reward_scale=bad, eta=0.0)
    with pytest.raises(ValueError, match="exploration_persistence is 1, expected a probability below 1"):
        DQNConfig(exploration_persistence=1.0)
    with pytest.raises(ValueError, match="max_grad_norm is 0"):
        DQNConfig(max_grad_norm=0.0)


def test_exploration_of_dqn_takes_dopamines_250000_steps_however_long_the_run():
    for config in (DQNConfig.atari(), DQNConfig.atari(steps=1_000_000), DQNConfig.minatar(steps=2_000_000)):
        assert config.exploration_fraction * config.total_steps == pytest.approx(250_000)
    assert DQNConfig.minatar(steps=100_000).exploration_fraction == 1.0
    assert DQNConfig.atari(exploration_fraction=0.5).exploration_fraction == 0.5
    with pytest.raises(TypeError, match="steps is '10', expected an integer"):
        DQNConfig.atari(steps="10")


def test_reported_prices_follow_the_range():
    assert PQNConfig().reported_etas == (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    assert PQNConfig(eta=(1.0, 30.0)).reported_etas == (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
    assert PQNConfig(eta=[0.6, 2]).reported_etas == (0.0, 0.6, 1.0, 2.0)
    assert PQNConfig(eta=0.3).reported_etas == (0.3,)
    assert DQNConfig(eta=0).reported_etas == (0.0,)


def test_a_run_has_whole_iterations_and_at_least_one():
    assert (PQNConfig(steps=9_000).iterations, PQNConfig(steps=9_000).total_steps) == (2, 8192)
    assert PQNConfig(steps=1).total_steps == 4096


def test_what_is_trained_is_checked():
    settings = PQNConfig()
    for wrong, message in (
        (lambda: TrainConfig(gym.make("FrozenLake-v1"), settings), "expected the id of an environment"),
        (lambda: TrainConfig("FrozenLake-v1", {"steps": 3}), "expected a PQNConfig or a DQNConfig"),
        (lambda: TrainConfig("FrozenLake-v1", settings, np.ones((16, 4))), "default_policy is a ndarray, expected a"),
        (lambda: TrainConfig("FrozenLake-v1", settings, seed=0.5), r"seed is 0\.5, expected an integer"),
        (
            lambda: TrainConfig("FrozenLake-v1", settings, env_kwargs=["is_slippery"]),
            r"env_kwargs is \['is_slippery'\]",
        ),
        (
            lambda: TrainConfig("x", settings, env_kwargs={"a": (1, 2)}),
            r"env_kwargs has a = \(1, 2\), .* give a factory",
        ),
        (lambda: TrainConfig("x", settings, env_kwargs={"a": np.ones(2)}), r"env_kwargs has a = array\(\[1\., 1\.\]\)"),
    ):
        with pytest.raises(TypeError, match=message):
            wrong()
    for seed in (-1, 2**31):
        with pytest.raises(ValueError, match=f"seed is {seed}, expected an integer from 0"):
            TrainConfig("FrozenLake-v1", settings, seed=seed)
    for env in ("minatar/breakout", "ALE/Pong-v5", GIVEN_IN_PYTHON):
        with pytest.raises(ValueError, match="env_kwargs is {'a': 1}, but"):
            TrainConfig(env, settings, env_kwargs={"a": 1})
    assert TrainConfig("x", settings, seed=np.int64(3)).algorithm == "pqn"
    assert TrainConfig("x", settings, env_kwargs={"a": [1, {"b": None}]}).env_kwargs == {"a": [1, {"b": None}]}


def test_an_extension_changes_the_number_of_steps_only():
    config = TrainConfig("FrozenLake-v1", PQNConfig(steps=9_000))  # two iterations of 4,096 steps
    assert (config.ends, config.total_steps) == ((2,), 8192)
    longer = config.extended(20_000)
    assert (longer.ends, longer.total_steps, longer.settings) == ((2, 4), 16_384, config.settings)
    assert longer.extended(24_576).ends == (2, 4, 6)
    assert config.extended(8_192) == config.extended(9_000) == config  # no further iteration
    assert longer.extended(20_000) == longer
    for steps in (8_191, 1, -5):
        with pytest.raises(ValueError, match=f"steps is {steps:,}, but the run is planned for 8,192 steps already"):
            config.extended(steps)
    with pytest.raises(ValueError, match="planned for 16,384 steps already: give the new total"):
        longer.extended(9_000)
    with pytest.raises(
        ValueError, match="final_learning_rate of the run is 0, so that an extension would learn nothing"
    ):
        TrainConfig("ALE/Pong-v5", PQNConfig.atari()).extended(20_000_000)
    for steps in ("10", 1e6, True):
        with pytest.raises(TypeError, match=f"steps is {steps!r}, expected an integer"):
            config.extended(steps)


def test_settings_are_read_without_jax():
    code = "import sys; sys.modules['jax'] = None\nfrom lazymdp.learn import DQNConfig, PQNConfig; print(PQNConfig())"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
