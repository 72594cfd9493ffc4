"""The error that the checker of memory plans raises."""

from __future__ import annotations

from xlakit.errors import InternalError
from xlakit.ir.instruction import Instruction


class MemoryPlanError(InternalError):
    """A memory plan is wrong.

    step: what reads or writes; instruction: of HLO, for which it does; expected: the value that should be there; held:
    what the slice holds instead; writer: the step that has written there last.
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
        told = [f"the memory plan is wrong: {step} {rule}"]
        if expected:
            told.append(f"its slice holds {held or 'nothing whole'}")
            told.append(f"{writer} has written there last" if writer else "no step has written there")
        super().__init__("; ".join(told))
        self.step = step
        self.instruction = instruction
        self.expected = expected
        self.held = held
        self.writer = writer
