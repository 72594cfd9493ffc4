"""The call stack of an instruction in a running program, with the iteration of each loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xlakit.errors import Location
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import Scan, While


@dataclass(frozen=True, slots=True)
class Frame:
    """A running computation. iteration: how often ``caller`` has called it before, within one run of the caller's own
    computation.
    """

    caller: Instruction
    computation: Computation
    iteration: int

    @property
    def is_loop(self) -> bool:
        """Whether the caller may run the computation several times."""
        return isinstance(self.caller.op, (Scan, While))


@dataclass(slots=True)
class Frames:
    """The computations that run on one device, outermost first."""

    _stack: list[Frame] = field(default_factory=list[Frame])
    # How often each computation has been called by the instruction that now runs at each depth.
    _calls: list[dict[tuple[Instruction, Computation], int]] = field(
        default_factory=lambda: [dict[tuple[Instruction, Computation], int]()]
    )

    def enter(self, caller: Instruction, computation: Computation) -> None:
        """``caller`` begins to run a computation."""
        calls = self._calls[-1]
        iteration = calls.get((caller, computation), 0)
        calls[caller, computation] = iteration + 1
        self._stack.append(Frame(caller, computation, iteration))
        self._calls.append({})

    def leave(self) -> None:
        """The innermost computation is over."""
        self._stack.pop()
        self._calls.pop()

    @property
    def path(self) -> tuple[Frame, ...]:
        """The computations around the instruction that runs, outermost first."""
        return tuple(self._stack)

    @property
    def callers(self) -> tuple[Instruction, ...]:
        """The instructions that call them."""
        return tuple(frame.caller for frame in self._stack)


@dataclass(slots=True)
class ArrayRow:
    """An array that an instruction gives, in all its executions.

    index: of the array in a result that is a tuple; empty for an array. callers: the instructions whose computations it
    runs in, outermost first.
    """

    instruction: Instruction
    index: tuple[int, ...]
    callers: tuple[Instruction, ...]
    location: Location | None
    executions: int

    @property
    def name(self) -> str:
        """``%name``, with the index in a tuple."""
        return f"%{self.instruction.name}" + "".join(f"{{{i}}}" for i in self.index)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "instruction": self.instruction.name,
            "opcode": self.instruction.opcode,
            "index": list(self.index),
            "callers": [caller.name for caller in self.callers],
            "location": None if self.location is None else str(self.location),
            "executions": self.executions,
        }


def describe_path(path: tuple[Frame, ...]) -> str:
    """``iteration 3 of %while.1, in %fusion.2``; nothing for the entry."""
    parts = [
        f"iteration {frame.iteration} of %{frame.caller.name}" if frame.is_loop else f"in %{frame.caller.name}"
        for frame in path
    ]
    return ", ".join(parts)
