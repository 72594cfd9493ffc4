"""The remainder of two F32 with the sign of the first one, bit-identical to C's fmodf."""

from __future__ import annotations

import math

from xlakit.cpu.llvm import F64, I32, I64, Function, Value

# The bits of a partial quotient: its product with 24 bits is exact in F64, which has 53.
_QUOTIENT_BITS = 28
_FRACTION_BITS = 52


def remainder(fn: Function, a: Value, b: Value) -> Value:
    """The remainder of two F32 values or vectors.

    Each step scales ``b`` by a power of two that makes the quotient short. The remainder of a step is a multiple of the
    last bit of the scaled ``b`` and less than it, so it has no more than 24 bits either. Operands whose exponents are
    not far apart take one step.
    """
    wide, bits = a.type.with_element(F64), a.type.with_element(I64)
    left, divisor = (fn.intrinsic("llvm.fabs", a.type, x).cast("fpext", wide) for x in (a, b))
    is_finite, has_divisor = left < math.inf, divisor > 0.0
    divisor = fn.select(has_divisor, divisor, fn.constant(wide, 1.0))
    start = fn.select(is_finite & has_divisor, left, fn.constant(wide, 0.0))
    with fn.while_([start], lambda loop: (loop.carried[0] >= divisor).any_lane()) as loop:
        partial = loop.carried[0]
        exponent_difference = (partial.bits_as(bits) >> _FRACTION_BITS) - (divisor.bits_as(bits) >> _FRACTION_BITS)
        scale = fn.select(
            exponent_difference > _QUOTIENT_BITS, exponent_difference - _QUOTIENT_BITS, fn.constant(bits, 0)
        )
        scaled = (divisor.bits_as(bits) + (scale << _FRACTION_BITS)).bits_as(wide)
        quotient = (partial / scaled).cast("fptosi", a.type.with_element(I32)).cast("sitofp", wide)
        # A quotient that was rounded up to an integer is one too large.
        after = partial - quotient * scaled
        after = fn.select(after < 0.0, after + scaled, after)
        loop.next(fn.select(partial >= divisor, after, partial))
    result = fn.intrinsic("llvm.copysign", a.type, loop.results[0].cast("fptrunc", a.type), a)
    return fn.select(is_finite & has_divisor, result, fn.constant(a.type, math.nan))
