"""Gather: batching dimensions, index types, clamping and every rule of its shapes."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import compiled, evaluate, infer, refused, same, shape

import xlakit as xla
from xlakit.ops.gather import GatherDimensionNumbers

TEN = np.arange(10, dtype=np.float32)
THREES = {"offset_dims": [1], "start_index_map": [0], "index_vector_dim": 1, "slice_sizes": [3]}


@pytest.mark.parametrize(
    ("kind", "starts", "clamped"),
    [
        (np.int8, [5, -1, 127, -128], [5, 0, 7, 0]),
        (np.uint8, [5, 255, 128], [5, 7, 7]),
        (np.int32, [5, -(2**31), 2**31 - 1], [5, 0, 7]),
        (np.uint32, [5, 2**31 + 5, 2**32 - 1], [5, 7, 7]),
        (np.int64, [5, -(2**63), 2**63 - 1], [5, 0, 7]),
        (np.uint64, [5, 2**63 + 5, 2**64 - 1], [5, 7, 7]),
        (ml_dtypes.int4, [5, -8, 7], [5, 0, 7]),
        (ml_dtypes.uint4, [5, 15, 8], [5, 7, 7]),
    ],
)
def test_slices_are_moved_inside_for_every_index_type(kind, starts, clamped):
    result = evaluate(lambda o, i: xla.gather(o, i, **THREES), TEN, np.array(starts, dtype=kind))
    same(result, np.stack([TEN[s : s + 3] for s in clamped]))


def test_batching_dimensions_run_along():
    operand = np.arange(2 * 3 * 4, dtype=np.int32).reshape(2, 3, 4)
    indices = np.array([[[3], [0]], [[1], [9]], [[2], [2]]], dtype=np.int64)  # [3, 2, 1]: dimensions 1 and 0 swapped
    result = evaluate(
        lambda o, i: xla.gather(
            o,
            i,
            offset_dims=[],
            collapsed_slice_dims=[2],
            start_index_map=[2],
            operand_batching_dims=[0, 1],
            start_indices_batching_dims=[1, 0],
            slice_sizes=[1, 1, 1],
        ),
        operand,
        indices,
    )
    expected = [[operand[b, a, min(int(indices[a, b, 0]), 3)] for b in range(2)] for a in range(3)]
    same(result, np.array(expected, dtype=np.int32))


def test_offset_dimensions_may_stand_anywhere():
    operand = np.arange(20, dtype=np.float64).reshape(4, 5)
    result = evaluate(
        lambda o, i: xla.gather(
            o,
            i,
            offset_dims=[0, 2],
            collapsed_slice_dims=[],
            start_index_map=[1, 0],
            index_vector_dim=0,
            slice_sizes=[2, 3],
        ),
        operand,
        np.array([[1, 0, 2], [2, 0, 1]], dtype=np.int32),
    )
    expected = np.stack([operand[2:4, 1:4], operand[0:2, 0:3], operand[1:3, 2:5]], axis=1)
    same(result, expected)


def test_no_indices_slices_of_nothing_and_scalars():
    none = np.zeros((0,), np.int32)
    same(evaluate(lambda o, i: xla.gather(o, i, **THREES), TEN, none), np.zeros((0, 3), np.float32))
    empty = {**THREES, "slice_sizes": [0]}
    same(evaluate(lambda o, i: xla.gather(o, i, **empty), TEN, np.array([4], np.int32)), np.zeros((1, 0), np.float32))
    scalar = {"offset_dims": [], "start_index_map": [], "index_vector_dim": 1, "slice_sizes": []}
    indices = np.zeros((2, 0), np.int32)
    same(evaluate(lambda o, i: xla.gather(o, i, **scalar), np.float32(7), indices), np.full(2, 7, np.float32))


def test_the_operand_is_not_changed_and_dimension_numbers_may_come_at_once():
    numbers = GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(), start_index_map=(0,), index_vector_dim=1
    )
    result = evaluate(lambda o, i: xla.gather(o, i, numbers, (2,)), TEN, np.array([8, 1], np.int32))
    same(result, np.array([[8, 9], [1, 2]], np.float32))


def test_dynamic_dimensions_go_along():
    operand = xla.make_shape(xla.F32, (8, 4), dynamic_dimensions=(False, True))
    indices = xla.make_shape(xla.S32, (6,), dynamic_dimensions=(True,))
    numbers = {"collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1, "offset_dims": [1]}
    assert infer(lambda o, i: xla.gather(o, i, slice_sizes=[1, 4], **numbers), operand, indices) == "f32[<=6,<=4]"
    assert infer(lambda o, i: xla.gather(o, i, slice_sizes=[1, 3], **numbers), operand, indices) == "f32[<=6,3]"


ROWS = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "slice_sizes": [1, 5]}


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("ascending", {"offset_dims": [2, 1], "collapsed_slice_dims": [], "slice_sizes": [1, 1]}),
        ("ascending", {"offset_dims": [], "collapsed_slice_dims": [1, 0], "slice_sizes": [1, 1]}),
        ("repeats", {"offset_dims": [1, 1], "collapsed_slice_dims": []}),
        ("offset_dims names dimension 2", {"offset_dims": [2]}),
        ("start_index_map has 2", {"start_index_map": [0, 1]}),
        ("start_index_map names dimension 2", {"start_index_map": [2]}),
        ("collapsed_slice_dims names dimension -1", {"collapsed_slice_dims": [-1]}),
        ("do not cover", {"collapsed_slice_dims": []}),
        ("one size for each", {"slice_sizes": [1]}),
        ("from 0 to 5", {"slice_sizes": [1, 6]}),
        ("from 0 to 5", {"slice_sizes": [1, -1]}),
        ("must be 1 or 0", {"slice_sizes": [2, 5]}),
        ("index_vector_dim 3", {"index_vector_dim": 3}),
        ("index_vector_dim -1", {"index_vector_dim": -1}),
        ("pair up", {"operand_batching_dims": [0], "collapsed_slice_dims": []}),
        (
            "names index_vector_dim",
            {"operand_batching_dims": [0], "start_indices_batching_dims": [1], "collapsed_slice_dims": []},
        ),
        (
            "repeats",
            {
                "operand_batching_dims": [0],
                "start_indices_batching_dims": [0],
                "start_index_map": [1],
                "offset_dims": [],
            },
        ),
    ],
)
def test_rules(words, change):
    refused(words, lambda o, i: xla.gather(o, i, **{**ROWS, **change}), shape(xla.F32, 7, 5), shape(xla.S32, 7, 1))


BATCHES = {
    "offset_dims": [1],
    "operand_batching_dims": [0],
    "start_indices_batching_dims": [0],
    "start_index_map": [1],
    "slice_sizes": [1, 2],
}


def test_batching_dimensions_have_the_same_size():
    words = (
        "operand_batching_dims names dimension 0 of size 4, start_indices_batching_dims for it dimension 0 of size 7"
    )
    refused(words, lambda o, i: xla.gather(o, i, **BATCHES), shape(xla.F32, 4, 5), shape(xla.S32, 7, 1))


def test_the_place_in_a_dimension_comes_from_one_source():
    words = r"start_index_map \[0\] and operand_batching_dims \[0\] both name dimension 0"
    numbers = {**BATCHES, "start_index_map": [0]}
    refused(words, lambda o, i: xla.gather(o, i, **numbers), shape(xla.F32, 4, 5), shape(xla.S32, 4, 1))


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize(
    "indices",
    [
        "  i = s32[{count},1] copy(p1)",
        "  i = s32[{count},1] iota(), iota_dimension=0",
        "  i = s32[{count},1] constant({values})",
    ],
)
@pytest.mark.parametrize(
    "operand",
    ["  o = f32[{rows},5] copy(p0)", "  s = f32[] constant(7)\n  o = f32[{rows},5] broadcast(s), dimensions={{}}"],
)
@pytest.mark.parametrize("count", [1, 2])
def test_slices_without_elements_of_a_collapsed_dimension_give_zeros(rows, indices, operand, count):
    values = "{" + ",".join("{1}" for _ in range(count)) + "}"
    lines = [line.format(rows=rows, count=count, values=values) for line in (operand, indices)]
    text = "\n".join(
        [
            "HloModule m\nENTRY e {",
            f"  p0 = f32[{rows},5] parameter(0)",
            f"  p1 = s32[{count},1] parameter(1)",
            *lines,
            f"  ROOT g = f32[{count},5] gather(o, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
            "start_index_map={0}, index_vector_dim=1, slice_sizes={0,5}\n}",
        ]
    )
    given = [np.full((rows, 5), 7, np.float32), np.ones((count, 1), np.int32)]
    same(compiled(xla.HloModule.from_text(text))(*given), np.zeros((count, 5), np.float32))


def test_indices_are_integers():
    refused("integers", lambda o, i: xla.gather(o, i, **ROWS), shape(xla.F32, 4, 5), shape(xla.F32, 7, 1))
    refused("integers", lambda o, i: xla.gather(o, i, **ROWS), shape(xla.F32, 4, 5), shape(xla.PRED, 7, 1))
