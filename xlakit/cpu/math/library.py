"""The functions by name: each is added to a module once, as a small function that LLVM puts where it is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from xlakit.cpu.llvm.function import Effort, Function
from xlakit.cpu.llvm.promises import ALWAYS_INLINE, NO_INLINE
from xlakit.cpu.llvm.types import F32, F64, Type
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math import exponential, half_precision, logarithm, roots, trigonometric
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError


class _Entry(NamedTuple):
    write: Callable[..., Value]
    # The bounds of the error of F32 and of F64.
    single: float
    double: float


# Single precision that is computed in double precision has one rounding that counts: its bound is little above 1/2.
_LIBRARY: Final = {
    "acos": _Entry(trigonometric.acos, 0.51, 1.0),
    "acosh": _Entry(logarithm.acosh, 0.51, 2.75),
    "asin": _Entry(trigonometric.asin, 0.51, 1.0),
    "asinh": _Entry(logarithm.asinh, 0.51, 2.0),
    "atan": _Entry(trigonometric.atan, 0.51, 2.5),
    "atan2": _Entry(trigonometric.atan2, 0.51, 2.5),
    "atanh": _Entry(logarithm.atanh, 0.51, 2.5),
    "cbrt": _Entry(roots.cbrt, 0.51, 0.51),
    "cos": _Entry(trigonometric.cos, 1.75, 1.0),
    "cosh": _Entry(exponential.cosh, 0.51, 2.0),
    "erf": _Entry(exponential.erf, 1.5, 1.5),
    "exp": _Entry(exponential.exp, 1.25, 1.25),
    "expm1": _Entry(exponential.expm1, 1.5, 1.5),
    "log": _Entry(logarithm.log, 1.0, 1.0),
    "log1p": _Entry(logarithm.log1p, 1.75, 1.75),
    "logistic": _Entry(exponential.logistic, 2.75, 2.75),
    "pow": _Entry(logarithm.pow, 0.52, 1.0),
    "rsqrt": _Entry(roots.rsqrt, 1.51, 1.51),
    "sin": _Entry(trigonometric.sin, 1.75, 1.0),
    "sinh": _Entry(exponential.sinh, 0.51, 2.75),
    "sqrt": _Entry(roots.sqrt, 0.5, 0.5),
    "tan": _Entry(trigonometric.tan, 0.51, 2.5),
    "tanh": _Entry(exponential.tanh, 1.75, 2.75),
}

# For each function and type the greatest error, in units of the last place of the exact result.
ULP_BOUNDS: Final = MappingProxyType(
    {(name, kind): bound for name, e in _LIBRARY.items() for kind, bound in ((F32, e.single), (F64, e.double))}
)
FUNCTION_NAMES: Final = tuple(_LIBRARY)
# Quicker ones, of what F16 or BF16 has, for results that are rounded to that type.
_HALF_PRECISION: Final = {
    "erf": half_precision.erf,
    "exp": half_precision.exp,
    "log": half_precision.log,
    "logistic": half_precision.logistic,
    "tanh": half_precision.tanh,
}
HALF_PRECISION_NAMES: Final = tuple(_HALF_PRECISION)


def math_function(fn: Function, name: str, *arguments: Value, kind: PrimitiveType | None = None) -> Value:
    """Call an elementary function in code that is being written.

    fn: the function that the call goes into.
    name: one of FUNCTION_NAMES.
    arguments: as many values as it takes (pow and atan2 take two), all of F32 or all of F64, or vectors of one length.
    kind: the element type of the operation: of F16 and BF16, some functions are only as good as its rounding needs.

    Gives the result, of their type: for all arguments, subnormal, infinite and NaN ones too, what C's function gives,
    within ULP_BOUNDS; where ``kind`` is of 16 bits, within 0.505 when rounded to it. Raises InternalError for other
    names and types.
    """
    entry = _LIBRARY.get(name)
    types: set[Type] = {a.type for a in arguments}
    if entry is None or len(types) != 1 or arguments[0].type.element not in (F32, F64):
        raise InternalError(f"no elementary function {name} of {', '.join(map(repr, arguments))}")
    type, write = arguments[0].type, entry.write
    symbol, attribute = f"math.{name}.{type.name if type.lanes == 1 else type.mangled}", ALWAYS_INLINE
    if kind in half_precision.KINDS and name in _HALF_PRECISION:
        symbol, write = f"{symbol}.{kind.hlo_name}", partial(_HALF_PRECISION[name], kind)
    if fn.effort is Effort.CODE:
        # A function is put only into others of its own effort.
        symbol += ".code"
    if fn.calls_math:
        symbol, attribute = f"{symbol}.called", NO_INLINE
    if symbol not in fn.module.functions:
        made = fn.module.function(symbol, type, [type] * len(arguments), attributes=[attribute])
        made.effort = Effort.CODE if fn.effort is Effort.CODE else Effort.ALL
        made.ret(write(*made.parameters))
    return fn.call(symbol, type, *arguments)
