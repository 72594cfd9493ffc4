"""Record: the layout of a structure of words that native code and Python share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xlakit.cpu import llvm

if TYPE_CHECKING:
    from xlakit.cpu.llvm import Function, Value


class Record:
    """A structure of 8-byte words. ``Record(state=1, lock=8)`` is one word, then eight."""

    def __init__(self, **words: int) -> None:
        self._offsets: dict[str, int] = {}
        size = 0
        for name, count in words.items():
            self._offsets[name] = size
            size += 8 * count
        self.size = size

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of memory."""
        return tuple(self._offsets)

    def offset(self, name: str) -> int:
        """The offset of a field in bytes."""
        return self._offsets[name]

    def index(self, name: str) -> int:
        """The offset of a field in words."""
        return self._offsets[name] // 8

    def at(self, fn: Function, base: Value, name: str) -> Value:
        """The address of a field of the structure at ``base``."""
        return fn.at(base, llvm.I8, self._offsets[name])

    def load(self, fn: Function, base: Value, name: str) -> Value:
        """The first word of a field, as an integer."""
        return fn.load(llvm.I64, self.at(fn, base, name))

    def pointer(self, fn: Function, base: Value, name: str) -> Value:
        """The first word of a field, as a pointer."""
        return fn.load(llvm.PTR, self.at(fn, base, name))

    def store(self, fn: Function, base: Value, name: str, value: Value) -> None:
        """Write the first word of a field."""
        fn.store(value, self.at(fn, base, name))
