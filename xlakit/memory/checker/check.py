"""The proof of a lowered module's memory plan."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.errors import XlakitError
from xlakit.memory.assignment import BufferSlice, Space
from xlakit.memory.checker.contents import ConstantValues, arrays, new_tree
from xlakit.memory.checker.faults import MemoryPlanError
from xlakit.memory.checker.memory import ALIGNMENT, Actor, Lines, Slice
from xlakit.memory.checker.walk import IsIdentity, Refusal, Walk
from xlakit.memory.plan import MemoryPlan
from xlakit.memory.values import HloValue

_WORD = 8


def check_memory_plan(plan: MemoryPlan, refusal: Refusal, is_identity: IsIdentity) -> None:
    """Prove that every step reads the values that HLO specifies, and that the results are in their slices at the end.

    The plan must be right whether or not the caller passes one address for a donated argument and its result. Pairs do
    not affect each other, so one proof with all pairs covers any subset of them.
    refusal: why a kernel of the backend may not run in place; is_identity: whether a collective does nothing.
    Raises MemoryPlanError if the plan is wrong.
    """
    try:
        for donations in ((), plan.donations) if plan.donations else ((),):
            _Check(plan, donations, refusal, is_identity).run()
    except XlakitError as error:
        instruction = error.instruction if isinstance(error, MemoryPlanError) else None
        if instruction is not None:
            shapes = [o.shape for o in instruction.operands]
            raise error.at(shapes=shapes, location=plan.module.location_of(instruction)) from None
        raise


class _Check:
    """One proof, under one assumption about which arguments and results share memory."""

    def __init__(
        self, plan: MemoryPlan, donations: Sequence[tuple[int, int]], refusal: Refusal, is_identity: IsIdentity
    ) -> None:
        self._plan = plan
        self._lines = Lines(plan.arena_bytes)
        self._variables: dict[BufferSlice, int] = {}
        self._written = {argument for _, argument in donations}
        entry = plan.module.entry
        self._parameters = [new_tree(p.shape, p) for p in entry.parameters]
        self._arguments = list(arrays(tuple(self._parameters)))
        self._constants = ConstantValues()
        self._walk = Walk(self._slice_of, self._constants, refusal, is_identity)
        for number, value in enumerate(self._arguments):
            self._lines.add("argument", number, value.bytes)
        for number, array in enumerate(plan.program.constants):
            self._lines.add("constant", number, array.nbytes)
        united = dict(donations)
        results = [shape for _, shape in entry.root.shape.leaves() if shape.is_array]
        for number, shape in enumerate(results):
            self._lines.add("result", number, shape.byte_size)
            if number in united:
                self._lines.donate(united[number], number)

    def run(self) -> None:
        """Walk through all steps, and check the slices of the results."""
        caller = Actor("the caller", None)
        contents = self._walk.memory.contents
        for number, value in enumerate(self._arguments):
            slice_ = self._object("argument", number, value.bytes)
            contents.write(slice_.begin, slice_.end, frozenset((value,)))
        for number, array in enumerate(self._plan.program.constants):
            slice_ = self._object("constant", number, array.nbytes)
            contents.write(slice_.begin, slice_.end, frozenset((self._constants.of(array),)))
        root = self._walk.run(self._plan.module.entry, self._parameters, self._plan.steps)
        for number, value in enumerate(arrays(root)):
            self._walk.memory.read(self._object("result", number, value.bytes), value, caller)

    def _object(self, space: str, number: int, size: int) -> Slice:
        """The slice of an argument, a result, a constant or a variable."""
        found = self._lines.range_of(space, number)
        if found is None or size > found[1]:
            there = "there is no such one" if found is None else f"it has {found[1]}"
            raise MemoryPlanError(f"needs {size} bytes of {space} {number}: {there}", step="a step", instruction=None)
        is_read_only = space == "constant" or (space == "argument" and number not in self._written)
        return Slice(found[0], found[0] + size, f"{space} {number}", is_read_only)

    def _slice_of(self, value: HloValue, size: int | None) -> Slice:
        slice_ = self._plan.slice_of(value)
        size = slice_.size if size is None else size
        if size > slice_.size:
            rule = f"needs {size} bytes of {slice_}, which has {slice_.size}"
            raise MemoryPlanError(rule, step="a step", instruction=value.instruction)
        if slice_.space is Space.VARIABLE:
            number = self._variables.get(slice_)
            if number is None:
                # Variables are numbered here in the order in which the proof meets them; each takes whole words.
                number = self._variables[slice_] = len(self._variables)
                self._lines.add("variable", number, max(_WORD, -(-slice_.size // _WORD) * _WORD))
            return self._object("variable", number, size)
        if slice_.space is not Space.ARENA:
            return self._object(slice_.space.value, slice_.number, size)
        if not 0 <= slice_.offset <= slice_.offset + slice_.size <= self._lines.arena_bytes:
            rule = f"is given {slice_}, which has {self._lines.arena_bytes} bytes"
            raise MemoryPlanError(rule, step="a step", instruction=value.instruction)
        if slice_.offset % ALIGNMENT:
            raise MemoryPlanError(
                f"is given {slice_}, which is not aligned", step="a step", instruction=value.instruction
            )
        return Slice(slice_.offset, slice_.offset + size, str(slice_))
