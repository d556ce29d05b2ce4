"""The compiled functions: sampling, the update rules, and the largest entry of each row."""

import itertools

import numba
import numpy as np
import pytest
from tabular_models import KINDS, small

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure
from lazymdp.learn import q_learning
from lazymdp.learn.tabular import kernel
from lazymdp.learn.tabular.kernel_data import make_plan, new_tables
from lazymdp.learn.tabular.q_learning import make_rule
from lazymdp.learn.tabular.sampling import cumulative_bounds, world_of

ETA, ALPHA = 0.15, 0.3


def rule_and_tables(kind, target="q_learning", learn_steps=False, eta=ETA):
    mdp, default_policy = small()
    lazy, structured = kind != "no lazy action", kind == "structured"
    rule = make_rule(
        mdp, default_policy, 0.9, ALPHA, 0.0, lazy=lazy, structured=structured, target=target, learn_steps=learn_steps
    ).with_eta(eta if lazy else 0.0)
    return mdp, rule, new_tables(mdp.absorbing, rule, seed=0)


# -- random numbers ------------------------------------------------------------------------------------------------


def test_uniform_numbers_are_uniform():
    _, _, tables = rule_and_tables("structured")
    numbers = np.array([kernel.uniform(tables.stream) for _ in range(20_000)])
    assert numbers.min() >= 0.0 and numbers.max() < 1.0
    np.testing.assert_allclose(np.histogram(numbers, 10, (0.0, 1.0))[0] / 2_000, 1.0, atol=0.1)
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize("seed", range(5))
def test_sampling_inverts_the_cumulative_distribution(seed):
    rng = np.random.default_rng(seed)
    for count in (2, 3, 4, 17):
        probabilities = (
            rng.dirichlet(np.full(count, 0.3)) * (rng.random(count) < 0.8) + np.eye(count)[rng.integers(count)]
        )
        bounds = cumulative_bounds(probabilities / probabilities.sum(), np.array([0, count]))
        padded = np.concatenate([[0.0, 0.4, 1.0], bounds])  # the row does not start at index 0
        for u in [0.0, *rng.random(200), *np.clip(bounds, 0.0, np.nextafter(1.0, 0.0))]:
            k = kernel.sample(padded, np.uint64(3), np.uint64(count), u)
            assert bounds[k] <= u < bounds[k + 1]
            assert probabilities[k] > 0.0


def test_one_of_the_best_actions_is_drawn_at_random():
    _, rule, tables = rule_and_tables("no lazy action")
    state = np.uint64(0)
    for action, value in enumerate((0.5, 0.1, 0.5)):
        kernel.update(rule, tables, state, np.uint64(action), value)
    choices = [kernel.greedy_choice(rule, tables, state) for _ in range(4_000)]
    np.testing.assert_allclose(np.bincount(choices, minlength=3) / 4_000, [0.5, 0.0, 0.5], atol=0.04)


def test_lazy_choices_execute_the_default_policy_and_epsilon_explores_all_choices():
    mdp, rule, tables = rule_and_tables("structured")
    state = np.uint64(np.flatnonzero(~mdp.absorbing)[0])
    choices, actions = np.array([kernel.choose(rule, tables, state, 0.4) for _ in range(8_000)]).T
    np.testing.assert_allclose(np.bincount(choices) / 8_000, [0.1, 0.1, 0.1, 0.7], atol=0.03)  # a tie is lazy
    executed = np.bincount(actions[choices == 3], minlength=3) / (choices == 3).sum()
    np.testing.assert_allclose(executed, rule.default_policy[state], atol=0.03)
    assert (actions[choices < 3] == choices[choices < 3]).all()


# -- the update rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "target"), [*itertools.product(KINDS, ("q_learning", "sarsa")), ("structured", "default_policy")]
)
def test_every_step_follows_the_equations(kind, target):
    """The equations of the module's docstring, on whole rows, against the compiled functions on random steps."""
    mdp, rule, tables = rule_and_tables(kind, target, learn_steps=True)
    rng, lazy = np.random.default_rng(0), 3
    alive, default_policy = np.flatnonzero(~mdp.absorbing), rule.default_policy
    control, lazy_column, z = np.zeros((5, 3)), np.zeros(5), np.zeros((5, 3))

    def row(state):
        lazy_value = {"structured": default_policy[state] @ control[state] + rule.eta, "augmented": lazy_column[state]}
        return np.append(control[state], -np.inf if kind == "no lazy action" else lazy_value[kind])

    for _ in range(500):
        state, next_state = rng.choice(alive), rng.choice(5)
        choice = rng.integers(int(rule.n_choices))
        action, reward = choice if choice < lazy else rng.integers(3), rng.normal()
        terminated = bool(mdp.absorbing[next_state]) or rng.random() < 0.1
        arguments = (rule, tables, *np.array([state, choice, action], dtype=np.uint64), reward)
        next_row, greedy = row(next_state), tables.greedy[next_state]
        if terminated:
            kernel.learn_step(*arguments, 0.0, 0.0)
            value = steps = 0.0
        else:
            next_choice, _ = kernel.learn_and_choose(*arguments, np.uint64(next_state), 0.3)
            targets = dict(q_learning=next_row.max(), sarsa=next_row[next_choice], default_policy=next_row[-1])
            value = targets[target]
            steps = z[next_state, greedy] if greedy < lazy else None
        if kind == "augmented" and choice == lazy:
            lazy_column[state] += ALPHA * (reward + mdp.gamma * value - lazy_column[state])
        else:
            control[state, action] += ALPHA * (reward - rule.eta + mdp.gamma * value - control[state, action])
        if steps is None:  # the greedy choice is lazy or was drawn among several: not used with Z
            z[state, action] = tables.steps[state, action]
        else:
            z[state, action] += ALPHA * (1.0 + mdp.gamma * steps - z[state, action])
        np.testing.assert_allclose(tables.q[state], row(state), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(tables.steps[state, :3], z[state], rtol=1e-10)
    assert tables.visits.sum() == 500


def test_the_step_size_falls_with_the_visits_of_an_entry():
    _, rule, tables = rule_and_tables("augmented")
    rule = rule._replace(alpha=1.0, alpha_power=1.0).with_eta(0.0)
    state, choice = np.uint64(0), np.uint64(1)
    rewards = np.random.default_rng(0).normal(size=20)
    for reward in rewards:
        kernel.learn_step(rule, tables, state, choice, choice, reward, 0.0, 0.0)
    assert tables.q[0, 1] == pytest.approx(rewards.mean())  # step sizes 1, 1/2, 1/3, ... give the mean


# -- the largest entry of each row ---------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [ETA, 0.0, -0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_entry_of_a_row_is_up_to_date_after_every_update(kind, eta):
    """Values from a small set make for many ties."""
    mdp, rule, tables = rule_and_tables(kind, eta=eta)
    rng = np.random.default_rng(1)
    for _ in range(5_000):
        state = rng.choice(np.flatnonzero(~mdp.absorbing))
        column = rng.integers(4 if kind == "augmented" else 3)
        kernel.update(rule, tables, np.uint64(state), np.uint64(column), float(rng.integers(-2, 3)) / 4.0)
        row, greedy = tables.q[state], int(tables.greedy[state])
        best = row[:3].max()
        assert tables.value[state] == row.max()
        if row[3] >= best:
            assert greedy == 3
        elif greedy > 3:  # one of the best is drawn
            assert (row[:3] == best).any()
        else:
            assert row[greedy] == best and (row[:3] == best).sum() == 1
        if greedy <= 3 and kind != "structured":
            assert np.delete(row, greedy).max() <= tables.rival[state]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", ["grid", "random"])
def test_the_greedy_choice_is_the_one_the_values_say(kind, world):
    """The greedy choice is stored beside the values, and rows are seldom searched."""
    mdp = lz.MDP.from_gymnasium(KeyDoorTreasure(apple=True), 0.99) if world == "grid" else small()[0]
    eta = 0.03 if kind != "no lazy action" else 0.0
    for episodes in (1, 2, 5, 10, 30, 100, 300, 1_000, 3_000):
        options = dict(epsilon=0.3, final_epsilon=0.3, seed=range(8), episodes=episodes, max_steps=200, **KINDS[kind])
        found = q_learning(mdp, eta=eta, **options)
        q, alive = found.q[0], ~mdp.absorbing
        control, first = q[..., : mdp.n_actions].max(axis=-1), q[..., : mdp.n_actions].argmax(axis=-1)
        lazy_value = {"augmented": q[..., -1], "no lazy action": np.full(first.shape, -np.inf)}.get(
            kind, q.mean(axis=-1) + eta
        )
        clear = (np.abs(lazy_value - control) > 1e-12) | (kind == "augmented")  # the mean is rounded in another order
        right = np.where(lazy_value >= control, mdp.n_actions, first)
        np.testing.assert_array_equal(found.action[0][clear & alive], right[clear & alive])


# -- numba ---------------------------------------------------------------------------------------------------------


def test_numba_counts_no_references_in_the_compiled_loop():
    """The private option `_nrt` still has its effect. Without it the loop is 10 times slower."""
    mdp, rule, tables = rule_and_tables("structured")
    fresh = numba.njit(**kernel.OPTIONS | dict(cache=False))(kernel.play.py_func)  # cached code cannot be inspected
    fresh(world_of(mdp), rule, tables, make_plan(3, 10, 0.1, 0.1, 1), (0, 1), np.zeros((1, 3)))
    [code] = fresh.inspect_llvm().values()
    assert "NRT_incref" not in code and "NRT_decref" not in code
