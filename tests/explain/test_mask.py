"""The learned mask: it keeps the agent's action where that matters, and `rank` reads it from a recording."""

import gymnasium as gym
import numpy as np
import pytest
import small_recordings as recordings

import lazymdp as lz
from lazymdp.explain.mask import MaskedEpisode, MaskLearner, fit_mask
from lazymdp.explain.players import OtherPlayer

LENGTH, DECISIVE = 12, 5


class Corridor(gym.Env):
    """Leads to a treasure whatever is done, except that action 0 ends the episode in one state; observes the step."""

    observation_space, action_space = gym.spaces.Discrete(LENGTH + 1), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        fatal = self.place == DECISIVE and action == 0
        self.place += 1
        arrived = self.place == LENGTH
        return self.place, float(arrived), arrived or fatal, False, {}


def always_one(observation):
    return 1


def player():
    return OtherPlayer(always_one, Corridor(), None, None, "walker")


@pytest.mark.learning
def test_the_decisive_state_is_on_top(seed):
    found = fit_mask(player(), seed=seed, steps=6_000)
    keep = found.keep(np.arange(LENGTH))
    assert keep.shape == (LENGTH,) and keep.argmax() == DECISIVE
    assert keep[DECISIVE] > 0.7 > np.delete(keep, DECISIVE).mean()
    about = found.about
    assert about["return_agent"] == 1.0 and about["return_default"] < about["return_masked"] and about["blinded"] > 0.3


def test_the_same_seed_gives_the_same_mask():
    one, again, other = (fit_mask(player(), seed=seed, steps=400) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.keep(np.arange(LENGTH)), again.keep(np.arange(LENGTH)))
    assert one.about == again.about
    assert not np.array_equal(one.keep(np.arange(LENGTH)), other.keep(np.arange(LENGTH)))


def test_advantages_by_hand(monkeypatch):
    """With a value of 0 everywhere, the advantages are discounted sums of the scaled rewards and the bonus."""
    episode = MaskedEpisode(np.zeros((4, 1)), np.array([True, False, True]), np.array([0.0, 0.0, 4.0]), True)
    learner = MaskLearner([episode], 2.0, np.random.default_rng(0))
    monkeypatch.setattr(learner, "_value", lambda seen: np.zeros((len(seen), 1)))
    bonus, weight = 0.2 / 3, 0.99 * 0.95
    wanted = [weight * (bonus + weight * 2.0), bonus + weight * 2.0, 2.0]
    np.testing.assert_allclose(learner._advantages(episode), [wanted, wanted])


def test_the_bonus_follows_the_return():
    episode = MaskedEpisode(np.zeros((3, 1)), np.array([True, True]), np.array([0.0, 1.0]), True)
    learner = MaskLearner([episode], 1.0, np.random.default_rng(0))
    first = learner._bonus
    learner.adapt(True)
    assert learner._bonus > first
    learner.adapt(False)
    assert learner._bonus == pytest.approx(first)


def test_an_agent_that_is_no_better_than_chance():
    """There is nothing to keep, and the gain of 0 is no divisor."""
    found = fit_mask(OtherPlayer(lambda state: 0, Corridor(), None, 0, "fool"), steps=300)
    assert found.about["return_agent"] == found.about["return_default"] == 0.0
    assert np.isfinite(found.keep(np.arange(LENGTH))).all()


def test_observations_that_do_not_fit():
    env = gym.make("CartPole-v1")
    env.observation_space = gym.spaces.Box(0, 1, (100, 100))
    with pytest.raises(ValueError, match="the mask cannot be fitted: observations are 10000 numbers"):
        fit_mask(OtherPlayer(lambda observation: 0, env, None, None, None))


def test_a_recording_with_a_mask(tmp_path):
    pytest.importorskip("pyarrow")
    seen = []
    with pytest.warns(UserWarning, match="without frames"):
        recording = lz.explain.record(
            always_one, Corridor(), folder=tmp_path / "r", mask="fit", mask_steps=300,
            progress=lambda *work: seen.append(work),
        )  # fmt: skip
    score = lz.explain.rank(recording, "mask").score[0]
    assert score.shape == (LENGTH,) and ((score > 0.0) & (score < 1.0)).all()
    assert recording.about["mask"]["steps"] >= 300
    assert ("training the mask", 300, 300) in seen and seen[-1] == (f"recording, {LENGTH} steps", 1, 1)
    np.testing.assert_array_equal(score, fit_mask(player(), steps=300).keep(np.arange(LENGTH)))


def test_a_recording_without_a_mask(tmp_path):
    pytest.importorskip("pyarrow")
    recording = recordings.write(tmp_path / "r", [[0.1, 0.2]])
    with pytest.raises(ValueError, match="mask is unknown .* `lazymdp record --mask fit`"):
        lz.explain.rank(recording, "mask")
    with pytest.raises(ValueError, match="mask is 'yes', expected 'fit' or None"):
        lz.explain.record(always_one, Corridor(), folder=tmp_path / "s", mask="yes")
    with pytest.raises(ValueError, match="mask_steps is 0"):
        lz.explain.record(always_one, Corridor(), folder=tmp_path / "s", mask="fit", mask_steps=0)
