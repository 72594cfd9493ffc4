"""Nodes that are computed by fused operations.

A product and a sum rounded once: sums of products, some quotients. Two shifts whose bits are joined: rotations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from xlakit.cpu.llvm import Value
from xlakit.cpu.loops.ir.index import Node
from xlakit.cpu.loops.ir.nodes import Apply, Constant
from xlakit.cpu.math.arithmetic import fma
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.memory import as_real
from xlakit.data.primitive import PrimitiveType
from xlakit.ops.elementwise.binary import Add, Divide, Multiply, Or, ShiftLeft, ShiftRightLogical, Subtract
from xlakit.ops.elementwise.convert import Convert
from xlakit.target import fuses

_FUSED_KINDS = frozenset({PrimitiveType.F32, PrimitiveType.F64})
_ROTATED_KINDS = frozenset({PrimitiveType.S32, PrimitiveType.U32, PrimitiveType.S64, PrimitiveType.U64})
_F32 = PrimitiveType.F32
# The bits of a significand of F32.
_BITS = 24
# Numbers and divisors are so far from the least and the greatest normal number that no step leaves the range.
_LEAST, _GREATEST, _DIVISOR = -60, 90, 30
# Nodes below these are not considered.
_MOST_STEPS = 8


def product_and_sum(node: Apply) -> tuple[Node, Node, Node] | None:
    """Two factors and a constant addend, as in the steps of a polynomial; None for other nodes.

    They become one operation, rounded once, on processors that have it. Other sums stay as they are, because they may
    rely on equal products to cancel.
    """
    if not isinstance(node.op, Add) or node.kind not in _FUSED_KINDS:
        return None
    for product, addend in (node.arguments, node.arguments[::-1]):
        if isinstance(addend, Constant) and isinstance(product, Apply) and isinstance(product.op, Multiply):
            a, b = product.arguments
            return (a, b, addend) if {product.kind, a.kind, b.kind, addend.kind} == {node.kind} else None
    return None


def rotation(node: Apply) -> tuple[Node, int] | None:
    """A number and by how many places its bits are rotated to the left; None for other nodes.

    LLVM's code generation would find rotations by itself, but only after it has asked of each sum and each bitwise or
    on the way which of its bits are known; random bits are made of hundreds of them.
    """
    if not isinstance(node.op, Or) or node.kind not in _ROTATED_KINDS:
        return None
    for left, right in (node.arguments, node.arguments[::-1]):
        if not (isinstance(left, Apply) and isinstance(left.op, ShiftLeft)):
            continue
        if not (isinstance(right, Apply) and isinstance(right.op, ShiftRightLogical)):
            continue
        (number, up), (other, down) = left.arguments, right.arguments
        if number is other and isinstance(up, Constant) and isinstance(down, Constant):
            places, bits = int(up.value), node.kind.bit_width
            return (number, places) if 0 < places < bits and int(down.value) == bits - places else None
    return None


def quotient(node: Apply, operands: Sequence[Scalar]) -> Value | None:
    """The quotient of a number made of an integer by a constant, with the bits of a division, from its inverse.

    None if that is no gain, or not known to have the same bits.
    """
    if not isinstance(node.op, Divide) or node.kind is not _F32 or not isinstance(node.arguments[1], Constant):
        return None
    x, divisor = (as_real(operand) for operand in operands)
    inverse = exact_inverse(float(node.arguments[1].value))
    if inverse is None or not fuses() or x.function.fast_math or x.constant is not None:
        return None
    if _exponents(node.arguments[0], _MOST_STEPS) is None:
        return None
    near = x * inverse
    return fma(fma(-near, divisor, x), inverse, near)


@cache
def exact_inverse(c: float) -> float | None:
    """An r for which q + (x - qc) r, with q = xr, is x / c rounded, each operation fused and rounded; None without one.

    c: an F32. x: any F32 but -0, as long as no step overflows or underflows.
    """
    # Imported here: few programs divide by constants.
    from fractions import Fraction

    if c == 0 or not math.isfinite(c) or not -_DIVISOR <= math.frexp(c)[1] <= _DIVISOR:
        return None
    r = float(np.float32(1 / c))
    # The last places of x / c and of q are the unit. With t the error of r, times 2^24, q differs from x / c by less
    # than 1/2 + t, of which 1/2 is its own rounding. Where q has fallen to the next lower power of two it has half
    # units, but its rounding is then at most 1/4.
    t = abs(Fraction(r) * Fraction(c) - 1) * 2**_BITS
    distance = Fraction(1, 2) + t
    # c is this odd number times a power of two.
    odd = abs(Fraction(c).numerator)
    odd //= odd & -odd
    # x - qc is a multiple of c / odd, and less than 2^24 of them, so it is exact.
    if t > 1 or distance * odd > 2**_BITS:
        return None
    # Then q + (x - qc) r differs from x / c by at most distance * t / 2^24. No x / c is nearer than 1 / (2 odd) to the
    # middle of two F32, since 2 x is no odd multiple of c in these units; so both numbers are rounded the same way.
    return r if 2 * odd * distance * t < 2**_BITS else None


def _exponents(node: Node, steps: int) -> tuple[int, int] | None:
    """Exponents (low, high) for a number of F32 that is made of an integer and constants; None for other nodes.

    All its values are multiples of 2^low and at most 2^high in size, and none is -0. The same holds for the at most
    ``steps`` numbers of which it is made, so that none of them is subnormal or infinite.
    """
    if not isinstance(node, Apply) or node.kind is not _F32 or steps == 0:
        return None
    if isinstance(node.op, Convert):
        kind = node.arguments[0].kind
        return (0, kind.bit_width) if kind.is_integral else None
    if not isinstance(node.op, (Add, Subtract, Multiply, Divide)):
        return None
    left, right = node.arguments
    if isinstance(left, Constant) and not isinstance(node.op, Divide):
        left, right = right, left
    if not isinstance(right, Constant) or not math.isfinite(right.value) or right.value == 0:
        return None
    inner = _exponents(left, steps - 1)
    if inner is None:
        return None
    low, high = inner
    # The constant is between 2^(top - 1) and 2^top in size, and a multiple of 2^(top - 24).
    top = math.frexp(right.value)[1]
    if isinstance(node.op, (Add, Subtract)):
        # Rounding keeps multiples of a power of two, and a difference of equal numbers is 0.
        low, high = min(low, top - _BITS), max(high, top) + 1
    elif right.value < 0:
        return None
    elif isinstance(node.op, Multiply):
        low, high = low + top - _BITS, high + top
    else:
        # A quotient that is not 0 is at least 2^(low - top) in size.
        low, high = low - top - _BITS, high - top + 1
    return (low, high) if low >= _LEAST and high <= _GREATEST else None
