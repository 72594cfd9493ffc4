"""What the parser, the verifier and the cost analysis say of a text: its faults with their spans, and its costs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from xlakit.errors import ParseError, XlakitError
from xlakit.formats.hlo_text.faults import check_text
from xlakit.ir.instruction import HloModule
from xlakit.passes.analysis.cost import Cost, CostCounter
from xlakit.tools.lsp.lines import Span

_MARKED = re.compile(r"%?[\w.\-]+|\"[^\"\r\n]*\"?|[^\s]")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where it is and what is to be read there."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of an instruction of a program that parses: its shape as text, and what it costs."""

    shape: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class Checked:
    """The faults of a text, in its order; and if there are none the estimates, by computation and instruction."""

    faults: list[Fault] = field(default_factory=list)
    estimates: dict[tuple[str, str], Estimate] | None = None


def check(text: str, name: str) -> Checked:
    """Parse and verify a text; takes time in proportion to it. An empty text has no fault."""
    if not text.strip():
        return Checked()
    try:
        found = check_text(text, name)
    except XlakitError as error:
        return Checked([fault_of(error, text)])
    faults = [fault_of(error, text) for error in found.faults]
    return Checked(faults, None if found.module is None else _estimates(found.module))


def fault_of(error: XlakitError, text: str) -> Fault:
    """An error as a fault: its rule, operands and hint, at the word where it is."""
    offset = error.offset if isinstance(error, ParseError) else 0
    offset = min(offset, len(text))
    match = _MARKED.match(text, offset)
    if match is None and offset == len(text):
        # At the end of the text the last word is marked, as nothing cannot be.
        offset = len(text.rstrip())
        match = _MARKED.match(text, max(0, offset - 1))
    span = Span(*match.span()) if match else Span(offset, offset)
    # A position in the text is already said by the span.
    notes = [f"operands: {', '.join(error.shapes)}"] if error.shapes else []
    if isinstance(error, ParseError):
        notes += [line.strip() for line in str(error).splitlines()[3:] if line.strip()]
    elif error.hint:
        notes.append(f"hint: {error.hint}")
    head = f"{error.operation}: {error.rule}" if error.operation else error.rule
    return Fault(span, "\n".join([head, *notes]))


def _estimates(module: HloModule) -> dict[tuple[str, str], Estimate]:
    counter = CostCounter()
    return {
        (computation.name, instruction.name): Estimate(
            instruction.shape.to_string(with_layout=False), counter.instruction(instruction)
        )
        for computation in module.computations
        for instruction in computation.instructions
    }


def amount(value: float, unit: str) -> str:
    """A number with a prefix of 1000: ``1.5 Mflop``."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 1000 or prefix == "T":
            break
        value /= 1000
    shown = f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    return f"{shown} {prefix}{unit}"


def cost_text(cost: Cost) -> str:
    """Operations and bytes: ``2.1 Mflop, 12 kB``; empty where there are no operations."""
    parts: list[str] = []
    if cost.flops:
        parts.append(amount(cost.flops, "flop"))
    if cost.transcendentals:
        parts.append(f"{amount(cost.transcendentals, '')}".rstrip() + " transcendentals")
    return ", ".join([*parts, amount(cost.bytes_accessed, "B")]) if parts else ""
