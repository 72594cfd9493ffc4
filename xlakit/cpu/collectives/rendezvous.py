"""Compiles the collectives of a module to machine code: chooses the site and the kernel of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from xlakit.cpu.collectives.groups import Sites, groups_of
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ExecutionError, UnsupportedError
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.communication.async_pairs import TUPLE_STARTS
from xlakit.ops.communication.collective_moves import AllToAll, Permuting, RaggedAllToAll
from xlakit.ops.communication.collectives import (
    AllGather,
    AllReduce,
    CollectiveBroadcast,
    CollectiveReduce,
    ReduceScatter,
)
from xlakit.ops.communication.sites import is_collective, site_of
from xlakit.passes.analysis.sites import sites_met_apart


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The machine code of one collective.

    phase: the kernel, which runs on a slot; its tables have the operands' arrays, then the results'. site: the name of
    the table with each device's slot. is_shared: whether other instructions use the same site. is_identity: whether
    each group is one device, whose result is its operand. may_fail: whether the operands may have invalid values; the
    kernel then marks the slot, and the interpreter raises the error.
    """

    phase: Phase
    site: str
    is_shared: bool
    is_identity: bool
    may_fail: bool
    number: int


class RendezvousTable:
    """The rendezvous of one module. ``instructions`` lists the compiled collectives by their numbers."""

    def __init__(self, module: HloModule, code: Module, grid: Grid) -> None:
        self._code = code
        self._grid = grid
        self._sites = Sites(code, grid.num_devices)
        self._kernels: dict[Hashable, Phase] = {}
        self._made: dict[Instruction, Rendezvous | None] = {}
        self._by_site: dict[Hashable, list[Instruction]] = {}
        self.instructions: list[Instruction] = []
        # Each collective that all devices reach in one order has a site of its own, at which a start need not wait.
        apart = sites_met_apart(module)
        self._keys: dict[Instruction, Hashable] = {}
        for instruction in filter(is_collective, module.instructions):
            site = site_of(instruction)
            key = self._keys[instruction] = site if site in apart else instruction
            self._by_site.setdefault(key, []).append(instruction)

    @property
    def slots(self) -> tuple[int, ...]:
        """The number of members of each slot that a run needs."""
        return tuple(self._sites.slots)

    def of(self, instruction: Instruction) -> Rendezvous | None:
        """The rendezvous of an instruction; None if it is not a collective, or if the interpreter must execute it."""
        if not is_collective(instruction):
            return None
        if instruction not in self._made:
            self._decide(self._by_site[self._keys[instruction]])
        return self._made[instruction]

    def _decide(self, alike: Sequence[Instruction]) -> None:
        """Compile all instructions of one site; if one cannot be compiled, the interpreter executes all of them."""
        before = list(self._code.functions)
        try:
            compiled = {i: self._make(i, is_shared=len(alike) > 1) for i in alike}
        except (DeclinedError, UnsupportedError, ExecutionError):
            # The interpreter raises the error when the program reaches the instruction. Functions begun for it are
            # removed.
            for name in set(self._code.functions).difference(before):
                del self._code.functions[name]
            compiled = dict.fromkeys(alike)
        self._made.update(compiled)

    def _make(self, instruction: Instruction, *, is_shared: bool) -> Rendezvous:
        """The rendezvous of a collective; those of one site, with equal results, share a kernel."""
        op: Any = instruction.op
        if any(shape.is_dynamic for o in instruction.operands for _, shape in o.shape.leaves()):
            raise DeclinedError("a collective on arrays of dynamic sizes")
        groups = groups_of(op, self._grid)
        sizes = {len(group.members) for group in groups}
        count = next(iter(sizes)) if len(sizes) == 1 else None
        key = site_of(instruction), result_of(instruction).without_layout(), count
        phase = self._kernels.get(key)
        if phase is None:
            phase = self._kernels[key] = _kernel(self._code, instruction, count)
        site = self._sites.at(self._keys[instruction], groups)
        identity = sizes == {1} and all(g.sources == (0,) for g in groups)
        self.instructions.append(instruction)
        may_fail = isinstance(op, RaggedAllToAll)
        return Rendezvous(phase, site, is_shared, identity and not may_fail, may_fail, len(self.instructions) - 1)


def _kernel(code: Module, instruction: Instruction, count: int | None) -> Phase:
    """The kernel of a collective in groups of ``count``; raises DeclinedError or UnsupportedError."""
    # Imported here: most programs have no collectives.
    from xlakit.cpu.collectives import moves, reduce

    op: Any = instruction.op
    shapes = [o.shape for o in instruction.operands]
    name = code.unique("meet_" + instruction.opcode.replace("-", "_"))
    if not all(s.is_array for s in shapes):
        raise DeclinedError("a collective on tuples")
    if isinstance(op, AllReduce):
        return reduce.all_reduce(code, name, op.to_apply, shapes, count)
    if isinstance(op, CollectiveReduce) and not op.has_dynamic_root:
        return reduce.all_reduce(code, name, op.to_apply, shapes, count, only_first=True)
    if isinstance(op, CollectiveBroadcast) and not op.has_dynamic_root:
        return moves.fetch(code, name, shapes, count)
    if isinstance(op, Permuting) and not op.slice_sizes:
        return moves.fetch(code, name, shapes, count)
    if count is None:
        raise DeclinedError("groups of different sizes")
    if isinstance(op, RaggedAllToAll):
        if shapes[2].num_elements % count or any(s.element_type.bit_width > 64 for s in shapes[2:]):
            raise DeclinedError("tables that do not divide by the members of a group")
        return moves.ragged_all_to_all(code, name, shapes, count)
    if isinstance(op, ReduceScatter):
        _check_factor(_results(instruction), shapes, op.scatter_dimension, count)
        return reduce.reduce_scatter(code, name, op.to_apply, shapes, op.scatter_dimension, count)
    if isinstance(op, AllGather):
        _check_factor(shapes, _results(instruction), op.all_gather_dimension, count)
        return moves.all_gather(code, name, shapes, op.all_gather_dimension, count)
    if isinstance(op, AllToAll) and op.split_dimension is None:
        if len(shapes) != count:
            raise DeclinedError("not as many operands as a group has members")
        return moves.all_to_all_of_tuples(code, name, shapes[0], count)
    if isinstance(op, AllToAll) and op.split_dimension is not None:
        if shapes[0].dimensions[op.split_dimension] % count:
            raise DeclinedError("a dimension that does not divide by the members of a group")
        return moves.all_to_all(code, name, shapes[0], op.split_dimension, count)
    raise DeclinedError(f"no code is made for {op.opcode}")


def result_of(instruction: Instruction) -> Shape:
    """The shape of a collective's result, without the operands and contexts of a start."""
    shape = instruction.shape
    is_start = isinstance(instruction.op, TUPLE_STARTS)
    return shape.tuple_shapes[1] if is_start else shape


def _results(instruction: Instruction) -> Sequence[Shape]:
    shape = result_of(instruction)
    return shape.tuple_shapes_or_self


def _check_factor(small: Sequence[Shape], large: Sequence[Shape], dimension: int, count: int) -> None:
    """Raise DeclinedError unless the dimension of ``large`` is ``count`` times that of ``small``."""
    for a, b in zip(small, large, strict=True):
        if a.dimensions[dimension] * count != b.dimensions[dimension]:
            raise DeclinedError("shapes for groups of another size")
