"""The elementary functions by name: each is added to a module once, as a small function that LLVM inlines."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import Final, NamedTuple

from xlakit.cpu.llvm.function import Effort, Function
from xlakit.cpu.llvm.promises import ALWAYS_INLINE, NO_INLINE
from xlakit.cpu.llvm.types import F32, F64, Type
from xlakit.cpu.llvm.values import Value
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError
from xlakit.options import knob


class _Entry(NamedTuple):
    # The module of this package that writes the function.
    module: str
    # The error bounds of F32 and F64.
    single: float
    double: float


# A function of F32 that is computed in F64 is rounded once, so its bound is slightly above 1/2.
_LIBRARY: Final = {
    "acos": _Entry("trigonometric", 0.51, 1.0),
    "acosh": _Entry("logarithm", 0.51, 2.75),
    "asin": _Entry("trigonometric", 0.51, 1.0),
    "asinh": _Entry("logarithm", 0.51, 2.0),
    "atan": _Entry("trigonometric", 0.51, 2.5),
    "atan2": _Entry("trigonometric", 0.51, 2.5),
    "atanh": _Entry("logarithm", 0.51, 2.5),
    "cbrt": _Entry("roots", 0.51, 0.51),
    "cos": _Entry("trigonometric", 1.75, 1.0),
    "cosh": _Entry("exponential", 0.51, 2.0),
    "erf": _Entry("exponential", 1.5, 1.5),
    "exp": _Entry("exponential", 1.25, 1.25),
    "expm1": _Entry("exponential", 1.5, 1.5),
    "log": _Entry("logarithm", 1.0, 1.0),
    "log1p": _Entry("logarithm", 1.75, 1.75),
    "logistic": _Entry("exponential", 2.75, 2.75),
    "pow": _Entry("logarithm", 0.52, 1.0),
    "rsqrt": _Entry("roots", 1.51, 1.51),
    "sin": _Entry("trigonometric", 1.75, 1.0),
    "sinh": _Entry("exponential", 0.51, 2.75),
    "sqrt": _Entry("roots", 0.5, 0.5),
    "tan": _Entry("trigonometric", 0.51, 2.5),
    "tanh": _Entry("exponential", 1.75, 2.75),
}

# For each function and type, the greatest error in units of the last place of the exact result.
ULP_BOUNDS: Final = MappingProxyType(
    {(name, kind): bound for name, e in _LIBRARY.items() for kind, bound in ((F32, e.single), (F64, e.double))}
)
FUNCTION_NAMES: Final = tuple(_LIBRARY)
# Functions with faster variants for results that are rounded to F16 or BF16.
HALF_PRECISION_NAMES: Final = ("erf", "exp", "log", "logistic", "tanh")
_HALF_PRECISION_KINDS: Final = (PrimitiveType.F16, PrimitiveType.BF16)
# The most elementary functions that are inlined into a function of vector code. Further ones are called: passing values
# through memory costs no more than the function itself, and LLVM is slow on the hundred instructions of each.
_MOST_WRITTEN = knob("math.most_written", 32, 0, 1 << 12)


def _writer(module: str, name: str) -> Callable[..., Value]:
    """The Python function that writes an elementary function; its module is imported on first use."""
    return getattr(import_module(f"xlakit.cpu.math.{module}"), name)


def math_function(fn: Function, name: str, *arguments: Value, kind: PrimitiveType | None = None) -> Value:
    """Write a call of an elementary function.

    fn: the function that the call is written into. name: one of FUNCTION_NAMES. arguments: as many values as it takes
    (pow and atan2 take two), all F32 or all F64, or vectors of one length. kind: the element type of the operation; for
    F16 and BF16, some functions are only as accurate as its rounding needs.

    Gives the result, of the arguments' type: the result of C's function for all arguments, including subnormal,
    infinite and NaN ones, within ULP_BOUNDS; for a ``kind`` of 16 bits, within 0.505 when rounded to it. Raises
    InternalError for other names and types.
    """
    entry = _LIBRARY.get(name)
    types: set[Type] = {a.type for a in arguments}
    if entry is None or len(types) != 1 or arguments[0].type.element not in (F32, F64):
        raise InternalError(f"no elementary function {name} of {', '.join(map(repr, arguments))}")
    type = arguments[0].type
    symbol, attribute = f"math.{name}.{type.name if type.lanes == 1 else type.mangled}", ALWAYS_INLINE
    module = entry.module
    stored_kind: tuple[PrimitiveType, ...] = ()
    if kind in _HALF_PRECISION_KINDS and name in HALF_PRECISION_NAMES:
        symbol, module, stored_kind = f"{symbol}.{kind.hlo_name}", "half_precision", (kind,)
    if fn.effort is Effort.CODE:
        # A function is inlined only into functions of its own effort.
        symbol += ".code"
    fn.elementary_functions += 1
    if fn.calls_math or (fn.effort is Effort.CODE and fn.elementary_functions > _MOST_WRITTEN.value):
        symbol, attribute = f"{symbol}.called", NO_INLINE
    if symbol not in fn.module.functions:
        function = fn.module.function(symbol, type, [type] * len(arguments), attributes=[attribute])
        function.effort = Effort.CODE if fn.effort is Effort.CODE else Effort.ALL
        function.ret(_writer(module, name)(*stored_kind, *function.parameters))
    return fn.call(symbol, type, *arguments)
