"""Epilogues: fuses a product with its epilogue, so that the product itself is never stored.

While a complete block of results of a dot or a convolution is in the cache, the epilogue adds a bias, applies a
function, converts the type, or normalizes rows. In attention (a softmax between two dots) the weights are never stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from xlakit.ir.def_use import users_of
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.names import unused_name
from xlakit.ops.control import Fusion
from xlakit.ops.data import GetTupleElement, Parameter, Tuple
from xlakit.ops.movement import Broadcast, Reshape, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.options import knob
from xlakit.passes.core.computation_builder import Fused, with_fusions, with_results
from xlakit.passes.core.framework import (
    Names,
    Pass,
    PassContext,
    change_programs,
    live_instructions,
    with_changed,
)
from xlakit.passes.fusion.fusible import ELEMENTWISE, is_scalar_constant
from xlakit.passes.fusion.product_chain import chain_of, is_product

# Operations that an epilogue may contain, beside fusions and a second product.
_JOINING = (*ELEMENTWISE, Broadcast, Reduce, Reshape, Transpose)

_MOST_OPERANDS = knob("epilogues.most_operands", 40, 3)
_MOST_MEMBERS = knob("epilogues.most_members", 40, 2)
# The search ends after so many users that cannot join.
_MOST_REFUSED = knob("epilogues.most_refused", 8, 1)


class Epilogues(Pass):
    """Make one fusion of a product and the instructions computed from its elements or rows, and of attention."""

    name = "epilogues"
    left_out_by = "fusion"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Fuse in all computations that run as programs."""

        def fuse(computation: Computation) -> Computation:
            products = {i for i in computation.instructions if is_product(i)}
            return _EpilogueFusion(computation, products, context).run() if products else computation

        return with_changed(module, change_programs(module, fuse))


class _Group:
    """Instructions that become one fusion: products and their epilogues.

    given: the operands of the fusion. results: the members with users outside. position: its place in the schedule.
    """

    def __init__(self) -> None:
        self.results: Sequence[Instruction] = ()
        self.position = 0.0
        self.members: dict[Instruction, None] = {}
        self.given: list[Instruction] = []
        self._inner: dict[Instruction, Instruction] = {}
        self._lines: list[Instruction] = []
        self._names: set[str] = set()

    def joined(self, members: Iterable[Instruction], results: Sequence[Instruction], position: float) -> _Group:
        """A group with more members, other results and another position."""
        group = _Group()
        group.results, group.position = results, position
        group.members = dict(self.members)
        group.given = list(self.given)
        group._inner, group._lines, group._names = dict(self._inner), list(self._lines), set(self._names)
        for member in members:
            group._take(member)
        return group

    def computation(self, name: str, thread: str = "main") -> Computation:
        """The computation of the fusion."""
        return with_results(name, self._lines, [self._inner[r] for r in self.results], self._names, thread)

    @property
    def is_chain(self) -> bool:
        """Whether the fusion is a chain, of few operands."""
        return len(self.given) <= _MOST_OPERANDS.value and chain_of(self.computation("fused")) is not None

    @property
    def has_reductions(self) -> bool:
        """Whether it reduces anything, as what is between two products does."""
        return any(isinstance(i.op, Reduce) for i in self._lines)

    def _take(self, member: Instruction) -> None:
        self.members[member] = None
        inner = self._inner
        if isinstance(member.op, GetTupleElement):
            inner[member] = inner[member.operands[0].op_as(Fusion).calls.root.operands[member.op.index]]
            return
        for operand in member.operands:
            if operand not in inner:
                self._give(operand)
        if not isinstance(member.op, Fusion):
            inner[member] = self._copied(member, inner)
            return
        calls = member.op.calls
        known = {p: inner[o] for p, o in zip(calls.parameters, member.operands, strict=True)}
        for instruction in calls.instructions:
            if not isinstance(instruction.op, (Parameter, Tuple)):
                known[instruction] = self._copied(instruction, known)
        inner.update(known)
        if calls.root in known:
            inner[member] = known[calls.root]

    def _give(self, operand: Instruction) -> None:
        """Add an operand of the fusion: a parameter of its computation, or a copy of a scalar constant."""
        if is_scalar_constant(operand):
            self._inner[operand] = self._copied(operand, {})
            return
        number = len(self.given)
        parameter = Instruction(Parameter(number=number), (), operand.shape, unused_name(f"p{number}", self._names))
        self._inner[operand] = self._added(parameter)
        self.given.append(operand)

    def _copied(self, instruction: Instruction, known: dict[Instruction, Instruction]) -> Instruction:
        operands = [known[o] for o in instruction.operands]
        name = unused_name(instruction.name, self._names)
        return self._added(instruction.replace(operands=operands, name=name, control_predecessors=()))

    def _added(self, instruction: Instruction) -> Instruction:
        self._lines.append(instruction)
        self._names.add(instruction.name)
        return instruction


class _EpilogueFusion:
    """Fuses the products of one computation."""

    def __init__(self, computation: Computation, products: Collection[Instruction], context: PassContext) -> None:
        self._computation = computation
        self._products = products
        self._context = context
        self._names = Names(computation, context)
        self._live = live_instructions(computation)
        # The position of each instruction in the schedule; those of a group have one position.
        self._positions: dict[Instruction, float] = {i: float(n) for n, i in enumerate(computation.instructions)}
        self._groups: dict[Instruction, _Group] = {}
        self._users = users_of((i for i in computation.instructions if i in self._live), control=True)

    def run(self) -> Computation:
        """The computation with fusions."""
        for instruction in self._computation.instructions:
            if instruction in self._products and instruction in self._live and instruction not in self._groups:
                group = self._grown(instruction)
                if group is not None and self._context.spend("product"):
                    for member in group.members:
                        self._groups[member] = group
                        self._positions[member] = group.position
        return self._rebuilt() if self._groups else self._computation

    # -- choice of members -----------------------------------------------------------------------

    def _grown(self, product: Instruction) -> _Group | None:
        """Grow the epilogue of a product, one instruction at a time, while the whole remains a chain."""
        best = _Group().joined([product], [product], self._positions[product])
        refused: set[Instruction] = set()
        while len(best.members) < _MOST_MEMBERS.value and len(refused) < _MOST_REFUSED.value:
            user = self._next_user(best, refused)
            if user is None:
                break
            grown = self._with(best, [user, *self._parts(user)])
            if grown is None:
                refused.add(user)
            else:
                best = grown
        return best if len(best.members) > 1 else None

    def _with(self, group: _Group, more: Sequence[Instruction]) -> _Group | None:
        """The group with more members, or None if that is no chain."""
        if more[0] in self._products and not group.has_reductions:
            # Most products that read another's results are met here, and need no fusion to be built.
            return None
        members = [*group.members, *more]
        results, position = self._results(members), self._position_of(members)
        if results is None or position is None:
            return None
        grown = group.joined(more, results, position)
        return grown if grown.is_chain else None

    def _next_user(self, group: _Group, refused: set[Instruction]) -> Instruction | None:
        """The first user of a member that might join."""
        users = dict.fromkeys(u for m in group.members for u in self._users.get(m, ()))
        candidates = [u for u in users if u not in refused and u not in group.members and self._may_join(u)]
        return min(candidates, key=self._positions.__getitem__, default=None)

    def _is_free(self, instruction: Instruction) -> bool:
        return instruction in self._live and instruction not in self._groups and not instruction.control_predecessors

    def _may_join(self, instruction: Instruction) -> bool:
        if not self._is_free(instruction):
            return False
        if isinstance(instruction.op, Fusion):
            return instruction.op.kind in (FusionKind.LOOP, FusionKind.INPUT)
        return isinstance(instruction.op, _JOINING) or instruction in self._products

    def _parts(self, instruction: Instruction) -> list[Instruction]:
        """The get-tuple-elements of an instruction with several results, which join with it."""
        if not instruction.shape.is_tuple:
            return []
        return [u for u in self._users.get(instruction, []) if isinstance(u.op, GetTupleElement)]

    def _results(self, members: Sequence[Instruction]) -> list[Instruction] | None:
        """The members with users outside; None if one of them is a tuple."""
        group, root = set(members), self._computation.root
        results = [m for m in members if m is root or any(u not in group for u in self._users.get(m, ()))]
        return None if any(r.shape.is_tuple for r in results) else results

    def _position_of(self, members: Sequence[Instruction]) -> float | None:
        """A position in the schedule for all members, after their operands and before their users, or None."""
        group = set(members)
        operands = [
            self._positions[o] for m in members for o in m.operands if o not in group and not is_scalar_constant(o)
        ]
        users = [self._positions[u] for m in members for u in self._users.get(m, ()) if u not in group]
        earliest = max(operands, default=-1.0)
        latest = min(users, default=float(len(self._computation.instructions)))
        return (earliest + min(latest, earliest + 1.0)) / 2 if earliest < latest else None

    # -- building --------------------------------------------------------------------------------

    def _rebuilt(self) -> Computation:
        nodes: dict[Instruction | _Group, float] = {}
        for instruction in self._computation.instructions:
            if instruction in self._live:
                nodes.setdefault(self._groups.get(instruction, instruction), self._positions[instruction])
        ordered = sorted(nodes, key=nodes.__getitem__)
        return with_fusions(self._computation, (self._fused(n) if isinstance(n, _Group) else n for n in ordered))

    def _fused(self, group: _Group) -> Fused:
        name = self._names.new("fusion")
        calls = group.computation(f"fused_{name}", self._computation.execution_thread)
        return Fused(name, FusionKind.OUTPUT, calls, group.given, group.results)
