"""Prints programs as HLO text, in the way of OpenXLA's printer: constants in full, names with %."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.formats.hlo_text.attributes import CODECS
from xlakit.formats.hlo_text.header import print_header, print_stack_frames
from xlakit.formats.hlo_text.lexer import quote, quote_or_json
from xlakit.formats.hlo_text.literals import print_literal
from xlakit.formats.hlo_text.metadata import (
    print_frontend_attributes,
    print_metadata,
    print_origin,
    print_statistics,
)
from xlakit.formats.hlo_text.names import with_plain_names
from xlakit.formats.hlo_text.records import CALLING
from xlakit.formats.hlo_text.sharding import print_sharding
from xlakit.formats.hlo_text.sugar import start_of, sugared
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.enums import Precision
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Kind, Op


def print_module(module: HloModule) -> str:
    """The whole module; xlakit and XLA parse it to the same module."""
    module = with_plain_names(module)
    printer = _Printer()
    parts = [print_header(module), print_stack_frames(module.stack_frames), "\n\n"]
    hidden = _hidden(module)
    for computation in module.computations:
        if computation not in hidden:
            parts.append(printer.computation(computation, is_entry=computation is module.entry))
            parts.append("\n\n")
    return "".join(parts)


def print_instruction(instruction: Instruction) -> str:
    """One instruction on a line."""
    return _Printer().instruction(instruction)


def print_computation(computation: Computation) -> str:
    """One computation, without those that it calls."""
    return _Printer().computation(computation, is_entry=False)


def _hidden(module: HloModule) -> set[Computation]:
    """The computations that all asynchronous instructions that run them print in themselves."""
    starts = [i for computation in module.computations for i in computation.instructions if i.opcode == "async-start"]
    hidden = {c for start in starts if sugared(start) for c in start.op.called_computations}
    return hidden.difference(c for start in starts if not sugared(start) for c in start.op.called_computations)


class _Printer:
    """Prints instructions; remembers the texts of shapes."""

    def __init__(self) -> None:
        # By identity, since the shapes outlive the printer and hashing one walks it.
        self._shapes: dict[int, str] = {}

    def shape(self, shape: Shape) -> str:
        text = self._shapes.get(id(shape))
        if text is None:
            text = self._shapes[id(shape)] = str(shape)
        return text

    def computation(self, computation: Computation, *, is_entry: bool) -> str:
        parameters = ", ".join(f"{p.name}: {p.shape.to_string(with_layout=False)}" for p in computation.parameters)
        result = computation.root.shape.to_string(with_layout=False)
        lines = [f"{'ENTRY ' if is_entry else ''}%{computation.name} ({parameters}) -> {result} {{"]
        root = computation.root
        for instruction in computation.instructions:
            lines.append(f"  {'ROOT ' if instruction is root else ''}{self.instruction(instruction)}")
        thread = computation.execution_thread
        lines.append("}" if thread == "main" else f"}}, execution_thread={quote(thread)}")
        return "\n".join(lines)

    def instruction(self, instruction: Instruction) -> str:
        op, opcode = instruction.op, instruction.opcode
        plan = _plan(type(op))
        inner = _sugared_op(instruction) if opcode.startswith("async-") else None
        inside = self._operands(instruction) if plan.inline is None else plan.inline(op)
        if inner is not None:
            opcode = inner.opcode + opcode.removeprefix("async")
        parts = [f"%{instruction.name} = {self.shape(instruction.shape)} {opcode}({inside})"]
        annotations = instruction.annotations
        if annotations.parameter_replication:
            marks = ",".join("true" if m else "false" for m in annotations.parameter_replication)
            parts.append(f"parameter_replication={{{marks}}}")
        if inner is not None:
            _sugared_attributes(parts, instruction, inner)
        else:
            _attributes(parts, plan.attributes, op, instruction)
        if annotations is not NO_ANNOTATIONS or instruction.control_predecessors or plan.late:
            _annotations(parts, instruction, annotations, plan.late)
        return ", ".join(parts)

    def _operands(self, instruction: Instruction) -> str:
        names = [f"%{operand.name}" for operand in instruction.operands]
        # XLA numbers every fifth operand for the reader.
        for number in range(5, len(names), 5):
            names[number] = f"/*index={number}*/{names[number]}"
        return ", ".join(names)


def _sugared_op(instruction: Instruction) -> Op | None:
    start = start_of(instruction)
    return start.op.called_computations[0].root.op if start is not None and sugared(start) else None


def _sugared_attributes(parts: list[str], instruction: Instruction, inner: Op) -> None:
    own = [spec for spec in _plan(type(instruction.op)).attributes if spec.name != "calls"]
    _attributes(parts, own, instruction.op, instruction)
    if instruction.opcode == "async-start":
        _attributes(parts, _plan(type(inner)).attributes, inner, instruction)


@dataclass(frozen=True, slots=True)
class _Entry:
    """How one attribute is printed."""

    name: str
    text: str
    kind: Kind
    default: Any
    always: bool
    show: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How an operation is printed: what stands in the parentheses, what after it, what after the annotations."""

    inline: Callable[[Op], str] | None
    attributes: tuple[_Entry, ...]
    late: tuple[_Entry, ...]


# XLA prints these after the computations, where it prints all others before.
_AFTER_COMPUTATIONS = ("is_composite",)
_AFTER_ANNOTATIONS = (Kind.RESULT_ACCURACY,)


@cache
def _plan(cls: type[Op]) -> _Plan:
    inline = next((spec for spec in cls.attributes if not spec.text), None)
    entries = [
        _Entry(spec.name, spec.text, spec.kind, spec.default, spec.always or spec.required, CODECS[spec.kind].print)
        for spec in cls.attributes
        if spec.text
    ]
    early = [e for e in entries if e.kind not in _AFTER_ANNOTATIONS]
    early.sort(key=lambda e: (e.text in _AFTER_COMPUTATIONS, e.kind in CALLING))
    late = tuple(e for e in entries if e.kind in _AFTER_ANNOTATIONS)
    if inline is None:
        return _Plan(None, tuple(early), late)
    show: Callable[[Any], str] = print_literal if inline.kind is Kind.LITERAL else CODECS[inline.kind].print
    name = inline.name
    return _Plan(lambda op: show(getattr(op, name)), tuple(early), late)


def _attributes(parts: list[str], entries: tuple[_Entry, ...] | list[_Entry], op: Op, instruction: Instruction) -> None:
    for entry in entries:
        value = getattr(op, entry.name)
        if value is None or (not entry.always and value == entry.default):
            continue
        if entry.kind is Kind.PRECISION_LIST and all(p is Precision.DEFAULT for p in value):
            continue
        if entry.kind is Kind.COMPUTATION_LIST and op.opcode == "conditional" and _on_predicate(instruction):
            parts.append(f"true_computation=%{value[0].name}, false_computation=%{value[1].name}")
        else:
            parts.append(f"{entry.text}={entry.show(value)}")


def _on_predicate(instruction: Instruction) -> bool:
    return bool(instruction.operands) and instruction.operands[0].shape.element_type is PrimitiveType.PRED


def _annotations(
    parts: list[str], instruction: Instruction, annotations: Annotations, late: tuple[_Entry, ...]
) -> None:
    if annotations.sharding is not None:
        parts.append(f"sharding={print_sharding(annotations.sharding)}")
    if annotations.frontend_attributes:
        parts.append(f"frontend_attributes={print_frontend_attributes(annotations.frontend_attributes)}")
    if instruction.control_predecessors:
        names = ", ".join(f"%{p.name}" for p in instruction.control_predecessors)
        parts.append(f"control-predecessors={{{names}}}")
    if annotations.statistics:
        parts.append(f"statistics={print_statistics(annotations.statistics_visualized, annotations.statistics)}")
    if late:
        _attributes(parts, late, instruction.op, instruction)
    if annotations.origin is not None:
        parts.append(f"origin={print_origin(annotations.origin)}")
    if annotations.metadata is not None:
        text = print_metadata(annotations.metadata)
        if text:
            parts.append(f"metadata={{{text}}}")
    if annotations.backend_config:
        parts.append(f"backend_config={quote_or_json(annotations.backend_config)}")
