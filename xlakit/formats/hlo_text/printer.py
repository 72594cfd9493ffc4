"""Prints programs as HLO text, in the way of OpenXLA's printer: constants in full, names with %."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
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
from xlakit.formats.hlo_text.sugar import has_short_form, start_of
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.enums import Precision
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Kind, Op
from xlakit.ops.communication.asynchronous import Async, AsyncStart
from xlakit.ops.control import Conditional
from xlakit.ops.data import ElidedConstant


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """What of a program is printed; by default all of it.

    short: names without ``%``, computations without their shapes, no metadata. It still parses to the same program.
    metadata: where instructions come from: ``metadata``, ``origin``, and the tables of stack frames.
    layouts: the layouts of results, parameters and the entry.
    large_constants: the elements of constants that have more than ten, and of tuples; else ``{...}``, elided.
    """

    short: bool = False
    metadata: bool = True
    layouts: bool = True
    large_constants: bool = True

    @property
    def shows_metadata(self) -> bool:
        """Whether metadata is printed."""
        return self.metadata and not self.short


_EVERYTHING = PrintOptions()
_LARGE = 10
_ELIDED = "{...}"


def print_module(module: HloModule, options: PrintOptions = _EVERYTHING) -> str:
    """The whole module; with all that there is, xlakit and XLA parse it to the same module."""
    module = with_plain_names(module, percent=not options.short)
    printer = _Printer(options)
    frames = print_stack_frames(module.stack_frames) if options.shows_metadata else ""
    parts = [print_header(module, layouts=options.layouts), frames, "\n\n"]
    hidden = hidden_computations(module)
    for computation in module.computations:
        if computation not in hidden:
            parts.append(printer.computation(computation, is_entry=computation is module.entry))
            parts.append("\n\n")
    return "".join(parts)


def print_instruction(instruction: Instruction, options: PrintOptions = _EVERYTHING) -> str:
    """One instruction on a line."""
    return _Printer(options).instruction(instruction)


def print_parts(instruction: Instruction, options: PrintOptions) -> tuple[str, str, list[str]]:
    """The opcode of an instruction, what is in the parentheses after it, and its attributes, one by one."""
    return _Printer(options).parts(instruction)


def print_computation(computation: Computation, options: PrintOptions = _EVERYTHING) -> str:
    """One computation, without those that it calls."""
    return _Printer(options).computation(computation, is_entry=False)


def hidden_computations(module: HloModule) -> set[Computation]:
    """The computations that are not printed: all async-starts that call them are printed in the short form."""
    starts = [i for i in module.instructions if isinstance(i.op, AsyncStart)]
    hidden = {c for start in starts if has_short_form(start) for c in start.op.called_computations}
    return hidden.difference(c for start in starts if not has_short_form(start) for c in start.op.called_computations)


class _Printer:
    """Prints instructions; remembers the texts of shapes."""

    def __init__(self, options: PrintOptions) -> None:
        self._options = options
        self._percent = "" if options.short else "%"
        # Keyed by id(shape): the shapes outlive the printer, and hashing a shape visits all of it.
        self._shapes: dict[int, str] = {}

    def shape(self, shape: Shape) -> str:
        text = self._shapes.get(id(shape))
        if text is None:
            text = self._shapes[id(shape)] = shape.to_string(with_layout=self._options.layouts)
        return text

    def computation(self, computation: Computation, *, is_entry: bool) -> str:
        signature = "" if self._options.short else self._signature(computation)
        lines = [f"{'ENTRY ' if is_entry else ''}{self._percent}{computation.name} {signature}{{"]
        root = computation.root
        for instruction in computation.instructions:
            lines.append(f"  {'ROOT ' if instruction is root else ''}{self.instruction(instruction)}")
        thread = computation.execution_thread
        lines.append("}" if thread == "main" else f"}}, execution_thread={quote(thread)}")
        return "\n".join(lines)

    @staticmethod
    def _signature(computation: Computation) -> str:
        parameters = ", ".join(f"{p.name}: {p.shape.to_string(with_layout=False)}" for p in computation.parameters)
        return f"({parameters}) -> {computation.root.shape.to_string(with_layout=False)} "

    def instruction(self, instruction: Instruction) -> str:
        opcode, inside, attributes = self.parts(instruction)
        result = f"{self._percent}{instruction.name} = {self.shape(instruction.shape)}"
        return ", ".join([f"{result} {opcode}({inside})", *attributes])

    def parts(self, instruction: Instruction) -> tuple[str, str, list[str]]:
        op, opcode = instruction.op, instruction.opcode
        plan = _plan(type(op))
        inner = _sugared_op(instruction) if isinstance(op, Async) else None
        inside = self._operands(instruction) if plan.inline is None else self._inline(plan.inline, op)
        if isinstance(op, ElidedConstant):
            inside = _ELIDED
        if inner is not None:
            opcode = inner.opcode + opcode.removeprefix("async")
        parts: list[str] = []
        annotations = instruction.annotations
        if annotations.parameter_replication:
            marks = ",".join("true" if m else "false" for m in annotations.parameter_replication)
            parts.append(f"parameter_replication={{{marks}}}")
        if inner is not None:
            self._sugared_attributes(parts, instruction, inner)
        else:
            self._attributes(parts, plan.attributes, op, instruction)
        if annotations is not NO_ANNOTATIONS or instruction.control_predecessors or plan.late:
            self._annotations(parts, instruction, annotations, plan.late)
        return opcode, inside, parts

    def _inline(self, show: Callable[[Op], str], op: Op) -> str:
        literal = getattr(op, "literal", None)
        if not self._options.large_constants and isinstance(literal, Literal) and _is_elided(literal):
            return _ELIDED
        return show(op)

    def _operands(self, instruction: Instruction) -> str:
        names = [f"{self._percent}{operand.name}" for operand in instruction.operands]
        # XLA numbers every fifth operand for the reader.
        for number in range(5, len(names), 5):
            names[number] = f"/*index={number}*/{names[number]}"
        return ", ".join(names)

    def _sugared_attributes(self, parts: list[str], instruction: Instruction, inner: Op) -> None:
        own = [spec for spec in _plan(type(instruction.op)).attributes if spec.name != "calls"]
        self._attributes(parts, own, instruction.op, instruction)
        if isinstance(instruction.op, AsyncStart):
            self._attributes(parts, _plan(type(inner)).attributes, inner, instruction)

    def _attributes(
        self, parts: list[str], entries: tuple[_Entry, ...] | list[_Entry], op: Op, instruction: Instruction
    ) -> None:
        for entry in entries:
            value = getattr(op, entry.name)
            if value is None or (not entry.always and value == entry.default):
                continue
            if entry.kind is Kind.PRECISION_LIST and all(p is Precision.DEFAULT for p in value):
                continue
            if isinstance(op, Conditional) and entry.kind is Kind.COMPUTATION_LIST and _has_two_sides(op, instruction):
                on_true, on_false = (self._percent + computation.name for computation in value)
                parts += [f"true_computation={on_true}", f"false_computation={on_false}"]
            else:
                text = entry.show(value)
                if entry.kind in CALLING and self._options.short:
                    text = text.replace("%", "")
                parts.append(f"{entry.text}={text}")

    def _annotations(
        self, parts: list[str], instruction: Instruction, annotations: Annotations, late: tuple[_Entry, ...]
    ) -> None:
        if annotations.sharding is not None:
            parts.append(f"sharding={print_sharding(annotations.sharding)}")
        if annotations.frontend_attributes:
            parts.append(f"frontend_attributes={print_frontend_attributes(annotations.frontend_attributes)}")
        if instruction.control_predecessors:
            names = ", ".join(f"{self._percent}{p.name}" for p in instruction.control_predecessors)
            parts.append(f"control-predecessors={{{names}}}")
        if annotations.statistics:
            parts.append(f"statistics={print_statistics(annotations.statistics_visualized, annotations.statistics)}")
        if late:
            self._attributes(parts, late, instruction.op, instruction)
        if annotations.origin is not None and self._options.shows_metadata:
            parts.append(f"origin={print_origin(annotations.origin)}")
        if annotations.metadata is not None and self._options.shows_metadata:
            text = print_metadata(annotations.metadata)
            if text:
                parts.append(f"metadata={{{text}}}")
        if annotations.backend_config:
            parts.append(f"backend_config={quote_or_json(annotations.backend_config)}")


def _is_elided(literal: Literal) -> bool:
    """Whether a text without large constants leaves its elements out: XLA's leaves out those of every tuple."""
    return literal.shape.is_tuple or (literal.shape.is_array and literal.array.size > _LARGE)


def _sugared_op(instruction: Instruction) -> Op | None:
    start = start_of(instruction)
    return start.op.called_computations[0].root.op if start is not None and has_short_form(start) else None


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


def _has_two_sides(op: Conditional, instruction: Instruction) -> bool:
    on_predicate = bool(instruction.operands) and instruction.operands[0].shape.element_type is PrimitiveType.PRED
    return on_predicate and len(op.branch_computations) == 2
