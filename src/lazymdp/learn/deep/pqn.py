"""PQN: parallel Q(lambda) without replay and without a target network.

Many environments step side by side, each at the price of its episode. After a rollout of T steps the network is fitted
to targets computed along it from its end. In the structured form the executed action is taught, whoever chose it:

`y_t = r_t - eta + gamma (1 - terminated_t) [ (1 - lambda) v_{t+1} + lambda (y_{t+1} + eta lazy_{t+1}) ]`

with `v = max(max_a q, q . default + eta)`. `y_{t+1}` is a value of *taking control*: where the agent was lazy at
`t + 1` the price it contains was not paid and is added back. (In the augmented form the choice is taught, and `y_{t+1}`
contains the price only if it was paid.) Where the choice at `t + 1` was exploratory, the trace ends and `v_{t+1}`
stands for what follows (Watkins' Q(lambda)): otherwise every price paid for exploring would be learned as if the greedy
agent had to pay it. Layer norm keeps learning stable without a target network.

Deviations from PQN (Gallici et al., 2024):

1. With a range of prices, the price is an input: its logarithm, the square of that and 1 go through a layer that joins
   the features after the first layer, or after the convolutions.
2. The lazy value in `v`, and the term `eta lazy`.
3. Traces end at exploratory choices.
4. Steps at which an episode was truncated are not learned from.
5. Where environments step on the host, the network is fitted to a rollout while the next one is collected with the
   network as it is at that moment: the environments never wait.
6. On a GPU, a network with convolutions computes in half precision, except for its last layer.
7. One pass over a rollout at a higher learning rate instead of two; two on Atari. In two thirds of the time this
   learned more in MinAtar's Breakout, less in Asterix up to a price of 0.05, as much in Freeway, and in Space Invaders
   more up to 0.02 and less at 0.05 and 0.1 (1,024 environments, learning rate 0.002 instead of 0.0005;
   `results/minatar/trials.csv`).
8. Other sizes: on MinAtar an MLP of 256 and 128 units instead of a convolution and one dense layer; 16 minibatches
   instead of 32; on Atari 512 environments instead of 128, a learning rate that falls to 0, and Dopamine's protocol
   (sticky actions, whole games) instead of no-op starts and episodes that end with a life.
9. The first choice of a rollout is made by the network before its last fit.

Deviations from the paper:

1. Parallel Q(lambda) instead of DQN: no replay, no target network.
2. A range of prices trains one network for all of them; the paper trains one network for each price.
3. A outputs with a derived lazy value; the paper has A + 1 (`form="augmented"`).
4. `v` contains the lazy value, which the paper omits from its operator T (Sec. 4.3).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from lazymdp.learn.deep.acting import Choice, Group, choose
from lazymdp.learn.deep.backup import FORMS
from lazymdp.learn.deep.compiled_defaults import CompiledDefault
from lazymdp.learn.deep.config import PQNConfig
from lazymdp.learn.deep.host_env import HostEnv, Outcome
from lazymdp.learn.deep.jax_env import JaxEnv
from lazymdp.learn.deep.networks import Parameters, q_network
from lazymdp.learn.deep.prices import Price


class Rollout(NamedTuple):
    """Steps of all environments, `[T, N]` each, or `[T + 1, N]` with choices whose outcome is still unknown."""

    observation: Array  # [T, N, ...]
    eta: Array
    taught: Array  # network output that the step teaches
    lazy: Array  # whether the choice was to be lazy
    greedy: Array  # whether the choice was the greedy one
    value: Array  # v, value of the state
    reward: Array  # as learned from
    terminated: Array
    truncated: Array


class Lessons(NamedTuple):
    """A rollout prepared for learning: `[T * N]` steps, and the rows of each gradient step."""

    observation: Array  # [T * N, ...]
    eta: Array
    taught: Array
    target: Array
    weight: Array  # 0 where the episode was truncated
    rows: Array  # [G, B]


class PQNLearner(NamedTuple):
    """What PQN has learned and collected."""

    parameters: Parameters
    optimizer: optax.OptState
    rollout: Rollout  # [T + 1, N] under way
    lessons: Lessons | tuple[()]  # the rollout before, if it is learned from while the next one is collected


class PQN:
    """The algorithm as pure functions of arrays.

    Args:
        env: Environment, compiled or on the host.
        config: Settings.
        default_policy: Default policy, compiled.
    """

    def __init__(self, env: JaxEnv | HostEnv, config: PQNConfig, default_policy: CompiledDefault) -> None:
        self.env, self.config, self.default_policy = env, config, default_policy
        self.form = FORMS[config.form]
        n_outputs = env.n_actions + self.form.extra_outputs
        self.network = q_network(env.shape, n_outputs, config.network, config.hidden, priced=config.is_range, norm=True)
        self.gradient_steps = config.epochs * config.minibatches  # per rollout
        # On the host, the network learns from a rollout while the next one is collected.
        self.updates_after_steps = self.updates_carry_over = self._overlaps = not isinstance(env, JaxEnv)
        rate = optax.linear_schedule(
            config.learning_rate, config.final_learning_rate, config.iterations * self.gradient_steps
        )
        # Flattened: one long array takes fewer kernels than many short ones.
        self.optimizer = optax.flatten(optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.radam(rate)))

    def init(self, key: Array, parameters: Parameters | None = None) -> PQNLearner:
        """A learner that has seen nothing; it starts from `parameters` if given."""
        parameters = self.network.init(key) if parameters is None else parameters
        size = (self.config.rollout + 1, self.config.n_envs)
        rollout = Rollout(
            jnp.zeros((*size, *self.env.shape), self.env.dtype), jnp.zeros(size), jnp.zeros(size, jnp.int32),
            jnp.zeros(size, bool), jnp.zeros(size, bool), jnp.zeros(size), jnp.zeros(size), jnp.zeros(size, bool),
            jnp.zeros(size, bool),
        )  # fmt: skip
        lessons = jax.eval_shape(self.lessons, rollout, key) if self._overlaps else ()
        lessons = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), lessons)
        return PQNLearner(parameters, self.optimizer.init(parameters), rollout, lessons)

    def epsilon(self, steps: Array) -> Array:
        """Probability of a random choice after so many agent steps, constant during a rollout."""
        config = self.config
        iteration = steps // config.steps_per_iteration
        progress = iteration / (config.exploration_fraction * config.iterations)
        return jnp.maximum(config.final_epsilon, 1.0 - (1.0 - config.final_epsilon) * progress)

    def act(
        self, parameters: Parameters, observation: Array, eta: Array, last_action: Array, uniform: Array, epsilon: Array
    ) -> Choice:
        """Epsilon-greedy choices for `[M, ...]` observations at `[M]` prices."""
        outputs = self.network.apply(parameters, observation, eta)
        return choose(outputs, self.default_policy(observation, last_action), eta, uniform, epsilon, self.form)

    def record(
        self, learner: PQNLearner, group: Group, iteration: Array, slot: Array, outcome: Outcome, reward: Array,
        observation: Array, eta: Array, choice: Choice,
    ) -> PQNLearner:  # fmt: skip
        """Stores what came of a group's last choices and its new ones, at step `slot` of the rollout."""
        buffer, before = learner.rollout, slot - 1
        return learner._replace(
            rollout=Rollout(
                group.put_row(buffer.observation, slot, observation),
                group.put_row(buffer.eta, slot, eta),
                group.put_row(buffer.taught, slot, choice.taught),
                group.put_row(buffer.lazy, slot, choice.lazy),
                group.put_row(buffer.greedy, slot, choice.greedy),
                group.put_row(buffer.value, slot, choice.value),
                group.put_row(buffer.reward, before, reward),
                group.put_row(buffer.terminated, before, outcome.terminated),
                group.put_row(buffer.truncated, before, outcome.truncated | outcome.lost),
            )
        )

    def updates_due(self, iteration: int, slot: int) -> int:
        """Number of gradient steps due after step `slot` of a rollout, from 1, so that they are spread over it."""
        if not self._overlaps or iteration == 0:
            return 0
        return self._made(slot + 1) - self._made(slot)

    def copy_due(self, iteration: int, slot: int) -> bool:
        """False: there is no target network."""
        return False

    def update(
        self, learner: PQNLearner, iteration: Array, slot: Array, price: Price, key: Array, count: int
    ) -> PQNLearner:
        """Makes `count` gradient steps on the rollout before this one, after step `slot`."""
        if not isinstance(learner.lessons, Lessons):
            return learner
        parameters, optimizer = learner.parameters, learner.optimizer
        for number in range(count):
            rows = learner.lessons.rows[self._made(slot) + number]
            batch = jax.tree.map(lambda column, rows=rows: column[rows], learner.lessons._replace(rows=()))
            parameters, optimizer = self.descend(parameters, optimizer, batch)
        return learner._replace(parameters=parameters, optimizer=optimizer)

    def end_rollout(self, learner: PQNLearner, iteration: Array, key: Array) -> PQNLearner:
        """Learns from a complete rollout, now or while the next one is collected; its last row begins the next one."""
        lessons = self.lessons(learner.rollout, key)
        rollout = jax.tree.map(lambda buffer: buffer.at[0].set(buffer[-1]), learner.rollout)
        if self._overlaps:
            return learner._replace(rollout=rollout, lessons=lessons)
        batches = jax.tree.map(lambda column: column[lessons.rows], lessons._replace(rows=()))

        def descend(carry: tuple[Parameters, optax.OptState], batch: Lessons) -> tuple[Any, None]:
            return self.descend(*carry, batch), None

        learned = jax.lax.scan(descend, (learner.parameters, learner.optimizer), batches)[0]
        return PQNLearner(learned[0], learned[1], rollout, ())

    def lessons(self, rollout: Rollout, key: Array) -> Lessons:
        """Prepares a rollout `[T + 1, N]` for learning, in an order drawn afresh for every epoch."""
        steps = jax.tree.map(lambda buffer: buffer[:-1], rollout)
        targets = self.targets(steps, rollout.value[-1])
        count = targets.size
        columns = (steps.observation, steps.eta, steps.taught, targets, 1.0 - steps.truncated)
        order = jnp.argsort(jax.random.bits(key, (self.config.epochs, count)))
        used = count // self.config.minibatches * self.config.minibatches
        rows = order[:, :used].reshape(self.gradient_steps, -1)
        flat = [column.reshape(count, *column.shape[2:]) for column in columns]
        return Lessons(flat[0], flat[1], flat[2], flat[3], flat[4], rows)

    def targets(self, steps: Rollout, last_value: Array) -> Array:
        """`[T, N]` targets `y` of a rollout `[T, N]`, computed from its end, where the value is `last_value [N]`."""
        lambda_, gamma = self.config.lambda_, self.config.gamma

        def back(carry: tuple[Array, Array], step: Rollout) -> tuple[tuple[Array, Array], Array]:
            value, trace = carry  # v of the next state, and the value of what was chosen there
            paid = self.form.paid(step.eta, step.lazy)
            target = step.reward - paid + gamma * (1.0 - step.terminated) * ((1.0 - lambda_) * value + lambda_ * trace)
            chosen = target + paid - step.eta * (1.0 - step.lazy)  # with the price that was in fact paid
            follows = step.greedy & ~step.truncated
            return (step.value, jnp.where(follows, chosen, step.value)), target

        return jax.lax.scan(back, (last_value, last_value), steps, reverse=True, unroll=True)[1]

    def descend(
        self, parameters: Parameters, optimizer: optax.OptState, batch: Lessons
    ) -> tuple[Parameters, optax.OptState]:
        """Makes a gradient step on a minibatch."""

        def loss(parameters: Parameters) -> Array:
            outputs = self.network.apply(parameters, batch.observation, batch.eta)
            # A product with one-hot rows: the gradient of indexing would be a scatter, which is slower.
            found = (outputs * jax.nn.one_hot(batch.taught, outputs.shape[-1])).sum(-1)
            return 0.5 * (batch.weight * jnp.square(found - batch.target)).mean()

        change, optimizer = self.optimizer.update(jax.grad(loss)(parameters), optimizer, parameters)
        return optax.apply_updates(parameters, change), optimizer

    def _made(self, slot: Array | int) -> Array | int:
        """Number of gradient steps made before step `slot` of a rollout."""
        return (slot - 1) * self.gradient_steps // self.config.rollout
