"""Playing a trained network: its frontier of return and control, the price that meets a budget, what matters where."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.learn.choices import Choice
from lazymdp.learn.device_defaults import greedy, softmax
from lazymdp.learn.dial import Dial
from lazymdp.learn.dqn import DQN
from lazymdp.learn.games import Game, compiled
from lazymdp.learn.groups import empty_stack, pushed
from lazymdp.learn.hosts import Host, Seen

CHUNK = 100
"""Steps between two looks at whether all episodes are over."""
MAX_STEPS = 10_000
"""Steps after which an episode counts as it is, where the environment has no limit of its own."""
EVALUATION = 1
"""Mixed into seeds, so that no episode of evaluation is one that was trained on."""


@dataclass(frozen=True)
class Played:
    """Episodes of evaluation: one row per price, one column per episode, `[E, N]`.

    Attributes:
        etas: `[E]`.
        score: Return, price excluded.
        steps: Length.
        controls: Steps in which the agent took control.
        unfinished: How many episodes reached `max_steps` and count as they were.
    """

    etas: NDArray[np.float64]
    score: NDArray[np.float64]
    steps: NDArray[np.float64]
    controls: NDArray[np.float64]
    unfinished: int = 0

    @property
    def control_frequency(self) -> NDArray[np.float64]:
        """`[E]` share of all steps in which the agent took control."""
        return self.controls.sum(axis=1) / self.steps.sum(axis=1)


@dataclass(frozen=True)
class Budget:
    """The price that meets a budget of control, as far as the episodes tell.

    Attributes:
        eta: The price.
        eta_low: Lower and ...
        eta_high: ... upper end of its 95 % bootstrap interval over episodes, within the prices looked at.
        control_frequency: Share of steps in control at this price, read off the same episodes.
        score: Mean return there, price excluded.
    """

    eta: float
    eta_low: float
    eta_high: float
    control_frequency: float
    score: float


class Agent:
    """A trained network, and what can be asked of it.

    Args:
        learner: What it was trained by.
        parameters: Of its network.
    """

    def __init__(self, learner: Dial | DQN, parameters: Any) -> None:
        self.learner, self.parameters = learner, parameters
        self.eta = 0.0  # the price where none is given
        self._values = jax.jit(learner.network.apply)
        self._look = jax.jit(functools.partial(look, learner))
        if isinstance(learner.game, Game):
            self._start = jax.jit(jax.vmap(learner.game.init))
            self._play = jax.jit(functools.partial(play, learner))

    def q(self, observations: ArrayLike, eta: ArrayLike = 0.0) -> NDArray[np.float32]:
        """`[N, A]` values of taking control in `[N, ...]` observations at price `eta` (a number or `[N]`).

        A network of DQN knows one price only and does not look at `eta`.
        """
        return self._outputs(observations, eta)[:, : self.learner.game.n_actions]

    def lazy_gap(
        self, observations: ArrayLike, eta: ArrayLike | None = None, last_actions: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """`[N]` best value minus the default's mean value; `last_actions` for a default that looks at them."""
        eta = self.eta if eta is None else eta
        values, n_actions = self._outputs(observations, eta), self.learner.game.n_actions
        best = values[:, :n_actions].max(-1)
        if not self.learner.config.structured:
            return best - (values[:, n_actions] - np.asarray(eta, dtype=np.float32))
        last = np.full(len(best), self.learner.game.noop) if last_actions is None else last_actions
        default = self.learner.default(jnp.asarray(observations), jnp.asarray(last))
        return best - (values * np.asarray(default)).sum(-1)

    def as_default(self, *, epsilon: float = 0.0, temperature: float | None = None) -> AgentDefault:
        """Its actions as a default policy of others, for `lz.LazyAction`: at price 0, always in control.

        Args:
            epsilon: Share of random actions.
            temperature: Of a softmax over the values in place of the best action.
        """
        return AgentDefault(self, epsilon, temperature)

    def frontier(
        self,
        etas: Sequence[float] | NDArray[np.float64],
        *,
        episodes: int = 100,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Played:
        """Plays `episodes` whole episodes at each price.

        Args:
            etas: Prices.
            episodes: Per price.
            seed: Of the evaluation; the same episodes' worth of chance at every price.
            epsilon: Share of random choices.
            max_steps: Steps after which an episode counts as it is; the environment's own limit if not given, or
                10,000 where it has none.
            progress: Called with what is done and how much there is.
        """
        prices = np.asarray(etas, dtype=float)
        if prices.ndim != 1 or not prices.size or not (prices >= 0.0).all():
            raise ValueError(f"etas are {etas}, expected a list of prices of at least 0.")
        if episodes < 1 or (max_steps is not None and max_steps < 1):
            raise ValueError(f"episodes is {episodes} and max_steps {max_steps}, expected at least 1.")
        limit = max_steps or getattr(self.learner.game, "max_steps", None) or MAX_STEPS
        if isinstance(self.learner.game, Game):
            totals, alive = self._played(prices, episodes, seed, epsilon, limit, progress)
        else:
            host = self.learner.game.like(episodes)
            try:
                parts = []
                for place, price in enumerate(prices):
                    parts.append(self._played_on(host, price, episodes, seed, epsilon, limit))
                    if progress is not None:
                        progress(place + 1, prices.size)
            finally:
                host.close()
            totals, alive = (np.concatenate(part) for part in zip(*parts, strict=True))
        score, steps, controls = totals.astype(float).T.reshape(3, prices.size, episodes)
        return Played(prices, score, steps, controls, int(alive.sum()))

    def _outputs(self, observations: ArrayLike, eta: ArrayLike) -> NDArray[np.float32]:
        seen = jnp.asarray(observations)
        prices = jnp.broadcast_to(jnp.asarray(eta, dtype=jnp.float32), seen.shape[:1])
        return np.asarray(self._values(self.parameters, seen, prices))

    def _played(
        self, prices: NDArray[np.float64], episodes: int, seed: int, epsilon: float, max_steps: int, progress: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """`[E * N, 3]` totals of a compiled game, all prices side by side, and which episodes still went on."""
        eta = jnp.repeat(jnp.asarray(prices, dtype=jnp.float32), episodes)
        key, start_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), EVALUATION))
        starts = jax.random.split(start_key, episodes)
        states = self._start(jnp.tile(starts, prices.size))
        playing = Playing(
            states, jnp.full(eta.size, self.learner.game.noop, jnp.int32), jnp.zeros((eta.size, 3)), eta >= 0.0
        )
        for done in range(0, max_steps, CHUNK):
            key, chunk_key = jax.random.split(key)
            playing = self._play(self.parameters, playing, eta, chunk_key, epsilon, max_steps)
            if progress is not None:
                progress(min(done + CHUNK, max_steps), max_steps)
            if not bool(playing.alive.any()):
                break
        return np.asarray(playing.totals), np.asarray(playing.alive)

    def _played_on(
        self, host: Host, price: float, episodes: int, seed: int, epsilon: float, max_steps: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """`[N, 3]` totals of environments on the host at one price, and which episodes still went on."""
        totals, alive, lazy = np.zeros((episodes, 3)), np.ones(episodes, dtype=bool), np.zeros(episodes, dtype=bool)
        stacks = [empty_stack(host, part.stop - part.start) for part in host.groups]
        last = [jnp.full(part.stop - part.start, host.noop) for part in host.groups]
        key = jax.random.key(seed)
        host.start(EVALUATION * 2**32 + seed)  # other episodes than those trained on
        for step in range(max_steps + 1):
            for group, part in enumerate(host.groups):
                seen = host.receive(group)
                if step > 0:
                    made = np.stack([seen.reward, np.ones_like(seen.reward), ~lazy[part]], axis=-1)
                    totals[part] += alive[part, None] * made
                    totals[part] *= ~(alive[part] & seen.lost)[:, None]  # begun anew
                    alive[part] &= ~(seen.ended | seen.cut)
                place = jax.random.fold_in(key, step * len(host.groups) + group)
                eta = jnp.full(part.stop - part.start, price, dtype=jnp.float32)
                stacks[group], choice = self._look(
                    self.parameters, stacks[group], last[group], seen, eta, place, epsilon
                )
                last[group], lazy[part] = choice.executed, np.asarray(choice.lazy)
                host.send(group, np.asarray(choice.executed, dtype=np.int64))
            if not alive.any():
                break
        return totals, alive


class DQNAgent(Agent):
    """A trained network of DQN, for one price.

    Args:
        learner: What it was trained by.
        parameters: Of its network.
        eta: The price, as it was in the end.
    """

    def __init__(self, learner: DQN, parameters: Any, eta: float) -> None:
        super().__init__(learner, parameters)
        self.eta = eta


class DialAgent(Agent):
    """A trained network that knows every price."""

    learner: Dial

    def critical_eta(self, observations: ArrayLike, *, points: int = 129) -> NDArray[np.float64]:
        """`[N]` the largest price at which the agent takes control; 0 where it never does.

        Read off `points` prices over the range trained on, with a straight line between the last two.
        """
        prices = self._prices(points)
        excess = np.array([self.lazy_gap(observations, price) - price for price in prices])  # [P, N]
        critical = np.zeros(excess.shape[1])
        for place, column in enumerate(excess.T):
            above = np.flatnonzero(column > 0.0)
            if above.size:
                last = above[-1]
                critical[place] = prices[last]
                if last + 1 < points:
                    rise = column[last] / (column[last] - column[last + 1])
                    critical[place] += rise * (prices[last + 1] - prices[last])
        return critical

    def for_budget(self, control_frequency: float, *, points: int = 17, episodes: int = 100, seed: int = 0) -> Budget:
        """The smallest price at which the agent takes control in at most that share of steps.

        Found on evaluation episodes at `points` prices over the range trained on, then at as many between the two that
        enclose it. Where the frequency jumps from one price to the next, what is met lies below what was asked.
        """
        if not 0.0 <= control_frequency <= 1.0:
            raise ValueError(f"control_frequency is {control_frequency}, expected a share of steps between 0 and 1.")
        coarse = self.frontier(self._prices(points), episodes=episodes, seed=seed)
        first = _first_within(coarse.control_frequency, control_frequency)
        between = np.linspace(coarse.etas[max(0, first - 1)], coarse.etas[first], points)
        fine = self.frontier(between, episodes=episodes, seed=seed)
        place = _first_within(fine.control_frequency, control_frequency)
        generator = np.random.default_rng(seed)
        found = []
        for _ in range(500):
            rows = generator.integers(episodes, size=episodes)
            share = fine.controls[:, rows].sum(axis=1) / fine.steps[:, rows].sum(axis=1)
            found.append(fine.etas[_first_within(share, control_frequency)])
        low, high = np.quantile(found, [0.025, 0.975])
        met, score = float(fine.control_frequency[place]), float(fine.score[place].mean())
        return Budget(float(fine.etas[place]), float(low), float(high), met, score)

    def _prices(self, points: int) -> NDArray[np.float64]:
        """0, then prices over the range trained on, even in their logarithm."""
        config = self.learner.config
        return np.append(0.0, np.geomspace(config.eta_low, config.eta_high, points - 1))


class Playing(NamedTuple):
    """Episodes of evaluation under way, `[N]` each."""

    states: Any  # of the games
    last: Any  # actions executed last
    totals: Any  # [N, 3] return, steps and controls of each first episode so far
    alive: Any  # whether it still goes on


def play(
    learner: Dial | DQN, parameters: Any, playing: Playing, eta: Any, key: Any, epsilon: Any, max_steps: Any
) -> Playing:
    """Some steps of evaluation in a compiled game.

    Args:
        learner: The learner.
        parameters: Of its network.
        playing: The episodes.
        eta: `[N]` prices.
        key: Random key.
        epsilon: Share of random choices.
        max_steps: After which nothing more is added.
    """
    game = compiled(learner.game)

    def step(playing: Playing, key: Any) -> tuple[Playing, None]:
        states, last, totals, alive = playing
        choice_key, step_key = jax.random.split(key)
        observation = jax.vmap(game.observe)(states)
        choice = learner.act(parameters, observation, eta, last, choice_key, epsilon)
        keys = jax.random.split(step_key, eta.size)
        states, reward, ended, cut = jax.vmap(game.step)(states, choice.executed, keys)
        over = ended | cut
        made = jnp.stack([reward, jnp.ones(eta.size), 1.0 - choice.lazy], -1)
        last = jnp.where(over, game.noop, choice.executed)
        counts = alive & (totals[:, 1] < max_steps)
        return Playing(states, last, totals + counts[:, None] * made, alive & ~(counts & over)), None

    return jax.lax.scan(step, playing, jax.random.split(key, CHUNK))[0]


def look(
    learner: Dial | DQN, parameters: Any, stack: Any, last: Any, seen: Seen, eta: Any, key: Any, epsilon: Any
) -> tuple[Any, Choice]:
    """A choice of evaluation for a group of environments on the host, and its stack of frames with the newest."""
    over = seen.over
    observation, stack = pushed(stack, seen.frame, over)
    last = jnp.where(over, learner.game.noop, last)
    return stack, learner.act(parameters, observation, eta, last, key, epsilon)


class AgentDefault:
    """A trained agent as a `DefaultPolicy`.

    Observations may be as the agent saw them, states by their number, or images with the channels first.
    """

    def __init__(self, agent: Agent, epsilon: float, temperature: float | None) -> None:
        values = agent.q
        self._shape, self._first = agent.learner.game.shape, getattr(agent.learner.game, "first_action", 0)
        self._default = greedy(values, epsilon) if temperature is None else softmax(values, temperature)

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[B]` actions."""
        below = self.probabilities(observations, last_actions).cumsum(axis=1)
        return (rng.random(len(below))[:, None] >= below[:, :-1]).sum(axis=1) + self._first

    def probabilities(self, observations: Any, last_actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """`[B, A]`."""
        seen = np.asarray(observations)
        if seen.ndim == 1 and len(self._shape) == 1:
            seen = np.eye(self._shape[0], dtype=np.float32)[seen]
        if seen.shape[1:] == (self._shape[-1], *self._shape[:-1]) and len(self._shape) == 3:
            seen = np.moveaxis(seen, 1, -1)
        if seen.shape[1:] != self._shape:
            raise ValueError(f"observations are of shape {seen.shape[1:]}, the agent was trained on {self._shape}.")
        return np.asarray(self._default(jnp.asarray(seen), last_actions), dtype=np.float64)


def _first_within(frequency: NDArray[np.float64], wanted: float) -> int:
    """The first of increasing prices whose frequency is at most what is wanted; the last if none is."""
    within = frequency <= wanted
    return int(np.argmax(within)) if within.any() else len(frequency) - 1
