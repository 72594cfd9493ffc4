"""An index of the names in a text: its computations, their instructions, and the words of an instruction.

The index is built from lines and words alone, so that incomplete text has one, too. The parser is not used, as it keeps
no positions of operands and does not parse text that is being typed.

Instructions in braces within an instruction, ``to_apply={ ... }``, are assigned to the enclosing computation.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import xlakit.ops.registry  # noqa: F401  # pyright: ignore[reportUnusedImport]  # enters all operations in OPERATIONS
from xlakit.ir.operation import OPERATIONS, Kind
from xlakit.tools.lsp.lines import Lines, Span

_NAME = r"%?[A-Za-z_][\w.\-]*"
_HEAD = re.compile(rf"[ \t]*(?P<root>ROOT[ \t]+)?(?P<name>{_NAME})[ \t]*=(?!=)")
# Behind the brace of its computation, on the same line; attributes have no spaces around their equals sign.
_HEAD_INSIDE = re.compile(rf"(?<=[\s{{])(?P<root>ROOT[ \t]+)?(?P<name>{_NAME})[ \t]+=[ \t]")
# Behind another instruction on its line; attributes, which have no spaces around the sign, follow commas.
_HEAD_BEHIND = re.compile(rf"(?<=[)}}\]])[ \t]+(?P<root>ROOT[ \t]+)?(?P<name>{_NAME})[ \t]+=[ \t]")
_COMPUTATION = re.compile(
    rf"[ \t]*(?P<entry>ENTRY[ \t]+)?(?P<name>{_NAME})[ \t]*(?:\{{|\(.*\)[ \t]*->.*\{{[ \t]*(?://.*)?$)"
)
_MODULE = re.compile(r"[ \t]*HloModule\b")
_OPENED = re.compile(r'"(?:[^"\\]|\\.)*+"|//.*|/\*.*?\*/|(/\*)')
_NOT_CODE = re.compile(r'"(?:[^"\\]|\\.)*+"?|//.*|/\*.*?(?:\*/|$)')
_WORD = re.compile(
    rf'(?P<string>"(?:[^"\\\n]|\\.)*+"?)|(?P<comment>/\*(?s:.*?)(?:\*/|\Z)|//[^\r\n]*)|(?P<name>{_NAME})'
    # What follows a name says what it is.
    r"(?=[ \t]*(?P<next>.?))|(?P<number>-?\d[\w.+\-]*)|(?P<mark>[(){}\[\]=,])"
)
# What attributes of an instruction, or of the module, stand behind where they begin a line.
_BEFORE_ATTRIBUTE = frozenset(",({")
_OPEN, _SHUT = frozenset("([{"), frozenset(")]}")


class Role(enum.IntEnum):  # an integer's hash is fast
    """What a word of an instruction is."""

    DEFINITION = enum.auto()
    OPCODE = enum.auto()
    OPERAND = enum.auto()  # of an instruction, or a control predecessor
    COMPUTATION = enum.auto()
    ATTRIBUTE = enum.auto()
    WORD = enum.auto()  # types, values of attributes
    STRING = enum.auto()
    COMMENT = enum.auto()
    NUMBER = enum.auto()


# Of words that are no names, by the group that they match.
_OTHERS = {"string": Role.STRING, "comment": Role.COMMENT, "number": Role.NUMBER}


class Word(NamedTuple):
    """A word of an instruction; ``name`` is without ``%``, ``attribute`` the attribute whose value it is in."""

    span: Span
    role: Role
    name: str
    attribute: str = ""


@dataclass(slots=True)
class Definition:
    """An instruction in the text: the span of its name, with ``%``, and where it ends."""

    name: str
    span: Span
    end: int
    is_root: bool


@dataclass(slots=True)
class Scope:
    """A computation in the text: the span of its name, where it begins and ends, and its instructions.

    A text of instructions without a computation around them is one scope without a name.
    """

    name: str
    span: Span
    start: int
    end: int
    is_entry: bool = False
    definitions: list[Definition] = field(default_factory=list)
    _by_name: dict[str, Definition] | None = None

    def find(self, name: str) -> Definition | None:
        """The instruction of a name; the first where there are several."""
        if self._by_name is None:
            self._by_name = {d.name: d for d in reversed(self.definitions)}
        return self._by_name.get(name)

    def count(self, name: str) -> int:
        """How many instructions have a name: those in braces within an instruction count."""
        return sum(definition.name == name for definition in self.definitions)


class Index:
    """The computations of a text, in their order."""

    def __init__(self, lines: Lines) -> None:
        self.text = lines.text
        self.scopes: list[Scope] = []
        self._end = 0
        self._is_open = False
        # How many braces are open, that of the computation included.
        self._depth = 0
        # The last character of the lines before, without comments; "" behind the brace of a computation.
        self._last = ""
        commented = False
        for number in range(len(lines.starts)):
            start, end = lines.span(number)
            line = self.text[start:end]
            if commented:
                before, mark, after = line.partition("*/")
                if not mark:
                    continue
                line = " " * len(before + mark) + after
            code = _NOT_CODE.sub(_blank, line) if '"' in line or "/" in line else line
            self._line(line, code, start)
            self._braces(code, start)
            if line and not line.isspace():
                is_opening = self._is_open and self.scopes[-1].name and self.scopes[-1].start == start
                self._last = "" if is_opening else code.rstrip()[-1:] or self._last
                self._end = start + len(line.rstrip())
            commented = "/*" in line and any(match[1] for match in _OPENED.finditer(line))
        self._close(len(self.text) if self._is_open else self._end)
        self._by_name = {scope.name: scope for scope in reversed(self.scopes)}

    def _line(self, line: str, code: str, start: int) -> None:
        head = _HEAD.match(line)
        opened = _COMPUTATION.match(line) if head is None else None
        if opened is not None and not _MODULE.match(line):
            self._close(self._end)
            self._depth = 0
            name = opened["name"].removeprefix("%")
            span = Span(start + opened.start("name"), start + opened.end("name"))
            self.scopes.append(Scope(name, span, start, start + len(line), bool(opened["entry"])))
            self._is_open = True
            for inside in _HEAD_INSIDE.finditer(line, opened.end()):
                self._define(inside, start, is_behind=True)
            return
        if head is not None and not self._is_attribute(line, head):
            self._define(head, start)
        if self._is_open:
            for behind in _HEAD_BEHIND.finditer(code):
                self._define(behind, start, is_behind=True)

    def _braces(self, code: str, start: int) -> None:
        """Close the computation where the line has its last brace; attributes and bodies have braces, too."""
        self._depth += code.count("{") - code.count("}")
        if self._is_open and self._depth <= 0:
            before = code[: code.rfind("}")].rstrip()
            self._end_definition(start + len(before) if before else self._end)
            self._close(start + len(code.rstrip()))

    def _is_attribute(self, line: str, head: re.Match[str]) -> bool:
        """Whether ``name=`` at the beginning of a line is an attribute, which has no spaces around the sign."""
        spaced = line[head.end("name")] != "=" or line[head.end() : head.end() + 1].isspace()
        return self._last in _BEFORE_ATTRIBUTE and not spaced

    def _define(self, head: re.Match[str], start: int, *, is_behind: bool = False) -> None:
        if not self._is_open:
            self.scopes.append(Scope("", Span(start, start), start, start))
            self._is_open = True
            self._depth = 1
        scope = self.scopes[-1]
        span = Span(start + head.start("name"), start + head.end("name"))
        if scope.definitions and scope.definitions[-1].end < 0:
            # Several instructions may stand on a line.
            scope.definitions[-1].end = start + head.start() if is_behind else self._end
        scope.definitions.append(Definition(head["name"].removeprefix("%"), span, -1, bool(head["root"])))

    def _end_definition(self, end: int) -> None:
        scope = self.scopes[-1]
        if scope.definitions and scope.definitions[-1].end < 0:
            scope.definitions[-1].end = max(end, scope.definitions[-1].span.end)

    def _close(self, end: int) -> None:
        if self._is_open:
            self._end_definition(end)
            self.scopes[-1].end = end
            self._is_open = False

    def computation(self, name: str) -> Scope | None:
        """The computation of a name; the first where there are several."""
        return self._by_name.get(name)

    def scope_at(self, offset: int) -> Scope | None:
        """The computation that an offset is in."""
        return next((s for s in self.scopes if s.start <= offset <= s.end), None)

    def definition_at(self, scope: Scope, offset: int) -> Definition | None:
        """The instruction that an offset is in, from its line's beginning on."""
        low, high = 0, len(scope.definitions)
        while low < high:
            middle = (low + high) // 2
            if scope.definitions[middle].span.start <= offset:
                low = middle + 1
            else:
                high = middle
        definition = scope.definitions[low - 1] if low else None
        return definition if definition is not None and offset <= definition.end else None

    def words(self, definition: Definition) -> Iterator[Word]:
        """The words of an instruction."""
        return words_of(self.text, definition.span.start, definition.end)

    def mentions(self, name: str, start: int, end: int) -> Iterator[int]:
        """Where a name stands as a whole word between two offsets, strings and comments included."""
        word = re.compile(rf"(?<![\w.\-])%?{re.escape(name)}(?![\w.\-])")
        return (match.start() for match in word.finditer(self.text, start, end))


def _blank(match: re.Match[str]) -> str:
    """What stands for a string or a comment where braces are counted."""
    text = match.group()
    return '"' * len(text) if text.startswith('"') else " " * len(text)


@cache
def calling_attributes() -> frozenset[str]:
    """The attributes whose values are names of computations."""
    declared = {
        spec.text
        for op in OPERATIONS.values()
        for spec in op.attributes
        if spec.kind in (Kind.COMPUTATION, Kind.COMPUTATION_LIST)
    }
    return frozenset({*declared, "true_computation", "false_computation", "to_apply"})


@cache
def opcodes_of_values() -> frozenset[str]:
    """The operations whose parentheses contain a value instead of operands."""
    return frozenset({opcode for opcode, op in OPERATIONS.items() if any(not spec.text for spec in op.attributes)})


def words_of(text: str, start: int, end: int) -> Iterator[Word]:
    """The words of the instruction between two offsets, the first of which is that of its name."""
    opened: list[str] = []
    opcode = attribute = ""
    phase = Role.DEFINITION
    calling, of_values = calling_attributes(), opcodes_of_values()
    for match in _WORD.finditer(text, start, end):
        kind, word = match.lastgroup, match.group()
        if kind == "mark":
            if word in _OPEN:
                opened.append(word)
            elif word in _SHUT:
                if opened:
                    opened.pop()
                if not opened and word == ")" and phase is Role.OPERAND:
                    phase = Role.ATTRIBUTE
            continue
        span = Span(match.start(), match.end())
        if kind != "next":
            yield Word(span, _OTHERS[kind or ""], word, attribute)
            continue
        name = word.removeprefix("%")
        following = match["next"]
        role = Role.WORD
        if phase is Role.DEFINITION:
            role, phase = Role.DEFINITION, Role.OPCODE
        elif phase is Role.OPCODE:
            # The shape of a buffer is b(f32[2]).
            if not opened and following != "[" and word not in ("ROOT", "token", "opaque", "b"):
                role, phase, opcode = Role.OPCODE, Role.OPERAND, word
        elif phase is Role.OPERAND:
            if following != "[" and opcode not in of_values and "{" not in opened and "[" not in opened:
                role = Role.OPCODE if following == "(" else Role.OPERAND
        elif following == "=" and not opened:
            role, attribute = Role.ATTRIBUTE, name
        elif attribute in calling:
            role = Role.COMPUTATION
        elif attribute == "control-predecessors":
            role = Role.OPERAND
        yield Word(span, role, name, "" if role is Role.ATTRIBUTE else attribute)
