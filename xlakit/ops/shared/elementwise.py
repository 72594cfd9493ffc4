"""The bases of element-wise operations: the element types that they take, and the shapes of their results.

Source: XLA's document "Operation semantics", sections on element-wise binary arithmetic and unary functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from xlakit.data.primitive import PrimitiveType, higher_precision, same_type_family
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.operation import Array, Evaluation, Op, Value
from xlakit.ir.traits import Elementwise
from xlakit.ops.handle import OperandLike, XlaOp, as_ops, building, emit
from xlakit.ops.shared.broadcasting import broadcast_together
from xlakit.ops.shared.numerics import convert


@dataclass(frozen=True, slots=True)
class Types:
    """A set of element types, with its description for errors."""

    words: str
    holds: Callable[[PrimitiveType], bool]

    def check(self, shape: Shape, what: str = "operand") -> None:
        """Raise ShapeError unless ``shape`` is an array of one of these types."""
        check_array(shape, what)
        if not self.holds(shape.element_type):
            raise ShapeError(
                f"{what} must have an element type that is {self.words}, has {shape.element_type.hlo_name}",
                hint="convert it first, with convert_element_type",
            )


ANY = Types("known", lambda t: True)
FLOATING = Types("floating point", lambda t: t.is_floating)
FLOATING_OR_COMPLEX = Types("floating point or complex", lambda t: t.is_floating or t.is_complex)
INTEGRAL = Types("integral", lambda t: t.is_integral)
PRED_OR_INTEGRAL = Types("pred or integral", lambda t: t.is_integral or t is PrimitiveType.PRED)
SIGNED = Types("signed integral, floating point or complex", lambda t: t.is_signed or t.is_floating or t.is_complex)
NUMERIC = Types("numeric (not pred)", lambda t: t is not PrimitiveType.PRED)
ORDERED = Types("pred or real", lambda t: not t.is_complex)
REAL_NUMERIC = Types("real (not pred)", lambda t: not t.is_complex and t is not PrimitiveType.PRED)


def check_array(shape: Shape, what: str = "operand") -> None:
    """Raise ShapeError unless ``shape`` is an array."""
    if not shape.is_array:
        raise ShapeError(
            f"{what} must be an array, is {shape}", hint="take an array out of a tuple with get_tuple_element"
        )


def common_element_type(shapes: Sequence[Shape]) -> PrimitiveType:
    """The one element type of all; of floating point types that differ, the one of most range and precision."""
    kinds = [shape.element_type for shape in shapes]
    found = kinds[0]
    for kind in kinds[1:]:
        if not same_type_family(kind, found):
            raise ShapeError(
                f"operands have different element types: {', '.join(k.hlo_name for k in kinds)}",
                hint="convert one of them first, with convert_element_type",
            )
        found = higher_precision(found, kind)
    return found


def common_dimensions(shapes: Sequence[Shape]) -> Shape:
    """A shape with the dimensions that all arrays have; one is dynamic if it is so in any of them.

    HLO broadcasts nothing by itself: sizes must be equal, except that an unbounded one takes that of the others.
    """
    first = shapes[0]
    sizes, dynamic = list(first.dimensions), list(first.dynamic_dimensions)
    for shape in shapes[1:]:
        if shape.rank != len(sizes):
            raise ShapeError(
                f"operands have ranks {len(sizes)} and {shape.rank}",
                hint="HLO broadcasts nothing by itself; add a broadcast",
            )
        for i, (size, is_dynamic) in enumerate(zip(shape.dimensions, shape.dynamic_dimensions, strict=True)):
            if sizes[i] == UNBOUNDED:
                sizes[i], dynamic[i] = size, is_dynamic
            elif size == sizes[i]:
                dynamic[i] = dynamic[i] or is_dynamic
            elif size != UNBOUNDED:
                raise ShapeError(
                    f"dimension {i} has size {sizes[i]} in one operand and {size} in another",
                    hint="HLO broadcasts nothing by itself; add a broadcast",
                )
    return first.with_dimensions(sizes, dynamic)


class Unary(Op, Elementwise):
    """One array to another of the same dimensions."""

    __slots__ = ()

    takes: ClassVar[Types] = ANY

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        (operand,) = operands
        self.takes.check(operand)
        return operand.without_layout().with_element_type(self.result_type(operand.element_type))

    def result_type(self, operand: PrimitiveType) -> PrimitiveType:
        """The element type of the result: that of the operand, unless an operation says otherwise."""
        return operand

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        with np.errstate(all="ignore"):
            return convert(self.value(np.asarray(operands[0])), context.shape.element_type)

    def value(self, x: Array) -> Array:
        """The meaning, on arrays of the operand's type."""
        raise NotImplementedError


def unary_function(made: type[Unary], name: str) -> Callable[[XlaOp], XlaOp]:
    """The function of a builder for a unary operation without attributes."""

    def function(operand: XlaOp) -> XlaOp:
        return emit(made(), operand)

    function.__name__ = function.__qualname__ = name
    function.__module__ = made.__module__
    function.__doc__ = f"""{made.__doc__}

    operand: an array whose element type is {made.takes.words}. Gives an array of its dimensions. Raises ShapeError.
    Source: Operation semantics, Element-wise unary functions.
    """
    return building(function)


class Binary(Op, Elementwise):
    """Two arrays of the same dimensions to one."""

    __slots__ = ()

    takes: ClassVar[Types] = ANY

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        for side, operand in zip(("lhs", "rhs"), operands, strict=True):
            self.takes.check(operand, side)
        return common_dimensions(operands).with_element_type(self.result_type(common_element_type(operands)))

    def result_type(self, operands: PrimitiveType) -> PrimitiveType:
        """The element type of the result: that of the operands, unless an operation says otherwise."""
        return operands

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        lhs, rhs = np.asarray(operands[0]), np.asarray(operands[1])
        if lhs.dtype is not rhs.dtype:
            lhs, rhs = alike(operands)
        with np.errstate(all="ignore"):
            return convert(self.value(lhs, rhs), context.shape.element_type)

    def value(self, lhs: Array, rhs: Array) -> Array:
        """The meaning, on arrays of one type."""
        raise NotImplementedError


def alike(operands: Sequence[Value]) -> list[Array]:
    """The operands converted to a common type that can represent all of them, if their floating point types differ."""
    arrays = [np.asarray(operand) for operand in operands]
    if all(array.dtype == arrays[0].dtype for array in arrays):
        return arrays
    kind = common_element_type([Shape(PrimitiveType.from_dtype(array.dtype)) for array in arrays])
    return [convert(array, kind) for array in arrays]


def emit_binary(op: Op, lhs: OperandLike, rhs: OperandLike, broadcast_dimensions: Sequence[int]) -> XlaOp:
    """Add a binary operation, with the broadcasts that its operands need."""
    left, right = as_ops(lhs, rhs)
    return emit(op, *broadcast_together(left, right, broadcast_dimensions))
