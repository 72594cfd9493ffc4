"""Program: what all executions of a program share."""

from __future__ import annotations

from typing import Any

from xlakit.errors import ExecutionError
from xlakit.execution.calls.custom_calls import CustomCalls
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.communication.sites import site_of
from xlakit.ops.communication.transfer import Recv, Send

# A channel, and whether it is the end that sends.
End = tuple[int | None, bool]


class Program:
    """What all executions of one program share."""

    def __init__(self, module: HloModule, grid: Grid, custom_calls: CustomCalls) -> None:
        self.module = module
        self.grid = grid
        self.custom_calls = custom_calls
        self.channel_ends = _channel_ends(module)
        # The interpreter's plan of each computation that has run.
        self.plans: dict[Computation, Any] = {}
        # The interpreter's evaluators of instructions that run outside of a plan.
        self.evaluators: dict[Instruction, Any] = {}
        self._sites: dict[Instruction, str] = {}

    def site_of(self, collective: Instruction) -> str:
        """The site of a collective; see :mod:`xlakit.ops.communication.sites`."""
        found = self._sites.get(collective)
        if found is None:
            found = self._sites[collective] = site_of(collective)
        return found

    def name_of(self, device: int) -> str:
        """The name of a device in errors."""
        partitions = self.grid.num_partitions
        replica, partition = divmod(device, partitions)
        return f"replica {replica}" + (f", partition {partition}" if partitions > 1 else "")


def _channel_ends(module: HloModule) -> frozenset[End]:
    """The channel ends by which a program communicates with other programs."""
    return frozenset(
        (instruction.op.channel_id, isinstance(instruction.op, Send))
        for instruction in module.instructions
        if isinstance(instruction.op, (Send, Recv)) and not instruction.op.is_host_transfer
    )


class Stopped(ExecutionError):
    """This device stops because another one failed; the caller of the program raises the error of that one."""
