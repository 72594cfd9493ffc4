"""Conversion between values of the host and of the interpreter: arguments and results."""

from __future__ import annotations

from typing import Any

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, LiteralError, UnsupportedError
from xlakit.ir.operation import TOKEN, Array, Token, Value
from xlakit.ops.shared.padding import zero_extend


def to_device(value: object, shape: Shape, what: str) -> Value:
    """Convert a value of the host to one of the interpreter.

    Takes NumPy arrays (and what converts to them) of just the right type, Literals, Python numbers and lists that fit
    the type, tuples for tuples, None for tokens. ``what`` names the value in the ArgumentError that says what was
    expected and what was given.
    """
    if isinstance(value, Literal) and not value.shape.is_array:
        value = value.elements if value.shape.is_tuple else None
    if shape.is_tuple:
        if not isinstance(value, (tuple, list)) or len(value) != len(shape.tuple_shapes):  # pyright: ignore
            raise ArgumentError(f"{what} takes {_name(shape)}, got {describe(value)}", hint="give a tuple")
        return tuple(
            to_device(v, s, f"element {i} of {what}")
            for i, (v, s) in enumerate(zip(value, shape.tuple_shapes, strict=True))  # pyright: ignore
        )
    if shape.is_token:
        if value is not None and not isinstance(value, Token):
            raise ArgumentError(f"{what} is a token, got {describe(value)}", hint="give None")
        return TOKEN
    if not shape.is_array:
        raise UnsupportedError(
            f"{what} of shape {shape} cannot be given from outside",
            hint="take it out of the entry computation's parameters",
        )
    array = _to_array(value, shape, what)
    fits = array.ndim == shape.rank and all(
        size == bound or (dynamic and (size <= bound or bound < 0))
        for size, bound, dynamic in zip(array.shape, shape.dimensions, shape.dynamic_dimensions, strict=True)
    )
    if not fits:
        raise ArgumentError(
            f"{what} takes {_name(shape)}, got {describe(array)}", hint="reshape or convert it with NumPy"
        )
    return array


def _to_array(value: object, shape: Shape, what: str) -> Array:
    kind = shape.element_type
    if isinstance(value, Literal):
        value = value.array
    if isinstance(value, (bool, int, float, complex, list, tuple)):
        try:
            return Literal.from_value(list(value) if isinstance(value, tuple) else value, kind).array  # pyright: ignore
        except (LiteralError, ValueError, OverflowError) as error:
            rule = error.rule if isinstance(error, LiteralError) else str(error)
            raise ArgumentError(
                f"{what} takes {_name(shape)}, got {describe(value)}: {rule}",
                hint="give a value of that shape, or a NumPy array",
            ) from None
    array = np.asarray(value)
    if array.dtype.newbyteorder("=") == kind.dtype:
        # Arrays of the other byte order are converted.
        array = array.astype(kind.dtype, copy=False)
    if array.dtype != kind.dtype:
        hint = f"give a NumPy array of {kind.dtype}"
        if array.dtype.kind in "biufcV":
            hint = f"convert it, as with .astype(numpy.dtype('{kind.dtype}'))"
        raise ArgumentError(f"{what} takes {_name(shape)}, got {describe(value)}", hint=hint)
    return array


def describe(value: object) -> str:
    """A description of a value for errors, as a shape if possible."""
    if isinstance(value, (np.ndarray, np.generic)):
        try:
            kind = PrimitiveType.from_dtype(value.dtype).hlo_name
        except UnsupportedError:
            kind = str(value.dtype)
        return f"{kind}[{','.join(map(str, value.shape))}]"
    if isinstance(value, (bool, int, float, complex)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"  # pyright: ignore
    return "None" if value is None else f"a {type(value).__name__}"


def _name(shape: Shape) -> str:
    return shape.to_string(with_layout=False)


def to_host(value: Value) -> Any:
    """Convert a value of the interpreter to one of the host: fresh arrays without other references, tuples of them,
    None for tokens.
    """
    if isinstance(value, tuple):
        return tuple(to_host(v) for v in value)  # pyright: ignore
    return None if value is TOKEN else np.array(value, order="C")


def at_declared_sizes(value: Value, shape: Shape) -> Value:
    """The value with every dimension that is declared static padded with zeros to its declared size."""
    if isinstance(value, tuple):
        return tuple(map(at_declared_sizes, value, shape.tuple_shapes))  # pyright: ignore
    if value is TOKEN or value.shape == shape.dimensions:
        return value
    marks = zip(shape.dimensions, shape.dynamic_dimensions, strict=True)
    return zero_extend(value, [0 if mark else size for size, mark in marks])


def read_only(value: Value) -> Value:
    """The same value, in views that the host cannot write through."""
    if isinstance(value, tuple):
        return tuple(read_only(v) for v in value)  # pyright: ignore
    if value is TOKEN:
        return None
    view = np.asarray(value).view()
    view.flags.writeable = False
    return view
