"""DQN, the paper's deep algorithm: replay, a target network, epsilon-greedy choices.

A replayed step in which the agent chose `c` and the action `a` was executed trains one output of the network. Let `v`
be the value of a state according to the target network: the better of taking control and being lazy. The target is

`y = r - eta + gamma (1 - terminated) v(s')`                       for `q(s, a)`, structured form,
`y = r - eta [c is not lazy] + gamma (1 - terminated) v(s')`       for `q(s, c)`, augmented form (the paper's),

and the loss is `(q - y)^2`, or the Huber loss if `huber` is set. The price enters when a step is replayed, not when it
is stored, so one replay buffer serves every price. With a range of prices, the price is an input of the network, and
each replayed step is learned from at `prices_per_step` prices: 0 and new draws from the range.

Deviations from Dopamine's DQN (JAX, defaults), apart from the price:

1. `n_envs` environments step in parallel. There is still one update per `update_interval` agent steps and one copy to
   the target network per `target_update_interval` agent steps. Those that become due while all environments make a step
   are made after that step, updates first.
2. A tie between being lazy and taking control is lazy; Dopamine takes the first of equal values.
3. A step at which an episode is truncated is excluded: the loss is the mean over the other steps of the batch. (At the
   time limit, only steps that terminate the episode are kept. If the limit is only a few steps, this makes termination
   look too likely. Compiled finite models avoid this.)
4. Choices are made by the network as it was before the updates of the last step. On the host, these updates are
   computed while the environments step. On Atari, the target network chooses (`act_with_target`): with 128 environments
   there are 32 updates between two steps of an environment, where Dopamine makes a quarter of one. With the
   newest network choosing, Frostbite had less than half of the return after ten million frames (one run each).
5. The `minatar` network convolves over height and width. Dopamine's network passes a stack axis of length 1 to its
   two-dimensional convolution and therefore convolves over width and channels. The MinAtar games are those of pgx, with
   minimal action sets.
6. The replay buffer holds a whole number of steps per environment: 999,936 instead of 1,000,000 for 128 environments.
7. Evaluation is greedy by default (`lazymdp evaluate --epsilon 0.001` is Dopamine's protocol). Episodes in progress are
   lost when emulators are replaced or a run on Atari is resumed.
8. On Atari, the trained agent is the average of the networks that chose over about the last 5% of the steps
   (`average_share`), because a single network can play far worse than those before and after it. Training does not
   depend on it.

Deviations from the paper:

1. The paper says "Dopamine's defaults" without a version. We use the defaults of its JAX agent: Adam and the squared
   error. The older TensorFlow agent uses RMSProp and the Huber loss.
2. About warm restarts, the paper says only that they start from pretrained weights. Here the target network also
   starts from them; the replay buffer, the optimizer and exploration start from scratch.
3. If the pretrained network has no lazy output, one is added. It starts as the mean of the other outputs plus the
   price, which is its value under a uniform default policy, even if the default policy is not uniform.
4. The structured form, control budgets, a range of prices and `n_envs` above 1 are not in the paper.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from lazymdp.learn.deep import prices, replay
from lazymdp.learn.deep.acting import Choice, Group
from lazymdp.learn.deep.backup import FORMS, lazy_value
from lazymdp.learn.deep.compiled_defaults import CompiledDefault
from lazymdp.learn.deep.config import DQNConfig
from lazymdp.learn.deep.host_env import HostEnv, Outcome
from lazymdp.learn.deep.jax_env import JaxEnv
from lazymdp.learn.deep.networks import Parameters, q_network
from lazymdp.learn.deep.prices import Price
from lazymdp.learn.deep.replay import Batch, Replay


class DQNLearner(NamedTuple):
    """The state of DQN."""

    parameters: Parameters
    target: Parameters  # parameters of the target network
    optimizer: optax.OptState
    replay: Replay
    average: Parameters | tuple[()]  # mean of the parameters that chose, if the settings ask for it

    @property
    def agent(self) -> Parameters:
        """The parameters of the trained agent: the average if there is one, otherwise the newest network's."""
        return self.average or self.parameters


class DQN:
    """The algorithm as pure functions of arrays.

    Args:
        env: Environment, compiled or on the host.
        config: Settings.
        default_policy: Default policy, compiled.
        steps: Agent steps of the whole run, including its extensions; a larger replay buffer would never be full. By
            default, the buffer has the size that the settings say.
    """

    updates_after_steps, updates_carry_over = True, False

    def __init__(
        self, env: JaxEnv | HostEnv, config: DQNConfig, default_policy: CompiledDefault, steps: int | None = None
    ) -> None:
        self.env, self.config, self.default_policy, self.steps = env, config, default_policy, steps
        self.form = FORMS[config.form]
        n_outputs = env.n_actions + self.form.extra_outputs
        self.network = q_network(
            env.shape, n_outputs, config.network, config.hidden, priced=config.is_range, norm=config.layer_norm,
            space=env.space, reward_scale=config.reward_scale,
        )  # fmt: skip
        self.optimizer = self._optimizer()
        self.replay_rows = config.buffer_size // config.n_envs
        if self.replay_rows <= env.n_frames:
            least = (env.n_frames + 1) * config.n_envs
            raise ValueError(
                f"buffer_size is {config.buffer_size}, expected at least {least}: room for two observations of "
                f"{env.n_frames} frames in each of {config.n_envs} environments."
            )
        if steps is not None:  # room for the first observations and for the frames before the oldest ones
            self.replay_rows = min(self.replay_rows, steps // config.n_envs + 1 + env.n_frames)

    def init(self, key: Array, parameters: Parameters | None = None) -> DQNLearner:
        """Returns a new learner, whose network starts from `parameters` if given."""
        first = self.network.init(key) if parameters is None else parameters
        parameters, target = jax.tree.map(jnp.copy, (first, first))
        buffer = replay.empty(self.replay_rows, self.config.n_envs, self.env.frame_shape, self.env.dtype)
        average = jax.tree.map(jnp.copy, first) if self.config.average_share else ()
        return DQNLearner(parameters, target, self.optimizer.init(parameters), buffer, average)

    def acting(self, learner: DQNLearner) -> Parameters:
        """Returns the parameters of the network that chooses: the newest, or the target network's."""
        return learner.target if self.config.act_with_target else learner.parameters

    def epsilon(self, steps: Array) -> Array:
        """Returns the probability of a random choice: 1 until learning starts, then falling linearly."""
        config = self.config
        span = config.exploration_fraction * config.total_steps
        left = jnp.clip((config.learning_starts + span - steps) / span, 0.0, 1.0)
        return config.final_epsilon + (1.0 - config.final_epsilon) * left

    def record(
        self, learner: DQNLearner, group: Group, iteration: Array, slot: Array, outcome: Outcome, reward: Array,
        observation: Array, eta: Array, choice: Choice,
    ) -> DQNLearner:  # fmt: skip
        """Stores the outcome of a group's last choices, and its new choices, at step `slot` of an iteration."""
        time = iteration * self.config.rollout + slot
        return learner._replace(replay=replay.record(learner.replay, group, time, outcome, reward, choice))

    def updates_due(self, iteration: Array | int, slot: Array | int) -> Array | int:
        """Returns the number of updates due after step `slot` of an iteration; slots start at 1."""
        now = (iteration * self.config.rollout + slot) * self.config.n_envs
        return self._updates_until(now) - self._updates_until(now - self.config.n_envs)

    def copy_due(self, iteration: Array | int, slot: Array | int) -> Array | bool:
        """Returns whether the target network is due to be copied after step `slot` of an iteration."""
        now, period = (iteration * self.config.rollout + slot) * self.config.n_envs, self.config.target_update_interval
        return now // period > (now - self.config.n_envs) // period

    def update(
        self, learner: DQNLearner, iteration: Array, slot: Array, price: Price, key: Array, count: Array | int
    ) -> DQNLearner:
        """Makes `count` updates after step `slot`, then copies the target network if that is due."""
        time = iteration * self.config.rollout + slot
        shares = prices.learned_shares(price, self.config) if self.config.is_range else None

        def step(number: Array, carry: tuple[Parameters, optax.OptState]) -> tuple[Parameters, optax.OptState]:
            parameters, optimizer = carry
            sample_key, price_key = jax.random.split(jax.random.fold_in(key, number))
            batch = replay.sample(learner.replay, time + 1, self.config.batch_size, self.env.n_frames, sample_key)
            eta = prices.relabel(price, self.config, price_key)
            gradient = jax.grad(self.loss)(parameters, learner.target, batch, eta, shares)
            change, optimizer = self.optimizer.update(gradient, optimizer, parameters)
            return optax.apply_updates(parameters, change), optimizer

        parameters, optimizer = jax.lax.fori_loop(0, count, step, (learner.parameters, learner.optimizer))
        copy = self.copy_due(iteration, slot)
        # `lax.cond` would make a GPU wait for the host.
        target = jax.tree.map(lambda new, old: jnp.where(copy, new, old), parameters, learner.target)
        return learner._replace(parameters=parameters, target=target, optimizer=optimizer)

    def without_updates(self) -> DQN:
        """Returns the same algorithm without its updates: it acts and records steps, but does not learn."""
        return _ActingOnly(self.env, self.config, self.default_policy, self.steps)

    def end_rollout(self, learner: DQNLearner, iteration: Array, price: Price, key: Array) -> DQNLearner:
        """Adds the network that chooses to the average, if there is one; there is nothing left to learn."""
        if not self.config.average_share:
            return learner
        weight = 1.0 / jnp.maximum(1.0, self.config.average_share * (iteration + 1.0))
        chose = self.acting(learner)
        average = jax.tree.map(lambda old, new: old + weight * (new - old), learner.average, chose)
        return learner._replace(average=average)

    def loss(
        self, parameters: Parameters, target: Parameters, batch: Batch, eta: Array, shares: Array | None = None
    ) -> Array:
        """Returns the mean loss of the trained outputs, in units of the reward scale.

        Args:
            parameters: Parameters of the network.
            target: Parameters of the target network.
            batch: B replayed steps.
            eta: `[B]` prices, or `[B, K]` if each step is learned from at K prices.
            shares: `[K]` weights of the K prices, which add up to 1.
        """
        outputs = self.network.apply(parameters, batch.observation, eta)
        taught = jnp.broadcast_to(_like(batch.taught, eta), eta.shape)
        found = jnp.take_along_axis(outputs, taught[..., None], -1)[..., 0]
        error = (found - self.targets(target, batch, eta)) / self.config.reward_scale
        loss = optax.losses.huber_loss(error) if self.config.huber else jnp.square(error)
        loss = loss if shares is None else loss @ shares
        return (batch.weight * loss).sum() / jnp.maximum(1.0, batch.weight.sum())

    def targets(self, target: Parameters, batch: Batch, eta: Array) -> Array:
        """Returns the targets `y`, computed with the target network, in the shape of the prices."""
        # `taught` can be A, lazy, only in the augmented form, which does not use the default policy's probabilities.
        executed, lazy = jnp.minimum(batch.taught, self.env.n_actions - 1), batch.taught == self.env.n_actions
        outputs = self.network.apply(target, batch.next_observation, eta)
        likely = self.default_policy(batch.next_observation, executed)
        likely = likely.reshape(likely.shape[0], *[1] * (eta.ndim - 1), -1)
        control, idle = self.form.values(outputs, likely, eta)
        reward, discount = _like(batch.reward, eta), _like(self.config.gamma * (1.0 - batch.terminated), eta)
        return reward - self.form.paid(eta, _like(lazy, eta)) + discount * lazy_value(control.max(-1), idle)

    def _optimizer(self) -> optax.GradientTransformation:
        """Returns Adam, with clipped gradients and a falling step size if the settings say so."""
        config = self.config
        rate: float | optax.Schedule = config.learning_rate
        if config.final_learning_rate is not None:
            updates = int(self._updates_until(config.total_steps))
            fall = max(1, round(config.decay_fraction * updates))
            rate = optax.linear_schedule(rate, config.last_learning_rate, fall, updates - fall)
        adam = optax.adam(rate, eps=config.adam_epsilon)
        if config.max_grad_norm is None:
            return adam
        return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), adam)

    def _updates_until(self, steps: Array | int) -> Array | int:
        """Returns the number of updates due in the first `steps` agent steps."""
        interval, first = self.config.update_interval, self.config.learning_starts
        return (steps > first) * (steps // interval - first // interval)


class _ActingOnly(DQN):
    """DQN without updates."""

    updates_after_steps = False

    def updates_due(self, iteration: Array | int, slot: Array | int) -> Array | int:
        """Returns 0."""
        return 0

    def copy_due(self, iteration: Array | int, slot: Array | int) -> Array | bool:
        """Returns False."""
        return False

    def end_rollout(self, learner: DQNLearner, iteration: Array, price: Price, key: Array) -> DQNLearner:
        """Leaves the average as it is."""
        return learner


def _like(numbers: Array, eta: Array) -> Array:
    """Returns `[B]` numbers in a shape that broadcasts to that of `[B]` or `[B, K]` prices."""
    return numbers.reshape(-1, *[1] * (eta.ndim - 1))
