"""Arguments as jaxlib's bindings take them: by the annotations of a function, and TypeError for what does not fit.

Annotations may be classes, ``X | None``, ``Sequence[X]`` and tuples of a fixed length; everything else takes any value.
An integer is any number with ``__index__`` of 64 bits, a float any real number, and a bool only True or False.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from xlakit.compat.xla_client.errors import as_status
from xlakit.errors import XlakitError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_Convert = Callable[[Any], Any]


class _MisfitError(Exception):
    """A value does not fit an annotation."""


def bound(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function whose arguments are converted by its annotations, and whose errors are those of jaxlib.

    Raises TypeError for arguments that do not fit, and XlaRuntimeError for errors of xlakit.
    """
    signature = inspect.signature(function)

    @functools.cache
    def converts() -> dict[str, _Convert]:
        hints = typing.get_type_hints(function)
        return {name: _convert_of(hints[name]) for name in signature.parameters if name in hints}

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise incompatible(function.__name__, str(error)) from None
        convert = converts()
        for name, value in given.arguments.items():
            if name in convert:
                try:
                    given.arguments[name] = convert[name](value)
                except _MisfitError:
                    raise incompatible(function.__name__, f"{name} is {_shown(value)}; it takes {signature}") from None
        try:
            return function(*given.args, **given.kwargs)
        except XlakitError as error:
            raise as_status(error) from error

    return call


def unconstructed(init: Callable[_P, None]) -> Callable[_P, None]:
    """An ``__init__`` for this package alone: for arguments that do not fit, programs have no constructor."""
    signature = inspect.signature(init)

    @functools.cache
    def converts() -> dict[str, _Convert]:
        hints = typing.get_type_hints(init)
        return {name: _convert_of(hints[name]) for name in signature.parameters if name in hints}

    @functools.wraps(init)
    def construct(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            given = signature.bind(*args, **kwargs).arguments
            for name, convert in converts().items():
                convert(given[name])
        except (TypeError, KeyError, _MisfitError):
            raise TypeError(f"{type(args[0]).__name__}: no constructor defined!") from None
        init(*args, **kwargs)

    return construct


class TypedAttributes:
    """Attributes whose values are converted by the annotations of the class."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        convert = _attributes(type(self)).get(name)
        if convert is not None:
            try:
                value = convert(value)
            except _MisfitError:
                raise incompatible(name, f"{name} cannot be {_shown(value)}") from None
        object.__setattr__(self, name, value)


def incompatible(name: str, detail: str) -> TypeError:
    """The TypeError for arguments that do not fit."""
    return TypeError(f"{name}(): incompatible function arguments. {detail}")


@functools.cache
def _attributes(owner: type) -> dict[str, _Convert]:
    return {name: _convert_of(hint) for name, hint in typing.get_type_hints(owner).items()}


def _shown(value: object) -> str:
    # Arrays and modules have long texts.
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"


def _convert_of(hint: Any) -> _Convert:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return functools.partial(_either, [_convert_of(argument) for argument in arguments])
    if origin is not None and isinstance(origin, type) and issubclass(origin, tuple):
        if len(arguments) == 2 and arguments[1] is ...:
            return functools.partial(_items, _convert_of(arguments[0]), (tuple,))
        return functools.partial(_tuple, [_convert_of(argument) for argument in arguments])
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return functools.partial(_items, _convert_of(arguments[0]), ())
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Callable:
        return _callable
    if isinstance(origin or hint, type) and hint not in (object, Any):
        return functools.partial(_instance, origin or hint)
    return _anything


def _anything(value: Any) -> Any:
    return value


def _callable(value: Any) -> Any:
    if not callable(value):
        raise _MisfitError
    return value


def _instance(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise _MisfitError
    return value


def _either(converts: Sequence[_Convert], value: Any) -> Any:
    for convert in converts:
        try:
            return convert(value)
        except _MisfitError:
            continue
    raise _MisfitError


def _items(convert: _Convert, kinds: tuple[type, ...], value: Any) -> Any:
    if isinstance(value, (str, bytes, dict)) or not hasattr(cast("object", value), "__getitem__"):
        raise _MisfitError
    if kinds and not isinstance(value, kinds):
        raise _MisfitError
    made = [convert(item) for item in value]
    return tuple(made) if isinstance(value, tuple) else made


def _tuple(converts: Sequence[_Convert], value: Any) -> Any:
    if not isinstance(value, (tuple, list)) or len(cast("Sequence[object]", value)) != len(converts):
        raise _MisfitError
    return tuple(convert(item) for convert, item in zip(converts, cast("Sequence[object]", value), strict=True))


def _none(value: Any) -> Any:
    if value is not None:
        raise _MisfitError
    return value


def _bool(value: Any) -> Any:
    if not isinstance(value, bool):
        raise _MisfitError
    return value


def _int(value: Any) -> int:
    index = getattr(cast("object", value), "__index__", None)
    if index is None or isinstance(value, type):
        raise _MisfitError
    try:
        number = int(index())
    except TypeError:
        raise _MisfitError from None
    if not -(2**63) <= number < 2**64:
        raise _MisfitError
    return number


def _float(value: Any) -> float:
    if isinstance(value, (str, bytes, complex, type)) or not hasattr(cast("object", value), "__float__"):
        raise _MisfitError
    try:
        return float(value)
    except TypeError:
        raise _MisfitError from None


_SCALARS: dict[Any, _Convert] = {type(None): _none, bool: _bool, int: _int, float: _float}
