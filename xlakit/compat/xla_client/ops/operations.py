"""How functions of xlakit become functions of ``ops``: handles are unwrapped and wrapped, errors go to the builder."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeAlias, cast

from xlakit.compat.xla_client.binding import binder
from xlakit.compat.xla_client.computation import XlaBuilder, XlaComputation, XlaOp
from xlakit.compat.xla_client.enums import PrimitiveType
from xlakit.compat.xla_client.shapes import Layout, Shape, ShapeIndex
from xlakit.errors import XlakitError
from xlakit.ops.handle import XlaOp as OurOp

# Callers give and get the types of this package, which `operation` checks; inside of the functions they are xlakit's.
Op: TypeAlias = Annotated[Any, XlaOp]
Ops: TypeAlias = Annotated[Any, Sequence[XlaOp]]
Builder: TypeAlias = Annotated[Any, XlaBuilder]
Computation: TypeAlias = Annotated[Any, XlaComputation]
Computations: TypeAlias = Annotated[Any, Sequence[XlaComputation]]
Shaped: TypeAlias = Annotated[Any, Shape]
Kind: TypeAlias = Annotated[Any, PrimitiveType]
Ints: TypeAlias = Sequence[int]
Pairs: TypeAlias = Sequence[tuple[int, int]]
# A record or an enumeration that the function reads by itself.
Record: TypeAlias = Any


class InvalidOperand(Exception):
    """An operand comes from an operation that was not well formed: its error is kept already."""


def operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``ops`` from one on xlakit's handles.

    Arguments of another type than the annotation says raise TypeError. An error of xlakit is kept by the builder, and
    the operation that is given then raises it when its shape is asked for.
    """
    bind = binder(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = bind(*args, **kwargs)
        builder = _builder_of((*args, *kwargs.values()))
        bound.apply_defaults()
        try:
            for parameter, value in bound.arguments.items():
                bound.arguments[parameter] = unwrapped(value)
            return _wrapped(builder, function(*bound.args, **bound.kwargs))
        except InvalidOperand:
            return _failed(builder, function)
        except XlakitError as error:
            builder.keep_error(error)
            return _failed(builder, function)

    return call


def overloaded(*forms: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that is the first of several forms whose parameters its arguments fit."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            problems: list[str] = []
            for form in forms:
                try:
                    return form(*args, **kwargs)
                except TypeError as error:
                    problems.append(str(error))
            raise TypeError("; or ".join(problems))

        return call

    return decorate


def _handles(values: object) -> Iterator[XlaOp | XlaBuilder]:
    for value in cast("Sequence[object]", values):
        if isinstance(value, (XlaOp, XlaBuilder)):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _handles(value)


def _builder_of(values: Sequence[object]) -> XlaBuilder:
    for handle in _handles(values):
        return handle if isinstance(handle, XlaBuilder) else handle.builder
    raise TypeError("incompatible function arguments: no operand is an XlaOp")


def unwrapped(value: Any) -> Any:
    """Xlakit's value of one of this package, or of a list of them; others as they are."""
    if isinstance(value, XlaOp):
        if value.wrapped is None:
            raise InvalidOperand
        value.check_not_built()
        return value.wrapped
    if isinstance(value, XlaComputation):
        return value.as_ours()
    if isinstance(value, (XlaBuilder, Shape, Layout, ShapeIndex, PrimitiveType)):
        return value.wrapped
    if isinstance(value, (list, tuple)):
        made = [unwrapped(item) for item in cast("Sequence[object]", value)]
        return tuple(made) if isinstance(value, tuple) else made
    return value


def _wrapped(builder: XlaBuilder, value: Any) -> Any:
    if isinstance(value, OurOp):
        return XlaOp.of(builder, value)
    if isinstance(value, tuple):
        return tuple(_wrapped(builder, part) for part in cast("tuple[object, ...]", value))
    return value


def _failed(builder: XlaBuilder, function: Callable[..., Any]) -> Any:
    """What stands for the result of an operation that is not well formed."""
    count = str(function.__annotations__.get("return", "Op")).count("Op")
    failed = XlaOp.of(builder, None)
    return failed if count == 1 else (failed,) * count
