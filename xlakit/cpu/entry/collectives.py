"""Lowers collectives to steps: one step, or one for the start and one for the done of an async pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xlakit.cpu.collectives.rendezvous import Rendezvous, RendezvousTable, result_of
from xlakit.dataclass import dataclass
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Done
from xlakit.memory.steps import CollectiveStep, CopyStep, HostStep, NumberStep, Step
from xlakit.memory.values import HloValue, Tree, ValueKind, leaves, new_values
from xlakit.ops.communication.async_pairs import STARTS, TUPLE_STARTS, async_pairs
from xlakit.ops.communication.asynchronous import AsyncStart, AsyncUpdate
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.communication.collective_pairs import AllReduceStart
from xlakit.ops.communication.collectives import AllReduce, DeviceNumber, ReplicaId
from xlakit.ops.data import Parameter


def pairs_between_processes(computation: Computation) -> dict[Instruction, Instruction]:
    """The done of each start that is a single collective; Python keeps the start's result until the done."""
    pairs = async_pairs(computation)
    return {start: done for start, done in pairs.items() if done.operands[0] is start and _is_one_collective(start)}


def all_pairs_between_processes(module: HloModule) -> dict[Instruction, Instruction]:
    """The pairs of :func:`pairs_between_processes` in all computations of a module."""
    pairs: dict[Instruction, Instruction] = {}
    for computation in module.computations:
        pairs.update(pairs_between_processes(computation))
    return pairs


def _is_one_collective(start: Instruction) -> bool:
    if not isinstance(start.op, AsyncStart):
        return isinstance(start.op, (Collective, Permuting))
    called = start.op.calls
    others = [i for i in called.instructions if i is not called.root]
    is_one = all(isinstance(i.op, Parameter) for i in others) and len(others) == len(start.operands)
    return is_one and isinstance(called.root.op, (Collective, Permuting))


@dataclass(frozen=True, slots=True)
class _Started:
    """A start that has been lowered, and whose done has not."""

    step: CollectiveStep
    result: Tree


class Collectives:
    """Lowers the collectives of one module."""

    def __init__(self, rendezvous: RendezvousTable | None, grid: Grid) -> None:
        self._rendezvous = rendezvous
        self._grid = grid
        # The instruction of each host call, by its number: of the whole program, not of collectives alone.
        self.host_instructions: list[Instruction] = []
        # The done of each start, for the computations that have been entered.
        self._done: dict[Instruction, Instruction] = {}
        # Between processes: the part of its async pair, "start" or "done", that an instruction is.
        self._parts: dict[Instruction, str] = {}
        self._started_pairs: dict[Instruction, _Started] = {}
        # Asynchronous values whose results are lowered as the second element of their tuples.
        self._async: set[Instruction] = set()

    def enter(self, computation: Computation) -> None:
        """Register the async pairs of a computation before it is lowered."""
        if self._rendezvous is not None:
            self._done.update(async_pairs(computation))
            return
        for start, done in pairs_between_processes(computation).items():
            self._parts.update({start: "start", done: "done"})

    def lower(self, instruction: Instruction, operands: Sequence[Tree], steps: list[Step]) -> tuple[Tree] | None:
        """The value of an instruction, in a tuple of one; None if this class does not lower it."""
        op = instruction.op
        if isinstance(op, DeviceNumber):
            return (self._number(instruction, steps),)
        if self._rendezvous is None:
            return self._between_processes(instruction, operands, steps)
        if isinstance(op, Done):
            return self._async_done(instruction, operands, steps)
        if isinstance(op, AsyncUpdate) and len(operands) == 1 and instruction.operands[0] in self._async:
            self._async.add(instruction)
            return (operands[0],)
        if isinstance(op, AsyncStart):
            return self._async_start(instruction, operands, steps)
        rendezvous = self._rendezvous.of(instruction)
        if rendezvous is None:
            return None
        result = self._collective(instruction, instruction, rendezvous, operands, steps)
        return (self._started(instruction, operands, result),)

    def _between_processes(
        self, instruction: Instruction, operands: Sequence[Tree], steps: list[Step]
    ) -> tuple[Tree] | None:
        """The value of a start or done that Python executes, in a tuple of one; the value of a start has no memory."""
        part = self._parts.get(instruction)
        if part is None:
            return None
        is_start = part == "start"
        result = new_values(instruction.shape, instruction)
        operand_values = tuple(leaf for tree in operands for leaf in leaves(tree)) if is_start else ()
        result_values = () if is_start else tuple(leaves(result))
        steps.append(HostStep(instruction, len(self.host_instructions), operand_values, result_values, part=part))
        self.host_instructions.append(instruction)
        return (result,)

    def _number(self, instruction: Instruction, steps: list[Step]) -> HloValue:
        value = HloValue(ValueKind.INSTRUCTION, 4, instruction)
        if isinstance(instruction.op, ReplicaId):
            step = NumberStep(instruction, value, self._grid.num_partitions, self._grid.num_replicas)
        else:
            step = NumberStep(instruction, value, 1, self._grid.num_partitions)
        steps.append(step)
        return value

    def _collective(
        self,
        instruction: Instruction,
        collective: Instruction,
        rendezvous: Rendezvous,
        operands: Sequence[Tree],
        steps: list[Step],
    ) -> Tree:
        """Add the step of a collective, or of its start if it has a separate done; gives the values of the results."""
        operand_values = tuple(leaf for tree in operands for leaf in leaves(tree))
        done = self._done.get(instruction)
        result = new_values(result_of(collective), instruction)
        result_values = tuple(leaves(result))
        if rendezvous.is_identity:
            steps.extend(
                CopyStep(source, target, is_value=True)
                for source, target in zip(operand_values, result_values, strict=True)
            )
            return result
        if done is not None and not rendezvous.is_shared:
            arrival = (HloValue(ValueKind.INSTRUCTION, 8, instruction, suffix=".arrival"),)
            step = CollectiveStep(
                instruction,
                rendezvous,
                operand_values,
                result_values,
                "start",
                arrival,
                self._host_number(collective, rendezvous),
            )
            steps.append(step)
            self._started_pairs[done] = _Started(step, result)
            return result
        host = self._host_number(collective, rendezvous)
        # In an all-reduce, a task reads only the elements of the operands whose result it writes.
        aligned = range(len(result_values)) if isinstance(collective.op, AllReduce) else ()
        in_place = frozenset((number, number) for number in aligned)
        steps.append(
            CollectiveStep(instruction, rendezvous, operand_values, result_values, host=host, in_place=in_place)
        )
        return result

    def _host_number(self, collective: Instruction, rendezvous: Rendezvous) -> int:
        """The number of the host call that reports an error of the collective; -1 if it cannot fail."""
        if not rendezvous.may_fail:
            return -1
        self.host_instructions.append(collective)
        return len(self.host_instructions) - 1

    @staticmethod
    def _started(instruction: Instruction, operands: Sequence[Tree], result: Tree) -> Tree:
        """The value of a collective: its result, or for a start the tuple of operands, result and contexts."""
        if not isinstance(instruction.op, TUPLE_STARTS):
            return result
        sent = operands[0] if len(operands) == 1 else tuple(operands)
        return (sent, result, *_contexts(instruction))

    def _async_start(self, instruction: Instruction, operands: Sequence[Tree], steps: list[Step]) -> tuple[Tree] | None:
        """Lower an async-start whose computation is one collective, with parameters as its only operands."""
        collective = instruction.op_as(AsyncStart).calls.root
        rendezvous = self._rendezvous.of(collective) if self._rendezvous is not None else None
        parts = instruction.shape.tuple_shapes
        whole = parts[1].compatible(collective.shape)
        if rendezvous is None or not whole or instruction not in self._done:
            return None
        if not all(isinstance(o.op, Parameter) for o in collective.operands):
            return None
        numbers = [o.op_as(Parameter).number for o in collective.operands]
        if max(numbers, default=-1) >= len(operands) or result_of(collective) is not collective.shape:
            return None
        arguments = [operands[number] for number in numbers]
        result = self._collective(instruction, collective, rendezvous, arguments, steps)
        self._async.add(instruction)
        return ((tuple(operands), result, *_contexts(instruction)),)

    def _async_done(self, instruction: Instruction, operands: Sequence[Tree], steps: list[Step]) -> tuple[Tree] | None:
        started = self._started_pairs.get(instruction)
        if started is not None:
            steps.append(replace(started.step, instruction=instruction, part="done"))
            return (started.result,)
        start = STARTS[type(instruction.op)]
        if start is AllReduceStart:
            return (operands[0],)
        if start not in TUPLE_STARTS or (start is AsyncStart and instruction.operands[0] not in self._async):
            return None
        return (operands[0][1],)  # pyright: ignore[reportOptionalSubscript,reportIndexIssue]


def _contexts(instruction: Instruction) -> tuple[Tree, ...]:
    """The values of the contexts of an asynchronous operation, which no step reads."""
    shapes = enumerate(instruction.shape.tuple_shapes)
    return tuple(new_values(shape, instruction, index=(number,)) for number, shape in shapes if number >= 2)
