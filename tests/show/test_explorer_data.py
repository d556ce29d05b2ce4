"""The data of the explorer's page: what is stored, how it is encoded, and how large it may be."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from random_models import random_model
from reading import array_of

import lazymdp as lz
from lazymdp.show import explorer_data
from lazymdp.show.explorer_data import keyframes, packed, page_data


@pytest.mark.parametrize("kind", ["f8", "i4", "u1"])
@pytest.mark.parametrize("different", [1, 256, 257, 1000])
def test_arrays_are_stored_without_rounding(kind, different):
    rng = np.random.default_rng(different)
    if kind == "f8":
        table = np.concatenate([[-0.0, 0.0], rng.normal(size=different)])[:different]
    else:
        table = np.arange(different) % 256 if kind == "u1" else np.arange(different) - 100
    numbers = rng.choice(table, size=(20, 100))
    encoded = packed(numbers, kind)
    found = array_of(encoded)
    np.testing.assert_array_equal(found, numbers.ravel())
    if kind == "f8":
        np.testing.assert_array_equal(np.signbit(found), np.signbit(numbers.ravel()))
    if different <= 256:
        assert len(encoded["base64"]) < 1.4 * numbers.size  # one byte per entry


def with_policies(path, count):
    return dataclasses.replace(path, breakpoints=np.linspace(0.1, 1.0, count - 1))


def test_keyframes_are_spread_evenly_within_their_budget(monkeypatch):
    model = random_model(0, n_states=50)
    path = with_policies(lz.eta_path(model.mdp, model.default), 1001)
    np.testing.assert_array_equal(keyframes(path), np.arange(1001))
    monkeypatch.setattr(explorer_data, "_KEYFRAMES_MB", 11 * 50 * 16 * 4 / 3 * 1e-6 + 1e-9)
    np.testing.assert_array_equal(keyframes(path), np.arange(0, 1001, 100))
    monkeypatch.setattr(explorer_data, "_KEYFRAMES_MB", 0.0)
    np.testing.assert_array_equal(keyframes(path), [0, 1000])
    np.testing.assert_array_equal(keyframes(with_policies(path, 1)), [0])


def test_the_lines_of_the_keyframes_are_those_of_the_path(monkeypatch):
    model = random_model(2, n_states=30)
    path = lz.eta_path(model.mdp, model.default)
    monkeypatch.setattr(explorer_data, "_KEYFRAMES_MB", 4 * 30 * 16 * 4 / 3 * 1e-6 + 1e-9)
    data = page_data(path, None, None, "")
    frames = array_of(data["keyframes"])
    assert frames.size == 4 < len(path.breakpoints)
    values, counts = (array_of(data[name]).reshape(4, 30) for name in ("values", "counts"))
    edges = np.concatenate([[0.0], path.breakpoints, [2 * path.breakpoints[-1]]])
    for frame, value, count in zip(frames, values, counts, strict=True):
        eta = 0.5 * (edges[frame] + edges[frame + 1])
        np.testing.assert_allclose(value - eta * count, path.value_at(eta), atol=1e-12)
        np.testing.assert_allclose(count, path.control_count_at(eta), atol=1e-12)


def test_the_size_does_not_grow_with_policies_times_states():
    """2,025 states with 434 policies took 21 MB when the lines of all policies were stored."""
    mdp = long_walk(2025)
    path = with_policies(always_lazy(mdp), 434)
    size = sum(
        len(part)
        for entry in page_data(path, None, None, "").values()
        if isinstance(entry, dict)
        for part in entry.values()
    )
    assert size < 5e6


def long_walk(n_states):
    steps = np.arange(2 * n_states)
    ends = np.minimum(steps // 2 + steps % 2, n_states - 1)
    moves = sp.csr_array((np.ones(2 * n_states), (steps, ends)), shape=(2 * n_states, n_states))
    return lz.MDP(moves, np.zeros((n_states, 2)), 0.9)


def always_lazy(mdp):
    none = np.empty(0)
    start = np.zeros(1)
    return lz.EtaPath(mdp, lz.policies.uniform(mdp), none, np.empty((0, 4), dtype=np.int64), start, start, 0.0)


def test_a_page_too_large_is_refused_before_it_is_made(monkeypatch):
    rng = np.random.default_rng(0)
    mdp = lz.MDP(rng.dirichlet(np.ones(700), size=(700, 3)), np.zeros((700, 3)), 0.9)
    monkeypatch.setattr(explorer_data, "_lines", None)  # the values of the states are not computed
    with pytest.raises(
        ValueError, match=r"about 24 MB, more than 20: 23.. MB for the model, with 1470000 transitions "
    ):
        page_data(always_lazy(mdp), None, None, "")
