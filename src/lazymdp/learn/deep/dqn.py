"""DQN at one price, the paper's deep learner: replay, a target network, epsilon-greedy choices.

The network sees the observation alone. A step in which the choice `c` executed the action `a` teaches one output,

`y = r - eta [c is not lazy] + gamma (1 - ended) max_c' q_target(s', c')`                for `q(s, c)`, A + 1 outputs,
`y = r - eta + gamma (1 - ended) max( max_a' q_target(s', a'), q_target(s', .) . default + eta )`  for `q(s, a)`, A,

the first being the paper's, the second (`structured`) the one backup of `lazymdp.learn.deep.backup`. The loss is
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
3. A step at which an episode was cut off counts nothing: its batch is the mean of the others. (Of the last steps before
   a limit only those that end an episode are then learned from: with limits of a few steps, endings count too often.)
4. Where environments step on the host, choices are made by the network as it was before the last step's updates, which
   are made while the environments step.
5. The `minatar` network convolves over height and width; Dopamine's, given a stack axis of 1 to its 2-d convolution,
   over width and channels. MinAtar's games are pgx's, with the actions that do something in a game.
6. The replay holds a whole number of steps of every environment: 999,936 of 1,000,000 for 128.
7. Evaluation is greedy unless told otherwise (`lazymdp evaluate --epsilon 0.001` is Dopamine's), and episodes are lost
   where emulators are replaced or a run on Atari is picked up again.

Deviations from the paper:

1. The paper says "Dopamine's defaults" and not of which version: these are those of its JAX agent, Adam with squared
   error; the older one has RMSProp with Huber's.
2. Of a warm restart the paper tells that it starts from pretrained weights. Here the target network starts from them,
   too; replay, optimiser and exploration begin anew, the latter with random choices only.
3. A lazy output that the pretrained network lacks starts as the mean of the others plus the price: what being lazy is
   worth over a uniform default, whatever the default is.
4. `structured`, `control_budget` and `n_envs` above 1 are not the paper's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lazymdp.learn.deep.acting import Choice, choose
from lazymdp.learn.deep.actors import Actors, Episodes, Extremes, new_actors, no_extremes, settled, told, widened
from lazymdp.learn.deep.backup import lazy_backup
from lazymdp.learn.deep.compiled_defaults import Default, uniform
from lazymdp.learn.deep.config import DQNConfig, check_settings
from lazymdp.learn.deep.groups import Group, empty_stack, pushed
from lazymdp.learn.deep.host_env import Host, Seen
from lazymdp.learn.deep.jax_env import Game, compiled
from lazymdp.learn.deep.networks import q_network

SMALLEST_PRICE = 1e-4
"""What a budget steers the price down to and no further, so that it finds its way back."""
FIRST_PRICE = 0.01
"""Where a budget starts from if no price is given: the price is steered by factors, and 0 would stay 0."""


class Replay(NamedTuple):
    """The last T steps of N environments, `[T, N]` each, a ring: step `t` is in row `t % T`. Without T: one step."""

    observation: Any  # [T, N, ...]
    column: Any  # of the network's output that the step teaches
    reward: Any  # as learned from
    ended: Any
    cut: Any  # a new episode began though this one could have gone on


class HostDQNLearner(NamedTuple):
    """Everything a run is whose environments step on the host, but for these."""

    parameters: Any
    target: Any
    optimiser: Any
    replay: Replay  # of frames; what came of the last choices is not known yet
    eta: Any
    actors: Actors
    stack: Any  # [N, ..., S] the last frames, where there are several to an observation, else ()
    lazy: Any  # [N] the last choices
    greedy: Any  # [2] choices of this iteration that were greedy, and those among them to take control
    extremes: Extremes
    key: Any
    iteration: Any


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
    actors: Actors
    extremes: Extremes
    key: Any
    iteration: Any


class DQN:
    """The learner: pure functions of arrays, for `jax.jit` and `jax.vmap`.

    Args:
        game: A compiled game, or environments on the host.
        config: Settings.
        default: `(observations [N, ...], last actions [N]) -> probabilities [N, A]`; uniform if not given.
    """

    def __init__(self, game: Game | Host, config: DQNConfig, default: Default | None = None) -> None:
        check_settings(config)
        self.game, self.config = game, config
        self.default = default or uniform(game.n_actions)
        self.network = q_network(game.shape, game.n_actions + (not config.structured), config.network, config.hidden)
        self.optimiser = optax.adam(config.learning_rate, eps=config.adam_epsilon)
        self.rows = config.capacity // config.n_envs
        self.stack = getattr(game, "stack", 1)
        if self.rows <= self.stack:
            raise ValueError(f"capacity is {config.capacity}, expected at least {(self.stack + 1) * config.n_envs}.")

    # -- a compiled game ---------------------------------------------------------------------------------------------

    def init(self, key: Any, parameters: Any = None, eta: Any = None) -> DQNLearner:
        """A new run.

        Args:
            key: Random key.
            parameters: To start from (see `warm_start`); new ones if not given.
            eta: Price in place of the config's, so that runs that differ in it can be one program.
        """
        game = compiled(self.game)
        key, network_key, game_key = jax.random.split(key, 3)
        networks = self._networks(network_key, parameters)
        states = jax.vmap(game.init)(jax.random.split(game_key, self.config.n_envs))
        seen = jax.eval_shape(jax.vmap(game.observe), states)
        replay = self._empty(seen.shape[1:], seen.dtype)
        price = jnp.asarray(self.first_price() if eta is None else eta, dtype=jnp.float32)
        return DQNLearner(*networks, replay, price, states, self._actors(price), no_extremes(), key, jnp.int32(0))

    def iterate(self, learner: DQNLearner) -> tuple[DQNLearner, Episodes]:
        """`rollout` steps of all environments, with the updates that fall into them."""
        config, n_envs, game = self.config, self.config.n_envs, compiled(self.game)

        def step(carry: Any, now: Any) -> tuple[Any, tuple[Choice, Episodes, Any]]:
            parameters, target, optimiser, replay, states, actors, key = carry
            key, choice_key, step_key, update_key = jax.random.split(key, 4)
            before, after = now * n_envs, (now + 1) * n_envs  # agent steps

            observation = jax.vmap(game.observe)(states)
            uniform = jax.random.uniform(choice_key, (3, n_envs))
            choice = self.act(parameters, observation, actors.eta, actors.last, uniform, self.epsilon(before))
            keys = jax.random.split(step_key, n_envs)
            states, reward, ended, cut = jax.vmap(game.step)(states, choice.executed, keys)
            made = Replay(observation, choice.column, self.learned(reward), ended, cut)
            replay = self.remember(replay, now, made)

            def update(count: Any, carry: Any) -> Any:
                key = jax.random.fold_in(update_key, count)
                return self.update(carry, target, replay, now + 1, learner.eta, key)

            due = self.updates(after) - self.updates(before)
            parameters, optimiser = jax.lax.fori_loop(0, due, update, (parameters, optimiser))
            target = jax.lax.cond(self.copies(before, after), lambda: parameters, lambda: target)
            actors, over = actors._replace(last=choice.executed), ended | cut
            actors, running = settled(actors, choice.lazy, reward, over, actors.eta, game.noop)
            episodes = Episodes(over, actors.eta, *running.T)
            return (parameters, target, optimiser, replay, states, actors, key), (choice, episodes, made.reward)

        parameters, target, optimiser, replay, price, states, actors, largest, key, iteration = learner
        times = iteration * config.rollout + jnp.arange(config.rollout)
        carry = (parameters, target, optimiser, replay, states, actors, key)
        carry, (choices, episodes, rewards) = jax.lax.scan(step, carry, times)
        parameters, target, optimiser, replay, states, actors, key = carry
        counts = jnp.stack([choices.greedy.sum(), (choices.greedy & ~choices.lazy).sum()])
        price = self.steer(price, counts, (iteration + 1) * config.rollout * n_envs)
        actors = actors._replace(eta=jnp.full_like(actors.eta, price))
        largest = widened(largest, rewards, learner.eta, choices.value, iteration == 0)
        networks = (parameters, target, optimiser)
        return DQNLearner(*networks, replay, price, states, actors, largest, key, iteration + 1), episodes

    # -- environments on the host ------------------------------------------------------------------------------------
    #
    # An iteration is, for every step, a `turn` of every group, then `learn`; at its end, `close`.

    def init_host(self, key: Any, host: Host, parameters: Any = None) -> HostDQNLearner:
        """A new run; `parameters` to start from, new ones if not given."""
        config = self.config
        key, network_key = jax.random.split(key)
        networks = self._networks(network_key, parameters)
        price = jnp.asarray(self.first_price(), dtype=jnp.float32)
        frame = host.shape[:-1] if host.stack > 1 else host.shape
        return HostDQNLearner(
            *networks, self._empty(frame, host.dtype), price, self._actors(price), empty_stack(host, config.n_envs),
            jnp.zeros(config.n_envs, bool), jnp.zeros(2, jnp.int32), no_extremes(), key, jnp.int32(0),
        )  # fmt: skip

    def turn(self, learner: HostDQNLearner, seen: Seen, begin: Any, slot: Any) -> tuple[HostDQNLearner, Any]:
        """Notes what came of a group's last choices and makes the next, at step `slot` of the iteration.

        Args:
            learner: The run.
            seen: Of the group.
            begin: Its first environment.
            slot: From 1; 0 where a run begins.

        Returns:
            The run, and `told` the actions to execute and the episodes that are over.
        """
        group = Group(begin, seen.reward.shape[0])
        now = learner.iteration * self.config.rollout + slot
        key, choice_key = jax.random.split(learner.key)
        over = seen.over
        actors, stack, lazy = group.part((learner.actors, learner.stack, learner.lazy))
        actors, running = settled(actors, lazy, seen.reward, over, actors.eta, self.game.noop)
        episodes = Episodes(over & ~seen.lost, actors.eta, *running.T)
        observation, stack = pushed(stack, seen.frame, over)
        epsilon = self.epsilon(now * self.config.n_envs)
        uniform = jax.random.uniform(choice_key, (3, group.size))
        choice = self.act(learner.parameters, observation, actors.eta, actors.last, uniform, epsilon)
        actors = actors._replace(last=choice.executed)

        before, after, ring = (now - 1) % self.rows, now % self.rows, learner.replay
        replay = Replay(
            group.put_row(ring.observation, seen.frame, after),
            group.put_row(ring.column, choice.column, after),
            group.put_row(ring.reward, self.learned(seen.reward), before),
            group.put_row(ring.ended, seen.ended, before),
            group.put_row(ring.cut, seen.cut | seen.lost, before),
        )
        counts = jnp.stack([choice.greedy.sum(), (choice.greedy & ~choice.lazy).sum()])
        state = (learner.actors, learner.stack, learner.lazy)
        actors, stack, lazy = group.put(state, (actors, stack, choice.lazy))
        reward, first = self.learned(seen.reward), learner.iteration == 0
        largest = widened(learner.extremes, reward, learner.eta, choice.value, first)
        learner = learner._replace(
            replay=replay, actors=actors, stack=stack, lazy=lazy, greedy=learner.greedy + counts, extremes=largest,
            key=key,
        )  # fmt: skip
        return learner, told(choice.executed, episodes)

    def due(self, iteration: int, slot: int, has_lessons: bool) -> int | None:
        """Updates after step `slot` of an iteration, from 1; None if neither an update nor a copy is due."""
        if iteration >= self.config.iterations:
            return None
        now = iteration * self.config.rollout + slot
        before, after = (now - 1) * self.config.n_envs, now * self.config.n_envs
        due = self.updates(after) - self.updates(before)
        return due if due or self.copies(before, after) else None

    def learn(self, learner: HostDQNLearner, slot: Any, due: int) -> HostDQNLearner:
        """`due` updates after all groups' turn at step `slot`, and the target's copy if it is time."""
        config = self.config
        now = learner.iteration * config.rollout + slot
        key, update_key = jax.random.split(learner.key)

        def update(carry: Any, key: Any) -> tuple[Any, None]:
            return self.update(carry, learner.target, learner.replay, now + 1, learner.eta, key), None

        networks, keys = (learner.parameters, learner.optimiser), jax.random.split(update_key, due)
        parameters, optimiser = jax.lax.scan(update, networks, keys)[0]
        copy = self.copies((now - 1) * config.n_envs, now * config.n_envs)
        target = jax.tree.map(lambda new, old: jnp.where(copy, new, old), parameters, learner.target)
        return learner._replace(parameters=parameters, target=target, optimiser=optimiser, key=key)

    def close(self, learner: HostDQNLearner) -> HostDQNLearner:
        """Ends an iteration: the price is steered."""
        iteration = learner.iteration + 1
        price = self.steer(learner.eta, learner.greedy, iteration * self.config.rollout * self.config.n_envs)
        actors = learner.actors._replace(eta=jnp.full_like(learner.actors.eta, price))
        return learner._replace(eta=price, actors=actors, greedy=jnp.zeros_like(learner.greedy), iteration=iteration)

    # -- the parts ---------------------------------------------------------------------------------------------------

    def epsilon(self, steps: Any) -> Any:
        """Share of random choices after so many agent steps."""
        config = self.config
        left = jnp.clip((config.min_replay + config.epsilon_decay - steps) / config.epsilon_decay, 0.0, 1.0)
        return config.final_epsilon + (1.0 - config.final_epsilon) * left

    def updates(self, steps: Any) -> Any:
        """Updates to have been made after so many agent steps."""
        period, first = self.config.update_period, self.config.min_replay
        return (steps > first) * (steps // period - first // period)

    def copies(self, before: Any, after: Any) -> Any:
        """Whether the target network is to be copied between so many agent steps and so many."""
        return after // self.config.target_period > before // self.config.target_period

    def act(self, parameters: Any, observation: Any, eta: Any, last: Any, uniform: Any, epsilon: Any) -> Choice:
        """Epsilon-greedy over the A + 1 choices: see `choose`; `last` are the `[N]` actions executed last."""
        q = self.network.apply(parameters, observation, eta)
        return choose(q, self.default(observation, last), eta, uniform, epsilon)

    def learned(self, reward: Any) -> Any:
        """Rewards as they are learned from."""
        return jnp.clip(reward, -1.0, 1.0) if self.config.clip_rewards else reward

    def update(
        self, network: tuple[Any, Any], target: Any, replay: Replay, made: Any, eta: Any, key: Any
    ) -> tuple[Any, Any]:
        """Parameters and optimiser after a gradient step on remembered steps, of `made` so far."""
        parameters, optimiser = network
        batch = self.sample(replay, made, key)
        gradient = jax.grad(self.loss)(parameters, target, batch, eta)
        change, optimiser = self.optimiser.update(gradient, optimiser, parameters)
        return optax.apply_updates(parameters, change), optimiser

    def remember(self, replay: Replay, now: Any, step: Replay) -> Replay:
        """Writes the step of time `now` over the oldest."""
        return jax.tree.map(lambda ring, new: ring.at[now % self.rows].set(new), replay, step)

    def sample(self, replay: Replay, made: Any, key: Any) -> Batch:
        """Draws evenly from all steps remembered but the newest, of `made` so far, at least 2."""
        oldest = jnp.minimum(made, self.rows - self.stack + 1)  # whose frames are all still there
        low, high = jnp.array([[1], [0]]), jnp.stack([oldest, self.config.n_envs])
        age, env = jax.random.randint(key, (2, self.config.batch), low, high[:, None])
        time = made - 1 - age
        column, reward, ended, cut = (ring[time % self.rows, env] for ring in replay[1:])
        return Batch(self.seen(replay, time, env), column, reward, ended, self.seen(replay, time + 1, env), ~cut)

    def seen(self, replay: Replay, time: Any, env: Any) -> Any:
        """`[B, ...]` what the environments showed at these times; of frames before an episode began nothing is seen."""
        if self.stack == 1:
            return replay.observation[time % self.rows, env]
        frames, known = [], jnp.ones_like(time, dtype=bool)
        for back in range(self.stack):
            row = (time - back) % self.rows
            if back > 0:
                known &= (time >= back) & ~(replay.ended[row, env] | replay.cut[row, env])
            frame = replay.observation[row, env]
            frames.append(frame * known.reshape(-1, *(1 for _ in frame.shape[1:])))
        return jnp.stack(frames[::-1], -1)

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
            probabilities = self.default(batch.after, batch.column)  # what was executed is what the step teaches
            return lazy_backup(q, probabilities, batch.reward, discount, eta)
        paid = eta * (batch.column < self.game.n_actions)
        return batch.reward - paid + discount * q.max(-1)

    def steer(self, price: Any, counts: Any, steps: Any) -> Any:
        """The price for the next iteration, after so many agent steps.

        Args:
            price: Of this one.
            counts: `[2]` its choices that were greedy, and those among them to take control.
            steps: Agent steps so far.
        """
        config = self.config
        if config.control_budget is None:
            return price
        share = counts[1] / jnp.maximum(1, counts[0])
        pace = config.budget_step * config.rollout * config.n_envs / config.target_period
        moved = price * jnp.exp(pace * (share - config.control_budget))
        return jnp.where(steps > config.min_replay, jnp.maximum(SMALLEST_PRICE, moved), price)

    def _networks(self, key: Any, parameters: Any) -> tuple[Any, Any, Any]:
        """Parameters, target's parameters and optimiser at the start."""
        first = self.network.init(key) if parameters is None else parameters
        parameters, target = jax.tree.map(jnp.copy, (first, first))
        return parameters, target, self.optimiser.init(parameters)

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Replay:
        """A replay in which nothing is remembered, for frames of this shape."""
        size = (self.rows, self.config.n_envs)
        whole, flag = jnp.zeros(size, jnp.int32), jnp.zeros(size, bool)
        return Replay(jnp.zeros((*size, *shape), dtype), whole, jnp.zeros(size), flag, jnp.copy(flag))

    def first_price(self) -> float:
        """The price at the start."""
        steered = self.config.control_budget is not None
        return FIRST_PRICE if steered and self.config.eta == 0.0 else self.config.eta

    def _actors(self, price: Any) -> Actors:
        return new_actors(jnp.full(self.config.n_envs, price), self.game.noop)
