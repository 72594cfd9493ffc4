"""What the server answers: hover, completion, rename, outline, folding, hints, tokens and formatting, as offsets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from xlakit.errors import ArgumentError
from xlakit.formats import hlo_text
from xlakit.formats.hlo_text.reader import SHARED_ATTRIBUTES
from xlakit.formats.hlo_text.sugar import read_sugar
from xlakit.ir.enums import HloEnum
from xlakit.ir.operation import OPERATIONS, Attribute, Kind, Op
from xlakit.tools.listing import operation_entry
from xlakit.tools.lsp.checking import cost_text
from xlakit.tools.lsp.document import Document, Symbol, expected_at
from xlakit.tools.lsp.index import Definition, Role, Scope
from xlakit.tools.lsp.lines import Span

_NAME = re.compile(r"%?[A-Za-z_][\w.\-]*", re.ASCII)
# XLA numbers the elements of long tuples in comments, and its printer, like ours, writes them anew.
_NUMBERING = re.compile(r"/\*index=\d+\*/")
_NOT_CODE = re.compile(r'"(?:[^"\\]|\\.)*+"|/\*(?s:.*?)\*/|//[^\r\n]*')
_MOST_COMPLETIONS = 500


# -- hover -------------------------------------------------------------------------------------------


def hover(document: Document, offset: int) -> tuple[Span, str] | None:
    """Markdown about the word at an offset: an instruction, a computation, an opcode."""
    word_with_scope = document.word_at(offset)
    if word_with_scope is not None and word_with_scope[2].role is Role.OPCODE:
        page = _page(word_with_scope[2].name)
        return (word_with_scope[2].span, page) if page else None
    symbol = document.symbol_at(offset)
    if symbol is None:
        return None
    span = symbol.span if word_with_scope is None else word_with_scope[2].span
    return span, describe(document, symbol)


def describe(document: Document, symbol: Symbol) -> str:
    """Markdown about an instruction (its line, shape, cost and operation) or a computation (its signature)."""
    scope, definition = symbol.scope, symbol.definition
    if definition is None:
        head = document.text[scope.start : document.lines.span(document.lines.position(scope.start).line).end]
        return f"```hlo\n{head.strip()[:400]}\n```\n{len(scope.definitions)} instructions"
    estimate = document.estimate(scope, definition)
    opcode = document.opcode(definition)
    shape = document.written_shape(definition) or ("" if estimate is None else estimate.shape)
    parts = [f"```hlo\n{definition.name} = {shape} {opcode}\n```"]
    if estimate is not None:
        parts.append(cost_text(estimate.cost) or "no operations")
    page = _page(opcode)
    return "\n\n".join([*parts, page] if page else parts)


def _page(opcode: str) -> str:
    op = _operation(opcode)
    if op is None:
        return ""
    entry = operation_entry(op).removeprefix("- ")
    return entry if op.opcode == opcode else f"`{opcode}`: {entry}"


def _operation(opcode: str) -> type[Op] | None:
    """The operation of an opcode; the wrapped one of ``cosine-start`` and its kin."""
    operation = OPERATIONS.get(opcode)
    if operation is None:
        wrapped = read_sugar(opcode)
        operation = None if wrapped is None else wrapped[1]
    return operation


# -- completion --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that may be put in, what it is, and more about it."""

    text: str
    role: Role
    detail: str = ""


def complete(document: Document, offset: int) -> tuple[Span, list[Completion]]:
    """What may stand at an offset, and the span of what is already typed of it."""
    expected = expected_at(document, offset)
    if expected is None:
        return Span(offset, offset), []
    span, scope = Span(expected.start, offset), expected.scope
    completions: Iterator[Completion] = iter(())
    if expected.role is Role.OPCODE:
        completions = (Completion(name, Role.OPCODE, _summary(op)) for name, op in sorted(OPERATIONS.items()))
    elif expected.role is Role.OPERAND and scope is not None:
        completions = _operands(document, scope, expected.start, expected.prefix.startswith("%"))
    elif expected.role is Role.COMPUTATION:
        sign = "%" if _has_signs(document) else ""
        here = "" if scope is None else scope.name
        completions = (
            Completion(sign + s.name, Role.COMPUTATION, f"{len(s.definitions)} instructions")
            for s in document.index.scopes
            if s.name and s.name != here and not s.is_entry
        )
    elif expected.role is Role.ATTRIBUTE:
        completions = _attributes(expected.opcode)
    elif expected.role is Role.WORD:
        completions = _values(expected.opcode, expected.attribute)
    typed = expected.prefix.removeprefix("%").lower()
    matching = [c for c in completions if typed in c.text.lower()]
    matching.sort(key=lambda c: not c.text.lower().removeprefix("%").startswith(typed))
    return span, matching[:_MOST_COMPLETIONS]


def _operands(document: Document, scope: Scope, offset: int, sign: bool) -> Iterator[Completion]:
    """The instructions before an offset, the last first."""
    prefix = "%" if sign or _has_signs(document) else ""
    for definition in reversed(scope.definitions):
        if definition.end < offset:
            yield Completion(prefix + definition.name, Role.OPERAND, _line_of(document, definition))


def _line_of(document: Document, definition: Definition) -> str:
    equals = document.text.find("=", definition.span.end) + 1
    return " ".join(document.text[equals : min(definition.end, equals + 80)].split())


def _has_signs(document: Document) -> bool:
    scopes = document.index.scopes
    return any(document.text[d.span.start] == "%" for s in scopes[:3] for d in s.definitions[:3])


def _attributes(opcode: str) -> Iterator[Completion]:
    op = _operation(opcode)
    for spec in () if op is None else op.attributes:
        if spec.text:
            kind = spec.kind.name.lower().replace("_", " ")
            yield Completion(f"{spec.text}=", Role.ATTRIBUTE, kind + (", required" if spec.required else ""))
    for name in (*SHARED_ATTRIBUTES, "control-predecessors"):
        yield Completion(f"{name}=", Role.ATTRIBUTE, "any operation")


def _values(opcode: str, attribute: str) -> Iterator[Completion]:
    op = _operation(opcode)
    spec: Attribute | None = next((s for s in (() if op is None else op.attributes) if s.text == attribute), None)
    if spec is None:
        return
    if spec.kind is Kind.BOOL:
        yield from (Completion(word, Role.WORD, "bool") for word in ("true", "false"))
    elif spec.enum is not None and issubclass(spec.enum, HloEnum):
        yield from (Completion(member.text, Role.WORD, spec.enum.__name__) for member in spec.enum)


def _summary(op: type[Op]) -> str:
    return (op.__doc__ or "").strip().split("\n", 1)[0]


# -- rename ------------------------------------------------------------------------------------------


def rename(document: Document, offset: int, name: str) -> list[tuple[Span, str]]:
    """The edits that give the name at an offset another one; a ``%`` stays where it is written.

    Raises ArgumentError where no name is, or where the new one is no name, or is taken.
    """
    symbol = document.symbol_at(offset)
    if symbol is None:
        raise ArgumentError("no name of an instruction or a computation is here", hint="rename a name that is defined")
    if not _NAME.fullmatch(name):
        raise ArgumentError(
            f"'{name}' is not a name", hint="names are letters, digits, '_', '.' and '-', no digit first"
        )
    plain = name.removeprefix("%")
    if symbol.definition is not None and symbol.scope.count(symbol.name) > 1:
        raise ArgumentError(
            f"'{symbol.name}' is the name of several instructions here",
            hint="move computations in braces behind an attribute out of this one",
        )
    taken = document.index.computation(plain) if symbol.definition is None else symbol.scope.find(plain)
    if taken is not None and plain != symbol.name:
        raise ArgumentError(f"'{plain}' is taken", hint="choose a name that is not in use there")
    spans = [symbol.span, *document.uses(symbol)]
    return [(Span(s.start + (document.text[s.start] == "%"), s.end), plain) for s in spans]


# -- outline, folding, hints -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the outline: a computation with its fusions, loops and calls as children."""

    name: str
    detail: str
    span: Span
    name_span: Span
    children: tuple[Entry, ...] = ()


_OUTLINED = re.compile(r"\b(?:fusion|while|conditional|call|custom-call|map|scan)\(")


def outline(document: Document) -> list[Entry]:
    """The computations, each with those of its instructions that call others, and its root."""
    return [
        Entry(
            scope.name or "instructions",
            "ENTRY" if scope.is_entry else "",
            Span(scope.start, scope.end),
            scope.span,
            tuple(
                Entry(d.name, document.opcode(d), Span(d.span.start, d.end), d.span)
                for d in scope.definitions
                if d.is_root or _OUTLINED.search(document.text, d.span.end, min(d.end, d.span.end + 2000))
            ),
        )
        for scope in document.index.scopes
    ]


def folds(document: Document) -> list[tuple[int, int]]:
    """The lines (from 0) of computations, and of instructions with several lines."""
    lines = document.lines
    ranges: list[tuple[int, int]] = []
    for scope in document.index.scopes:
        first, last = lines.position(scope.start).line, lines.position(scope.end).line
        if scope.name and last > first:
            ranges.append((first, last))
        for definition in scope.definitions:
            begin, end = lines.position(definition.span.start).line, lines.position(definition.end).line
            if end > begin:
                ranges.append((begin, end))
    return ranges


def hints(document: Document, span: Span) -> Iterator[tuple[int, str]]:
    """Offsets and texts: the shape of an instruction that is written without one, and at its end what it costs."""
    for scope in document.index.scopes:
        if scope.end < span.start or scope.start > span.end:
            continue
        for definition in scope.definitions:
            if definition.end < span.start or definition.span.start > span.end:
                continue
            known = document.estimate(scope, definition)
            if known is None:
                continue
            if not document.written_shape(definition):
                yield definition.span.end, f": {known.shape}"
            cost = cost_text(known.cost)
            if cost:
                line = document.lines.position(definition.span.start).line
                yield min(definition.end, document.lines.span(line).end), f"  {cost}"


# -- formatting --------------------------------------------------------------------------------------


def formatted(text: str, name: str) -> str:
    """The text as the printer writes it; in the short style where no name has a ``%`` and nothing is lost by it.

    Raises ArgumentError where the text has comments, which the printer does not know; ParseError, ShapeError.
    """
    for match in _NOT_CODE.finditer(text):
        if match.group()[0] == "/" and not _NUMBERING.fullmatch(match.group()):
            line = text.count("\n", 0, match.start()) + 1
            raise ArgumentError(
                f"the text has a comment in line {line}, which formatting would lose",
                hint="remove the comments, or format by hand",
            )
    module = hlo_text.parse_module(text, name=name)
    code = _NOT_CODE.sub('""', text)
    short = "%" not in code and "metadata=" not in code and "origin=" not in code and "FileNames" not in code
    result = hlo_text.print_module(module, hlo_text.PrintOptions(short=short))
    if hlo_text.parse_module(result, name=name) != module:
        raise ArgumentError("the printed program would be another one", hint="format by hand")
    return result.rstrip("\n") + "\n"
