"""`LazyAction`: spaces, prices, information, seeds, masks, specs, and agreement with `LazyMDP`."""

import ast
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from echo_env import EchoEnv, MaskedEchoEnv
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import lazymdp as lz
from lazymdp.defaults.protocol import Mixture
from lazymdp.wrappers import lazy_action, lazy_vector_action
from lazymdp.wrappers.lazy_action import LazyAction

LAZY = 5
STEP_KEYS = {"took_control", "base_action", "base_reward", "control_cost"}
END_KEYS = {"control_rate", "base_return"}


def play(env, choices, seed=0):
    """Returns the rewards and infos of an episode."""
    env.reset(seed=seed)
    steps = [env.step(choice) for choice in choices]
    return [step[1] for step in steps], [step[4] for step in steps]


# -- spaces, prices, information -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "start"), [(3, 0), (3, 2), (1, -1)])
def test_the_lazy_action_is_the_last(n, start):
    base = EchoEnv(n=n, start=start)
    env = LazyAction(base)
    assert env.action_space == spaces.Discrete(n + 1, start=start)
    assert env.lazy_action == start + n
    assert env.observation_space is base.observation_space
    env.reset(seed=0)
    assert start <= env.step(env.lazy_action)[-1]["echo"] < start + n


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 3]), spaces.Box(-1.0, 1.0, (2,)), spaces.MultiBinary(3)])
def test_another_space_is_refused_by_name(space):
    base = EchoEnv()
    base.action_space = space
    with pytest.raises(TypeError, match=re.escape(f"the action space is {space}, expected Discrete")):
        LazyAction(base)


def test_control_costs_and_laziness_does_not():
    rewards, infos = play(LazyAction(EchoEnv(), 4, eta=0.5), [2, LAZY, 3, LAZY, LAZY])
    assert rewards == [19.5, 40.0, 29.5, 40.0, 40.0]
    assert [info["took_control"] for info in infos] == [True, False, True, False, False]
    assert [info["base_action"] for info in infos] == [2, 4, 3, 4, 4]
    assert [info["base_reward"] for info in infos] == [20.0, 40.0, 30.0, 40.0, 40.0]
    assert [info["control_cost"] for info in infos] == [-0.5, 0.0, -0.5, 0.0, 0.0]
    assert infos[-1]["control_rate"] == 0.4
    assert infos[-1]["base_return"] == 170.0


def test_the_information_is_what_the_documentation_says_in_plain_types():
    text = re.search(r"## Information\n(.*?)##", LazyAction.__doc__, re.DOTALL).group(1)
    documented = dict(re.findall(r"`(\w+)`\s+\((\w+)", text))
    assert set(documented) == STEP_KEYS | END_KEYS
    _, infos = play(LazyAction(EchoEnv()), [2, LAZY, 3, LAZY, LAZY])
    for info in infos[:-1]:
        assert set(info) == STEP_KEYS | {"echo"}
    assert set(infos[-1]) == STEP_KEYS | END_KEYS | {"echo"}
    assert {key: type(infos[-1][key]).__name__ for key in documented} == documented


def test_each_episode_is_counted_anew_and_truncation_ends_one():
    env = LazyAction(gym.wrappers.TimeLimit(EchoEnv(), 2), 4)
    assert play(env, [2, LAZY])[1][-1]["control_rate"] == 0.5
    assert play(env, [LAZY, LAZY])[1][-1]["base_return"] == 80.0
    assert play(env, [LAZY, 3])[1][-1]["control_rate"] == 0.5


def test_repeat_forgets_the_last_episode():
    env = LazyAction(EchoEnv(), "repeat")
    play(env, [4, LAZY])
    assert play(env, [LAZY])[1][0]["base_action"] == 2


@pytest.mark.parametrize(
    ("action", "kind", "message"),
    [
        (6, ValueError, r"action is 6, expected 2 to 5 \(5 is lazy\)"),
        (1, ValueError, "action is 1, expected 2 to 5"),
        (2.0, TypeError, "float"),
        (np.array([2]), TypeError, "integer"),
    ],
)
def test_a_bad_action_is_refused(action, kind, message):
    env = LazyAction(EchoEnv())
    env.reset()
    with pytest.raises(kind, match=message):
        env.step(action)
    env.step(np.array(2))


def test_there_is_no_step_outside_an_episode():
    env = LazyAction(EchoEnv(length=1))
    with pytest.raises(gym.error.ResetNeeded):
        env.step(LAZY)
    play(env, [LAZY])
    with pytest.raises(gym.error.ResetNeeded):
        env.step(LAZY)


# -- the price -----------------------------------------------------------------------------------------------------


def test_a_new_price_waits_for_the_end_of_the_episode():
    env = LazyAction(EchoEnv(length=2), eta=0.5)
    env.set_eta(0.25)
    assert env.eta == 0.25  # no episode is running
    env.reset()
    env.set_eta(1.0)
    assert env.eta == 0.25
    assert env.step(3)[-1]["control_cost"] == -0.25
    assert env.step(3)[-1]["control_cost"] == -0.25
    env.reset()
    assert env.eta == 1.0
    assert env.step(3)[-1]["control_cost"] == -1.0


@pytest.mark.parametrize("eta", [np.nan, np.inf])
def test_a_price_must_be_finite(eta):
    with pytest.raises(ValueError, match=f"eta is {eta}"):
        LazyAction(EchoEnv(), eta=eta)
    with pytest.raises(ValueError, match=f"eta is {eta}"):
        LazyAction(EchoEnv()).set_eta(eta)


# -- seeds ---------------------------------------------------------------------------------------------------------

STEPS = 40


def executed(seed):
    _, infos = play(LazyAction(EchoEnv(length=STEPS)), [LAZY] * STEPS, seed)
    return [info["base_action"] for info in infos]


def test_the_seed_decides_and_another_seed_decides_otherwise():
    assert executed(7) == executed(7)
    assert executed(7) != executed(8)


def test_resetting_without_a_seed_goes_on_with_the_stream():
    env = LazyAction(EchoEnv(length=STEPS))
    first = [info["base_action"] for info in play(env, [LAZY] * STEPS, 7)[1]]
    second = [info["base_action"] for info in play(env, [LAZY] * STEPS, None)[1]]
    assert first == executed(7)
    assert first != second
    assert play(env, [LAZY] * STEPS, 7)[1][3]["base_action"] == first[3]


@pytest.mark.parametrize("choice", [3, LAZY])
def test_the_base_environment_sees_the_same_noise_with_and_without(choice):
    bare, env = EchoEnv(length=STEPS), LazyAction(EchoEnv(length=STEPS))
    first, _ = bare.reset(seed=3)
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    for _ in range(STEPS):
        assert env.step(choice)[0][2] == bare.step(2)[0][2]


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    executed(0)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


# -- masks ---------------------------------------------------------------------------------------------------------


def test_masks_pass_through_with_the_lazy_action_allowed():
    env = LazyAction(MaskedEchoEnv())
    _, info = env.reset()
    assert info["action_mask"].tolist() == [0, 1, 1, 1]
    assert info["action_mask"].dtype == np.int8
    assert env.step(3)[-1]["action_mask"].tolist() == [0, 1, 1, 1]
    assert env.action_masks().tolist() == [False, True, True, True]
    taxi = LazyAction(gym.make("Taxi-v4"))  # a mask in info, no method
    _, info = taxi.reset(seed=0)
    assert taxi.action_masks().tolist() == info["action_mask"].astype(bool).tolist()
    assert taxi.action_masks()[-1] and not taxi.action_masks().all()
    assert LazyAction(EchoEnv()).action_masks().all()


def test_a_mask_of_another_length_is_refused():
    base = MaskedEchoEnv()
    base.action_space = spaces.Discrete(4)
    with pytest.raises(ValueError, match=r"action mask has shape \(3,\), expected 4 entries along its last axis"):
        LazyAction(base).reset()


# -- specs and checks ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*")
@pytest.mark.parametrize("default", ["uniform", "repeat", 2])
def test_check_env_passes(default):
    check_env(LazyAction(gym.make("lazymdp/RiversAndBridges-v0"), default, 0.2))


def test_gym_make_rebuilds_it_from_its_spec():
    table = np.full((75, 4), 0.25)
    for default in ("uniform", 3, table, Mixture("uniform", 1, 0.5)):
        env = LazyAction(gym.make("lazymdp/RiversAndBridges-v0"), default, 0.2)
        again = gym.make(env.spec)
        assert isinstance(again, LazyAction)
        assert (again.eta, again.action_space) == (0.2, env.action_space)
        assert again.spec == env.spec or default is table
        assert play(again, [4] * 3)[1] == play(env, [4] * 3)[1]
    env = LazyAction(gym.make("lazymdp/RiversAndBridges-v0"), "repeat", 0.2)
    assert gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json())).spec == env.spec


def recorded_and_taken(module):
    """Yields, for each wrapper of a module, its name, the arguments of its constructor, and those it records."""
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.ClassDef) and any("Wrapper" in ast.unparse(base) for base in node.bases):
            constructor = next(part for part in node.body if getattr(part, "name", None) == "__init__")
            taken = {argument.arg for argument in constructor.args.args + constructor.args.kwonlyargs}
            recorded = [
                {keyword.arg for keyword in call.keywords if not keyword.arg.startswith("_")}
                for call in ast.walk(constructor)
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("RecordConstructorArgs.__init__")
            ]
            yield node.name, taken - {"self", "env"}, recorded


def test_every_wrapper_records_its_arguments():
    found = [*recorded_and_taken(lazy_action), *recorded_and_taken(lazy_vector_action)]
    assert [name for name, _, _ in found] == ["LazyAction", "LazyVectorAction"]
    for name, taken, recorded in found:
        assert recorded == [taken], name


def test_a_large_default_is_not_copied():
    class Network:
        def __call__(self, observation):
            return 2

        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    network = Network()
    env = LazyAction(gym.make("CartPole-v1"), network)
    assert env.spec.additional_wrappers[-1].kwargs["default_policy"] is network


# -- agreement with LazyMDP --------------------------------------------------------------------------------------------

WORLDS = {
    "lazymdp/RiversAndBridges-v0": (0.95, 0.05, 0.9),
    "lazymdp/KeyDoorTreasure-v0": (0.97, 0.01, 0.8),
    "FrozenLake-v1": (0.95, 0.02, 0.5),
    "Taxi-v4": (0.9, 0.3, 0.7),
}
"""gamma, eta, and the share of the optimal policy in the default policy (the rest is uniform): episodes are short."""


@pytest.mark.parametrize("world", WORLDS)
def test_returns_agree_with_the_exact_evaluation(world):
    gamma, eta, good = WORLDS[world]
    env = gym.make(world).unwrapped  # no time limit
    mdp = lz.MDP.from_gymnasium(env, gamma)
    default = lz.policies.mixture(lz.policies.optimal(mdp), lz.policies.uniform(mdp), good)
    lazy = lz.LazyMDP(mdp, default, eta)
    # Half of it is the optimal lazy agent, half of it random: every action is taken, the lazy one often.
    plus = 0.5 * np.eye(lazy.lazy_action + 1)[lz.solve(lazy).action] + 0.5 / (lazy.lazy_action + 1)
    exact = lz.evaluate(lazy, plus)

    n_observations = env.observation_space.n
    wrapped = LazyAction(env, default[:n_observations], eta)
    returns = np.array(list(sampled_returns(wrapped, plus.cumsum(axis=1), gamma, episodes=1500)))
    standard_error = returns.std(axis=0, ddof=1) / np.sqrt(len(returns))
    expected = [mdp.start_average(part) for part in (exact.value, exact.base_value, exact.control_cost)]
    assert (np.abs(returns.mean(axis=0) - expected) <= 4 * standard_error).all(), (returns.mean(axis=0), expected)
    assert (standard_error > 0).all()


def sampled_returns(env, cumulative, gamma, episodes):
    """Yields the discounted return, base return and control cost of episodes, which stop at a discount of 1e-7."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(episodes):
        state, _ = env.reset()
        discount, total, base, cost = 1.0, 0.0, 0.0, 0.0
        terminated = False
        while not terminated and discount > 1e-7:
            choice = int(np.searchsorted(cumulative[state], rng.random() * cumulative[state, -1], side="right"))
            state, reward, terminated, _, info = env.step(choice)
            total += discount * reward
            base += discount * info["base_reward"]
            cost += discount * info["control_cost"]
            discount *= gamma
        yield total, base, cost


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"reward": "1.5"}, "it returned the reward '1.5', expected a number"),
        ({"reward": 1 + 2j}, r"it returned the reward \(1\+2j\), expected a number"),
        ({"reward": float("nan")}, "it returned the reward nan, expected a finite number"),
        ({"terminated": "no"}, "it returned terminated = 'no', expected True or False"),
        ({"truncated": None}, "it returned truncated = None, expected True or False"),
    ],
)
def test_what_is_no_reward_or_flag_is_refused_with_its_place(changed, message):
    class Odd(EchoEnv):
        def step(self, action):
            seen, reward, terminated, truncated, info = super().step(action)
            given = {"reward": reward, "terminated": terminated, "truncated": truncated} | changed
            return seen, *given.values(), info

    env = LazyAction(Odd(), 2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"Odd, step 1 of the episode: {message}"):
        env.step(env.lazy_action)
