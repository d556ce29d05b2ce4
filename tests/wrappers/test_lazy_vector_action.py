"""`LazyVectorAction` does the same as `LazyAction` in many environments; resets cost nothing and call no policy."""

import re
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from echo_env import EchoEnv, MaskedEchoEnv
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from lazymdp.wrappers.lazy_action import LazyAction
from lazymdp.wrappers.lazy_vector_action import LazyVectorAction

# JAX warns if another test of the same process has imported it; the forked environments do not use it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

LAZY = 5
LENGTHS = (2, 3, 9)
STEP_KEYS = ("took_control", "base_action", "base_reward", "control_cost")
END_KEYS = ("control_rate", "base_return")


def echoes(mode=AutoresetMode.NEXT_STEP, kind=SyncVectorEnv, lengths=LENGTHS, **settings):
    return kind([partial(EchoEnv, length=n, **settings) for n in lengths], autoreset_mode=mode)


class Recorder:
    """A default policy that takes action 4 and records the observations."""

    def __init__(self):
        self.calls = []

    def __call__(self, observations):
        self.calls.append(observations)
        return np.full(len(observations), 4)


# -- the same as many LazyActions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_it_does_what_lazy_actions_inside_a_vector_environment_do(mode, kind):
    venv = LazyVectorAction(echoes(mode, kind), "repeat", eta=0.5)
    inside = SyncVectorEnv(
        [partial(lambda n: LazyAction(EchoEnv(length=n), "repeat", 0.5), n) for n in LENGTHS], autoreset_mode=mode
    )
    np.testing.assert_array_equal(venv.reset(seed=3)[0], inside.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    for _ in range(30):
        choices = rng.integers(2, 6, size=3)
        *found, infos = venv.step(choices)
        *expected, inner = inside.step(choices)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        if (
            mode is AutoresetMode.SAME_STEP and "final_info" in inner
        ):  # the last step's keys: there, and ours on top too
            for key in STEP_KEYS + END_KEYS:
                np.testing.assert_array_equal(infos["final_info"][key], inner["final_info"][key])
                np.testing.assert_array_equal(infos["final_info"][f"_{key}"], inner["final_info"][f"_{key}"])
            np.testing.assert_array_equal(infos["_final_info"], inner["_final_info"])
        for key in STEP_KEYS + END_KEYS:
            rows = inner.get(f"_{key}", np.zeros(3, dtype=bool))
            np.testing.assert_array_equal(infos.get(key, np.zeros(3))[rows], inner.get(key, np.zeros(3))[rows])
            if mode is AutoresetMode.NEXT_STEP:
                np.testing.assert_array_equal(infos.get(f"_{key}", rows), rows)
    venv.close()
    inside.close()


def test_spaces():
    venv = LazyVectorAction(echoes())
    assert venv.single_action_space == spaces.Discrete(4, start=2)
    assert venv.action_space == spaces.MultiDiscrete([4, 4, 4], start=[2, 2, 2])
    assert venv.lazy_action == 5
    assert venv.single_observation_space == venv.env.single_observation_space
    base = echoes()
    base.single_action_space = spaces.MultiDiscrete([2, 3])
    with pytest.raises(TypeError, match=re.escape("the action space is MultiDiscrete([2 3]), expected Discrete")):
        LazyVectorAction(base)
    base = echoes()
    base.action_space = spaces.MultiDiscrete([3, 3], start=[2, 2])  # as ale_py with batch_size=2 of 3
    with pytest.raises(ValueError, match=r"steps \(2,\) of its 3 environments at a time"):
        LazyVectorAction(base)


# -- resets --------------------------------------------------------------------------------------------------------


def test_next_step_resets_are_not_charged_and_do_not_ask():
    default = Recorder()
    venv = LazyVectorAction(echoes(lengths=(2, 9)), default, eta=0.5)
    venv.reset(seed=0)
    rewards, infos = zip(
        *[(step[1], step[4]) for step in map(venv.step, [[3, LAZY]] * 3 + [[LAZY, LAZY]] * 3)], strict=True
    )
    assert [reward[0] for reward in rewards] == [29.5, 29.5, 0.0, 40.0, 40.0, 0.0]
    assert [info["_took_control"][0] for info in infos] == [True, True, False, True, True, False]
    assert [info["took_control"][0] for info in infos] == [True, True, False, False, False, False]
    assert [info["control_cost"][0] for info in infos] == [-0.5, -0.5, 0.0, 0.0, 0.0, 0.0]
    assert [len(call) for call in default.calls] == [1, 1, 1, 2, 2, 1]
    assert infos[1]["control_rate"][0] == 1.0
    assert infos[1]["_control_rate"].tolist() == [True, False]
    assert infos[4]["control_rate"][0] == 0.0
    assert infos[4]["base_return"][0] == 80.0
    assert "control_rate" not in infos[2]
    # The terminal observation (2 steps made) is never shown to the default.
    assert [call[0][1] for call in default.calls if len(call) == 2] == [0.0, 1.0]


def test_same_step_resets_begin_anew_at_once():
    default = Recorder()
    venv = LazyVectorAction(echoes(AutoresetMode.SAME_STEP, lengths=(2, 9)), default, eta=0.5)
    venv.reset(seed=0)
    venv.step([3, LAZY])
    *_, infos = venv.step([LAZY, LAZY])
    assert infos["final_info"]["control_rate"][0] == 0.5
    assert infos["final_info"]["base_return"][0] == 70.0
    assert infos["final_info"]["_took_control"].tolist() == [True, False]
    assert infos["final_info"]["echo"][0] == 4
    *_, infos = venv.step([LAZY, LAZY])
    *_, infos = venv.step([LAZY, 3])
    assert infos["final_info"]["control_rate"][0] == 0.0
    assert [call[0][1] for call in default.calls] == [0.0, 1.0, 0.0, 1.0]
    assert len(default.calls[-1]) == 1


def test_the_caller_resets_when_autoreset_is_disabled():
    default = Recorder()
    venv = LazyVectorAction(echoes(AutoresetMode.DISABLED, lengths=(2, 9)), default, eta=0.5)
    venv.reset(seed=0)
    venv.step([3, LAZY])
    *_, infos = venv.step([3, LAZY])
    assert infos["control_rate"].tolist() == [1.0, 0.0]
    venv.set_eta(2.0)
    assert venv.eta.tolist() == [2.0, 0.5]
    venv.reset(options={"reset_mask": np.array([True, False])})
    *_, infos = venv.step([3, 3])
    assert infos["control_cost"].tolist() == [-2.0, -0.5]
    assert [len(call) for call in default.calls] == [1, 1]
    for _ in range(5):
        venv.reset(options={"reset_mask": np.array([True, False])})
        venv.step([3, 3])
    venv.reset(options={"reset_mask": np.array([True, False])})
    *_, infos = venv.step([LAZY, 3])
    assert infos["control_rate"].tolist() == [0.0, 7 / 9]


def test_repeat_starts_each_episode_from_the_noop():
    for mode, skipped in ((AutoresetMode.NEXT_STEP, [4]), (AutoresetMode.SAME_STEP, [])):
        venv = LazyVectorAction(echoes(mode, lengths=(2,)), "repeat")
        venv.reset(seed=0)
        for choice in [4, LAZY, *skipped]:
            venv.step([choice])
        assert venv.step([LAZY])[-1]["base_action"].tolist() == [2]


def test_there_is_no_step_before_the_first_reset():
    with pytest.raises(gym.error.ResetNeeded):
        LazyVectorAction(echoes()).step([3, 3, 3])


# -- prices --------------------------------------------------------------------------------------------------------


def test_each_environment_has_its_price_until_its_episode_ends():
    venv = LazyVectorAction(echoes(lengths=(2, 4)), eta=[0.5, 0.25])
    venv.reset(seed=0)
    assert venv.step([3, 3])[1].tolist() == [29.5, 29.75]
    venv.set_eta([1.0, 2.0])
    assert venv.step([3, 3])[1].tolist() == [29.5, 29.75]
    assert venv.step([3, 3])[1].tolist() == [0.0, 29.75]
    assert venv.step([3, 3])[1].tolist() == [29.0, 29.75]
    assert venv.step([3, 3])[1].tolist() == [29.0, 0.0]
    assert venv.eta.tolist() == [1.0, 2.0]
    venv.set_eta(3.0)
    venv.reset()
    assert venv.step([3, 3])[1].tolist() == [27.0, 27.0]


@pytest.mark.parametrize(
    ("eta", "message"),
    [
        ([0.1, np.nan, 0.1], "eta is nan in environment 1"),
        (np.inf, "eta is inf in environment 0"),
        ([0.1, 0.2], r"eta has shape \(2,\), expected one number or \(3,\)"),
    ],
)
def test_bad_prices_are_refused(eta, message):
    with pytest.raises(ValueError, match=message):
        LazyVectorAction(echoes(), eta=eta)
    with pytest.raises(ValueError, match=message):
        LazyVectorAction(echoes()).set_eta(eta)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([2, 6, 2], r"action is 6 in environment 1, expected 2 to 5 \(5 is lazy\)"),
        ([2, 2], r"shape \(2,\), expected integers of shape \(3,\)"),
        ([2.0, 2.0, 2.0], "actions are float64"),
    ],
)
def test_bad_actions_are_refused(actions, message):
    venv = LazyVectorAction(echoes())
    venv.reset()
    with pytest.raises(ValueError, match=message):
        venv.step(actions)


def test_integer_rewards_can_be_charged():
    base = echoes()
    step = base.step
    base.step = lambda actions: (lambda out: (out[0], out[1].astype(np.int32), *out[2:]))(step(actions))
    venv = LazyVectorAction(base, eta=0.5)
    venv.reset(seed=0)
    assert venv.step([3, 3, 3])[1].tolist() == [29.5] * 3


# -- seeds and batches ---------------------------------------------------------------------------------------------


def executed(seed, lengths=(40, 40)):
    venv = LazyVectorAction(echoes(lengths=lengths))
    observations = [venv.reset(seed=seed)[0]]
    actions = []
    for _ in range(40):
        observation, *_, infos = venv.step(np.full(len(lengths), LAZY))
        observations.append(observation)
        actions.append(infos["base_action"])
    return np.array(actions), np.array(observations)[..., 2]


def test_the_seed_decides_and_the_base_environments_keep_their_noise():
    actions, noise = executed(7)
    np.testing.assert_array_equal(executed(7)[0], actions)
    np.testing.assert_array_equal(executed([7, 8])[1], noise)
    assert (executed(8)[0] != actions).any()
    assert (executed([7, 9])[0] != actions).any()
    assert (actions[:, 0] != actions[:, 1]).any()
    bare = echoes(lengths=(40, 40))
    expected = [bare.reset(seed=7)[0][:, 2]] + [bare.step(np.array([2, 2]))[0][:, 2] for _ in range(40)]
    np.testing.assert_array_equal(noise, expected)
    venv = LazyVectorAction(echoes())
    before = venv._rng
    venv.reset(seed=[1, None, 2])
    venv.reset()
    assert venv._rng is before


def test_the_default_is_asked_once_for_the_lazy_rows_of_any_layout():
    shown = []

    def default(observations):
        shown.append(observations)
        return np.full(2, 4)

    venv = LazyVectorAction(echoes(observations="dict", lengths=(9, 9, 9)), default)
    observations, _ = venv.reset(seed=0)
    venv.step([LAZY, 3, LAZY])
    (batch,) = shown
    np.testing.assert_array_equal(batch["vector"], observations["vector"][[0, 2]])
    assert batch["both"][0].tolist() == [0, 0]
    assert batch["both"][1] == ("", "")
    venv.step([3, 3, 3])
    assert len(shown) == 1


def test_masks_pass_through_with_the_lazy_action_allowed():
    venv = LazyVectorAction(SyncVectorEnv([partial(MaskedEchoEnv, length=1)] * 2, autoreset_mode="SameStep"))
    _, infos = venv.reset()
    assert infos["action_mask"].tolist() == [[0, 1, 1, 1]] * 2
    *_, infos = venv.step([3, LAZY])
    assert infos["action_mask"].tolist() == [[0, 1, 1, 1]] * 2
    assert infos["final_info"]["action_mask"].tolist() == [[0, 1, 1, 1]] * 2
    assert venv.action_masks().tolist() == [[False, True, True, True]] * 2
    taxis = LazyVectorAction(gym.make_vec("Taxi-v4", num_envs=2))
    assert taxis.action_masks().all()
    _, infos = taxis.reset(seed=0)
    np.testing.assert_array_equal(taxis.action_masks(), infos["action_mask"])


# -- ale_py's own vector environment -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_atari_vector_env(mode):
    pytest.importorskip("ale_py")
    from ale_py.vector_env import AtariVectorEnv

    settings = dict(autoreset_mode=mode, max_num_frames_per_episode=60, noop_max=0)
    base = AtariVectorEnv("breakout", 3, **settings)
    other = set(AutoresetMode) - {mode, AutoresetMode.DISABLED}
    AtariVectorEnv("breakout", 1, autoreset_mode=other.pop()).close()  # writes its mode into the shared metadata
    default = Recorder()
    venv = LazyVectorAction(base, lambda obs: default(obs) - 3, eta=[0.1, 0.2, 0.3])
    observations, _ = venv.reset(seed=0)
    assert observations.shape == (3, 4, 84, 84)
    ends = 0
    for step in range(60):
        asked = len(default.calls)
        choices = np.array([4, 0, 4]) if step % 2 else np.array([0, 4, 4])
        *_, terminated, truncated, infos = venv.step(choices)
        assert infos["control_cost"].tolist() == np.where(infos["took_control"], [-0.1, -0.2, -0.3], 0.0).tolist()
        np.testing.assert_array_equal(infos["took_control"], (choices != 4) & infos["_took_control"])
        lazy = int(((choices == 4) & infos["_took_control"]).sum())
        assert [len(call) for call in default.calls[asked:]] == ([lazy] if lazy else [])
        if (terminated | truncated).any():
            ends += 1
            place = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
            np.testing.assert_array_equal(place["_control_rate"], terminated | truncated)
            assert place["control_rate"][2] == 0.0
            assert 0.4 <= place["control_rate"][0] <= 0.6
    assert ends >= 3
    assert infos["_took_control"].all() or mode is AutoresetMode.NEXT_STEP
    venv.close()


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (
            np.array([0.0, np.nan]),
            "environment 1, step 1 of the episode: it returned the reward nan",
        ),
        (np.array(["0", "1"]), "the rewards of the environments are of type <U1, expected real numbers"),
        (np.array([0.0, 1j]), "are of type complex128"),
    ],
)
def test_what_is_no_reward_is_refused(rewards, message):
    class Odd(gym.vector.VectorWrapper):
        def step(self, actions):
            seen, _, *rest = super().step(actions)
            return seen, rewards, *rest

    venv = LazyVectorAction(Odd(gym.vector.SyncVectorEnv([EchoEnv, EchoEnv])))
    venv.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        venv.step(np.array([2, 2]))
