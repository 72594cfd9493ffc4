"""Operations on elements. Operands of binary operations broadcast as in XlaBuilder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlakit.compat.xla_client.ops import composed
from xlakit.compat.xla_client.ops.operations import Ints, Kind, Op, Record, operation
from xlakit.compat.xla_client.ops.records import accuracy_of
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ops import movement
from xlakit.ops.elementwise import binary, compare, convert, elementary, math_library, select, unary


def unary_operation(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """An operation on one operand, under XLA's name, by a function of xlakit's."""

    def apply(arg: Op, /) -> Op:
        return function(arg)

    return _named(name, function, apply)


def _elementary(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(operand: Op, result_accuracy: Record | None = None) -> Op:
        return function(operand, accuracy_of(result_accuracy))

    return _named(name, function, apply)


def _binary(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(lhs: Op, rhs: Op, broadcast_dimensions: Ints | None = None) -> Op:
        return function(lhs, rhs, tuple(broadcast_dimensions or ()))

    return _named(name, function, apply)


def _named(name: str, function: Callable[..., Any], apply: Callable[..., Any]) -> Callable[..., Any]:
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = function.__doc__
    return operation(apply)


def _check_parts(operand: Op) -> None:
    """Raise UnsupportedError for floating point numbers that complex ones cannot have as parts, as jaxlib does."""
    kind = operand.shape.element_type
    if kind.is_floating and kind.hlo_name not in ("f32", "f64"):
        raise UnsupportedError(
            f"the parts of a complex number are f32 or f64, not {kind.hlo_name}",
            hint="convert the operand to f32",
        )


Abs = unary_operation("Abs", unary.abs)
Ceil = unary_operation("Ceil", unary.ceil)
Clz = unary_operation("Clz", unary.clz)


@operation
def Conj(arg: Op, /) -> Op:
    """The conjugates of complex numbers; f32 and f64 become complex."""
    _check_parts(arg)
    return unary.conj(arg)


Floor = unary_operation("Floor", unary.floor)
Imag = unary_operation("Imag", unary.imag)
IsFinite = unary_operation("IsFinite", unary.is_finite)
Neg = unary_operation("Neg", unary.neg)
Not = unary_operation("Not", unary.not_)
PopulationCount = unary_operation("PopulationCount", unary.population_count)
Real = unary_operation("Real", unary.real)
Round = unary_operation("Round", unary.round)
Sign = unary_operation("Sign", unary.sign)


def _reciprocal(operand: Any) -> Any:
    """1 / x, of numbers that have one: those of integers are errors in jaxlib, too."""
    kind = operand.shape.element_type
    if not (kind.is_floating or kind.is_complex):
        raise ShapeError(f"takes floating point or complex numbers, got {kind.hlo_name}", hint="convert it first")
    return math_library.reciprocal(operand)


Reciprocal = unary_operation("Reciprocal", _reciprocal)
Square = unary_operation("Square", math_library.square)
Acos = unary_operation("Acos", composed.acos)
Acosh = unary_operation("Acosh", composed.acosh)
Asin = unary_operation("Asin", composed.asin)
Asinh = unary_operation("Asinh", composed.asinh)
Atan = unary_operation("Atan", binary.atan)
Atanh = unary_operation("Atanh", composed.atanh)
Cosh = unary_operation("Cosh", composed.cosh)
Sinh = unary_operation("Sinh", composed.sinh)

Cbrt = _elementary("Cbrt", elementary.cbrt)
Cos = _elementary("Cos", elementary.cos)
Erf = _elementary("Erf", elementary.erf)
Exp = _elementary("Exp", elementary.exp)
Expm1 = _elementary("Expm1", elementary.expm1)
Log = _elementary("Log", elementary.log)
Log1p = _elementary("Log1p", elementary.log1p)
Logistic = _elementary("Logistic", elementary.logistic)
Rsqrt = _elementary("Rsqrt", elementary.rsqrt)
Sin = _elementary("Sin", elementary.sin)
Sqrt = _elementary("Sqrt", elementary.sqrt)
Tan = _elementary("Tan", elementary.tan)
Tanh = _elementary("Tanh", elementary.tanh)

Add = _binary("Add", binary.add)
And = _binary("And", binary.and_)
Atan2 = _binary("Atan2", binary.atan2)


@operation
def Complex(lhs: Op, rhs: Op, broadcast_dimensions: Ints | None = None) -> Op:
    """Complex numbers of their real and imaginary parts, which are f32 or f64."""
    _check_parts(lhs)
    return binary.complex(lhs, rhs, tuple(broadcast_dimensions or ()))


Div = _binary("Div", binary.div)
Max = _binary("Max", binary.max)
Min = _binary("Min", binary.min)
Mul = _binary("Mul", binary.mul)
Or = _binary("Or", binary.or_)
Pow = _binary("Pow", binary.pow)
Rem = _binary("Rem", binary.rem)
ShiftLeft = _binary("ShiftLeft", binary.shift_left)
ShiftRightArithmetic = _binary("ShiftRightArithmetic", binary.shift_right_arithmetic)
ShiftRightLogical = _binary("ShiftRightLogical", binary.shift_right_logical)
Sub = _binary("Sub", binary.sub)
Xor = _binary("Xor", binary.xor)
Eq = _binary("Eq", compare.eq)
Ge = _binary("Ge", compare.ge)
Gt = _binary("Gt", compare.gt)
Le = _binary("Le", compare.le)
Lt = _binary("Lt", compare.lt)
Ne = _binary("Ne", compare.ne)


@operation
def BitcastConvertType(operand: Op, new_element_type: Kind) -> Op:
    """The bits of the elements as another type."""
    return convert.bitcast_convert_type(operand, new_element_type)


@operation
def ConvertElementType(operand: Op, new_element_type: Kind) -> Op:
    """The elements converted to another type."""
    return convert.convert_element_type(operand, new_element_type)


@operation
def ReducePrecision(operand: Op, exponent_bits: int, mantissa_bits: int) -> Op:
    """The elements rounded to a floating point format of fewer bits."""
    return convert.reduce_precision(operand, exponent_bits, mantissa_bits)


@operation
def Clamp(min: Op, operand: Op, max: Op) -> Op:
    """The elements, at least ``min`` and at most ``max``; these are of the same dimensions, or scalars."""
    return select.clamp(_like(min, operand), operand, _like(max, operand))


@operation
def Select(pred: Op, on_true: Op, on_false: Op) -> Op:
    """Elements of ``on_true`` where ``pred`` holds, and of ``on_false`` elsewhere."""
    return select.select(_like(pred, on_true), on_true, on_false)


def _like(scalar: Op, array: Op) -> Op:
    """A scalar in the dimensions of an array, as XLA's builder makes it; anything else as it is."""
    fits = scalar.shape.is_array and array.shape.is_array and not scalar.shape.rank and array.shape.rank
    return movement.broadcast_in_dim(scalar, array.shape.dimensions, ()) if fits else scalar
