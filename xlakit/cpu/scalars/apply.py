"""Applies an operation to scalars: dispatches on the opcode and the element types."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import F16, Function, Value
from xlakit.cpu.math.arithmetic import where
from xlakit.cpu.scalars.convert import bitcast, convert, reduce_precision, stochastic_convert
from xlakit.cpu.scalars.memory import Scalar, as_real, rounded, rounded_result, select
from xlakit.cpu.scalars.real import BINARY, UNARY, is_exact, is_finite, maximum, minimum, total_order_key
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ir.operation import Op
from xlakit.ops.data import Copy
from xlakit.ops.elementwise.binary import Add, Atan2, Complex, Divide, Multiply, Power, Subtract
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.convert import BitcastConvert, Convert, ReducePrecision, StochasticConvert
from xlakit.ops.elementwise.select import Clamp, Select
from xlakit.ops.elementwise.unary import Imag, IsFinite, Real
from xlakit.target import has_feature

_SPECIAL = (
    *(Compare, Select, Clamp, Convert, BitcastConvert, Complex, Real, Imag, IsFinite, ReducePrecision, Copy),
    StochasticConvert,
)
# Operations whose result for positive numbers is positive.
_NEVER_ZERO = (Atan2, Divide, Multiply, Power)
_LEAST_F32 = 2.0**-149
# The operations that AVX512-FP16 computes on F16 directly, with the bits that F32 has after rounding, also for
# subnormal numbers and NaNs (all pairs were compared). Its quotients and roots have these bits, too, but are slower
# than F32's.
_NATIVE_F16 = (Add, Multiply, Subtract)
_OPCODES = frozenset({op.opcode for op in _SPECIAL} | BINARY.keys() | UNARY.keys())


def is_scalar_operation(opcode: str) -> bool:
    """Whether :func:`apply` implements an operation."""
    return opcode in _OPCODES


def apply(
    fn: Function, op: Op, kinds: Sequence[PrimitiveType], result: PrimitiveType, arguments: Sequence[Scalar]
) -> Scalar:
    """The result of ``op`` on one element of each operand.

    kinds: the element types of the operands; result: that of the result. Raises DeclinedError for operations that are
    not implemented.
    """
    opcode = op.opcode
    if isinstance(op, _SPECIAL):
        return _special(fn, op, kinds, result, arguments)
    kind = kinds[0]
    if kind.is_complex:
        # Imported here: few programs have complex numbers.
        from xlakit.cpu.scalars import complex as of_complex

        return of_complex.apply(fn, opcode, kind, arguments)
    values = [as_real(a) for a in arguments]
    binary, unary = BINARY.get(opcode), UNARY.get(opcode)
    if binary is not None and kind is PrimitiveType.F16 and isinstance(op, _NATIVE_F16) and _has_native_f16(fn):
        # LLVM removes the conversion of an operand from F16 to F32 and back.
        narrow = [value.cast("fptrunc", value.type.with_element(F16)) for value in values]
        return binary(fn, kind, narrow[0], narrow[1]).cast("fpext", values[0].type)
    if binary is not None:
        computed = binary(fn, kind, values[0], values[1])
    elif unary is not None:
        computed = unary(fn, kind, values[0])
    else:
        raise DeclinedError(f"no code is made for {opcode}")
    if result is PrimitiveType.F8E8M0FNU and isinstance(op, _NEVER_ZERO):
        # A result that underflows in F32 is nearer to the least number than to NaN, which 0 would become.
        computed = where(computed.eq(0.0), _LEAST_F32, computed)
    return computed if is_exact(op, result) else rounded_result(fn, result, computed)


def _has_native_f16(fn: Function) -> bool:
    # LLVM does not reassociate sums that are rounded to F16 at each step, but would reassociate native ones.
    return not fn.fast_math and has_feature("avx512fp16")


def _special(
    fn: Function, op: Op, kinds: Sequence[PrimitiveType], result: PrimitiveType, arguments: Sequence[Scalar]
) -> Scalar:
    first = arguments[0]
    if isinstance(op, Compare):
        return _compare(fn, op, kinds[0], arguments[0], arguments[1])
    if isinstance(op, Select):
        return select(fn, as_real(first), arguments[1], arguments[2])
    if isinstance(op, Clamp):
        low, value, high = (as_real(a) for a in arguments)
        return minimum(fn, result, maximum(fn, result, low, value), high)
    if isinstance(op, Convert):
        return convert(fn, kinds[0], result, first)
    if isinstance(op, BitcastConvert):
        return bitcast(fn, kinds[0], result, first)
    if isinstance(op, Complex):
        return as_real(first), as_real(arguments[1])
    if isinstance(op, Copy):
        return first
    if isinstance(op, Real):
        return first[0] if isinstance(first, tuple) else first
    if isinstance(op, Imag):
        return first[1] if isinstance(first, tuple) else fn.constant(first.type, 0.0)
    if isinstance(op, IsFinite):
        return is_finite(fn, as_real(first))
    if isinstance(op, ReducePrecision):
        return reduce_precision(fn, op, kinds[0], as_real(first))
    if isinstance(op, StochasticConvert):
        return stochastic_convert(fn, kinds[1], result, as_real(first), as_real(arguments[1]))
    raise DeclinedError(f"no code is made for {op.opcode}")


_SIGNED = {
    ComparisonDirection.EQ: "eq",
    ComparisonDirection.NE: "ne",
    ComparisonDirection.GE: "sge",
    ComparisonDirection.GT: "sgt",
    ComparisonDirection.LE: "sle",
    ComparisonDirection.LT: "slt",
}
_ORDERED = {
    ComparisonDirection.EQ: "oeq",
    ComparisonDirection.NE: "une",
    ComparisonDirection.GE: "oge",
    ComparisonDirection.GT: "ogt",
    ComparisonDirection.LE: "ole",
    ComparisonDirection.LT: "olt",
}


def _compare(fn: Function, op: Compare, kind: PrimitiveType, a: Scalar, b: Scalar) -> Value:
    direction = op.direction
    if isinstance(a, tuple) and isinstance(b, tuple):
        if direction is ComparisonDirection.EQ:
            return a[0].eq(b[0]) & a[1].eq(b[1])
        return a[0].ne(b[0]) | a[1].ne(b[1])
    x, y = as_real(a), as_real(b)
    if op.type is ComparisonType.TOTALORDER:
        # Narrow floats of which there are several NaNs come as integers of their bits, as to widen them changes those.
        x, y = (total_order_key(fn, rounded(fn, kind, value)) for value in (x, y))
        return x.compare(_SIGNED[direction], y)
    if kind.is_floating:
        return x.compare(_ORDERED[direction], y)
    predicate = _SIGNED[direction]
    return x.compare(predicate if kind.is_signed else predicate.replace("s", "u"), y)
