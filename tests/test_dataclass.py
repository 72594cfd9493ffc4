"""The package's dataclasses are those of the standard library."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field

import pytest

from xlakit.dataclass import dataclass


def _classes(make):
    """Classes of every kind, made by one of the two."""

    @make
    class Plain:
        """A class."""

        a: int
        b: list = field(default_factory=list)

    @make(slots=True)
    class Slotted:
        """A class."""

        a: int
        b: float = 2.0
        c: int = field(init=False, default=7, repr=False)

        def __post_init__(self):
            self.b *= 2

    @make(frozen=True, slots=True)
    class Value:
        """A class."""

        a: int
        b: str = "x"
        c: tuple = field(default=(), compare=False)
        d: int = field(default=1, hash=False)

    @make(frozen=True, slots=True)
    class Further(Value):
        """A class."""

        e: int = 0

    @make(frozen=True, slots=True, kw_only=True)
    class Named:
        """A class."""

        a: int = 1
        b: int

    @make(frozen=True, slots=True, eq=False)
    class Thing:
        """A class."""

        a: int

    @make(frozen=True)
    class Own:
        """A class."""

        a: int

        def __hash__(self):
            return 5

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return True

    @make(frozen=True, slots=True)
    class Empty:
        """A class."""

    @make(frozen=True, slots=True)
    class One:
        """A class."""

        a: float

    return [Plain, Slotted, Value, Further, Named, Thing, Own, Empty, One]


_CALLS = [
    ((), {}), ((1,), {}), ((1, 2), {}), ((1,), {"b": 3}), ((), {"b": 3}), ((), {"b": 3, "a": 1}), ((1, 2, 3, 4), {}),
    ((1, 2, 3, 4, 5), {}), ((1, 2, 3, 9), {}), ((1,), {"c": (4,)}), ((float("nan"),), {}),
]  # fmt: skip


def _made(cls):
    """What calls of a class give: an object, or the type of the error."""
    found = []
    for positional, named in _CALLS:
        try:
            found.append(cls(*positional, **named))
        except TypeError as error:
            found.append(str(error).replace("test_dataclass.", ""))
    return found


def _told(things):
    """What can be seen of objects and pairs of them."""
    objects = [thing for thing in things if not isinstance(thing, str)]
    hashes = []
    for thing in objects:
        try:
            hashes.append(hash(thing))
        except TypeError as error:
            hashes.append(str(error))
    is_identity = type(objects[0]).__hash__ is object.__hash__
    return (
        [thing if isinstance(thing, str) else repr(thing) for thing in things],
        [[a == b for b in objects] for a in objects],
        None if is_identity else hashes,
        [dataclasses.asdict(thing) for thing in objects[:2]],
        [getattr(type(objects[0]), "__slots__", None), type(objects[0]).__match_args__],
    )


def test_they_are_as_the_standard_ones():
    for ours, theirs in zip(_classes(dataclass), _classes(dataclasses.dataclass), strict=True):
        made = _made(ours), _made(theirs)
        assert _told(made[0]) == _told(made[1])
        for cls in (ours, theirs):
            assert cls.__init__.__annotations__ == theirs.__init__.__annotations__
            assert cls.__qualname__ == theirs.__qualname__


def test_what_is_frozen_stays():
    for ours in _classes(dataclass)[2:]:
        thing = next(thing for thing in _made(ours) if not isinstance(thing, str))
        names = [f.name for f in dataclasses.fields(ours)]
        for name in names[:1]:
            with pytest.raises(FrozenInstanceError):
                setattr(thing, name, 1)
            with pytest.raises(FrozenInstanceError):
                delattr(thing, name)
        with pytest.raises(AttributeError):
            thing.unknown = 1
        assert copy.copy(thing) == thing or type(thing).__eq__ is object.__eq__
        if names:
            assert getattr(dataclasses.replace(thing, **{names[0]: 8}), names[0]) == 8


@dataclass(frozen=True, slots=True)
class _Kept:
    a: int
    b: str


class _Inheriting(_Kept):
    """It has no fields of its own, and what it inherits is compiled once, in the base."""


def test_pickles_and_subclasses():
    assert pickle.loads(pickle.dumps(_Kept(1, "x"))) == _Kept(1, "x")
    thing = _Inheriting(1, "y")
    assert repr(thing) == "_Inheriting(a=1, b='y')"
    assert thing == _Inheriting(1, "y") != _Kept(1, "y")
    thing.own = 3
    assert "__init__" not in vars(_Inheriting)
    assert type(vars(_Kept)["__init__"]).__name__ == "function"
