"""Dataclasses that are cheap to declare, for modules that every process loads.

``dataclass`` here makes the same classes as :func:`dataclasses.dataclass`; ``field``, ``fields``, ``replace`` and
``asdict`` are the standard ones. A subclass that has fields is made here, too.

The standard one compiles the source of up to six methods for each class, which was the slowest part of importing a
compiler that has hundreds of small classes. Here only ``__init__`` is compiled, when it has been called some times, and
for most classes it never is: their first objects take generic code, as all other methods do.
"""

from __future__ import annotations

import dataclasses
import reprlib
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import MethodType
from typing import Any, Final, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")
_Made = dataclasses.Field[Any]
# The annotations of class variables begin with this.
_OF_CLASS: Final = "ClassVar"


@dataclasses.dataclass(init=False, repr=False, eq=False)  # noqa: TID251
class _Usual:
    """Has the attributes that the standard decorator sets in classes without making methods."""

    field: int


_FIELD: Final = vars(_Usual)["__dataclass_fields__"]["field"]._field_type


class _NotGiven:
    """Stands for an argument that is not given, if a factory makes its default for each instance."""

    def __repr__(self) -> str:
        # As signatures of the standard library's dataclasses have it.
        return "<factory>"


_NOT_GIVEN: Final = _NotGiven()
# Calls of a method before it is compiled, which takes as long as fifty of them.
_GENERIC_CALLS: Final = 16


@overload
def dataclass(cls: type[_T], /) -> type[_T]: ...


@overload
def dataclass(
    *, frozen: bool = False, eq: bool = True, slots: bool = False, kw_only: bool = False
) -> Callable[[type[_T]], type[_T]]: ...


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    cls: type[_T] | None = None,
    /,
    *,
    frozen: bool = False,
    eq: bool = True,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    """Make a class a dataclass; the options are those of :func:`dataclasses.dataclass`."""

    def decorate(cls: type[_T]) -> type[_T]:
        return _made(cls, frozen=frozen, eq=eq, slots=slots, kw_only=kw_only)

    return decorate if cls is None else decorate(cls)


def _made(cls: type[_T], *, frozen: bool, eq: bool, slots: bool, kw_only: bool) -> type[_T]:
    own = dict(vars(cls))
    members, fields = _with_fields(cls, own, kw_only=kw_only, slots=slots)
    methods: dict[str, Any] = {
        "__init__": _Initializer(fields, frozen=frozen, slots=slots),
        "__repr__": _representation([f.name for f in fields if f.repr], frozen=frozen),
    }
    if eq:
        methods["__eq__"] = _equality([f.name for f in fields if f.compare])
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _refusals(frozenset([f.name for f in fields]))
        if slots:
            methods["__getstate__"], methods["__setstate__"] = _state, _set_state
    members.update({name: method for name, method in methods.items() if name not in own})
    has_hash = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
    if eq and not has_hash:
        hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        members["__hash__"] = _hash(hashed) if frozen else None
    if slots:
        return _with_slots(cls, members, fields)
    for name, member in members.items():
        setattr(cls, name, member)
    return cls


def _with_fields(
    cls: type[_T], own: dict[str, Any], *, kw_only: bool, slots: bool
) -> tuple[dict[str, Any], Sequence[_Made]]:
    """The attributes that :mod:`dataclasses` looks up in classes, for the class to get, and its fields."""
    annotations: dict[str, Any] = own.get("__annotations__", {})
    if not all(map(_is_usual, annotations.values())):
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)  # noqa: TID251
        return {}, dataclasses.fields(made)
    fields: dict[str, _Made] = {}
    for base in cls.__mro__[-1:0:-1]:
        fields.update(vars(base).get("__dataclass_fields__", ()))
    for name, kind in annotations.items():
        if kind.startswith(_OF_CLASS):
            continue
        given = own.get(name, dataclasses.MISSING)
        fields[name] = made = _field(name, kind, given, kw_only=kw_only)
        # With slots, the class that has these attributes is made again without them.
        if made is given and not slots:
            _become_default(cls, name, made.default)
    members: dict[str, Any] = {
        "__dataclass_params__": vars(_Usual)["__dataclass_params__"],
        "__dataclass_fields__": fields,
    }
    found = tuple([f for f in fields.values() if f._field_type is _FIELD])  # pyright: ignore
    if "__match_args__" not in own:
        members["__match_args__"] = tuple([f.name for f in found if f.init and not f.kw_only])
    return members, found


def _is_usual(annotation: object) -> bool:
    """Whether the text of an annotation shows that it is one of a plain field or of a class variable."""
    if not isinstance(annotation, str):
        return False
    return "InitVar" not in annotation and "KW_ONLY" not in annotation and annotation.find("ClassVar") in (-1, 0)


def _field(name: str, kind: str, given: Any, *, kw_only: bool) -> _Made:
    """A field, of which its class gives the default, or all but the name and the type."""
    made: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
    made.name, made.type, made._field_type = name, kind, _FIELD
    if made.kw_only is dataclasses.MISSING:
        made.kw_only = kw_only
    if type(made.default).__hash__ is None:
        raise ValueError(f"the default of field {name} can change: use default_factory")
    return made


def _become_default(cls: type, name: str, default: object) -> None:
    """The attribute of a class that declares a field becomes the field's default."""
    if default is dataclasses.MISSING:
        delattr(cls, name)
    else:
        setattr(cls, name, default)


def _with_slots(cls: type[_T], given: dict[str, Any], fields: Sequence[_Made]) -> type[_T]:
    """The class made again, with more members, and slots for those of its fields that its bases have no slots for."""
    members = {**vars(cls), **given}
    inherited = {slot for base in cls.__mro__[1:-1] for slot in vars(base).get("__slots__", ())}
    names = [f.name for f in fields]
    for name in ("__dict__", "__weakref__", *names):
        members.pop(name, None)
    members["__slots__"] = tuple([name for name in names if name not in inherited])
    made: Any = type(cls)(cls.__name__, cls.__bases__, members)
    made.__qualname__ = cls.__qualname__
    return made


class _Initializer:
    """The ``__init__`` of a class: the generic one in the first calls; then it is compiled and replaces this object."""

    def __init__(self, fields: Sequence[_Made], *, frozen: bool, slots: bool) -> None:
        self._fields, self._frozen, self._slots = fields, frozen, slots
        self._method: Any = None
        self._generic: Any = None
        self._calls = 0

    def __get__(self, instance: object, owner: type) -> Any:
        # The class that has this method, which the owner may inherit. If another thread has replaced this object since
        # the lookup began, no class has it any more.
        declaring = next((cls for cls in owner.__mro__ if vars(cls).get("__init__") is self), None)
        if instance is not None and self._calls < _GENERIC_CALLS and declaring is not None:
            self._calls += 1
            if self._generic is None:
                self._generic = _generic_initializer(declaring, self._fields, frozen=self._frozen, slots=self._slots)
            return MethodType(self._generic, instance)
        if declaring is not None:
            self._method = _compiled(declaring, self._fields, frozen=self._frozen, slots=self._slots)
            declaring.__init__ = self._method
        return self._method.__get__(instance, owner)


def _compiled(cls: type, fields: Sequence[_Made], *, frozen: bool, slots: bool) -> Callable[..., Any]:
    """The initializer, compiled from source that can use the names of the class's module."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_not_given": _NOT_GIVEN}
    parameters: list[tuple[bool, str]] = []
    body: list[str] = []
    for f in fields:
        has_default, has_factory = f.default is not dataclasses.MISSING, f.default_factory is not dataclasses.MISSING
        default, value = "", f.name
        if has_default:
            names[f"_default_{f.name}"] = f.default
            default = f"=_default_{f.name}"
        elif has_factory:
            names[f"_make_{f.name}"] = f.default_factory
            default = "=_not_given"
            value = f"_make_{f.name}() if {f.name} is _not_given else {f.name}"
        if f.init:
            parameters.append((f.kw_only is True, f.name + default))
        elif has_factory:
            value = f"_make_{f.name}()"
        elif has_default and slots:
            value = f"_default_{f.name}"
        else:
            continue
        body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    by_place = [text for is_named, text in parameters if not is_named]
    named = [text for is_named, text in parameters if is_named]
    given = ", ".join(["self", *by_place, *(["*", *named] if named else [])])
    lines = "".join(f"\n  {line}" for line in body or ["pass"])
    source = f"def make({', '.join(names)}):\n def __init__({given}):{lines}\n return __init__"
    found: dict[str, Any] = {}
    module = sys.modules.get(cls.__module__)
    exec(source, {} if module is None else vars(module), found)
    method = found["make"](**names)
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__annotations__ = {**{f.name: f.type for f in fields if f.init}, "return": None}
    return method


def _generic_initializer(cls: type, fields: Sequence[_Made], *, frozen: bool, slots: bool) -> Callable[..., Any]:
    """What :func:`_compiled` makes, without compiling it; other calls than correct ones are left to that one."""
    store = object.__setattr__ if frozen else setattr
    given = [f for f in fields if f.init]
    by_place = [f.name for f in given if not f.kw_only]
    every = {f.name for f in given}
    required = {f.name for f in given if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
    has_post_init = hasattr(cls, "__post_init__")

    def __init__(self: Any, *args: object, **named: object) -> None:  # noqa: N807
        values = dict(zip(by_place, args))  # noqa: B905 - their number is checked below
        is_correct = len(args) <= len(by_place) and values.keys().isdisjoint(named) and named.keys() <= every
        values.update(named)
        if not is_correct or not required <= values.keys():
            cls.__init__(self, *args, **named)
            return
        for f in fields:
            if f.name in values:
                store(self, f.name, values[f.name])
            elif f.default_factory is not dataclasses.MISSING:
                store(self, f.name, f.default_factory())
            elif f.init or (slots and f.default is not dataclasses.MISSING):
                store(self, f.name, f.default)
        if has_post_init:
            self.__post_init__()

    return __init__


def _equality(compared: Sequence[str]) -> Callable[..., Any]:
    values = _values(compared)

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(hashed: Sequence[str]) -> Callable[..., Any]:
    values = _values(hashed)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives the attributes of an object as a tuple."""
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda instance: (get(instance),)


def _representation(shown: Sequence[str], *, frozen: bool) -> Callable[..., Any]:
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    # The fields of a frozen object were made before it, and cannot contain it; other objects may contain themselves.
    return __repr__ if frozen else reprlib.recursive_repr()(__repr__)


def _refusals(names: frozenset[str]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The ``__setattr__`` and ``__delattr__`` of a class whose fields cannot be changed."""

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if name in names or "__setattr__" in vars(type(self)):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if name in names or "__delattr__" in vars(type(self)):
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return __setattr__, __delattr__


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
