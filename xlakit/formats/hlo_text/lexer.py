"""The words of HLO text, read one at a time.

One regular expression finds the next word. An array shape with its layout (``f32[2,3]{1,0}``) is a single word, so
that the parser can look up shapes it has met before; words with a grammar of their own (``3x3``, ``0_1x1_0``,
``b01f_01io->b01f``, JSON) are taken with :meth:`Lexer.take` where the grammar allows them.
"""

from __future__ import annotations

import re

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ParseError

# How deep shapes, tuples and instructions may nest: Python's own stack must not overflow.
MAX_DEPTH = 100
_DEPTH_HINT = "give what is inside a name and a line of its own, or make tuples flat"

_SPACE = r"(?:[ \t\r\n]++|/\*(?s:.*?)\*/|//[^\r\n]*+)*+"
_WORDS = (
    r"(?P<name>%?[A-Za-z_][\w.\-]*+)"
    r"|(?P<integer>-?\d++)"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+')"
    r"|(?P<mark>->|<=|\.\.\.|[=,:*?#+~\[\]{}()<])"
    r"|(?P<end>\Z)"
    r"|(?P<error>(?s:.))"
)
_TYPES = "|".join(t.hlo_name for t in PrimitiveType if t is not PrimitiveType.TUPLE and t is not PrimitiveType.BUFFER)
# A brace after the sizes begins a layout only where a number or colon follows; it may also begin a computation. The
# layout must be part of the word, however far from the sizes, since shapes are looked up by their words.
_SHAPE = rf"(?P<shape>(?:{_TYPES})\[[^\[\]{{}}()]*+\](?:{_SPACE}\{{{_SPACE}[\d:](?:[^{{}}]|\{{[^{{}}]*+\}})*+\}})?)"
_WITH_SHAPES = re.compile(f"{_SPACE}(?:{_SHAPE}|{_WORDS})", re.ASCII)
_WITHOUT_SHAPES = re.compile(f"{_SPACE}(?:{_WORDS})", re.ASCII)
_SHOWN = re.compile(r"%?[\w.\-]+|->|<=|\.\.\.|\"[^\"\n]*\"?|\S")
_JSON_MARK = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}]', re.DOTALL)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Lexer:
    """A position in HLO text: the current word is ``text``, of kind ``kind``, from ``start`` to ``end``."""

    __slots__ = ("_match", "depth", "end", "kind", "name", "source", "start", "text")

    def __init__(self, source: str, name: str = "<text>", position: int = 0) -> None:
        self.source = source
        self.name = name
        self.depth = 0
        self.start = 0
        self.end = position
        self.kind = ""
        self.text = ""
        self._match = _WITH_SHAPES.match
        self.advance()

    def advance(self) -> None:
        """Go to the next word."""
        match = self._match(self.source, self.end)
        # The last alternative takes any character, so something always matches.
        kind = match.lastgroup  # pyright: ignore
        self.start, self.end = match.span(kind)  # pyright: ignore
        self.kind = kind  # pyright: ignore
        self.text = self.source[self.start : self.end]

    def move_to(self, position: int) -> None:
        """Go to the word at or after ``position``."""
        self.end = position
        self.advance()

    def peek(self) -> str:
        """The word after the current one."""
        match = self._match(self.source, self.end)
        return match.group(match.lastgroup)  # pyright: ignore

    def split_shapes(self, split: bool) -> None:
        """Read the current word and those after it with shapes taken apart (or whole again)."""
        self._match = (_WITHOUT_SHAPES if split else _WITH_SHAPES).match
        self.move_to(self.start)

    # -- words that must or may come ---------------------------------------------------------------

    def accept(self, mark: str) -> bool:
        """Whether the current word is ``mark``; if so it is consumed."""
        if self.text == mark:
            self.advance()
            return True
        return False

    def expect(self, mark: str, where: str = "") -> None:
        """Consume ``mark``; raises ParseError for any other word."""
        if self.text != mark:
            raise self.expected(f"'{mark}' {where}".rstrip())
        self.advance()

    def expect_name(self, what: str = "a name") -> str:
        """Consume a name and give it without a leading ``%``; raises ParseError."""
        if self.kind != "name":
            raise self.expected(what)
        text = self.text
        self.advance()
        return text[1:] if text[0] == "%" else text

    def expect_integer(self, what: str = "an integer") -> int:
        """Consume an integer, which must fit 64 bits; raises ParseError."""
        if self.kind != "integer":
            raise self.expected(what)
        if len(self.text) > 20 or not _INT64_MIN <= (value := int(self.text)) <= _INT64_MAX:
            raise self.error(f"{self.text[:40]} does not fit a 64-bit integer")
        self.advance()
        return value

    def expect_bool(self) -> bool:
        """Consume ``true`` or ``false``; raises ParseError."""
        if self.text not in ("true", "false"):
            raise self.expected("'true' or 'false'")
        value = self.text == "true"
        self.advance()
        return value

    def expect_string(self, what: str = "a string in quotes") -> str:
        """Consume a quoted string and give its unescaped text; raises ParseError."""
        if self.kind != "string":
            raise self.expected(what)
        try:
            value = unescape(self.text[1:-1])
        except ValueError as fault:
            raise self.error(str(fault)) from None
        self.advance()
        return value

    def expect_end(self) -> None:
        """Raise ParseError unless the text ends here."""
        if self.kind != "end":
            raise self.expected("the end of the text")

    def take(self, pattern: re.Pattern[str], what: str) -> str:
        """Consume the text that ``pattern`` matches at the current word's start; raises ParseError if it does not."""
        match = pattern.match(self.source, self.start)
        if match is None:
            raise self.expected(what)
        self.move_to(match.end())
        return match.group()

    def take_json(self) -> str:
        """Consume a dictionary in braces and give its text unchanged."""
        if self.text != "{":
            raise self.expected("a string in quotes or a dictionary in braces")
        start = self.start
        end = json_end(self.source, start)
        if end < 0:
            raise self.error("this '{' is never closed")
        self.move_to(end)
        return self.source[start:end]

    def expect_string_or_json(self) -> str:
        """Consume a quoted string, given unescaped, or a dictionary in braces, given unchanged."""
        return self.expect_string() if self.kind == "string" else self.take_json()

    # -- nesting -----------------------------------------------------------------------------------

    def enter(self) -> None:
        """Count one level of nesting; raises ParseError where there are too many."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", hint=_DEPTH_HINT)

    def leave(self) -> None:
        """End what :meth:`enter` began."""
        self.depth -= 1

    # -- errors ------------------------------------------------------------------------------------

    def error(self, rule: str, offset: int | None = None, *, hint: str = "") -> ParseError:
        """An error at an offset, by default that of the current word."""
        position = self.start if offset is None else offset
        return ParseError(rule, source=self.source, offset=position, name=self.name, hint=hint)

    def expected(self, what: str) -> ParseError:
        """An error that says what should stand at the current word, and what does."""
        if self.kind == "error":
            if self.text in "\"'":
                return self.error("this quote is never closed")
            if self.source.startswith("/*", self.start):
                return self.error("this comment is never closed")
        # In a text of several lines, an unexpected end, or last word, suggests that the file is truncated.
        is_last = self.kind == "end" or not self.source[self.start + len(self.text) :].strip()
        is_cut = is_last and self.source.count("\n", 0, self.start) > 1
        hint = "the file ends inside of a program: dump or copy it again" if is_cut else ""
        if self.source.startswith(("$", "<<"), self.start):
            hint = "the text is a template: put names or values where it has such words"
        return self.error(f"expected {what}, got {self.shown()}", hint=hint)

    def shown(self) -> str:
        """The current word for a message."""
        if self.kind == "end":
            return "the end of the text"
        match = _SHOWN.match(self.source, self.start)
        word = match.group() if match else self.text
        return f"'{word[:40]}'"


def json_end(source: str, start: int) -> int:
    """The offset behind the dictionary that opens at ``start``; -1 where it is not closed."""
    depth = 0
    for match in _JSON_MARK.finditer(source, start):
        mark = match.group()
        if mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    return -1


_ESCAPES = {
    "n": "\n",
    "r": "\r",
    "t": "\t",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "?": "?",
}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)


def unescape(text: str) -> str:
    """The inside of a quoted string with C's escapes replaced; raises ValueError.

    Octal and hexadecimal escapes are bytes of UTF-8. Bytes that are no UTF-8 are kept as surrogates.
    """
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        octal, hexadecimal, short, long, letter = match.groups()
        if letter is not None:
            if letter not in _ESCAPES:
                raise ValueError(f"unknown escape '\\{letter}' in a string")
            return _ESCAPES[letter]
        if short or long:
            return chr(int(short or long, 16))
        value = int(octal, 8) if octal else int(hexadecimal, 16)
        if value > 0xFF:
            raise ValueError(f"'{match.group()}' in a string is more than a byte")
        # Bytes above ASCII are marked as surrogates here and joined below.
        return chr(value) if value < 0x80 else chr(0xDC00 + value)

    return _ESCAPE.sub(replace, text).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")
_NAMED_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}


def quote(text: str) -> str:
    """A string in quotes, escaped as XLA does it."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    parts = [
        _NAMED_ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}")
        for byte in text.encode("utf-8", "surrogateescape")
    ]
    return f'"{"".join(parts)}"'


def quote_or_json(text: str) -> str:
    """A dictionary in braces as it stands, anything else in quotes."""
    return text if text.startswith("{") and json_end(text, 0) == len(text) else quote(text)
