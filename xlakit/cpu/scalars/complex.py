"""Operations on complex elements: pairs of a real and an imaginary part.

Sums and products are computed in the type itself, all other functions in F64. For C64 this has enough range and
precision for plain formulas; for C128 the formulas avoid overflow and cancellation in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.math.arithmetic import narrowed, widened
from xlakit.cpu.scalars import (
    complex_arithmetic as arithmetic,
    complex_exponential as exponential,
    complex_trigonometric as trigonometric,
)
from xlakit.cpu.scalars.memory import Scalar
from xlakit.data.primitive import PrimitiveType

Complex = tuple[Value, Value]


def apply(fn: Function, opcode: str, kind: PrimitiveType, arguments: Sequence[Scalar]) -> Scalar:
    """The result of an operation on complex elements; raises DeclinedError if it is not implemented."""
    numbers = [a for a in arguments if isinstance(a, tuple)]
    plain, wide = _PLAIN.get(opcode), _WIDE.get(opcode)
    if plain is not None:
        return plain(*numbers)
    if wide is None:
        raise DeclinedError(f"no code is made for {opcode} of {kind.hlo_name}")
    if kind is PrimitiveType.C128:
        return wide(*numbers)
    function = _FROM_F32.get(opcode, wide)
    result = function(*[(widened(x), widened(y)) for x, y in numbers])
    return (narrowed(result[0]), narrowed(result[1])) if isinstance(result, tuple) else narrowed(result)


_PLAIN: dict[str, Callable[..., Scalar]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[0], a[1] - b[1]),
    "multiply": arithmetic.plain_product,
    "negate": lambda a: (-a[0], -a[1]),
    "maximum": arithmetic.maximum,
    "minimum": arithmetic.minimum,
}
_WIDE: dict[str, Callable[..., Scalar]] = {
    "divide": arithmetic.divide,
    "abs": arithmetic.magnitude,
    "sign": arithmetic.sign,
    "sqrt": arithmetic.sqrt_above_cut,
    "rsqrt": arithmetic.rsqrt,
    "exponential": exponential.exp,
    "exponential-minus-one": exponential.expm1,
    "log": exponential.log,
    "log-plus-one": exponential.log1p,
    "logistic": exponential.logistic,
    "power": exponential.power,
    "sine": trigonometric.sin,
    "cosine": trigonometric.cos,
    "tan": trigonometric.tan,
    "sinh": trigonometric.sinh,
    "cosh": trigonometric.cosh,
    "tanh": trigonometric.tanh,
    "asin": trigonometric.asin,
    "acos": trigonometric.acos,
    "atan": trigonometric.atan,
    "asinh": trigonometric.asinh,
    "acosh": trigonometric.acosh,
    "atanh": trigonometric.atanh,
    "atan2": trigonometric.atan2,
}
# Simpler formulas for numbers that were F32.
_FROM_F32: dict[str, Callable[..., Scalar]] = {
    "divide": arithmetic.divide_narrow,
    "abs": arithmetic.magnitude_narrow,
}
