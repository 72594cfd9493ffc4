"""Sorts of which only a few elements at an end are wanted: found as such, and the same to the bit."""

import ml_dtypes
import numpy as np
import pytest
from cpu.kernels.sort.sort_running import same_bits
from cpu.kernels.sort.test_sort_kernel import FLOATS, INTEGERS, SMALL_FLOATS, any_bits
from evaluating import build

import xlakit as xla
from xlakit.cpu.kernels.sort import top_k
from xlakit.cpu.kernels.sort.top_k import Method, plan_partial_sort
from xlakit.passes.pipeline import run_pipeline

RNG = np.random.default_rng(5)


def one_zero_one_nan(x):
    """As JAX compares floats."""
    kind = x.shape.element_type.dtype
    zero, nan = (xla.constant(x.builder, np.asarray(v, kind)) for v in (0, np.nan))
    return xla.select(xla.ne(x, x), nan, xla.select(xla.eq(x, zero), zero, x))


def canonical(a, b, *others):
    return xla.lt_total_order(one_zero_one_nan(a), one_zero_one_nan(b))


def downwards(a, b, *others):
    return xla.gt_total_order(a, b)


def upwards(a, b, *others):
    return xla.lt_total_order(a, b)


def compared(function, *arguments, method=None):
    """The compiled program gives what the sort as it stands gives; a fusion does it, of the method if one is given."""
    module = build(function, *(xla.make_shape(a.dtype, a.shape) for a in arguments)).to_module()
    better = run_pipeline(module)
    plans = [plan_partial_sort(i.op.calls) for i in better.entry.instructions if i.opcode == "fusion"]
    found = [p for p in plans if p is not None]
    assert len(found) == 1
    assert method is None or found[0].method is method
    expected = xla.compile(module, backend="interpreter")(*arguments)
    executables = xla.compile(module, cache=False), xla.compile(better, backend="interpreter")
    for results in (executable(*arguments) for executable in executables):
        pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
        for result, right in pairs:
            same_bits(result, right, found[0].phases)


def part(x, dimension, start, limit):
    return xla.slice_in_dim(x, start, limit, 1, dimension)


def all_parts(comparator, dimension, start, limit):
    """Keys, what goes along with them, and where they were."""

    def program(x, along):
        index = xla.iota(x.builder, xla.make_shape(xla.S32, x.shape.dimensions), dimension)
        whole = xla.sort([x, along, index], comparator, dimension, True)
        return tuple(part(xla.get_tuple_element(whole, n), dimension, start, limit) for n in range(3))

    return program


@pytest.mark.parametrize("kind", [bool, ml_dtypes.int4, *INTEGERS, *FLOATS, *SMALL_FLOATS], ids=str)
def test_kinds(kind):
    x = any_bits(RNG, kind, 2, 200)
    along = RNG.normal(size=x.shape) * 1j
    compared(all_parts(upwards, 1, 0, 9), x, along, method=Method.LIST)
    compared(all_parts(downwards, 1, 191, 200), x, along, method=Method.LIST)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_orders_that_hold_zeros_and_nan_equal(kind):
    x = any_bits(RNG, kind, 3, 300)
    for start, limit in ((0, 7), (287, 300)):
        compared(all_parts(canonical, 1, start, limit), x, RNG.integers(0, 99, x.shape, np.uint8))
    # Code that computes in more bits may make a quiet NaN of another one.
    with np.errstate(invalid="ignore"):
        quiet = np.where(x == x, x, np.asarray(np.nan, kind))
    for start in (0, 285):
        compared(lambda x, start=start: part(xla.sort([-x], canonical), 1, start, start + 15), quiet)


@pytest.mark.parametrize("ties", [2, 10_000])
@pytest.mark.parametrize("count", [1, 32, 40])
def test_methods(count, ties, monkeypatch):
    monkeypatch.setattr(top_k.LONG_ROW, "default", 2000)
    monkeypatch.setattr(top_k.CHUNK, "default", 500)
    monkeypatch.setattr(top_k.WANTED_OF_CHUNK, "default", 8)
    sorts = {Method.LIST: Method.RADIX_SELECT, Method.CHUNKED_LIST: Method.CHUNKED_RADIX_SELECT}
    for length, method in ((700, Method.LIST), (2345, Method.CHUNKED_LIST)):
        x = RNG.integers(0, ties, (2, length))
        for start in (0, length - count):
            wanted = sorts[method] if count > top_k.FEW.value else method
            compared(all_parts(upwards, 1, start, start + count), x, x.astype(np.int16), method=wanted)


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_dimensions(dimension):
    shape = [3, 2, 4]
    shape[dimension] = 90
    x = RNG.integers(0, 50, shape).astype(np.float32)
    compared(all_parts(upwards, dimension, 0, 3), x, x + 1)
    compared(all_parts(downwards, dimension, 86, 89), x, x + 1)


def test_indices_alone():
    def largest(x):
        index = xla.iota(x.builder, xla.make_shape(xla.U8, x.shape.dimensions), 1)
        return part(xla.get_tuple_element(xla.sort([-x, index], canonical, 1, True), 1), 1, 0, 4)

    def turned(x):
        index = xla.iota(x.builder, xla.make_shape(xla.S64, x.shape.dimensions), 1)
        whole = xla.sort([xla.rev(x, [1]), xla.rev(index, [1])], canonical, 1, True)
        return part(xla.rev(xla.get_tuple_element(whole, 1), [1]), 1, 0, 4)

    x = any_bits(RNG, np.float32, 5, 100)
    for program in (largest, turned):
        compared(program, x)


def test_every_other_element_of_a_part():
    x = any_bits(RNG, np.float32, 6, 100)
    compared(lambda x: xla.slice(xla.sort([x], canonical), [1, 1], [6, 6], [2, 2]), x)
