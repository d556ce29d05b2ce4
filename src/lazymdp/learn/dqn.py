"""DQN at one price, the paper's deep learner: replay, a target network, epsilon-greedy choices.

The network sees the observation alone. A step in which the choice `c` executed the action `a` teaches one output,

`y = r - eta [c is not lazy] + gamma (1 - ended) max_c' q_target(s', c')`                for `q(s, c)`, A + 1 outputs,
`y = r - eta + gamma (1 - ended) max( max_a' q_target(s', a'), q_target(s', .) . default + eta )`  for `q(s, a)`, A,

the first being the paper's, the second (`structured`) the one backup of `lazymdp.learn.backup`. The loss is
`(q - y)^2`. Prices are put in when a step is learned from, not when it is remembered, so that a price may change under
way. With a `control_budget` it does: after each iteration

`eta <- eta exp( step (share - budget) )`

with the share of control among the choices that were greedy, since exploration is not what is to be steered. This is
dual ascent on `log eta`, which asks for no scale of rewards. Where control jumps at a price, as in any finite model, it
is the mean over time that meets the budget, while the price swings about the jump.

Remembered are observations, not pairs of them: what follows a step is the next one of the same environment. So the
newest step is not yet of use, and a step at which an episode was cut never is.

Deviations from Dopamine's DQN (jax, defaults), apart from the price:

1. `n_envs` environments step side by side. Updates and target copies stay one per `update_period` and `target_period`
   agent steps; those that fall within a step of all environments are made after it, updates first.
2. A tie of lazy and control is lazy; Dopamine takes the first of equal values.
3. A step at which an episode was cut off counts nothing: its batch is the mean of the others.
4. Frames are not stacked here: a game has to show all that is needed.
5. The `minatar` network convolves over height and width; Dopamine's, given a stack axis of 1 to its 2-d convolution,
   over width and channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lazymdp.learn.backup import lazy_backup
from lazymdp.learn.choices import Choice, choose
from lazymdp.learn.dial import Episodes, uniform
from lazymdp.learn.games import Game
from lazymdp.learn.networks import Layer, q_network
from lazymdp.learn.settings import DQNConfig, check_dqn_settings

SMALLEST_PRICE = 1e-4
"""What a budget steers the price down to and no further, so that it finds its way back."""


class Replay(NamedTuple):
    """The last T steps of N environments, `[T, N]` each, a ring: step `t` is in row `t % T`. Without T: one step."""

    observation: Any  # [T, N, ...]
    column: Any  # of the network's output that the step teaches
    reward: Any  # as learned from
    ended: Any
    cut: Any  # a new episode began though this one could have gone on


class Batch(NamedTuple):
    """Remembered steps to learn from, `[B]` each."""

    observation: Any  # [B, ...]
    column: Any
    reward: Any
    ended: Any
    after: Any  # [B, ...] observation of the step after
    weight: Any  # 0 where it is not known what came after


class DQNLearner(NamedTuple):
    """Everything a run is, so that a run can be put down and picked up again."""

    parameters: Any
    target: Any  # parameters of the target network
    optimiser: Any
    replay: Replay
    eta: Any  # the price now
    game: Any  # states of the environments [N]
    running: Any  # [N, 3] return, steps and controls of the episodes under way
    key: Any
    iteration: Any


class DQN:
    """The learner: pure functions of arrays, for `jax.jit` and `jax.vmap`.

    Args:
        game: A compiled game.
        config: Settings.
        default: `observations [N, ...] -> probabilities [N, A]`; uniform if not given.
    """

    def __init__(self, game: Game, config: DQNConfig, default: Callable[[Any], Any] | None = None) -> None:
        check_dqn_settings(config)
        self.game, self.config = game, config
        self.default = default or uniform(game.n_actions)
        self.network = q_network(game.shape, game.n_actions + (not config.structured), config.network, config.hidden)
        self.optimiser = optax.adam(config.learning_rate, eps=config.adam_epsilon)
        self.rows = config.capacity // config.n_envs

    def init(self, key: Any, parameters: Any = None, eta: Any = None) -> DQNLearner:
        """A new run.

        Args:
            key: Random key.
            parameters: To start from (see `warm_start`); new ones if not given.
            eta: Price in place of the config's, so that runs that differ in it can be one program.
        """
        config = self.config
        key, network_key, game_key = jax.random.split(key, 3)
        if parameters is None:
            parameters = self.network.init(network_key)
        parameters, target = jax.tree.map(jnp.copy, (parameters, parameters))
        states = jax.vmap(self.game.init)(jax.random.split(game_key, config.n_envs))
        seen = jax.vmap(self.game.observe)(states)
        blank = jnp.zeros((self.rows, config.n_envs))
        column, flag = blank.astype(jnp.int32), blank.astype(bool)
        replay = Replay(jnp.zeros((self.rows, *seen.shape), seen.dtype), column, blank, flag, jnp.copy(flag))
        price = jnp.asarray(config.eta if eta is None else eta, dtype=jnp.float32)
        running = jnp.zeros((config.n_envs, 3))
        optimiser = self.optimiser.init(parameters)
        return DQNLearner(parameters, target, optimiser, replay, price, states, running, key, jnp.int32(0))

    def iterate(self, learner: DQNLearner) -> tuple[DQNLearner, Episodes]:
        """`rollout` steps of all environments, with the updates that fall into them."""
        config, n_envs = self.config, self.config.n_envs
        eta = jnp.broadcast_to(learner.eta, n_envs)

        def step(carry: Any, now: Any) -> tuple[Any, tuple[Choice, Episodes]]:
            parameters, target, optimiser, replay, states, running, key = carry
            key, choice_key, step_key, update_key = jax.random.split(key, 4)
            before, after = now * n_envs, (now + 1) * n_envs  # agent steps

            observation = jax.vmap(self.game.observe)(states)
            choice = self.act(parameters, observation, eta, choice_key, self.epsilon(before))
            keys = jax.random.split(step_key, n_envs)
            states, reward, ended, cut = jax.vmap(self.game.step)(states, choice.executed, keys)
            learned = jnp.clip(reward, -1.0, 1.0) if config.clip_rewards else reward
            replay = self.remember(replay, now, Replay(observation, choice.column, learned, ended, cut))

            def update(count: Any, carry: Any) -> Any:
                parameters, optimiser = carry
                batch = self.sample(replay, now + 1, jax.random.fold_in(update_key, count))
                gradient = jax.grad(self.loss)(parameters, target, batch, learner.eta)
                change, optimiser = self.optimiser.update(gradient, optimiser, parameters)
                return optax.apply_updates(parameters, change), optimiser

            due = self.updates(after) - self.updates(before)
            parameters, optimiser = jax.lax.fori_loop(0, due, update, (parameters, optimiser))
            copy = after // config.target_period > before // config.target_period
            target = jax.lax.cond(copy, lambda: parameters, lambda: target)

            running = running + jnp.stack([reward, jnp.ones(n_envs), 1.0 - choice.lazy], -1)
            over = ended | cut
            episodes = Episodes(over, eta, running[:, 0], running[:, 1], running[:, 2])
            carry = (parameters, target, optimiser, replay, states, running * ~over[:, None], key)
            return carry, (choice, episodes)

        parameters, target, optimiser, replay, price, states, running, key, iteration = learner
        times = iteration * config.rollout + jnp.arange(config.rollout)
        carry = (parameters, target, optimiser, replay, states, running, key)
        carry, (choices, episodes) = jax.lax.scan(step, carry, times)
        parameters, target, optimiser, replay, states, running, key = carry
        price = self.steer(price, choices, (iteration + 1) * config.rollout * n_envs)
        return DQNLearner(parameters, target, optimiser, replay, price, states, running, key, iteration + 1), episodes

    def epsilon(self, steps: Any) -> Any:
        """Share of random choices after so many agent steps."""
        config = self.config
        left = jnp.clip((config.min_replay + config.epsilon_decay - steps) / config.epsilon_decay, 0.0, 1.0)
        return config.final_epsilon + (1.0 - config.final_epsilon) * left

    def updates(self, steps: Any) -> Any:
        """Updates to have been made after so many agent steps."""
        period, first = self.config.update_period, self.config.min_replay
        return jnp.maximum(steps, first) // period - first // period

    def act(self, parameters: Any, observation: Any, eta: Any, key: Any, epsilon: Any) -> Choice:
        """Epsilon-greedy over the A + 1 choices, for `[N, ...]` observations at `[N]` prices."""
        q = self.network.apply(parameters, observation, eta)
        return choose(q, self.default(observation), eta, key, epsilon)

    def remember(self, replay: Replay, now: Any, step: Replay) -> Replay:
        """Writes the step of time `now` over the oldest."""
        return jax.tree.map(lambda ring, new: ring.at[now % self.rows].set(new), replay, step)

    def sample(self, replay: Replay, made: Any, key: Any) -> Batch:
        """Draws evenly from all steps remembered but the newest, of `made` so far, at least 2."""
        low, high = jnp.array([[1], [0]]), jnp.stack([jnp.minimum(made, self.rows), self.config.n_envs])
        age, env = jax.random.randint(key, (2, self.config.batch), low, high[:, None])
        time = made - 1 - age
        row = time % self.rows
        column, reward, ended, cut = (ring[row, env] for ring in replay[1:])
        return Batch(self.seen(replay, time, env), column, reward, ended, self.seen(replay, time + 1, env), ~cut)

    def seen(self, replay: Replay, time: Any, env: Any) -> Any:
        """`[B, ...]` what the environments showed at these times; a stack of frames would be put together here."""
        return replay.observation[time % self.rows, env]

    def loss(self, parameters: Any, target: Any, batch: Batch, eta: Any) -> Any:
        """Mean squared error of the values of what was done, without 1/2."""
        q = self.network.apply(parameters, batch.observation, eta)
        found = jnp.take_along_axis(q, batch.column[:, None], -1)[:, 0]
        error = batch.weight * jnp.square(found - self.targets(target, batch, eta))
        return error.sum() / jnp.maximum(1.0, batch.weight.sum())

    def targets(self, target: Any, batch: Batch, eta: Any) -> Any:
        """`[B]` the targets `y`, by the target network."""
        q, discount = self.network.apply(target, batch.after, eta), self.config.gamma * (1.0 - batch.ended)
        if self.config.structured:
            return lazy_backup(q, self.default(batch.after), batch.reward, discount, eta)
        paid = eta * (batch.column < self.game.n_actions)
        return batch.reward - paid + discount * q.max(-1)

    def steer(self, price: Any, choices: Choice, steps: Any) -> Any:
        """The price for the next iteration, after so many agent steps, by the `[T, N]` choices of this one."""
        config = self.config
        if config.control_budget is None:
            return price
        share = (choices.greedy & ~choices.lazy).sum() / jnp.maximum(1, choices.greedy.sum())
        pace = config.budget_step * config.rollout * config.n_envs / config.target_period
        moved = price * jnp.exp(pace * (share - config.control_budget))
        return jnp.where(steps > config.min_replay, jnp.maximum(SMALLEST_PRICE, moved), price)


def warm_start(parameters: Any, from_outputs: int, to_outputs: int, eta: float = 0.0) -> Any:
    """Parameters to start another network from: with the lazy output added (A to A + 1), or taken away.

    An added one starts as the mean of the others plus `eta`, which is what being lazy is worth if the default is
    uniform (Prop. 2). The choices are then those of the structured form at this price. Where the others come from a
    plain DQN, they lack the price of the first step; so does the lazy one, and the choices are the same.

    Args:
        parameters: Of `q_network`.
        from_outputs: Outputs of the network they are of.
        to_outputs: Outputs of the one to be started.
        eta: Price.
    """
    *inner, head = parameters
    if head.bias.shape != (from_outputs,):
        raise ValueError(f"the network has {head.bias.shape[0]} outputs, not {from_outputs}.")
    if to_outputs == from_outputs - 1:
        head = Layer(head.kernel[:, :-1], head.bias[:-1])
    elif to_outputs == from_outputs + 1:
        kernel, bias = head.kernel.mean(1, keepdims=True), head.bias.mean(keepdims=True) + eta
        head = Layer(jnp.concatenate([head.kernel, kernel], 1), jnp.concatenate([head.bias, bias]))
    elif to_outputs != from_outputs:
        raise ValueError(f"from {from_outputs} to {to_outputs} outputs: expected one more, one less or as many.")
    return (*inner, head)
