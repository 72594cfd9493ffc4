"""The place of the greatest or the least element."""

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import agree, numbers
from evaluating import build, shape

import xlakit as xla
import xlakit.cpu.loops.nests.arg_min_max
from xlakit.builder.xla_builder import trace
from xlakit.ops.elementwise.binary import Maximum, Minimum
from xlakit.options import compiling
from xlakit.passes.analysis.arg_min_max import arg_min_max_of


def first_of(compare):
    """Keeps the pair of the better element: NaN before all, then the first of equals."""

    def keep(a, i, b, j):
        better = xla.or_(compare(a, b), xla.ne(a, a))
        first = xla.or_(better, xla.and_(xla.eq(a, b), xla.lt(i, j)))
        return xla.select(better, a, b), xla.select(first, i, j)

    return keep


def place(x, dimension, compare, start, kind=xla.S32):
    places = xla.iota(x.builder, xla.make_shape(kind, x.shape.dimensions), dimension)
    inits = [x.shape.element_type.dtype.type(start), kind.dtype.type(0)]
    found = xla.reduce([x, places], inits, first_of(compare), [dimension])
    return [xla.get_tuple_element(found, part) for part in (0, 1)]


@pytest.mark.parametrize("sizes", [(9, 20), (3, 5000), (1, 70_000), (40, 1025), (2000, 17)])
@pytest.mark.parametrize(("compare", "start"), [(xla.gt, -np.inf), (xla.lt, np.inf)])
def test_of_rows(sizes, compare, start):
    agree(lambda x: place(x, 1, compare, start), numbers(np.float32, *sizes))


@pytest.mark.parametrize("sizes", [(20, 9), (5000, 3), (100, 130)])
def test_of_columns(sizes):
    agree(lambda x: place(x, 0, xla.gt, -np.inf), numbers(np.float32, *sizes))


@pytest.mark.parametrize("sizes", [(6, 3000), (1, 50_000)])
def test_nan_and_zeros(sizes):
    x = np.full(sizes, -np.inf, np.float32)
    x[0, 1500:2500:7] = np.nan
    if len(x) > 1:
        x[1, ::2], x[1, 1::2] = 0.0, -0.0
        x[2, 1::2], x[2, ::2] = 0.0, -0.0
        x[3] = np.nan
        x[4, -1] = np.inf
    agree(lambda x: (*place(x, 1, xla.gt, -np.inf), *place(x, 1, xla.lt, np.inf)), x)


def test_of_integers():
    agree(lambda x: place(x, 1, xla.gt, -128), numbers(np.int8, 5, 3000))
    agree(lambda x: place(x, 1, xla.lt, 255), numbers(np.uint8, 5, 3000))


def test_of_what_is_computed_in_the_same_kernel():
    x, y = numbers(np.float32, 7, 2000), numbers(np.float32, 7, 2000, seed=1)
    agree(lambda x, y: xla.add(place(x * y + x, 1, xla.gt, -np.inf)[1], np.int32(3)), x, y)


@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16, np.int16])
@pytest.mark.parametrize("size", [129, 2000])
def test_of_elements_that_cost_more_than_their_comparison(kind, size):
    """Where the last step chooses a constant, as a logarithm does of 0 and below, LLVM alone makes no vectors."""
    x = np.abs(numbers(np.float32, 6, size))
    x[0, size // 2], x[1], x[2, 3:9], x[3, -1] = -1, 0, np.nan, np.inf
    x[4] = 0
    x[4, 5:7] = 1
    start, end = -np.inf, np.inf
    if kind is np.int16:
        x, (start, end) = np.abs(np.nan_to_num(x, nan=3)), (-32768, 32767)

    def best(x):
        made = xla.log(x)
        if kind is np.int16:
            made = xla.clamp(np.float32(-99), made, np.float32(99))
        made = xla.convert_element_type(made, xla.PrimitiveType.from_dtype(np.dtype(kind)))
        return (*place(made, 1, xla.gt, start), place(made, 1, xla.lt, end)[1])

    agree(best, x)


@pytest.mark.parametrize("kind", [np.float64, ml_dtypes.bfloat16, np.int32])
@pytest.mark.parametrize("sizes", [(3, 100), (2, 3, 33), (70,)])
def test_long_rows_are_looked_at_in_parts(kind, sizes):
    """The parts of a row are compared as elements are: NaN before all, then the first of equals."""
    compared = numbers(kind, *sizes)
    with_nan = compared.copy()
    if kind is not np.int32:
        with_nan.reshape(-1)[len(with_nan.reshape(-1)) // 3 :: 7] = np.nan
    start, end = (-(2**31), 2**31 - 1) if kind is np.int32 else (-np.inf, np.inf)

    def both(x):
        last = len(sizes) - 1
        return place(x, last, xla.gt, start, xla.S64)[1], place(x, last, xla.lt, end)[1]

    knobs = {"arg_min_max.block": 8, "arg_min_max.few_rows": 1000, "kernel.task_nanoseconds": 1.0}
    with compiling(knobs=knobs):
        agree(both, compared)
        agree(both, with_nan)


def test_positions_may_need_more_than_32_bits():
    # Nothing of the array is in memory.
    size, wanted = (1 << 32) + (1 << 14), (1 << 32) + 77

    def program(one):
        x = xla.not_(xla.xor(xla.iota(one.builder, shape(xla.S64, size), 0), one))
        return place(x, 0, xla.gt, -(1 << 63), xla.S64)[1]

    compiled = xla.compile(build(program, shape(xla.S64)), backend="cpu", cache=False)
    assert compiled(np.int64(wanted)) == wanted


def test_which_reducers_are_arg_min_max():
    shapes = [shape(xla.F32), shape(xla.S32)] * 2
    assert arg_min_max_of(trace(first_of(xla.gt), shapes).computation) == Maximum()
    assert arg_min_max_of(trace(first_of(xla.lt), shapes).computation) == Minimum()
    assert arg_min_max_of(trace(first_of(xla.ge), shapes).computation) == Maximum()

    def last(a, i, b, j):
        better = xla.gt(a, b)
        return xla.select(better, a, b), xla.select(better, i, j)

    assert arg_min_max_of(trace(last, shapes).computation) is None
