"""Clusters: the instructions that will be one fusion, and the conditions under which another instruction joins.

A cluster begins with one instruction, its root, whose elements are results of the fusion. It grows from the root
towards the parameters: an instruction may join when its users are members, because then the elements that they read of
it are known (:class:`Demand`), and with them its cost.

    x = f32[8,128] parameter(0)
    top = f32[8] reduce(x), dimensions={1}                 a large reduction: its domain is f32[8,128]
    wide = f32[8,128] broadcast(top), dimensions={0}       ELEMENT
    ROOT below = f32[8,128] subtract(x, wide)              ELEMENT

The domain of a cluster is the index space of its loops: the elements of its roots or, if it has large reductions, the
elements that these reduce, so that all of them share loops. Here ``top`` has one element for each row of the domain:
the loop nest processes row by row, first to reduce and then to subtract. So each member has a :class:`Domain`: ELEMENT,
ROW, or None for neither (a transpose, for example); the results of large reductions have the domain ROW.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import Expensive
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Slice, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.core.matching import as_integer, uniform
from xlakit.passes.fusion.fusible import (
    ELEMENTWISE,
    MOVEMENT,
    Domain,
    is_fusible,
    is_large_reduction,
    is_scalar_constant,
    is_simple,
    reduced_size,
)
from xlakit.passes.fusion.views import (
    Loop,
    Loops,
    View,
    borders,
    elements,
    is_in_branch,
    is_in_reduction,
    span,
    view_of_operand,
)

_MOST_MEMBERS = knob("fusion_cluster.most_members", 400, 3, 10)
_MOST_OPERANDS = knob("fusion_cluster.most_operands", 40, 2, 4)
# Limits of the code of a cluster: how often members are emitted, in total and for one of them.
_MOST_COMPUTED = knob("fusion_cluster.most_computed", 600, 3)
_MOST_VIEWS = knob("fusion_cluster.most_views", 64, 1)
# How often one member is emitted in branches of interior paddings. In nested interleavings, as in an associative scan,
# the number of emissions would double with each level.
_MOST_BRANCHES = knob("fusion_cluster.most_branches", 2, 1)
# How often one member is emitted inside of reductions, whose loops are unrolled: one of an instruction or two, if that
# keeps a large array from memory, and any other.
_MOST_SIMPLE_WRITTEN = knob("fusion_cluster.most_simple_written", 128, 1)
_MOST_WRITTEN = knob("fusion_cluster.most_written", 32, 1)
# Arrays of fewer elements are stored and read again in less time than it takes to compile more code.
_LARGE_WRITTEN = knob("fusion_cluster.large_written", 1 << 14, 1)
# The largest number of nests into which loops are cut where a view begins or ends.
_MOST_NESTS = knob("fusion_cluster.most_nests", 16, 1)
# Loops shorter than this are unrolled rather than cut.
_SHORT_LOOP = knob("fusion_cluster.short_loop", 8, 1, 100)
# The longest chain of cheap operations that may be recomputed.
_MOST_REPEATED = 3
# Fewer rows than this, if they are long, are reduced in parts by a kernel that computes nothing else.
_FEW_ROWS = knob("fusion_cluster.few_rows", 8, 0, 1000)
_SHORT_ROW = knob("fusion_cluster.short_row", 1 << 14, 8)
# For longer rows the work on their sums is a small part of the time.
_SHORT_SUM = knob("fusion_cluster.short_sum", 256, 0)

# The iterations at which loops over the results are cut into several nests, each with a fixed set of views.
Cuts = dict[Loop, frozenset[int]]


class Demand(NamedTuple):
    """The elements that members of a cluster read of an instruction.

    views: the views through which members read it; it is emitted once per view, and readers of a view share its value.
    copies: how often it is emitted for each view: several times inside of small reductions, whose loops are unrolled.
    computed: how many elements are computed for each view, with repetitions inside of reductions.
    """

    views: tuple[View, ...]
    copies: int
    computed: int

    @property
    def emissions(self) -> int:
        """How often the instruction is emitted."""
        return len(self.views) * self.copies


class Member(NamedTuple):
    """An instruction of a cluster.

    repeated: the number of operations that are recomputed, in a chain from this one to the user that reads its elements
        repeatedly, such as a broadcast; 0 if nothing is.
    """

    demand: Demand
    domain: Domain | None
    repeated: int = 0


class Cluster:
    """Instructions that become one fusion.

    sizes: the dimensions of the domain. reduced: those that the large reductions reduce, all of them the same.
    """

    def __init__(self, root: Instruction, loops: Loops, pieces: Mapping[int, int]) -> None:
        self.members: dict[Instruction, Member] = {}
        self.roots: list[Instruction] = [root]
        self.operands: set[Instruction] = set()
        self.sizes = _dimensions(root)
        self.reduced: frozenset[int] = frozenset()
        self._loops = loops
        self._emissions = 0
        self._cuts: Cuts = {}
        self._at_the_index = _at_the_index(root) if self.updates_in_place else set[Instruction]()
        views = _views_of_root(root, loops, pieces)
        if is_large_reduction(root):
            self._loop_over_operand_of(root)
        domain = Domain.ROW if self.reduced else Domain.ELEMENT
        self._add(root, Member(Demand(views, 1, elements(views[0])), domain))

    def _add(self, instruction: Instruction, member: Member) -> None:
        self.members[instruction] = member
        self._emissions += member.demand.emissions * _operations(instruction)
        self.operands.discard(instruction)
        self.operands.update(o for o in instruction.operands if not is_scalar_constant(o))

    def _loop_over_operand_of(self, reduce: Instruction) -> None:
        """Set the domain to the elements that a large reduction reads."""
        self.sizes = reduce.operands[0].shape.dimensions
        self.reduced = frozenset(reduce.op_as(Reduce).dimensions)

    @property
    def updates_in_place(self) -> bool:
        """Whether the cluster is a dynamic-update-slice, which changes one of its operands in place."""
        return isinstance(self.roots[0].op, DynamicUpdateSlice)

    # -- demands of members ----------------------------------------------------------------------

    def demand_of(self, users: list[Instruction], instruction: Instruction) -> Demand | None:
        """The elements that these members read of an instruction; None if the code would be too large."""
        first = users[0]
        if len(users) == 1 and isinstance(first.op, ELEMENTWISE) and instruction.shape.rank == first.shape.rank:
            return self.members[first].demand
        views: dict[View, None] = {}
        copies, computed = 1, 0
        for user in users:
            demand = self.members[user].demand
            for number, operand in enumerate(user.operands):
                if operand is not instruction:
                    continue
                # A large reduction has loops of its own over its arrays, but not over the initial values behind them.
                if is_large_reduction(user) and number < len(user.operands) // 2:
                    views[self._view_of_domain()] = None
                    continue
                times = reduced_size(user, number)
                copies, computed = max(copies, demand.copies * times), max(computed, demand.computed * times)
                operand_views = [view_of_operand(user, number, view, self._loops) for view in demand.views]
                views.update(dict.fromkeys(view for view in operand_views if view is not None))
            if len(views) > _MOST_VIEWS.value:
                return None
        if any(map(is_in_reduction, views)):
            return Demand(tuple(views), copies, computed)
        # Outside of reductions an instruction is computed once for each element.
        return Demand(tuple(views), 1, max(map(elements, views), default=0))

    def _view_of_domain(self) -> View:
        """The view of all elements of the domain, which large reductions read.

        Where the last root is an array of that domain, it is the view of that root, so that both share loops.
        """
        root = self.roots[-1]
        (view, *others) = self.members[root].demand.views
        return view if not others and _dimensions(root) == self.sizes else self._loops.whole(self.sizes, "domain")

    # -- joining ---------------------------------------------------------------------------------

    def join(self, instruction: Instruction, users: list[Instruction], demand: Demand) -> bool:
        """Add an instruction, given the members that use it and their demand; False if it may not join the cluster."""
        if not self._has_room(instruction, demand):
            return False
        if self.updates_in_place and not self._may_feed_update(instruction, users):
            return False
        cuts = self._cuts_with(instruction, demand)
        repeated = max(self._repeated(instruction, user) for user in users)
        if cuts is None or not _may_repeat(instruction, repeated):
            return False
        domain = self._domain_of(users)
        if is_large_reduction(instruction):
            if not self._take_reduction(instruction, domain):
                return False
            domain = Domain.ROW
        elif self.reduced and _moves_rows(instruction):
            return False
        counts = repeated > 0 and not isinstance(instruction.op, MOVEMENT)
        self._add(instruction, Member(demand, domain, repeated + counts))
        self._cuts = cuts
        return True

    def _has_room(self, instruction: Instruction, demand: Demand) -> bool:
        """Whether the fusion with one more instruction stays within the limits of its code."""
        if instruction.shape.is_tuple or isinstance(instruction.op, DynamicUpdateSlice):
            return False
        emissions = demand.emissions
        if len(self.members) >= _MOST_MEMBERS.value:
            return False
        if self._emissions + emissions * _operations(instruction) > _MOST_COMPUTED.value:
            return False
        most = _MOST_WRITTEN
        if emissions > most.value and self._saves_array(instruction, emissions):
            most = _MOST_SIMPLE_WRITTEN
        if demand.copies > 1 and emissions > most.value:
            return False
        is_computed = not isinstance(instruction.op, MOVEMENT)
        if is_computed and len(demand.views) > _MOST_BRANCHES.value and any(map(is_in_branch, demand.views)):
            return False
        more = [o for o in instruction.operands if o not in self.operands and not is_scalar_constant(o)]
        return len(self.operands) + len(more) <= _MOST_OPERANDS.value

    def _saves_array(self, instruction: Instruction, emissions: int) -> bool:
        """Whether to write out an instruction, with all that it takes to compute it, keeps a large array from memory.

        If what it takes were cut within, one array or several would be stored in place of this one.
        """
        count = instruction.shape.num_elements
        if count < _LARGE_WRITTEN.value:
            return False
        most = (_MOST_COMPUTED.value - self._emissions) // emissions
        written, stored, rest = set[Instruction](), set[Instruction](), [instruction]
        while rest and len(written) <= most and len(stored) <= 1:
            value = rest.pop()
            if value.shape.is_tuple or value.shape.num_elements < count or is_scalar_constant(value):
                continue
            if not is_simple(value) and not isinstance(value.op, MOVEMENT):
                stored.add(value)
            elif value not in written:
                written.add(value)
                rest.extend(value.operands)
        return instruction in written and len(written) <= most and len(stored) <= 1

    def _may_feed_update(self, instruction: Instruction, users: Sequence[Instruction]) -> bool:
        """Whether an instruction reads the updated array only at the index that the same iteration writes.

        Elements at other indices may have been overwritten by then.
        """
        root = self.roots[0]
        if is_large_reduction(instruction):
            return False
        if not _needs(instruction, root.operands[0]):
            return True
        return instruction in self._at_the_index and all(user is root or user in self._at_the_index for user in users)

    def _repeated(self, instruction: Instruction, user: Instruction) -> int:
        """The length of the chain of recomputed operations through this user; 0 if nothing is recomputed there."""
        if self.members[user].repeated:
            return self.members[user].repeated
        if isinstance(user.op, ReduceWindow):
            return 1
        is_table = isinstance(user.op, Gather) and user.operands[0] is instruction
        is_spread = isinstance(user.op, Broadcast) and instruction.shape.num_elements > 1
        if not (is_table or is_spread) or user.shape.num_elements <= instruction.shape.num_elements:
            return 0
        # Along a leading dimension a value is computed once, outside of the inner loops.
        return 0 if is_spread and user.op_as(Broadcast).dimensions == tuple(range(instruction.shape.rank)) else 1

    # -- domains and reductions ------------------------------------------------------------------

    def _domain_of(self, users: list[Instruction]) -> Domain | None:
        """The domain of an instruction with these users."""
        (domain, *others) = {self._domain_of_operand(user) for user in users}
        return None if others else domain

    def _domain_of_operand(self, user: Instruction) -> Domain | None:
        domain = self.members[user].domain
        if is_large_reduction(user):
            return Domain.ELEMENT
        if isinstance(user.op, (*ELEMENTWISE, Reshape)):
            return domain
        if isinstance(user.op, Broadcast) and domain is Domain.ELEMENT:
            # A value for each row.
            dimensions = user.op.dimensions
            if self.reduced:
                return Domain.ROW if dimensions == self._kept_dimensions() else None
            leading = dimensions == tuple(range(len(dimensions)))
            return Domain.ROW if leading and user.shape.dimensions == self.sizes else None
        return None

    def _kept_dimensions(self) -> tuple[int, ...]:
        """The dimensions of the domain that reductions keep."""
        return tuple(d for d in range(len(self.sizes)) if d not in self.reduced)

    def _take_reduction(self, reduce: Instruction, domain: Domain | None) -> bool:
        """Give the cluster the domain of a large reduction; False if it has a different domain that it must keep."""
        sizes, over = reduce.operands[0].shape.dimensions, frozenset(reduce.op_as(Reduce).dimensions)
        if len(self.members[self.roots[-1]].demand.views) > 1:
            # Reductions have loops of their own, without pieces.
            return False
        if self.reduced and (sizes != self.sizes or over != self.reduced):
            return False
        remaining = tuple(size for d, size in enumerate(sizes) if d not in over)
        if not self.reduced and domain is Domain.ELEMENT and math.prod(self.sizes) == math.prod(remaining):
            # Users of the reduction's results: their elements are the rows of the new domain.
            if any(member.domain is Domain.ROW for member in self.members.values()) or self._is_cheaper_unfused(reduce):
                return False
            for instruction, member in self.members.items():
                self.members[instruction] = member._replace(domain=Domain.ROW if member.domain else None)
        else:
            if domain is not Domain.ROW or sizes != self.sizes or reduce.shape.dimensions != remaining:
                return False
            is_trailing = over == frozenset(range(len(remaining), len(sizes)))
            if not is_trailing or (math.prod(remaining) < _FEW_ROWS.value and math.prod(sizes) > _SHORT_ROW.value):
                return False
        self._loop_over_operand_of(reduce)
        return True

    def _is_cheaper_unfused(self, reduce: Instruction) -> bool:
        """Whether the members are better computed by a kernel of their own than after each row's reduction.

        There they would compute expensive functions of one number at a time, which for many short rows takes a large
        part of the time; a separate kernel vectorizes them.
        """
        model, rows = cost_model(), reduce.shape
        if not rows.is_array or reduced_size(reduce, 0) > _SHORT_SUM.value:
            return False
        alone = sum(model.operation(i.op).alone for i in self.members if isinstance(i.op, Expensive))
        return alone * rows.num_elements > model.materialization(rows)

    # -- cutting loops ---------------------------------------------------------------------------

    def _cuts_with(self, instruction: Instruction, demand: Demand) -> Cuts | None:
        """The cuts of loops after an instruction has joined; None if there are too many nests.

        Each operand of a concatenation or a pad is read in a part of the loop only.
        """
        if not isinstance(instruction.op, (Concatenate, Pad)):
            return self._cuts
        views = [
            view_of_operand(instruction, number, view, self._loops)
            for number in range(len(instruction.operands))
            for view in demand.views
        ]
        return self._cuts_at(border for view in views if view is not None for border in borders(view))

    def _cuts_at(self, borders: Iterable[tuple[Loop, int]]) -> Cuts | None:
        cuts = dict(self._cuts)
        for loop, iteration in borders:
            # Only loops over the results are cut, and not at their ends.
            length = 0 if loop.dimension is None else self.sizes[loop.dimension]
            if length >= _SHORT_LOOP.value and 0 < iteration < length:
                cuts[loop] = cuts.get(loop, frozenset()) | {iteration}
        return cuts if math.prod([len(iterations) + 1 for iterations in cuts.values()]) <= _MOST_NESTS.value else None

    # -- merging ---------------------------------------------------------------------------------

    def may_absorb(self, other: Cluster) -> bool:
        """Whether one nest can compute both clusters: each reads the other's results at the index where it computes.

        Otherwise a result would be read before the nest has computed it.
        """
        for reader, source in ((self, other), (other, self)):
            for root in source.roots:
                if root in reader.operands:
                    demand = reader.demand_of([m for m in reader.members if root in m.operands], root)
                    if demand is None or demand.views != source.members[root].demand.views:
                        return False
        return self._cuts_of_both(other) is not None

    def absorb(self, other: Cluster) -> None:
        """Merge with another cluster of the same domain."""
        self._cuts = self._cuts_of_both(other) or {}
        self.members.update(other.members)
        self.roots = [*other.roots, *self.roots]
        self._emissions += other._emissions
        self.operands = (self.operands | other.operands) - set(self.members)

    def _cuts_of_both(self, other: Cluster) -> Cuts | None:
        return self._cuts_at((loop, iteration) for loop, iterations in other._cuts.items() for iteration in iterations)


def _dimensions(root: Instruction) -> tuple[int, ...]:
    return root.shape.tuple_shapes_or_self[0].dimensions


def _operations(instruction: Instruction) -> int:
    """The operations for one element: multiplications of an unrolled dot, operands of a concatenation, else 1."""
    if isinstance(instruction.op, Concatenate):
        return len(instruction.operands)
    return reduced_size(instruction, 0) if isinstance(instruction.op, Dot) else 1


def _views_of_root(root: Instruction, loops: Loops, pieces: Mapping[int, int]) -> tuple[View, ...]:
    """The view of the whole root, or one view for each piece, all with the same loops."""
    parts = [(d, size // pieces.get(d, 1), pieces.get(d, 1)) for d, size in enumerate(_dimensions(root))]
    spans = [[span(k * size, size, loops.over_results(d)) for k in range(count)] for d, size, count in parts]
    return tuple(itertools.product(*spans))


def _may_repeat(instruction: Instruction, repeated: int) -> bool:
    """Whether an instruction may be the last of so many operations that are recomputed."""
    if not repeated or isinstance(instruction.op, MOVEMENT):
        return True
    return is_simple(instruction) and repeated <= _MOST_REPEATED


def _moves_rows(instruction: Instruction) -> bool:
    """Whether this is a transpose of the minor dimension: a reduction of its result would read memory with strides."""
    if not isinstance(instruction.op, Transpose):
        return False
    dimensions = instruction.op.dimensions
    return bool(dimensions) and dimensions[-1] != len(dimensions) - 1


def _at_the_index(update: Instruction) -> set[Instruction]:
    """The instructions that may be fused into a dynamic-update-slice although they read the array it updates in place.

    They depend on the array only through the slice at the position of the update, element by element. Empty if some
    instruction reads the array in another way: that has to be computed before the update starts, outside of the fusion.
    """
    target, update_value, *starts = update.operands
    members: set[Instruction] = set()
    stack = [update_value]
    while stack:
        node = stack.pop()
        if node in members or not _needs(node, target):
            continue
        if (
            node is target
            or node.shape.dimensions != update_value.shape.dimensions
            or len(members) >= _MOST_MEMBERS.value
        ):
            return set()
        if not _is_slice_at(node, target, starts):
            if not isinstance(node.op, ELEMENTWISE):
                return set()
            stack.extend(node.operands)
        members.add(node)
    return members


def _is_slice_at(instruction: Instruction, source: Instruction, starts: Sequence[Instruction]) -> bool:
    """Whether an instruction is the slice of ``source`` at the start indices of the update.

    A static slice is within the array, so the indices of a dynamic one, which are clamped, are the same.
    """
    op, operands = instruction.op, instruction.operands
    if isinstance(op, DynamicSlice):
        return operands[0] is source and all(
            start_index is start for start_index, start in zip(operands[1:], starts, strict=True)
        )
    if not isinstance(op, Slice) or operands[0] is not source:
        return False
    return all(s.stride == 1 and as_integer(uniform(i)) == s.start for s, i in zip(op.slice, starts, strict=True))


def _needs(instruction: Instruction, source: Instruction) -> bool:
    """Whether an instruction depends on ``source`` through fusible instructions; True if the search is too long."""
    stack, seen = [instruction], {instruction}
    while stack:
        node = stack.pop()
        if node is source or len(seen) > _MOST_MEMBERS.value:
            return True
        # Updates never join.
        if is_fusible(node) and not isinstance(node.op, DynamicUpdateSlice):
            fresh = [o for o in node.operands if o not in seen]
            seen.update(fresh)
            stack.extend(fresh)
    return False
