"""The kernel of a plain loop nest: decides in which order its loops run, and whether they run tile by tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from xlakit import machine
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Phase, Split, nest, store_all, task_function
from xlakit.cpu.loops.emit.lanes import LEAST_LANES, has_long_code, lanes_of
from xlakit.cpu.loops.emit.levels import Level, Output
from xlakit.cpu.loops.ir.cost import bytes_of, element_cost
from xlakit.cpu.loops.ir.index import Node, Variable
from xlakit.cpu.loops.ir.nodes import Guarded, Load, Reduction, indices_of, walk
from xlakit.cpu.loops.ir.space import Group, merged
from xlakit.cpu.loops.nests.tiling import SHORT, Crossing, tiled_kernel
from xlakit.options import knob
from xlakit.target import vector_bytes

# The most nodes in an unrolled short loop. If it is not written out here, LLVM unrolls a loop of few iterations, and
# vectorizes the one around it behind a test that no result lies in the memory of an operand, as a loop's state does.
_MOST_WRITTEN = knob("loop_kernel.most_written", 2000, 0, 200)
# Loops of fewer iterations are not vectorized.
_LEAST_VECTOR = 4
# LLVM loads and stores neighbors of at most so many iterations as vectors that it interleaves (its option
# max-interleave-group-factor); of elements that are farther apart it makes one access for each. Its code generation
# compares each access of a block with all others, on any processor: 128 take 0.02 s, 2,000 take 4. An array that is
# written and one that is read, in runs of a vector, make no more.
_MOST_INTERLEAVED = 8
_MOST_APART = knob("loop_kernel.most_apart", 128, 0, 2000)
# Longer runs are not reordered, and at most this many runs are written alternately.
_LONG_RUN = knob("loop_kernel.long_run", 256, 8)
_MOST_STREAMS = knob("loop_kernel.most_streams", 128, 2)
# Sizes of a page of memory and of a cache line, equal on all supported processors.
_PAGE_BYTES = 4 << 10
_LINE_BYTES = 64
# First-level caches select the set of a line by its offset in a page: a set has as many ways as the cache has pages.
_WAYS = knob("loop_kernel.ways", lambda: max(1, machine.current().l1 // _PAGE_BYTES), 0, 1)
# So many streams share a set of any first-level cache, and are elements of a vector.
_BLOCK = knob("loop_kernel.block", 8, 3, 32)


def loop_kernel(
    module: Module, name: str, arrays: int, variables: Sequence[Variable], outputs: Sequence[Output]
) -> Phase:
    """A nest over ``variables`` that stores one element of each output in each iteration."""
    nodes = [n for o in outputs for n in o.nodes]
    offsets = [o.offset for o in outputs]
    groups = merged(variables, indices_of(nodes, offsets))
    crossing = Crossing.of(groups, nodes, offsets)
    if crossing is not None and not crossing.is_short:
        return tiled_kernel(module, name, arrays, crossing, nodes, outputs)
    if crossing is None:
        groups, blocked = _along_memory(groups, nodes, outputs), False
    else:
        groups, blocked = _completing_lines(crossing.reordered(), nodes, outputs)
    groups, times = (groups, 1) if blocked else _with_full_vectors(groups, nodes, outputs)
    iterations = math.prod(g.extent for g in groups)
    written = iterations * sum(n.kind.byte_width for n in nodes)
    iteration = element_cost(nodes, array_bytes=bytes_of(nodes) + written)
    short = _written_out(groups, nodes, outputs)
    divided = groups[:-2] if blocked else groups[: len(groups) - len(short)]
    split = Split.of(divided, iteration * math.prod(g.extent for g in groups[len(divided) :]))
    lanes = 1 if short or not groups else lanes_of(groups[-1], nodes, outputs, times=times)
    fn, emitter, begin, end = task_function(module, name, arrays, lanes)
    fn.calls_math = iterations < _LEAST_VECTOR
    fn.is_one_vector = iterations < 2 * lanes and lanes > 1
    with split.tasks(fn, emitter, begin, end, nodes) as inner:
        # LLVM would leave nodes that read memory in the loop, and take time that doubles with each step of a chain
        # that is the same in all iterations.
        emitter.hoist(nodes, frozenset(v for g in split.outer for v in g.variables))
        write = partial(_iterations, emitter, short, outputs)
        if blocked:
            _in_blocks(emitter, inner, groups[-2], nodes, write)
        else:
            nest(emitter, inner, nodes, write, outputs=() if short else outputs, inside=short)
    return Phase(fn.name, split.count, iteration * iterations, nests=((Accesses.of(outputs),),))


def _along_memory(groups: list[Group], nodes: Sequence[Node], outputs: Sequence[Output]) -> list[Group]:
    """The loops, reordered to read short runs in the order of memory: alternate writes cost less than jumps."""
    loads = [n.offset for n in walk(nodes) if isinstance(n, Load)]
    offsets = [*loads, *(o.offset for o in outputs)]
    if len(groups) < 3 or not loads or any(o.factor_of(groups[-1].variables[-1]) != 1 for o in offsets):
        return groups
    *outer, second, run = groups
    if run.extent > _LONG_RUN.value:
        return groups

    def before(group: Group) -> bool:
        """Whether all loads step less far along a group than along the second last one."""
        own, other = group.variables[-1], second.variables[-1]
        return all(0 < o.factor_of(own) < o.factor_of(other) for o in loads)

    found = [g for g in outer if before(g) and g.extent <= _MOST_STREAMS.value and _keeps_lines(g, run, outputs)]
    if not found:
        return groups
    nearest = min(found, key=lambda g: loads[0].factor_of(g.variables[-1]))
    return [*(g for g in outer if g is not nearest), second, nearest, run]


def _keeps_lines(group: Group, run: Group, arrays: Sequence[Output | Load]) -> bool:
    """Whether a cache line that a run meets in part is still in the first-level cache when the next run completes it.

    In between, one run of each stream is met; streams that are whole pages apart share one set.
    """
    for array in arrays:
        width = array.kind.byte_width
        if run.extent * width % _LINE_BYTES == 0:
            continue
        distance = abs(array.offset.factor_of(group.variables[-1])) * width
        places = min(_PAGE_BYTES // math.gcd(distance, _PAGE_BYTES), _PAGE_BYTES // _LINE_BYTES)
        if group.extent > _WAYS.value * places:
            return False
    return True


def _with_full_vectors(
    groups: list[Group], nodes: Sequence[Node], outputs: Sequence[Output]
) -> tuple[list[Group], int]:
    """The loops, and how often LLVM would write out the innermost one.

    If the innermost loop is short and its code long, it changes places with the longer one before it.
    """
    if len(groups) < 2 or not 1 < groups[-1].extent <= SHORT.value:
        return groups, 1
    *outer, longer, short = groups
    if longer.extent <= short.extent or not has_long_code(nodes, short.extent):
        return groups, 1
    lanes = lanes_of(longer, nodes, outputs, times=short.extent)
    return ([*outer, short, longer], short.extent) if lanes > 1 else (groups, 1)


def _completing_lines(
    groups: list[Group], nodes: Sequence[Node], outputs: Sequence[Output]
) -> tuple[list[Group], bool]:
    """The loops of a nest with a short innermost one, and whether the loop before that is to run in blocks.

    Where the short runs of an array are parts of cache lines, and those of one loop do not stay in the first-level
    cache, the loop that completes the lines is moved in between: around it, the other runs block by block.
    """
    *outer, streams, run = groups
    arrays = [
        a
        for a in (*outputs, *(n for n in walk(nodes) if isinstance(n, Load)))
        if a.offset.factor_of(run.variables[-1]) == 1
    ]
    if _keeps_lines(streams, run, arrays) or not _written_out(groups, nodes, outputs):
        return groups, False
    following = [g for g in outer if any(a.offset.factor_of(g.variables[-1]) == run.extent for a in arrays)]
    if len(following) != 1:
        return groups, False
    return [*(g for g in outer if g is not following[0]), *following, streams, run], True


def _in_blocks(
    emitter: Emitter, levels: Sequence[Level], streams: Group, nodes: Sequence[Node], write: Callable[[], None]
) -> None:
    """Write loops of which the last runs once for each block of ``streams``."""
    *outer, last = levels

    def blocks() -> None:
        extent, size = streams.extent, _BLOCK.value
        with emitter.fn.loop(0, -(-extent // size)) as block:
            low = block.index * size
            level = Level(streams, low, (low + size).umin(extent), count=0 if extent % size else size)
            nest(emitter, [last, level], nodes, write)

    nest(emitter, outer, nodes, blocks)


def _written_out(groups: Sequence[Group], nodes: Sequence[Node], outputs: Sequence[Output]) -> list[Group]:
    """The innermost loop, if it is so short that it is unrolled: alone, or to vectorize the loop around it."""
    if not groups or not 0 < groups[-1].extent <= SHORT.value:
        return []
    found = list(walk(nodes))
    if len(groups) == 1:
        # LLVM would unroll it too, but only after its other loop passes.
        pays = groups[-1].extent < LEAST_LANES
    else:
        pays = groups[-2].extent > groups[-1].extent
    size = sum(_MOST_WRITTEN.value if isinstance(n, Reduction) else 1 for n in found)
    if len(groups) > 1 and _scalar_accesses(groups[-2], _accesses(groups[-1], nodes, outputs)) > _MOST_APART.value:
        return []
    return [groups[-1]] if pays and size * groups[-1].extent <= _MOST_WRITTEN.value else []


def _accesses(short: Group, nodes: Sequence[Node], outputs: Sequence[Output]) -> list[Output | Load]:
    """The accesses of all iterations of a loop that is written out, of which conditions choose in each."""
    found: list[Output | Load] = [o for o in outputs for _ in range(short.extent)]
    met: set[Load] = set()
    for number in range(short.extent):
        for node in walk(nodes, partial(_computed, short.variables, number)):
            if isinstance(node, Load) and (node not in met or node.variables & set(short.variables)):
                met.add(node)
                found.append(node)
    return found


def _computed(variables: Sequence[Variable], number: int, node: Node) -> Sequence[Node]:
    """The operands of a node that are computed in an iteration of a loop, as far as that decides its conditions."""
    if not isinstance(node, Guarded) or len(variables) > 1:
        return node.operands
    values = [
        (affine.constant + number * affine.factor_of(variables[0]), low, high, step)
        for affine, low, high, step in node.bounds
        if all(atom is variables[0] for atom, _ in affine.terms)
    ]
    if any(not low <= value <= high or (value - low) % step for value, low, high, step in values):
        return [node.outside]
    return [node.inside] if len(values) == len(node.bounds) else node.operands


def _scalar_accesses(group: Group, arrays: Sequence[Output | Load]) -> int:
    """How many accesses of single elements LLVM makes of vectors whose elements are too far apart to interleave."""
    total = 0
    for array in arrays:
        if abs(array.offset.factor_of(group.variables[-1])) > _MOST_INTERLEAVED:
            parts = 2 if array.kind.is_complex else 1
            total += parts * (vector_bytes() // (array.kind.byte_width // parts))
    return total


def _iterations(emitter: Emitter, short: Sequence[Group], outputs: Sequence[Output]) -> None:
    """One iteration of a nest, with all iterations of an unrolled loop inside."""
    if not short:
        store_all(emitter, outputs)
        return
    for number in range(short[0].extent):
        with emitter.scope():
            emitter.bind_group(short[0], emitter.fn.i64(number))
            store_all(emitter, outputs)
