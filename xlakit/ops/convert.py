"""Changing element types: convert, bitcast, bitcast-convert, reduce-precision, stochastic-convert.

Source: seed document "Operation semantics", sections ConvertElementType, BitcastConvertType and ReducePrecision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops import numerics
from xlakit.ops.data import need_declared
from xlakit.ops.elementwise import FLOATING, Unary, check_array
from xlakit.ops.elementwise_unary import real
from xlakit.ops.handle import OperandLike, XlaOp, as_op, building, common_builder, emit


def _declared_type(declared: Shape | None) -> PrimitiveType:
    shape = need_declared(declared)
    check_array(shape, "the result")
    return shape.element_type


def _element_type(given: PrimitiveType | object) -> PrimitiveType:
    return given if isinstance(given, PrimitiveType) else PrimitiveType.from_dtype(given)


# -- convert -------------------------------------------------------------------------------------


@operation("convert", arity=1, pointwise=True, documents=("ConvertElementType",))
class Convert(Op):
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
        raise ShapeError(f"no bitcast goes between complex and real types, {source.hlo_name} and {kind.hlo_name}")
    old, new = source.bit_width, kind.bit_width
    if max(old, new) % min(old, new):
        raise ShapeError(f"{source.hlo_name} and {kind.hlo_name} have widths of which neither divides the other")
    dimensions, dynamic = operand.dimensions, operand.dynamic_dimensions
    if old > new:
        dimensions, dynamic = (*dimensions, old // new), (*dynamic, False)
    elif old < new:
        if not dimensions or dimensions[-1] != new // old or dynamic[-1]:
            raise ShapeError(
                f"the last dimension must be {new // old}, to make {kind.hlo_name} of {source.hlo_name}; it is "
                f"{dimensions[-1] if dimensions else 'missing'}",
            )
        dimensions, dynamic = dimensions[:-1], dynamic[:-1]
    return Shape(kind, dimensions, None, dynamic)


@operation("bitcast-convert", arity=1, documents=("BitcastConvertType",))
class BitcastConvert(Op):
    """The bits of the elements read as another type, of the same width or not."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return _bitcast_shape(operands[0], _declared_type(declared))

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return _bitcast(np.asarray(operands[0]), context.shape.element_type)


def _bitcast(x: Array, kind: PrimitiveType) -> Array:
    source = numerics.element_type(x)
    old, new = source.bit_width, kind.bit_width
    if old == new:
        result = _from_storage(_storage(x).reshape(-1), kind)
        return result.reshape(x.shape)
    result = _unpack(_pack(_storage(x).reshape(-1), old), new)
    sizes = (*x.shape, old // new) if old > new else x.shape[:-1]
    return _from_storage(result, kind).reshape(sizes)


def _storage(x: Array) -> Array:
    """The elements as unsigned integers (complex numbers as bytes), their unused bits zero."""
    x = np.ascontiguousarray(x).reshape(x.shape)
    if x.dtype.itemsize > 8:
        return x.reshape(*x.shape, 1).view(np.uint64)
    bits = x.view(f"u{x.dtype.itemsize}")
    width = numerics.element_type(x).bit_width
    return bits & np.uint8((1 << width) - 1) if width < 8 else bits
