"""Asynchronous collectives and control dependencies of JAX: the same results as without, and the order that is said."""

import re

import numpy as np
import pytest


def _mesh():
    import jax

    return jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


def _over_devices(body, *arguments):
    import jax
    from jax.sharding import PartitionSpec as P

    return jax.jit(jax.shard_map(body, mesh=_mesh(), in_specs=P("x"), out_specs=P("x"), check_vma=False))(*arguments)


def _pairs():
    """For each collective its result on split numbers, as an async pair and whole."""
    from jax import lax
    from jax._src.lax import parallel

    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    across = [(0, 1), (1, 0)]
    return {
        "all_gather": (lambda x: parallel.all_gather_start(x, "x").done(), lambda x: lax.all_gather(x, "x"), x),
        "psum": (lambda x: parallel.psum_start(x, "x").done(), lambda x: lax.psum(x, "x"), x),
        "psum_scatter": (
            lambda x: parallel.psum_scatter_start(x, "x", scatter_dimension=0, tiled=True).done(),
            lambda x: lax.psum_scatter(x, "x", scatter_dimension=0, tiled=True),
            x,
        ),
        "all_to_all": (
            lambda x: parallel.all_to_all_start(x, "x", split_axis=0, concat_axis=0, tiled=True).done(),
            lambda x: lax.all_to_all(x, "x", split_axis=0, concat_axis=0, tiled=True),
            x,
        ),
        "ppermute": (
            lambda x: parallel.ppermute_start(x, "x", across).done(),
            lambda x: lax.ppermute(x, "x", across),
            x,
        ),
    }


def _both(name):
    pair, whole, x = _pairs()[name]
    return np.asarray(_over_devices(pair, x)), np.asarray(_over_devices(whole, x))


@pytest.mark.parametrize("name", ["all_gather", "psum", "psum_scatter", "all_to_all", "ppermute"])
def test_async_collectives_give_what_they_give_whole(on_xlakit, as_cpu, name):
    for run in (on_xlakit, as_cpu):
        pair, whole = run(_both, name)
        np.testing.assert_array_equal(pair, whole)


def _scheduled():
    import jax
    from jax import lax, numpy as jnp
    from jax._src.lax import parallel
    from jax.experimental.control_deps import schedule

    def layers(x, weights):
        def layer(carry, weight):
            have, x = carry
            gathering = parallel.all_gather_start(weight, "x", tiled=True)
            x = jnp.tanh(x @ have)
            following = gathering.done()
            schedule([gathering.x, x, following])
            return (following, x), None

        (last, x), _ = lax.scan(layer, (lax.all_gather(weights[0], "x", tiled=True), x), weights[1:])
        return x @ last

    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(4, 6)).astype(np.float32), rng.normal(size=(3, 6, 6)).astype(np.float32)
    spec = jax.sharding.PartitionSpec
    specs = (spec("x"), spec(None, "x"))
    split = jax.shard_map(layers, mesh=_mesh(), in_specs=specs, out_specs=spec("x"), check_vma=False)
    expected = x
    for weight in weights[:-1]:
        expected = np.tanh(expected @ weight)
    return np.asarray(jax.jit(split)(x, weights)), expected @ weights[-1]


def test_collectives_in_the_order_that_is_said_in_a_loop(on_xlakit):
    found, expected = on_xlakit(_scheduled)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def _ordered():
    import jax
    from jax import numpy as jnp
    from jax.experimental.control_deps import control_dep

    @jax.jit
    def later_first(x):
        product, inverse = jnp.sin(x @ x), jnp.cos(x @ x.T)
        control_dep(inverse, product)
        return product + inverse

    x = np.arange(9, dtype=np.float32).reshape(3, 3) / 9
    text = later_first.lower(x).compile().as_text()
    return text, np.asarray(later_first(x)), np.sin(x @ x) + np.cos(x @ x.T)


def test_control_dependencies_become_those_of_the_program(on_xlakit):
    text, found, expected = on_xlakit(_ordered)
    assert "control_dep" not in text
    assert re.search(r"sine\(.*control-predecessors=\{%cos", text)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def _contradicting():
    import jax
    from jax import numpy as jnp
    from jax.experimental.control_deps import control_dep

    @jax.jit
    def neither_first(x):
        first = jnp.sin(x)
        second = jnp.cos(first)
        control_dep(second, first)
        return second

    try:
        neither_first(np.ones(3, np.float32))
    except jax.errors.JaxRuntimeError as error:
        return str(error)
    return ""


def test_orders_that_contradict_the_program_are_refused(on_xlakit):
    assert re.search(r"sin.*neither before nor after|cos.*neither before nor after", on_xlakit(_contradicting))
