"""Arithmetic on complex elements: pairs of a real and an imaginary part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.llvm import F32, F64, Function, Value
from xlakit.cpu.math import math_function
from xlakit.cpu.scalars.memory import Scalar
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import UnsupportedError

Complex = tuple[Value, Value]


def apply(fn: Function, opcode: str, kind: PrimitiveType, arguments: Sequence[Scalar]) -> Scalar:
    """What an operation makes of complex elements; raises UnsupportedError for what has no code."""
    numbers = [a for a in arguments if isinstance(a, tuple)]
    if len(numbers) == 2 and opcode in _BINARY:
        return _BINARY[opcode](fn, numbers[0], numbers[1])
    if len(numbers) == 1 and opcode in _UNARY:
        return _UNARY[opcode](fn, numbers[0])
    raise UnsupportedError(
        f"no code is made for {opcode} of {kind.hlo_name}", hint='run it on the backend "interpreter"'
    )


def _multiply(fn: Function, a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _divide(fn: Function, a: Complex, b: Complex) -> Complex:
    if a[0].type is F32:
        # Doubles have the range that the squares need.
        wide = _quotient(fn, _widened(a), _widened(b))
        return wide[0].cast("fptrunc", F32), wide[1].cast("fptrunc", F32)
    # Scaled by a power of two, so that the squares neither overflow nor vanish.
    return _quotient(fn, a, b)


def _widened(a: Complex) -> Complex:
    return a[0].cast("fpext", F64), a[1].cast("fpext", F64)


def _quotient(fn: Function, a: Complex, b: Complex) -> Complex:
    size = b[0] * b[0] + b[1] * b[1]
    return (a[0] * b[0] + a[1] * b[1]) / size, (a[1] * b[0] - a[0] * b[1]) / size


def _abs(fn: Function, a: Complex) -> Value:
    if a[0].type is F32:
        x, y = _widened(a)
        return fn.intrinsic("llvm.sqrt", F64, x * x + y * y).cast("fptrunc", F32)
    x, y = (fn.intrinsic("llvm.fabs", v.type, v) for v in a)
    large, small = fn.intrinsic("llvm.maxnum", x.type, x, y), fn.intrinsic("llvm.minnum", x.type, x, y)
    ratio = small / fn.select(large.eq(0.0), fn.constant(large.type, 1.0), large)
    found = large * fn.intrinsic("llvm.sqrt", x.type, ratio * ratio + 1.0)
    infinite = fn.constant(x.type, float("inf"))
    return fn.select(x.eq(infinite) | y.eq(infinite), infinite, found)


def _exp(fn: Function, a: Complex) -> Complex:
    size = math_function(fn, "exp", a[0])
    return size * math_function(fn, "cos", a[1]), size * math_function(fn, "sin", a[1])


def _log(fn: Function, a: Complex) -> Complex:
    return math_function(fn, "log", _abs(fn, a)), math_function(fn, "atan2", a[1], a[0])


_BINARY: dict[str, Callable[[Function, Complex, Complex], Scalar]] = {
    "add": lambda fn, a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda fn, a, b: (a[0] - b[0], a[1] - b[1]),
    "multiply": _multiply,
    "divide": _divide,
}
_UNARY: dict[str, Callable[[Function, Complex], Scalar]] = {
    "negate": lambda fn, a: (-a[0], -a[1]),
    "abs": _abs,
    "exponential": _exp,
    "log": _log,
}
