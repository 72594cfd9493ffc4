"""``xlakit machine``: the description of this machine."""

from __future__ import annotations

from xlakit.cpu import measuring
from xlakit.cpu.compiler import compile_module
from xlakit.ir.instruction import HloModule


def described(*, measure: bool) -> str:
    """The description in use, as JSON; with ``measure``, it is measured again and stored."""
    if not measure:
        return measuring.described().as_text()
    return measuring.measure(lambda text: compile_module(HloModule.from_text(text), cache=False)).as_text()
