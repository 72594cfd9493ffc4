"""Cumulative sums and the like, against the interpreter."""

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import KINDS, agree, numbers
from evaluating import build, shape_of

import xlakit as xla
from xlakit.cpu.kernels.scan.prefix_sum import plan_prefix_sum
from xlakit.options import compiling


def cumulative(combine, start, axis, *, reverse=False):
    def function(x):
        rank, size = x.shape.rank, x.shape.dimensions[axis]
        window, padding = [1] * rank, [(0, 0)] * rank
        window[axis], padding[axis] = size, (0, size - 1) if reverse else (size - 1, 0)
        init = np.array(start).astype(x.shape.element_type.dtype)
        return xla.reduce_window_with_general_padding(x, init, combine, window, [1] * rank, [], [], padding)

    return function


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("sizes", "axis"),
    [
        ((1000,), 0),
        ((5000,), 0),
        ((100_003,), 0),
        ((9, 300), 1),
        ((70, 129), 1),
        ((3, 40_000), 1),
        ((300, 9), 0),
        ((5, 60, 7), 1),
        ((2, 70_000, 3), 1),
        ((40, 2, 700), 0),
    ],
)
def test_sums(sizes, axis, reverse):
    function = cumulative(xla.add, 0, axis, reverse=reverse)
    x = numbers(np.float32, *sizes)
    assert plan_prefix_sum(build(function, shape_of(x)).computation.root) is not None
    agree(function, x)


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in (np.bool_, ml_dtypes.bfloat16, np.float16)])
@pytest.mark.parametrize("sizes", [(3000,), (20, 50), (50, 20)])
def test_element_types(kind, sizes):
    agree(cumulative(xla.add, 0, 0), numbers(kind, *sizes))


@pytest.mark.parametrize("kind", [np.int8, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("sizes", [(70_000,), (20, 50)])
def test_running_minima_and_maxima(kind, sizes):
    x = np.random.default_rng(0).permutation(np.prod(sizes)).reshape(sizes).astype(kind)
    agree(cumulative(xla.max, -100, 0), x)
    agree(cumulative(xla.min, 100, 0, reverse=True), x)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [(3001,), (40, 1300), (1300, 40)])
def test_the_order_of_elements_is_kept(sizes, reverse):
    # The last element that is not zero: associative, but not commutative.
    def last(a, b):
        return xla.select(xla.ne(b, xla.zeros_like(b) if hasattr(xla, "zeros_like") else np.int32(0)), b, a)

    x = np.random.default_rng(0).integers(0, 4, sizes).astype(np.int32)
    agree(cumulative(last, 0, len(sizes) - 1, reverse=reverse), x)


def test_an_initial_value_counts_once():
    for sizes in ((70_000,), (4, 30_000), (50, 60)):
        agree(cumulative(xla.add, 5, len(sizes) - 1), numbers(np.int32, *sizes))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.int32, np.uint64])
def test_rows_in_registers(kind, reverse):
    x = np.random.default_rng(0).integers(0, 3, (9, 1400)) * 2 + 1
    agree(cumulative(xla.add, 0, 1, reverse=reverse), x.astype(kind))
    agree(cumulative(xla.max, 0, 1, reverse=reverse), x.astype(kind))
    if np.issubdtype(kind, np.integer):
        agree(cumulative(xla.mul, 1, 1, reverse=reverse), x.astype(kind))


def test_signs_of_zeros_and_nans_in_registers():
    x = np.full(1000, -0.0, np.float32)
    function = cumulative(xla.add, -0.0, 0)
    computation = build(function, shape_of(x))
    assert np.signbit(xla.compile(computation, backend="cpu")(x)).all()
    x[600] = np.nan
    agree(function, x)
    agree(cumulative(xla.max, -np.inf, 0), x)


def test_short_sequences_side_by_side_have_no_empty_segments():
    text = """HloModule sums
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
ENTRY e {
  a = f32[6,3000] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[6,3000] reduce-window(a, zero), window={size=6x1 pad=5_0x0_0}, to_apply=add
}"""
    given = np.arange(18000, dtype=np.float32).reshape(6, 3000)
    with compiling(knobs={"prefix_sum.segment_elements": 4}):
        program = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    np.testing.assert_array_equal(program(given), np.cumsum(given, 0))
