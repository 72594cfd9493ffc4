"""What all kernels with reductions share: the reductions of a fusion, as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.levels import Output, output
from xlakit.cpu.loops.ir.index import Node, Variable, linear
from xlakit.cpu.loops.ir.nodes import Given
from xlakit.cpu.loops.ir.reducer import Reducer, part_kind
from xlakit.cpu.loops.ir.space import Space
from xlakit.cpu.loops.ir.tracer import Index, Tracer
from xlakit.cpu.scalars import Scalar
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction

# A result of a fusion: the instruction, which part of its tuple, and the part's shape.
Root = tuple[Instruction, int, Shape]


@dataclass(frozen=True, slots=True)
class ReducedLoops:
    """The loops over the arrays of reductions: the variables of the outer loops, and of those over reduced dimensions.

    full: the index of an element of the arrays. row: that of an element of the results.
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
        """The sizes of the dimensions that stay."""
        return tuple(size for d, size in enumerate(self.sizes) if d not in self.over)

    @property
    def results(self) -> int:
        """How many elements each reduction gives."""
        return math.prod(self.outer_dimensions)

    def loops(self, space: Space) -> ReducedLoops:
        """New variables of the loops over the arrays; outer loops go over the dimensions that stay."""
        axes = {d: space.axis(size) for d, size in enumerate(self.sizes) if d not in self.over}
        outer = list(space.variables)
        axes |= {d: space.axis(size) for d, size in enumerate(self.sizes) if d in self.over}
        full = tuple(axes[d].index for d in range(len(self.sizes)))
        row = tuple(index for d, index in enumerate(full) if d not in self.over)
        return ReducedLoops(outer, space.variables[len(outer) :], full, row)

    def epilogue(self, tracer: Tracer, row: Index) -> list[Output]:
        """What is stored where the reductions' results at ``row`` are known to the tracer."""
        outputs: list[Output] = []
        for number, (root, part, shape) in enumerate(self.roots):
            index = tracer.reindexed(row, self.outer_dimensions, shape.dimensions)
            node = tracer.element(root, index, part)
            outputs.append(output(self.arrays + number, linear(index, shape.dimensions), node))
        return outputs

    def levels(self) -> list[list[Instruction]]:
        """The reductions, those that need the results of others after them."""
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
        """Whether all results have the dimensions that the reductions give, maybe reshaped."""
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


def given_source(reduce: Instruction, index: Index, variables: frozenset[Any]) -> Callable[[Index, int], Node]:
    """A reduction's result, known to the emitter at just one index."""

    def source(asked: Index, part: int) -> Node:
        if asked != index:
            raise DeclinedError("a reduction's result is needed at another index than it is computed")
        return Given(part_kind(reduce, part), (reduce, part), variables)

    return source


def needed_for(roots: Iterable[Instruction], stop: Set[Instruction] = frozenset()) -> list[Instruction]:
    """The roots and all that they depend on, but for ``stop`` and what is needed for those alone."""
    seen: dict[Instruction, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen and node not in stop:
            seen[node] = None
            stack.extend(node.operands)
    return list(seen)
