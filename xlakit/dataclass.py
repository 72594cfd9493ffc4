"""Dataclasses whose methods are written when they are first called: ``dataclass`` in the place of the library's.

The package has some two hundred dataclasses, and a process uses the methods of few of them. The library's decorator
compiles up to six methods for each class while it is imported, which took half of the time to import the compiler. Here
the decorator puts short functions in their place, each of which writes its method when it is called for the first time,
and puts it into the class:

    class Window:               __init__ = a stand-in ------first Window(...)----->  __init__ = def __init__(self, ...)

The classes are dataclasses in every respect that the package uses: ``fields``, ``replace``, ``asdict``, ``match``,
pickles, slots. Attributes of frozen ones that have slots are set through the slots' own descriptors, which is faster
than ``object.__setattr__``. ``__dataclass_params__`` does not say that a class is frozen, so the library's own
decorator cannot make a frozen class of one that is frozen here.
"""

from __future__ import annotations

import dataclasses
import functools
import reprlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")
_Method = Callable[..., Any]


@dataclass_transform(field_specifiers=(dataclasses.field, Field))
def dataclass(
    *, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[type[_T]], type[_T]]:
    """As :func:`dataclasses.dataclass`, with the same meaning of what can be said here."""

    def decorate(cls: type[_T]) -> type[_T]:
        own = vars(cls)
        # A class that defines equality has a hash of its own, or one that is None.
        defined = {name for name in ("__init__", "__repr__", "__eq__", "__getstate__", "__setstate__") if name in own}
        has_hash = own.get("__hash__") is not None
        library: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        made: Any = library(cls)
        methods: dict[str, _Method] = {"__init__": _stand_in(made, "__init__", _init), "__repr__": _repr}
        if eq:
            methods["__eq__"] = _stand_in(made, "__eq__", _eq)
        for name, method in methods.items():
            if name not in defined:
                setattr(made, name, method)
        if eq and not has_hash:
            made.__hash__ = _stand_in(made, "__hash__", _hash) if frozen else None
        made.__dataclass_frozen__ = frozen
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
            if slots and not defined & {"__getstate__", "__setstate__"}:
                made.__getstate__, made.__setstate__ = _getstate, _setstate
        return made

    return decorate


def written(method: _Method) -> _Method:
    """A method of a class, as it is written, where ``method`` may be what stands in its place."""
    write: Callable[[], _Method] | None = getattr(method, "__write__", None)
    return method if write is None else write()


def _stand_in(cls: type, name: str, write: Callable[[type], _Method]) -> _Method:
    """What writes a method of a class when it is called for the first time."""

    @functools.cache
    def written() -> _Method:
        method = write(cls)
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        if vars(cls).get(name) is stand_in:
            setattr(cls, name, method)
        return method

    def stand_in(*arguments: Any, **named: Any) -> Any:
        return written()(*arguments, **named)

    stand_in.__name__ = name
    stand_in.__qualname__ = f"{cls.__qualname__}.{name}"
    made: Any = stand_in
    made.__write__ = written
    return stand_in


def _function(cls: type, head: str, lines: Sequence[str], known: dict[str, Any]) -> _Method:
    """A function in the module of a class; ``known`` has the values of names that are not the module's."""
    body = "\n".join(f"  {line}" for line in lines)
    text = f"def make({', '.join(known)}):\n def {head}:\n{body}\n return {head.partition('(')[0]}"
    made: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), made)
    return made["make"](**known)


def _init(cls: type) -> _Method:
    """``__init__``: the fields in their order, those that are given by name alone behind all others."""
    known: dict[str, Any] = {"_missing": MISSING, "_set": object.__setattr__}
    parameters: dict[bool, list[str]] = {False: [], True: []}
    lines: list[str] = []
    annotations: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        name, value = field.name, field.name
        if field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}()" + (f" if {name} is _missing else {name}" if field.init else "")
            default = "=_missing"
        elif field.default is not MISSING:
            known[f"_default_{name}"] = field.default
            value = name if field.init else f"_default_{name}"
            default = f"=_default_{name}"
        else:
            default = ""
        if field.init:
            parameters[bool(field.kw_only)].append(name + default)
            annotations[name] = field.type
        elif not default:
            # __post_init__ sets it.
            continue
        lines.append(_setting(cls, name, value, known))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    given = ["self", *parameters[False], *(["*", *parameters[True]] if parameters[True] else [])]
    made = _function(cls, f"__init__({', '.join(given)})", lines or ["pass"], known)
    made.__annotations__ = {**annotations, "return": None}
    return made


def _setting(cls: Any, name: str, value: str, known: dict[str, Any]) -> str:
    """The line that sets a field of a value that is being made."""
    if not cls.__dataclass_frozen__:
        return f"self.{name} = {value}"
    slot: Any = getattr(cls, name, None)
    if type(slot) is not _SLOT:
        return f"_set(self, {name!r}, {value})"
    known[f"_set_{name}"] = slot.__set__
    return f"_set_{name}(self, {value})"


def _tuple_of(cls: Any, self: str) -> str:
    """The fields that are compared, as a tuple."""
    return "(" + "".join(f"{self}.{f.name}, " for f in dataclasses.fields(cls) if f.compare) + ")"


def _eq(cls: type) -> _Method:
    lines = [
        "if other.__class__ is self.__class__:",
        f" return {_tuple_of(cls, 'self')} == {_tuple_of(cls, 'other')}",
        "return NotImplemented",
    ]
    return _function(cls, "__eq__(self, other)", lines, {})


def _hash(cls: type) -> _Method:
    return _function(cls, "__hash__(self)", [f"return hash({_tuple_of(cls, 'self')})"], {})


class _Slotted:
    __slots__ = ("field",)


_SLOT: type = type(vars(_Slotted)["field"])


# -- methods that are the same for all classes -----------------------------------------------------


@functools.cache
def _shown(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls) if f.repr)


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in _shown(type(self)))
    return f"{type(self).__qualname__}({values})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _setstate(self: Any, state: Sequence[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
