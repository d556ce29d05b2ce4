"""The environment that an agent was trained in, as a single Gymnasium environment with the same preprocessing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import numpy as np
import scipy.sparse as sp
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp._colors import APPLE, BLUE, CONTROL, FLAG, GOLD, INK, LAZY, LEAF, LIGHT_WOOD, PLANK_GAP, WATER, rgb
from lazymdp.learn.deep.atari import FRAMES_PER_STEP, MAX_FRAMES, SIDE, AtariHost
from lazymdp.learn.deep.gymnasium_env import make_again, make_gymnasium_env
from lazymdp.learn.deep.host_env import GymnasiumHost, HostEnv
from lazymdp.learn.deep.jax_env import JaxEnv

CELL = 24
"""Height and width of a drawn cell of a MinAtar game, in pixels."""
_LINE_SHADE = 0.75
"""Lines between cells multiply the brightness of their pixels by this."""
_CHANNELS = (CONTROL, WATER, GOLD, APPLE, LEAF, BLUE, LAZY, FLAG, LIGHT_WOOD, PLANK_GAP)  # one color per channel


def make_single(env: JaxEnv | HostEnv, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Makes one Gymnasium environment like those that an agent was trained in.

    Args:
        env: The environment of training.
        render_mode: Render mode of the new environment.
    """
    options = {} if render_mode is None else {"render_mode": render_mode}  # some environments do not know this option
    if isinstance(env, JaxEnv):
        return CompiledEnv(env, render_mode) if env.make is None else env.make(options)
    if isinstance(env, AtariHost):
        return make_atari(env.name, render_mode)
    if isinstance(env, GymnasiumHost):
        return make_again(env.env, env.env_kwargs, options)
    raise TypeError(
        f"{type(env).__name__} cannot be made as a single environment: wrap your own, agent.wrap(env, eta)."
    )


class CompiledEnv(gym.Env[Any, Any]):
    """A compiled environment as a Gymnasium environment.

    An observation is what the agent saw in training; for a finite model, it is the number of the state. The render
    mode `rgb_array` draws observations with channels, as MinAtar has them: one square per cell in the color of its
    last channel that is set.

    Args:
        env: The compiled environment.
        render_mode: `rgb_array` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (as in Gymnasium)

    def __init__(self, env: JaxEnv, render_mode: str | None = None) -> None:
        drawable = len(env.shape) == 3 and env.shape[-1] <= len(_CHANNELS)
        if render_mode is not None and (render_mode != "rgb_array" or not drawable):
            raise ValueError(f"render_mode is {render_mode!r}, expected {'rgb_array or None' if drawable else 'None'}.")
        self.render_mode = render_mode
        self.name, self.action_names = env.name, env.action_names
        self._first = env.first_action
        self.action_space = spaces.Discrete(env.n_actions, start=self._first)
        space = env.space
        self.observation_space = spaces.Box(-np.inf, np.inf, env.shape, env.dtype) if space is None else space
        self._reset, self._step, self._observe = jax.jit(env.reset), jax.jit(env.step), jax.jit(env.observe)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        super().reset(seed=seed)
        self._state = self._reset(self._key())
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes a step."""
        chosen = int(action) - self._first
        self._state, reward, terminated, truncated = self._step(self._state, chosen, self._key())
        return self._observation(), float(reward), bool(terminated), bool(truncated), {}

    def render(self) -> Any:
        """Returns an image `[H, W, 3]` of the current state, or None without a render mode."""
        if self.render_mode is None:
            return None
        pixels = np.full((*self._frame.shape[:2], 3), rgb(INK), dtype=np.uint8)
        for channel in range(self._frame.shape[-1]):
            pixels[self._frame[..., channel] > 0] = rgb(_CHANNELS[channel])
        image = pixels.repeat(CELL, axis=0).repeat(CELL, axis=1)
        for lines in (image[::CELL], image[:, ::CELL]):  # thin lines between the cells, so that they can be counted
            lines[...] = (lines * _LINE_SHADE).astype(np.uint8)
        return image

    def _key(self) -> Any:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def _observation(self) -> Any:
        self._frame = np.array(self._observe(self._state))
        if isinstance(self.observation_space, spaces.Discrete):
            return int(self._frame.argmax()) + int(self.observation_space.start)
        return self._frame


def make_atari(env: str, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Makes an Atari game with the protocol of training, described in `lazymdp.learn.deep.atari`."""
    protocol = dict(
        render_mode=render_mode, obs_type="grayscale", frameskip=1, repeat_action_probability=0.25,
        full_action_space=False, max_num_frames_per_episode=MAX_FRAMES, disable_env_checker=True,
    )  # fmt: skip
    return AtariImages(make_gymnasium_env(env, protocol))


class AtariImages(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Dopamine's preprocessing of an emulator that shows single gray frames.

    A step is four frames. An image is the pixelwise maximum of the last two, averaged down to 84 x 84 pixels. An
    observation `[84, 84, 4]` is the last four images, the newest last; images from before the episode are black.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)  # so that env.spec can make the environment again
        gym.Wrapper.__init__(self, env)
        rows, columns = env.observation_space.shape or ()
        self._rows, self._columns = _averages(rows), _averages(columns)
        self.observation_space = AtariHost.space
        self.metadata = {**env.metadata, "render_fps": 60 // FRAMES_PER_STEP}  # the console shows 60 frames per second
        self._stack = np.zeros(AtariHost.shape, dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        frame, info = self.env.reset(seed=seed, options=options)
        self._stack = np.zeros_like(self._stack)
        return self._push(frame), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes a step of four frames, or fewer if the episode ends."""
        total, frames = 0.0, []
        for _ in range(FRAMES_PER_STEP):
            frame, reward, terminated, truncated, info = self.env.step(int(action))
            frames.append(frame)
            total += float(reward)
            if terminated or truncated:
                break
        return self._push(np.max(frames[-2:], axis=0)), total, terminated, truncated and not terminated, info

    def _push(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        image = np.rint(self._rows @ (self._columns @ frame.T).T).astype(np.uint8)
        self._stack = np.concatenate([self._stack[..., 1:], image[..., None]], axis=-1)
        return self._stack


def _averages(size: int) -> sp.csr_array:
    """Returns `[84, size]` weights that average `size` pixels down to 84, by the area that they share.

    Single precision and columns before rows give the same pixels as OpenCV, which ale-py's vector environment uses. The
    weights are sparse because BLAS starts threads for a dense product, which takes a hundred times as long.
    """
    edges = np.arange(SIDE + 1) * (size / SIDE)
    pixels = np.arange(size)
    shared = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return sp.csr_array((np.maximum(shared, 0.0) * (SIDE / size)).astype(np.float32))
