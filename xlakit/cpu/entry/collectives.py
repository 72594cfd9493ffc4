"""Collectives as steps: at once, or posted by a first half and awaited by the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xlakit.cpu.collectives.meetings import Meeting, Meetings, result_of
from xlakit.cpu.entry.buffers import Buffer, Tree, leaves, new_tree
from xlakit.cpu.entry.halves import SECOND_HALVES, collective_of
from xlakit.cpu.entry.steps import CopyStep, MeetStep, NumberStep, Step
from xlakit.cpu.entry.uses import Uses
from xlakit.data.shape import Shape
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import Instruction
from xlakit.ops.asynchronous import AsyncStart
from xlakit.ops.collectives import AllReduce, PartitionId, ReplicaId
from xlakit.ops.data import Parameter

# Put results where operands are that nobody reads any more.
Share = Callable[[Sequence[Buffer], Sequence[Buffer]], None]


@dataclass(frozen=True, slots=True)
class _Posted:
    """A first half whose second one is to come."""

    step: MeetStep
    result: Tree


class Collectives:
    """Lowers the collectives of one module."""

    def __init__(self, meetings: Meetings | None, grid: Grid) -> None:
        self._meetings = meetings
        self._grid = grid
        # What Python does, by the numbers of host calls; of all instructions, not of collectives alone.
        self.host_instructions: list[Instruction] = []
        self._posted: dict[Instruction, _Posted] = {}
        # Asynchronous values whose results are, or will be, where their shapes say.
        self._async: set[Instruction] = set()

    def lower(
        self, instruction: Instruction, operands: Sequence[Tree], uses: Uses, steps: list[Step], share: Share
    ) -> tuple[Tree] | None:
        """The value of an instruction, in a tuple; None where it is not for this class."""
        op = instruction.op
        if isinstance(op, (ReplicaId, PartitionId)):
            return (self._number(instruction, steps),)
        if self._meetings is None:
            return None
        if instruction.opcode in SECOND_HALVES:
            return self._second_half(instruction, operands, steps)
        if instruction.opcode == "async-update" and len(operands) == 1 and instruction.operands[0] in self._async:
            self._async.add(instruction)
            return (operands[0],)
        if isinstance(op, AsyncStart):
            return self._async_start(instruction, operands, uses, steps)
        meeting = self._meetings.of(instruction)
        if meeting is None:
            return None
        result = self._met(instruction, instruction, meeting, operands, uses, steps, share)
        return (self._started(instruction, operands, result),)

    def _number(self, instruction: Instruction, steps: list[Step]) -> Buffer:
        buffer = Buffer(4, name=instruction.name)
        if isinstance(instruction.op, ReplicaId):
            step = NumberStep(instruction, buffer, self._grid.num_partitions, self._grid.num_replicas)
        else:
            step = NumberStep(instruction, buffer, 1, self._grid.num_partitions)
        steps.append(step)
        return buffer

    def _met(
        self,
        instruction: Instruction,
        collective: Instruction,
        meeting: Meeting,
        operands: Sequence[Tree],
        uses: Uses,
        steps: list[Step],
        share: Share | None,
    ) -> Tree:
        """Meet, or post where a second half follows; gives where the results are, or will be."""
        given = tuple(leaf for tree in operands for leaf in leaves(tree))
        done = uses.second_half(instruction)
        result = new_tree(result_of(collective), instruction.name)
        made = tuple(leaves(result))
        if meeting.is_identity:
            if share is not None:
                share(given, made)
            steps.extend(CopyStep(own, new, is_value=True) for own, new in zip(given, made, strict=True))
            return result
        if done is not None and not meeting.is_shared:
            visit = (Buffer(8, name=instruction.name + ".visit"),)
            step = MeetStep(instruction, meeting, given, made, "post", visit, self._host_number(collective, meeting))
            steps.append(step)
            self._posted[done] = _Posted(step, result)
            return result
        if share is not None and isinstance(collective.op, AllReduce):
            share(given, made)
        steps.append(MeetStep(instruction, meeting, given, made, host=self._host_number(collective, meeting)))
        return result

    def _host_number(self, collective: Instruction, meeting: Meeting) -> int:
        """The number of the host call for a collective that may fail, -1 for others."""
        if not meeting.may_fail:
            return -1
        self.host_instructions.append(collective)
        return len(self.host_instructions) - 1

    @staticmethod
    def _started(instruction: Instruction, operands: Sequence[Tree], result: Tree) -> Tree:
        """What a collective gives, a first half some things beside the result."""
        if instruction.opcode not in ("all-gather-start", "collective-permute-start"):
            return result
        sent = operands[0] if len(operands) == 1 else tuple(operands)
        return (sent, result, *_contexts(instruction.shape.tuple_shapes[2:], instruction.name))

    def _async_start(
        self, instruction: Instruction, operands: Sequence[Tree], uses: Uses, steps: list[Step]
    ) -> tuple[Tree] | None:
        """An async-start of a computation that is one collective, all its arguments being there."""
        collective = collective_of(instruction)
        meeting = self._meetings.of(collective) if self._meetings is not None else None
        parts = instruction.shape.tuple_shapes
        whole = parts[1].compatible(collective.shape)
        if meeting is None or not whole or uses.second_half(instruction) is None:
            return None
        if not all(isinstance(o.op, Parameter) for o in collective.operands):
            return None
        numbers = [o.op_as(Parameter).number for o in collective.operands]
        if max(numbers, default=-1) >= len(operands) or result_of(collective) is not collective.shape:
            return None
        given = [operands[number] for number in numbers]
        result = self._met(instruction, collective, meeting, given, uses, steps, None)
        self._async.add(instruction)
        return ((tuple(operands), result, *_contexts(parts[2:], instruction.name)),)

    def _second_half(self, instruction: Instruction, operands: Sequence[Tree], steps: list[Step]) -> tuple[Tree] | None:
        posted = self._posted.get(instruction)
        if posted is not None:
            step = posted.step
            steps.append(
                MeetStep(instruction, step.meeting, step.operands, step.results, "await", step.visit, step.host)
            )
            return (posted.result,)
        if instruction.opcode == "all-reduce-done":
            return (operands[0],)
        if instruction.opcode == "async-done" and instruction.operands[0] not in self._async:
            return None
        return (operands[0][1],)  # pyright: ignore[reportOptionalSubscript,reportIndexIssue]


def _contexts(shapes: Sequence[Shape], name: str) -> tuple[Tree, ...]:
    """What else asynchronous values have, which nobody reads."""
    return tuple(new_tree(shape, name + ".context") for shape in shapes)
