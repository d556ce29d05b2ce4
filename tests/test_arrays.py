"""Sampling from rows of probabilities. The checks of input are tested with the model they belong to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lazymdp._arrays import sample_rows

ALMOST_1 = np.nextafter(1.0, 0.0)


def test_each_index_has_its_share_of_the_uniform_numbers():
    uniforms = (np.arange(1000) + 0.5) / 1000
    found = sample_rows(np.tile([0.1, 0.0, 0.6, 0.3], (1000, 1)), uniforms)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(np.bincount(found, minlength=4), [100, 0, 600, 300])
    np.testing.assert_array_equal(sample_rows([0.1, 0.0, 0.6, 0.3], uniforms), found)  # one row for all samples
    assert sample_rows([0.25, 0.75], 0.25) == 1  # a boundary belongs to the index above it


def test_rows_are_independent():
    rows = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
    np.testing.assert_array_equal(sample_rows(rows, [0.7, 0.0, 0.1]), [1, 2, 0])
    np.testing.assert_array_equal(sample_rows(rows[None], [[0.7, 0.0, 0.1]]), [[1, 2, 0]])


@pytest.mark.parametrize(
    "row", [[0.0, 0.3, 0.0], [0.1, 0.2, 0.0], [0.0, 0.0, 1.0], [1 / 3] * 3, [0.7, 0.1, 0.1, 0.1, 0]]
)
def test_the_extreme_uniform_numbers_give_the_first_and_last_possible_index(row):
    possible = np.flatnonzero(row)
    assert sample_rows(row, 0.0) == possible[0]
    assert sample_rows(row, ALMOST_1) == possible[-1]


@given(
    arrays(np.float64, (3, 7), elements=st.one_of(st.just(0.0), st.floats(1e-9, 1.0))),
    arrays(np.float64, 3, elements=st.one_of(st.just(ALMOST_1), st.floats(0.0, 1.0, exclude_max=True))),
)
def test_an_index_of_probability_zero_is_never_sampled(rows, uniforms):
    rows[:, 3] += rows.sum(axis=1) == 0.0
    for kind in (np.float64, np.float32):
        given = (rows / rows.sum(axis=1, keepdims=True)).astype(kind)
        assert (given[np.arange(3), sample_rows(given, uniforms)] > 0.0).all()


def test_it_samples_as_numpy_does():
    row = np.random.default_rng(0).dirichlet(np.ones(5))
    ours = [sample_rows(row, rng.random()) for rng in map(np.random.default_rng, range(50))]
    numpys = [rng.choice(5, p=row) for rng in map(np.random.default_rng, range(50))]
    assert ours == numpys
