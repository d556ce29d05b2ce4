"""Plays episodes with an agent and records them: what it saw, what it did, and what it thought of every state."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_count, check_eta, check_seed, safe_str
from lazymdp._env_outcomes import check_seen, env_name
from lazymdp.defaults.protocol import noop_of
from lazymdp.exact.path import EtaPath
from lazymdp.explain.environments import (
    action_names,
    batched,
    first_action,
    flat_size,
    flattened,
    frame_of,
    frames_per_second,
    state_names,
)
from lazymdp.explain.extra import extra
from lazymdp.explain.mask import STEPS as MASK_STEPS
from lazymdp.explain.mask import FittedMask, fit_mask
from lazymdp.explain.named_agents import find_agent
from lazymdp.explain.players import ExactPlayer, OtherPlayer, Player, TrainedPlayer
from lazymdp.explain.recording import LONGEST, EpisodeWriter, Recording, RecordingWriter, check_free
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the amount of work done and the total amount."""
_ROWS = 256
"""Number of steps that are judged and written together; memory does not grow beyond them."""


def record(
    agent: Any,
    env: str | gym.Env[Any, Any] | None = None,
    *,
    folder: str | os.PathLike[str],
    episodes: int = 1,
    eta: float | None = None,
    seed: int = 0,
    max_steps: int | None = None,
    default_policy: Any = None,
    gamma: float | None = None,
    critic: str | None = None,
    mask: str | None = None,
    mask_steps: int = MASK_STEPS,
    trust: bool = False,
    progress: Progress | None = None,
) -> Recording:
    """Plays whole episodes with an agent, and writes them to a folder in the format of `lazymdp.explain.recording`.

    The agent acts deterministically. Episode `i` is reset with the seed `seed + i`, which with the executed actions is
    enough to replay it.

    Args:
        agent: A trained agent of `lz.learn`; a finite model (`MDP`, `LazyMDP` or `EtaPath`), whose exact solution
            acts; a Stable-Baselines3 model, an object with `predict`, or a callable that maps an observation to an
            action. Or text: the folder of a run, a model that `lazymdp solve` accepts, a `.zip` file of
            Stable-Baselines3, or `module:object`.
        env: A Gymnasium environment or its id; by default that of the agent. A model that is no environment's is played
            itself, by `lz.envs.ModelWorld`. An environment with the render mode `rgb_array` is recorded with frames. In
            a `LazyAction` environment, any agent may choose to be lazy.
        folder: Folder to write, which must not hold a recording already.
        episodes: Number of episodes.
        eta: Price of taking control; required for a dial and for a model that has none.
        seed: Seed of the first episode.
        max_steps: Number of steps after which an episode is truncated; by default the environment's own limit, and
            27,000 if that is longer.
        default_policy: Default policy of an agent that has none, by default uniform.
        gamma: Discount, for a model that is given as the id of an environment or as a map (by default 0.99), and for
            the critic (by default 0.99).
        critic: How the values of an agent that has none are estimated: `fit` evaluates its policy, as
            `lazymdp.explain.critic` describes; with None they are unknown (NaN).
        mask: `fit` trains a mask, as `lazymdp.explain.mask` describes, and records how likely it keeps the agent's
            action in each step, by which `lz.explain.rank` can rank; with None there is no mask.
        mask_steps: Steps that are played to train the mask.
        trust: Allow code to run that text names: a Stable-Baselines3 file, a module, or what a run names.
        progress: Called with what is being done, the amount of work done and the total amount: after every step that
            is recorded with the number of whole episodes, and while a mask is trained with its steps.

    Returns:
        The recording.
    """
    _check(folder, episodes, seed, max_steps, critic, mask, mask_steps)
    if eta is not None:
        check_eta(eta)
    player = make_player(agent, env, eta, default_policy, gamma=gamma, trust=trust)
    return record_player(
        player, folder, episodes=episodes, seed=seed, max_steps=max_steps, gamma=gamma, critic=critic, mask=mask,
        mask_steps=mask_steps, progress=progress,
    )  # fmt: skip


def record_player(
    player: Player,
    folder: str | os.PathLike[str],
    *,
    episodes: int,
    seed: int = 0,
    max_steps: int | None = None,
    gamma: float | None = None,
    critic: str | None = None,
    mask: str | None = None,
    mask_steps: int = MASK_STEPS,
    progress: Progress | None = None,
) -> Recording:
    """Plays and records an agent that is in its environment already; `record` describes the arguments."""
    _check(folder, episodes, seed, max_steps, critic, mask, mask_steps)
    limit, tell = LONGEST if max_steps is None else max_steps, progress or (lambda *_: None)
    start = _start(player, seed)
    frame = _first_frame(player)
    about = _about(player, seed, frame)
    if critic is not None:
        about["critic"] = _fit(player, gamma, seed, limit)
    fitted = None
    if mask is not None:
        fitted = fit_mask(
            player, seed=seed, max_steps=limit, steps=mask_steps, progress=lambda *did: tell("training the mask", *did)
        )
        about["mask"] = fitted.about
    if critic is not None or mask is not None:
        start = _start(player, seed)
    writer = RecordingWriter(folder, about)
    steps = 0
    for episode in range(episodes):
        if episode:
            start = _start(player, seed + episode)
        with writer.episode(seed + episode) as file:
            for _ in _play(player, _Rows(player, file, frame is not None, fitted), start, limit):
                steps += 1
                tell(f"recording, {steps:,} steps", episode, episodes)
    tell(f"recording, {steps:,} steps", episodes, episodes)
    return Recording(folder)


def _check(
    folder: str | os.PathLike[str], episodes: int, seed: int, max_steps: int | None, critic: str | None,
    mask: str | None, mask_steps: int,
) -> None:  # fmt: skip
    """Raises an error if nothing can be recorded with these arguments."""
    check_count(episodes, "episodes", "the number of episodes")
    check_seed(seed)
    if max_steps is not None:
        check_count(max_steps, "max_steps", "the longest episode")
    if critic not in (None, "fit"):
        raise ValueError(f"critic is {critic!r}, expected 'fit' or None.")
    if mask not in (None, "fit"):
        raise ValueError(f"mask is {mask!r}, expected 'fit' or None.")
    check_count(mask_steps, "mask_steps", "the number of steps that are played to train the mask")
    check_free(Path(folder))
    extra("pyarrow.parquet"), extra("PIL.Image")


def make_player(
    agent: Any, env: Any, eta: float | None, default_policy: Any, *, gamma: float | None = None, trust: bool = False
) -> Player:
    """Returns an agent of any form in its environment; `record` describes the arguments."""
    name = default_name = None
    if isinstance(agent, str | os.PathLike):
        agent, name, own_env, default_name = find_agent(agent, gamma, trust)
        env = own_env if env is None else env
    if isinstance(agent, MDP | LazyMDP | EtaPath):
        return ExactPlayer(agent, env, eta, default_policy)
    if all(hasattr(agent, method) for method in ("predict", "lazy_gap", "critical_eta", "make_env")):
        if default_policy is not None:
            raise ValueError("default_policy is given, but the agent was trained with its own: leave it out.")
        return TrainedPlayer(agent, env, eta, default_name or "as in training")
    if isinstance(default_policy, str) and default_policy.isdecimal():
        default_policy = int(default_policy)  # an action, from the command line
    return OtherPlayer(agent, env, eta, default_policy, name)


class _Start(NamedTuple):
    """The beginning of an episode: the first observation, and what the agent chose there."""

    observation: Any
    choice: int


def _start(player: Player, seed: int) -> _Start:
    """Resets the environment. The first choice is made at once: an agent that does not fit fails before the writing."""
    observation, _ = player.env.reset(seed=seed)
    check_seen(player.env, observation, 0)
    return _Start(observation, player.choose(observation, _noop(player)))


def _noop(player: Player) -> int:
    """Returns the action that stands for the last one when an episode begins."""
    return noop_of(player.env.env)


def _first_frame(player: Player) -> NDArray[np.uint8] | None:
    """Renders the first frame, or warns that there are none and returns None."""
    mode = player.env.render_mode
    if mode == "rgb_array":
        try:
            return frame_of(player.env)
        except Exception as error:  # environments fail in many ways, for example without pygame
            reason = " ".join(safe_str(error).split())
    else:
        reason = f"its render mode is {mode}, not rgb_array"
    name = env_name(player.env)
    warnings.warn(f"{name} is recorded without frames, because it cannot be rendered: {reason}.", stacklevel=3)
    return None


def _about(player: Player, seed: int, frame: NDArray[np.uint8] | None) -> dict[str, Any]:
    """Returns the content of `recording.json`."""
    names, states = action_names(player.env, player.action_names), state_names(player.env)
    return {
        "agent": player.name,
        "env": env_name(player.env),
        "eta": None if player.eta is None else float(player.eta),
        "default_policy": player.default_name,
        "action_names": names,
        "n_actions": len(names),
        "frames_per_second": frames_per_second(player.env),
        "frame_shape": None if frame is None else list(frame.shape),
        "seed": int(seed),
        **({} if states is None else {"state_names": states}),
    }


def _play(player: Player, rows: _Rows, start: _Start, limit: int) -> Any:
    """Plays an episode from its first observation, and writes it; yields after every step."""
    env, first = player.env, first_action(player.env)
    observation, choice = start
    last = _noop(player)
    for step in range(1, limit + 1):
        if rows.has_frames:
            rows.file.add_frame(frame_of(env))
        after, _, terminated, truncated, info = env.step(choice)
        check_seen(env, after, step)
        truncated = bool(truncated or step == limit) and not terminated
        price = 0.0 if player.eta is None else 0.0 - info["control_cost"]  # not -0.0
        rows.add(observation, last, choice - first, info["base_action"] - first, info["base_reward"], price)
        observation, last = after, info["base_action"]
        yield
        if terminated or truncated:
            break
        choice = player.choose(observation, last)
    rows.flush()
    rows.file.end(terminated, truncated)


class _Rows:
    """Collects steps until there are enough to judge and write them together."""

    def __init__(self, player: Player, file: EpisodeWriter, has_frames: bool, mask: FittedMask | None) -> None:
        self.file, self.has_frames = file, has_frames
        self._player, self._mask = player, mask
        self._space = player.env.observation_space
        self._flat = flat_size(self._space, has_frames) is not None
        self._rows: list[tuple[Any, int, int, int, float, float]] = []

    def add(
        self, observation: Any, last_action: int, choice: int, action: int, reward: float, price: float
    ) -> None:  # fmt: skip
        """Adds a step; some environments reuse the array of their observations, so it is copied."""
        kept = observation.copy() if isinstance(observation, np.ndarray) else observation
        self._rows.append((kept, last_action, choice, action, reward, price))
        if len(self._rows) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Judges and writes the steps."""
        if not self._rows:
            return
        observations, last, choices, actions, rewards, prices = map(list, zip(*self._rows, strict=True))
        chosen = np.array(choices, dtype=np.int64)
        judged = self._player.judge(observations, np.array(last, dtype=np.int64), chosen)
        columns: dict[str, Any] = {
            "action": actions, "choice": chosen, "control": chosen < judged.q.shape[1], "reward": rewards,
            "price": prices, **judged._asdict(),
        }  # fmt: skip
        if self._flat:
            columns["observation"] = np.array([flattened(self._space, seen) for seen in observations])
        if self._mask is not None:
            columns["mask"] = self._mask.keep(batched(self._space, observations))
        self.file.add_steps(columns)
        self._rows = []


def _fit(player: Player, gamma: float | None, seed: int, limit: int) -> dict[str, Any]:
    """Fits a critic to an agent without values, and returns how good it is."""
    if not isinstance(player, OtherPlayer):
        raise ValueError("critic is 'fit', but the agent has values of its own: leave it out.")
    from lazymdp.explain.critic import fit_critic

    player.critic = fit_critic(player, gamma=0.99 if gamma is None else gamma, seed=seed, max_steps=limit)
    return player.critic.about
