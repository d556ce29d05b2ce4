"""Trees as arrays with names: there and back, with what is left out, missing or of another shape."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from small_runs import same

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from lazymdp.learn.deep.named_arrays import from_named, parameters_from, to_named  # noqa: E402


class Tree(NamedTuple):
    numbers: Any
    key: Any
    replay: Any = ()


def test_a_tree_is_restored_from_its_names():
    tree = Tree({"a": jnp.arange(3.0), "b": [jnp.ones((2, 2), int)]}, jax.random.key(3), jnp.zeros(9))
    named = {name: np.array(array) for name, array in to_named(tree, without=(".replay",)).items()}
    assert sorted(named) == [".key", ".numbers['a']", ".numbers['b'][0]"]
    template = Tree({"a": jnp.zeros(3), "b": [jnp.zeros((2, 2), int)]}, jax.random.key(0), jnp.full(9, 7.0))
    found = from_named(template, named, without=(".replay",))
    same(to_named(found), {**named, ".replay": np.full(9, 7.0)})
    np.testing.assert_array_equal(jax.random.uniform(found.key, (3,)), jax.random.uniform(tree.key, (3,)))
    named[".numbers['a']"][:] = -1.0
    assert found.numbers["a"].tolist() == [0.0, 1.0, 2.0]  # a copy


def test_missing_leaves_and_other_shapes_and_types_are_named():
    tree = {"a": jnp.zeros(3)}
    with pytest.raises(ValueError, match=r"the checkpoint lacks \['a'\]: it belongs to another algorithm or version"):
        from_named(tree, {})
    for wrong in (np.zeros(4, np.float32), np.zeros(3, np.float64)):
        with pytest.raises(ValueError, match=r"\['a'\] is float.* expected float32 \(3,\).* other settings"):
            from_named(tree, {"['a']": wrong})


def test_the_parameters_of_a_run_are_found_and_checked():
    named = {".learner.parameters['a']": np.arange(3, dtype=np.float32), ".iteration": np.array(9)}
    found = parameters_from({"a": jax.ShapeDtypeStruct((3,), jnp.float32)}, named)
    assert found["a"].tolist() == [0.0, 1.0, 2.0]
