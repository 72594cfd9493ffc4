"""Declarations of bounds checks for emitters and the runtime; :mod:`xlakit.cpu.llvm.bounds_checks` writes the checks.

Emitters mark where an array of the program, or a part of scratch, begins and ends; the pass derives all other bounds.
"""

from __future__ import annotations

from xlakit import options
from xlakit.cpu.llvm.function import Function
from xlakit.cpu.llvm.promises import ADDRESS
from xlakit.cpu.llvm.types import I8, PTR
from xlakit.cpu.llvm.values import Value

# The functions that checked code imports from :mod:`xlakit.cpu.runtime.bounds`.
CHECK, NOTE, LOW, HIGH = (f"xlakit_bounds_{name}" for name in ("check", "note", "low", "high"))
DECLARED = {
    CHECK: f"declare ptr @{CHECK}(ptr, i64, i64, i64, ptr)",
    NOTE: f"declare void @{NOTE}(ptr, ptr, i64, i64)",
    LOW: f"declare i64 @{LOW}(ptr, ptr)",
    HIGH: f"declare i64 @{HIGH}(ptr, ptr)",
}


def within(fn: Function, pointer: Value, size: int) -> Value:
    """Mark ``pointer`` as the start of an array or a part of scratch of ``size`` bytes that accesses may not leave.

    Gives the pointer with which to access the object; without the sanitizer, ``pointer`` itself.
    """
    if not options.current().sanitize:
        return pointer
    address = fn.emit(PTR, f"{ADDRESS} {I8.name}, ptr {pointer.text}, i64 0")
    fn.comment(f"within {address.text} {size}")
    return address
