"""Sources and bundles of values: parameters, constants, iota, tuples, copies, ordering.

Source: XLA's document "Operation semantics", sections Iota, Tuple, GetTupleElement, AfterAll, OptimizationBarrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import TOKEN_SHAPE, Shape, make_tuple_shape
from xlakit.errors import LiteralError, ShapeError
from xlakit.ir.operation import TOKEN, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ir.traits import Distinct, Elementwise, Forwarding
from xlakit.ops.handle import Builder, OperandLike, XlaOp, as_op, building, common_builder, emit
from xlakit.ops.shared.checks import check_dimension, need_declared
from xlakit.ops.shared.hints import below


@operation("parameter", arity=0, pointwise=True)
class Parameter(Op, Distinct):
    """Argument ``number`` of the computation."""

    number: int = attribute(Kind.INT64, text="", proto="parameter_number")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if self.number < 0:
            raise ShapeError(f"parameter number {self.number} is negative", hint="number parameters from 0")
        return need_declared(declared).without_layout()


@building
def parameter(builder: Builder, number: int, shape: Shape, name: str = "") -> XlaOp:
    """Argument ``number`` of the computation that is built, of a shape; all numbers from 0 on must be declared.

    Raises ShapeError where the number is negative or declared already. Source: XlaBuilder::Parameter.
    """
    return builder.append(Parameter(number=number), (), shape, name)


@operation("constant", arity=0, pointwise=True)
class Constant(Op):
    """A value that the program text holds."""

    literal: Literal = attribute(Kind.LITERAL, text="", proto="literal")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return self.literal.shape.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return literal_value(self.literal)


@operation("constant", arity=0, pointwise=True, variant=True)
class ElidedConstant(Op, Distinct):
    """A constant whose elements the text leaves out: ``constant({...})``, as XLA dumps large ones by default.

    Two elided constants may have different elements. They are read, printed, checked and rewritten like any unknown
    value; a program does not run until :func:`xlakit.fill_elided` has replaced them.
    """

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return need_declared(declared).without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        raise elided_error()

    def __reduce__(self) -> tuple[Any, ...]:
        return ElidedConstant, ()


def elided_error() -> LiteralError:
    """The error for uses that need the elements of an elided constant."""
    return LiteralError(
        "the constant is elided: the program has {...} where its elements should be",
        hint="run it with --fill-elided zeros or random (xlakit.fill_elided), or dump it again with "
        "XLA_FLAGS=--xla_dump_large_constants or as a proto",
    )


def literal_value(literal: Literal) -> Value:
    """The interpreter's value of a literal."""
    if literal.shape.is_tuple:
        return tuple(literal_value(e) for e in literal.elements)
    return TOKEN if literal.shape.is_token else literal.array


@building
def constant(builder: Builder, value: object, element_type: PrimitiveType | None = None) -> XlaOp:
    """A constant of a Python number, a NumPy array, a Literal or a tuple of those.

    Python numbers become PRED, S32, F32 or C64 unless ``element_type`` says otherwise. Raises LiteralError.
    Source: XlaBuilder::ConstantLiteral.
    """
    return builder.append(Constant(literal=Literal.from_value(value, element_type)), ())


@operation("iota", arity=0, documents=("Iota",))
class Iota(Op):
    """Numbers that count up from zero along one dimension."""

    iota_dimension: int = attribute(Kind.INT64, proto="dimensions")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        shape = need_declared(declared)
        if not shape.is_array or shape.rank == 0:
            raise ShapeError(
                f"the result must be an array of rank 1 or more, not {shape}",
                hint="count along a dimension of an array, and reshape the result",
            )
        check_dimension("iota_dimension", self.iota_dimension, shape)
        kind = shape.element_type
        if not (kind.is_integral or kind.is_floating or kind.is_complex):
            raise ShapeError(f"{kind.hlo_name} cannot count", hint="count in s32 and convert the result")
        return shape.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        shape = context.shape
        if 0 in shape.dimensions:
            # Returned early, as the other dimensions of an empty array may be too large for the code below.
            return np.empty(shape.dimensions, shape.element_type.dtype)
        steps = np.arange(shape.dimensions[self.iota_dimension])
        with np.errstate(all="ignore"):
            steps = steps.astype(shape.element_type.dtype)
        column = [1] * shape.rank
        column[self.iota_dimension] = -1
        return np.broadcast_to(steps.reshape(column), shape.dimensions)


@building
def iota(builder: Builder, shape: Shape, iota_dimension: int) -> XlaOp:
    """An array of ``shape`` that counts 0, 1, 2, .. along ``iota_dimension``.

    Raises ShapeError. Source: Operation semantics, Iota.
    """
    return builder.append(Iota(iota_dimension=iota_dimension), (), shape)


@operation("tuple", pointwise=True, documents=("Tuple",))
class Tuple(Op, Forwarding):
    """Several values as one."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return make_tuple_shape([o.without_layout() for o in operands])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return operands


@building
def tuple_(builder_or_first: Builder | XlaOp | Sequence[XlaOp], *rest: XlaOp | Sequence[XlaOp]) -> XlaOp:
    """A tuple of values: ``tuple_(a, b)``, ``tuple_([a, b])``, or ``tuple_(builder)`` for the empty one.

    The builder may come first, as in C++: ``tuple_(builder, [a, b])``.

    Source: Operation semantics, Tuple.
    """
    if isinstance(builder_or_first, Builder):
        return builder_or_first.append(Tuple(), _elements(rest))
    return emit(Tuple(), *_elements([builder_or_first, *rest]))


def _elements(given: Sequence[XlaOp | Sequence[XlaOp]]) -> list[XlaOp]:
    return [element for part in given for element in ([part] if isinstance(part, XlaOp) else part)]


@operation("get-tuple-element", arity=1, pointwise=True, documents=("GetTupleElement",))
class GetTupleElement(Op, Forwarding):
    """One element of a tuple."""

    index: int = attribute(Kind.INT64, proto="tuple_index")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        (shape,) = operands
        if not shape.is_tuple:
            raise ShapeError(
                f"takes a tuple, got {shape}",
                hint="use it as it is; only the results of tuples and of operations with several results have elements",
            )
        if not 0 <= self.index < len(shape.tuple_shapes):
            raise ShapeError(
                f"index {self.index} is out of range for a tuple of {len(shape.tuple_shapes)}",
                hint=below(len(shape.tuple_shapes), "index"),
            )
        return shape.tuple_shapes[self.index].without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return operands[0][self.index]


@building
def get_tuple_element(tuple_data: XlaOp, index: int) -> XlaOp:
    """Element ``index`` (a compile-time constant) of a tuple.

    Raises ShapeError. Source: Operation semantics, GetTupleElement.
    """
    return emit(GetTupleElement(index=index), tuple_data)


class Same(Op):
    """The base of operations whose result is the operand itself."""

    __slots__ = ()

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return operands[0].without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return operands[0]


@operation("copy", arity=1, pointwise=True)
class Copy(Same, Elementwise):
    """The operand, possibly in another layout or memory."""

    cross_program_prefetch_index: int | None = attribute(Kind.INT64, default=None)


@operation("opt-barrier", arity=1, documents=("OptimizationBarrier",))
class OptimizationBarrier(Same, Forwarding, Distinct):
    """The operand; no pass moves computation across it."""


@operation("add-dependency", arity=2)
class AddDependency(Same, Forwarding, Distinct):
    """The first operand, computed after the token that is the second."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands[1].is_token:
            raise ShapeError(
                f"the second operand must be a token, is {operands[1].without_layout()}",
                hint="make one with create_token or after_all",
            )
        return operands[0].without_layout()


@operation("after-all", documents=("AfterAll",))
class AfterAll(Op, Distinct):
    """One token after all the operands: tokens, or in HLO any values that must be there first."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return TOKEN_SHAPE

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return TOKEN


@building
def copy(operand: XlaOp) -> XlaOp:
    """The operand again. Source: XlaBuilder::CopyP."""
    return emit(Copy(), operand)


@building
def optimization_barrier(operand: XlaOp) -> XlaOp:
    """The operand, an array or a tuple; nothing is optimized across it. Source: Operation semantics."""
    return emit(OptimizationBarrier(), operand)


@building
def add_dependency(operand: XlaOp, token: XlaOp) -> XlaOp:
    """The operand, of any shape, after whatever made ``token``. Raises ShapeError. Source: HLO's add-dependency."""
    return emit(AddDependency(), operand, token)


@building
def after_all(operands: Sequence[XlaOp]) -> XlaOp:
    """Join tokens into one. Raises ShapeError. Source: Operation semantics, AfterAll."""
    for operand in operands:
        if not operand.shape.is_token:
            raise ShapeError(
                "takes tokens only",
                operation="after-all",
                shapes=[o.shape for o in operands],
                hint="make one with create_token, or order a value after tokens with add_dependency",
            )
    return common_builder(operands).append(AfterAll(), operands)


@building
def create_token(builder: Builder) -> XlaOp:
    """A new token that waits for nothing. Source: XlaBuilder::CreateToken."""
    return builder.append(AfterAll(), ())


# An argument of a computation as a caller of the builder may pass it: an operand, or a (nested) tuple of operands.
ArgumentLike: TypeAlias = OperandLike | tuple[Any, ...]


def as_argument(builder: Builder, value: ArgumentLike) -> XlaOp:
    """One handle for an argument of a computation; tuples become tuple instructions."""
    if isinstance(value, tuple):
        return tuple_(builder, *(as_argument(builder, v) for v in value))
    return as_op(builder, value)
