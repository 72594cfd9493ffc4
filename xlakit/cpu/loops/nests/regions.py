"""Results made of pieces: concatenations, paddings, windows that extend over a border.

If a condition on one loop variable decides to which piece an element belongs, the range of the variable is divided
there. Each region is a nest of its own, in which the condition is known at compile time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Phase, Split, joined, nest, store_all, task_function
from xlakit.cpu.loops.emit.lanes import LEAST_LANES, lanes_of
from xlakit.cpu.loops.emit.levels import Level, Output
from xlakit.cpu.loops.ir.cost import element_cost
from xlakit.cpu.loops.ir.index import Affine, Node, SplitVariable, Variable
from xlakit.cpu.loops.ir.nodes import Bound, Divided, Guarded, GuardedReduction, indices_of, walk
from xlakit.cpu.loops.ir.space import Group, Position, Space, merged, with_splits
from xlakit.cpu.loops.nests.loop_kernel import loop_kernel
from xlakit.cpu.loops.nests.tiling import SHORT, Crossing
from xlakit.dataclass import dataclass
from xlakit.options import knob

# Makes the variables of a nest, and its outputs.
Make = Callable[[Space], "tuple[list[Variable], list[Output]]"]

_MOST_REGIONS = knob("regions.most_regions", 16, 2)
_MOST_PIECES = knob("regions.most_pieces", 64, 2)
# Regions have so many elements on average, a few vectors, or else conditions are left in fewer regions; those of
# windows have more: their loops, which are written out in each, take hardly longer with bounds that are computed.
_LEAST_ELEMENTS = knob("regions.least_elements", 32, 2)
_LEAST_OF_WINDOWS = knob("regions.least_of_windows", 256, 2)
# With more nodes in all regions, one nest with conditions is made.
_MOST_NODES = 4000
# If all pieces of a row have fewer elements than this, one loop over rows writes all of them.
_SHORT_PIECE = knob("regions.short_piece", 4096, 1)
# So many nodes of a short piece are written out, where other pieces are computed in vectors: a loop takes longer.
_MOST_WRITTEN = knob("regions.most_written", 16, 0)


def emit_nest(module: Module, name: str, arrays: int, make: Make) -> Phase:
    """The kernel of a nest over the variables that ``make`` requests, divided into regions if that helps."""
    splits: dict[int, list[int]] = {}
    spaces: list[Space] = []

    def remembering(space: Space) -> tuple[list[Variable], list[Output]]:
        spaces.append(space)
        return make(space)

    variables, outputs = with_splits(remembering, splits)
    cuts = _cuts(variables, outputs)
    if not cuts:
        return loop_kernel(module, name, arrays, variables, outputs)
    pieces = {spaces[-1].position_of(v): _ranges(v.extent, at) for v, at in cuts.items()}
    minor = spaces[-1].position_of(variables[-1])
    regions = _Regions(make, splits, pieces, minor, _divisions(outputs))
    try:
        phases = regions.emit(module, name, arrays)
    except SplitVariable:
        # With these regions, a reshape would need variables that are split in another way.
        phases = None
    return joined(module, name, phases) if phases else loop_kernel(module, name, arrays, variables, outputs)


# -- where to cut --------------------------------------------------------------------------------


def _cuts(variables: Sequence[Variable], outputs: Sequence[Output]) -> dict[Variable, list[int]]:
    """The values at which the ranges of variables are divided."""
    elements = math.prod(v.extent for v in variables)
    if elements < min(_LEAST_ELEMENTS.value, _LEAST_OF_WINDOWS.value):
        return {}
    nodes = list(walk(n for o in outputs for n in o.nodes))
    has_windows = any(isinstance(n, GuardedReduction) for n in nodes)
    regions = min(_MOST_REGIONS.value, elements // (_LEAST_OF_WINDOWS if has_windows else _LEAST_ELEMENTS).value)
    if not regions:
        return {}
    found: dict[Variable, set[int]] = {}
    for node in nodes:
        if isinstance(node, (Guarded, GuardedReduction)):
            for bound in node.bounds:
                _add_cuts(found, variables, bound)
    if variables[-1].extent <= SHORT.value:
        # A short row is unrolled, with all conditions known.
        found.pop(variables[-1], None)
    cuts = {v: sorted(at) for v, at in found.items() if at}
    while len(cuts) > 1 and _count(cuts) > regions:
        del cuts[max(cuts, key=lambda v: (len(cuts[v]), -v.number))]
    count = _count(cuts)
    return cuts if 1 < count <= _MOST_PIECES.value and count * len(nodes) <= _MOST_NODES else {}


def _count(cuts: Mapping[Variable, Sequence[int]]) -> int:
    return math.prod(len(at) + 1 for at in cuts.values())


def _add_cuts(found: dict[Variable, set[int]], variables: Sequence[Variable], bound: Bound) -> None:
    affine, low, high, _ = bound
    own = [(atom, c) for atom, c in affine.terms if isinstance(atom, Variable) and atom in variables]
    others = [(atom, c) for atom, c in affine.terms if (atom, c) not in own]
    if len(own) != 1 or any(not isinstance(atom, Variable) for atom, _ in others):
        return
    ((variable, factor),) = own
    # Whatever the values of a window's variables, the other terms are between these bounds.
    least, greatest = Affine(tuple(others), affine.constant).bounds
    first, last = low - least, high - greatest
    if factor < 0:
        first, last, factor = -last, -first, -factor
    begin, end = -(-first // factor), last // factor + 1
    if begin < end:
        found.setdefault(variable, set()).update(at for at in (begin, end) if 0 < at < variable.extent)


def _ranges(extent: int, at: Sequence[int]) -> list[range]:
    return [range(a, b) for a, b in itertools.pairwise([0, *at, extent])]


def _divisions(outputs: Sequence[Output]) -> int:
    return sum(isinstance(n, Divided) for n in walk(n for o in outputs for n in o.nodes))


# -- regions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Regions:
    """The pieces into which the ranges of variables are divided."""

    make: Make
    splits: dict[int, list[int]]
    pieces: dict[Position, list[range]]
    minor: Position
    divisions: int

    def emit(self, module: Module, name: str, arrays: int) -> list[Phase] | None:
        """A kernel for each region; None if regions have more indices that are divided at run time."""
        rows = self.pieces.get(self.minor, [])
        together = bool(rows) and max(len(r) for r in rows) < _SHORT_PIECE.value
        cut = {position: p for position, p in self.pieces.items() if not together or position != self.minor}
        phases: list[Phase] = []
        for number, chosen in enumerate(itertools.product(*cut.values())):
            pieces = dict(zip(cut, chosen, strict=True))
            label = f"{name}.region{number}"
            if not together:
                _, variables, outputs = self._traced(pieces, {})
                if _divisions(outputs) > self.divisions:
                    return None
                phases.append(loop_kernel(module, label, arrays, variables, outputs))
                continue
            made = self._rows(module, label, arrays, pieces, rows)
            if made is None:
                return None
            phases += made
        return phases

    def _traced(
        self, pieces: Mapping[Position, range], known: Mapping[Position, Variable]
    ) -> tuple[Space, list[Variable], list[Output]]:
        space = Space(self.splits, pieces, known)
        variables, outputs = self.make(space)
        return space, variables, outputs

    def _rows(
        self, module: Module, name: str, arrays: int, pieces: Mapping[Position, range], rows: Sequence[range]
    ) -> list[Phase] | None:
        """Kernels in which the pieces of a row share the outer loops."""
        outer: list[Variable] | None = None
        known: dict[Position, Variable] = {}
        parts: list[tuple[list[Variable], list[Output]]] = []
        for row in rows:
            space, variables, outputs = self._traced({**pieces, self.minor: row}, known)
            if _divisions(outputs) > self.divisions:
                return None
            inner = [v for v in variables if space.position_of(v) == self.minor]
            if outer is None:
                outer = [v for v in variables if v not in inner]
                known = {space.position_of(v): v for v in outer}
            parts.append((inner, outputs))
        outer = outer or []
        if any(_crosses([*outer, *inner], outputs) for inner, outputs in parts):
            return [
                loop_kernel(module, f"{name}.piece{k}", arrays, [*outer, *inner], outputs)
                for k, (inner, outputs) in enumerate(parts)
            ]
        return [_row_kernel(module, name, arrays, outer, parts)]


def _crosses(variables: Sequence[Variable], outputs: Sequence[Output]) -> bool:
    nodes, offsets = [n for o in outputs for n in o.nodes], [o.offset for o in outputs]
    return Crossing.of(merged(variables, indices_of(nodes, offsets)), nodes, offsets) is not None


def _row_kernel(
    module: Module,
    name: str,
    arrays: int,
    outer: Sequence[Variable],
    parts: Sequence[tuple[list[Variable], list[Output]]],
) -> Phase:
    nodes = [n for _, outputs in parts for o in outputs for n in o.nodes]
    groups = merged(outer, indices_of(nodes, [o.offset for _, outputs in parts for o in outputs]))
    row = sum(
        element_cost(n for o in outputs for n in o.nodes) * math.prod(v.extent for v in inner)
        for inner, outputs in parts
    )
    split = Split.of(groups, row)
    known = frozenset(outer)
    fn, emitter, begin, end = task_function(module, name, arrays, _lanes_of_pieces(parts))
    with split.tasks(fn, emitter, begin, end, nodes) as levels:
        nest(emitter, levels, nodes, lambda: _write_pieces(emitter, parts, known), independent=False)
    nests = tuple((Accesses.of(outputs),) for _, outputs in parts)
    return Phase(fn.name, split.count, row * math.prod(g.extent for g in groups), nests=nests)


def _lanes_of_pieces(parts: Sequence[tuple[list[Variable], list[Output]]]) -> int:
    """The lanes of the vectors in which the pieces of a row are computed; 1 if one of them is left to LLVM."""
    lanes = 1
    for inner, outputs in parts:
        if inner and inner[-1].extent >= LEAST_LANES:
            own = lanes_of(Group([inner[-1]]), [n for o in outputs for n in o.nodes], outputs)
            if own == 1:
                return 1
            lanes = max(lanes, own)
    return lanes


def _write_pieces(
    emitter: Emitter, parts: Sequence[tuple[list[Variable], list[Output]]], known: frozenset[Variable]
) -> None:
    for inner, outputs in parts:
        nodes: list[Node] = [n for o in outputs for n in o.nodes]
        store = partial(store_all, emitter, outputs)
        length = math.prod(v.extent for v in inner) * sum(1 for _ in walk(nodes))
        with emitter.scope():
            emitter.hoist(nodes, known)
            if emitter.lanes > 1 and len(inner) == 1 and length <= _MOST_WRITTEN.value:
                for number in range(inner[0].extent):
                    with emitter.scope():
                        emitter.bind_group(Group(inner), emitter.fn.i64(number))
                        store()
            else:
                nest(emitter, [Level(Group([v]), 0, v.extent) for v in inner], nodes, store, outputs)
