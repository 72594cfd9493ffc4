"""The package's dataclasses are those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field

import pytest

import xlakit.dataclass
from xlakit.dataclass import dataclass


@pytest.fixture(params=[0, 4, 1000])
def generic_calls(monkeypatch, request):
    """How many calls of a method take generic code: none, the first ones, or all."""
    monkeypatch.setattr(xlakit.dataclass, "_GENERIC_CALLS", request.param)
    return request.param


def _classes(make):
    """Classes of every kind, made by one of the two decorators."""
    return [*_mutable_classes(make), *_frozen_classes(make), *_hand_written_classes(make)]


def _mutable_classes(make):

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

    return [Plain, Slotted]


def _frozen_classes(make):
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
    class ByIdentity:
        """A class."""

        a: int

    @make(frozen=True, slots=True)
    class Empty:
        """A class."""

    @make(frozen=True, slots=True)
    class One:
        """A class."""

        a: float

    return [Value, Further, Named, ByIdentity, Empty, One]


def _hand_written_classes(make):
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

    return [Own]


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


def _observed(results):
    """What the objects among results of calls show: their texts, hashes, fields, and which are equal."""
    objects = [result for result in results if not isinstance(result, str)]
    hashes = []
    for instance in objects:
        try:
            hashes.append(hash(instance))
        except TypeError as error:
            hashes.append(str(error))
    is_identity = type(objects[0]).__hash__ is object.__hash__
    return (
        [result if isinstance(result, str) else repr(result) for result in results],
        [[a == b for b in objects] for a in objects],
        None if is_identity else hashes,
        [dataclasses.asdict(instance) for instance in objects[:2]],
        [getattr(type(objects[0]), "__slots__", None), type(objects[0]).__match_args__],
    )


def test_they_are_as_the_standard_ones(generic_calls):
    for ours, theirs in zip(_classes(dataclass), _classes(dataclasses.dataclass), strict=True):
        made = _made(ours), _made(theirs)
        assert _observed(made[0]) == _observed(made[1])
        for cls in (ours, theirs):
            assert cls.__init__.__annotations__ == theirs.__init__.__annotations__
            assert cls.__qualname__ == theirs.__qualname__


def test_what_is_frozen_stays(generic_calls):
    for ours in [*_frozen_classes(dataclass), *_hand_written_classes(dataclass)]:
        instance = next(result for result in _made(ours) if not isinstance(result, str))
        names = [f.name for f in dataclasses.fields(ours)]
        for name in names[:1]:
            with pytest.raises(FrozenInstanceError):
                setattr(instance, name, 1)
            with pytest.raises(FrozenInstanceError):
                delattr(instance, name)
        with pytest.raises(AttributeError):
            instance.unknown = 1
        assert copy.copy(instance) == instance or type(instance).__eq__ is object.__eq__
        if names:
            assert getattr(dataclasses.replace(instance, **{names[0]: 8}), names[0]) == 8


@dataclass(frozen=True, slots=True)
class _Kept:
    a: int
    b: str


class _Inheriting(_Kept):
    """It has no fields of its own, and what it inherits is compiled once, in the base."""


def test_pickles_and_subclasses(generic_calls):
    assert pickle.loads(pickle.dumps(_Kept(1, "x"))) == _Kept(1, "x")
    inheriting = _Inheriting(1, "y")
    assert repr(inheriting) == "_Inheriting(a=1, b='y')"
    assert inheriting == _Inheriting(1, "y") != _Kept(1, "y")
    inheriting.own = 3
    assert "__init__" not in vars(_Inheriting)
    if not generic_calls:
        assert type(vars(_Kept)["__init__"]).__name__ == "function"


def test_an_initializer_is_compiled_after_its_first_calls(monkeypatch):
    """Objects made before and after are equal and have the same hashes; then the class has a function of its own."""
    monkeypatch.setattr(xlakit.dataclass, "_GENERIC_CALLS", 3)

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2

    points = []
    for calls in range(5):
        assert (type(vars(Point)["__init__"]).__name__ == "function") == (calls > 3)
        points.append(Point(1))
        assert points[0] == points[-1]
    assert len({hash(point) for point in points}) == 1


def test_a_wrong_call_leaves_no_trace():
    """It has the error of the compiled method, and runs no factory and no check of the values."""
    made = []

    @dataclass
    class Checked:
        x: int
        y: list = field(default_factory=lambda: made.append(1))

        def __post_init__(self):
            made.append(2)

    for call in (Checked, lambda: Checked(1, [], 3), lambda: Checked(1, x=1), lambda: Checked(1, z=1)):
        with pytest.raises(TypeError, match=r"Checked\.__init__\(\)"):
            call()
    assert not made


def test_two_threads_look_an_initializer_up_at_once(monkeypatch):
    """The slower of them still has what the other has replaced by then."""
    monkeypatch.setattr(xlakit.dataclass, "_GENERIC_CALLS", 0)

    @dataclass(frozen=True)
    class Point:
        x: int

    class Inheriting(Point):
        """Its lookups find the method in the base, too."""

    found = vars(Point)["__init__"]
    point = Inheriting(1)
    assert point == Inheriting(1)
    assert found is not vars(Point)["__init__"]
    assert found.__get__(None, Inheriting) is vars(Point)["__init__"]
    assert found.__get__(point, Inheriting) == point.__init__


def test_signatures_are_those_of_the_standard_library():
    for ours, theirs in zip(_classes(dataclass), _classes(dataclasses.dataclass), strict=True):
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))


def test_defaults_of_public_signatures_are_written_without_addresses():
    for name in dir(xlakit):
        if callable(getattr(xlakit, name)):
            assert " at 0x" not in str(inspect.signature(getattr(xlakit, name)))
