"""``xlakit machine``: the description of this machine."""

from __future__ import annotations

from xlakit.cpu import machine
from xlakit.cpu.executable import compile_module
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import HloModule


def described(*, measure: bool) -> str:
    """The description in force, as JSON; with ``measure``, its rates are measured anew and kept."""
    if not measure:
        return machine.current().as_text()
    kinds = (PrimitiveType.F32, PrimitiveType.F64)
    found = machine.measure(kinds, lambda text: compile_module(HloModule.from_text(text), cache=False), again=True)
    return found.as_text()
