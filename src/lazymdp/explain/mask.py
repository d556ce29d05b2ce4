"""A learned mask: at which steps could the agent be blinded without losing return? After StateMask (Cheng et al. 2023).

A small network looks at every observation and decides whether to *keep* the agent's action or to *blind* the agent, so
that the default policy acts (by default random actions, as in StateMask). It is trained to blind as often as possible
while the return stays the same. The importance of a step is the probability that the network keeps the agent's action.

The network is trained by PPO on whole episodes, with the reward

    r / G + bonus * [blinded],    G = return of the agent - return of the default policy alone.

Deviations from StateMask (Cheng et al. 2023, "StateMask: explaining deep reinforcement learning through state mask",
NeurIPS):

1. StateMask minimizes the distance of the returns by a primal-dual method. Here the bonus is the dual variable: it
   rises by a factor while the episodes keep at least `1 - TOLERANCE` of `G`, and falls otherwise. A reward for
   blinding is the form of RICE (Cheng et al. 2024), and makes the problem a lazy-MDP whose price is the bonus.
2. The blinded agent is replaced by the default policy, which need not be random.
3. The network is a small one in NumPy, and the budget is small: `STEPS` instead of millions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_count, check_seed
from lazymdp._env_outcomes import check_seen
from lazymdp.defaults.protocol import noop_of
from lazymdp.explain.players import Player
from lazymdp.explain.small_network import BATCH, SmallNetwork, check_input, feature_rows, features

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Progress = Callable[[int, int], None]

STEPS = 50_000
"""Steps that are played to train the mask."""
_FIRST = 0.1
"""Share of the steps that are played by the agent alone, and by the default policy alone, to know their returns."""
_ROLLOUT = 1_024
"""Steps between updates, at least; episodes are played to their end."""
_EPOCHS, _CLIP, _LEARNING_RATE, _ENTROPY, _LAMBDA, _GAMMA = 4, 0.2, 1e-3, 0.01, 0.95, 0.99
TOLERANCE = 0.1
"""Share of the gain over the default policy that may be lost."""
_BONUS_RATE = 0.1
"""Change of the logarithm of the bonus after each update."""
_FIRST_BONUS, BONUS_RANGE = 0.2, (1e-3, 10.0)
"""Sum of the bonuses if all steps of an episode of the agent are blinded, in units of G: at first, and its range."""


class FittedMask:
    """A trained mask.

    Attributes:
        about: `method` and `steps` of the fit; `return_agent`, `return_default` and `return_masked`, the mean returns
            of the agent, of the default policy alone, and of the last episodes with the mask; `blinded`, the share of
            the steps of these that were blinded.
    """

    def __init__(self, space: gym.Space[Any], learner: MaskLearner, about: dict[str, Any]) -> None:
        self._space, self._learner, self.about = space, learner, about

    def keep(self, observations: Any) -> Array:
        """Returns `[N]` probabilities that the agent's action is kept, for a batch of observations."""
        return self._learner.keep(feature_rows(self._space, observations))


class MaskedEpisode(NamedTuple):
    """An episode of T steps in which some were blinded."""

    seen: Array  # [T + 1, F] features of the observations
    kept: Flags  # [T] whether the agent acted
    reward: Array  # [T] without the price
    terminated: bool


def fit_mask(
    player: Player, *, seed: int = 0, max_steps: int = 27_000, steps: int = STEPS, progress: Progress | None = None
) -> FittedMask:
    """Trains a mask for an agent.

    Args:
        player: The agent in its environment.
        seed: Random seed.
        max_steps: Number of steps after which an episode is truncated.
        steps: Steps to play, in whole episodes.
        progress: Called with the number of steps played and `steps`.
    """
    space = player.env.observation_space
    check_input(space, "mask")
    check_count(steps, "steps", "the number of steps to play")
    rng = np.random.default_rng([check_seed(seed), 0x3A5C])

    def play(budget: int, keep: Callable[[Array], Array]) -> list[MaskedEpisode]:
        episodes: list[MaskedEpisode] = []
        while not episodes or sum(len(episode.kept) for episode in episodes) < budget:
            episodes.append(_play(player, rng, keep, max_steps))
        return episodes

    learner, about = train_mask(play, rng, steps, progress)
    return FittedMask(space, learner, about)


def train_mask(
    play: Callable[[int, Callable[[Array], Array]], list[MaskedEpisode]],
    rng: np.random.Generator,
    steps: int,
    progress: Progress | None = None,
) -> tuple[MaskLearner, dict[str, Any]]:
    """Trains a mask, given a function that plays.

    Args:
        play: Plays whole episodes of at least so many steps, given the probabilities `[N]` of keeping the agent's
            action as a function of features `[N, F]`.
        rng: Random generator.
        steps: Steps to play.
        progress: Called with the number of steps played and `steps`.

    Returns:
        The mask, and the facts of `FittedMask.about`.
    """
    first = max(1, int(_FIRST * steps))
    alone = [play(first, _always(kept)) for kept in (1.0, 0.0)]
    own, default = (float(np.mean([episode.reward.sum() for episode in played])) for played in alone)
    done, last = sum(_steps(played) for played in alone), alone[0]
    learner = MaskLearner(alone[0] + alone[1], own - default, rng)
    while done < steps:
        last = play(_ROLLOUT, learner.keep)
        done += _steps(last)
        learner.update(last, 1.0 - min(done / steps, 1.0))
        kept = (float(np.mean([episode.reward.sum() for episode in last])) - default) / learner.gain
        learner.adapt(kept >= 1.0 - TOLERANCE)
        if progress is not None:
            progress(min(done, steps), steps)
    about = {
        "method": "learned mask, PPO", "steps": done, "return_agent": own, "return_default": default,
        "return_masked": float(np.mean([episode.reward.sum() for episode in last])),
        "blinded": float(1.0 - np.mean(np.concatenate([episode.kept for episode in last]))),
    }  # fmt: skip
    return learner, about


def _always(chance: float) -> Callable[[Array], Array]:
    """Returns a mask that keeps the agent's action with a fixed probability."""
    return lambda seen: np.full(len(seen), chance)


def _steps(episodes: Sequence[MaskedEpisode]) -> int:
    return sum(len(episode.kept) for episode in episodes)


def _play(
    player: Player, rng: np.random.Generator, keep: Callable[[Array], Array], max_steps: int
) -> MaskedEpisode:  # fmt: skip
    env, space = player.env, player.env.observation_space
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    check_seen(env, observation, 0)
    last, over, terminated = noop_of(env.env), False, False
    seen, kept, rewards = [features(space, observation)], [], []
    while not over:
        kept.append(bool(rng.random() < keep(seen[-1][None])[0]))
        action = player.choose(observation, last) if kept[-1] else env.lazy_action
        observation, _, terminated, truncated, info = env.step(action)
        check_seen(env, observation, len(kept))
        last, over = info["base_action"], terminated or truncated or len(kept) >= max_steps
        rewards.append(float(info["base_reward"]))
        seen.append(features(space, observation))
    return MaskedEpisode(np.array(seen), np.array(kept), np.array(rewards), bool(terminated))


class MaskLearner:
    """PPO for a mask: two networks, for the logit of keeping the agent's action and for the value.

    Args:
        first: Episodes of the agent alone and of the default policy alone.
        gain: Return of the agent minus that of the default policy alone.
        rng: Random generator.
    """

    def __init__(self, first: Sequence[MaskedEpisode], gain: float, rng: np.random.Generator) -> None:
        returns = np.array([episode.reward.sum() for episode in first])
        self.gain = gain if gain > 0.0 else float(np.abs(returns).mean()) or 1.0
        length = max(1.0, float(np.mean([len(episode.kept) for episode in first if episode.kept[0]])))
        self._bonus, self._range = _FIRST_BONUS / length, np.array(BONUS_RANGE) / length
        self._rng = rng
        seen = np.concatenate([episode.seen for episode in first])
        self._policy = SmallNetwork(seen, 1, 0.0, 1.0, rng)
        self._value = SmallNetwork(seen, 1, 0.5, 0.5, rng)

    def keep(self, seen: Array) -> Array:
        """Returns `[N]` probabilities of keeping the agent's action, for features `[N, F]`."""
        return _sigmoid(self._policy(seen)[:, 0])

    def adapt(self, harmless: bool) -> None:
        """Raises the bonus of blinding if the last episodes lost little return, and lowers it otherwise."""
        factor = np.exp(_BONUS_RATE if harmless else -_BONUS_RATE)
        self._bonus = float(np.clip(self._bonus * factor, *self._range))

    def update(self, episodes: Sequence[MaskedEpisode], rate: float) -> None:
        """Trains both networks on some episodes.

        Args:
            episodes: The episodes, played with the present mask.
            rate: Factor of the learning rate.
        """
        found = [self._advantages(episode) for episode in episodes]
        advantage, target = (np.concatenate(column) for column in zip(*found, strict=True))
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        seen = np.concatenate([episode.seen[:-1] for episode in episodes])
        kept = np.concatenate([episode.kept for episode in episodes])
        before = _chance(self._policy(seen)[:, 0], kept)
        for _ in range(_EPOCHS):
            order = self._rng.permutation(len(kept))
            for part in np.array_split(order, max(1, len(kept) // BATCH)):
                self._ascend(seen[part], kept[part], advantage[part], before[part], _LEARNING_RATE * rate)
                self._value.update(seen[part], np.zeros(len(part), dtype=np.int64), target[part], _LEARNING_RATE * rate)

    def _advantages(self, episode: MaskedEpisode) -> tuple[Array, Array]:
        """Returns `[T]` advantages by generalized advantage estimation, and `[T]` targets of the value."""
        value = self._value(episode.seen)[:, 0]
        if episode.terminated:
            value[-1] = 0.0
        reward = episode.reward / self.gain + self._bonus * ~episode.kept
        error = reward + _GAMMA * value[1:] - value[:-1]
        advantage, total = np.empty(len(error)), 0.0
        for step in reversed(range(len(error))):
            advantage[step] = total = error[step] + _GAMMA * _LAMBDA * total
        return advantage, advantage + value[:-1]

    def _ascend(self, seen: Array, kept: Flags, advantage: Array, before: Array, rate: float) -> None:
        """Makes a gradient step on PPO's clipped objective plus the entropy of the mask."""
        layers = self._policy.layers(seen)
        logit = layers[-1][:, 0]
        chance, keep = _chance(logit, kept), _sigmoid(logit)
        ratio = chance / before
        clipped = np.where(advantage > 0.0, ratio > 1.0 + _CLIP, ratio < 1.0 - _CLIP)
        of_logit = np.where(kept, 1.0 - keep, -keep)  # derivative of the logarithm of the chance of what was done
        gradient = np.where(clipped, 0.0, ratio * advantage * of_logit) - _ENTROPY * logit * keep * (1.0 - keep)
        self._policy.descend(layers, -gradient[:, None] / len(kept), rate)


def _sigmoid(logit: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-np.clip(logit, -30.0, 30.0)))


def _chance(logit: Array, kept: Flags) -> Array:
    """Returns `[N]` probabilities of what the mask did."""
    return np.where(kept, _sigmoid(logit), _sigmoid(-logit))
