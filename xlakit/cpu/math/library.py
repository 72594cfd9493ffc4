"""The functions by name: each is added to a module once, as a small function that LLVM puts where it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from xlakit.cpu.llvm.function import Function
from xlakit.cpu.llvm.types import F32, F64
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math import error_function, exponential, inverse_hyperbolic, logarithm, power, roots, trigonometric
from xlakit.errors import InternalError

_FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "acos": trigonometric.acos,
    "acosh": inverse_hyperbolic.acosh,
    "asin": trigonometric.asin,
    "asinh": inverse_hyperbolic.asinh,
    "atan": trigonometric.atan,
    "atan2": trigonometric.atan2,
    "atanh": inverse_hyperbolic.atanh,
    "cbrt": roots.cbrt,
    "cos": trigonometric.cos,
    "cosh": exponential.cosh,
    "erf": error_function.erf,
    "exp": exponential.exp,
    "expm1": exponential.expm1,
    "log": logarithm.log,
    "log1p": logarithm.log1p,
    "logistic": exponential.logistic,
    "pow": power.pow,
    "rsqrt": roots.rsqrt,
    "sin": trigonometric.sin,
    "sinh": exponential.sinh,
    "sqrt": roots.sqrt,
    "tan": trigonometric.tan,
    "tanh": exponential.tanh,
}
ULP_BOUNDS = {}


def math_function(fn: Function, name: str, *arguments: Value) -> Value:
    """Call an elementary function in code that is being written.

    fn: the function that the call goes into.
    name: a key of ULP_BOUNDS.
    arguments: as many values as it takes, all of F32 or all of F64.

    Gives the result, of their type. Raises InternalError for anything else.
    """
    kinds = {a.type for a in arguments}
    write = _FUNCTIONS.get(name)
    if write is None or len(kinds) != 1 or not kinds <= {F32, F64}:
        raise InternalError(f"no elementary function {name} of {', '.join(map(repr, arguments))}")
    kind = arguments[0].type
    symbol = f"math.{name}.{kind.name}"
    if symbol not in fn.module.functions:
        made = fn.module.function(symbol, kind, [kind] * len(arguments), attributes=["alwaysinline"])
        made.ret(write(*made.parameters))
    return fn.call(symbol, kind, *arguments)
