"""Partial sorts: sorts of which only few elements are read.

The pass fuses a sort and slices of the first or the last few elements of each row; the kernel selects these elements
and sorts no others. The results have the same bits for any comparator that is recognized, NaN and zeros included, and
for all operands that are sorted along: the fusion's computation is still the sort. The first 10 of each 20,000 elements
take a fortieth of the time of their sort (``jnp.sort(x)[:, :10]``, f32[64,20000]), the first 10 of an argsort a
sixtieth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xlakit.dataclass import dataclass
from xlakit.ir.attributes import SliceDimension
from xlakit.ir.def_use import users_of
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, Instruction, post_order
from xlakit.ops.control import Fusion
from xlakit.ops.data import GetTupleElement, Iota
from xlakit.ops.elementwise.unary import Negate
from xlakit.ops.movement import Reshape, Slice
from xlakit.ops.sort import Sort
from xlakit.options import knob
from xlakit.passes.analysis.sort_order import Part, SortKey, counts_along, recognize_order
from xlakit.passes.core.computation_builder import ComputationBuilder, ComputationCloner
from xlakit.passes.core.framework import PassContext, ProgramPass, is_fixed, live_instructions
from xlakit.passes.core.matching import one_type, permutation_inverse

# If more than one in so many elements is selected, or more of a row than _MOST_WANTED, a full sort takes about as long.
_SORTED_FOR_EACH = knob("top_k_rewrite.sorted_for_each", 16, 1, 2)
_MOST_WANTED = 8192


@dataclass(frozen=True, slots=True)
class PartialSort:
    """``slice(sort(..))``: the first ``count`` elements of each row, or the ``last`` ones, of some of its results.

    key: the only sort key. results: the numbers of the sort's results that are sliced.
    """

    sort: Instruction
    key: SortKey
    count: int
    last: bool
    results: tuple[int, ...]


def partial_sort(computation: Computation) -> PartialSort | None:
    """The partial sort along the last dimension that a computation is; None if it is none."""
    partial: PartialSort | None = None
    for part in computation.results:
        if not isinstance(part.op, Slice):
            return None
        (whole,) = part.operands
        sort, number = (whole.operands[0], whole.op.index) if isinstance(whole.op, GetTupleElement) else (whole, 0)
        *row_dimensions, size = whole.shape.dimensions
        cut = part.op.slice[-1]
        if not isinstance(sort.op, Sort) or part.op.slice[:-1] != tuple(SliceDimension(0, n) for n in row_dimensions):
            return None
        if cut.stride != 1 or (cut.start and cut.limit != size) or sort.op.dimension != len(row_dimensions):
            return None
        if partial is None:
            key = _single_key(sort)
            if key is None:
                return None
            partial = PartialSort(sort, key, cut.limit - cut.start, cut.start > 0, (number,))
        elif partial.sort is sort and (partial.count, partial.last) == (cut.limit - cut.start, cut.start > 0):
            partial = PartialSort(sort, partial.key, partial.count, partial.last, (*partial.results, number))
        else:
            return None
    return partial


def _single_key(sort: Instruction) -> SortKey | None:
    """The key of a sort that has one key, which is a whole operand of the comparator's type; else None."""
    order = recognize_order(sort.op_as(Sort).to_apply)
    if order is None or len(order) != 1 or order[0].part is not Part.WHOLE:
        return None
    return order[0] if order[0].kind is sort.operands[order[0].operand].shape.element_type else None


def is_index(operand: Instruction, dimension: int) -> bool:
    """Whether each element of a sort's operand is its own index, as an integer of one byte or more."""
    kind = operand.shape.element_type
    return kind.is_integral and kind.bit_width >= 8 and counts_along(operand, dimension)


class PartialSorts(ProgramPass):
    """Make one fusion of a sort and slices of the first or the last few elements of each row.

    ``slice(sort(x)) -> fusion(x)``, where nothing else of the sort is read. In the fusion, rows lie along the last
    dimension. A key that is negated for a descending order is replaced by the key itself, sorted by a comparator that
    negates.
    """

    name = "partial-sorts"
    left_out_by = "fusion"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Fuse in one computation."""
        sorts = [i for i in computation.instructions if isinstance(i.op, Sort) and not is_fixed(i)]
        if not sorts:
            return computation
        users = _users(computation)
        cuts = {s: w for s in sorts if (w := _cut_of(s, users, context)) is not None and context.spend("partial-sort")}
        return _Cutting(computation, cuts, context).result() if cuts else computation


@dataclass(frozen=True, slots=True)
class _SortCut:
    """The part of a sort that is read.

    operands: the numbers of the operands to sort: the key, and those whose results are read. negated: the number of the
    key if it is a negation, whose operand is sorted instead. slices: for each result the slices that are read; they
    take elements among the first ``count`` of each row, or the last ``count``.
    """

    sort: Instruction
    operands: tuple[int, ...]
    comparator: Computation
    negated: int | None
    slices: Mapping[int, Sequence[Instruction]]
    count: int
    last: bool

    @property
    def dimension(self) -> int:
        """The dimension along which the sort orders elements."""
        return self.sort.op_as(Sort).dimension

    @property
    def start(self) -> int:
        """The index in a row at which the selected elements begin."""
        return self.sort.operands[0].shape.dimensions[self.dimension] - self.count if self.last else 0


def _users(computation: Computation) -> dict[Instruction, list[Instruction]]:
    """The live users and control successors of each instruction; the root counts as its own user."""
    live = live_instructions(computation)
    users = users_of((i for i in computation.instructions if i in live), control=True)
    users.setdefault(computation.root, []).append(computation.root)
    return users


def _cut_of(sort: Instruction, users: dict[Instruction, list[Instruction]], context: PassContext) -> _SortCut | None:
    """The part of a sort that is read, if only slices read it, of few elements at one end; else None."""
    dimension = sort.op_as(Sort).dimension
    length = sort.operands[0].shape.dimensions[dimension]
    slices = _slices(sort, users)
    ranges = [part.op_as(Slice).slice[dimension] for parts in slices.values() for part in parts]
    if not ranges or any(r.start == r.limit for r in ranges) or not _keeps_types(sort):
        return None
    start, limit = min(r.start for r in ranges), max(r.limit for r in ranges)
    count, last = (limit, False) if limit <= length - start else (length - start, True)
    key = _single_key(sort) if count <= min(length // _SORTED_FOR_EACH.value, _MOST_WANTED) else None
    if key is None or is_index(sort.operands[key.operand], dimension):
        return None
    operands = tuple(sorted({key.operand, *slices}))
    if _is_negative(sort.operands[key.operand]):
        comparator = _comparator(sort, operands, key.operand, context)
        if recognize_order(comparator) is not None:
            return _SortCut(sort, operands, comparator, key.operand, slices, count, last)
    return _SortCut(sort, operands, _comparator(sort, operands, None, context), None, slices, count, last)


def _slices(sort: Instruction, users: dict[Instruction, list[Instruction]]) -> dict[int, list[Instruction]]:
    """The slices of each result of a sort; empty if anything else reads it."""
    slices: dict[int, list[Instruction]] = {}
    for whole in users.get(sort, ()) if sort.shape.is_tuple else (sort,):
        number = whole.op.index if isinstance(whole.op, GetTupleElement) else 0
        if whole is not sort and (not isinstance(whole.op, GetTupleElement) or is_fixed(whole)):
            return {}
        for part in users.get(whole, ()):
            if not isinstance(part.op, Slice) or is_fixed(part):
                return {}
            slices.setdefault(number, []).append(part)
    return dict(sorted(slices.items()))


def _keeps_types(sort: Instruction) -> bool:
    """Whether the results have the declared shapes of the operands, and static sizes."""
    shapes = sort.shape.tuple_shapes_or_self
    return not sort.shape.is_dynamic and all(
        shape.without_layout() == operand.shape.without_layout()
        for shape, operand in zip(shapes, sort.operands, strict=True)
    )


def _is_negative(operand: Instruction) -> bool:
    return isinstance(operand.op, Negate) and not is_fixed(operand) and one_type(operand)


def _comparator(sort: Instruction, operands: Sequence[int], negated: int | None, context: PassContext) -> Computation:
    """The comparator for a sort of these operands only; it negates the elements of operand ``negated``."""
    old = sort.op_as(Sort).to_apply
    if negated is None and len(operands) == len(sort.operands):
        return old
    builder = ComputationBuilder(context)
    clones: dict[Instruction, Instruction] = {}
    for position, number in enumerate(operands):
        for side in range(2):
            parameter = old.parameters[2 * number + side]
            value = builder.parameter(2 * position + side, parameter.shape)
            clones[parameter] = builder.apply("negate", value) if number == negated else value
    for each in post_order([old.root]):
        if each not in clones:
            clones[each] = builder.add(each.op, *(clones[o] for o in each.operands), shape=each.shape)
    return builder.computation(old.name, clones[old.root])


class _Cutting(ComputationCloner):
    """A copy of a computation with fusions in place of sorts and their slices."""

    def __init__(self, computation: Computation, cuts: Mapping[Instruction, _SortCut], context: PassContext) -> None:
        super().__init__(computation, context)
        self._old = computation
        self._cuts = cuts

    def result(self) -> Computation:
        """The new computation."""
        left_out = {part for w in self._cuts.values() for parts in w.slices.values() for part in parts}
        left_out |= {part.operands[0] for part in left_out}
        # Dead instructions may read slices that are left out, so they are not cloned.
        live = live_instructions(self._old)
        for old in self._old.instructions:
            if old in self._cuts:
                self._cut(self._cuts[old])
            elif old in live and old not in left_out:
                self.clone(old)
        return self.build()

    def _cut(self, cut: _SortCut) -> None:
        """Replace a sort and its slices by a fusion and slices of its result."""
        sort, dimension = cut.sort, cut.dimension
        rank = sort.operands[0].shape.rank
        rows_last = (*(d for d in range(rank) if d != dimension), dimension)
        sources: dict[int, Instruction] = {}
        for number in cut.operands:
            operand = sort.operands[number]
            if not is_index(operand, dimension):
                source = operand.operands[0] if number == cut.negated else operand
                sources[number] = self._permuted(self.clones[source], rows_last)
        calls = _body(cut, sources, self.context)
        fusion = self.add(
            Fusion(kind=FusionKind.OUTPUT, calls=calls), *sources.values(), like=sort, shape=calls.root.shape
        )
        for position, (number, parts) in enumerate(cut.slices.items()):
            few = self.at(sort).element(fusion, position) if fusion.shape.is_tuple else fusion
            few = self._permuted(few, permutation_inverse(rows_last))
            if number == cut.negated:
                few = self.at(sort).apply("negate", few)
            for part in parts:
                self.substitute(part, self._sliced(few, part, dimension, cut.start))

    def _permuted(self, x: Instruction, permutation: tuple[int, ...]) -> Instruction:
        """An array with permuted dimensions; a reshape if only dimensions of size 1 move."""
        sizes = x.shape.dimensions
        if permutation == tuple(sorted(permutation)):
            return x
        moved = [d for d in permutation if sizes[d] != 1]
        if moved != sorted(moved):
            return self.at(x).transpose(x, permutation)
        return self.add(Reshape(), x, like=x, shape=x.shape.with_dimensions([sizes[d] for d in permutation]))

    def _sliced(self, few: Instruction, part: Instruction, dimension: int, start: int) -> Instruction:
        """The slice ``part`` of the whole result, taken from the few elements that begin at index ``start``."""
        ranges = list(part.op_as(Slice).slice)
        cut = ranges[dimension]
        ranges[dimension] = SliceDimension(cut.start - start, cut.limit - start, cut.stride)
        if ranges == [SliceDimension(0, size) for size in few.shape.dimensions]:
            return few
        return self.at(part).slice(few, ranges)


def _body(cut: _SortCut, sources: Mapping[int, Instruction], context: PassContext) -> Computation:
    """The computation of a fusion: sort the rows of its parameters, and slice the results."""
    builder = ComputationBuilder(context)
    parameters = {n: builder.parameter(position, x.shape) for position, (n, x) in enumerate(sources.items())}
    shape = next(iter(sources.values())).shape.without_layout()
    row_dimensions = shape.dimensions[:-1]
    operands: list[Instruction] = []
    for number in cut.operands:
        kind = cut.sort.operands[number].shape.element_type
        index = Iota(iota_dimension=len(row_dimensions))
        operand = parameters.get(number) or builder.add(index, shape=shape.with_element_type(kind))
        operands.append(operand)
    op = Sort(dimension=len(row_dimensions), is_stable=cut.sort.op_as(Sort).is_stable, to_apply=cut.comparator)
    sort = builder.add(op, *operands)
    ranges = (*(SliceDimension(0, size) for size in row_dimensions), SliceDimension(cut.start, cut.start + cut.count))
    few: list[Instruction] = []
    for number in cut.slices:
        whole = builder.element(sort, cut.operands.index(number)) if sort.shape.is_tuple else sort
        few.append(builder.slice(whole, ranges))
    root = few[0] if len(few) == 1 else builder.tuple(*few)
    return builder.computation("partial_sort", root)
