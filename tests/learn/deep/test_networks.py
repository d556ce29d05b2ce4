"""Q-networks: Dopamine's shapes and initial weights, the price as an input, convolutions, resized heads."""

import functools

import numpy as np
import pytest
from gymnasium import spaces

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from lazymdp.learn.deep.acting import Exploration, choose  # noqa: E402
from lazymdp.learn.deep.backup import FORMS  # noqa: E402
from lazymdp.learn.deep.networks import convolve, is_finite, price_features, q_network, resize_head  # noqa: E402

dopamine = functools.partial(q_network, priced=False, norm=False)


def kernels(parameters):
    """The shapes of all kernels, from the input to the output."""
    dense = [layer.kernel.shape for layer in (*parameters.layers, parameters.head)]
    return [*(kernel.shape for kernel in getattr(parameters, "kernels", [])), *dense]


def count(parameters):
    return sum(leaf.size for leaf in jax.tree.leaves(parameters))


def test_the_network_for_images_is_dopamines():
    network = dopamine((84, 84, 4), 7, None, (16,))
    parameters = jax.eval_shape(network.init, jax.random.key(0))
    assert count(parameters) == 4_047_015
    assert kernels(parameters) == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (7744, 512), (512, 7)]
    frames = jax.ShapeDtypeStruct((2, 84, 84, 4), jnp.uint8)
    assert jax.eval_shape(network.apply, parameters, frames, jnp.zeros(2)).shape == (2, 7)


def test_pixels_are_scaled_kernels_are_xavier_and_small_images_get_an_mlp():
    mlp, small = dopamine((10, 10, 4), 3, None, (16,)), dopamine((10, 10, 4), 3, "minatar", (16,))
    assert kernels(mlp.init(jax.random.key(0))) == [(400, 16), (16, 3)]
    parameters = small.init(jax.random.key(0))
    assert kernels(parameters) == [(3, 3, 4, 16), (1600, 3)]
    limits = [np.sqrt(6 / (9 * 4 + 9 * 16)), np.sqrt(6 / 1603)]
    for kernel, limit in zip((parameters.kernels[0], parameters.head.kernel), limits, strict=True):
        assert 0.95 * limit < float(jnp.abs(kernel).max()) <= limit
    assert not parameters.biases[0].any() and not parameters.head.bias.any()
    pixels = np.random.default_rng(0).integers(256, size=(2, 10, 10, 4), dtype=np.uint8)
    bright, scaled = (
        jax.jit(small.apply)(parameters, jnp.asarray(x), jnp.zeros(2)) for x in (pixels, np.float32(pixels) / 255)
    )
    np.testing.assert_allclose(bright, scaled, rtol=1e-4, atol=1e-5)


def test_an_architecture_that_does_not_suit_the_observations_is_refused():
    needs = r"network is '{}', which needs images \(height, width, channels\), but observations have shape \(7,\)"
    for kind in ("nature", "minatar"):
        with pytest.raises(ValueError, match=needs.format(kind)):
            dopamine((7,), 3, kind, ())
    with pytest.raises(ValueError, match=r"shape \(10, 10, 4\)"):  # too small for Nature's strides
        dopamine((10, 10, 4), 3, "nature", ())


@pytest.mark.parametrize(("shape", "kind"), [((7,), "mlp"), ((10, 10, 4), "minatar")], ids=["mlp", "minatar"])
@pytest.mark.parametrize("norm", [False, True])
def test_a_network_sees_the_price_only_if_it_is_made_for_a_range(shape, kind, norm):
    generator = np.random.default_rng(0)
    seen, eta = jnp.asarray(generator.normal(size=(3, *shape)), dtype=jnp.float32), jnp.array([0.0, 0.1, 0.5])
    sizes = []
    for priced in (False, True):
        network = q_network(shape, 4, kind, (16, 8), priced=priced, norm=norm)
        parameters = jax.jit(network.init)(jax.random.key(0))
        sizes.append(count(parameters))
        assert (parameters.price is None) != priced
        apply = jax.jit(network.apply)
        found, other = apply(parameters, seen, eta), apply(parameters, seen, jnp.full(3, 0.1))
        assert found.shape == (3, 4)
        np.testing.assert_array_equal(found[1], other[1])  # an output depends on its own row alone
        assert np.array_equal(found, other) != priced
    assert sizes[1] > sizes[0]


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("shape", "kind"), [((5,), "mlp"), ((10, 10, 4), "minatar"), ((40, 40, 4), "nature")])
def test_several_prices_for_one_observation_are_as_good_as_one_at_a_time(shape, kind, norm):
    network = q_network(shape, 3, kind, (16, 8), priced=True, norm=norm)
    parameters, eta = network.init(jax.random.key(0)), jnp.asarray([[0.0, 0.1, 2.0], [0.3, 0.0, 1.0]])
    seen = jax.random.uniform(jax.random.key(1), (2, *shape))
    together = network.apply(parameters, seen, eta)
    one_by_one = jnp.stack([network.apply(parameters, seen, eta[:, k]) for k in range(3)], 1)
    assert together.shape == (2, 3, 3)
    np.testing.assert_allclose(together, one_by_one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", [False, True])
def test_the_price_joins_natures_network_after_its_convolutions(norm):
    single, dial = (
        jax.eval_shape(q_network((84, 84, 4), 6, None, (), priced=priced, norm=norm).init, jax.random.key(0))
        for priced in (False, True)
    )
    assert single.price is None and dial.price.kernel.shape == (3, 64)
    assert kernels(dial)[:3] == kernels(single)[:3] and kernels(dial)[4:] == kernels(single)[4:]
    assert dial.layers[0].kernel.shape[0] == single.layers[0].kernel.shape[0] + 64


def test_layer_norm_makes_a_network_indifferent_to_the_scale_of_its_features():
    seen = jnp.asarray(np.random.default_rng(0).normal(size=(3, 7)), dtype=jnp.float32)
    found = {}
    for norm in (False, True):
        network = q_network((7,), 4, "mlp", (64,), priced=False, norm=norm)
        parameters = network.init(jax.random.key(0))
        flat = jax.tree_util.tree_map_with_path(
            lambda path, leaf: 0.0 * leaf if "layers" in str(path) and "bias" in str(path[-1]) else leaf, parameters
        )
        found[norm] = [network.apply(flat, scale * seen, jnp.zeros(3)) for scale in (1.0, 50.0)]
    np.testing.assert_allclose(*found[True], rtol=2e-2, atol=2e-3)
    assert np.abs(np.subtract(*found[False])).max() > 1.0


def test_the_features_of_a_price_are_finite_at_0():
    found = np.asarray(price_features(jnp.array([0.0, 0.1])))
    np.testing.assert_allclose(found, [[-3.0, 9.0, 1.0], [np.log10(0.101), np.log10(0.101) ** 2, 1.0]], rtol=1e-5)


def test_a_network_can_start_one_with_or_without_the_lazy_output():
    plain, lazy = (dopamine((7,), n_outputs, "mlp", (16,)) for n_outputs in (2, 3))
    seen, parameters, nothing = jnp.eye(7), plain.init(jax.random.key(0)), jnp.zeros(7)
    q = plain.apply(parameters, seen, nothing)
    price = 0.01 + float(jnp.median(q.max(-1) - q.mean(-1)))
    more = resize_head(parameters, 2, 3, eta=price)
    q_more = lazy.apply(more, seen, nothing)
    np.testing.assert_allclose(q_more[:, :2], q, rtol=1e-6)
    np.testing.assert_allclose(q_more[:, 2], q.mean(-1) + price, rtol=1e-4, atol=1e-6)
    half = jnp.full((7, 2), 0.5)
    chosen, chosen_more = (
        choose(outputs, half, jnp.full(7, price), jnp.zeros((3, 7)), Exploration(0.0), FORMS[form])
        for outputs, form in ((q, "structured"), (q_more, "augmented"))
    )
    np.testing.assert_array_equal(chosen.executed, chosen_more.executed)
    assert 0 < int(chosen.lazy.sum()) < 7
    back = resize_head(more, 3, 2)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(parameters), strict=True):
        np.testing.assert_array_equal(a, b)
    assert resize_head(parameters, 2, 2).head.bias.shape == (2,)
    with pytest.raises(ValueError, match="has 2 outputs, not 3"):
        resize_head(parameters, 3, 2)
    with pytest.raises(ValueError, match="from 2 to 5 outputs"):
        resize_head(parameters, 2, 5)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("side", "size", "stride"), [(84, 8, 4), (21, 4, 2), (20, 4, 2), (11, 3, 1), (10, 3, 2)])
def test_a_convolution_over_blocks_or_as_a_product_is_the_plain_one(padding, side, size, stride, device, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    x, kernel = (jax.random.normal(jax.random.key(k), s) for k, s in ((0, (2, side, side, 3)), (1, (size, size, 3, 5))))
    order = ("NHWC", "HWIO", "NHWC")
    plain = jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=order)
    np.testing.assert_allclose(convolve(x, kernel, stride, padding), plain, atol=1e-4)


def test_numbers_with_very_small_or_large_bounds_are_divided_by_them():
    space = spaces.Box(
        np.array([-1.2, -0.07, -5e3, -np.inf], np.float32), np.array([0.6, 0.07, 1e3, np.inf], np.float32)
    )
    plain, scaled = (q_network((4,), 2, "mlp", (8,), priced=False, norm=False, space=given) for given in (None, space))
    parameters, seen = plain.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (5, 4))
    expected = plain.apply(parameters, seen / jnp.array([1.0, 0.07, 5e3, 1.0]), jnp.zeros(5))
    np.testing.assert_allclose(scaled.apply(parameters, seen, jnp.zeros(5)), expected, rtol=1e-5)


def test_parameters_that_are_not_finite_are_noticed():
    assert is_finite({"a": jnp.arange(3.0)})
    assert not is_finite({"a": jnp.array([0.0, jnp.nan])}) and not is_finite([jnp.inf * jnp.ones(2)])
