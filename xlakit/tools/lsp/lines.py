"""Positions of the protocol, a line and a column, for an offset in a Python string.

Columns count the units of an encoding: of UTF-16, unless client and server agree on another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

_BREAK = re.compile(r"\r\n|\n|\r")

# How many units a character takes.
_UNITS: dict[str, Callable[[str], int]] = {
    "utf-8": lambda letter: len(letter.encode("utf-8", "surrogatepass")),
    "utf-16": lambda letter: 2 if ord(letter) > 0xFFFF else 1,
    "utf-32": lambda letter: 1,
}


class Position(NamedTuple):
    """A line and a column in units of the encoding, both from 0."""

    line: int
    column: int


class Span(NamedTuple):
    """Offsets in a text: from ``start`` to before ``end``."""

    start: int
    end: int


class Lines:
    """Where the lines of a text begin; ``encoding`` is ``utf-8``, ``utf-16`` or ``utf-32``."""

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self._units = _UNITS[encoding]
        self.starts = [0, *(match.end() for match in _BREAK.finditer(text))]

    def span(self, line: int) -> Span:
        """A line without its line break; empty at the end of the text for a line behind the last."""
        if line >= len(self.starts):
            return Span(len(self.text), len(self.text))
        start = self.starts[line]
        end = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.text)
        while end > start and self.text[end - 1] in "\r\n":
            end -= 1
        return Span(start, end)

    def position(self, offset: int) -> Position:
        """The position of an offset."""
        line = bisect_right(self.starts, offset) - 1
        return Position(line, self._count(self.text[self.starts[line] : offset]))

    def offset(self, position: Position) -> int:
        """The offset of a position; columns behind the end of the line mean its end."""
        start, end = self.span(position.line)
        text = self.text[start:end]
        if text.isascii():
            return start + min(position.column, end - start)
        units = 0
        for index, letter in enumerate(text):
            if units >= position.column:
                return start + index
            units += self._units(letter)
        return end

    def _count(self, text: str) -> int:
        return len(text) if text.isascii() else sum(map(self._units, text))
