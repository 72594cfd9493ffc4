"""``xlakit check``: all faults of a program, or the linter's warnings, with line and column for HLO text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from xlakit.errors import ParseError, XlakitError
from xlakit.formats.detect import hlo_text_of, load
from xlakit.formats.hlo_text.faults import check_text
from xlakit.ir.instruction import HloModule
from xlakit.tools.lint.linter import LintWarning, lint
from xlakit.verifier import findings


@dataclass
class Report:
    """The result of a check of a file: its module unless it has faults, and the faults or the warnings."""

    module: HloModule | None
    faults: list[XlakitError] = field(default_factory=list)
    # Each with its place in the text; without one where the file is no HLO text.
    warnings: list[tuple[LintWarning, ParseError | None]] = field(default_factory=list)

    def messages(self) -> list[str]:
        """The faults, or the warnings, as text."""
        if self.faults:
            return [str(fault) for fault in self.faults]
        return [_as_text(warning, place) for warning, place in self.warnings]

    def to_json(self) -> dict[str, Any]:
        """The same for programs: see docs/workbench.md."""
        module = self.module
        return {
            "module": None if module is None else module.name,
            "computations": None if module is None else len(module.computations),
            "instructions": None if module is None else module.instruction_count(),
            "faults": [_fault_as_json(fault) for fault in self.faults],
            "warnings": [_warning_as_json(warning, place) for warning, place in self.warnings],
        }


def check(data: bytes, name: str, *, enable: Collection[str] = (), disable: Collection[str] = ()) -> Report:
    """Read, verify and lint a file's content; for ``enable`` and ``disable`` see :func:`xlakit.lint`.

    name: the file's name in messages. Raises FormatError and ParseError where it is no program that can be read, and
    ArgumentError for unknown lints.
    """
    text = hlo_text_of(data, name)
    if text is None:
        module = load(data, name)
        faults = [finding.error for finding in findings(module)]
        if faults:
            return Report(None, faults)
        return Report(module, [], [(warning, None) for warning in lint(module, enable=enable, disable=disable)])
    checked = check_text(text, name)
    if checked.module is None:
        return Report(None, checked.faults)
    warnings: list[tuple[LintWarning, ParseError | None]] = []
    for warning in lint(checked.module, enable=enable, disable=disable):
        offset = checked.offsets.get(warning.instruction)
        rule = f"warning: {warning.message} [{warning.name}]"
        place = None if offset is None else ParseError(rule, source=text, offset=offset, name=name, hint=warning.hint)
        warnings.append((warning, place))
    return Report(checked.module, [], warnings)


def _as_text(warning: LintWarning, place: ParseError | None) -> str:
    if place is None:
        return f"warning: {warning}"
    # The first line has the place in the HLO text; this is the place in the source from which the program was made.
    return f"{place}\n  at: {warning.location}" if warning.location is not None else str(place)


def _fault_as_json(fault: XlakitError) -> dict[str, Any]:
    place = fault if isinstance(fault, ParseError) else None
    return {
        "rule": fault.rule,
        "operation": fault.operation,
        "hint": fault.hint,
        "line": place and place.line,
        "column": place and place.column,
        "source": None if fault.location is None or place is not None else str(fault.location),
    }


def _warning_as_json(warning: LintWarning, place: ParseError | None) -> dict[str, Any]:
    return {
        "name": warning.name,
        "message": warning.message,
        "hint": warning.hint,
        "computation": warning.computation.name,
        "instruction": warning.instruction.name,
        "opcode": warning.instruction.opcode,
        "line": place and place.line,
        "column": place and place.column,
        "source": None if warning.location is None else str(warning.location),
    }
