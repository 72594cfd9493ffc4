"""Reductions with few results: tasks reduce parts of the range, then one reduces the parts.

The number of parts depends on sizes alone, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from xlakit.cpu.llvm import I8, Function, Module, Value
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import TASK_NANOSECONDS, Phase
from xlakit.cpu.loops.emit.levels import Output
from xlakit.cpu.loops.ir.index import Node, Variable, linear
from xlakit.cpu.loops.ir.nodes import Load, Part, Reduction
from xlakit.cpu.loops.ir.reducer import Reducer, part_kind, wide_kind
from xlakit.cpu.loops.ir.space import Space, with_splits
from xlakit.cpu.loops.ir.tracer import Index, Source, Tracer
from xlakit.cpu.loops.nests.loop_kernel import loop_kernel
from xlakit.cpu.loops.nests.reduced import Reduced
from xlakit.cpu.scalars import Scalar, store
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Instruction
from xlakit.options import knob

_MOST_PARTS = knob("partial.most_parts", 32, 2, 5)


def count_parts(reduced: Reduced, reducers: Sequence[Reducer], cost: float, extent: int) -> int:
    """Into how many parts the outer reduced loop should be cut; 1 where it cannot be."""
    if not can_be_cut(reduced, reducers):
        return 1
    return max(1, min(_MOST_PARTS.value, extent, int(cost / (2 * TASK_NANOSECONDS.value))))


def can_be_cut(reduced: Reduced, reducers: Sequence[Reducer]) -> bool:
    """Whether parts of the reduced range may be reduced apart, and all results follow when they are put together."""
    return reduced.roots_alike() and all(f.starts_neutral() for f in reducers)


def part_range(fn: Function, number: Value, parts: int, extent: int) -> tuple[Value, Value]:
    """Where part ``number`` of the outer reduced loop begins and ends."""
    return (number * extent).integer("udiv", parts), ((number + 1) * extent).integer("udiv", parts)


def kinds_of(reduced: Reduced) -> list[PrimitiveType]:
    """The element types of the parts' results."""
    counts = [len(r.operands) // 2 for r in reduced.reduces]
    return [wide_kind(part_kind(r, k)) for r, count in zip(reduced.reduces, counts, strict=True) for k in range(count)]


def scratch_offsets(reduced: Reduced, parts: int) -> tuple[list[int], int]:
    """Where in scratch the results of each reduction's parts are, in bytes, and how many bytes it has."""
    offsets: list[int] = []
    end = 0
    for kind in kinds_of(reduced):
        offsets.append(end)
        end += -(-reduced.results * parts * kind.byte_width // 64) * 64
    return offsets, end


def store_parts(
    emitter: Emitter,
    reduced: Reduced,
    reducers: Sequence[Reducer],
    parts: int,
    number: Value,
    values: Sequence[Scalar],
) -> None:
    """Write the results of one part; ``number`` is the part's number times the results, plus the result's."""
    fn = emitter.fn
    scratch = emitter.arrays[reduced.arrays + len(reduced.roots)]
    offsets, _ = scratch_offsets(reduced, parts)
    left = iter(values)
    found = [v for f in reducers for v in f.partial(fn, list(islice(left, len(f.kinds))))]
    for kind, offset, value in zip(kinds_of(reduced), offsets, found, strict=True):
        store(fn, kind, value, fn.at(scratch, I8, offset), number)


def combine(module: Module, name: str, sources: dict[Instruction, Source], reduced: Reduced, parts: int) -> Phase:
    """The phase that reduces the partial results to one, and computes the epilogue."""
    offsets, _ = scratch_offsets(reduced, parts)
    scratch = reduced.arrays + len(reduced.roots)

    def make(space: Space) -> tuple[list[Variable], list[Output]]:
        row: Index = tuple(space.axis(size).index for size in reduced.outer_dimensions)
        variables = list(space.variables)
        known = dict(sources)
        number = 0
        before = Tracer(dict(sources), space)
        for reduce in reduced.reduces:
            count = len(reduce.operands) // 2
            axis = space.axis(parts)
            position = linear(row, reduced.outer_dimensions) + axis.index * reduced.results
            inputs: list[Node] = []
            for _ in range(count):
                kind = kinds_of(reduced)[number]
                inputs.append(Load(kind, scratch, position + offsets[number] // kind.byte_width))
                number += 1
            initial = [before.element(init, ()) for init in reduce.operands[count:]]
            reduction = Reduction(reduce.op.called_computations[0], axis.variables, inputs, initial)
            known[reduce] = _source([Part(node.kind, reduction, k) for k, node in enumerate(initial)])
        tracer = Tracer(known, space)
        return variables, reduced.epilogue(tracer, row)

    variables, outputs = with_splits(make)
    arrays = reduced.arrays + len(reduced.roots) + 1
    return loop_kernel(module, name + ".parts", arrays, variables, outputs)


def _source(nodes: Sequence[Node]) -> Source:
    return lambda index, part: nodes[part]
