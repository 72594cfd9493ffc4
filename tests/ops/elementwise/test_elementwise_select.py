"""The page of select and clamp."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ir.instruction import infer_shape
from xlakit.ops.registry import OPERATIONS

nan = np.nan


def pred(*dimensions):
    return xla.make_shape(xla.PRED, dimensions)


def test_select_of_numbers():
    same(evaluate(lambda x: xla.select(x > 0, x, 0), floats([-1, 2])), floats([0, 2]))
    same(evaluate(lambda p: xla.select(p, 1, 0), np.array([True, False])), ints([1, 0]))
    assert infer(lambda p: xla.select(p, 1.0, 0.0), pred(2, 3)) == "f32[2,3]"


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e4m3fn, np.complex64])
def test_select_of_other_types(dtype):
    a, b = np.array([1, 2], np.int8).astype(dtype), np.array([3, 4], np.int8).astype(dtype)
    chosen = evaluate(xla.select, np.array([True, False]), a, b)
    same(chosen, np.array([1, 4], np.int8).astype(dtype))


def test_select_between_tuples():
    def program(p, a, b):
        left = xla.tuple_(a, xla.tuple_(b))
        right = xla.tuple_(b, xla.tuple_(a))
        return xla.select(p, left, right)

    first, (second,) = evaluate(program, np.array(False), ints([1]), ints([2]))
    same(first, ints([2]))
    same(second, ints([1]))
    refused("scalar pred", lambda p, a: xla.select(p, xla.tuple_(a), xla.tuple_(a)), pred(2), f32(2))
    refused("same shape", lambda p, a, b: xla.select(p, xla.tuple_(a), xla.tuple_(b)), pred(), f32(2), f32(3))


def test_select_refuses():
    refused("element type pred", xla.select, s32(2), f32(2), f32(2))
    refused("size", xla.select, pred(3), f32(2), f32(2))
    refused("size", xla.select, pred(2), f32(2), f32(3))
    refused("different element types", xla.select, pred(2), f32(2), s32(2))


def test_clamp_between_scalars_and_arrays():
    same(evaluate(lambda x: xla.clamp(0, x, 6), ints([-1, 5, 9])), ints([0, 5, 6]))
    same(evaluate(xla.clamp, ints([0, 6]), ints([-1, 9]), ints([5, 7])), ints([0, 7]))
    same(evaluate(xla.clamp, ints(5), ints([7, -1]), ints(3)), ints([3, 3]))
    values = np.array([-8, 7], ml_dtypes.int4)
    same(evaluate(lambda x: xla.clamp(-1, x, 1), values), np.array([-1, 1], ml_dtypes.int4))
    same(
        evaluate(lambda x: xla.clamp(-1, x, 1), values.astype(ml_dtypes.bfloat16)),
        np.array([-1, 1], ml_dtypes.bfloat16),
    )


def test_nan_wins_in_clamp():
    same(evaluate(xla.clamp, floats(0), floats([nan, 2]), floats(1)), floats([nan, 1]))
    same(evaluate(xla.clamp, floats(nan), floats([1, 2]), floats(1)), floats([nan, nan]))
    same(evaluate(xla.clamp, floats(0), floats([1, 2]), floats(nan)), floats([nan, nan]))


def test_clamp_refuses():
    complex64 = xla.make_shape(xla.C64, (2,))
    refused("pred or real", xla.clamp, complex64, complex64, complex64)
    refused("size", xla.clamp, f32(3), f32(2), f32())
    refused("different element types", xla.clamp, f32(), s32(2), f32())


def test_a_dynamic_dimension_of_any_operand_makes_the_result_dynamic():
    shapes = [pred(4), f32(4), f32(4, dynamic=(True,))]
    assert str(infer_shape(OPERATIONS["select"](), shapes, None)) == "f32[<=4]"
