"""How agents act: epsilon-greedy choices, the account of episodes, groups of environments, stacks of frames."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from lazymdp.learn.deep.acting import (  # noqa: E402
    Exploration,
    Group,
    add_step,
    choose,
    empty_stack,
    new_actors,
    note_extremes,
    push_frame,
    sample_cdf,
)
from lazymdp.learn.deep.backup import FORMS  # noqa: E402

COUNT = 20_000


def choices(form, eta, epsilon, default=(0.8, 0.2)):
    """Choices of many agents that see the same values, over a default policy that is not uniform."""
    outputs = jnp.tile(jnp.array([0.3, 0.7, 0.45][: 2 + FORMS[form].extra_outputs]), (COUNT, 1))
    uniform = jax.random.uniform(jax.random.key(1), (3, COUNT))
    probabilities = jnp.tile(jnp.array(default), (COUNT, 1))
    made = jax.jit(choose, static_argnames="form")(
        outputs, probabilities, jnp.full(COUNT, eta), uniform, Exploration(epsilon), form=FORMS[form]
    )
    return jax.tree.map(np.asarray, made)


@pytest.mark.parametrize("form", FORMS)
def test_random_choices_are_uniform_and_a_lazy_one_executes_the_default_policy(form):
    choice = choices(form, 0.1, 1.0)
    assert abs(choice.lazy.mean() - 1 / 3) < 0.02 and abs(choice.greedy.mean() - 1 / 3) < 0.02
    assert abs((choice.executed[choice.lazy] == 0).mean() - 0.8) < 0.02
    assert abs((choice.executed[~choice.lazy] == 0).mean() - 0.5) < 0.02
    expected = choice.executed if form == "structured" else np.where(choice.lazy, 2, choice.executed)
    np.testing.assert_array_equal(choice.taught, expected)


@pytest.mark.parametrize("form", FORMS)
def test_greedy_choices_take_the_best_value(form):
    choice = choices(form, 0.1, 0.0)
    assert choice.greedy.all() and not choice.lazy.any() and (choice.executed == 1).all()
    np.testing.assert_allclose(choice.value, 0.7)
    high_price = choices(form, 9.0, 0.0)
    assert form == "augmented" or high_price.lazy.all()
    np.testing.assert_allclose(high_price.value, 0.7 if form == "augmented" else 0.8 * 0.3 + 0.2 * 0.7 + 9.0)


def test_a_tie_is_lazy():
    assert choices("structured", 0.5, 0.0, default=(0.0, 1.0)).lazy.all()
    assert choices("structured", 0.0, 0.0, default=(0.0, 1.0)).lazy.all()  # the mean is the best value, for nothing
    outputs, row = jnp.array([[0.2, 0.5, 0.5], [0.2, 0.5, 0.4999]]), jnp.full((2, 2), 0.5)
    found = choose(outputs, row, jnp.zeros(2), jnp.full((3, 2), 0.5), Exploration(0.0), FORMS["augmented"])
    assert found.lazy.tolist() == [True, False]


@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.0])
def test_random_choices_last_and_their_share_is_epsilon(epsilon, persistence):
    n_envs, steps, n_actions = 2_000, 200, 4
    outputs, probabilities = jnp.zeros((n_envs, n_actions)), jnp.full((n_envs, n_actions), 1 / n_actions)

    def step(carry, key):
        uniform = jax.random.uniform(key, (3, n_envs))
        exploration = Exploration(epsilon, persistence, *carry)
        choice = choose(outputs, probabilities, jnp.zeros(n_envs), uniform, exploration, FORMS["structured"])
        made = jnp.where(choice.lazy, n_actions, choice.executed)
        return (choice.exploring, made), (choice.exploring, made)

    start = (jnp.zeros(n_envs, bool), jnp.zeros(n_envs, int))
    keys = jax.random.split(jax.random.key(0), steps)
    exploring, made = map(np.asarray, jax.lax.scan(step, start, keys)[1])
    assert abs(exploring[steps // 2 :].mean() - epsilon) < 0.1 * epsilon
    again = exploring[:-1] & exploring[1:]  # a repetition, or a new choice that is the same with probability 1/5
    fresh = epsilon * (1.0 - persistence) / (1.0 - epsilon * persistence) * (1.0 - persistence)
    expected = (persistence + fresh / 5) / (persistence + fresh)
    assert abs((made[1:] == made[:-1])[again].mean() - expected) < 0.02


def test_a_distribution_is_sampled_as_it_is_whatever_the_rounding_of_its_end():
    cumulative = jnp.array([0.2, 0.2, 0.9, 0.97])  # the last entry counts as 1
    uniform = jnp.asarray(np.random.default_rng(0).random(50_000), dtype=jnp.float32)
    found = np.bincount(np.asarray(sample_cdf(cumulative, uniform)), minlength=4) / uniform.size
    np.testing.assert_allclose(found, [0.2, 0.0, 0.7, 0.1], atol=0.01)
    assert sample_cdf(cumulative, jnp.array([0.0, 0.2, 0.999])).tolist() == [0, 2, 3]


def test_episodes_are_added_up_and_begin_anew_at_a_new_price():
    actors = new_actors(jnp.array([0.1, 0.2, 0.3]), noop=4)
    assert actors.action.tolist() == [4, 4, 4]
    actors = actors._replace(action=jnp.array([0, 1, 2]), lazy=jnp.array([True, False, False]))
    restarted = jnp.array([False, False, True])
    actors, totals = add_step(actors, jnp.array([1.0, 2.0, 3.0]), restarted, jnp.array([7.0, 8.0, 9.0]), noop=4)
    np.testing.assert_array_equal(totals, [[1, 1, 0], [2, 1, 1], [3, 1, 1]])  # return, steps, controls
    np.testing.assert_array_equal(actors.totals, [[1, 1, 0], [2, 1, 1], [0, 0, 0]])
    np.testing.assert_allclose(actors.eta, [0.1, 0.2, 9.0])
    assert actors.action.tolist() == [0, 1, 4]
    actors, totals = add_step(actors, jnp.ones(3), ~restarted, jnp.zeros(3), noop=4)
    np.testing.assert_array_equal(totals, [[2, 2, 0], [3, 2, 2], [1, 1, 1]])


def test_the_largest_rewards_and_values_are_noted():
    actors = new_actors(jnp.array([0.5, 0.0]), noop=0)
    actors = note_extremes(actors, jnp.array([-2.0, 1.0]), jnp.array([3.0, -9.0]), jnp.bool_(True))
    actors = note_extremes(actors, jnp.array([0.0, 4.0]), jnp.array([-5.0, 1.0]), jnp.bool_(False))
    np.testing.assert_array_equal(actors.reward, [2.5, 4.0])  # with the price
    np.testing.assert_array_equal(actors.value, [5.0, 9.0])
    np.testing.assert_array_equal(actors.first_value, [3.0, 9.0])


def test_a_group_reads_and_writes_its_own_part_only():
    group, whole = Group(2, 3), {"a": jnp.arange(6.0), "b": jnp.arange(12).reshape(6, 2)}
    part = group.part(whole)
    assert part["a"].tolist() == [2, 3, 4] and part["b"].tolist() == [[4, 5], [6, 7], [8, 9]]
    put = group.put(whole, jax.tree.map(lambda x: -x, part))
    assert put["a"].tolist() == [0, 1, -2, -3, -4, 5]
    rows = group.put_row(jnp.zeros((2, 6), jnp.int32), jnp.int32(1), jnp.array([7.0, 8.0, 9.0]))
    assert rows.dtype == jnp.int32 and rows.tolist() == [[0] * 6, [0, 0, 7, 8, 9, 0]]


def test_frames_are_stacked_newest_last_and_those_before_an_episode_are_black():
    stack = empty_stack(2, (1, 3), np.float32, 3)
    for time, restarted in enumerate(([True, True], [False, False], [False, True], [False, False])):
        observation, stack = push_frame(stack, jnp.full((2, 1), 10.0 + time), jnp.array(restarted))
    np.testing.assert_array_equal(observation[:, 0], [[11, 12, 13], [0, 12, 13]])
    assert empty_stack(2, (4,), np.float32, 1) == ()
    observation, stack = push_frame((), jnp.ones((2, 4)), jnp.array([True, False]))
    assert observation.shape == (2, 4) and stack == ()


def test_over_a_noop_control_is_the_execution_of_any_other_action():
    """So a price per control step is a price per executed action other than the no-op."""
    rng = np.random.default_rng(0)
    outputs = rng.integers(-3, 4, (5_000, 4)).astype(np.float32)  # many ties
    eta = rng.choice([0.0, 0.5, 1.0], 5_000).astype(np.float32)
    default = jnp.eye(4)[jnp.zeros(5_000, int)]
    choice = choose(outputs, default, eta, np.full((3, 5_000), 0.5), Exploration(0.0), FORMS["structured"])
    np.testing.assert_array_equal(np.asarray(choice.executed) != 0, ~np.asarray(choice.lazy))
    assert 0 < np.asarray(choice.lazy).sum() < 5_000
