"""The dial: one network for every price, by parallel Q(lambda) without replay and without a target network.

Many environments step side by side, each with a price of its own, drawn anew at the start of every episode. The network
sees the observation and the price and has A outputs, the values of taking control; what being lazy is worth follows,
`q . default + eta`. The executed action teaches its value whoever chose it:

`y_t = r_t - eta + gamma (1 - done_t) [ (1 - lambda) v_{t+1} + lambda (y_{t+1} + eta lazy_{t+1}) ]`

with `v = max(max_a q, q . default + eta)`. `y_{t+1}` is a value of *taking control*: where the agent was lazy at
`t + 1` the price in it was not paid, and is added back. Where the choice at `t + 1` was made to explore, the trace ends
and `v_{t+1}` stands for what comes after (Watkins' Q(lambda)): else every price paid for exploring would be learned as
if the greedy agent had to pay it. After a rollout the network is fitted to these targets for a few epochs; layer norm
keeps that stable. A range that is a single price gives a specialist. With `structured=False` the network has A + 1
outputs and only the choice made is updated, as in the paper.

Deviations from PQN (Gallici et al., 2024): 1. the price is an input; 2. the lazy value and the term `eta lazy`;
3. traces end at exploratory choices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lazymdp.learn.choices import Choice, choose
from lazymdp.learn.games import Game
from lazymdp.learn.networks import dial_network
from lazymdp.learn.settings import DialConfig


class Learner(NamedTuple):
    """Everything a run is, so that a run can be put down and picked up again."""

    parameters: Any
    optimiser: Any
    prices: Any  # [3] smallest and largest price that is drawn, share of episodes at price 0
    game: Any  # states of the environments [N]
    eta: Any  # [N]
    running: Any  # [N, 3] return, steps and controls of the episodes under way
    key: Any
    iteration: Any


class Episodes(NamedTuple):
    """The episodes that ended in a rollout, `[T, N]` each, with `ended` 0 elsewhere."""

    ended: Any
    eta: Any
    score: Any  # return, price excluded
    steps: Any
    controls: Any


class Step(NamedTuple):
    """One step of all environments, `[N]` each; stacked, a rollout `[T, N]`."""

    observation: Any  # [N, ...]
    eta: Any
    choice: Choice
    reward: Any
    ended: Any
    cut: Any  # a new episode began though this one could have gone on


class Dial:
    """The learner: pure functions of arrays, for `jax.jit` and `jax.vmap`.

    Args:
        game: A compiled game.
        config: Settings.
        default: `observations [N, ...] -> probabilities [N, A]`; uniform if not given.
    """

    def __init__(self, game: Game, config: DialConfig, default: Callable[[Any], Any] | None = None) -> None:
        self.game, self.config = game, config
        self.default = default or uniform(game.n_actions)
        self.network = dial_network(game.shape, game.n_actions + (not config.structured), config.hidden)
        gradient_steps = config.iterations * config.epochs * config.minibatches
        rate = optax.linear_schedule(config.learning_rate, config.final_learning_rate, gradient_steps)
        # Flattened: one long array instead of many short ones takes fewer kernels.
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(config.largest_gradient), optax.flatten(optax.radam(rate))
        )

    def init(self, key: Any, prices: Any = None) -> Learner:
        """A new run; `prices` in place of the config's, so that runs that differ in them can be one program."""
        config = self.config
        if prices is None:
            prices = jnp.array([config.eta_low, config.eta_high, config.free_share])
        key, network_key, game_key, eta_key = jax.random.split(key, 4)
        parameters = self.network.init(network_key)
        states = jax.vmap(self.game.init)(jax.random.split(game_key, config.n_envs))
        eta, running = self.draw_eta(eta_key, prices), jnp.zeros((config.n_envs, 3))
        return Learner(parameters, self.optimiser.init(parameters), prices, states, eta, running, key, jnp.int32(0))

    def iterate(self, learner: Learner) -> tuple[Learner, Episodes]:
        """One rollout of the compiled game, and its fit."""
        config, n_envs = self.config, self.config.n_envs
        progress = learner.iteration / (config.exploration * config.iterations)
        epsilon = jnp.maximum(config.final_epsilon, 1.0 - (1.0 - config.final_epsilon) * progress)

        def step(carry: Any, _: Any) -> tuple[Any, tuple[Step, Episodes]]:
            states, eta, running, key = carry
            key, choice_key, step_key, eta_key = jax.random.split(key, 4)
            observation = jax.vmap(self.game.observe)(states)
            choice = self.act(learner.parameters, observation, eta, choice_key, epsilon)
            keys = jax.random.split(step_key, n_envs)
            states, reward, ended, cut = jax.vmap(self.game.step)(states, choice.executed, keys)
            running = running + jnp.stack([reward, jnp.ones(n_envs), 1.0 - choice.lazy], -1)
            over = ended | cut
            episodes = Episodes(over, eta, running[:, 0], running[:, 1], running[:, 2])
            made = Step(observation, eta, choice, reward, ended, cut)
            eta = jnp.where(over, self.draw_eta(eta_key, learner.prices), eta)
            return (states, eta, running * ~over[:, None], key), (made, episodes)

        carry = (learner.game, learner.eta, learner.running, learner.key)
        (states, eta, running, key), (steps, episodes) = jax.lax.scan(step, carry, None, config.rollout)
        key, fit_key = jax.random.split(key)
        last = jax.vmap(self.game.observe)(states)
        parameters, optimiser = self.fit(learner.parameters, learner.optimiser, steps, last, eta, fit_key)
        after = Learner(parameters, optimiser, learner.prices, states, eta, running, key, learner.iteration + 1)
        return after, episodes

    def draw_eta(self, key: Any, prices: Any) -> Any:
        """`[N]` prices: 0 now and then, else even in their logarithm."""
        low, high, free_share = prices
        free, place = jax.random.uniform(key, (2, self.config.n_envs))
        return jnp.where(free < free_share, 0.0, low * jnp.exp(place * jnp.log(high / low)))

    def act(self, parameters: Any, observation: Any, eta: Any, key: Any, epsilon: Any) -> Choice:
        """Epsilon-greedy over the A + 1 choices, for `[N, ...]` observations at `[N]` prices."""
        q = self.network.apply(parameters, observation, eta)
        return choose(q, self.default(observation), eta, key, epsilon)

    def targets(self, steps: Step, last_value: Any) -> Any:
        """`[T, N]` the targets `y`, from the last step to the first."""
        structured, trace = self.config.structured, self.config.trace

        def back(carry: Any, step: Step) -> tuple[Any, Any]:
            value, ahead = carry  # v of the step after, and what was found to come of it
            paid = step.eta if structured else step.eta * (1.0 - step.choice.lazy)
            mixed = (1.0 - trace) * value + trace * ahead
            target = step.reward - paid + self.config.gamma * (1.0 - step.ended) * mixed
            worth = target + step.eta * step.choice.lazy if structured else target
            known = step.choice.greedy & ~step.cut
            return (step.choice.value, jnp.where(known, worth, step.choice.value)), target

        return jax.lax.scan(back, (last_value, last_value), steps, reverse=True, unroll=True)[1]

    def fit(self, parameters: Any, state: Any, steps: Step, last: Any, last_eta: Any, key: Any) -> tuple[Any, Any]:
        """Some epochs of gradient steps on a rollout, each on a part of it."""
        config = self.config
        targets = self.targets(steps, self.act(parameters, last, last_eta, key, 0.0).value)
        count = targets.size
        columns = (steps.observation, steps.eta, steps.choice.column, targets, 1.0 - steps.cut)
        flat = [x.reshape((count, *x.shape[2:])) for x in columns]

        def loss(parameters: Any, observation: Any, eta: Any, column: Any, target: Any, weight: Any) -> Any:
            q = self.network.apply(parameters, observation, eta)
            found = jnp.take_along_axis(q, column[:, None], -1)[:, 0]
            return 0.5 * (weight * jnp.square(found - target)).mean()  # what follows a cut is not known: weight 0

        def descend(carry: Any, rows: Any) -> tuple[Any, None]:
            parameters, state = carry
            gradient = jax.grad(loss)(parameters, *rows)
            updates, state = self.optimiser.update(gradient, state, parameters)
            return (optax.apply_updates(parameters, updates), state), None

        order = jax.vmap(lambda k: jax.random.permutation(k, count))(jax.random.split(key, config.epochs))
        used = count // config.minibatches * config.minibatches
        rows = order[:, :used].reshape(config.epochs * config.minibatches, -1)
        parts = [x[rows] for x in flat]
        return jax.lax.scan(descend, (parameters, state), parts)[0]


def uniform(n_actions: int) -> Callable[[Any], Any]:
    """The default that takes every action equally often, as the learner wants it."""

    def probabilities(observations: Any) -> Any:
        return jnp.full((observations.shape[0], n_actions), 1.0 / n_actions)

    return probabilities
