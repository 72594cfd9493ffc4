"""Operations that call computations, and gathers, scatters and sorts."""

from __future__ import annotations

from typing import Any

from xlakit.compat.xla_client.ops import composed
from xlakit.compat.xla_client.ops.operations import (
    Builder,
    Computation,
    Computations,
    Ints,
    Op,
    Ops,
    Pairs,
    Record,
    operation,
    overloaded,
)
from xlakit.compat.xla_client.ops.records import gather_numbers_of, scatter_numbers_of
from xlakit.errors import ShapeError
from xlakit.ops import control, gather, reduction, scatter, sort, windows
from xlakit.ops.elementwise import compare


@operation
def Call(builder: Builder, computation: Computation, operands: Ops) -> Op:
    """The result of a computation."""
    return control.call(builder, computation, list(operands))


def _conditional_by_index(branch_index: Op, branch_computations: Computations, branch_operands: Ops) -> Op:
    return control.conditional(branch_index, list(branch_computations), list(branch_operands))


def _conditional_by_predicate(
    predicate: Op,
    true_operand: Op,
    true_computation: Computation,
    false_operand: Op,
    false_computation: Computation,
) -> Op:
    return control.conditional(predicate, true_operand, true_computation, false_operand, false_computation)


@overloaded(operation(_conditional_by_index), operation(_conditional_by_predicate))
def Conditional(*args: Any, **kwargs: Any) -> Op:
    """The result of one of several computations.

    Conditional(branch_index, branch_computations, branch_operands), or Conditional(predicate, true_operand,
    true_computation, false_operand, false_computation).
    """


@operation
def While(condition: Computation, body: Computation, init: Op) -> Op:
    """The value after ``body`` was applied to it while ``condition`` holds for it."""
    return control.while_(condition, body, init)


@operation
def Map(builder: Builder, operands: Ops, computation: Computation, dimensions: Ints, static_operands: Ops = ()) -> Op:
    """A computation on scalars, applied to the elements of arrays."""
    return reduction.map(list(operands), computation, dimensions)


@operation
def Reduce(
    builder: Builder, operands: Ops, init_values: Ops, computation: Computation, dimensions_to_reduce: Ints
) -> Op:
    """The elements along dimensions, combined by a computation; of several arrays together a tuple."""
    return reduction.reduce(list(operands), list(init_values), computation, dimensions_to_reduce)


def _reduce_window(
    operand: Op,
    init_value: Op,
    computation: Computation,
    window_dimensions: Ints,
    window_strides: Ints,
    base_dilations: Ints,
    window_dilations: Ints,
    padding: Pairs,
) -> Op:
    return windows.reduce_window_with_general_padding(
        operand, init_value, computation, window_dimensions, window_strides, base_dilations, window_dilations, padding
    )


def _reduce_windows(
    operands: Ops,
    init_values: Ops,
    computation: Computation,
    window_dimensions: Ints,
    window_strides: Ints,
    base_dilations: Ints,
    window_dilations: Ints,
    padding: Pairs,
) -> Op:
    return windows.reduce_window_with_general_padding(
        list(operands),
        list(init_values),
        computation,
        window_dimensions,
        window_strides,
        base_dilations,
        window_dilations,
        padding,
    )


@overloaded(operation(_reduce_window), operation(_reduce_windows))
def ReduceWindowWithGeneralPadding(*args: Any, **kwargs: Any) -> Op:
    """The elements of each placement of a window, combined by a computation.

    Takes operand and init_value, or operands and init_values, and then computation, window_dimensions, window_strides,
    base_dilations, window_dilations and padding.
    """


@operation
def SelectAndScatterWithGeneralPadding(
    operand: Op,
    select: Computation,
    window_dimensions: Ints,
    window_strides: Ints,
    padding: Pairs,
    source: Op,
    init_value: Op,
    scatter: Computation,
) -> Op:
    """Elements of ``source`` added where ``select`` chooses an element of the window."""
    return windows.select_and_scatter_with_general_padding(
        operand, select, window_dimensions, window_strides, padding, source, init_value, scatter
    )


@operation
def Gather(
    a: Op, start_indices: Op, dimension_numbers: Record, slice_sizes: Ints, indices_are_sorted: bool = False
) -> Op:
    """Slices of an array at positions that are values."""
    return gather.gather(a, start_indices, gather_numbers_of(dimension_numbers), slice_sizes, indices_are_sorted)


def _scatter_one(
    input: Op,
    scatter_indices: Op,
    updates: Op,
    update_computation: Computation,
    dimension_numbers: Record,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Op:
    numbers = scatter_numbers_of(dimension_numbers)
    return scatter.scatter(
        input, scatter_indices, updates, update_computation, numbers, indices_are_sorted, unique_indices
    )


def _scatter_several(
    inputs: Ops,
    scatter_indices: Op,
    updates: Ops,
    update_computation: Computation,
    dimension_numbers: Record,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Op:
    numbers = scatter_numbers_of(dimension_numbers)
    return scatter.scatter(
        list(inputs), scatter_indices, list(updates), update_computation, numbers, indices_are_sorted, unique_indices
    )


@overloaded(operation(_scatter_one), operation(_scatter_several))
def Scatter(*args: Any, **kwargs: Any) -> Op:
    """Updates combined with the elements of an array at positions that are values.

    Takes input, scatter_indices and updates, or inputs, scatter_indices and updates in lists, and then
    update_computation, dimension_numbers, indices_are_sorted and unique_indices.
    """


@operation
def Sort(
    builder: Builder,
    operands: Ops,
    comparator: Computation | None = None,
    dimension: int = -1,
    is_stable: bool = False,
) -> Op:
    """Arrays sorted along a dimension, the last by default, in the order of the first, or of a comparator."""
    if not operands:
        raise ShapeError("takes at least one array", hint="give the keys first")
    return sort.sort(
        list(operands),
        composed.order(operands, "compare-less-than", compare.lt_total_order) if comparator is None else comparator,
        dimension,
        is_stable,
    )


@operation
def TopK(input: Op, k: int) -> Op:
    """The largest elements of the last dimension, and their positions, as a tuple."""
    return composed.top_k(input, k)
