"""Scalars of a type that is chosen while a program is built, the limits of types, and arrays of one value.

Source: ``xla/hlo/builder/lib/constants.h``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ops.data import constant
from xlakit.ops.handle import Builder, XlaOp, building
from xlakit.ops.movement import broadcast_in_dim
from xlakit.ops.shared.numerics import highest, limits, lowest

# What a scalar is made of: Python's numbers, or NumPy's.
Number: TypeAlias = bool | int | float | complex | np.generic

_REAL = "take a real floating point type such as xlakit.F32"


@building
def constant_r0_with_type(builder: Builder, type: PrimitiveType, value: Number) -> XlaOp:
    """A scalar of ``type``.

    value: a number. Integers may have any type that holds them, a real number a floating point or complex one, and a
        complex number a complex one.

    Raises ShapeError for a type that cannot hold such a number. Source: ConstantR0WithType.
    """
    number = value.item() if isinstance(value, np.generic) else value
    is_real, is_complex = isinstance(number, float), isinstance(number, complex)
    if not type.is_array or ((is_real or is_complex) and not type.is_complex and (is_complex or not type.is_floating)):
        raise ShapeError(
            f"{type.hlo_name} does not hold {value!r}", hint="convert the number, or take a type of its family"
        )
    return constant(builder, number, type)


@building
def scalar_like(prototype: XlaOp, value: Number) -> XlaOp:
    """A scalar of the element type of ``prototype``; raises as constant_r0_with_type. Source: ScalarLike."""
    return constant_r0_with_type(prototype.builder, prototype.shape.element_type, value)


@building
def full_like(prototype: XlaOp, value: Number) -> XlaOp:
    """An array of the shape of ``prototype`` whose elements are all ``value``.

    Dynamic dimensions have their bounds. Raises ShapeError where ``prototype`` is a tuple, or its type cannot hold the
    number. Source: FullLike.
    """
    return broadcast_in_dim(scalar_like(prototype, value), prototype.shape.dimensions, ())


@building
def zero(builder: Builder, type: PrimitiveType) -> XlaOp:
    """The scalar 0, or false. Source: Zero."""
    return constant(builder, 0, type)


@building
def zeros(builder: Builder, shape: Shape) -> XlaOp:
    """An array of zeros. Raises ShapeError for a tuple's shape. Source: Zeros."""
    return broadcast_in_dim(zero(builder, shape.element_type), shape.dimensions, ())


@building
def zeros_like(prototype: XlaOp) -> XlaOp:
    """An array of zeros of the shape of ``prototype``, as :func:`full_like`. Source: ZerosLike."""
    return full_like(prototype, 0)


@building
def one(builder: Builder, type: PrimitiveType) -> XlaOp:
    """The scalar 1, or true. Source: One."""
    return constant(builder, 1, type)


def _finfo(type: PrimitiveType) -> Any:
    if not type.is_floating:
        raise ShapeError(f"{type.hlo_name} is no floating point type", hint=_REAL)
    return ml_dtypes.finfo(type.dtype)


def _scalar(builder: Builder, type: PrimitiveType, value: object) -> XlaOp:
    with np.errstate(all="ignore"):
        return constant(builder, np.asarray(value).astype(type.dtype))


@building
def epsilon(builder: Builder, type: PrimitiveType) -> XlaOp:
    """The distance from 1 to the next larger number of a floating point type. Raises ShapeError. Source: Epsilon."""
    return _scalar(builder, type, _finfo(type).eps)


@building
def min_positive_normal_value(builder: Builder, type: PrimitiveType) -> XlaOp:
    """The least normal number above 0 of a floating point type. Raises ShapeError. Source: MinPositiveNormalValue."""
    return _scalar(builder, type, _finfo(type).smallest_normal)


@building
def min_value(builder: Builder, type: PrimitiveType) -> XlaOp:
    """The number of a type that no other is below: -infinity where there is one, false for PRED.

    Raises ShapeError for complex types. Source: MinValue.
    """
    bound = lowest(type) if type.is_array else None
    return min_finite_value(builder, type) if bound is None else constant(builder, bound)


@building
def max_value(builder: Builder, type: PrimitiveType) -> XlaOp:
    """The number of a type that no other is above: infinity where there is one, true for PRED.

    Raises ShapeError for complex types. Source: MaxValue.
    """
    bound = highest(type) if type.is_array else None
    return max_finite_value(builder, type) if bound is None else constant(builder, bound)


@building
def min_finite_value(builder: Builder, type: PrimitiveType) -> XlaOp:
    """The least finite number of a type. Raises ShapeError for complex types. Source: MinFiniteValue."""
    return _finite(builder, type, greatest=False)


@building
def max_finite_value(builder: Builder, type: PrimitiveType) -> XlaOp:
    """The greatest finite number of a type. Raises ShapeError for complex types. Source: MaxFiniteValue."""
    return _finite(builder, type, greatest=True)


def _finite(builder: Builder, type: PrimitiveType, *, greatest: bool) -> XlaOp:
    if type is PrimitiveType.PRED:
        return constant(builder, greatest)
    if type.is_integral:
        return constant(builder, limits(type)[greatest], type)
    if not type.is_floating:
        raise ShapeError(f"{type.hlo_name} has no order", hint="take an integer or a real floating point type")
    info = _finfo(type)
    return _scalar(builder, type, info.max if greatest else info.min)


@building
def nan_value(builder: Builder, type: PrimitiveType) -> XlaOp:
    """NaN of a floating point type. Raises ShapeError where there is none. Source: NanValue."""
    _finfo(type)
    value = np.asarray(np.nan).astype(type.dtype)
    if not np.isnan(value.astype(np.float64)):
        raise ShapeError(f"{type.hlo_name} has no NaN", hint=_REAL)
    return constant(builder, value)
