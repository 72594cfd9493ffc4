"""The reductions of a fusion as nodes, shared by all kernels with reductions.

If there are few results, tasks reduce parts of the range, and a second phase reduces the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import accumulate, islice
from typing import Any

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import I8, Function, Module, Value
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import TASK_NANOSECONDS, Phase
from xlakit.cpu.loops.emit.levels import Output, output
from xlakit.cpu.loops.ir.index import Node, Variable, linear
from xlakit.cpu.loops.ir.nodes import Given, Load, Part, Reduction
from xlakit.cpu.loops.ir.reducer import Reducer, part_kind, wide_kind
from xlakit.cpu.loops.ir.space import Space, with_splits
from xlakit.cpu.loops.ir.tracer import Index, Source, Tracer
from xlakit.cpu.loops.nests.loop_kernel import loop_kernel
from xlakit.cpu.scalars import Scalar, store
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.options import knob

# A result of a fusion: the instruction, the part of its tuple, and the part's shape.
Root = tuple[Instruction, int, Shape]


@dataclass(frozen=True, slots=True)
class ReducedLoops:
    """The loops over the arrays of reductions: the variables of the outer loops, and those of the reduced dimensions.

    full: the index of an element of the arrays. row: the index of an element of the results.
    """

    outer: list[Variable]
    over: list[Variable]
    full: Index
    row: Index


@dataclass(frozen=True, slots=True)
class Reduced:
    """The reductions of a fusion: they all take arrays of ``sizes`` and go over the dimensions ``over``."""

    reduces: tuple[Instruction, ...]
    sizes: tuple[int, ...]
    over: frozenset[int]
    roots: tuple[Root, ...]
    arrays: int

    @property
    def outer_dimensions(self) -> tuple[int, ...]:
        """The sizes of the dimensions that are kept."""
        return tuple(size for d, size in enumerate(self.sizes) if d not in self.over)

    @property
    def results(self) -> int:
        """The number of elements of each reduction's result."""
        return math.prod(self.outer_dimensions)

    def loops(self, space: Space) -> ReducedLoops:
        """New variables of the loops over the arrays; the outer loops go over the dimensions that are kept."""
        axes = {d: space.axis(size) for d, size in enumerate(self.sizes) if d not in self.over}
        outer = list(space.variables)
        axes |= {d: space.axis(size) for d, size in enumerate(self.sizes) if d in self.over}
        full = tuple(axes[d].index for d in range(len(self.sizes)))
        row = tuple(index for d, index in enumerate(full) if d not in self.over)
        return ReducedLoops(outer, space.variables[len(outer) :], full, row)

    def epilogue(self, tracer: Tracer, row: Index) -> list[Output]:
        """The outputs of the fusion, if the tracer has the reductions' results at ``row``."""
        outputs: list[Output] = []
        for number, (root, part, shape) in enumerate(self.roots):
            index = tracer.reindexed(row, self.outer_dimensions, shape.dimensions)
            node = tracer.element(root, index, part)
            outputs.append(output(self.arrays + number, linear(index, shape.dimensions), node))
        return outputs

    def dependency_levels(self) -> list[list[Instruction]]:
        """The reductions by level: those of a level need only results of earlier levels."""
        level: dict[Instruction, int] = {}
        members = set(self.reduces)
        found: list[list[Instruction]] = []
        for reduce in self.reduces:
            needed = [level[i] for i in needed_for(reduce.operands) if i in members and i is not reduce]
            level[reduce] = 1 + max(needed, default=-1)
            while len(found) <= level[reduce]:
                found.append([])
            found[level[reduce]].append(reduce)
        return found

    def roots_alike(self) -> bool:
        """Whether all results have as many elements as the reductions' results."""
        return all(shape.num_elements == self.results for _, _, shape in self.roots)


def reduce_once(emitter: Emitter, reducers: Sequence[Reducer], running: Sequence[Scalar]) -> list[Scalar]:
    """One iteration of several reductions: the next values of ``running``, which has those of all, concatenated."""
    next_values: list[Scalar] = []
    for reducer in reducers:
        number = len(next_values)
        values = [emitter.lane_values(n) for n in reducer.inputs]
        next_values += emitter.combined(
            reducer.computation, list(running[number : number + len(reducer.initial)]), values
        )
    return next_values


def bind_results(emitter: Emitter, reducers: Sequence[Reducer], values: Sequence[Scalar]) -> None:
    """Give an emitter the results of several reductions, from their final running values, concatenated."""
    left = iter(values)
    for reducer in reducers:
        for part in range(len(reducer.kinds)):
            emitter.bind((reducer.instruction, part), reducer.result(emitter.fn, part, next(left)))


def given_source(reduce: Instruction, index: Index, variables: frozenset[Any]) -> Callable[[Index, int], Node]:
    """A source for a reduction's result, which the emitter has at a single index only."""

    def source(asked: Index, part: int) -> Node:
        if asked != index:
            raise DeclinedError("a reduction's result is needed at another index than it is computed")
        return Given(part_kind(reduce, part), (reduce, part), variables)

    return source


def needed_for(roots: Iterable[Instruction], stop: Set[Instruction] = frozenset()) -> list[Instruction]:
    """The roots and all instructions on which they depend, except ``stop`` and those needed only for ``stop``."""
    seen: dict[Instruction, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen and node not in stop:
            seen[node] = None
            stack.extend(node.operands)
    return list(seen)


_MOST_PARTS = knob("partial.most_parts", 32, 2, 5)


def count_parts(reduced: Reduced, reducers: Sequence[Reducer], cost: float, extent: int) -> int:
    """The number of parts into which the outer reduced loop is divided; 1 if it cannot be divided."""
    if not reduces_in_parts(reduced, reducers):
        return 1
    return max(1, min(_MOST_PARTS.value, extent, int(cost / (2 * TASK_NANOSECONDS.value))))


def reduces_in_parts(reduced: Reduced, reducers: Sequence[Reducer]) -> bool:
    """Whether parts of the reduced range may be reduced separately, and all results follow from the combined parts."""
    return reduced.roots_alike() and all(f.starts_neutral() for f in reducers)


@dataclass(frozen=True, slots=True)
class Parts:
    """The division of the outer reduced loop into ``count`` parts, whose partial results are in scratch memory."""

    reduced: Reduced
    count: int

    @property
    def _scratch(self) -> int:
        """The number of the scratch memory in the kernel's table."""
        return self.reduced.arrays + len(self.reduced.roots)

    @property
    def arrays(self) -> int:
        """The number of addresses in the kernel's table."""
        return self._scratch + (self.count > 1)

    @property
    def _kinds(self) -> list[PrimitiveType]:
        """The element types of the partial results."""
        return [wide_kind(part_kind(r, k)) for r in self.reduced.reduces for k in range(len(r.operands) // 2)]

    @property
    def _offsets(self) -> list[int]:
        """The offsets in scratch of the partial results of each reduction, in bytes, and the size of scratch."""
        sizes = (-(-self.reduced.results * self.count * kind.byte_width // 64) * 64 for kind in self._kinds)
        return [0, *accumulate(sizes)]

    @property
    def bytes(self) -> int:
        """The size of scratch."""
        return self._offsets[-1]

    def range(self, fn: Function, number: Value, extent: int) -> tuple[Value, Value]:
        """The begin and end of part ``number`` of the outer reduced loop."""
        return (number * extent).integer("udiv", self.count), ((number + 1) * extent).integer("udiv", self.count)

    def store(self, emitter: Emitter, reducers: Sequence[Reducer], number: Value, values: Sequence[Scalar]) -> None:
        """Store the results of one part; ``number``: the part's times the number of results, plus the result's."""
        fn = emitter.fn
        scratch = emitter.arrays[self._scratch]
        left = iter(values)
        found = [v for f in reducers for v in f.partial(fn, list(islice(left, len(f.kinds))))]
        for kind, offset, value in zip(self._kinds, self._offsets[:-1], found, strict=True):
            store(fn, kind, value, fn.at(scratch, I8, offset), number)

    def combine(self, module: Module, name: str, sources: dict[Instruction, Source]) -> Phase:
        """The phase that combines the partial results, and computes the epilogue."""
        reduced = self.reduced

        def make(space: Space) -> tuple[list[Variable], list[Output]]:
            row: Index = tuple(space.axis(size).index for size in reduced.outer_dimensions)
            variables = list(space.variables)
            known = dict(sources)
            partial = zip(self._kinds, self._offsets[:-1], strict=True)
            before = Tracer(dict(sources), space)
            for reduce in reduced.reduces:
                count = len(reduce.operands) // 2
                axis = space.axis(self.count)
                position = linear(row, reduced.outer_dimensions) + axis.index * reduced.results
                inputs: list[Node] = [
                    Load(kind, self._scratch, position + offset // kind.byte_width)
                    for kind, offset in islice(partial, count)
                ]
                initial = [before.element(init, ()) for init in reduce.operands[count:]]
                reduction = Reduction(reduce.op.called_computations[0], axis.variables, inputs, initial)
                known[reduce] = _source([Part(node.kind, reduction, k) for k, node in enumerate(initial)])
            return variables, reduced.epilogue(Tracer(known, space), row)

        variables, outputs = with_splits(make)
        return loop_kernel(module, name + ".parts", self.arrays, variables, outputs)


def _source(nodes: Sequence[Node]) -> Source:
    return lambda index, part: nodes[part]
