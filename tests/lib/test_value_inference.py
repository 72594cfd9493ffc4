"""Bounds of integers: no result of the interpreter is outside of them, and what may not vary does not."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.lib import value_bounds

I8 = np.int8


def known(function, *kinds):
    builder = xla.XlaBuilder("known")
    return value_bounds(
        function(*[xla.parameter(builder, i, xla.make_shape(kind, ())) for i, kind in enumerate(kinds)])
    )


def expression(rng, leaves, depth):
    """A drawn function of the leaves, on S8."""
    if not depth:
        return leaves[rng.integers(len(leaves))]
    x, y, z = (expression(rng, leaves, depth - 1) for _ in range(3))
    kind = rng.integers(9)
    if kind == 8:
        return xla.select(xla.lt(x, y), y, z) if rng.integers(2) else xla.select(xla.constant(x.builder, True), x, y)
    pick = [xla.add, xla.sub, xla.mul, xla.min, xla.max, lambda a, _: xla.neg(a), lambda a, b: xla.clamp(a, b, z)]
    return (pick[kind] if kind < 7 else lambda a, b: xla.concat_in_dim([a.reshape(1), b.reshape(1)], 0)[0])(x, y)


def test_results_are_within_bounds():
    rng = np.random.default_rng(3)
    for _ in range(40):
        builder = xla.XlaBuilder("drawn")
        parameters = [xla.parameter(builder, i, xla.make_shape(I8, ())) for i in range(2)]
        numbers = [xla.constant(builder, I8(v)) for v in rng.integers(-9, 9, 3)]
        result = expression(rng, [*parameters, *numbers], 3)
        found = value_bounds(result)
        program = xla.compile(builder.build(result), backend="interpreter")
        values = {int(program(*map(I8, pair))) for pair in rng.integers(-128, 128, (20, 2))}
        assert int(found.low) <= min(values) and max(values) <= int(found.high)
        assert found.varies or len(values) == 1


def test_bounds_are_as_tight_as_operations_allow():
    found = known(lambda n: xla.min(n, 5), np.int32)
    assert (int(found.high), bool(found.varies)) == (5, True)
    # What wraps around may be anything.
    found = known(lambda n: xla.min(n, 5) - 2, np.int32)
    assert (int(found.low), int(found.high)) == (-(2**31), 2**31 - 1)
    halved = known(lambda n: xla.clamp(0, n, 100) * 2 + 1, np.int64)
    assert (int(halved.low), int(halved.high)) == (1, 201)
    both = known(lambda n: xla.concat_in_dim([xla.constant(n.builder, [7]), n.reshape(1)], 0), np.int32)
    assert (both.low.tolist()[0], both.high.tolist()[0], both.varies.tolist()) == (7, 7, [False, True])
    inside = known(lambda n: xla.tuple_(n, xla.constant(n.builder, np.int32(4)))[1], np.int32)
    assert (int(inside.low), int(inside.high), bool(inside.varies)) == (4, 4, False)


def test_sizes_of_dimensions():
    def size(n):
        x = xla.set_dimension_size(xla.iota(n.builder, xla.make_shape(np.int32, (5, 3)), 0), n, 0)
        return xla.concat_in_dim([xla.get_dimension_size(x, d).reshape(1) for d in (0, 1)], 0)

    found = known(size, np.int32)
    assert (found.low.tolist(), found.high.tolist(), found.varies.tolist()) == ([0, 3], [5, 3], [True, False])


def test_only_integers_have_bounds():
    with pytest.raises(xla.ShapeError, match="integers"):
        known(lambda x: x, np.float32)
