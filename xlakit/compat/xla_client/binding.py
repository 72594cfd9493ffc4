"""Converts arguments as jaxlib's bindings do, by the annotations of a function; TypeError for others.

Annotations may be classes, ``X | None``, ``Sequence[X]``, tuples of a fixed length, and ``Annotated[Any, X]``, whose
arguments are X; everything else takes any value.
An integer is what ``int`` makes of anything but a float, texts included, of 64 bits, and so may be a member of an
enumeration; a float is any real number, and a bool only True or False.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

from xlakit.compat.xla_client.errors import as_status
from xlakit.errors import XlakitError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Member = TypeVar("_Member", bound=enum.Enum)
_Wrapped = TypeVar("_Wrapped")

Convert = Callable[[Any], Any]


class MisfitError(Exception):
    """A value does not fit an annotation."""


def binder(function: Callable[..., Any]) -> Callable[..., inspect.BoundArguments]:
    """A function that binds arguments to the parameters of ``function`` and converts them by its annotations.

    It raises TypeError for arguments that do not fit.
    """
    signature = inspect.signature(function)

    def converts() -> dict[str, Convert]:
        hints = typing.get_type_hints(function, include_extras=True)
        return {name: convert_of(hints[name]) for name in signature.parameters if name in hints}

    return signature_binder(function, signature, converts)


def signature_binder(
    function: Callable[..., Any], signature: inspect.Signature, converts: Callable[[], dict[str, Convert]]
) -> Callable[..., inspect.BoundArguments]:
    """As :func:`binder`, for a signature; ``converts`` is called when arguments are first bound."""
    converts = functools.cache(converts)

    def bind(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise incompatible(function.__name__, f"{error}; it takes {signature}") from None
        convert = converts()
        for name, value in given.arguments.items():
            if name in convert:
                try:
                    given.arguments[name] = convert[name](value)
                except MisfitError:
                    raise incompatible(function.__name__, f"{name} is {_shown(value)}; it takes {signature}") from None
        return given

    return bind


def bound(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function whose arguments are converted by its annotations, and whose errors are those of jaxlib.

    Raises TypeError for arguments that do not fit, and XlaRuntimeError for errors of xlakit.
    """
    bind = binder(function)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = bind(*args, **kwargs)
        try:
            return function(*given.args, **given.kwargs)
        except XlakitError as error:
            raise as_status(error) from error

    return call


def unconstructed(init: Callable[_P, None]) -> Callable[_P, None]:
    """An ``__init__`` for use inside of this package; with other arguments it says that there is no constructor."""
    bind = binder(init)

    @functools.wraps(init)
    def construct(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            bind(*args, **kwargs)
        except TypeError:
            raise TypeError(f"{type(args[0]).__name__}: no constructor defined!") from None
        init(*args, **kwargs)

    return construct


def no_constructor(self: object, *_: object, **__: object) -> None:
    """The ``__init__`` of a class without constructor for programs; this package makes objects with ``of``."""
    raise TypeError(f"{type(self).__name__}: no constructor defined!")


def cast_integers(values: Sequence[object]) -> tuple[int, ...]:
    """Integers that jaxlib casts one by one, after the arguments: a misfit is the RuntimeError of C++'s cast."""
    try:
        return tuple(map(_int, values))
    except MisfitError:
        raise RuntimeError(f"std::bad_cast: {values!r} are not all integers") from None


class Wrapper(Generic[_Wrapped]):
    """A class around a value of xlakit."""

    __slots__ = ("wrapped",)

    wrapped: _Wrapped

    @classmethod
    def of(cls, wrapped: _Wrapped) -> Self:
        """The object around a value of xlakit."""
        made = cls.__new__(cls)
        made.wrapped = wrapped
        return made


class ComparedWrapper(Wrapper[_Wrapped]):
    """Values that are compared with values of their own class; others raise TypeError, as jaxlib's do."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self.wrapped,)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            raise incompatible("__eq__", f"a {type(self).__name__} is not compared with {_shown(other)}")
        return self.compared() == other.compared()

    def __hash__(self) -> int:
        return hash(self.compared())

    def compared(self) -> object:
        """The value by which objects are compared and hashed."""
        return self.wrapped


class TypedAttributes:
    """Attributes whose values are converted by the annotations of the class."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        convert = _attributes(type(self)).get(name)
        if convert is not None:
            try:
                value = convert(value)
            except MisfitError:
                raise incompatible(name, f"{name} cannot be {_shown(value)}") from None
        object.__setattr__(self, name, value)


def incompatible(name: str, detail: str) -> TypeError:
    """The TypeError for arguments that do not fit."""
    return TypeError(f"{name}(): incompatible function arguments. {detail}")


@functools.cache
def _attributes(owner: type) -> dict[str, Convert]:
    return {name: convert_of(hint) for name, hint in typing.get_type_hints(owner).items()}


def fields_of(record: object, *names: str) -> Any:
    """The record, if it has attributes of these names, whatever its class. Raises TypeError."""
    missing = [name for name in names if not hasattr(record, name)]
    if missing:
        raise TypeError(f"incompatible function arguments: {_shown(record)} has no {', '.join(missing)}")
    return record


def member_of(value: object, kind: type[_Member]) -> _Member:
    """The value, if it is a member of an enumeration, or the member of a number. Raises TypeError."""
    if isinstance(value, int) and not isinstance(value, kind):
        with contextlib.suppress(ValueError):
            value = kind(value)
    if not isinstance(value, kind):
        raise TypeError(f"incompatible function arguments: {_shown(value)} is no {kind.__name__}")
    return value


def _shown(value: object) -> str:
    # Arrays and modules have long texts.
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"


def convert_of(hint: Any) -> Convert:
    """A function that converts a value to the type of an annotation, or raises MisfitError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return convert_of(arguments[1])
    if origin in (types.UnionType, typing.Union):
        return functools.partial(_either, [convert_of(argument) for argument in arguments])
    if origin is not None and isinstance(origin, type) and issubclass(origin, tuple):
        if len(arguments) == 2 and arguments[1] is ...:
            return functools.partial(_items, convert_of(arguments[0]), (tuple,))
        return functools.partial(_tuple, [convert_of(argument) for argument in arguments])
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return functools.partial(_items, convert_of(arguments[0]), ())
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Callable:
        return _callable
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return functools.partial(_number_of, hint)
    if isinstance(origin or hint, type) and hint not in (object, Any):
        return functools.partial(_instance, origin or hint)
    return _anything


def _anything(value: Any) -> Any:
    return value


def _callable(value: Any) -> Any:
    if not callable(value):
        raise MisfitError
    return value


def _instance(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise MisfitError
    return value


def _number_of(kind: type[enum.Enum], value: Any) -> Any:
    """A member of an enumeration, or the member of this number."""
    if isinstance(value, kind):
        return value
    if isinstance(value, (enum.Enum, str, bytes)):
        raise MisfitError
    try:
        return kind(_int(value))
    except ValueError:
        raise MisfitError from None


def _either(converts: Sequence[Convert], value: Any) -> Any:
    for convert in converts:
        try:
            return convert(value)
        except MisfitError:
            continue
    raise MisfitError


def _items(convert: Convert, kinds: tuple[type, ...], value: Any) -> Any:
    if isinstance(value, (str, bytes, dict)) or not hasattr(cast("object", value), "__getitem__"):
        raise MisfitError
    if kinds and not isinstance(value, kinds):
        raise MisfitError
    made = [convert(item) for item in value]
    return tuple(made) if isinstance(value, tuple) else made


def _tuple(converts: Sequence[Convert], value: Any) -> Any:
    if not isinstance(value, (tuple, list)) or len(cast("Sequence[object]", value)) != len(converts):
        raise MisfitError
    return tuple(convert(item) for convert, item in zip(converts, cast("Sequence[object]", value), strict=True))


def _none(value: Any) -> Any:
    if value is not None:
        raise MisfitError
    return value


def _bool(value: Any) -> Any:
    if not isinstance(value, bool):
        raise MisfitError
    return value


def _int(value: Any) -> int:
    if isinstance(value, float):
        raise MisfitError
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise MisfitError from None
    if not -(2**63) <= number < 2**64:
        raise MisfitError
    return number


def _float(value: Any) -> float:
    if isinstance(value, (str, bytes, complex, type)) or not hasattr(cast("object", value), "__float__"):
        raise MisfitError
    try:
        return float(value)
    except TypeError:
        raise MisfitError from None


_SCALARS: dict[Any, Convert] = {type(None): _none, bool: _bool, int: _int, float: _float}
