"""The error that the checker of memory plans raises."""

from __future__ import annotations

from xlakit.errors import InternalError
from xlakit.ir.instruction import Instruction


class MemoryPlanError(InternalError):
    """A memory plan is wrong.

    step: the step that reads or writes; instruction: the HLO instruction that it implements; expected: the value that
    should be in the slice; held: the values that it holds; writer: the last step that has written to it.
    """

    def __init__(
        self,
        rule: str,
        *,
        step: str,
        instruction: Instruction | None,
        expected: str = "",
        held: str = "",
        writer: str = "",
    ) -> None:
        lines = [f"the memory plan is wrong: {step} {rule}"]
        if expected:
            lines.append(f"its slice holds {held or 'nothing whole'}")
            lines.append(f"{writer} has written there last" if writer else "no step has written there")
        super().__init__("; ".join(lines))
        self.step = step
        self.instruction = instruction
        self.expected = expected
        self.held = held
        self.writer = writer
