"""The kernel of select-and-scatter, against the interpreter."""

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import agree, numbers
from evaluating import evaluate

import xlakit as xla


def pooled(x, window, strides, padding):
    return evaluate(
        lambda x: xla.reduce_window(x, np.array(0, x.shape.element_type.dtype), xla.add, window, strides, padding), x
    )


def check(x, window, strides, padding, select=xla.ge, scatter=xla.add, start=0):
    source = numbers(x.dtype.type, *pooled(x, window, strides, padding).shape, seed=3)
    init = np.array(start, x.dtype)
    agree(lambda x, s: xla.select_and_scatter(x, select, window, strides, padding, s, init, scatter), x, source)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("channels_last", [True, False])
def test_the_gradient_of_pooling(padding, strides, channels_last):
    for window in ((2, 2), (3, 3), (1, 4)):
        if channels_last:
            check(numbers(np.float32, 2, 9, 11, 21), (1, *window, 1), (1, *strides, 1), padding)
        else:
            check(numbers(np.float32, 2, 3, 9, 31), (1, 1, *window), (1, 1, *strides), padding)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, ml_dtypes.bfloat16, np.float64])
def test_element_types_of_windows(kind):
    check(numbers(kind, 3, 20, 9), (1, 3, 1), (1, 2, 1), "SAME")


def test_nan_is_selected_as_the_computation_says():
    x = numbers(np.float32, 4, 30)
    x[1, 3::7] = np.nan
    for select in (xla.ge, xla.gt, xla.le):
        check(x, (1, 4), (1, 3), "SAME", select)
        check(x.T.copy(), (4, 1), (3, 1), "SAME", select)


def test_other_computations():
    x = numbers(np.float32, 8, 33)
    check(x, (3, 1), (2, 1), "SAME", scatter=lambda a, b: a - b * np.float32(2), start=7)
    check(x, (1, 3), (1, 1), "SAME", scatter=lambda a, b: a * np.float32(0.5) + b)
    check(x, (3, 3), (1, 1), "SAME", scatter=xla.max, start=-9)


def test_long_rows():
    check(numbers(np.float32, 3, 1500), (1, 5), (1, 2), "SAME")
    check(numbers(np.float32, 12, 1500), (5, 1), (2, 1), "SAME")
