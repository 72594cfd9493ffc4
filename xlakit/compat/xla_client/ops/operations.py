"""How functions of xlakit become functions of ``ops``: handles are unwrapped and wrapped, errors go to the builder."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from xlakit.compat.xla_client.binding import Convert, MisfitError, convert_of
from xlakit.compat.xla_client.computation import XlaBuilder, XlaComputation, XlaOp
from xlakit.compat.xla_client.enums import PrimitiveType
from xlakit.compat.xla_client.shapes import Layout, Shape, ShapeIndex
from xlakit.data.shape import Shape as OurShape
from xlakit.errors import ShapeError, XlakitError
from xlakit.ops.handle import XlaOp as OurOp

# Inside of the functions these are xlakit's own; callers give and get those of this package. The names are read by
# `operation`, which checks arguments by them.
Op: TypeAlias = Any
Ops: TypeAlias = Any
Builder: TypeAlias = Any
Computation: TypeAlias = Any
Computations: TypeAlias = Any
Shaped: TypeAlias = Any
Kind: TypeAlias = Any
Ints: TypeAlias = Sequence[int]
Pairs: TypeAlias = Sequence[tuple[int, int]]
# A record or an enumeration that the function reads by itself.
Record: TypeAlias = Any

_CHECKED: dict[str, type] = {
    "Op": XlaOp,
    "Builder": XlaBuilder,
    "Computation": XlaComputation,
    "Shaped": Shape,
    "Kind": PrimitiveType,
}
_CHECKED_ITEMS: dict[str, type] = {"Ops": XlaOp, "Computations": XlaComputation}
_CONVERTED: dict[str, Convert] = {
    "Ints": convert_of(Sequence[int]),
    "Pairs": convert_of(Sequence[tuple[int, int]]),
    "Sequence[bool]": convert_of(Sequence[bool]),
    "bool": convert_of(bool),
    "bytes": convert_of(bytes),
    "float": convert_of(float),
    "int": convert_of(int),
    "str": convert_of(str),
}


# Opcodes of binary operations whose functions have other names.
_OPCODES = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum", "rem": "remainder",
    "pow": "power", **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), "compare"),
}  # fmt: skip


class InvalidOperand(Exception):
    """An operand comes from an operation that was not well formed: its error is kept already."""


def operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``ops`` from one on xlakit's handles.

    Arguments of another type than the annotation says raise TypeError. An error of xlakit is kept by the builder, and
    the operation that is given then raises it when its shape is asked for.
    """
    signature = inspect.signature(function)
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}(): incompatible function arguments: {error}; it takes {signature}") from None
        for parameter, value in bound.arguments.items():
            annotation = str(signature.parameters[parameter].annotation)
            bound.arguments[parameter] = _checked(name, parameter, annotation, value)
        builder = _builder_of((*args, *kwargs.values()))
        bound.apply_defaults()
        try:
            for parameter, value in bound.arguments.items():
                bound.arguments[parameter] = unwrapped(value)
            return _wrapped(builder, function(*bound.args, **bound.kwargs))
        except InvalidOperand:
            return _failed(builder, function)
        except XlakitError as error:
            builder.keep_error(error, _words_for(error, bound.arguments))
            return _failed(builder, function)

    return call


def _words_for(error: XlakitError, arguments: Mapping[str, Any]) -> str:
    """What jaxlib says of the shapes of two operands that do not go together; empty for other errors."""
    shapes = [getattr(arguments.get(name), "shape", None) for name in ("lhs", "rhs")]
    if not isinstance(error, ShapeError) or "broadcast_dimensions" not in arguments or None in shapes:
        return ""
    left, right = (cast("OurShape", shape).without_layout() for shape in shapes)
    if left.element_type != right.element_type:
        name = error.operation or ""
        opcode = _OPCODES.get(name, name.rstrip("_").replace("_", "-"))
        return f"Binary op {opcode} with different element types: {left} and {right}"
    return f"Binary op with incompatible shapes: {left} and {right}"


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


def _checked(function: str, parameter: str, annotation: str, value: Any) -> Any:
    """The argument, converted by the annotation of its parameter. Raises TypeError for one that does not fit."""
    wanted = annotation.removesuffix(" | None")
    if value is None and wanted != annotation:
        return None
    if wanted in _CONVERTED:
        try:
            return _CONVERTED[wanted](value)
        except MisfitError:
            raise _misfit(function, parameter, f"of type {wanted}", value) from None
    if wanted == "Kind" and type(value) is int and value in PrimitiveType.__members__.values():
        return PrimitiveType(value)
    if wanted in _CHECKED and not isinstance(value, _CHECKED[wanted]):
        raise _misfit(function, parameter, f"of type {_CHECKED[wanted].__name__}", value)
    if wanted in _CHECKED_ITEMS:
        kind = _CHECKED_ITEMS[wanted]
        items = list(cast("Sequence[object]", value)) if isinstance(value, (list, tuple)) else [None]
        if not all(isinstance(item, kind) for item in items):
            raise _misfit(function, parameter, f"a sequence of {kind.__name__}", value)
    return value


def _misfit(function: str, parameter: str, wanted: str, value: object) -> TypeError:
    return TypeError(
        f"{function}(): incompatible function arguments: {parameter} is {wanted}, got {type(value).__name__}"
    )


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
        return XlaOp(builder, value)
    if isinstance(value, tuple):
        return tuple(_wrapped(builder, part) for part in cast("tuple[object, ...]", value))
    return value


def _failed(builder: XlaBuilder, function: Callable[..., Any]) -> Any:
    """What stands for the result of an operation that is not well formed."""
    count = str(function.__annotations__.get("return", "Op")).count("Op")
    failed = XlaOp(builder, None)
    return failed if count == 1 else (failed,) * count
