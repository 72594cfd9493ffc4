"""Batches of small arrays with the batch as the minor dimension: the same results, and where that is done."""

from itertools import product

import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline

# Every batch of so many members, in programs of any size and where it gains nothing.
ALWAYS = {
    "batch_minor.fewest_members": 11,
    "batch_minor.fewest_arrays": 1,
    "batch_minor.moved": 0.0,
    "batch_minor.moved_array": 0.0,
}
KINDS = [np.float32, np.float64]


def normal(*sizes, kind=np.float32):
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(kind)


def optimized(computation, **knobs):
    with compiling(knobs=ALWAYS | knobs):
        return run_pipeline(computation.to_module(), until="batch-minor")


def agree(function, *values, **knobs):
    """The program in batch-minor form gives what the interpreter gives; the text of the form."""
    computation = build(function, *(shape_of(v) for v in values))
    text = str(optimized(computation, **knobs))
    with compiling(knobs=ALWAYS | knobs, check_memory=True):
        executable = xla.compile(computation, backend="cpu", cache=False)
    assert not executable.fallbacks
    actual = np.asarray(executable(*values))
    expected = np.asarray(xla.compile(computation, backend="interpreter")(*values))
    tolerance = 64 * np.finfo(actual.dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * np.nanmax(np.abs(expected)))
    return text


def on_rows(function):
    """The function between others that are made in batch-minor form."""
    return lambda *xs: xla.neg(function(*map(xla.neg, xs)))


def dot(lhs, rhs, batch, contracting):
    (left, right), (a, b) = batch, contracting
    numbers = xla.DotDimensionNumbers(
        lhs_batch_dimensions=left,
        rhs_batch_dimensions=right,
        lhs_contracting_dimensions=a,
        rhs_contracting_dimensions=b,
    )
    return on_rows(lambda x, y: xla.dot_general(x, y, numbers)), lhs, rhs


DOTS = {
    "matrices": dot(normal(11, 3, 4), normal(11, 4, 2), ([0], [0]), ([2], [1])),
    "transposed": dot(normal(11, 4, 3), normal(5, 11, 4), ([0], [1]), ([1], [2])),
    "outer": dot(normal(11, 3), normal(11, 2), ([0], [0]), ([], [])),
    "two batches": dot(normal(2, 11, 3, 4), normal(11, 2, 4), ([1, 0], [0, 1]), ([3], [2])),
    "rows of one": dot(normal(11, 2, 4), normal(4, 3), ([], []), ([2], [0])),
    "columns of one": dot(normal(3, 4), normal(4, 11, 2), ([], []), ([1], [0])),
    "in a batch": dot(normal(2, 11, 4), normal(2, 4, 3), ([0], [0]), ([2], [1])),
}


@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("name", DOTS)
def test_dots(name, most):
    function, lhs, rhs = DOTS[name]
    knobs = {"batch_minor.most_products": most, "batch_minor.most_shared_products": most}
    text = agree(function, lhs, rhs, **knobs)
    # Outer products are products of elements in any form.
    assert ("dot(" in text) == (most == 0 and name != "outer")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("sizes", [(11, 5, 5), (2, 11, 3, 3), (11, 2, 2)])
def test_cholesky(kind, lower, sizes):
    x = normal(*sizes, kind=kind)
    a = (x @ x.swapaxes(-1, -2) + sizes[-1] * np.eye(sizes[-1])).astype(kind)
    a.reshape(-1, *sizes[-2:])[4, -1, -1] = -1
    text = agree(on_rows(lambda m: xla.cholesky(m, lower)), -a)
    assert "decompositions" in text


@pytest.mark.parametrize(
    ("left", "lower", "unit", "form"),
    list(product([True, False], [True, False], [True, False], ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])),
)
def test_triangular_solve(left, lower, unit, form):
    a = normal(11, 4, 4) + 8 * np.eye(4, dtype=np.float32)
    b = normal(11, 4, 3) if left else normal(11, 3, 4)
    text = agree(on_rows(lambda x, y: xla.triangular_solve(x, y, left, lower, unit, form)), a, b)
    assert "decompositions" in text


@pytest.mark.parametrize("members", [3, 8, 16, 21])
def test_lanes_that_fill_no_vector(members):
    a = normal(members, 4, 4) + 8 * np.eye(4, dtype=np.float32)
    agree(
        on_rows(lambda x, y: xla.triangular_solve(x, y, True, True, False, "NO_TRANSPOSE")),
        a,
        normal(members, 4, 1),
        **{"batch_minor.fewest_members": members},
    )


NESTED = """HloModule nested
inner {
  s = (s32[], f32[11,3], f32[11]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[11,3] get-tuple-element(s), index=1
  c = f32[11] get-tuple-element(s), index=2
  one = s32[] constant(1)
  m = s32[] add(n, one)
  a = f32[11,1] slice(x), slice={[0:11], [0:1]}
  b = f32[11,2] slice(x), slice={[0:11], [1:3]}
  y = f32[11,3] concatenate(b, a), dimensions={1}
  z = f32[11,3] broadcast(c), dimensions={0}
  w = f32[11,3] add(y, z)
  ROOT r = (s32[], f32[11,3], f32[11]) tuple(m, w, c)
}
less {
  s = (s32[], f32[11,3], f32[11]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[11,3] get-tuple-element(s), index=1
  one = f32[1,1] slice(x), slice={[0:1], [0:1]}
  first = f32[] reshape(one)
  large = f32[] constant(40)
  small = pred[] compare(first, large), direction=LT
  end = s32[] constant(9)
  go = pred[] compare(n, end), direction=LT
  ROOT both = pred[] and(small, go)
}
outer {
  s = (s32[], f32[11,3], f32[11]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[11,3] get-tuple-element(s), index=1
  c = f32[11] get-tuple-element(s), index=2
  one = s32[] constant(1)
  m = s32[] add(n, one)
  zero = s32[] constant(0)
  t = (s32[], f32[11,3], f32[11]) tuple(zero, x, c)
  u = (s32[], f32[11,3], f32[11]) while(t), condition=less, body=inner
  y = f32[11,3] get-tuple-element(u), index=1
  d = f32[11] get-tuple-element(u), index=2
  v = f32[11,3] sort(y), dimensions={1}, to_apply=order
  ROOT r = (s32[], f32[11,3], f32[11]) tuple(m, v, d)
}
order {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}
few {
  s = (s32[], f32[11,3], f32[11]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  end = s32[] constant(3)
  ROOT go = pred[] compare(n, end), direction=LT
}
ENTRY main {
  x = f32[11,3] parameter(0)
  c = f32[11] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[11,3], f32[11]) tuple(zero, x, c)
  ROOT r = (s32[], f32[11,3], f32[11]) while(t), condition=few, body=outer
}
"""


def test_loops_in_loops_with_operations_that_stay():
    """The condition reads one member, a sort has no batch-minor form, and the root is the loop itself."""
    module = xla.HloModule.from_text(NESTED)
    given = normal(11, 3), np.abs(normal(11))
    with compiling(knobs=ALWAYS):
        assert "f32[3,11]" in str(run_pipeline(module, until="batch-minor"))
        actual = xla.compile(module, backend="cpu", cache=False)(*given)
    expected = xla.compile(module, backend="interpreter")(*given)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("sizes", [(32, 100), (32, 14, 14, 32)])
def test_long_rows_stay(sizes):
    """Rows that fill vectors, and images."""
    given = shape_of(np.zeros(sizes, np.float32))
    computation = build(lambda x: xla.rev(xla.exp(x), [len(sizes) - 1]), given)
    module = run_pipeline(computation.to_module(), until="pooling-gradients")
    with compiling(knobs=ALWAYS | {"batch_minor.fewest_members": 16}):
        assert run_pipeline(module, ["batch-minor"]) is module


@pytest.mark.parametrize("count", [1, 6])
def test_numbers_that_are_spread_gain_nothing(count):
    """However many of them: a sort in between stays, and its operand and result would be transposed."""

    def function(x):
        for number in range(count):
            x = x * np.float32(number + 2)
        return xla.sort(x)

    computation = build(function, shape_of(normal(64, 4)))
    module = run_pipeline(computation.to_module(), until="pooling-gradients")
    with compiling(knobs={"batch_minor.fewest_arrays": 1, "batch_minor.moved": 1.5, "batch_minor.moved_array": 0.0}):
        assert run_pipeline(module, ["batch-minor"]) is module
