"""Any input leads to numbers or to an error that says what is wrong; never to a hang, never to a silent NaN."""

import re
import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import lazymdp as lz
from lazymdp.exact.algorithms import METHODS

anything = st.floats(allow_nan=True, allow_infinity=True, width=64)
tables = arrays(float, array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4), elements=anything)


def check_explained(error, **given):
    """Fails unless a message names an argument and shows what is wrong with it: its shape, an entry or a sum."""
    message = str(error)
    named = [name for name in given if re.search(rf"\b{name.removesuffix('s')}s?\b", message)]
    assert named, f"names none of {', '.join(given)}: {message}"
    found = message.partition("expected")[0]  # what is expected would often be an entry of the arrays, such as 0 or 1
    shown = [float(number) for number in re.findall(r"(?<![\w.])-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)\b", found)]
    for array in (np.asarray(given[name]) for name in named):
        with np.errstate(all="ignore"):
            sums = [array.sum(), *array.sum(axis=-1).ravel()] if array.ndim else []
        known = np.array([*array.ravel(), *sums], dtype=float)
        if f"shape {array.shape}" in message or any(
            np.isclose(known, number, equal_nan=True).any() for number in shown
        ):
            return
    raise AssertionError(f"shows nothing of {', '.join(named)}: {message}")


@given(tables, tables, anything, st.none() | tables, st.none() | arrays(bool, array_shapes(max_dims=2, max_side=4)))
def test_any_arrays_make_a_model_or_a_clear_error(transitions, rewards, gamma, start, absorbing):
    try:
        lz.MDP(transitions, rewards, gamma, start, absorbing)
    except ValueError as error:
        given = dict(transitions=transitions, rewards=rewards, gamma=gamma, start=start, absorbing=absorbing)
        check_explained(error, **{name: value for name, value in given.items() if value is not None})


@st.composite
def rough_models(draw):
    """Valid, but unpleasant: rewards of any size, probabilities next to 0, discounts next to 1."""
    n_states, n_actions = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    weights = draw(arrays(float, (n_states, n_actions, n_states), elements=st.floats(0, 1)))
    weights[..., 0] += 1e-300
    transitions = weights / weights.max(axis=-1, keepdims=True)
    transitions /= transitions.sum(axis=-1, keepdims=True)
    rewards = draw(arrays(float, (n_states, n_actions), elements=st.floats(-1e300, 1e300)))
    gamma = draw(st.floats(0, 1) | st.sampled_from([0.0, 1 - 1e-15, 1.0]))
    default = np.eye(n_actions)[draw(arrays(int, n_states, elements=st.integers(0, n_actions - 1)))]
    if draw(st.booleans()):
        transitions[-1] = np.eye(n_states)[-1]
        rewards[-1] = 0.0
    return transitions, rewards, gamma, default


def moderate(rewards):
    """The rewards without those that a model refuses."""
    return np.where(np.abs(rewards) < 1e-90, 0.0, np.clip(rewards, -1e90, 1e90))


@settings(max_examples=150)
@given(rough_models(), anything, st.sampled_from(sorted(METHODS)))
def test_any_model_is_solved_or_the_failure_is_said(model, eta, method):
    transitions, rewards, gamma, default = model
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            lazy = lz.LazyMDP(lz.MDP(transitions, rewards, gamma), default, eta)
            solution = lz.solve(lazy, method=method, max_iterations=2000)
        except ValueError as error:
            check_explained(error, rewards=rewards, gamma=gamma, eta=eta)
            return
    if solution.converged:
        assert np.isfinite(solution.value).all()
        assert np.isfinite(solution.q).all()
        assert solution.error_bound <= 1e-8 * (max(np.abs(lazy.mdp.rewards).max(), -lazy.eta) or 1.0)
    else:
        assert any(issubclass(w.category, lz.NotConverged) for w in caught)


def finite(*values):
    return all(np.isfinite(np.asarray(value)).all() for value in values)


@settings(max_examples=100)
@given(rough_models())
def test_bounds_path_and_measures_of_any_model(model):
    """Each question is answered with numbers, or refused with a reason."""
    transitions, rewards, gamma, default = model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lz.NotConverged)
        warnings.simplefilter("error", RuntimeWarning)  # numpy's overflow and invalid value
        try:
            mdp = lz.MDP(transitions, moderate(rewards), gamma)
            top, bottom = lz.eta_max(mdp, default), lz.eta_min(mdp, default)
            path = lz.eta_path(mdp, default)
            lazy = lz.LazyMDP(mdp, default, 0.5 * top)
            action = path.action_at(lazy.eta)
            assert finite(top, bottom, path.breakpoints, path.value_at(lazy.eta))
            assert finite(path.start_base_values, path.start_control_counts)
            assert bottom >= 0.0
            found = lz.evaluate(lazy, action)
            assert finite(found.value, found.base_value, found.control_cost, found.control_count)
            assert finite(lz.policies.optimal(mdp), lz.policies.second_best(mdp))
            for plan in (path.for_control_count(0.5 * path.start_control_counts[0]), path.for_control_rate(0.3)):
                assert finite(plan.base_value, plan.control_count, plan.control_rate, plan.weight, plan.eta)
            if not mdp.absorbing.all():
                assert 0.0 <= lz.lazy_frequency(lazy, action).long_run <= 1.0 + 1e-9
        except ValueError as error:
            if "the long-run frequency cannot be computed" not in str(error):  # which has no discount to name
                check_explained(error, gamma=gamma)


@given(rough_models(), st.integers(1, 4), st.floats(-1e90, 1e90))
def test_horizons_of_any_model(model, horizon, eta):
    transitions, rewards, gamma, default = model
    lazy = lz.LazyMDP(lz.MDP(transitions, moderate(rewards), gamma), default, eta)
    found = lz.solve(lazy, horizon=horizon)
    assert finite(found.value, found.q, found.lazy_gap, found.error_bound)
