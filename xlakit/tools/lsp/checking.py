"""Checks of a text by parser, verifier, linter and cost analysis: faults and warnings with their spans, and costs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from xlakit.errors import ParseError, XlakitError
from xlakit.formats.detect import refuse_other_texts
from xlakit.formats.hlo_text.faults import check_text
from xlakit.formats.several import parts_of_text
from xlakit.ir.instruction import HloModule
from xlakit.passes.analysis.cost import Cost, CostCounter
from xlakit.tools.lint.linter import lint
from xlakit.tools.lsp.lines import Span

# The hint of words that are not known.
_MEANT = re.compile(r"did you mean (\S+(?: or \S+)*)\?")
_MARKED = re.compile(r"%?[\w.\-]+|\"[^\"\r\n]*\"?|[^\s]")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault or a warning: its span and its message.

    word: the word at the span. lint: the name of the lint; empty for an error. instead: suggestions for an unknown
    word; for a warning, the instruction that can replace the reported one.
    """

    span: Span
    message: str
    word: str = ""
    lint: str = ""
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of an instruction of a program that parses: its shape as text, and what it costs."""

    shape: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class Lints:
    """The lints that run beside those that run by default, and those that do not, as :func:`xlakit.lint` takes them."""

    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The faults of a text, in its order. If there are none: the warnings of lints, and estimates, by computation and
    instruction.
    """

    faults: list[Fault] = field(default_factory=list)
    estimates: dict[tuple[str, str], Estimate] | None = None


def check(text: str, name: str, lints: Lints = Lints()) -> Checked:
    """Parse, verify and lint a text; takes time in proportion to it. An empty text has no fault. Of several modules
    there are no estimates, since they may have names in common.
    """
    if not text.strip():
        return Checked()
    parts = parts_of_text(text) if text.count("HloModule") > 1 else []
    if parts:
        return Checked([fault for part in parts for fault in _check(part.text, name, lints).faults])
    return _check(text, name, lints)


def _check(text: str, name: str, lints: Lints) -> Checked:
    try:
        refuse_other_texts(text)
        checked = check_text(text, name)
    except XlakitError as error:
        return Checked([fault_of(error, text)])
    if checked.module is None:
        return Checked([fault_of(error, text) for error in checked.faults])
    warnings: list[Fault] = []
    for warning in lint(checked.module, enable=lints.enable, disable=lints.disable):
        offset = checked.offsets.get(warning.instruction)
        if offset is not None:
            span = _word_span(text, offset)
            message = f"{warning.message}\nhint: {warning.hint}"
            instead = () if warning.instead is None else (warning.instead.name,)
            warnings.append(Fault(span, message, text[span.start : span.end], warning.name, instead))
    return Checked(warnings, _estimates(checked.module))


def fault_of(error: XlakitError, text: str) -> Fault:
    """An error as a fault: its rule, operands and hint, at the word where it is."""
    offset = error.offset if isinstance(error, ParseError) else len(text) - len(text.lstrip())
    span = _word_span(text, min(offset, len(text)))
    # A position in the text is already said by the span.
    notes = [f"operands: {', '.join(error.shapes)}"] if error.shapes else []
    if isinstance(error, ParseError):
        notes += [line.strip() for line in str(error).splitlines()[3:] if line.strip()]
    elif error.hint:
        notes.append(f"hint: {error.hint}")
    meant = _MEANT.fullmatch(error.hint or "")
    instead = tuple(meant[1].split(" or ")) if meant else ()
    return Fault(span, "\n".join([error.headline, *notes]), text[span.start : span.end], instead=instead)


def _word_span(text: str, offset: int) -> Span:
    """The word at an offset."""
    match = _MARKED.match(text, offset)
    if match is None and offset == len(text):
        # At the end of the text the last word is marked, as an empty span cannot be shown.
        offset = len(text.rstrip())
        match = _MARKED.match(text, max(0, offset - 1))
    return Span(*match.span()) if match else Span(offset, offset)


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
    digits = f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    return f"{digits} {prefix}{unit}"


def cost_text(cost: Cost) -> str:
    """Operations and bytes: ``2.1 Mflop, 12 kB``; empty where there are no operations."""
    parts: list[str] = []
    if cost.flops:
        parts.append(amount(cost.flops, "flop"))
    if cost.transcendentals:
        parts.append(f"{amount(cost.transcendentals, '')}".rstrip() + " transcendentals")
    return ", ".join([*parts, amount(cost.bytes_accessed, "B")]) if parts else ""
