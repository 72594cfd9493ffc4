"""Semantic tokens: the words of instructions as the protocol has them, five numbers each, relative to the word before.

The numbers of an instruction are the same wherever it stands, so those of instructions that a change of the text leaves
alone are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xlakit.tools.lsp.document import Document
from xlakit.tools.lsp.index import Definition, Role, Scope
from xlakit.tools.lsp.lines import Position, Span

TYPES = ("variable", "function", "namespace", "property", "string", "comment", "number")
MODIFIERS = ("definition",)
_TYPE_OF = {
    Role.DEFINITION: 0,
    Role.OPERAND: 0,
    Role.OPCODE: 1,
    Role.COMPUTATION: 2,
    Role.ATTRIBUTE: 3,
    Role.STRING: 4,
    Role.COMMENT: 5,
    Role.NUMBER: 6,
}


class Edit(NamedTuple):
    """Numbers that take the place of ``removed`` others from ``start`` on."""

    start: int
    removed: int
    data: list[int]


class _Encoded(NamedTuple):
    """The numbers of an instruction, the first word's place left zero, and the place of its last word: relative to the
    first word's line, and, where that is its line, column.
    """

    numbers: tuple[int, ...]
    last: Position


class Tokens:
    """The tokens of the versions of a text; those of its instructions are kept by their text."""

    def __init__(self) -> None:
        self._encoded: dict[str, _Encoded] = {}
        # Those of the last whole text, and the number that the editor knows them by.
        self._sent: list[int] = []
        self._version = 0

    def within(self, document: Document, span: Span) -> list[int]:
        """The numbers of the instructions in a span."""
        return self._numbers(document, span, {})

    def whole(self, document: Document) -> tuple[str, list[int]]:
        """The numbers of the whole text, and the name of this answer."""
        used: dict[str, _Encoded] = {}
        self._sent = self._numbers(document, Span(0, len(document.text)), used)
        self._encoded = used
        self._version += 1
        return str(self._version), self._sent

    def changes(self, document: Document, name: str) -> tuple[str, list[Edit]] | None:
        """What makes those of the whole text of the answer of a name; None where that is not the last one."""
        if name != str(self._version):
            return None
        before = self._sent
        name, after = self.whole(document)
        return name, _edits(before, after)

    def _numbers(self, document: Document, span: Span, used: dict[str, _Encoded]) -> list[int]:
        text, position = document.text, document.lines.position
        numbers: list[int] = []
        last = Position(0, 0)
        for definition in _definitions_in(document.index.scopes, span):
            written = text[definition.span.start : definition.end]
            encoded = used.get(written) or self._encoded.get(written) or _encode(document, definition)
            used[written] = encoded
            line, column = position(definition.span.start)
            begin = len(numbers)
            numbers += encoded.numbers
            numbers[begin] = line - last.line
            numbers[begin + 1] = column - last.column if line == last.line else column
            down, right = encoded.last
            last = Position(line + down, right if down else column + right)
        return numbers


def _definitions_in(scopes: Sequence[Scope], span: Span) -> Iterator[Definition]:
    for scope in scopes:
        if scope.end >= span.start and scope.start <= span.end:
            for definition in scope.definitions:
                if definition.end >= span.start and definition.span.start <= span.end:
                    yield definition


def _encode(document: Document, definition: Definition) -> _Encoded:
    position = document.lines.position
    start = definition.span.start
    written = document.text[start : definition.end]
    is_plain = written.isascii() and "\n" not in written and "\r" not in written
    first = last = Position(0, 0) if is_plain else position(start)
    numbers: list[int] = []
    for span, role, _, _ in document.index.words(definition):
        if role is Role.WORD:
            continue
        here = Position(0, span.start - start) if is_plain else position(span.start)
        length = span.end - span.start
        if not is_plain:
            end = position(span.end)
            if end.line != here.line:
                continue  # a token is on one line; comments over several are the grammar's
            length = end.column - here.column
        gap = here.column - last.column if here.line == last.line else here.column
        numbers += (here.line - last.line, gap, length, _TYPE_OF[role], 1 if role is Role.DEFINITION else 0)
        last = here
    down = last.line - first.line
    return _Encoded(tuple(numbers), Position(down, last.column if down else last.column - first.column))


def _edits(before: list[int], after: list[int]) -> list[Edit]:
    """One edit, between the numbers that both begin with and those that both end with; none where they are equal."""
    if before == after:
        return []
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    return [Edit(start, len(before) - start - end, after[start : len(after) - end])]


def _common(a: list[int], b: list[int]) -> int:
    """How many numbers both begin with: by halves, since slices are compared faster than numbers one by one."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
