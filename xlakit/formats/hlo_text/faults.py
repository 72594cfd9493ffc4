"""All faults of HLO text at once: unreadable parts are skipped, and the rest is verified.

An instruction that cannot be read is replaced by a custom call of its declared shape, so that its users can be checked.
An instruction without a readable shape, and its users, are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import TOKEN_SHAPE, Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ParseError, XlakitError
from xlakit.formats.hlo_text.header import parse_header, parse_stack_frames
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.formats.hlo_text.linker import Linker
from xlakit.formats.hlo_text.parser import parse_module
from xlakit.formats.hlo_text.reader import Reader, unknown
from xlakit.formats.hlo_text.records import Body, Callee, Record
from xlakit.formats.hlo_text.shapes import at_shape, parse_shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.custom_call import CustomCall
from xlakit.verifier import Finding, findings, shape_findings

_UNREAD: Final = "xlakit.Unread"
_HEAD: Final = re.compile(r"(ROOT\s+)?%?([\w.\-]+)\s*=\s*")
_TYPES: Final = "|".join(t.hlo_name for t in PrimitiveType)
# A line that begins an instruction, with a shape or an opcode behind its = (an attribute has neither), or that ends a
# computation.
_NEXT: Final = re.compile(rf"\n[ \t]*(?=ROOT\s|%?[\w.\-]+\s*=\s*(?:(?:{_TYPES})\[|\(|[a-z\-]+\()|\}}[ \t]*(?:\n|,|\Z))")
_COMPUTATION: Final = re.compile(r"(?:ENTRY\s+)?%?[A-Za-z_][\w.\-]*\s*(?:\([^\n]*)?\{")
_NEXT_COMPUTATION: Final = re.compile(rf"\n(?={_COMPUTATION.pattern})")


@dataclass
class Checked:
    """The module of a text, and its faults, in the order of the text."""

    module: HloModule | None = None
    faults: list[XlakitError] = field(default_factory=list)
    # Where each instruction begins; of lists of instructions without a computation around them it is not known.
    offsets: Mapping[Instruction, int] = field(default_factory=dict[Instruction, int])


def check_text(text: str, name: str = "<text>") -> Checked:
    """The module in HLO text, where there is one, and every fault of it with line, column and caret."""
    lexer = Lexer(text, name)
    start = lexer.start
    if lexer.text not in ("HloModule", "ENTRY") and lexer.peek() not in ("{", "("):
        return _check_list(text, name)
    reader = _Reader(lexer)
    fields, entry = reader.read_all()
    if entry is None:
        return Checked(None, sorted(reader.faults, key=_offset))
    linker = _Linker(lexer, reader.bodies, reader.faults, reader.lost)
    module = linker.module(entry, fields)
    if module is None:
        return Checked(None, sorted(reader.faults, key=_offset))
    is_read = not reader.faults
    semantic_findings = findings(module) if is_read else linker.plain(shape_findings(module))
    faults = [*reader.faults, *(_with_position(f, linker, lexer, start) for f in semantic_findings)]
    return Checked(module if not faults else None, sorted(faults, key=_offset), linker.offsets)


def _check_list(text: str, name: str) -> Checked:
    """Instructions without a computation around them; only the first that cannot be read is reported."""
    try:
        module = parse_module(text, name=name)
    except XlakitError as error:
        return Checked(None, [error])
    faults = [finding.error for finding in findings(module)]
    return Checked(None if faults else module, faults)


def _offset(fault: XlakitError) -> int:
    return fault.offset if isinstance(fault, ParseError) else 0


class _SemanticFault(ParseError):
    """An error of a program that parses, with its position in the text, like a syntax error."""

    def __init__(self, error: XlakitError, source: str, offset: int, name: str) -> None:
        super().__init__(error.headline, source=source, offset=offset, name=name)
        self._notes = [line for line in str(error).splitlines()[1:] if line.strip()]

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *self._notes])


def _with_position(finding: Finding, linker: _Linker, lexer: Lexer, start: int) -> ParseError:
    """A finding where its instruction or computation begins; of the module, where the module does."""
    offset = start
    if finding.instruction is not None:
        offset = linker.offsets.get(finding.instruction, start)
    elif finding.computation is not None:
        offset = linker.bodies[finding.computation.name].offset
    return _SemanticFault(finding.error, lexer.source, offset, lexer.name)


class _Reader(Reader):
    """A reader that continues after parts that it cannot read."""

    def __init__(self, lexer: Lexer) -> None:
        super().__init__(lexer)
        self.faults: list[XlakitError] = []
        # Computations that could not be read, by their names.
        self.lost: set[str] = set()

    def read_all(self) -> tuple[dict[str, Any], Body | None]:
        """The header's fields and the entry; None where no computation could be read."""
        lexer = self.lexer
        fields: dict[str, Any] = {"name": "_"}
        if lexer.text == "HloModule":
            try:
                fields |= parse_header(lexer)
                fields["stack_frames"] = parse_stack_frames(lexer)
            except ParseError as error:
                self._skip_to_computation(error, 0)
        entry: Body | None = None
        last: Body | None = None
        while lexer.kind != "end":
            start = lexer.start
            second = self.second_module()
            if second is not None:
                self.faults.append(second)
                break
            marked = lexer.accept("ENTRY")
            name = lexer.text.removeprefix("%")
            try:
                last = self.read_computation()
                if marked and entry is not None:
                    raise lexer.error("a module has only one ENTRY", start)
                entry = last if marked else entry
            except ParseError as error:
                self.lost.add(name)
                if marked:
                    # The entry is unreadable: no computation read so far may take its place.
                    last = None
                self._skip_to_computation(error, start)
        if last is None and entry is None and not self.faults:
            self.faults.append(lexer.expected("a computation"))
        return fields, entry or last

    def _skip_to_computation(self, error: ParseError, start: int) -> None:
        """Record the fault and go to the next computation after both ``start`` and the fault."""
        self.faults.append(error)
        match = _NEXT_COMPUTATION.search(self.lexer.source, max(start, error.offset - 1))
        self._go_to(match.end() if match else len(self.lexer.source), 0)

    def read_instruction(self, body: Body) -> None:
        lexer = self.lexer
        start, depth = lexer.start, lexer.depth
        if lexer.kind == "end":
            raise lexer.expected("an instruction's name or '}'")
        if _COMPUTATION.match(lexer.source, start):
            raise lexer.error(f"computation {body.name} has no '}}' before the next one begins")
        try:
            super().read_instruction(body)
        except ParseError as error:
            match = _NEXT.search(lexer.source, error.offset)
            if match is None:
                raise
            self.faults.append(error)
            self._put_unread(body, start)
            self._go_to(match.end(), depth)

    def _go_to(self, offset: int, depth: int) -> None:
        self.lexer.depth = depth
        self.lexer.split_shapes(False)
        self.lexer.move_to(offset)

    def _put_unread(self, body: Body, start: int) -> None:
        """Put a placeholder for an unreadable instruction into the body, with its name and, if readable, its shape."""
        head = _HEAD.match(self.lexer.source, start)
        if head is None:
            return
        record = Record(head[2], CustomCall, start, self._shape_at(head.end()))
        record.values["custom_call_target"] = _UNREAD
        if head[2] in body.names:
            record.name = body.unused_name(head[2])
        body.names[record.name] = record
        body.records.append(record)
        if head[1] and body.root is None:
            body.root = record

    def _shape_at(self, offset: int) -> Shape | None:
        try:
            lexer = Lexer(self.lexer.source, self.lexer.name, offset)
            return parse_shape(lexer) if at_shape(lexer) else None
        except XlakitError:
            return None  # the fault of the instruction has been reported


class _Linker(Linker):
    """A linker that puts placeholders in place of instructions that it cannot make."""

    def __init__(self, lexer: Lexer, bodies: dict[str, Body], faults: list[XlakitError], lost: set[str]) -> None:
        super().__init__(lexer, bodies)
        self.offsets: dict[Instruction, int] = {}
        self._faults = faults
        self._lost = lost
        # Placeholders of unreadable instructions; those in ``_shapeless`` have no known shape.
        self._unread: set[Instruction] = set()
        self._shapeless: set[Instruction] = set()

    def module(self, entry: Body, fields: dict[str, Any]) -> HloModule | None:
        """The module; None where computations call themselves."""
        for body in self.bodies.values():
            body.callees = [c for c in body.callees if self._check_callee(c)]
        try:
            computations = self.link()
            return HloModule(entry=computations[entry.name], computations=tuple(computations.values()), **fields)
        except XlakitError as error:
            self._faults.append(error)
            return None

    def _check_callee(self, callee: Callee) -> bool:
        if callee.name in self.bodies:
            return True
        if callee.name not in self._lost:
            rule, hint = unknown(callee.name, list(self.bodies), "computation")
            self._faults.append(self.lexer.error(rule, callee.offset, hint=hint))
            self._lost.add(callee.name)
        return False

    def differs(self, rule: str, offset: int) -> None:
        self._faults.append(self.lexer.error(rule, offset))

    def instruction(self, record: Record, computations: dict[str, Computation]) -> Instruction:
        if record.values.get("custom_call_target") == _UNREAD or self._depends_on_what_is_lost(record):
            result = self._stand_in(record)
        else:
            try:
                result = super().instruction(record, computations)
            except XlakitError as error:
                source, name = self.lexer.source, self.lexer.name
                self._faults.append(
                    error if isinstance(error, ParseError) else _SemanticFault(error, source, record.offset, name)
                )
                result = self._stand_in(record)
        self.offsets[result] = record.offset
        return result

    def _depends_on_what_is_lost(self, record: Record) -> bool:
        if any(o.instruction in self._shapeless for o in record.operands):
            return True
        for value in record.values.values():
            named = value if isinstance(value, tuple) else (value,)
            if any(isinstance(v, Callee) and v.name not in self.bodies for v in named):  # pyright: ignore[reportUnknownVariableType]
                return True
        return False

    def _stand_in(self, record: Record) -> Instruction:
        placeholder = Instruction(
            CustomCall(custom_call_target=_UNREAD),
            (),
            TOKEN_SHAPE if record.shape is None else record.shape,
            record.name,
        )
        self._unread.add(placeholder)
        if record.shape is None:
            self._shapeless.add(placeholder)
        return placeholder

    def plain(self, findings: Any) -> list[Finding]:
        """The findings that do not result from unreadable parts."""
        called = {c for i in self.offsets for c in i.op.called_computations}
        broken = {c for c in called if not self._unread.isdisjoint(c.instructions)}
        kept: list[Finding] = []
        for finding in findings:
            instruction = finding.instruction
            calls = () if instruction is None else instruction.op.called_computations
            if instruction not in self._unread and broken.isdisjoint(calls):
                kept.append(finding)
        return kept
