"""PQN: parallel Q(lambda) without replay and without a target network.

Many environments step in parallel, each at the price of its episode. After a rollout of T steps, targets are computed
backward from its last step, and the network is fitted to them. In the structured form, a step trains the output of the
executed action, whether the agent or the default policy chose it:

`y_t = r_t - eta + gamma (1 - terminated_t) [ (1 - lambda) v_{t+1} + lambda (y_{t+1} + eta lazy_{t+1}) ]`

with `v = max(max_a q, q . default + eta)`. `y_{t+1}` is a value of *taking control*, which includes the price. If the
agent was lazy at `t + 1`, this price was not paid and is added back. (In the augmented form, a step trains the output
of the agent's choice, and `y_{t+1}` includes the price only if it was paid.) If the choice at `t + 1` was exploratory,
the trace ends and `v_{t+1}` takes its place (Watkins' Q(lambda)). Otherwise the values would include prices that only
exploration paid. Layer norm keeps learning stable without a target network.

With a range of prices, each step is learned from at `prices_per_step` prices: that of its episode, and others that are
drawn anew for each environment and rollout. A transition does not depend on the price, so the targets above hold for
any price, except that traces also end where the agent would have chosen differently at that price.

Deviations from PQN (Gallici et al., 2024):

1. With a range of prices, the price is an input: its logarithm, the square of the logarithm and 1 go through a layer
   whose outputs are concatenated to the features after the first layer, or after the convolutions.
2. `v` includes the lazy value, and the target includes the term `eta lazy`.
3. Traces end at exploratory choices.
4. Steps at which an episode is truncated are not used for learning.
5. If environments step on the host, the network is fitted to one rollout while the next one is collected with the
   current network, so the environments never wait for updates.
6. On a GPU, a network with convolutions computes in half precision (bfloat16), except for its last layer.
7. One pass over each rollout at a higher learning rate instead of two passes, except on Atari, where there are two. In
   two thirds of the time, one pass learned more in MinAtar's Breakout, less in Asterix up to a price of 0.05, as much
   in Freeway, and in Space Invaders more up to a price of 0.02 and less at 0.05 and 0.1 (1,024 environments, learning
   rate 0.002 instead of 0.0005; `results/minatar/trials.csv`).
8. Other sizes: on MinAtar, an MLP of 256 and 128 units instead of a convolution and one dense layer; 16 minibatches
   instead of 32; on Atari, 512 environments instead of 128, a learning rate that falls to 0, and Dopamine's protocol
   (sticky actions, whole games) instead of no-op starts and episodes that end with the loss of a life.
9. The first choice of a rollout is made by the network as it was before it was fitted to the previous rollout.

Deviations from the paper:

1. Parallel Q(lambda) instead of DQN: no replay, no target network.
2. With a range of prices, one network is trained for all of them; the paper trains one network per price.
3. By default the network has A outputs and the lazy value is derived; the paper's has A + 1 (`form="augmented"`).
4. `v` includes the lazy value, which the paper omits from its operator T (Sec. 4.3).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from lazymdp.learn.deep import prices
from lazymdp.learn.deep.acting import Choice, Group
from lazymdp.learn.deep.backup import FORMS, lazy_value
from lazymdp.learn.deep.compiled_defaults import CompiledDefault
from lazymdp.learn.deep.config import PQNConfig
from lazymdp.learn.deep.host_env import HostEnv, Outcome
from lazymdp.learn.deep.jax_env import JaxEnv
from lazymdp.learn.deep.networks import Parameters, q_network
from lazymdp.learn.deep.prices import Price


class Rollout(NamedTuple):
    """Steps of all environments; fields are `[T, N]`, or `[T + 1, N]` while the outcome of the last choices is open.

    If steps are learned from at K prices, `eta`, `greedy` and `value` are `[T, N, K]` when targets are computed.
    """

    observation: Array  # [T, N, ...]
    eta: Array
    taught: Array  # index of the network output that the step trains
    lazy: Array  # whether the agent chose to be lazy
    greedy: Array  # whether the choice was greedy
    value: Array  # v, the value of the state
    reward: Array  # used for learning, clipped if the settings say so
    terminated: Array
    truncated: Array
    likely: Array | tuple[()]  # [T, N, A] the default policy's probabilities, if several prices are learned from


class Lessons(NamedTuple):
    """A rollout prepared for learning: T * N steps, and G minibatches of B steps; fields are `[T * N]` unless noted."""

    observation: Array  # [T * N, ...]
    eta: Array  # [T * N] or [T * N, K]
    taught: Array
    target: Array  # [T * N] or [T * N, K]
    weight: Array  # 0 where the episode was truncated, otherwise 1
    rows: Array  # [G, B] indices of the steps of each minibatch


class PQNLearner(NamedTuple):
    """The state of PQN."""

    parameters: Parameters
    optimizer: optax.OptState
    rollout: Rollout  # [T + 1, N] being collected
    lessons: Lessons | tuple[()]  # the previous rollout, if the network is fitted to it while this one is collected

    @property
    def agent(self) -> Parameters:
        """The parameters of the trained agent."""
        return self.parameters


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
        self.network = q_network(
            env.shape, n_outputs, config.network, config.hidden, priced=config.is_range, norm=True,
            space=env.space, reward_scale=config.reward_scale,
        )  # fmt: skip
        self.n_prices = config.prices_per_step if config.is_range else 1
        self.gradient_steps = config.epochs * config.minibatches  # per rollout
        # On the host, the network is fitted to a rollout while the next one is collected.
        self.updates_after_steps = self.updates_carry_over = self._overlaps = not isinstance(env, JaxEnv)
        rate = optax.linear_schedule(
            config.learning_rate, config.last_learning_rate, config.iterations * self.gradient_steps
        )
        # Parameters are flattened: one long array takes fewer kernels than many short ones.
        self.optimizer = optax.flatten(optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.radam(rate)))

    def init(self, key: Array, parameters: Parameters | None = None) -> PQNLearner:
        """Returns a new learner, whose network starts from `parameters` if given."""
        parameters = self.network.init(key) if parameters is None else parameters
        size = (self.config.rollout + 1, self.config.n_envs)
        rollout = Rollout(
            jnp.zeros((*size, *self.env.shape), self.env.dtype), jnp.zeros(size), jnp.zeros(size, jnp.int32),
            jnp.zeros(size, bool), jnp.zeros(size, bool), jnp.zeros(size), jnp.zeros(size), jnp.zeros(size, bool),
            jnp.zeros(size, bool), jnp.zeros((*size, self.env.n_actions)) if self.n_prices > 1 else (),
        )  # fmt: skip
        learner = PQNLearner(parameters, self.optimizer.init(parameters), rollout, ())
        if not self._overlaps:
            return learner
        lessons = jax.eval_shape(self.lessons, learner, prices.initial(self.config), key)
        return learner._replace(lessons=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), lessons))

    def acting(self, learner: PQNLearner) -> Parameters:
        """Returns the parameters of the network that chooses."""
        return learner.parameters

    def epsilon(self, steps: Array) -> Array:
        """Returns the probability of a random choice after `steps` agent steps; it is constant during a rollout."""
        config = self.config
        iteration = steps // config.steps_per_iteration
        progress = iteration / (config.exploration_fraction * config.iterations)
        return jnp.maximum(config.final_epsilon, 1.0 - (1.0 - config.final_epsilon) * progress)

    def record(
        self, learner: PQNLearner, group: Group, iteration: Array, slot: Array, outcome: Outcome, reward: Array,
        observation: Array, eta: Array, choice: Choice,
    ) -> PQNLearner:  # fmt: skip
        """Stores the outcome of a group's last choices, and its new choices, at step `slot` of the rollout."""
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
                group.put_row(buffer.likely, slot, choice.likely) if self.n_prices > 1 else (),
            )
        )

    def updates_due(self, iteration: int, slot: int) -> int:
        """Returns the number of gradient steps due after step `slot` of a rollout; they are spread evenly over it."""
        if not self._overlaps or iteration == 0:
            return 0
        return self._made(slot + 1) - self._made(slot)

    def copy_due(self, iteration: int, slot: int) -> bool:
        """Returns False: there is no target network."""
        return False

    def update(
        self, learner: PQNLearner, iteration: Array, slot: Array, price: Price, key: Array, count: int
    ) -> PQNLearner:
        """Makes `count` gradient steps on the previous rollout, after step `slot` of this one."""
        if not isinstance(learner.lessons, Lessons):
            return learner
        parameters, optimizer = learner.parameters, learner.optimizer
        for number in range(count):
            rows = learner.lessons.rows[self._made(slot) + number]
            batch = jax.tree.map(lambda column, rows=rows: column[rows], learner.lessons._replace(rows=()))
            parameters, optimizer = self.descend(parameters, optimizer, batch)
        return learner._replace(parameters=parameters, optimizer=optimizer)

    def end_rollout(self, learner: PQNLearner, iteration: Array, price: Price, key: Array) -> PQNLearner:
        """Learns from a complete rollout, now or during the next one, whose first row is the last row of this one."""
        lessons = self.lessons(learner, price, key)
        rollout = jax.tree.map(lambda buffer: buffer.at[0].set(buffer[-1]), learner.rollout)
        if self._overlaps:
            return learner._replace(rollout=rollout, lessons=lessons)
        batches = jax.tree.map(lambda column: column[lessons.rows], lessons._replace(rows=()))

        def descend(carry: tuple[Parameters, optax.OptState], batch: Lessons) -> tuple[Any, None]:
            return self.descend(*carry, batch), None

        learned = jax.lax.scan(descend, (learner.parameters, learner.optimizer), batches)[0]
        return PQNLearner(learned[0], learned[1], rollout, ())

    def lessons(self, learner: PQNLearner, price: Price, key: Array) -> Lessons:
        """Prepares a rollout `[T + 1, N]` for learning, in a new random order for every epoch."""
        order_key, price_key = jax.random.split(key)
        rollout, played = learner.rollout, learner.rollout
        if self.n_prices > 1:
            others = prices.draw(price, price_key, (self.config.n_envs, self.n_prices - 1))
            rollout = self.at_prices(learner.parameters, played, others)
        steps = jax.tree.map(lambda buffer: buffer[:-1], rollout)
        targets = self.targets(steps, rollout.value[-1])
        count = self.config.steps_per_iteration
        columns = (played.observation[:-1], steps.eta, played.taught[:-1], targets, 1.0 - played.truncated[:-1])
        order = jnp.argsort(jax.random.bits(order_key, (self.config.epochs, count)))
        used = count // self.config.minibatches * self.config.minibatches
        rows = order[:, :used].reshape(self.gradient_steps, -1)
        flat = [column.reshape(count, *column.shape[2:]) for column in columns]
        return Lessons(flat[0], flat[1], flat[2], flat[3], flat[4], rows)

    def at_prices(self, parameters: Parameters, rollout: Rollout, others: Array) -> Rollout:
        """Returns a rollout `[T, N, 1]` without observations, whose prices, values and greedy flags are `[T, N, K]`.

        Args:
            parameters: Parameters of the network.
            rollout: The rollout as it was played, `[T, N]`.
            others: `[N, K - 1]` prices besides that of the episode.
        """
        size = (*rollout.eta.shape, self.n_prices)
        eta = jnp.concatenate([rollout.eta[..., None], jnp.broadcast_to(others, (*size[:2], size[2] - 1))], -1)
        observations = rollout.observation.reshape(-1, *self.env.shape)
        outputs = self.network.apply(parameters, observations, eta.reshape(-1, self.n_prices)).reshape(*size, -1)
        control, lazy = self.form.values(outputs, rollout.likely[..., None, :], eta)  # type: ignore[call-overload]
        best, n_actions = control.max(-1), self.env.n_actions
        greedy = jnp.where(lazy >= best, n_actions, control.argmax(-1))
        chosen = jnp.where(rollout.lazy, n_actions, rollout.taught)[..., None]
        wide = jax.tree.map(lambda buffer: buffer[..., None], rollout._replace(observation=(), likely=()))
        return wide._replace(eta=eta, greedy=chosen == greedy, value=lazy_value(best, lazy))

    def targets(self, steps: Rollout, last_value: Array) -> Array:
        """Returns targets `y` in the shape of the prices, computed backward from the values of the last states."""
        lambda_, gamma = self.config.lambda_, self.config.gamma

        def back(carry: tuple[Array, Array], step: Rollout) -> tuple[tuple[Array, Array], Array]:
            value, trace = carry  # v of the next state, and the value of the choice made there
            paid = self.form.paid(step.eta, step.lazy)
            target = step.reward - paid + gamma * (1.0 - step.terminated) * ((1.0 - lambda_) * value + lambda_ * trace)
            chosen = target + paid - step.eta * (1.0 - step.lazy)  # includes the price only if it was paid
            follows = step.greedy & ~step.truncated
            return (step.value, jnp.where(follows, chosen, step.value)), target

        return jax.lax.scan(back, (last_value, last_value), steps, reverse=True, unroll=True)[1]

    def descend(
        self, parameters: Parameters, optimizer: optax.OptState, batch: Lessons
    ) -> tuple[Parameters, optax.OptState]:
        """Makes a gradient step on a minibatch."""

        def loss(parameters: Parameters) -> Array:
            outputs = self.network.apply(parameters, batch.observation, batch.eta)
            # Multiply by one-hot rows, because the gradient of indexing is a scatter, which is slower.
            taught = jax.nn.one_hot(batch.taught, outputs.shape[-1])
            found = jnp.einsum("b...c,bc->b...", outputs, taught)
            error = jnp.square((found - batch.target) / self.config.reward_scale)
            return 0.5 * (batch.weight * error.reshape(len(error), -1).mean(-1)).mean()

        change, optimizer = self.optimizer.update(jax.grad(loss)(parameters), optimizer, parameters)
        return optax.apply_updates(parameters, change), optimizer

    def _made(self, slot: Array | int) -> Array | int:
        """Returns the number of gradient steps made before step `slot` of a rollout."""
        return (slot - 1) * self.gradient_steps // self.config.rollout
