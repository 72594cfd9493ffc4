"""The steps of a path from a tree to a leaf."""

from __future__ import annotations

from typing import Any, ClassVar

from xlakit.compat.xla_client.binding import bound


class _Key:
    """A step of a path: it compares, hashes and pickles by what it holds."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def _held(self) -> Any:
        return getattr(self, self.__match_args__[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and type(other) is type(self) and self._held() == other._held()

    def __hash__(self) -> int:
        return hash(self._held())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__match_args__[0]}={self._held()!r})"

    def __getstate__(self) -> tuple[Any]:
        return (self._held(),)

    def __setstate__(self, state: tuple[Any]) -> None:
        setattr(self, self.__match_args__[0], state[0])


class SequenceKey(_Key):
    """The element of a list or a tuple."""

    __slots__ = ("idx",)
    __match_args__ = ("idx",)

    @bound
    def __init__(self, idx: int) -> None:
        self.idx = idx

    def __str__(self) -> str:
        return f"[{self.idx}]"


class DictKey(_Key):
    """The value of a dict."""

    __slots__ = ("key",)
    __match_args__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class GetAttrKey(_Key):
    """The attribute of an object."""

    __slots__ = ("name",)
    __match_args__ = ("name",)

    @bound
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f".{self.name}"


class FlattenedIndexKey(_Key):
    """The child of a node of a type that was registered without keys."""

    __slots__ = ("key",)
    __match_args__ = ("key",)

    @bound
    def __init__(self, key: int) -> None:
        self.key = key

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"
