"""``origin_recovery_table={ {"old"} : {"new"}, "HloModule ..." }``: how to recover values that passes have removed.

An entry maps an original value that no longer exists to one that does. The two are equal, or the entry has a module
that computes the old value from the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xlakit.errors import FormatError, ParseError
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.formats.hlo_text.metadata import parse_original_array, print_original_array
from xlakit.ir.attributes import OriginalArray

RECOVERY_TABLE = "origin_recovery_table"


class Recovery(NamedTuple):
    """One entry; ``module`` is HLO text, or empty."""

    old: OriginalArray
    new: OriginalArray
    module: str = ""


def parse_recovery_table(text: str) -> tuple[Recovery, ...]:
    """The entries of the table in braces. Raises FormatError."""
    lexer = Lexer(text, f"<{RECOVERY_TABLE}>")
    entries: list[Recovery] = []
    try:
        lexer.expect("{", "before the recovery table")
        while not lexer.accept("}"):
            old = _array(lexer)
            lexer.expect(":", "after the value that is replaced")
            new = _array(lexer)
            module = lexer.expect_string("a module in quotes") if lexer.accept(",") else ""
            entries.append(Recovery(old, new, module))
        lexer.expect_end()
    except ParseError as error:
        raise FormatError(
            f"{RECOVERY_TABLE}: {error.rule}", location=error.location, hint='write {"old"} : {"new"}, "HloModule ..."'
        ) from None
    return tuple(entries)


def _array(lexer: Lexer) -> OriginalArray:
    start = lexer.start
    array = parse_original_array(lexer)
    if array is None:
        raise lexer.error("expected a value's name", start)
    return array


def print_recovery_table(entries: Sequence[Recovery]) -> str:
    """The table in braces; modules keep their lines, as in XLA's texts."""
    lines = ["{"]
    for old, new, module in entries:
        line = f"  {print_original_array(old)} : {print_original_array(new)}"
        if module:
            escaped = module.strip("\n").replace("\\", "\\\\").replace('"', '\\"')
            line += f',\n  "\n{escaped}\n  "'
        lines.append(line)
    return "\n".join([*lines, "}"])
