"""NumPy's functions of elements on handles: ``np.exp(op)`` builds what ``xlakit.exp(op)`` does.

NumPy's operators call these functions where one side is an array, so that ``array + op`` comes here, too. NumPy's
other functions are refused: without that, some would give an answer about the handle (``np.array_equal`` is False).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from xlakit.errors import ArgumentError
from xlakit.ops.handle import XlaOp
from xlakit.ops.shared.subscript import instead_of

# By page the functions that compute what NumPy's do, by NumPy's name. Those of operators compute what the operators of
# handles do: division of integers and remainders are truncated, as in C++.
_PAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "elementwise.binary": {
        "add": "add",
        "subtract": "sub",
        "multiply": "mul",
        "divide": "div",
        "remainder": "rem",
        "fmod": "rem",
        "power": "pow",
        "bitwise_and": "and_",
        "bitwise_or": "or_",
        "bitwise_xor": "xor",
        "left_shift": "shift_left",
        "maximum": "max",
        "minimum": "min",
        "arctan": "atan",
        "arctan2": "atan2",
    },
    "elementwise.compare": {
        "equal": "eq",
        "not_equal": "ne",
        "less": "lt",
        "less_equal": "le",
        "greater": "gt",
        "greater_equal": "ge",
    },
    "elementwise.unary": {
        "negative": "neg",
        "absolute": "abs",
        "invert": "not_",
        "sign": "sign",
        "floor": "floor",
        "ceil": "ceil",
        "rint": "round_nearest_even",
        "isfinite": "is_finite",
        "conjugate": "conj",
    },
    "elementwise.elementary": {
        "exp": "exp",
        "expm1": "expm1",
        "log": "log",
        "log1p": "log1p",
        "sqrt": "sqrt",
        "cbrt": "cbrt",
        "sin": "sin",
        "cos": "cos",
        "tan": "tan",
        "sinh": "sinh",
        "cosh": "cosh",
        "tanh": "tanh",
        "arcsin": "asin",
        "arccos": "acos",
        "arcsinh": "asinh",
        "arccosh": "acosh",
        "arctanh": "atanh",
    },
    "elementwise.math_library": {
        "square": "square",
        "reciprocal": "reciprocal",
        "isnan": "is_nan",
        "isinf": "is_inf",
    },
    "dot": {"matmul": "dot"},
}
_FUNCTIONS: Final = {name: (page, own) for page, names in _PAGES.items() for name, own in names.items()}
# What to write for some of the others; x and y are the operands.
_INSTEAD: Final = {
    "exp2": "xlakit.pow(2.0, x)",
    "log2": "xlakit.log(x) divided by log(2)",
    "log10": "xlakit.log(x) divided by log(10)",
    "floor_divide": "xlakit.floor(x / y), or x / y of integers, which truncates",
    "fmax": "xlakit.max(x, y), which gives NaN where either is NaN",
    "fmin": "xlakit.min(x, y), which gives NaN where either is NaN",
    "logical_and": "xlakit.and_(x, y) of PRED",
    "logical_or": "xlakit.or_(x, y) of PRED",
    "logical_xor": "xlakit.xor(x, y) of PRED",
    "logical_not": "xlakit.not_(x) of PRED",
    "trunc": "xlakit.select(x < 0, xlakit.ceil(x), xlakit.floor(x))",
    "positive": "x",
}
# The same for functions of whole arrays.
_INSTEAD_OF_FUNCTION: Final = {
    "allclose": "x == y, or compile the program and compare its results",
    "append": "xlakit.concatenate([x, y], dimension)",
    "argmax": "xlakit.lib.arg_max(x, xlakit.S32, axis)",
    "argmin": "xlakit.lib.arg_min(x, xlakit.S32, axis)",
    "argsort": "xlakit.sort([x, xlakit.iota(..)], is_less, dimension)",
    "array_equal": "x == y, or compile the program and compare its results",
    "broadcast_to": "xlakit.lib.broadcast_to(x, sizes)",
    "clip": "xlakit.clamp(low, x, high)",
    "concatenate": "xlakit.concatenate([x, y], dimension)",
    "copy": "x, which nothing changes",
    "dot": "xlakit.dot(x, y), or x @ y",
    "einsum": "xlakit.lib.einsum(x, y, 'ij,jk->ik')",
    "expand_dims": "x[None], or x.reshape(..)",
    "flip": "xlakit.rev(x, dimensions)",
    "full_like": "xlakit.lib.full_like(x, value)",
    "hstack": "xlakit.concatenate([x, y], dimension)",
    "max": "xlakit.reduce(x, least, xlakit.max, dimensions=[..])",
    "min": "xlakit.reduce(x, greatest, xlakit.min, dimensions=[..])",
    "reshape": "x.reshape(..)",
    "round": "xlakit.round_nearest_even(x)",
    "shape": "x.shape.dimensions",
    "split": "x[begin:end] for each part",
    "stack": "xlakit.concatenate([x[None], y[None]], 0)",
    "take": "xlakit.lib.torch_index_select(x, index, dimension), or xlakit.gather",
    "tensordot": "xlakit.dot_general(x, y, ..)",
    "transpose": "x.T, or xlakit.transpose(x, permutation)",
    "vstack": "xlakit.concatenate([x, y], 0)",
    "where": "xlakit.select(condition, x, y)",
    "zeros_like": "xlakit.lib.zeros_like(x)",
}


def apply_ufunc(function: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> XlaOp:
    """What a function of NumPy gives for operands of which one is a handle.

    Raises ArgumentError for functions and options that have no counterpart, and what the function raises.
    """
    name = function.__name__
    if method != "__call__":
        raise ArgumentError(
            f"numpy.{name}.{method} has no meaning for an XlaOp",
            hint="write xlakit.reduce(x, initial, computation, dimensions=[..])" if method == "reduce" else "",
        )
    if "out" in options:
        # ``array += op`` is this call, too: NumPy does not tell them apart.
        raise ArgumentError(
            f"numpy.{name} cannot write an XlaOp into an array: its elements are not known while the program is built",
            hint="take the result: array = array + op instead of array += op, and no out=",
        )
    if options:
        raise ArgumentError(
            f"numpy.{name} of an XlaOp takes no {', '.join(options)}",
            hint="select, convert or name the result afterwards, with xlakit's functions",
        )
    return _function(name, inputs)(*inputs)


def apply_function(function: Callable[..., Any], inputs: tuple[Any, ...], options: dict[str, Any]) -> XlaOp:
    """What a function of NumPy's on whole arrays gives for a handle: of ``numpy.reshape`` what the method gives.

    Raises ArgumentError for all others, such as ``numpy.where``.
    """
    name = function.__name__
    if function is np.reshape and len(inputs) == 2 and not options:
        x, sizes = inputs
        return x.reshape(sizes)
    instead = _INSTEAD_OF_FUNCTION.get(name) or instead_of(name).removeprefix("; write ")
    raise ArgumentError(
        f"{function.__module__}.{name} has no meaning for an XlaOp",
        hint=f"write {instead}" if instead else "xlakit.lib has functions of arrays beside those of xlakit",
    )


def _function(name: str, inputs: tuple[Any, ...]) -> Callable[..., XlaOp]:
    if name == "right_shift":
        left, right = inputs
        shift = XlaOp.__rshift__ if isinstance(left, XlaOp) else XlaOp.__rrshift__
        return lambda *_: shift(left, right) if isinstance(left, XlaOp) else shift(right, left)
    if isinstance(inputs[0], XlaOp):
        # Operators of handles do not come here, so NumPy's function is meant, which gives something else.
        if name == "remainder":
            raise ArgumentError(
                "numpy.remainder has the sign of the divisor, XLA's that of the dividend",
                hint="write x % y, or numpy.fmod(x, y), where that is meant",
            )
        if name == "divide" and inputs[0].shape.is_array and inputs[0].shape.element_type.is_integral:
            raise ArgumentError(
                "numpy.divide of integers gives floats, XLA's divide truncates",
                hint="write x / y where that is meant, or convert with xlakit.convert_element_type first",
            )
        if name == "matmul" and max(map(_rank, inputs)) > 2:
            raise ArgumentError(
                "numpy.matmul has batches of matrices, XLA's dot has none",
                hint="write xlakit.dot_general(x, y, dimension_numbers) with batch dimensions, or x @ y for a dot",
            )
    if name not in _FUNCTIONS:
        instead = _INSTEAD.get(name)
        raise ArgumentError(
            f"numpy.{name} has no meaning for an XlaOp",
            hint=f"write {instead}" if instead else "xlakit.lib has functions of arrays beside those of xlakit",
        )
    page, own = _FUNCTIONS[name]
    return getattr(importlib.import_module(f"xlakit.ops.{page}"), own)


def _rank(operand: Any) -> int:
    if not isinstance(operand, XlaOp):
        return np.ndim(operand)
    return operand.shape.rank if operand.shape.is_array else 0
