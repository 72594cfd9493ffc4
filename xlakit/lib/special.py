"""Special functions of floating point arrays.

Those of SciPy's are custom calls, which run in Python: accurate, and no part of fused loops.
"""

from __future__ import annotations

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.ops.custom_call import custom_call
from xlakit.ops.data import constant
from xlakit.ops.elementwise.binary import add, and_, or_, sub
from xlakit.ops.elementwise.compare import eq, gt, ne
from xlakit.ops.elementwise.convert import bitcast_convert_type
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim


def special_target(name: str) -> str:
    """The name of the custom call of a function."""
    return f"xlakit.special.{name}"


def _special(name: str, *operands: XlaOp) -> XlaOp:
    first = operands[0].shape
    for operand in operands:
        if not first.is_array or not first.element_type.is_floating or not operand.shape.compatible(first):
            raise ShapeError(
                f"takes floating point arrays of one shape, got {', '.join(str(o.shape) for o in operands)}",
                hint="convert them with convert_element_type, and broadcast them",
            )
    return custom_call(operands[0].builder, special_target(name), list(operands), first.with_default_layout())


@building
def lgamma(operand: XlaOp) -> XlaOp:
    """The logarithm of the absolute value of the gamma function."""
    return _special("lgamma", operand)


@building
def digamma(operand: XlaOp) -> XlaOp:
    """The derivative of the logarithm of the gamma function."""
    return _special("digamma", operand)


@building
def erfc(operand: XlaOp) -> XlaOp:
    """1 - erf(x), exact also where erf(x) is nearly 1."""
    return _special("erfc", operand)


@building
def erf_inv(operand: XlaOp) -> XlaOp:
    """The inverse of the error function, from -1 to 1."""
    return _special("erf_inv", operand)


@building
def bessel_i0e(operand: XlaOp) -> XlaOp:
    """exp(-|x|) times the modified Bessel function of order 0."""
    return _special("bessel_i0e", operand)


@building
def bessel_i1e(operand: XlaOp) -> XlaOp:
    """exp(-|x|) times the modified Bessel function of order 1."""
    return _special("bessel_i1e", operand)


@building
def igamma(a: XlaOp, x: XlaOp) -> XlaOp:
    """The lower regularized incomplete gamma function."""
    return _special("igamma", a, x)


@building
def igammac(a: XlaOp, x: XlaOp) -> XlaOp:
    """The upper regularized incomplete gamma function."""
    return _special("igammac", a, x)


@building
def regularized_incomplete_beta(a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    """The regularized incomplete beta function."""
    return _special("regularized_incomplete_beta", a, b, x)


@building
def zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    """The Hurwitz zeta function."""
    return _special("zeta", x, q)


_BITS = {
    PrimitiveType.F16: PrimitiveType.U16,
    PrimitiveType.BF16: PrimitiveType.U16,
    PrimitiveType.F32: PrimitiveType.U32,
    PrimitiveType.F64: PrimitiveType.U64,
}


@building
def next_after(from_: XlaOp, to: XlaOp) -> XlaOp:
    """The number next to ``from_`` in the direction of ``to``, element by element; as ``nextafter`` of C.

    Both are of one shape, of F16, BF16, F32 or F64. Raises ShapeError.
    """
    shape = from_.shape
    kind = shape.element_type
    if kind not in _BITS or not to.shape.compatible(shape):
        raise ShapeError(
            f"takes arrays of f16, bf16, f32 or f64 of one shape, got {shape} and {to.shape}",
            hint="convert them with convert_element_type, and broadcast them",
        )
    bits = _BITS[kind]

    def filled(value: int) -> XlaOp:
        one = constant(from_.builder, np.asarray(value, bits.dtype))
        return broadcast_in_dim(one, shape.dimensions, ())

    sign = filled(1 << bits.bit_width - 1)
    start, end = bitcast_convert_type(from_, bits), bitcast_convert_type(to, bits)
    magnitude, target = (and_(value, filled((1 << bits.bit_width - 1) - 1)) for value in (start, end))
    # Bits of one sign are in the order of their magnitudes; a step towards the other sign is one towards zero.
    inward = or_(gt(magnitude, target), ne(and_(start, sign), and_(end, sign)))
    stepped = select(inward, sub(start, filled(1)), add(start, filled(1)))
    smallest = or_(and_(end, sign), filled(1))
    moved = select(eq(magnitude, filled(0)), smallest, stepped)
    result = select(eq(from_, to), end, moved)
    is_nan = or_(ne(from_, from_), ne(to, to))
    return select(is_nan, add(from_, to), bitcast_convert_type(result, kind))
