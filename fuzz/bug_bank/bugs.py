"""The bank: faults of the past, as edits that put them back."""

from __future__ import annotations

from fuzz.bug_bank import code, execution, memory, passes

BUGS = (*memory.BUGS, *passes.BUGS, *code.BUGS, *execution.BUGS)
