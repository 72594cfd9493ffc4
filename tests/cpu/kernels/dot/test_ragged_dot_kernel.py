"""The kernel of ragged-dot, against the interpreter: groups of rows, of steps of k, and counted batches."""

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import KINDS, agree, numbers
from evaluating import build, shape_of

import xlakit as xla
from xlakit.ops.dot import DotDimensionNumbers
from xlakit.ops.dot_variants import RaggedDotDimensionNumbers

ROWS = RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], [0])
SUMS = RaggedDotDimensionNumbers(DotDimensionNumbers([1], [0]), [1], [])
BATCHES = RaggedDotDimensionNumbers(DotDimensionNumbers([2], [1], [0], [0]), [0], [])


def check(dimension_numbers, lhs, rhs, sizes, kind=np.float32, result=None):
    preferred = None if result is None else xla.PrimitiveType.from_dtype(np.dtype(result))
    agree(
        lambda a, b, g: xla.ragged_dot(a, b, g, dimension_numbers, preferred_element_type=preferred),
        numbers(kind, *lhs),
        numbers(kind, *rhs, seed=1),
        np.array(sizes) if len(sizes) else np.zeros(0, np.int32),
    )


# Empty groups, too many rows, too few, and sizes that make no sense.
SIZES = [[3, 0, 40, 17], [30, 30, 30, 30], [0, 0, 0, 1], [5, -3, 10, -20], [0, 0, 0, 0]]


@pytest.mark.parametrize("sizes", SIZES)
def test_groups(sizes):
    for kind in (np.int32, np.int8):
        given = np.array(sizes).astype(kind)
        check(ROWS, (60, 7), (4, 7, 9), given)
        check(SUMS, (5, 60), (60, 9), given)
    check(BATCHES, (60, 2, 3), (60, 3, 4), sizes)


@pytest.mark.parametrize("kind", [k for k in KINDS if k is not np.bool_] + [np.int32, np.uint8])
def test_element_types(kind):
    check(ROWS, (33, 21), (4, 21, 37), [9, 0, 13, 4], kind)
    check(SUMS, (19, 33), (33, 37), [9, 1, 13, 4], kind)
    check(BATCHES, (4, 6, 21), (4, 21, 37), [2, 1], kind)


def test_result_types():
    check(ROWS, (33, 21), (4, 21, 37), [9, 0, 13, 4], np.int8, np.int32)
    check(SUMS, (19, 33), (33, 37), [9, 1, 13, 4], ml_dtypes.bfloat16, np.float32)


def test_large_products():
    # Several tasks, blocks of rows and of k.
    check(ROWS, (700, 600), (5, 600, 300), [1, 333, 0, 200, 100])
    check(SUMS, (150, 3000), (3000, 130), [1, 1500, 700, 200])
    check(ROWS, (2, 300), (3, 300, 900), [1, 0, 1])
    check(SUMS, (1, 3000), (3000, 1), [1000, 1500])


@pytest.mark.parametrize("has_prefix", [False, True])
def test_more_dimensions(has_prefix):
    rng = np.random.default_rng(0)

    def sizes(*prefix):
        return rng.integers(0, 4, (*(prefix if has_prefix else ()), 3))

    # Rows: lhs is [free, batch, ragged, k, free], rhs is [k, group, free, batch].
    rows = RaggedDotDimensionNumbers(DotDimensionNumbers([3], [0], [1], [3]), [2], [1])
    check(rows, (2, 3, 7, 4, 5), (4, 3, 6, 3), sizes(3, 2))
    # Sums: lhs is [k, ragged, batch, free, k], rhs is [batch, k, k, ragged, free].
    sums = RaggedDotDimensionNumbers(DotDimensionNumbers([0, 1, 4], [2, 3, 1], [2], [0]), [1], [])
    check(sums, (2, 7, 3, 4, 5), (3, 5, 2, 7, 6), sizes(3, 2))
    # Batches: lhs is [batch, ragged, batch, free, k].
    batches = RaggedDotDimensionNumbers(DotDimensionNumbers([4], [0], [0, 1, 2], [3, 1, 2]), [1], [])
    check(batches, (2, 7, 3, 4, 5), (5, 7, 3, 2, 6), sizes(2))


def test_nothing_to_multiply():
    check(ROWS, (6, 0), (2, 0, 5), [3, 1])
    check(ROWS, (6, 4), (0, 4, 5), [])
    check(SUMS, (6, 0), (0, 5), [3, 1])
    check(ROWS, (0, 4), (2, 4, 5), [3, 1])


def test_each_number_of_threads_gives_the_same():
    rng = np.random.default_rng(0)
    lhs, rhs = rng.standard_normal((500, 300), np.float32), rng.standard_normal((4, 300, 400), np.float32)
    sizes = np.array([100, 7, 250, 100])
    for given, other, dimension_numbers in ((lhs, rhs, ROWS), (lhs.T.copy(), lhs, SUMS)):
        shapes = map(shape_of, (given, other, sizes))
        program = xla.compile(build(lambda a, b, g, n=dimension_numbers: xla.ragged_dot(a, b, g, n), *shapes))
        with xla.threads(1):
            alone = program(given, other, sizes)
        with xla.threads(4):
            np.testing.assert_array_equal(program(given, other, sizes), alone)
