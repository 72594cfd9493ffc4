"""Texts that hold several modules, such as files of tests, and logs: each of them by itself, at its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from xlakit.dataclass import dataclass
from xlakit.errors import FormatError
from xlakit.formats import detect

# The word where a module begins, unless it is in a comment or a string.
_HEADER = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|(?<![\w.%$-])(?P<header>HloModule)(?=[ \t]+[\w.$%-])', re.DOTALL
)
# The line between the parts of a file of tests, as tools of MLIR split them.
_SEPARATOR = re.compile(r"^[ \t]*// -----[^\n]*$", re.MULTILINE)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"(?<![\w.%$-])(?:HloModule|ENTRY)(?=\s)")
_NAMED = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*HloModule\s+([\w.$%-]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Part:
    """A module in a text: its name, the whole text, and where in it the module is."""

    name: str
    whole: str
    start: int
    end: int

    @property
    def text(self) -> str:
        """The text that is the module's own, behind as many spaces and lines as are before it."""
        before = "\n".join(" " * len(line) for line in self.whole[: self.start].split("\n"))
        return before + self.whole[self.start : self.end]


@lru_cache(maxsize=1)
def parts_of(data: bytes, name: str = "<data>") -> Sequence[Part]:
    """The modules in a file's content, in their order, if it is HLO text with at least two; nothing for any other.

    Those of the last content are kept: a file with many modules is asked for each of them.

    Raises FormatError as :func:`xlakit.formats.detect.load` does for what is no text.
    """
    content = detect.uncompressed(data, name)
    # Most files are settled by this.
    if content.count(b"HloModule") < 2 and b"// -----" not in content and not content.startswith(detect.UTF_16):
        return []
    text = detect.decoded(content, name)
    return [] if text is None else parts_of_text(text)


def parts_of_text(text: str) -> Sequence[Part]:
    """The modules in HLO text, in their order, if there are at least two; nothing otherwise.

    Each begins with ``HloModule``, or stands between lines ``// -----`` and has an ENTRY.
    """
    places = [graph.span(1) for graph in detect.GRAPH.finditer(text)]
    if not places and detect.is_hlo(text):
        places = _separated(text)
    if not places and detect.is_hlo(text):
        starts = [found.start() for found in _HEADER.finditer(text) if found["header"]]
        places = list(zip(starts, [*starts, len(text)][1:], strict=True))
    return [_part(text, *place) for place in places] if len(places) > 1 else []


def part_of(data: bytes, which: str, name: str = "<data>") -> Part:
    """The module that is meant by its number, from 1, or by its name. Raises FormatError where there is none."""
    parts = parts_of(data, name)
    matching = [p for number, p in enumerate(parts, 1) if which == str(number) or (p.name and which == p.name)]
    if matching:
        return matching[0]
    names = ", ".join(f"{number} ({p.name})" if p.name else str(number) for number, p in enumerate(parts[:10], 1))
    raise FormatError(
        f"{name} has no module '{which}'",
        hint=f"it has {names}{', ..' if len(parts) > 10 else ''}" if parts else "it is one program: leave out the #",
    )


def _separated(text: str) -> list[tuple[int, int]]:
    """The parts between lines ``// -----``, where some have no header and all have an ENTRY; nothing otherwise, as such
    a line may be a comment within a module.
    """
    lines = [line.span() for line in _SEPARATOR.finditer(text)]
    starts, ends = [0, *(end for _, end in lines)], [*(start for start, _ in lines), len(text)]
    pieces = [(start, end, _COMMENTS.sub(" ", text[start:end])) for start, end in zip(starts, ends, strict=True)]
    pieces = [piece for piece in pieces if piece[2].strip()]
    headers = [sum(found["header"] is not None for found in _HEADER.finditer(text, *piece[:2])) for piece in pieces]
    is_split = all(_ENTRY.search(code) for _, _, code in pieces) and all(count <= 1 for count in headers)
    return [(start, end) for start, end, _ in pieces] if is_split and 0 in headers else []


def _part(text: str, start: int, end: int) -> Part:
    match = _NAMED.match(text, start, end)
    return Part(match[1] if match else "", text, start, end)
