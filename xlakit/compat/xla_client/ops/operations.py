"""Makes functions of ``ops`` from xlakit's: unwraps and wraps handles, and stores errors in the builder."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, NamedTuple, cast

from xlakit.compat.xla_client.binding import convert_of, signature_binder
from xlakit.compat.xla_client.computation import XlaBuilder, XlaComputation, XlaOp
from xlakit.compat.xla_client.enums import PrimitiveType
from xlakit.compat.xla_client.shapes import Layout, Shape, ShapeIndex
from xlakit.errors import XlakitError
from xlakit.ops.handle import XlaOp as OurOp

REQUIRED = inspect.Parameter.empty


class Kind(NamedTuple):
    """The kind of a parameter of an operation: its arguments, and their conversion for xlakit's function."""

    name: str
    hint: Any  # an annotation of this package, which arguments are converted to, see binding.py
    read: Callable[[Any], Any] | None = None  # makes xlakit's value of it, where unwrapping does not
    default: Any = REQUIRED
    is_passed: bool = True
    by_name: bool = False

    def or_(self, default: Any) -> Kind:
        """The kind of a parameter that may be left out."""
        return self._replace(default=default)

    def unused(self) -> Kind:
        """The kind of a parameter that xlakit's function has no use for."""
        return self._replace(is_passed=False)

    def named(self) -> Kind:
        """The kind of a parameter that xlakit's function takes by the same name only."""
        return self._replace(by_name=True)


class InvalidOperand(Exception):
    """Raised for an operand whose operation was malformed; the builder already has its error."""


def operation(function: Callable[..., Any], /, **parameters: Kind) -> Callable[..., Any]:
    """A function of ``ops``: a function on xlakit's handles, which gets the arguments in the order of the parameters.

    A parameter that is called ``arg`` has no name, a keyword of Python is spelled with an underscore. Arguments of
    another type than the kinds say raise TypeError. An error of xlakit is kept by the builder, and the operation that
    is given then raises it when its shape is asked for.
    """
    signature = _signature(parameters)
    results = max(1, str(function.__annotations__.get("return", "Op")).count("Op"))

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs = {n + "_" * keyword.iskeyword(n): value for n, value in kwargs.items()}
        bound = bind(*args, **kwargs)
        builder = _builder_of((*args, *kwargs.values()))
        bound.apply_defaults()
        try:
            given = {n: unwrapped(value) for n, value in bound.arguments.items()}
            read = {n: (kind.read or _as_it_is)(given[n]) for n, kind in parameters.items()}
            passed = {n: value for n, value in read.items() if parameters[n].is_passed}
            named = {n: value for n, value in passed.items() if parameters[n].by_name}
            return _wrapped(builder, function(*(passed[n] for n in passed if n not in named), **named))
        except InvalidOperand:
            return _failed(builder, results)
        except XlakitError as error:
            builder.keep_error(error)
            return _failed(builder, results)

    bind = signature_binder(call, signature, lambda: {n: convert_of(kind.hint) for n, kind in parameters.items()})
    call.__doc__ = function.__doc__
    call.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _as_it_is(value: Any) -> Any:
    return value


def _signature(parameters: dict[str, Kind]) -> inspect.Signature:
    return inspect.Signature([
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_ONLY if name == "arg" else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=kind.default,
            annotation=kind.name,
        )
        for name, kind in parameters.items()
    ])  # fmt: skip


def overloaded(*forms: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is the first of several forms whose parameters its arguments fit."""

    @functools.wraps(forms[0])
    def call(*args: Any, **kwargs: Any) -> Any:
        problems: list[str] = []
        for form in forms:
            try:
                return form(*args, **kwargs)
            except TypeError as error:
                problems.append(str(error))
        raise TypeError("; or ".join(problems))

    call.forms = forms  # pyright: ignore[reportAttributeAccessIssue]
    return call


def name_functions(module: dict[str, Any]) -> None:
    """Give the functions that were made here, and their forms, the names that they have in a module."""
    for name, function in module.items():
        for form in (function, *getattr(function, "forms", ())):
            if isinstance(form, FunctionType) and form.__module__ == __name__:
                form.__name__ = form.__qualname__ = name


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


def _failed(builder: XlaBuilder, results: int) -> Any:
    """The results of a malformed operation: operations without an xlakit operation."""
    failed = XlaOp.of(builder, None)
    return failed if results == 1 else (failed,) * results
