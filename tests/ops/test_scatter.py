"""Scatter: windows that reach outside, duplicates, types and every rule of its shapes."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, infer, refused, same, shape

import xlakit as xla

ELEMENTS = {"inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1}
WINDOWS = {"update_window_dims": [1], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1}


def scatter(update, **numbers):
    return lambda o, i, u: xla.scatter(o, i, u, update, **numbers)


@pytest.mark.parametrize(
    ("kind", "starts"),
    [
        (np.int32, [-1, 4, 1]),
        (np.int8, [-128, 127, 1]),
        (np.uint8, [255, 128, 1]),
        (np.uint32, [2**32 - 1, 2**31, 1]),
        (np.uint64, [2**64 - 1, 2**63, 1]),
        (np.int64, [-(2**63), 2**63 - 1, 1]),
    ],
)
def test_a_window_that_reaches_outside_is_dropped_whole(kind, starts):
    updates = np.ones((3, 3), np.float32)
    result = evaluate(scatter(xla.add, **WINDOWS), np.zeros(6, np.float32), np.array(starts, kind), updates)
    same(result, np.array([0, 1, 1, 1, 0, 0], np.float32))


@pytest.mark.parametrize(("update", "least"), [(xla.max, False), (xla.min, True)])
@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [1, 3])
def test_extremes_of_many_updates(update, least, kind, columns):
    rng = np.random.default_rng(columns)
    choices = np.array([-1, -0.0, 0.0, 1, np.nan]) * (-1 if least else 1)
    operand = rng.choice(choices, (8, columns), p=[0.3, 0.4, 0.2, 0.05, 0.05]).astype(kind)
    updates = rng.choice(choices, (60, columns), p=[0.6, 0.32, 0.04, 0.02, 0.02]).astype(kind)
    places = rng.integers(-1, 9, 60).astype(np.int32)
    expected = operand.astype(np.float64)
    for place, row in zip(places, updates.astype(np.float64), strict=True):
        if 0 <= place < 8:
            best = np.minimum(expected[place], row) if least else np.maximum(expected[place], row)
            negative = (np.logical_or if least else np.logical_and)(np.signbit(expected[place]), np.signbit(row))
            expected[place] = np.where(best == 0, np.where(negative, -0.0, 0.0), best)
    numbers = {"update_window_dims": [1], **ELEMENTS}
    same(evaluate(scatter(update, **numbers), operand, places, updates), expected.astype(kind))


def test_many_updates_of_one_place():
    updates = np.random.default_rng(0).standard_normal(300_000).astype(np.float32)
    same(
        evaluate(scatter(xla.max, **ELEMENTS), np.zeros(2, np.float32), np.zeros(updates.shape, np.int32), updates),
        np.array([updates.max(), 0], np.float32),
    )


def test_a_computation_that_keeps_the_first_keeps_the_operand():
    operand = np.arange(4, dtype=np.int32)
    result = evaluate(
        scatter(lambda a, b: a, **ELEMENTS), operand, np.array([1, 1], np.int32), np.array([8, 9], np.int32)
    )
    same(result, operand)


@pytest.mark.parametrize(
    "kind",
    [
        *(np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64, np.complex64, np.complex128),
        *(ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2),
    ],
)
@pytest.mark.parametrize(("update", "combined"), [(xla.add, [3, 0, 1, 3]), (xla.mul, [1, 0, 1, 1])])
def test_sums_and_products_of_every_type(kind, update, combined):
    operand = np.array([1, 0, 1, 1]).astype(kind)
    indices, updates = np.array([0, 0, 1, 3, 3, 9], np.int32), np.array([1, 1, 0, 1, 1, 0]).astype(kind)
    same(evaluate(scatter(update, **ELEMENTS), operand, indices, updates), np.array(combined).astype(kind))


@pytest.mark.reference
def test_sums_of_small_floats_are_rounded_once():
    updates = np.full(1000, 1, ml_dtypes.bfloat16)
    result = evaluate(scatter(xla.add, **ELEMENTS), np.zeros(1, ml_dtypes.bfloat16), np.zeros(1000, np.int32), updates)
    same(result, np.array([1000], ml_dtypes.bfloat16))


def test_sums_begin_with_what_is_there():
    # In any other order the large numbers do not cancel before the small one is added.
    updates = np.array([-1e30, 1.0])
    result = evaluate(scatter(xla.add, **ELEMENTS), np.array([5.0, 1e30]), np.array([1, 1], np.int32), updates)
    same(result, np.array([5.0, 1.0]))


def test_maximum_keeps_nan():
    updates = np.array([2, np.nan, 1], np.float32)
    result = evaluate(scatter(xla.max, **ELEMENTS), np.zeros(3, np.float32), np.array([0, 1, 1], np.int32), updates)
    same(result, np.array([2, np.nan, 0], np.float32))


def test_several_operands_go_together():
    def larger(a, i, b, j):
        keep = xla.ge(a, b)
        return xla.select(keep, a, b), xla.select(keep, i, j)

    def program(values, places, indices, new_values, new_places):
        return xla.scatter([values, places], indices, [new_values, new_places], larger, **ELEMENTS)

    values, places = evaluate(
        program,
        np.zeros(3, np.float32),
        np.full(3, -1, np.int32),
        np.array([0, 2, 0, 0], np.int64),
        np.array([5, -1, 9, 9], np.float32),
        np.arange(4, dtype=np.int32),
    )
    same(values, np.array([9, 0, 0], np.float32))
    same(places, np.array([2, -1, -1], np.int32))


def test_batching_dimensions_run_along():
    operand, indices = np.zeros((2, 3), np.int32), np.array([[2, 2, 0], [1, 3, 1]], np.int32)
    updates = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    result = evaluate(
        scatter(
            xla.add,
            inserted_window_dims=[1],
            scatter_dims_to_operand_dims=[1],
            input_batching_dims=[0],
            scatter_indices_batching_dims=[0],
            index_vector_dim=2,
        ),
        operand,
        indices,
        updates,
    )
    same(result, np.array([[3, 0, 3], [0, 10, 0]], np.int32))


def test_nothing_to_scatter():
    operand = np.arange(3, dtype=np.float32)
    same(evaluate(scatter(xla.add, **ELEMENTS), operand, np.zeros(0, np.int32), np.zeros(0, np.float32)), operand)
    same(evaluate(scatter(xla.add, **WINDOWS), operand, np.zeros(2, np.int32), np.zeros((2, 0), np.float32)), operand)


ROWS = {
    "update_window_dims": [1],
    "inserted_window_dims": [0],
    "scatter_dims_to_operand_dims": [0],
    "index_vector_dim": 1,
}
SHAPES = (shape(np.float32, 4, 5), shape(np.int32, 7, 1), shape(np.float32, 7, 5))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("must have rank", {"update_window_dims": [0, 1], "inserted_window_dims": []}),
        ("update_window_dims names dimension 2", {"update_window_dims": [2]}),
        ("inserted_window_dims names dimension 2", {"inserted_window_dims": [2]}),
        ("do not cover", {"inserted_window_dims": []}),
        ("scatter_dims_to_operand_dims has 2", {"scatter_dims_to_operand_dims": [0, 1]}),
        ("scatter_dims_to_operand_dims names dimension 3", {"scatter_dims_to_operand_dims": [3]}),
        ("index_vector_dim 4", {"index_vector_dim": 4}),
        ("pair up", {"input_batching_dims": [0], "inserted_window_dims": []}),
        ("more than the 4", {"inserted_window_dims": [1]}),
    ],
)
def test_rules(words, change):
    refused(words, scatter(xla.add, **{**ROWS, **change}), *SHAPES)


def test_batching_dimensions_have_the_same_size_and_no_index():
    numbers = {
        "update_window_dims": [1],
        "input_batching_dims": [0],
        "scatter_indices_batching_dims": [0],
        "scatter_dims_to_operand_dims": [1],
        "index_vector_dim": 1,
    }
    words = (
        "input_batching_dims names dimension 0 of size 4, scatter_indices_batching_dims for it dimension 0 of size 7"
    )
    refused(words, scatter(xla.add, **numbers), *SHAPES)
    equal = shape(np.float32, 7, 5), *SHAPES[1:]
    assert infer(scatter(xla.add, **numbers), *equal) == "f32[7,5]"
    numbers["scatter_dims_to_operand_dims"] = [0]
    refused("both name dimension 0", scatter(xla.add, **numbers), *equal)


def test_rules_of_shapes_and_types():
    refused("scatter_indices has 7", scatter(xla.add, **ROWS), *SHAPES[:2], shape(np.float32, 8, 5))
    refused("integers", scatter(xla.add, **ROWS), SHAPES[0], shape(np.float32, 7, 1), SHAPES[2])
    refused("computation", scatter(xla.lt, **ROWS), *SHAPES)
    refused("2 operands have 1 updates", lambda o, i, u: xla.scatter([o, o], i, u, xla.add, **ROWS), *SHAPES)
    assert infer(scatter(xla.add, **ROWS), *SHAPES) == "f32[4,5]"
