"""Computations of two scalars, for reductions and scatters, and reductions that are several operations.

Source: ``xla/hlo/builder/lib/arithmetic.h``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xlakit.builder import XlaBuilder, XlaComputation
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.lib.constants import max_value, min_value
from xlakit.ops.data import constant, iota, parameter, tuple_
from xlakit.ops.elementwise.binary import add, and_, max, min, mul, or_
from xlakit.ops.elementwise.compare import eq, ge, gt, lt, ne
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.reduction import reduce


@building
def create_scalar_computation(
    name: str, type: PrimitiveType, generator: Callable[[XlaOp, XlaOp], XlaOp]
) -> XlaComputation:
    """The computation of ``generator`` on two scalars of ``type``, named ``name``. Source: CreateScalarComputation."""
    builder = XlaBuilder(name)
    lhs, rhs = (parameter(builder, i, Shape(type), side) for i, side in enumerate(("lhs", "rhs")))
    return builder.build(generator(lhs, rhs))


def _of_two_scalars(
    name: str, generator: Callable[[XlaOp, XlaOp], XlaOp], law: str
) -> Callable[[PrimitiveType], XlaComputation]:
    """The function that makes the computation of a binary operation for an element type."""

    def function(type: PrimitiveType) -> XlaComputation:
        return create_scalar_computation(generator.__name__.strip("_"), type, generator)

    function.__name__ = function.__qualname__ = f"create_scalar_{name}_computation"
    function.__doc__ = f"{law}. Source: CreateScalar{name.capitalize()}Computation."
    return building(function)


create_scalar_add_computation = _of_two_scalars("add", add, "(T, T) -> T: the sum")
create_scalar_multiply_computation = _of_two_scalars("multiply", mul, "(T, T) -> T: the product")
create_scalar_ge_computation = _of_two_scalars("ge", ge, "(T, T) -> PRED: whether the first is at least the second")
create_scalar_max_computation = _of_two_scalars("max", max, "(T, T) -> T: the greater one, NaN if one is")
create_scalar_min_computation = _of_two_scalars("min", min, "(T, T) -> T: the lesser one, NaN if one is")
create_scalar_and_computation = _of_two_scalars("and", and_, "(T, T) -> T for PRED and integers: both, bit by bit")
create_scalar_or_computation = _of_two_scalars("or", or_, "(T, T) -> T for PRED and integers: either, bit by bit")


@building
def create_scalar_identity_with_zero_computation(type: PrimitiveType) -> XlaComputation:
    """(T, T) -> T: a computation that gives x for x and 0: ``or`` of PRED, the sum of other types.

    Source: CreateScalarIdentityWithZeroComputation.
    """
    is_pred = type is PrimitiveType.PRED
    return create_scalar_or_computation(type) if is_pred else create_scalar_add_computation(type)


@building
def any(predicates: XlaOp) -> XlaOp:
    """PRED[]: whether an element of an array of PRED is true; false for none. Raises ShapeError. Source: Any."""
    return _fold(predicates, False)


@building
def all(predicates: XlaOp) -> XlaOp:
    """PRED[]: whether every element of an array of PRED is true; true for none. Raises ShapeError."""
    return _fold(predicates, True)


def _fold(predicates: XlaOp, start: bool) -> XlaOp:
    shape = predicates.shape
    if shape.element_type is not PrimitiveType.PRED:
        raise ShapeError(f"takes an array of pred, got {shape}", hint="compare it with ne(x, 0)")
    return reduce(predicates, start, and_ if start else or_, list(range(shape.rank)))


@building
def arg_max(input: XlaOp, output_type: PrimitiveType, axis: int) -> XlaOp:
    """The position of the greatest element along ``axis``; of equal ones, or NaNs, the first.

    input: an array of numbers in order, or PRED. output_type: an integer type. axis: from the end where negative.

    Gives an array of ``output_type`` without ``axis``: 0 where ``axis`` has no elements. Raises ShapeError.
    Source: ArgMax.
    """
    return arg_min_max(input, output_type, axis, False)


@building
def arg_min(input: XlaOp, output_type: PrimitiveType, axis: int) -> XlaOp:
    """The position of the least element along ``axis``; otherwise as :func:`arg_max`. Source: ArgMin."""
    return arg_min_max(input, output_type, axis, True)


@building
def arg_min_max(input: XlaOp, output_type: PrimitiveType, axis: int, is_min: bool) -> XlaOp:
    """:func:`arg_min` or :func:`arg_max`. Source: ArgMinMax."""
    builder, shape = input.builder, input.shape
    if not output_type.is_integral:
        raise ShapeError(f"positions are integers, not {output_type.hlo_name}", hint="take xlakit.S32")
    if not shape.is_array or not shape.rank:
        raise ShapeError(f"takes an array of rank 1 or more, got {shape}", hint="reshape a scalar to [1]")
    axis = shape.dimension_number(axis)
    positions = iota(builder, shape.without_layout().with_element_type(output_type), axis)
    worst = (max_value if is_min else min_value)(builder, shape.element_type)
    is_floating = shape.element_type.is_floating

    def first_or_second(value: XlaOp, position: XlaOp, other: XlaOp, other_position: XlaOp) -> XlaOp:
        better = (lt if is_min else gt)(value, other)
        if is_floating:
            better = or_(better, ne(value, value))
        earlier = lt(position, other_position)
        # Of two NaNs each precedes the other, and they are not equal: ties of NaNs need a condition of their own.
        tied = eq(value, other)
        if is_floating:
            tied = or_(tied, and_(ne(value, value), ne(other, other)))
        chosen = select(tied, earlier, better)
        best = select(better, value, other)
        return tuple_(value.builder, best, select(chosen, position, other_position))

    nowhere = constant(builder, np.zeros((), output_type.dtype))
    return reduce([input, positions], [worst, nowhere], first_or_second, [axis])[1]
