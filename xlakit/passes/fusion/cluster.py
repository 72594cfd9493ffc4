"""Clusters: the instructions that will be one fusion, and what may join them.

A cluster is computed by a nest of loops over the elements of its roots or, where it has reductions, over the elements
that they reduce (its domain). Each member stands in a relation to the domain: FULL, one element for each of the
domain's; ROW, one for each result of the reductions; OTHER.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import DataMovement, Elementwise, Expensive
from xlakit.ops.data import Constant, Iota
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.options import knob
from xlakit.passes.fusion.views import (
    Loops,
    Span,
    View,
    Views,
    borders,
    elements,
    is_in_branch,
    is_in_reduction,
    reduced_size,
    span,
    views_of_operand,
    whole,
)

# A bitcast-convert is one of these where the widths are the same.
ELEMENTWISE = (Elementwise, BitcastConvert)
# Operations that only rename or move elements.
MOVEMENT = (DataMovement, Iota)
# Operations that choose between operands, or read many elements for one.
FUSIBLE = (*ELEMENTWISE, *MOVEMENT, Pad, Concatenate, DynamicSlice, Gather, ReduceWindow, Reduce, DynamicUpdateSlice)

_MOST_MEMBERS = knob("fusion_cluster.most_members", 400, 3, 10)
_MOST_OPERANDS = knob("fusion_cluster.most_operands", 40, 2, 4)
# Limits of the code of a cluster: how often members are emitted, in total and for one of them.
_MOST_COMPUTED = knob("fusion_cluster.most_computed", 600, 3)
_MOST_VIEWS = knob("fusion_cluster.most_views", 64, 1)
# How often one member is emitted in branches of interior paddings: interleaved parts that are made of interleaved
# parts, as in an associative scan, would be computed twice as often for each level.
_MOST_BRANCHES = knob("fusion_cluster.most_branches", 2, 1)
# How often one member is emitted inside of reductions, whose loops are unrolled.
_MOST_WRITTEN = knob("fusion_cluster.most_written", 32, 1)
# The largest number of nests into which loops are cut where a view begins or ends.
_MOST_NESTS = knob("fusion_cluster.most_nests", 16, 1)
# Loops shorter than this are unrolled rather than cut.
_SHORT_LOOP = knob("fusion_cluster.short_loop", 8, 1, 100)
# The longest chain of cheap operations that may be recomputed.
_MOST_REPEATED = 3
# A reduction of at most so many elements is unrolled inside of a loop.
SMALL_REDUCTION = 16
# The most elements of a matrix product that is unrolled inside of a loop.
_TINY_RESULT = knob("fusion_cluster.tiny_result", 32, 0, 10_000)
_FEW_ROWS = knob("fusion_cluster.few_rows", 8, 0, 1000)
_SHORT_ROW = knob("fusion_cluster.short_row", 1 << 14, 8)


class Relation(enum.Enum):
    """How a member's elements relate to the domain's."""

    FULL = enum.auto()
    ROW = enum.auto()
    OTHER = enum.auto()


def is_fusible(instruction: Instruction) -> bool:
    """Whether an instruction can be part of a loop nest."""
    if isinstance(instruction.op, Dot):
        return _is_tiny_product(instruction)
    if not isinstance(instruction.op, FUSIBLE):
        return False
    if instruction.control_predecessors or instruction.op.has_side_effect:
        return False
    if isinstance(instruction.op, ReduceWindow) and _window_elements(instruction.op) > SMALL_REDUCTION:
        return False
    shape = instruction.shape
    if shape.is_tuple:
        return isinstance(instruction.op, Reduce) and not any(s.is_dynamic for s in shape.tuple_shapes)
    return (
        shape.is_array
        and not shape.is_dynamic
        and shape.num_elements > 0
        and all(o.shape.is_array and not o.shape.is_dynamic for o in instruction.operands)
    )


def _is_tiny_product(instruction: Instruction) -> bool:
    """Whether a dot is so small that calling a kernel costs more than computing it."""
    lhs, rhs = (o.shape for o in instruction.operands)
    kind = instruction.shape.element_type
    depth = math.prod(lhs.dimensions[d] for d in instruction.op_as(Dot).lhs_contracting_dims)
    return (
        lhs.element_type is rhs.element_type is kind
        and kind.bit_width >= 32
        and not instruction.shape.is_dynamic
        and not instruction.control_predecessors
        and 1 <= depth <= SMALL_REDUCTION
        and 1 <= instruction.shape.num_elements <= _TINY_RESULT.value
    )


def is_scalar_constant(instruction: Instruction) -> bool:
    """Whether this is a scalar constant, which every loop can materialize."""
    return isinstance(instruction.op, Constant) and instruction.shape.is_array and instruction.shape.num_elements == 1


def is_large_reduction(instruction: Instruction) -> bool:
    """Whether this is a reduction that needs loops of its own."""
    return isinstance(instruction.op, Reduce) and _reduced(instruction) > SMALL_REDUCTION


def _reduced(instruction: Instruction) -> int:
    sizes = instruction.operands[0].shape.dimensions
    return math.prod(sizes[d] for d in instruction.op_as(Reduce).dimensions)


def _window_elements(op: ReduceWindow) -> int:
    return math.prod(d.size for d in op.window.dimensions)


def is_free(instruction: Instruction) -> bool:
    """Whether computing it again costs less than reading it: an iota, or a broadcast scalar."""
    if isinstance(instruction.op, Iota):
        return True
    return isinstance(instruction.op, Broadcast) and instruction.operands[0].shape.num_elements == 1


def is_simple(instruction: Instruction) -> bool:
    """Whether it computes each element from those at its own index, in a few machine instructions."""
    return isinstance(instruction.op, ELEMENTWISE) and not isinstance(instruction.op, Expensive)


def is_cheap(instruction: Instruction) -> bool:
    """Whether it may be computed in several loops, because it reads no more elements than it gives."""
    if isinstance(instruction.op, MOVEMENT):
        return True
    if not is_simple(instruction):
        return False
    size = instruction.shape.num_elements
    large = {o for o in instruction.operands if o.shape.num_elements * 4 > size and not is_free(o)}
    return len(large) <= 1


class Seen(NamedTuple):
    """The views through which the loops of a cluster read an instruction.

    written: how often it is written for each view, by the loops of reductions inside of reductions, which are unrolled.
    computed: how many of its elements are computed, the same ones again and again, through each view.
    """

    views: Views
    written: int
    computed: int

    @property
    def code(self) -> int:
        """How often the instruction is emitted."""
        return len(self.views) * self.written


class Cluster:
    """Instructions that become one fusion.

    seen: the views of each member. loops: shared by the clusters of a computation. sizes: the domain's dimensions, and
    over: which of them reductions go over.
    """

    def __init__(self, root: Instruction, loops: Loops, pieces: Mapping[int, int] | None = None) -> None:
        self.members: dict[Instruction, Relation] = {}
        self.roots: list[Instruction] = [root]
        self.operands: set[Instruction] = set()
        self.sizes: tuple[int, ...] = ()
        self.over: frozenset[int] = frozenset()
        self._repeated: dict[Instruction, int] = {}
        self._computed = 0
        self.seen: dict[Instruction, Seen] = {}
        self._loops = loops
        # The iterations at which each loop is cut.
        self._borders: dict[Hashable, frozenset[int]] = {}
        views = _views_of_root(root, pieces or {})
        self._see(root, Seen(views, 1, elements(views[0])))
        if is_large_reduction(root):
            self._set_domain(root)
            self._add(root, Relation.ROW)
        else:
            self.sizes = _dimensions(root)
            self._add(root, Relation.FULL)

    def _set_domain(self, reduce: Instruction) -> None:
        self.sizes = reduce.operands[0].shape.dimensions
        self.over = frozenset(reduce.op_as(Reduce).dimensions)

    def _add(self, instruction: Instruction, relation: Relation) -> None:
        self.members[instruction] = relation
        self.operands.discard(instruction)
        self.operands.update(o for o in instruction.operands if not is_scalar_constant(o))

    def _see(self, instruction: Instruction, seen: Seen) -> None:
        self.seen[instruction] = seen
        self._computed += seen.code * _length(instruction)

    @property
    def updates(self) -> bool:
        """Whether it changes one of its operands in place."""
        return isinstance(self.roots[0].op, DynamicUpdateSlice)

    # -- joining ---------------------------------------------------------------------------------

    def seen_by(self, instruction: Instruction, users: list[Instruction]) -> Seen | None:
        """The views of an instruction by its users in the cluster; None if there are too many."""
        if len(users) == 1 and isinstance(users[0].op, ELEMENTWISE) and instruction.shape.rank == users[0].shape.rank:
            return self.seen[users[0]]
        found: dict[View, None] = {}
        written, computed = 1, 0
        for user in users:
            own = self.seen[user]
            for number, operand in enumerate(user.operands):
                if operand is not instruction:
                    continue
                # A large reduction has loops of its own over its arrays, but not over the initial values behind them.
                if is_large_reduction(user) and number < len(user.operands) // 2:
                    found[self._domain()] = None
                    continue
                times = reduced_size(user, number)
                written, computed = max(written, own.written * times), max(computed, own.computed * times)
                for view in own.views:
                    found.update(dict.fromkeys(views_of_operand(user, number, view, self._loops)))
            if len(found) > _MOST_VIEWS.value:
                return None
        if any(is_in_reduction(view) for view in found):
            return Seen(tuple(found), written, computed)
        # Outside of reductions an instruction is computed once for each element.
        return Seen(tuple(found), 1, max([elements(view) for view in found], default=0))

    def _domain(self) -> View:
        """The view of all elements of the domain, which large reductions read.

        Where the last root is an array of that domain, it is the view of that root, so that both share loops.
        """
        root = self.roots[-1]
        (view, *others) = self.seen[root].views
        return view if not others and _dimensions(root) == self.sizes else whole(self.sizes, "domain")

    def joins(self, instruction: Instruction, users: list[Instruction], seen: Seen) -> bool:
        """Add an instruction, given its users in the cluster; False if it should not join."""
        if len(self.members) >= _MOST_MEMBERS.value or isinstance(instruction.op, DynamicUpdateSlice):
            return False
        if self._computed + seen.code * _length(instruction) > _MOST_COMPUTED.value:
            return False
        if seen.written > 1 and seen.code > _MOST_WRITTEN.value:
            return False
        is_computed = not isinstance(instruction.op, MOVEMENT)
        if is_computed and len(seen.views) > _MOST_BRANCHES.value and any(map(is_in_branch, seen.views)):
            return False
        if instruction.shape.is_tuple:
            return False
        more = len([o for o in instruction.operands if o not in self.operands and not is_scalar_constant(o)])
        if len(self.operands) + more > _MOST_OPERANDS.value:
            return False
        if self.updates and not self._may_feed_update(instruction):
            return False
        cut = self._cut_for(instruction, seen.views)
        if cut is None:
            return False
        repeated = max(self._repetition(instruction, user) for user in users)
        if repeated and not self._may_repeat(instruction, repeated):
            return False
        if is_large_reduction(instruction):
            if not self._take_reduction(instruction, users):
                return False
        else:
            if self.over and not self._suits_reduction(instruction):
                return False
            self._add(instruction, self._relation(instruction, users))
        self._see(instruction, seen)
        self._borders = cut
        self._repeated[instruction] = repeated + (not isinstance(instruction.op, MOVEMENT)) if repeated else 0
        return True

    def _cut_for(self, instruction: Instruction, views: Views) -> dict[Hashable, frozenset[int]] | None:
        """The cuts of loops after an instruction has joined; None if there are too many nests."""
        if not isinstance(instruction.op, (Concatenate, Pad)):
            return self._borders
        found = [
            border
            for number in range(len(instruction.operands))
            for view in views
            for operand in views_of_operand(instruction, number, view, self._loops)
            for border in borders(operand)
        ]
        return self._cut_at(found)

    def _cut_at(self, found: Iterable[tuple[Hashable, int]]) -> dict[Hashable, frozenset[int]] | None:
        cut = dict(self._borders)
        for loop, iteration in found:
            # Only loops over the results are cut, and not at their ends.
            if isinstance(loop, int) and self.sizes[loop] >= _SHORT_LOOP.value and 0 < iteration < self.sizes[loop]:
                cut[loop] = cut.get(loop, frozenset()) | {iteration}
        return cut if math.prod([len(iterations) + 1 for iterations in cut.values()]) <= _MOST_NESTS.value else None

    def may_absorb(self, other: Cluster) -> bool:
        """Whether one nest can compute both clusters, and each reads values of the other as they are computed."""
        for reader, source in ((self, other), (other, self)):
            for root in source.roots:
                if root in reader.operands:
                    users = [m for m in reader.members if root in m.operands]
                    seen = reader.seen_by(root, users)
                    if seen is None or seen.views != source.seen[root].views:
                        return False
        return (
            self._cut_at((loop, iteration) for loop, iterations in other._borders.items() for iteration in iterations)
            is not None
        )

    def _may_feed_update(self, instruction: Instruction) -> bool:
        """Whether it does not read the array that is updated, which may have changed by then."""
        target = self.roots[0].operands[0]
        return not is_large_reduction(instruction) and not _needs(instruction, target)

    def _repetition(self, instruction: Instruction, user: Instruction) -> int:
        """The number of operations that are recomputed along a chain from this user on; 0 if there is none."""
        inherited = self._repeated.get(user, 0)
        if inherited:
            return inherited
        if isinstance(user.op, Broadcast) and user.shape.num_elements > instruction.shape.num_elements:
            leading = user.op.dimensions == tuple(range(len(user.op.dimensions)))
            # Along a leading dimension the value is computed once, outside of the inner loops.
            return 0 if leading or instruction.shape.num_elements == 1 else 1
        if isinstance(user.op, ReduceWindow):
            return 1
        if isinstance(user.op, Gather) and user.operands[0] is instruction:
            return int(user.shape.num_elements > instruction.shape.num_elements)
        return 0

    def _may_repeat(self, instruction: Instruction, repeated: int) -> bool:
        if isinstance(instruction.op, MOVEMENT):
            return True
        return is_simple(instruction) and repeated <= _MOST_REPEATED

    def _suits_reduction(self, instruction: Instruction) -> bool:
        """Whether a reduction reads memory in order: no transpose moves the minor dimension."""
        if isinstance(instruction.op, Transpose):
            dimensions = instruction.op.dimensions
            return not dimensions or dimensions[-1] == len(dimensions) - 1
        return True

    def _relation(self, instruction: Instruction, users: list[Instruction]) -> Relation:
        found = {self._seen_by(user) for user in users}
        return found.pop() if len(found) == 1 else Relation.OTHER

    def _seen_by(self, user: Instruction) -> Relation:
        """The relation of an operand of ``user``."""
        relation = self.members[user]
        if is_large_reduction(user):
            return Relation.FULL
        if isinstance(user.op, (*ELEMENTWISE, Reshape)):
            return relation
        if isinstance(user.op, Broadcast) and relation is Relation.FULL:
            dimensions = user.op.dimensions
            if self.over and dimensions == tuple(d for d in range(len(self.sizes)) if d not in self.over):
                return Relation.ROW
            rank = len(dimensions)
            if not self.over and dimensions == tuple(range(rank)) and user.shape.dimensions == self.sizes:
                return Relation.ROW
        return Relation.OTHER

    def _take_reduction(self, reduce: Instruction, users: list[Instruction]) -> bool:
        sizes = reduce.operands[0].shape.dimensions
        over = frozenset(reduce.op_as(Reduce).dimensions)
        if len(self.seen[self.roots[-1]].views) > 1:
            # Reductions have loops of their own, without pieces.
            return False
        if self.over and (sizes != self.sizes or over != self.over):
            return False
        relation = self._relation(reduce, users)
        results = math.prod(size for d, size in enumerate(sizes) if d not in over)
        if not self.over and relation is Relation.FULL and math.prod(self.sizes) == results:
            # Users of a reduction's results: their elements are the rows of the domain.
            if any(r is Relation.ROW for r in self.members.values()):
                return False
            for member, old in self.members.items():
                self.members[member] = Relation.ROW if old is Relation.FULL else Relation.OTHER
            self._set_domain(reduce)
            self._add(reduce, Relation.ROW)
            return True
        if relation is not Relation.ROW or sizes != self.sizes or reduce.shape.dimensions != self._rows(over):
            return False
        if not _is_trailing(over, len(sizes)) or (results < _FEW_ROWS.value and math.prod(sizes) > _SHORT_ROW.value):
            return False
        self._set_domain(reduce)
        self._add(reduce, Relation.ROW)
        return True

    def _rows(self, over: frozenset[int]) -> tuple[int, ...]:
        return tuple(size for d, size in enumerate(self.sizes) if d not in over)

    def absorb(self, other: Cluster) -> None:
        """Merge with another cluster of the same domain."""
        self.members.update(other.members)
        self.roots = [*other.roots, *self.roots]
        self.seen.update(other.seen)
        self._computed += other._computed
        self._borders = (
            self._cut_at((loop, iteration) for loop, iterations in other._borders.items() for iteration in iterations)
            or {}
        )
        self._repeated.update(other._repeated)
        self.operands = (self.operands | other.operands) - set(self.members)


def _dimensions(root: Instruction) -> tuple[int, ...]:
    shape = root.shape
    return shape.tuple_shapes[0].dimensions if shape.is_tuple else shape.dimensions


def _length(instruction: Instruction) -> int:
    """The number of operations for one element; a small product is unrolled, a choice reads one element of each
    operand.
    """
    if isinstance(instruction.op, Concatenate):
        return len(instruction.operands)
    return reduced_size(instruction, 0) if isinstance(instruction.op, Dot) else 1


def _views_of_root(root: Instruction, pieces: Mapping[int, int]) -> Views:
    """The view of the whole root, or one view for each piece, all with the same loops."""
    spans: list[list[Span]] = []
    for d, size in enumerate(_dimensions(root)):
        count = pieces.get(d, 1)
        spans.append([span(k * (size // count), 1, size // count, d) for k in range(count)])
    return tuple(itertools.product(*spans))


def _needs(instruction: Instruction, source: Instruction) -> bool:
    """Whether an instruction could be computed from another one within a fusion."""
    stack, seen = [instruction], {instruction}
    while stack:
        node = stack.pop()
        if node is source or len(seen) > _MOST_MEMBERS.value:
            return True
        if is_fusible(node):
            fresh = [o for o in node.operands if o not in seen]
            seen.update(fresh)
            stack.extend(fresh)
    return False


def _is_trailing(over: frozenset[int], rank: int) -> bool:
    return over == frozenset(range(rank - len(over), rank))
