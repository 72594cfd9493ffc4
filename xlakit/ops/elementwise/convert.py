"""Changing element types: convert, bitcast, bitcast-convert, reduce-precision, stochastic-convert.

Source: XLA's document "Operation semantics", sections ConvertElementType, BitcastConvertType and ReducePrecision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from xlakit.data import index_util
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ir.traits import Elementwise, Forwarding
from xlakit.ops.elementwise.unary import real
from xlakit.ops.handle import OperandLike, XlaOp, as_op, building, common_builder, emit
from xlakit.ops.shared import numerics
from xlakit.ops.shared.checks import need_declared
from xlakit.ops.shared.elementwise import FLOATING, Unary, check_array

if TYPE_CHECKING:
    from xlakit.ir.instruction import Instruction


def _declared_type(declared: Shape | None) -> PrimitiveType:
    shape = need_declared(declared)
    check_array(shape, "the result")
    return shape.element_type


def _element_type(given: PrimitiveType | object) -> PrimitiveType:
    return given if isinstance(given, PrimitiveType) else PrimitiveType.from_dtype(given)


# -- convert -------------------------------------------------------------------------------------


@operation("convert", arity=1, pointwise=True, documents=("ConvertElementType",))
class Convert(Op, Elementwise):
    """The same values in another element type."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        check_array(operands[0])
        return operands[0].without_layout().with_element_type(_declared_type(declared))

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return numerics.convert(operands[0], context.shape.element_type)


@building
def convert_element_type(operand: XlaOp, new_element_type: PrimitiveType | object) -> XlaOp:
    """Convert every element, as a static_cast of C++ would.

    operand: an array of any element type.
    new_element_type: a PrimitiveType, or what NumPy takes as a dtype.

    Floats round half to even, and become integers towards zero; what is beyond the integers' range becomes the
    nearest of them, NaN becomes 0. Integers wrap. Complex numbers lose their imaginary part where the new type has
    none. PRED is whether a value differs from 0. Gives an array of the operand's dimensions.
    Raises ShapeError. Source: Operation semantics, ConvertElementType.
    """
    kind = _element_type(new_element_type)
    check_array(operand.shape)
    if operand.shape.element_type.is_complex and not kind.is_complex:
        operand = real(operand)
    return emit(Convert(), operand, shape=_with_type(operand.shape, kind))


def _with_type(shape: Shape, kind: PrimitiveType) -> Shape:
    return shape.without_layout().with_element_type(kind)


# -- bitcast-convert and bitcast -----------------------------------------------------------------


def _bitcast_shape(operand: Shape, kind: PrimitiveType) -> Shape:
    """``operand`` read as elements of another width: a wider one drops the last dimension, a narrower one adds one."""
    check_array(operand)
    source = operand.element_type
    if source.is_complex != kind.is_complex:
        raise ShapeError(
            f"no bitcast goes between complex and real types, {source.hlo_name} and {kind.hlo_name}",
            hint="take real and imag, or make a complex number with complex",
        )
    old, new = source.bit_width, kind.bit_width
    if max(old, new) % min(old, new):
        raise ShapeError(
            f"{source.hlo_name} and {kind.hlo_name} have widths of which neither divides the other",
            hint="convert it with convert_element_type, which keeps values instead of bits",
        )
    dimensions, dynamic = operand.dimensions, operand.dynamic_dimensions
    if old > new:
        dimensions, dynamic = (*dimensions, old // new), (*dynamic, False)
    elif old < new:
        if not dimensions or dimensions[-1] != new // old or dynamic[-1]:
            raise ShapeError(
                f"the last dimension must be {new // old}, to make {kind.hlo_name} of {source.hlo_name}; it is "
                f"{dimensions[-1] if dimensions else 'missing'}",
                hint=f"reshape the operand so that its last dimension is {new // old}",
            )
        dimensions, dynamic = dimensions[:-1], dynamic[:-1]
    return Shape(kind, dimensions, None, dynamic)


@operation("bitcast-convert", arity=1, documents=("BitcastConvertType",))
class BitcastConvert(Op):
    """The bits of the elements read as another type, of the same width or not."""

    batches_scalars = True

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return _bitcast_shape(operands[0], _declared_type(declared))

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        x = np.asarray(operands[0])
        kind = context.shape.element_type
        old, new = numerics.element_type(x).bit_width, kind.bit_width
        sizes = x.shape if old == new else (*x.shape, old // new) if old > new else x.shape[:-1]
        memory = _to_memory(x, packed=True)
        return _from_memory(memory, kind, packed=True, count=math.prod(sizes)).reshape(sizes)


def _to_memory(x: Array, *, packed: bool) -> Array:
    """The bytes of all elements in order; those narrower than a byte share bytes, lowest bits first, if ``packed``."""
    raw = np.ascontiguousarray(x).reshape(-1, 1).view(np.uint8)
    width = numerics.element_type(x).bit_width
    if width >= 8 or not packed:
        return raw.reshape(-1)
    return np.packbits(np.unpackbits(raw, axis=1, bitorder="little")[:, :width], bitorder="little")


def _from_memory(memory: Array, kind: PrimitiveType, *, packed: bool, count: int = -1) -> Array:
    """The elements in bytes that :func:`_to_memory` gave; ``count`` of them where the last byte is not full."""
    width = kind.bit_width
    if width < 8:
        step = width if packed else 8
        bits = np.unpackbits(memory, bitorder="little")
        bits = bits[: bits.size // step * step].reshape(-1, step)[:, :width]
        memory = np.packbits(bits, axis=1, bitorder="little").reshape(-1)[: count if count >= 0 else None]
    return memory != 0 if kind is PrimitiveType.PRED else memory.view(kind.dtype)


@building
def bitcast_convert_type(operand: XlaOp, new_element_type: PrimitiveType | object) -> XlaOp:
    """Read the bits of an array as elements of another type.

    operand: an array; where the new type is wider, its last dimension is the ratio of the widths, and goes.
    new_element_type: a PrimitiveType, or what NumPy takes as a dtype; where it is narrower, the result has a new
        last dimension of the ratio of the widths, lowest bits first.

    Raises ShapeError. Source: Operation semantics, BitcastConvertType.
    """
    kind = _element_type(new_element_type)
    return emit(BitcastConvert(), operand, shape=_bitcast_shape(operand.shape, kind))


@operation("bitcast", arity=1)
class Bitcast(Op, Forwarding):
    """The memory of the operand, in its layout, read as another shape in that shape's layout."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        result, operand = need_declared(declared), operands[0]
        check_array(operand)
        check_array(result, "the result")
        # The sizes in bytes depend on the backend, which may pad; they are compared when the operation runs.
        return result.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array, result = np.asarray(operands[0]), context.shape
        shape = context.instruction.operands[0].shape
        if is_bitcast_of_scalars(context.instruction):
            # A computation on scalars may be evaluated for many at once.
            memory = _to_memory(array.astype(shape.element_type.dtype, copy=False), packed=False)
            return _from_memory(memory, result.element_type, packed=False).reshape(array.shape)
        if array.shape != shape.dimensions:
            raise UnsupportedError(
                f"the memory of an array of dynamic size {list(array.shape)} has no fixed layout",
                hint="pad it to its bounds with set_dimension_size first",
            )
        size = _bytes(result)
        if size > _bytes(shape):
            raise UnsupportedError(
                f"{result} takes {size} bytes of memory, {shape} only {_bytes(shape)}",
                hint="what lies beyond an array's memory is known to the backend alone; give shapes of as many bytes",
            )
        memory = _to_memory(Literal(shape, array).to_linear(), packed=_is_packed(shape))[:size]
        count = index_util.linear_size(result)
        linear = _from_memory(memory, result.element_type, packed=_is_packed(result), count=count)
        return Literal.from_linear(result, linear).array


def is_bitcast_of_scalars(instruction: Instruction) -> bool:
    """Whether this is a bitcast of a scalar to one of as many whole bytes: of arrays it would be pointwise."""
    shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
    if not isinstance(instruction.op, Bitcast) or not all(s.is_scalar and not _is_packed(s) for s in shapes):
        return False
    return len({s.element_type.byte_width for s in shapes}) == 1


def _is_packed(shape: Shape) -> bool:
    """Whether elements narrower than a byte share bytes: they do if the layout has an element size in bits."""
    return 0 < shape.layout_or_default.element_size_in_bits < 8


def _bytes(shape: Shape) -> int:
    kind, count = shape.element_type, index_util.linear_size(shape)
    return (count * kind.bit_width + 7) // 8 if _is_packed(shape) else count * kind.byte_width


@building
def bitcast(operand: XlaOp, shape: Shape) -> XlaOp:
    """Read the memory of an array as another shape, of as many bytes, in that shape's layout.

    Raises ShapeError. Source: XlaBuilder's use of HLO's bitcast.
    """
    check_array(operand.shape)
    check_array(shape, "the result")
    if UNBOUNDED not in (*operand.shape.dimensions, *shape.dimensions) and _bytes(operand.shape) != _bytes(shape):
        raise ShapeError(
            f"{operand.shape} takes {_bytes(operand.shape)} bytes of memory and {shape} {_bytes(shape)}",
            hint="give a shape of as many bytes",
        )
    return emit(Bitcast(), operand, shape=shape)


# -- reduce-precision ----------------------------------------------------------------------------


@operation("reduce-precision", arity=1, pointwise=True, documents=("ReducePrecision",))
class ReducePrecision(Unary):
    """Round to a format with fewer bits of exponent and mantissa, and come back."""

    takes = FLOATING

    exponent_bits: int = attribute(Kind.INT64)
    mantissa_bits: int = attribute(Kind.INT64)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if self.exponent_bits < 1:
            raise ShapeError(
                f"exponent_bits must be at least 1, is {self.exponent_bits}",
                hint="with none, zero and infinity would be the same",
            )
        if self.mantissa_bits < 0:
            raise ShapeError(f"mantissa_bits must not be negative, is {self.mantissa_bits}", hint="give 0 or more")
        if max(self.exponent_bits, self.mantissa_bits) > _INT32_MAX:
            raise ShapeError(
                f"{self.exponent_bits} exponent_bits and {self.mantissa_bits} mantissa_bits: int32 counts them",
                hint="give as many bits as an element type has",
            )
        return Unary.result_shape(self, operands, declared)

    def value(self, x: Array) -> Array:
        kind = numerics.element_type(x)
        if kind.bit_width >= 16:
            return self._reduced(x, _MANTISSA_BITS[kind])
        # As in XLA, computed in f16, which represents all narrower types exactly except the range of f8e8m0fnu.
        via = PrimitiveType.BF16 if kind is PrimitiveType.F8E8M0FNU else PrimitiveType.F16
        return numerics.convert(self._reduced(numerics.convert(x, via), _MANTISSA_BITS[via]), kind)

    def _reduced(self, x: Array, mantissa: int) -> Array:
        bits = numerics.raw_bits(x)
        word, width = bits.dtype.type, 8 * x.dtype.itemsize
        exponent = width - 1 - mantissa
        sign = bits & word(1 << (width - 1))
        size = bits ^ sign
        infinity = word(((1 << exponent) - 1) << mantissa)
        is_nan = size > infinity
        dropped = mantissa - self.mantissa_bits
        if dropped > 0:
            # Half to even: add just under a half, and one more if the last kept bit is odd. A carry out of the mantissa
            # increments the exponent, which is the right result.
            last = (size >> word(dropped)) & word(1)
            size = (size + word((1 << (dropped - 1)) - 1) + last) >> word(dropped) << word(dropped)
        if self.exponent_bits < exponent:
            bias, reduced_bias = (1 << (exponent - 1)) - 1, (1 << (self.exponent_bits - 1)) - 1
            field = size & infinity
            # The narrow format has no denormal numbers here: they become zero.
            size = np.where(field > word((bias + reduced_bias) << mantissa), infinity, size)
            size = np.where(field <= word((bias - reduced_bias) << mantissa), word(0), size)
        return np.where(is_nan, x, (sign | size).view(x.dtype))


_INT32_MAX = 2**31 - 1
_MANTISSA_BITS = {
    PrimitiveType.BF16: 7,
    PrimitiveType.F16: 10,
    PrimitiveType.F32: 23,
    PrimitiveType.F64: 52,
}


@building
def reduce_precision(operand: XlaOp, exponent_bits: int, mantissa_bits: int) -> XlaOp:
    """Model the loss of a narrower format: round half to even, overflow to infinity, and come back.

    operand: an array of a floating point type.
    exponent_bits, mantissa_bits: of the narrower format, at least 1 and 0; more than the type has changes nothing. Best
        named: they stand in XlaBuilder's order, which the document's table has too; its signature has the other one.

    Gives an array of the operand's shape; NaN stay NaN. Raises ShapeError.
    Source: Operation semantics, ReducePrecision.
    """
    return emit(ReducePrecision(exponent_bits=exponent_bits, mantissa_bits=mantissa_bits), operand)


# -- stochastic-convert --------------------------------------------------------------------------


@operation("stochastic-convert", arity=2, pointwise=True)
class StochasticConvert(Op, Elementwise):
    """Floats to signed integers, up or down at random; the second operand has the random bits."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        operand, random = operands
        FLOATING.check(operand)
        check_array(random, "random")
        if not random.element_type.is_unsigned:
            raise ShapeError(
                f"random numbers must be unsigned integers, are {random.element_type.hlo_name}",
                hint=f"draw them as u{operand.element_type.bit_width}, or bitcast_convert_type them to it",
            )
        if random.element_type.bit_width != operand.element_type.bit_width:
            raise ShapeError(
                f"random numbers must be as wide as the operand's elements: {random.element_type.hlo_name} for "
                f"{operand.element_type.hlo_name}",
                hint=f"give u{operand.element_type.bit_width}",
            )
        if random.dimensions != operand.dimensions or random.dynamic_dimensions != operand.dynamic_dimensions:
            raise ShapeError(
                "operand and random numbers must have the same dimensions",
                hint=f"give one random number for each element, dimensions {list(operand.dimensions)}",
            )
        return operand.without_layout().with_element_type(_declared_type(declared))

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        kind = context.shape.element_type
        if not kind.is_signed:
            raise UnsupportedError(
                f"stochastic-convert to {kind.hlo_name} has no agreed meaning", hint="convert to a signed integer type"
            )
        x, random = numerics.to_double(operands[0]), numerics.to_bits(np.asarray(operands[1]))
        width = numerics.element_type(np.asarray(operands[1])).bit_width
        size = np.abs(x)
        whole = np.floor(size)
        with np.errstate(all="ignore"):
            # The fraction, as a number of as many bits as the random one.
            fraction = np.ldexp(np.where(np.isfinite(x), size - whole, 0), width).astype(np.uint64)
        rounded = np.copysign(whole + (random < fraction), x)
        return numerics.from_double_to_integer(rounded, kind)


@building
def stochastic_convert_type(
    operand: OperandLike, random: OperandLike, new_element_type: PrimitiveType | object
) -> XlaOp:
    """Convert floats to integers, rounding up with the probability that their fraction is.

    operand: an array of a floating point type.
    random: unsigned integers of as many bits, one for each element; one goes up (away from zero) where it is less
        than the fraction times 2^bits.
    new_element_type: a signed integer type. Values beyond its range become its limits, NaN becomes 0.

    Gives an array of the operand's dimensions. Raises ShapeError. Source: XlaBuilder's StochasticConvertType.
    """
    builder = common_builder([operand, random])
    value = as_op(builder, operand)
    shape = _with_type(value.shape, _element_type(new_element_type))
    return emit(StochasticConvert(), value, as_op(builder, random), shape=shape)
