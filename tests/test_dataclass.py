"""Dataclasses whose methods are written when first called: they behave as those of the library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from xlakit.dataclass import dataclass, written

_library: Any = dataclasses.dataclass


def _classes(decorator: Callable[..., Any]) -> dict[str, Any]:
    """The same classes by one decorator and by the other."""

    @decorator(frozen=True, slots=True)
    class Point:
        """With a default, and what is made anew for each."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: tuple[str, ...] = field(default=(), compare=False)
        hidden: list[int] = field(default_factory=list[int], repr=False, compare=False)

    @decorator(frozen=True, slots=True)
    class Sized(Point):
        """With a field that is computed, and one more that is given."""

        z: int = 3
        size: int = field(init=False, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", self.x + self.y + self.z)

    @decorator(slots=True)
    class Changing:
        """One that can be changed."""

        x: int
        own: dict[str, int] = field(default_factory=dict[str, int])

    @decorator(frozen=True, kw_only=True)
    class Named:
        """Given by name, in memory of no fixed form."""

        x: int
        y: int = 0

    @decorator(frozen=True, slots=True, eq=False)
    class Identical:
        """Compared by identity."""

        x: int

    @decorator(frozen=True, slots=True)
    class Own:
        """With methods of its own."""

        x: int
        count: int = field(init=False, default=7)

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and hash(other) == hash(self)

        def __hash__(self) -> int:
            return self.x % 2

    @decorator(frozen=True)
    class Empty:
        """Without fields."""

    return {c.__name__: c for c in (Point, Sized, Changing, Named, Identical, Own, Empty)}


_OURS, _THEIRS = _classes(dataclass), _classes(_library)
_CALLS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("Point", (1,), {}),
    ("Point", (1, 5), {"tags": ("a",), "hidden": [4]}),
    ("Point", (), {}),
    ("Point", (1, 2, (), [], 5), {}),
    ("Point", (1,), {"unknown": 1}),
    ("Sized", (1,), {"z": 9}),
    ("Changing", (1,), {}),
    ("Named", (), {"x": 1}),
    ("Named", (1,), {}),
    ("Identical", (1,), {}),
    ("Own", (3,), {}),
    ("Empty", (), {}),
)


def _made(kind: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "", kind(*arguments, **named)
    except TypeError as error:
        return str(error), None


@pytest.mark.parametrize(("name", "arguments", "named"), _CALLS)
def test_values_are_those_of_the_library(name: str, arguments: tuple[Any, ...], named: dict[str, Any]):
    (fault, ours), (expected_fault, theirs) = (_made(c[name], arguments, named) for c in (_OURS, _THEIRS))
    assert fault == expected_fault
    if theirs is None:
        return
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert type(ours).__match_args__ == type(theirs).__match_args__
    ours_again, theirs_again = (c[name](*arguments, **named) for c in (_OURS, _THEIRS))
    assert (ours == ours_again) is (theirs == theirs_again)
    assert (ours != object()) is (theirs != object())
    if type(theirs).__hash__ is None:
        assert type(ours).__hash__ is None
    elif name != "Identical":
        assert hash(ours) == hash(theirs)


def test_frozen_values_refuse_changes():
    for name in ("Point", "Named", "Identical"):
        value = _OURS[name](x=1)
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
            value.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
            del value.x
        assert value.x == 1
    changing = _OURS["Changing"](1)
    changing.x = 2
    assert changing.x == 2
    with pytest.raises(AttributeError):
        changing.unknown = 1


def test_replaced_copied_and_matched():
    point = _OURS["Point"](1, 2, ("a",), [3])
    moved = dataclasses.replace(point, x=5)
    assert (moved.x, moved.y, moved.tags, moved.hidden) == (5, 2, ("a",), [3])
    assert copy.copy(point) == point
    assert copy.deepcopy(point).hidden == [3]
    assert copy.deepcopy(point).hidden is not point.hidden
    assert dataclasses.replace(_OURS["Sized"](1), x=10).size == 15
    kept: object = Kept(1, "a")
    match kept:
        case Kept(x, deeper):
            assert (x, deeper) == (1, "a")
        case _:
            pytest.fail("a value of the class does not match its pattern")


def test_each_value_has_a_default_of_its_own():
    one, two = _OURS["Changing"](1), _OURS["Changing"](1)
    assert one == two
    one.own["a"] = 1
    assert two.own == {}


def test_values_that_differ_in_a_base_are_not_equal():
    assert _OURS["Point"](1) != _OURS["Sized"](1)
    assert _OURS["Point"](1, tags=("a",)) == _OURS["Point"](1)
    assert _OURS["Point"](1, 2) != _OURS["Point"](1, 3)
    assert len({_OURS["Point"](1), _OURS["Point"](1), _OURS["Point"](2)}) == 2


def test_a_method_is_written_once_and_stays():
    kind = _classes(dataclass)["Point"]
    before = kind.__init__
    value = kind(1)
    assert kind.__init__ is not before
    # What was taken from the class before still does the same.
    before(value, 4)
    assert value.x == 4
    assert written(before) is kind.__init__
    assert written(kind.__init__) is kind.__init__


def test_a_class_without_fields_of_its_own_has_the_methods_of_its_base():
    kinds = _classes(dataclass)

    class Child(kinds["Point"]):
        __slots__ = ()

    assert (Child(7).x, Child(7) == Child(7), Child(7) == kinds["Point"](7)) == (7, True, False)
    assert hash(Child(7)) == hash(kinds["Point"](7))
    assert repr(Child(7)).endswith("Child(x=7, y=2, tags=())")


@dataclass(frozen=True, slots=True)
class Kept:
    """One that a pickle can name."""

    x: int
    deeper: Any = None


def test_pickles():
    value = Kept(1, Kept(2))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value


def test_a_value_that_holds_itself_is_shown():
    inner: list[Any] = []
    value = Kept(1, inner)
    inner.append(value)
    assert repr(value) == "Kept(x=1, deeper=[...])"
