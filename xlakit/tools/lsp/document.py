"""A text in the editor, and what is found at a position of it: symbols, their definitions and uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from xlakit.tools.lsp.checking import Checked, Estimate
from xlakit.tools.lsp.index import Definition, Index, Role, Scope, Word, calling_attributes, words_of
from xlakit.tools.lsp.lines import Lines, Span


@dataclass(frozen=True, slots=True)
class Symbol:
    """An instruction of a computation, or, where ``definition`` is None, a computation."""

    scope: Scope
    definition: Definition | None = None

    @property
    def span(self) -> Span:
        """The span of the name where it is defined."""
        return self.scope.span if self.definition is None else self.definition.span

    @property
    def name(self) -> str:
        """The name, without ``%``."""
        return self.scope.name if self.definition is None else self.definition.name


class Document:
    """One version of a text. ``checked``: the result of its check, or of the last version that parsed."""

    def __init__(self, text: str, checked: Checked | None = None, encoding: str = "utf-16") -> None:
        self.text = text
        self.encoding = encoding
        self.checked = checked or Checked()

    @cached_property
    def lines(self) -> Lines:
        """Where its lines begin."""
        return Lines(self.text, self.encoding)

    @cached_property
    def index(self) -> Index:
        """Where its names are."""
        return Index(self.lines)

    def word_at(self, offset: int) -> tuple[Scope, Definition, Word] | None:
        """The word of an instruction at an offset, or ending there."""
        scope = self.index.scope_at(offset)
        definition = None if scope is None else self.index.definition_at(scope, offset)
        if scope is None or definition is None:
            return None
        for word in self.index.words(definition):
            if word.span.start <= offset <= word.span.end:
                return scope, definition, word
            if word.span.start > offset:
                break
        return None

    def symbol_at(self, offset: int) -> Symbol | None:
        """What the name at an offset stands for."""
        for scope in self.index.scopes:
            if scope.name and scope.span.start <= offset <= scope.span.end:
                return Symbol(scope)
        word_with_scope = self.word_at(offset)
        if word_with_scope is None:
            return None
        scope, definition, word = word_with_scope
        if word.role is Role.DEFINITION:
            return Symbol(scope, definition)
        if word.role is Role.OPERAND:
            target = scope.find(word.name)
            return None if target is None else Symbol(scope, target)
        if word.role is Role.COMPUTATION:
            called = self.index.computation(word.name)
            return None if called is None else Symbol(called)
        return None

    def uses(self, symbol: Symbol) -> Iterator[Span]:
        """Where a symbol is used, without its definition, in the order of the text."""
        scopes = self.index.scopes if symbol.definition is None else [symbol.scope]
        role = Role.COMPUTATION if symbol.definition is None else Role.OPERAND
        for scope in scopes:
            last: Definition | None = None
            for offset in self.index.mentions(symbol.name, scope.start, scope.end):
                definition = self.index.definition_at(scope, offset)
                if definition is None or definition is last:
                    continue
                last = definition
                for word in self.index.words(definition):
                    if word.role is role and word.name == symbol.name:
                        yield word.span

    def estimate(self, scope: Scope, definition: Definition) -> Estimate | None:
        """The shape and cost of an instruction, from the last version of the text that had no faults."""
        known = self.checked.estimates
        if known is None:
            return None
        if scope.name:
            return known.get((scope.name, definition.name))
        return known.get(("_", definition.name))

    def written_shape(self, definition: Definition) -> str:
        """The shape before the opcode, as it is written; empty where there is none."""
        for word in self.index.words(definition):
            if word.role is Role.OPCODE:
                equals = self.text.find("=", definition.span.end)
                return self.text[equals + 1 : word.span.start].strip() if 0 <= equals < word.span.start else ""
        return ""

    def opcode(self, definition: Definition) -> str:
        """The opcode of an instruction; empty where there is none yet."""
        return next((w.name for w in self.index.words(definition) if w.role is Role.OPCODE), "")


@dataclass(frozen=True, slots=True)
class Expected:
    """The kind of word (``role``) that may be completed at an offset, and the part typed already (``prefix``)."""

    role: Role
    prefix: str
    start: int
    scope: Scope | None
    opcode: str = ""
    attribute: str = ""


def expected_at(document: Document, offset: int) -> Expected | None:
    """What may be typed at an offset; None where names mean nothing, as in strings."""
    text = document.text
    start = offset
    while start and (text[start - 1].isalnum() or text[start - 1] in "_.-%"):
        start -= 1
    prefix = text[start:offset]
    scope = document.index.scope_at(offset)
    definition = None if scope is None else document.index.definition_at(scope, start)
    line = document.lines.span(document.lines.position(offset).line)
    begin = definition.span.start if definition is not None else line.start
    words = list(words_of(text, begin, start))
    if not words or "=" not in text[begin:start]:
        return None
    if (
        words[-1].role in (Role.STRING, Role.COMMENT)
        and words[-1].span.end >= start
        and not _is_closed(text, words[-1])
    ):
        return None
    opcode = next((w.name for w in words if w.role is Role.OPCODE), "")
    if not opcode:
        return Expected(Role.OPCODE, prefix, start, scope)
    # Parse the instruction with a word added at the offset: the role of that word is the expected one.
    probe = list(words_of(f"{text[begin:start]}x", 0, start - begin + 1))[-1]
    before = text[begin:start].rstrip()
    if probe.role is Role.OPERAND:
        return Expected(Role.OPERAND, prefix, start, scope, opcode)
    if probe.attribute in calling_attributes() and before.endswith(("=", "{", ",")) and not _at_top(text[begin:start]):
        return Expected(Role.COMPUTATION, prefix, start, scope, opcode, probe.attribute)
    if before.endswith("="):
        role = Role.COMPUTATION if probe.attribute in calling_attributes() else Role.WORD
        return Expected(role, prefix, start, scope, opcode, probe.attribute)
    if before.endswith(",") and _at_top(text[begin:start]):
        return Expected(Role.ATTRIBUTE, prefix, start, scope, opcode)
    return None


def _is_closed(text: str, word: Word) -> bool:
    written = text[word.span.start : word.span.end]
    if word.role is Role.STRING:
        return len(written) > 1 and written.endswith('"')
    return written.endswith("*/")


def _at_top(text: str) -> bool:
    """Whether a comma at the end of an instruction's text so far is outside of all braces and parentheses."""
    depth = 0
    for letter in text:
        depth += (letter in "({[") - (letter in ")}]")
    return depth == 0 and text.rstrip().endswith(",")
