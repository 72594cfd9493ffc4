"""Loop nests that read across memory: the innermost loop of the results jumps through an operand.

Such a nest runs tile by tile. Operands read with jumps are first copied, transposed in registers, into a buffer that
stays in the first-level cache; the loops of the tile then run along memory both in reads and in writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from xlakit import machine
from xlakit.cpu.llvm import I8, VOID, Effort, Function, Module, Value
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Phase, store_all, task_function
from xlakit.cpu.loops.emit.levels import Output
from xlakit.cpu.loops.emit.non_temporal import (
    LEAST_SCATTERED,
    LINE_BYTES,
    alone,
    copy_past_caches,
    has_non_temporal_stores,
    is_slow,
    written_past_caches,
)
from xlakit.cpu.loops.ir.cost import element_cost
from xlakit.cpu.loops.ir.index import Affine, Node, Variable
from xlakit.cpu.loops.ir.nodes import Load, Reduction, unconditional, walk
from xlakit.cpu.loops.ir.space import Group
from xlakit.cpu.loops.nests.transpose import block_transposer
from xlakit.cpu.scalars import load as load_element
from xlakit.dataclass import dataclass
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model

# All buffers of a tile stay in the first-level cache, beside the lines that are read and written.
_BUFFER_BYTES = knob("tiling.buffer_bytes", lambda: machine.current().l1 // 2, 1024, tries=(times(0.5), times(2)))
_RUN_BYTES = knob("tiling.run_bytes", 256, 64)
_MOST_RUN = knob("tiling.most_run", 128, 32)
# Tiles begin at multiples of this.
_UNIT = 32
_VECTOR_BYTES = 32
# Fewer lines of a run of computed results, some of them in part, gain nothing by going past the caches.
_LEAST_LINES = 4
# Shorter dimensions are unrolled in the loop over the other dimension.
SHORT = knob("tiling.short", 8, 1, 30)
_LEAST_ELEMENTS = knob("tiling.least_elements", 512, 1)
# Cycles to copy an element into the buffer.
_STAGING_CYCLES = 1.2


@dataclass(frozen=True, slots=True)
class Crossing:
    """A nest whose innermost loop ``inner`` jumps through some operands, which are contiguous along ``across``."""

    outer: tuple[Group, ...]
    across: Group
    inner: Group
    staged: tuple[Load, ...]

    @staticmethod
    def of(groups: Sequence[Group], nodes: Sequence[Node], offsets: Sequence[Affine]) -> Crossing | None:
        """The crossing of a nest that reads across memory; None for other nests."""
        if len(groups) < 2 or math.prod(g.extent for g in groups) < _LEAST_ELEMENTS.value:
            return None
        all_nodes = list(walk(nodes))
        inner = groups[-1]
        if any(isinstance(n, Reduction) for n in all_nodes) or any(_stride(o, inner) != 1 for o in offsets):
            return None
        jumping = [n for n in all_nodes if isinstance(n, Load) and abs(_stride(n.offset, inner)) > 1]
        found: dict[Group, list[Load]] = {}
        for node in jumping:
            for group in groups[:-1]:
                if _stride(node.offset, group) == 1:
                    found.setdefault(group, []).append(node)
        if not found:
            return None
        across = max(found, key=lambda g: (len(found[g]), g.extent))
        always = set(_always_computed(nodes))
        staged = [n for n in found[across] if n in always and _stride(n.offset, inner) > 0 and _is_plain(n.offset)]
        outer = tuple(g for g in groups[:-1] if g is not across)
        return Crossing(outer, across, inner, tuple(dict.fromkeys(staged)))

    @property
    def is_short(self) -> bool:
        """Whether one of the two dimensions is so short that it is unrolled."""
        return min(self.across.extent, self.inner.extent) <= SHORT.value

    def reordered(self) -> list[Group]:
        """The loops with the short one innermost."""
        if self.inner.extent <= SHORT.value:
            return [*self.outer, self.across, self.inner]
        return [*self.outer, self.inner, self.across]


def _stride(offset: Affine, group: Group) -> int:
    return offset.factor_of(group.variables[-1])


def _is_plain(offset: Affine) -> bool:
    return all(isinstance(atom, Variable) for atom, _ in offset.terms)


def _always_computed(nodes: Iterable[Node]) -> Iterator[Node]:
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(unconditional(node))


# -- tiles ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The division of a dimension into blocks of about ``size`` elements, which begin at whole units."""

    extent: int
    size: int

    @property
    def units(self) -> int:
        """The number of whole units; the elements beyond belong to the last block."""
        return max(1, self.extent // _UNIT)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.units // max(1, self.size // _UNIT))

    @property
    def most(self) -> int:
        """The most elements that a block has."""
        return min(self.extent, -(-self.units // self.blocks) * _UNIT + _UNIT - 1)

    def bounds(self, fn: Function, number: Value) -> tuple[Value, Value]:
        """The begin and end of a block."""
        if self.blocks == 1:
            return fn.i64(0), fn.i64(self.extent)
        begin = (number * self.units).integer("udiv", self.blocks) * _UNIT
        following = number + 1
        end = (following * self.units).integer("udiv", self.blocks) * _UNIT
        return begin, fn.select(following.eq(self.blocks), fn.i64(self.extent), end)


def tiled_kernel(
    module: Module, name: str, arrays: int, crossing: Crossing, nodes: Sequence[Node], outputs: Sequence[Output]
) -> Phase:
    """The kernel of a nest that reads across memory: a task is a tile."""
    kernel = _Tiled(crossing, list(nodes), list(outputs))
    elements = math.prod(g.extent for g in (*crossing.outer, crossing.across, crossing.inner))
    fn, emitter, begin, end = task_function(module, name, arrays)
    fn.effort = Effort.CODE if kernel.copies else Effort.ALL
    buffers = [fn.alloca(I8, kernel.buffer_bytes(n), align=64) for n in crossing.staged]
    runs = [fn.alloca(I8, kernel.along.most * o.kind.byte_width, align=64) for o in kernel.bypassing]
    with fn.loop(begin, end) as loop, emitter.scope():
        kernel.write(emitter, loop.index, buffers, runs)
    cost = element_cost(nodes) + cost_model().cycles(_STAGING_CYCLES) * max(1, len(crossing.staged))
    return Phase(fn.name, kernel.tasks, cost * elements, nests=((Accesses.of(outputs),),))


class _Tiled:
    """The tiles of one nest: their sizes and their code."""

    def __init__(self, crossing: Crossing, nodes: list[Node], outputs: list[Output]) -> None:
        self.crossing = crossing
        self.nodes = nodes
        self.outputs = outputs
        width = max((n.kind.byte_width for n in crossing.staged), default=4)
        run = min(_MOST_RUN.value, _RUN_BYTES.value // width)
        depth = max(_UNIT, _BUFFER_BYTES.value // (width * run * max(1, len(crossing.staged))) // _UNIT * _UNIT)
        self.along = _Blocks(crossing.inner.extent, run)
        self.across = _Blocks(crossing.across.extent, min(_MOST_RUN.value, depth))
        self.tasks = math.prod(g.extent for g in crossing.outer) * self.along.blocks * self.across.blocks
        # The outputs are only copies of staged operands, so that whole vectors are stored to the results.
        self.copies = all(o.node in crossing.staged for o in outputs) and all(_is_plain(o.offset) for o in outputs)
        self.bypassing = [] if is_slow(outputs, crossing.inner) else list(filter(self._bypasses, alone(outputs)))

    def _bypasses(self, output: Output) -> bool:
        width = output.kind.byte_width
        elements = math.prod(g.extent for g in (*self.crossing.outer, self.crossing.across, self.crossing.inner))
        is_large = elements * width > LEAST_SCATTERED.value
        if not (is_large and _is_plain(output.offset) and has_non_temporal_stores()):
            return False
        # A run that was just computed is slow to copy by other vectors than it was stored by, as the ends of lines are.
        starts = [output.offset.constant, _UNIT, *(c for _, c in output.offset.terms if c != 1)]
        has_ends = any(n * width % LINE_BYTES for n in starts)
        return self.copies or not has_ends or self.along.size * width >= _LEAST_LINES * LINE_BYTES

    def buffer_bytes(self, node: Load) -> int:
        """The bytes of the buffer of an operand."""
        return self.stride(node) * self.across.most * node.kind.byte_width

    def stride(self, node: Load) -> int:
        """The distance of a buffer's columns in elements: whole vectors, one more than needed, against conflicts."""
        vector_length = max(1, _VECTOR_BYTES // node.kind.byte_width)
        return (-(-self.along.most // vector_length) + 1) * vector_length

    def write(self, emitter: Emitter, task: Value, buffers: Sequence[Value], runs: Sequence[Value]) -> None:
        """Write the code of one tile."""
        fn, crossing = emitter.fn, self.crossing
        number = task
        across = self.across.bounds(fn, number.integer("urem", self.across.blocks))
        number = number.integer("udiv", self.across.blocks)
        along = self.along.bounds(fn, number.integer("urem", self.along.blocks))
        number = number.integer("udiv", self.along.blocks)
        emitter.bind_groups(crossing.outer, number)
        known = frozenset(v for g in crossing.outer for v in g.variables)
        emitter.hoist([n for n in self.nodes if n not in crossing.staged], known)
        sizes = (along[1] - along[0], across[1] - across[0])
        for node, buffer in zip(crossing.staged, buffers, strict=True):
            self._stage(emitter, node, buffer, (along[0], across[0]), sizes)
        if self.copies:
            for output in self.outputs:
                self._copy(emitter, output, buffers, (along[0], across[0]), sizes)
        else:
            self._compute(emitter, buffers, runs, (along[0], across[0]), sizes, known)

    def _tile_offset(self, emitter: Emitter, offset: Affine, start: tuple[Value, Value]) -> Value:
        """The value of an offset at the beginning of the tile."""
        with emitter.scope():
            emitter.bind_group(self.crossing.inner, start[0])
            emitter.bind_group(self.crossing.across, start[1])
            return emitter.index(offset)

    def _stage(
        self, emitter: Emitter, node: Load, buffer: Value, start: tuple[Value, Value], sizes: tuple[Value, Value]
    ) -> None:
        fn, width = emitter.fn, node.kind.byte_width
        begin = self._tile_offset(emitter, node.offset, start) * width
        source = fn.at(emitter.arrays[node.array], I8, begin)
        stride = fn.i64(_stride(node.offset, self.crossing.inner))
        transposer = block_transposer(fn.module, width)
        fn.call(transposer, VOID, source, stride, buffer, fn.i64(self.stride(node)), *sizes)

    def _copy(
        self,
        emitter: Emitter,
        output: Output,
        buffers: Sequence[Value],
        start: tuple[Value, Value],
        sizes: tuple[Value, Value],
    ) -> None:
        """Copy a buffer into a result, a run at a time."""
        fn, width = emitter.fn, output.kind.byte_width
        number = next(k for k, node in enumerate(self.crossing.staged) if node is output.node)
        buffer, stride = buffers[number], self.stride(self.crossing.staged[number])
        begin = self._tile_offset(emitter, output.offset, start) * width
        target = fn.at(emitter.arrays[output.array], I8, begin)
        step = _stride(output.offset, self.crossing.across) * width
        bytes_of_run = sizes[0] * width

        copy = copy_past_caches if output in self.bypassing else Function.copy
        with fn.loop(0, sizes[1]) as column:
            read = fn.at(buffer, I8, column.index * (stride * width))
            copy(fn, fn.at(target, I8, column.index * step), read, bytes_of_run)

    def _compute(
        self,
        emitter: Emitter,
        buffers: Sequence[Value],
        runs: Sequence[Value],
        start: tuple[Value, Value],
        sizes: tuple[Value, Value],
        known: frozenset[Variable],
    ) -> None:
        fn, crossing = emitter.fn, self.crossing
        with fn.loop(0, sizes[1]) as column, emitter.scope():
            emitter.bind_group(crossing.across, start[1] + column.index)
            emitter.hoist(self.nodes, known | set(crossing.across.variables))
            with (
                written_past_caches(emitter, self.bypassing, runs, crossing.inner, start[0], sizes[0]),
                fn.loop(0, sizes[0], independent=True) as run,
                emitter.scope(),
            ):
                emitter.bind_group(crossing.inner, start[0] + run.index)
                for node, buffer in zip(crossing.staged, buffers, strict=True):
                    position = column.index * self.stride(node) + run.index
                    emitter.bind(node, load_element(fn, node.kind, buffer, position))
                store_all(emitter, self.outputs)
