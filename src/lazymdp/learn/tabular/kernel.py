"""The compiled loop of tabular learning: choose, step, learn.

In state `s` the agent makes a choice `c`: one of the `A` actions, which means taking control, or `lazy`. The action
`a` is executed: `a = c`, or `a` drawn from the default policy `pi-bar(.|s)` if the agent is lazy. The environment
returns the reward `r` and the next state `s'`. With the step size `alpha`, the price `eta` and the discount `gamma`:

**Augmented form** (the paper's). The table `Q_+` has `A + 1` columns. The *choice* is updated:

    Q_+(s, c)  +=  alpha (r - eta [c is not lazy] + gamma V(s') - Q_+(s, c))

**Structured form** (Prop. 2). The table `Q` has `A` columns. The *executed action* is updated, whoever chose it, and
the value of being lazy is derived:

    Q(s, a)     +=  alpha (r - eta + gamma V(s') - Q(s, a))
    Q(s, lazy)  =   sum_a pi-bar(a|s) Q(s, a) + eta

**Targets.** `V(s')` is 0 after termination (not after truncation), and otherwise

    Q-learning      V(s') = max_c' Q(s', c')    over the A + 1 choices (operator T of Sec. 4.3)
    SARSA           V(s') = Q(s', c')           for the choice c' that the agent makes next
    default policy  V(s') = Q(s', lazy)         which evaluates the default policy (Sec. 5), at eta = 0

The number of steps to absorption is learned beside `Q` if wanted (Sec. 5), with `a'` greedy in `s'`:

    Z(s, a)  +=  alpha (1 + gamma Z(s', a') - Z(s, a))

**Choices** are epsilon-greedy over all choices. A tie between being lazy and acting is lazy; among control actions with
the same value one is drawn at random.

**Speed.** The largest entry of each row and its column are stored in `Tables.value` and `Tables.greedy`. In the
augmented form, a row is searched only if an update may have changed which entry is the largest (`Tables.rival`). This
makes the loop 1.5 times faster, and so do unsigned indices: numba checks signed ones for negative values. Settings that
decide what is compiled are of type `Flag`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from lazymdp.learn.tabular.kernel_data import Plan, Rule, Tables, World

_F = TypeVar("_F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = dict(cache=True, nogil=True, _nrt=False)
"""Options of numba. With `_nrt=False` it does not count references to arrays: the loop is then 30 times faster.

This option is private, but safe: numba refuses to compile a function that would allocate memory without it. As a later
version may drop the option, pyproject.toml limits the version of numba.
"""

# In numba, the sum of an unsigned and a signed integer is a float, so that constants are unsigned, too.
_ZERO, _ONE = np.uint64(0), np.uint64(1)


def _compiled(inline: bool = False) -> Callable[[_F], _F]:
    return numba.njit(forceinline=inline, **OPTIONS)  # type: ignore[no-any-return, unused-ignore]


@_compiled(inline=True)
def uniform(stream: Any) -> Any:
    """Draws a number from [0, 1) and advances the stream (xoroshiro128+)."""
    a, b = stream[0], stream[1]
    bits = a + b
    b ^= a
    stream[0] = ((a << np.uint64(24)) | (a >> np.uint64(40))) ^ b ^ (b << np.uint64(16))
    stream[1] = (b << np.uint64(37)) | (b >> np.uint64(27))
    return np.float64(bits >> np.uint64(11)) / 2.0**53


@_compiled(inline=True)
def sample(bounds: Any, first: Any, n_outcomes: Any, u: Any) -> Any:
    """Inverts a cumulative distribution: returns the `k` with `bounds[first + k] <= u < bounds[first + k + 1]`.

    Transitions, start states and the default policy are all sampled here.

    Args:
        bounds: Cumulative probabilities of many distributions. `n` outcomes have `n + 1` bounds, from 0 to 1.
        first: Index of the first bound of the distribution.
        n_outcomes: Number of outcomes.
        u: A number from [0, 1).
    """
    # The first guess is right if all outcomes are equally likely: twice as fast as a search from 0.
    k = np.uint64(u * n_outcomes)
    while u < bounds[first + k]:
        k -= _ONE
    while u >= bounds[first + k + _ONE]:
        k += _ONE
    return k


@_compiled(inline=True)
def greedy_choice(rule: Any, tables: Any, state: Any) -> Any:
    """Returns the choice with the largest value, drawn at random if several control actions share it."""
    choice, best = tables.greedy[state], tables.value[state]
    if choice > rule.n_actions:
        ties = 0
        for action in range(rule.n_actions):
            ties += tables.q[state, action] == best
        remaining = np.int64(uniform(tables.stream) * ties)
        for action in range(rule.n_actions):  # without branches: which action is drawn cannot be predicted
            is_best = tables.q[state, action] == best
            choice = action if is_best and remaining == 0 else choice
            remaining -= is_best
    return choice


@_compiled(inline=True)
def choose(rule: Any, tables: Any, state: Any, epsilon: Any) -> Any:
    """Makes an epsilon-greedy choice; returns it and the action to execute."""
    choice = greedy_choice(rule, tables, state)
    if uniform(tables.stream) < epsilon:
        choice = np.uint64(uniform(tables.stream) * rule.n_choices)
    action = choice
    if choice == rule.n_actions:
        row = state * (rule.n_actions + _ONE)
        action = sample(rule.default_bounds, row, rule.n_actions, uniform(tables.stream))
    return choice, action


@_compiled(inline=True)
def step(world: Any, stream: Any, state: Any, action: Any) -> Any:
    """Executes an action in the model; returns the next state and the reward."""
    next_state, n_outcomes = world.next_state[state, action], world.n_outcomes[state, action]
    if n_outcomes > _ONE:
        first = world.first[state, action]
        next_state = world.successors[first + sample(world.bounds, first, n_outcomes, uniform(stream))]
    return next_state, world.rewards[state, action]


@_compiled(inline=True)
def search_row(rule: Any, tables: Any, state: Any) -> None:
    """Searches a row for its largest entry, after deriving the value of being lazy in the structured form."""
    lazy = rule.n_actions
    best, second, mean, greedy = -np.inf, -np.inf, 0.0, lazy
    for action in range(rule.n_actions):  # without branches: which action is best cannot be predicted
        value = tables.q[state, action]
        mean += rule.default_policy[state, action] * value
        greedy = action if value > best else greedy
        second = max(second, min(value, best))
        best = max(value, best)
    if rule.structured is not None:
        tables.q[state, lazy] = mean + rule.eta
    lazy_value = tables.q[state, lazy]
    if lazy_value >= best or rule.evaluates_default:
        tables.value[state], tables.greedy[state], tables.rival[state] = lazy_value, lazy, best
    else:
        tables.value[state], tables.rival[state] = best, max(second, lazy_value)
        tables.greedy[state] = greedy if best > second else lazy + _ONE


@_compiled(inline=True)
def update(rule: Any, tables: Any, state: Any, column: Any, new: Any) -> None:
    """Sets an entry of `Q`, and brings the largest entry of its row up to date."""
    old, best, rival = tables.q[state, column], tables.value[state], tables.rival[state]
    tables.q[state, column] = new
    is_greedy = column == tables.greedy[state]
    same_entry_is_best = min(old, new) > rival if is_greedy else max(old, new) < best
    if same_entry_is_best and rule.structured is None:
        tables.value[state] = new if is_greedy else best
        tables.rival[state] = rival if is_greedy else max(rival, new)
    elif new != old:
        search_row(rule, tables, state)


@_compiled(inline=True)
def learn_step(
    rule: Any, tables: Any, state: Any, choice: Any, action: Any, reward: Any, next_value: Any, next_steps: Any
) -> None:
    """Learns from one step, given V(s') and, if Z is learned, Z(s', a')."""
    column = action if rule.structured is not None else choice
    tables.visits[state, column] += 1
    alpha = rule.alpha
    if rule.alpha_power != 0.0:
        alpha /= tables.visits[state, column] ** rule.alpha_power
    if rule.learn_steps is not None:
        tables.steps[state, action] += alpha * (1.0 + rule.gamma * next_steps - tables.steps[state, action])
    old = tables.q[state, column]
    new = old + alpha * (reward - rule.prices[column] + rule.gamma * next_value - old)
    update(rule, tables, state, column, new)


@_compiled(inline=True)
def learn_and_choose(
    rule: Any, tables: Any, state: Any, choice: Any, action: Any, reward: Any, next_state: Any, epsilon: Any
) -> Any:
    """Learns from one step and makes the next choice, which comes first if it is part of the target (SARSA).

    V(s') is read from the tables. Therefore the step must not have terminated the episode, unless the next state is an
    absorbing state of a model: its values are 0.
    """
    next_steps = 0.0
    if rule.learn_steps is not None:
        next_steps = tables.steps[next_state, greedy_choice(rule, tables, next_state)]
    if rule.sarsa is not None:
        next_choice, next_action = choose(rule, tables, next_state, epsilon)
        learn_step(rule, tables, state, choice, action, reward, tables.q[next_state, next_choice], next_steps)
    else:
        learn_step(rule, tables, state, choice, action, reward, tables.value[next_state], next_steps)
        next_choice, next_action = choose(rule, tables, next_state, epsilon)
    return next_choice, next_action


@_compiled(inline=True)
def episode_epsilon(plan: Any, episode: Any) -> Any:
    """Returns the probability of a random choice in an episode."""
    return max(0.0, plan.epsilon - episode * plan.epsilon_step)


@_compiled()
def play(world: World, rule: Rule, tables: Tables, plan: Plan, points: Any, curves: Any) -> None:
    """Plays the episodes of some points of the curves.

    Args:
        world: The model.
        rule: The settings.
        tables: The state of the run.
        plan: The episodes.
        points: The points to play, as a pair `first, last`; `last` is not included.
        curves: `[P, 3]` sums over the episodes of each point: rewards without prices, steps in control, steps.
    """
    for point in range(points[0], points[1]):
        rewards, controls, steps = 0.0, 0, 0
        for episode in range(plan.edges[point], plan.edges[point + 1]):
            epsilon = episode_epsilon(plan, episode)
            start = sample(world.start_bounds, _ZERO, np.uint64(world.start_states.size), uniform(tables.stream))
            state = world.start_states[start]
            choice, action = choose(rule, tables, state, epsilon)
            left = plan.max_steps
            while left > 0 and not world.absorbing[state]:
                left -= 1
                next_state, reward = step(world, tables.stream, state, action)
                rewards += reward
                controls += choice < rule.n_actions
                choice, action = learn_and_choose(rule, tables, state, choice, action, reward, next_state, epsilon)
                state = next_state
            steps += plan.max_steps - left
        curves[point, 0], curves[point, 1], curves[point, 2] = rewards, controls, steps
