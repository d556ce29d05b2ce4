"""Any finite model as an environment, which samples its transitions."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from lazymdp._arguments import check_count
from lazymdp._arrays import sample_rows

if TYPE_CHECKING:
    from lazymdp.mdp import MDP


class ModelWorld(gym.Env[int, int]):
    """A finite model that can be played: for a model of your own, which no other environment describes.

    ## Observation space

    `Discrete(S)`: the number of the state.

    ## Action space

    `Discrete(A)`: the number of the action.

    ## Starting state

    Drawn from the start distribution of the model.

    ## Rewards

    The expected reward of the action in the state, which is all that a model knows.

    ## Episode end

    An episode is terminated when it enters an absorbing state, and truncated after `max_steps` steps. A model without
    absorbing states never terminates. The discount of the model plays no part.

    ## Information

    `reset` and `step` return `prob`, the probability of the state that was entered.

    It draws no pictures. `reset(seed=)` determines every later random number; a step takes one.

    Args:
        mdp: The model.
        max_steps: Number of steps after which an episode is truncated.
        name: A name for titles.

    Attributes:
        state_names: One name per state, or None.
        action_names: One name per action, or None.
        s: The current state.

    Example:
        >>> from lazymdp import MDP
        >>> env = ModelWorld(MDP([[[0.0, 1.0]], [[0.0, 1.0]]], [[1.0], [0.0]], gamma=0.9))
        >>> env.reset(seed=0)
        (0, {'prob': 1.0})
        >>> env.step(0)
        (1, 1.0, True, False, {'prob': 1.0})
    """

    metadata = {"render_modes": [], "render_fps": 4}  # noqa: RUF012 (as in Gymnasium)

    def __init__(self, mdp: MDP, *, max_steps: int = 1_000, name: str = "model") -> None:
        self.mdp, self.name = mdp, name
        self.max_steps = check_count(max_steps, "max_steps", "the longest episode")
        self.state_names, self.action_names = mdp.state_names, mdp.action_names
        self.observation_space = gym.spaces.Discrete(mdp.n_states)  # type: ignore[assignment]
        self.action_space = gym.spaces.Discrete(mdp.n_actions)  # type: ignore[assignment]
        self.s, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Starts an episode; there are no options."""
        super().reset(seed=seed)
        self.s, self._steps = int(sample_rows(self.mdp.start, self.np_random.random())), 0
        return self.s, {"prob": float(self.mdp.start[self.s])}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Takes an action; an absorbing state is never left."""
        if action not in self.action_space:
            raise ValueError(f"action is {action!r}, expected 0 to {self.mdp.n_actions - 1}.")
        matrix, row = self.mdp.transitions, self.s * self.mdp.n_actions + int(action)
        entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
        place = int(sample_rows(matrix.data[entries], self.np_random.random()))
        reward = float(self.mdp.rewards[self.s, int(action)])
        self.s, self._steps = int(matrix.indices[entries][place]), self._steps + 1
        terminated = bool(self.mdp.absorbing[self.s])
        truncated = not terminated and self._steps >= self.max_steps
        return self.s, reward, terminated, truncated, {"prob": float(matrix.data[entries][place])}

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelWorld:
        """Copies the state of the episode. The model, which may be large and does not change, is shared."""
        made = copy.copy(self)
        memo |= {id(self): made, id(self.mdp): self.mdp}
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made
