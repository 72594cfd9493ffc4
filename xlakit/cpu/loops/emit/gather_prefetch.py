"""Prefetches elements that are read at computed indices: a strip of the loop prefetches them before it reads them.

Out-of-order execution overlaps the misses of the iterations in its window, which are few if an iteration computes much.
A prefetch never waits.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xlakit import machine, target
from xlakit.cpu.llvm import Value
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.ir.cost import element_cost
from xlakit.cpu.loops.ir.index import Affine, Node, Opaque, Variable
from xlakit.cpu.loops.ir.nodes import Load, Reduction, unconditional
from xlakit.cpu.scalars.memory import memory_type
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model

if TYPE_CHECKING:
    from xlakit.cpu.loops.emit.levels import Level
    from xlakit.cpu.loops.ir.space import Group

# The iterations of a strip, each of which prefetches a line: half of the first-level cache, where they stay until they
# are read. The longer a strip, the less its beginning and its end cost.
_LINE_BYTES = 64
_ITERATIONS = knob(
    "gather_prefetch.iterations", lambda: _power_of_two(machine.current().l1 // (2 * _LINE_BYTES)), 8, tries=(64,)
)
_FEWEST_ITERATIONS = 8
# Most of a smaller array is in the second-level cache, or soon will be.
_FAR_BYTES = knob("gather_prefetch.far_bytes", lambda: 2 * machine.current().l2, 0, tries=(0, 1 << 62))
# If iterations take less, so many are in the window that prefetches would only add work.
_LEAST_CYCLES = knob("gather_prefetch.least_cycles", 4.0, 0.0, tries=(0.0, 1e9))
# Indices are computed twice, which must cost little compared to the wait for memory.
_MOST_NANOSECONDS = knob("gather_prefetch.most_nanoseconds", 4.0, 100.0)


@contextmanager
def strips(emitter: Emitter, level: Level, nodes: Sequence[Node], inside: Sequence[Group] = ()) -> Generator[Level]:
    """The innermost loop, or a strip of it before which the scattered elements that it reads are prefetched.

    inside: the short loops that are unrolled in an iteration; of the elements that they read the first is prefetched,
    beside which the others lie.
    """
    cost = element_cost(nodes) * math.prod(g.extent for g in inside)
    if cost < cost_model().cycles(_LEAST_CYCLES.value):
        yield level
        return
    bound = {v for g in (level.group, *inside) for v in g.variables}
    far = [n for n in _gathered_loads(nodes, level.group) if emitter.is_open(n.variables - bound)]
    if not far or cost < cost_model().cycles(_LEAST_CYCLES.value) * min(map(_gathered_at_once, far)):
        yield level
        return
    fn = emitter.fn
    begin, end = (_number(emitter, n) for n in (level.begin, level.end))
    iterations = strip_length(len(far))
    with fn.loop(begin, end, iterations) as strip, emitter.scope():
        even = level.count > 0 and level.count % iterations == 0
        last = strip.index + iterations if even else (strip.index + iterations).smin(end)
        with fn.loop(strip.index, last) as loop, emitter.scope():
            emitter.bind_group(level.group, loop.index)
            for group in inside:
                emitter.bind_group(group, fn.i64(0))
            for node in far:
                offset = emitter.index(node.offset) * (2 if node.kind.is_complex else 1)
                fn.prefetch(fn.at(emitter.arrays[node.array], memory_type(node.kind), offset))
        yield level.strip(strip.index, last, iterations, even=even)


def strip_length(reads: int) -> int:
    """The iterations of a strip, each of which prefetches so many elements."""
    return max(_FEWEST_ITERATIONS, _power_of_two(_ITERATIONS.value // reads))


def _power_of_two(number: int) -> int:
    """The greatest power of two that is not greater."""
    return 1 << max(1, number).bit_length() - 1


def _gathered_at_once(node: Load) -> int:
    """The elements that an instruction reads: the window overlaps the misses of this many times more iterations."""
    return max(1, target.vector_bytes() // node.kind.byte_width) if target.processor().gathers else 1


def _number(emitter: Emitter, number: Value | int) -> Value:
    return emitter.fn.i64(number) if isinstance(number, int) else number


def _variables(atom: Variable | Opaque) -> frozenset[Variable]:
    return atom.node.variables if isinstance(atom, Opaque) else frozenset((atom,))


def _gathered_loads(nodes: Sequence[Node], group: Group) -> list[Load]:
    """The loads that every iteration of a loop executes, each at scattered elements of a large array."""
    own = set(group.variables)
    found: dict[Load, None] = {}
    stack, seen = list(nodes), set[Node]()
    while stack:
        node = stack.pop()
        if node in seen or isinstance(node, Reduction):
            continue
        seen.add(node)
        stack.extend(unconditional(node))
        if isinstance(node, Load):
            # This loop's reads are between these bounds; the outer loops move the bounds.
            moving = [(a, n) for a, n in node.offset.terms if _variables(a) & own]
            low, high = Affine(tuple(moving)).bounds
            indices = [a.node for a, _ in moving if isinstance(a, Opaque)]
            if (
                indices
                and (high - low) * node.kind.byte_width >= _FAR_BYTES.value
                and element_cost(indices) <= _MOST_NANOSECONDS.value
            ):
                found[node] = None
    return list(found)
