"""Uses: until when the values of a computation are read, seen through tuples and what only renames a value."""

from __future__ import annotations

from xlakit.cpu.entry.halves import halves_of
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import GetTupleElement

# An array of an instruction: the instruction, and where in its tuple.
Place = tuple[Instruction, tuple[int, ...]]

_RENAMING = frozenset({"reshape", "opt-barrier", "add-dependency"})


class Uses:
    """The order of a computation's instructions, and for each array the last one that reads it."""

    def __init__(self, computation: Computation) -> None:
        self._order = {instruction: i for i, instruction in enumerate(computation.instructions)}
        self._live = _live(computation)
        self._last: dict[Place, int] = {}
        self._first_halves = halves_of(computation)
        self._second_halves = {start: done for done, start in self._first_halves.items()}
        end = len(self._order)
        for instruction in computation.instructions:
            if instruction in self._live and not renames(instruction):
                for operand in instruction.operands:
                    self._note(operand, self._order[instruction])
                # Until the second half, others may read what the first one was given.
                for operand in self._first_halves[instruction].operands if instruction in self._first_halves else ():
                    self._note(operand, self._order[instruction])
        self._note(computation.root, end)

    def _note(self, operand: Instruction, place: int) -> None:
        for path, shape in operand.shape.leaves():
            if shape.is_array:
                origin = self.origin((operand, tuple(path)))
                self._last[origin] = max(self._last.get(origin, -1), place)

    def second_half(self, start: Instruction) -> Instruction | None:
        """The second half of a collective, where only that has to do with the first one."""
        return self._second_halves.get(start)

    def is_live(self, instruction: Instruction) -> bool:
        """Whether the result, or an effect, needs it."""
        return instruction in self._live

    def origin(self, place: Place) -> Place:
        """Where an array is really made."""
        instruction, path = place
        while True:
            if isinstance(instruction.op, GetTupleElement):
                path = (instruction.op.index, *path)
                instruction = instruction.operands[0]
            elif instruction.opcode == "tuple" and path:
                instruction, path = instruction.operands[path[0]], path[1:]
            elif instruction.opcode in _RENAMING:
                instruction = instruction.operands[0]
            else:
                return instruction, path

    def last_use(self, place: Place) -> int:
        """The number of the last instruction that reads an array; -1 if nobody does."""
        return self._last.get(self.origin(place), -1)

    def position(self, instruction: Instruction) -> int:
        """The number of an instruction."""
        return self._order[instruction]

    def ends_at(self, place: Place, instruction: Instruction) -> bool:
        """Whether nobody reads an array after ``instruction``."""
        return self.last_use(place) <= self._order[instruction]


def renames(instruction: Instruction) -> bool:
    """Whether an instruction gives arrays other names, and reads none."""
    return instruction.opcode in _RENAMING or instruction.opcode in ("tuple", "get-tuple-element")


def _live(computation: Computation) -> set[Instruction]:
    live: set[Instruction] = set()
    for instruction in reversed(computation.instructions):
        if instruction is computation.root or instruction in live or instruction.op.has_side_effect:
            live.add(instruction)
            live.update(instruction.operands)
    return live
