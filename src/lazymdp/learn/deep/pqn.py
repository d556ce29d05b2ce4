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

Deviations from PQN (Gallici et al., 2024):

1. The price is an input: its logarithm, the square of that and 1 go through a layer that joins the features after the
   first layer, or after the convolutions.
2. The lazy value in `v`, and the term `eta lazy`.
3. Traces end where a choice was made to explore.
4. Steps after which an episode was cut off, though it could have gone on, are not learned from.
5. Where environments step on the host, the network is fitted to a rollout while the next one is made, by the network as
   it is just then: the environments do not wait.
6. A network with convolutions computes in half precision on a GPU, but for its last layer.
7. One pass over a rollout at a higher learning rate, not two; two on Atari. In two thirds of the time that learned
   more in MinAtar's Breakout, less in Asterix up to a price of 0.05, as much in Freeway, and in Space Invaders more up
   to 0.02 and less at 0.05 and 0.1 (1,024 environments, learning rate 0.002, not 0.0005; `results/minatar/trials.csv`).
8. Other sizes: on MinAtar an MLP of 256 and 128, with equinox's initial weights, in place of a convolution and one
   dense layer; 16 minibatches, not 32; on Atari 512 environments, not 128, a learning rate that falls to 0, and
   Dopamine's protocol (sticky actions, whole games) in place of no-op starts and episodes that end with a life.

Deviations from the paper:

1. One network for all prices; the paper trains one for each. A range that is a single price is a specialist.
2. Parallel Q(lambda) in place of DQN: no replay, no target network.
3. A outputs and the lazy value derived; the paper has A + 1 (`structured=False`).
4. `v` holds the lazy value, which the paper leaves out of its operator T (Sec. 4.3).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lazymdp.learn.deep.acting import Choice, choose
from lazymdp.learn.deep.actors import Actors, Episodes, Extremes, new_actors, no_extremes, settled, told, widened
from lazymdp.learn.deep.compiled_defaults import Default, uniform
from lazymdp.learn.deep.config import DialConfig, check_settings
from lazymdp.learn.deep.groups import Group, empty_stack, pushed
from lazymdp.learn.deep.host_env import Host, Seen
from lazymdp.learn.deep.jax_env import Game, compiled, restarted
from lazymdp.learn.deep.networks import dial_network


class Learner(NamedTuple):
    """Everything a run is, so that a run can be put down and picked up again."""

    parameters: Any
    optimiser: Any
    prices: Any  # [3] smallest and largest price that is drawn, share of episodes at price 0
    game: Any  # states of the environments [N]
    actors: Actors
    extremes: Extremes
    key: Any
    iteration: Any


class Step(NamedTuple):
    """One step of all environments, `[N]` each; stacked, a rollout `[T, N]`."""

    observation: Any  # [N, ...]
    eta: Any
    choice: Choice
    reward: Any
    ended: Any
    cut: Any  # a new episode began though this one could have gone on


class Lessons(NamedTuple):
    """A rollout as it is learned from: `[T * N]` steps in no order that matters, and the rows of each gradient step."""

    observation: Any  # [T * N, ...]
    eta: Any
    column: Any
    target: Any
    weight: Any  # 0 where what followed is not known
    rows: Any  # [G, B]


class HostLearner(NamedTuple):
    """Everything a run is whose environments step on the host, but for these."""

    parameters: Any
    optimiser: Any
    prices: Any
    actors: Actors
    stack: Any  # [N, ..., S] the last frames, where there are several to an observation, else ()
    rollout: Step  # [T + 1, N] under way; what came of the last choices is not known yet
    lessons: Lessons  # the rollout before
    extremes: Extremes
    key: Any
    iteration: Any


class Dial:
    """The learner: pure functions of arrays, for `jax.jit` and `jax.vmap`.

    Args:
        game: A compiled game, or environments on the host.
        config: Settings.
        default: `(observations [N, ...], last actions [N]) -> probabilities [N, A]`; uniform if not given.
    """

    def __init__(self, game: Game | Host, config: DialConfig, default: Default | None = None) -> None:
        check_settings(config)
        self.game, self.config = game, config
        self.default = default or uniform(game.n_actions)
        n_outputs = game.n_actions + (not config.structured)
        self.network = dial_network(game.shape, n_outputs, config.network, config.hidden)
        self.gradient_steps = config.epochs * config.minibatches
        rate = optax.linear_schedule(
            config.learning_rate, config.final_learning_rate, config.iterations * self.gradient_steps
        )
        # Flattened: one long array instead of many short ones takes fewer kernels.
        self.optimiser = optax.flatten(
            optax.chain(optax.clip_by_global_norm(config.largest_gradient), optax.radam(rate))
        )

    # -- a compiled game ---------------------------------------------------------------------------------------------

    def init(self, key: Any, prices: Any = None) -> Learner:
        """A new run; `prices` in place of the config's, so that runs that differ in them can be one program."""
        game = compiled(self.game)
        key, network_key, game_key, eta_key = jax.random.split(key, 4)
        parameters = self.network.init(network_key)
        states = jax.vmap(game.init)(jax.random.split(game_key, self.config.n_envs))
        prices = self._prices() if prices is None else prices
        actors = self._actors(eta_key, prices)
        optimiser = self.optimiser.init(parameters)
        return Learner(parameters, optimiser, prices, states, actors, no_extremes(), key, jnp.int32(0))

    def iterate(self, learner: Learner) -> tuple[Learner, Episodes]:
        """One rollout of the compiled game, and its fit."""
        game, epsilon = compiled(self.game), self.epsilon(learner.iteration)
        shape = (self.config.rollout, self.config.n_envs)

        # All that is random in the rollout is drawn at once: fewer kernels than step by step.
        key, choice_key, eta_key, move_key, start_key, fit_key = jax.random.split(learner.key, 6)
        uniforms = jax.random.uniform(choice_key, (shape[0], 3, shape[1]))
        etas = self.draw_eta(eta_key, learner.prices, shape)
        move_keys, start_keys = jax.random.split(move_key, shape), jax.random.split(start_key, shape)
        starts = jax.vmap(jax.vmap(game.init))(start_keys)

        def step(carry: Any, drawn: Any) -> tuple[Any, tuple[Step, Any]]:
            states, actors = carry
            uniform, new_eta, keys, starts = drawn
            observation = jax.vmap(game.observe)(states)
            choice = self.act(learner.parameters, observation, actors.eta, actors.last, uniform, epsilon)
            states, reward, ended, cut = jax.vmap(game.move)(states, choice.executed, keys)
            made, over = Step(observation, actors.eta, choice, self.learned(reward), ended, cut), ended | cut
            actors = actors._replace(last=choice.executed)
            actors, running = settled(actors, choice.lazy, reward, over, new_eta, game.noop)
            return (jax.vmap(restarted)(over, starts, states), actors), (made, running)

        carry, drawn = (learner.game, learner.actors), (uniforms, etas, move_keys, starts)
        (states, actors), (steps, running) = jax.lax.scan(step, carry, drawn, unroll=2)  # 2 % faster on a GPU
        episodes = Episodes(steps.ended | steps.cut, steps.eta, *jnp.moveaxis(running, -1, 0))
        last = jax.vmap(game.observe)(states)
        value = self.act(learner.parameters, last, actors.eta, actors.last, jnp.zeros((3, shape[1])), 0.0).value
        lessons = self.lessons(steps, value, fit_key)
        parts = [column[lessons.rows] for column in lessons[:-1]]

        def descend(carry: Any, batch: Any) -> tuple[Any, None]:
            return self.descend(*carry, *batch), None

        parameters, optimiser = jax.lax.scan(descend, (learner.parameters, learner.optimiser), parts)[0]
        largest = self.widened(learner, steps)
        after = Learner(parameters, optimiser, learner.prices, states, actors, largest, key, learner.iteration + 1)
        return after, episodes

    # -- environments on the host ------------------------------------------------------------------------------------
    #
    # While they step, the network is fitted to the rollout before: an iteration is a `turn` of every group for every
    # step with a `learn` after some of them, then `close`.

    def init_host(self, key: Any, host: Host) -> HostLearner:
        """A new run."""
        config = self.config
        key, network_key, eta_key = jax.random.split(key, 3)
        parameters, prices = self.network.init(network_key), self._prices()
        actors = self._actors(eta_key, prices)
        slots, count = (config.rollout + 1, config.n_envs), config.rollout * config.n_envs
        number, flag, whole = jnp.zeros(slots), jnp.zeros(slots, bool), jnp.zeros(slots, jnp.int32)
        choice = Choice(whole, whole, flag, flag, number)
        rollout = Step(jnp.zeros((*slots, *host.shape), host.dtype), number, choice, number, flag, flag)
        rows = jnp.zeros((self.gradient_steps, count // config.minibatches), jnp.int32)
        flat, columns = jnp.zeros(count), jnp.zeros(count, jnp.int32)
        lessons = Lessons(jnp.zeros((count, *host.shape), host.dtype), flat, columns, flat, flat, rows)
        stack = empty_stack(host, config.n_envs)
        optimiser = self.optimiser.init(parameters)
        largest = no_extremes()
        made = HostLearner(parameters, optimiser, prices, actors, stack, rollout, lessons, largest, key, jnp.int32(0))
        return jax.tree.map(jnp.copy, made)  # each array in a place of its own, so that it can be given away

    def turn(self, learner: HostLearner, seen: Seen, begin: Any, slot: Any) -> tuple[HostLearner, Any]:
        """Notes what came of a group's last choices and makes the next, as step `slot` of the rollout.

        Args:
            learner: The run.
            seen: Of the group.
            begin: Its first environment.
            slot: From 1; 0 where a run begins.

        Returns:
            The run, and `told` the actions to execute and the episodes that are over.
        """
        group = Group(begin, seen.reward.shape[0])
        key, choice_key, eta_key = jax.random.split(learner.key, 3)
        over = seen.over
        actors, stack = group.part(learner.actors), group.part(learner.stack)
        lazy = group.part(learner.rollout.choice.lazy[slot - 1])
        new_eta = self.draw_eta(eta_key, learner.prices, over.shape)
        eta = actors.eta
        actors, running = settled(actors, lazy, seen.reward, over, new_eta, self.game.noop)
        episodes = Episodes(over & ~seen.lost, eta, *running.T)
        observation, stack = pushed(stack, seen.frame, over)
        epsilon = self.epsilon(learner.iteration)
        uniform = jax.random.uniform(choice_key, (3, group.size))
        choice = self.act(learner.parameters, observation, actors.eta, actors.last, uniform, epsilon)
        actors = actors._replace(last=choice.executed)

        def put(ring: Any, new: Any) -> Any:
            return jax.tree.map(lambda x, y: group.put_row(x, y, slot), ring, new)

        def put_before(ring: Any, new: Any) -> Any:
            return group.put_row(ring, new, slot - 1)

        ring = learner.rollout
        rollout = Step(
            put(ring.observation, observation), put(ring.eta, actors.eta), put(ring.choice, choice),
            put_before(ring.reward, self.learned(seen.reward)), put_before(ring.ended, seen.ended),
            put_before(ring.cut, seen.cut | seen.lost),
        )  # fmt: skip
        actors, stack = group.put(learner.actors, actors), group.put(learner.stack, stack)
        learner = learner._replace(actors=actors, stack=stack, rollout=rollout, key=key)
        return learner, told(choice.executed, episodes)

    def due(self, iteration: int, slot: int, has_lessons: bool) -> int | None:
        """Gradient steps after step `slot` of a rollout, from 1, so that all are spread over it; None if none."""
        due = slot * self.gradient_steps // self.config.rollout - self._made(slot)
        return due if due and has_lessons else None

    def learn(self, learner: HostLearner, slot: Any, due: int) -> HostLearner:
        """`due` gradient steps on the rollout before, after step `slot` of this one."""
        *columns, rows = learner.lessons
        parameters, optimiser = learner.parameters, learner.optimiser
        for count in range(due):
            batch = (column[rows[self._made(slot) + count]] for column in columns)
            parameters, optimiser = self.descend(parameters, optimiser, *batch)
        return learner._replace(parameters=parameters, optimiser=optimiser)

    def close(self, learner: HostLearner) -> HostLearner:
        """Makes lessons of a rollout that is complete; its last slot is the first of the next."""
        key, order_key = jax.random.split(learner.key)
        steps = jax.tree.map(lambda ring: ring[:-1], learner.rollout)
        lessons = self.lessons(steps, learner.rollout.choice.value[-1], order_key)
        rollout = jax.tree.map(lambda ring: ring.at[0].set(ring[-1]), learner.rollout)
        largest, after = self.widened(learner, steps), learner.iteration + 1
        return learner._replace(rollout=rollout, lessons=lessons, extremes=largest, key=key, iteration=after)

    # -- the parts ---------------------------------------------------------------------------------------------------

    def epsilon(self, iteration: Any) -> Any:
        """Share of random choices in a rollout."""
        config = self.config
        progress = iteration / (config.exploration * config.iterations)
        return jnp.maximum(config.final_epsilon, 1.0 - (1.0 - config.final_epsilon) * progress)

    def draw_eta(self, key: Any, prices: Any, shape: tuple[int, ...]) -> Any:
        """Prices: 0 now and then, else even in their logarithm."""
        low, high, free_share = prices
        free, place = jax.random.uniform(key, (2, *shape))
        return jnp.where(free < free_share, 0.0, low * jnp.exp(place * jnp.log(high / low)))

    def act(self, parameters: Any, observation: Any, eta: Any, last: Any, uniform: Any, epsilon: Any) -> Choice:
        """Epsilon-greedy over the A + 1 choices: see `choose`; `last` are the `[N]` actions executed last."""
        q = self.network.apply(parameters, observation, eta)
        return choose(q, self.default(observation, last), eta, uniform, epsilon)

    def learned(self, reward: Any) -> Any:
        """Rewards as they are learned from."""
        return jnp.clip(reward, -1.0, 1.0) if self.config.clip_rewards else reward

    def widened(self, learner: Learner | HostLearner, steps: Step) -> Extremes:
        """The extremes, with those of a rollout."""
        first = learner.iteration == 0
        return widened(learner.extremes, steps.reward, learner.prices[1], steps.choice.value, first)

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

    def lessons(self, steps: Step, last_value: Any, key: Any) -> Lessons:
        """A rollout `[T, N]` as it is learned from, in an order drawn anew for every epoch."""
        config = self.config
        targets = self.targets(steps, last_value)
        count = targets.size
        columns = (steps.observation, steps.eta, steps.choice.column, targets, 1.0 - steps.cut)
        observation, eta, column, target, weight = (x.reshape((count, *x.shape[2:])) for x in columns)
        order = jnp.argsort(jax.random.bits(key, (config.epochs, count)))
        used = count // config.minibatches * config.minibatches
        rows = order[:, :used].reshape(self.gradient_steps, -1)
        return Lessons(observation, eta, column, target, weight, rows)

    def descend(
        self, parameters: Any, state: Any, observation: Any, eta: Any, column: Any, target: Any, weight: Any
    ) -> tuple[Any, Any]:
        """A gradient step."""

        def loss(parameters: Any) -> Any:
            q = self.network.apply(parameters, observation, eta)
            found = (q * jax.nn.one_hot(column, q.shape[-1])).sum(-1)  # a gather's gradient would be a scatter: slower
            return 0.5 * (weight * jnp.square(found - target)).mean()

        updates, state = self.optimiser.update(jax.grad(loss)(parameters), state, parameters)
        return optax.apply_updates(parameters, updates), state

    def _made(self, slot: Any) -> Any:
        """Gradient steps before step `slot`."""
        return (slot - 1) * self.gradient_steps // self.config.rollout

    def _prices(self) -> Any:
        return jnp.array([self.config.eta_low, self.config.eta_high, self.config.free_share])

    def _actors(self, key: Any, prices: Any) -> Actors:
        return new_actors(self.draw_eta(key, prices, (self.config.n_envs,)), self.game.noop)
