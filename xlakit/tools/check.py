"""``xlakit check``: every fault of a program, with its line and column if the file is text."""

from __future__ import annotations

from xlakit.errors import XlakitError
from xlakit.formats.detect import hlo_text_of, load
from xlakit.formats.hlo_text.faults import check_text
from xlakit.ir.instruction import HloModule
from xlakit.verifier import findings


def check(data: bytes, name: str) -> tuple[HloModule | None, list[XlakitError]]:
    """The module in a file's content, or None if it has faults, and the faults. Raises FormatError, ParseError."""
    text = hlo_text_of(data, name)
    if text is not None:
        checked = check_text(text, name)
        return checked.module, checked.faults
    module = load(data, name)
    faults = [finding.error for finding in findings(module)]
    return (None if faults else module), faults
