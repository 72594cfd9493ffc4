"""A dot of two long vectors as a sum that many threads share."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla
from xlakit.ops.dot import DotDimensionNumbers

SIZE = 1 << 17


def vectors(kind, *sizes):
    rng = np.random.default_rng(0)
    return [rng.integers(-3, 4, sizes).astype(kind) for _ in range(2)]


def check(function, *operands):
    compiled = xla.compile(build(function, *map(shape_of, operands)), backend="cpu")
    expected = xla.compile(build(function, *map(shape_of, operands)), backend="interpreter")(*operands)
    for threads in (1, 4):
        with xla.threads(threads):
            found = compiled(*operands)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        # Sums begin with 0.
        assert not np.signbit(found.real.astype(np.float64)[found == 0]).any()
    return compiled.as_text()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32, np.int64])
def test_element_types(kind):
    assert "dot(" not in check(xla.dot, *vectors(kind, SIZE + 3))


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("size", [1, 7, 1031])
def test_complex_vectors_of_any_length(kind, size):
    (a, b), (c, d) = vectors(kind, size), vectors(kind, size)
    found = check(xla.dot, a + 1j * b[::-1], d - 1j * c)
    assert "dot(" not in found


def test_result_types():
    x, y = vectors(np.int8, SIZE)
    assert "dot(" not in check(lambda a, b: xla.dot(a, b, preferred_element_type=xla.S32), x, y)
    x, y = vectors(ml_dtypes.bfloat16, SIZE)
    assert "dot(" not in check(lambda a, b: xla.dot(a, b, preferred_element_type=xla.F32), x, y)


def test_dimensions():
    x, y = vectors(np.float32, 1, 512, 1, 300)
    numbers = DotDimensionNumbers([3, 1], [2, 0])
    found = check(lambda a, b: xla.dot_general(a, b, numbers), x, y.transpose(1, 0, 3, 2).copy())
    assert "dot(" not in found


def test_what_stays_a_dot():
    x, y = vectors(np.float32, SIZE // 2)
    assert "dot(" in check(xla.dot, x, y)
    x, y = vectors(np.float32, 2, SIZE)
    assert "dot(" in check(lambda a, b: xla.dot_general(a, b, DotDimensionNumbers([1], [1])), x, y)


KINDS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32, np.complex64, np.complex128]


@pytest.mark.parametrize("kind", KINDS)
def test_one_sum_for_each_member_of_a_batch(kind):
    for numbers in (([1], [1], [0], [0]), ([0], [0], [1], [1]), ([1, 2], [1, 2], [0], [0]), ([0, 2], [0, 2], [1], [1])):
        x, y = vectors(kind, *(5, 31, 3)[: 2 + max(numbers[0]) // 2])
        found = check(lambda a, b, n=numbers: xla.dot_general(a, b, DotDimensionNumbers(*n)), x, y)
        assert "dot(" not in found


@pytest.mark.parametrize("kind", KINDS)
def test_outer_products_are_products_of_elements(kind):
    x, y = vectors(kind, 3, 1, 37)
    x[0, 0, :4], y[0, 0, :4] = 0, np.array(-1).astype(kind)
    for numbers in (([1], [1], [0], [0]), ([1], [1]), ([], [], [0, 1], [0, 1]), ([1], [1], [2, 0], [2, 0])):
        found = check(lambda a, b, n=numbers: xla.dot_general(a, b, DotDimensionNumbers(*n)), x, y)
        assert "dot(" not in found
