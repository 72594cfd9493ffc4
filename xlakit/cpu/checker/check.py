"""The proof of a lowered module's memory plan."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.checker.faults import MemoryPlanError
from xlakit.cpu.checker.in_place import Refusals
from xlakit.cpu.checker.memory import ALIGNMENT, Doer, Lines, Slice
from xlakit.cpu.checker.values import ConstantValues, arrays, bytes_of, new_tree
from xlakit.cpu.checker.walk import Walk
from xlakit.cpu.collectives.groups import groups_of
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.entry.buffers import Buffer
from xlakit.cpu.entry.lowering import Lowered
from xlakit.errors import ExecutionError, UnsupportedError, XlakitError
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.collective_moves import Permuting, RaggedAllToAll
from xlakit.ops.shared.collective import Collective

_WORD = 8


def check_memory_plan(
    module: HloModule, lowered: Lowered, arena_bytes: int, grid: Grid, aliases: Sequence[tuple[int, int]]
) -> None:
    """Prove that every step reads the values that HLO says, and that results are there in the end.

    aliases: the pairs of a result's and an argument's number for which a caller may give one address. The plan must be
    right with and without that. The conflicts of each pair are its own, so all of them together show what any do.
    Raises MemoryPlanError where the plan is wrong.
    """
    refusals = Refusals()
    try:
        for united in ((), tuple(aliases)) if aliases else ((),):
            _Check(module, lowered, arena_bytes, grid, united, refusals).run()
    except XlakitError as error:
        instruction = error.instruction if isinstance(error, MemoryPlanError) else None
        if instruction is not None:
            shapes = [o.shape for o in instruction.operands]
            raise error.at(shapes=shapes, location=module.location_of(instruction)) from None
        raise


class _Check:
    """One proof, under one assumption about which arguments and results are the same memory."""

    def __init__(
        self,
        module: HloModule,
        lowered: Lowered,
        arena_bytes: int,
        grid: Grid,
        aliases: Sequence[tuple[int, int]],
        refusals: Refusals,
    ) -> None:
        self._module = module
        self._lowered = lowered
        self._grid = grid
        self._lines = Lines(arena_bytes)
        self._variables: dict[Buffer, int] = {}
        self._written = {argument for _, argument in aliases}
        self._parameters = [new_tree(p.shape, p) for p in module.entry.parameters]
        self._arguments = list(arrays(tuple(self._parameters)))
        self._constants = ConstantValues()
        self._walk = Walk(self._slice_of, self._constants, refusals.refusal, self._is_identity)
        for number, value in enumerate(self._arguments):
            self._lines.add("argument", number, value.bytes)
        for number, array in enumerate(lowered.constants):
            self._lines.add("constant", number, array.nbytes)
        united = dict(aliases)
        results = [shape for _, shape in module.entry.root.shape.leaves() if shape.is_array]
        for number, shape in enumerate(results):
            self._lines.add("result", number, bytes_of(shape))
            if number in united:
                self._lines.unite("result", number, ("argument", united[number]))

    def run(self) -> None:
        """Walk through all steps, and look where the results are."""
        caller = Doer("the caller", None)
        contents = self._walk.memory.contents
        for number, value in enumerate(self._arguments):
            own = self._object("argument", number, value.bytes)
            contents.write(own.begin, own.end, frozenset((value,)))
        for number, array in enumerate(self._lowered.constants):
            own = self._object("constant", number, array.nbytes)
            contents.write(own.begin, own.end, frozenset((self._constants.of(array),)))
        root = self._walk.run(self._module.entry, self._parameters, self._lowered.steps)
        for number, value in enumerate(arrays(root)):
            self._walk.memory.read(self._object("result", number, value.bytes), value, caller)

    def _object(self, space: str, number: int, size: int) -> Slice:
        """The slice of an argument, a result or a constant."""
        found = self._lines.range_of(space, number)
        if found is None or size > found[1]:
            there = "there is no such one" if found is None else f"it has {found[1]}"
            raise MemoryPlanError(f"needs {size} bytes of {space} {number}: {there}", step="a step", instruction=None)
        is_read_only = space == "constant" or (space == "argument" and number not in self._written)
        return Slice(found[0], found[0] + size, f"{space} {number}", is_read_only)

    def _slice_of(self, buffer: Buffer, size: int) -> Slice:
        own = buffer.resolved()
        if own.place != "temporary":
            return self._object(own.place, own.number, size)
        if own.offset < 0:
            number = self._variables.get(own)
            if number is None:
                number = self._variables[own] = len(self._variables)
                # The entry has words for it.
                self._lines.add("variable", number, max(_WORD, -(-own.bytes // _WORD) * _WORD))
            return self._object("variable", number, size)
        end, text = own.offset + size, f"bytes {own.offset} to {own.offset + size} of the arena"
        if end > self._lines.arena_bytes:
            rule = f"is given {text}, which has {self._lines.arena_bytes}"
            raise MemoryPlanError(rule, step="a step", instruction=None)
        if own.offset % ALIGNMENT:
            raise MemoryPlanError(f"is given {text}, which are not aligned", step="a step", instruction=None)
        return Slice(own.offset, end, text)

    def _is_identity(self, instruction: Instruction) -> bool:
        """Whether each device meets itself alone, and takes what it gives."""
        op = instruction.op
        if not isinstance(op, (Collective, Permuting)) or isinstance(op, RaggedAllToAll):
            return False
        try:
            groups = groups_of(op, self._grid)
        except (DeclinedError, ExecutionError, UnsupportedError):
            return False
        return all(len(group.members) == 1 and group.sources == (0,) for group in groups)
