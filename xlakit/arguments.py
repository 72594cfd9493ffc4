"""Conversion of the arguments of public functions to the annotated types; errors name the parameter.

:func:`converting` reads the annotations of a function at its first call, and converts each argument to the annotated
type before the function runs: NumPy's integers become ints; lists, ranges and generators become tuples; an argument of
another type is an ArgumentError. So functions need no checks of the Python types of their arguments.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import numbers
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, ParamSpec, TypeVar, Union, cast

import numpy as np

from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError, meant

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


class _UnfitError(Exception):
    """A value does not have the expected type; ``path`` leads to it inside the argument."""

    def __init__(self, value: object, wanted: str, path: str = "", hint: str = "") -> None:
        super().__init__(wanted)
        self.value, self.wanted, self.path, self.hint = value, wanted, path, hint

    def named(self, name: str) -> ArgumentError:
        kind = type(self.value).__name__
        shown = "None" if self.value is None else f"{_short(self.value)} of type {kind}"
        return ArgumentError(f"{name}{self.path} must be {self.wanted}, got {shown}", hint=self.hint)


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True)
class _Type:
    """An expected type: its name in errors (singular, plural), and the conversion, which raises _UnfitError."""

    one: str
    many: str
    convert: Callable[[Any], Any]


# -- numbers and text ------------------------------------------------------------------------------


def _int(value: object) -> int:
    if type(value) is not int:
        if isinstance(value, (bool, np.bool_)):
            raise _UnfitError(value, "an integer", hint=f"write {int(value)}")
        try:
            value = int(operator.index(cast("int", value)))
        except TypeError:
            whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
            raise _UnfitError(value, "an integer", hint=f"write {int(cast('float', value))}" if whole else "") from None
    if not -(2**63) <= value < 2**63:
        raise _UnfitError(value, "an integer that int64 holds")
    return value


def _float(value: object) -> float:
    if isinstance(value, (numbers.Real, np.generic)) and not isinstance(value, (bool, np.bool_)):
        try:
            return float(cast("float", value))
        except (TypeError, ValueError, OverflowError):
            pass
    raise _UnfitError(value, "a real number")


def _bool(value: object) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise _UnfitError(value, "True or False")


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise _UnfitError(value, "a string", hint="decode() gives bytes as text" if isinstance(value, bytes) else "")
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _UnfitError(value, "a string that UTF-8 can write") from None
    return value


def _anything(value: object) -> object:
    return value


_PLAIN: dict[object, _Type] = {
    int: _Type("an integer", "integers", _int),
    float: _Type("a real number", "real numbers", _float),
    bool: _Type("True or False", "bools", _bool),
    str: _Type("a string", "strings", _str),
    Any: _Type("anything", "anything", _anything),
    object: _Type("anything", "anything", _anything),
}
_WORDS: dict[object, tuple[str, str]] = {
    complex: ("a number", "numbers"),
    np.ndarray: ("an array", "arrays"),
    np.generic: ("a NumPy scalar", "NumPy scalars"),
    type(None): ("None", "None"),
    Callable: ("a function", "functions"),
}


_HINTS: dict[object, str] = {}
# Classes whose values can be iterated, but are not accepted as sequences.
_SINGLE: set[type] = set()


def name_type(kind: type, one: str, many: str, hint: str = "", *, is_sequence: bool = True) -> None:
    """Register the name of a class in errors, singular and plural, and a hint how to make an instance.

    is_sequence: whether an instance that can be iterated is accepted as a sequence.
    """
    _WORDS[kind], _HINTS[kind] = (one, many), hint
    if not is_sequence:
        _SINGLE.add(kind)


# -- types made of others --------------------------------------------------------------------------


def _elements(value: object, wanted: str) -> tuple[object, ...]:
    """The elements of a list, tuple, range, array, generator or the like; sets and other unordered values are unfit."""
    if isinstance(value, (list, tuple)):
        return tuple(cast("Sequence[object]", value))
    refused = isinstance(value, (str, bytes, bytearray, Set, Mapping)) or not isinstance(value, Iterable)
    refused = refused or type(value) in _SINGLE
    if not refused:
        try:
            return tuple(cast("Iterable[object]", value))
        except TypeError:  # an array of no dimensions
            pass
    raise _UnfitError(value, wanted, hint=_as_sequence(value))


def _as_sequence(value: object) -> str:
    """How to write a sequence instead of a value; empty where that is not known."""
    if isinstance(value, numbers.Number):
        return f"write [{value}]"
    if type(value) in _SINGLE:
        return "write [x], also for a single one"
    if isinstance(value, Set):
        return "write a list: a set has no order"
    return "write [function, ..]" if inspect.isfunction(value) else ""


def _inside(kind: _Type, value: object, position: int) -> object:
    try:
        return kind.convert(value)
    except _UnfitError as unfit:
        unfit.path = f"[{position}]{unfit.path}"
        raise


def _sequence(element: _Type) -> _Type:
    wanted = f"a sequence of {element.many}"

    def convert(value: object) -> object:
        return tuple([_inside(element, v, i) for i, v in enumerate(_elements(value, wanted))])

    return _Type(wanted, f"sequences of {element.many}", convert)


def _mapping(key: _Type, element: _Type) -> _Type:
    wanted = f"a mapping of {key.many} to {element.many}"

    def convert(value: object) -> object:
        if not isinstance(value, Mapping):
            raise _UnfitError(value, wanted)
        made: dict[object, object] = {}
        for k, v in cast("Mapping[object, object]", value).items():
            try:
                made[key.convert(k)] = element.convert(v)
            except _UnfitError as unfit:
                unfit.path = f"[{k!r}]{unfit.path}"
                raise
        return made

    return _Type(wanted, f"mappings of {key.many} to {element.many}", convert)


def _fixed(elements: Sequence[_Type]) -> _Type:
    wanted = f"({', '.join(e.one for e in elements)})"

    def convert(value: object) -> object:
        given = _elements(value, wanted)
        if len(given) != len(elements):
            raise _UnfitError(value, wanted)
        return tuple([_inside(e, v, i) for i, (e, v) in enumerate(zip(elements, given, strict=True))])

    return _Type(wanted, f"tuples {wanted}", convert)


def _either(hints: Sequence[Any]) -> _Type:
    members = [(hint, _type(hint)) for hint in hints]
    # A value that is of one of the members is not converted: np.float64 does not become a float if both are accepted.
    exact = {hint for hint in hints if isinstance(hint, type)}
    kinds = tuple(hint for hint in exact - {int, float, bool, str, object} if not dataclasses.is_dataclass(hint))
    # Numbers of any type are called a number.
    hidden = {bool, int, float} if complex in exact else set[object]()
    one, many = (
        _listed([getattr(kind, words) for hint, kind in members if hint not in hidden]) for words in ("one", "many")
    )

    def convert(value: object) -> object:
        if (type(value) in exact and type(value) in (int, float, bool, complex)) or isinstance(value, kinds):
            return value if type(value) is not int or complex in exact else _int(value)
        nearest: _UnfitError | None = None
        hint = ""
        for _, kind in members:
            try:
                return kind.convert(value)
            except _UnfitError as unfit:
                hint = hint or unfit.hint
                # An error inside of the value is more useful than a list of the accepted types.
                if unfit.path or unfit.wanted != kind.one:
                    nearest = max(nearest, unfit, key=lambda u: len(u.path)) if nearest else unfit
        raise nearest or _UnfitError(value, one, hint=hint)

    return _Type(one, many, convert)


def _listed(words: Iterable[str]) -> str:
    different = list(dict.fromkeys(words))
    return " or ".join([", ".join(different[:-1]), different[-1]] if len(different) > 1 else different)


def _is_instance(value: object, kind: type) -> bool:
    # From Python 3.12 on, isinstance of a Protocol does not see attributes that __getattr__ finds, as those of a
    # wrapper.
    members: Iterable[str] = getattr(kind, "__protocol_attrs__", ())
    return isinstance(value, kind) or (bool(members) and all(hasattr(value, name) for name in members))


def _instance(kind: type) -> _Type:
    article = "an" if kind.__name__[0] in "AEIOUX" else "a"
    one, many = _WORDS.get(kind, (f"{article} {kind.__name__}", f"{kind.__name__}s"))
    how_to_make = _HINTS.get(kind, "")
    if not how_to_make and issubclass(kind, enum.Enum):
        how_to_make = f"known: {', '.join(kind.__members__)}"
    if not how_to_make and dataclasses.is_dataclass(kind):
        how_to_make = f"write {kind.__name__}({', '.join(f.name for f in dataclasses.fields(kind) if f.init)})"
    # isinstance of a Protocol is slow, and its answer for a class does not change.
    known: set[type] = set()

    def convert(value: object) -> object:
        if type(value) not in known:
            if not _is_instance(value, kind):
                raise _UnfitError(value, one, hint=how_to_make)
            known.add(type(value))
        return value

    # A plain record is checked field by field; a class with __post_init__ has checked its fields itself.
    if not dataclasses.is_dataclass(kind) or hasattr(kind, "__post_init__"):
        return _Type(one, many, convert)
    return _Type(one, many, lambda value: _record(kind, convert(value)))


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, _Type], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((f.name, _type(hints[f.name])) for f in dataclasses.fields(kind) if f.init)


def _record(kind: type, value: Any) -> object:
    changes: dict[str, object] = {}
    for name, field in _fields(kind):
        before = getattr(value, name)
        try:
            after = field.convert(before)
        except _UnfitError as unfit:
            unfit.path = f".{name}{unfit.path}"
            raise
        if after is not before:
            changes[name] = after
    return dataclasses.replace(value, **changes) if changes else value


def _callable(value: object) -> object:
    if not callable(value):
        raise _UnfitError(value, "a function")
    return value


def _type(hint: Any) -> _Type:
    """The type of an annotation."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (Union, types.UnionType):
        return _either(inside)
    if origin is Sequence or (origin is tuple and len(inside) == 2 and inside[1] is Ellipsis):
        return _sequence(_type(inside[0]))
    if origin is Mapping:
        return _mapping(_type(inside[0]), _type(inside[1]))
    if origin is tuple:
        return _fixed([_type(i) for i in inside])
    if origin is Callable or hint is Callable:
        return _Type(*_WORDS[Callable], _callable)
    kind = hint if isinstance(hint, type) else origin
    return _instance(kind) if isinstance(kind, type) else _PLAIN[Any]


# -- functions -------------------------------------------------------------------------------------


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Parameters:
    """The parameters of a function, which convert the arguments of calls. Annotations are read at the first."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @functools.cached_property
    def _types(self) -> dict[str, _Type]:
        hints = typing.get_type_hints(self._function)
        return {name: _type(hints.get(name, Any)) for name in self._signature.parameters}

    @functools.cached_property
    def _positional(self) -> tuple[tuple[str, _Type], ...]:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple((p.name, self._types[p.name]) for p in self._signature.parameters.values() if p.kind in kinds)

    @functools.cached_property
    def _required(self) -> int:
        """The least number of arguments of a call without names; more than there can be if a name is required."""
        parameters = self._signature.parameters.values()
        required = [p for p in parameters if p.default is p.empty and p.kind not in _VARIABLE]
        keyword_only = any(p.kind is inspect.Parameter.KEYWORD_ONLY for p in required)
        return len(self._positional) + 1 if keyword_only else len(required)

    @functools.cached_property
    def _variable(self) -> tuple[str, _Type]:
        found = [p.name for p in self._signature.parameters.values() if p.kind is inspect.Parameter.VAR_POSITIONAL]
        return (found[0], self._types[found[0]]) if found else ("", _PLAIN[Any])

    def check_call(self, args: Sequence[object], named: Mapping[str, object]) -> None:
        """Raise ArgumentError for a call with too many or too few arguments, or one of an unknown name."""
        try:
            self._signature.bind(*args, **named)
        except TypeError as error:
            known = [name for name in self._signature.parameters if name != "self"]
            rule, hint = str(error), f"the parameters are ({', '.join(known)})"
            # Where a name is misspelled, bind() may say that the right one is missing.
            unknown = [name for name in named if name not in known]
            if unknown and not any(p.kind is p.VAR_KEYWORD for p in self._signature.parameters.values()):
                rule, near = f"got an unexpected keyword argument '{unknown[0]}'", meant(unknown[0], known)
                hint = f"{near} {hint}" if near else hint
            raise ArgumentError(rule, hint=hint) from None

    def converted(self, args: Sequence[object], named: Mapping[str, object]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call, converted; raises ArgumentError for their number, a name or a type."""
        if named or not self._required <= len(args) <= len(self._positional):
            self.check_call(args, named)
        given: list[Any] = []
        for position, value in enumerate(args):
            if position < len(self._positional):
                name, kind = self._positional[position]
            else:
                name, kind = self._variable
            given.append(_convert(name, kind, value))
        return given, {n: _convert(n, self._types.get(n, _PLAIN[Any]), v) for n, v in named.items()}


def _convert(name: str, kind: _Type, value: object) -> object:
    try:
        return kind.convert(value)
    except _UnfitError as unfit:
        raise unfit.named(name) from None


def converting(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Convert the arguments of every call of a function by its annotations; raises ArgumentError for unfit ones."""
    parameters = Parameters(function)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given, named = parameters.converted(args, kwargs)
        return cast("Any", function)(*given, **named)

    return call


def explaining(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """As :func:`converting`, but only if a call fails, to explain it: for functions that are called very often."""
    parameters = Parameters(function)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            if not isinstance(error, ArgumentError):
                parameters.converted(args, kwargs)
            raise

    return call


# -- values that check themselves ------------------------------------------------------------------


def constructing(kind: type[_T]) -> type[_T]:
    """Let failures of a class's constructor, by the number or types of its arguments, raise ArgumentError."""
    init: Any = kind.__init__
    kind.__init__ = explaining(init)
    return kind


def convert_fields(value: object, **kinds: object) -> None:
    """Convert fields of a frozen value that is being made; ``kinds`` has the type of each. Raises ArgumentError."""
    for name, hint in kinds.items():
        object.__setattr__(value, name, _convert(name, _cached_type(hint), getattr(value, name)))


_cached_type = functools.cache(_type)


def all_of(kind: type, values: object) -> bool:
    """Whether ``values`` is a tuple of values of this very type, and needs no conversion."""
    if type(values) is not tuple:
        return False
    for value in cast("tuple[object, ...]", values):  # noqa: SIM110 - all() takes twice as long, for every shape
        if type(value) is not kind:
            return False
    return True
