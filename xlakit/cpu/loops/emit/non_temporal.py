"""Large results, written past the caches: a loop writes strips to a buffer, which is then copied to memory.

A store through the caches first reads the line that it writes to, and evicts lines that are still needed. Results
larger than the caches gain nothing from this: without it, memory moves two thirds of a copy's bytes.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from xlakit import machine
from xlakit.cpu.llvm import I8, I64, Function, Value, vector
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.scope import Redirection
from xlakit.cpu.loops.ir.cost import element_cost
from xlakit.cpu.loops.ir.index import Variable
from xlakit.options import knob

if TYPE_CHECKING:
    from xlakit.cpu.loops.emit.levels import Level, Output
    from xlakit.cpu.loops.ir.space import Group

# Results larger than this bypass the caches: their lines would be evicted before they are read.
NON_TEMPORAL_BYTES = knob("non_temporal.least_written", lambda: machine.current().l3 // 2, 0, 4096, tries=(0, 1 << 62))
VECTOR_BYTES = 32
# The iterations of a strip, whose results stay in the first-level cache until they are copied. Shorter runs do not pay
# for a buffer.
_ITERATIONS = knob("non_temporal.iterations", 512, 64)
_LEAST_BYTES = knob("non_temporal.least_bytes", 512, 64)
# If the computation of a byte takes longer than this, it does not wait for memory.
_MOST_NANOSECONDS = knob("non_temporal.most_nanoseconds", 0.4, 100.0)


@cache
def has_non_temporal_stores() -> bool:
    """Whether this machine has stores that go past the caches."""
    return platform.machine().lower() in ("x86_64", "amd64")


def is_aligned(fn: Function, target: Value) -> Value:
    """Whether non-temporal stores of whole vectors to an address are possible."""
    return (target.cast("ptrtoint", I64) & (VECTOR_BYTES - 1)).eq(0)


def copy_past_caches(fn: Function, target: Value, source: Value, bytes: Value | int) -> None:
    """Copy whole vectors by non-temporal stores; both addresses are aligned."""
    wide = vector(I8, VECTOR_BYTES)
    with fn.loop(0, bytes, VECTOR_BYTES) as run:
        value = fn.load(wide, fn.at(source, I8, run.index), align=VECTOR_BYTES)
        fn.store(value, fn.at(target, I8, run.index), align=VECTOR_BYTES, nontemporal=True)


@contextmanager
def non_temporal(emitter: Emitter, level: Level, outputs: Sequence[Output]) -> Generator[Level]:
    """The innermost loop, or a strip of it after which its large outputs are written past the caches."""
    written = Counter(o.array for o in outputs)
    # One buffer is for one array: outputs that share an array, as the pieces of a concatenation do, go through the
    # caches.
    chosen = [o for o in outputs if written[o.array] == 1 and _may_bypass_caches(o, level.group)]
    if not chosen or _is_slow(outputs, level.group):
        yield level
        return
    fn = emitter.fn
    begin, end = (fn.i64(n) if isinstance(n, int) else n for n in (level.begin, level.end))
    iterations = min(_ITERATIONS.value, level.group.extent)
    even = level.divisor % iterations == 0
    buffers = [fn.alloca(I8, iterations * o.kind.byte_width, align=64) for o in chosen]
    with fn.loop(begin, end, iterations) as strip, emitter.scope():
        last = strip.index + iterations if even else (strip.index + iterations).smin(end)
        with emitter.scope():
            # The position of the strip's first element in each result, which is the first of its buffer.
            emitter.bind_group(level.group, strip.index)
            positions = [emitter.index(o.offset) for o in chosen]
        redirected = {
            o.array: Redirection(buffer, position)
            for o, buffer, position in zip(chosen, buffers, positions, strict=True)
        }
        with emitter.redirecting(redirected):
            yield level.strip(strip.index, last, iterations, even=even)
        for output, buffer, position in zip(chosen, buffers, positions, strict=True):
            width = output.kind.byte_width
            target = fn.at(emitter.arrays[output.array], I8, position * width)
            _leave(fn, target, buffer, fn.i64(iterations * width) if even else (last - strip.index) * width)


def _leave(fn: Function, target: Value, buffer: Value, bytes: Value) -> None:
    """Copy a buffer to memory: past the caches if that is possible."""
    is_whole = is_aligned(fn, target) & (bytes & (VECTOR_BYTES - 1)).eq(0)
    fn.if_else(is_whole, lambda: copy_past_caches(fn, target, buffer, bytes), lambda: fn.copy(target, buffer, bytes))


def _is_slow(outputs: Sequence[Output], group: Group) -> bool:
    """Whether computing the outputs takes longer than writing them to memory."""
    cost = element_cost((n for o in outputs for n in o.nodes), group.variables)
    return cost > _MOST_NANOSECONDS.value * sum(o.kind.byte_width for o in outputs)


def _may_bypass_caches(output: Output, group: Group) -> bool:
    """Whether an output is large, and written contiguously, in runs that begin at whole vectors as far as is known."""
    width = output.kind.byte_width
    low, high = output.offset.bounds
    terms = [(atom, factor) for atom, factor in output.offset.terms if atom not in group.variables]
    return (
        has_non_temporal_stores()
        and (high + 1 - low) * width > NON_TEMPORAL_BYTES.value
        and output.offset.factor_of(group.variables[-1]) == 1
        and group.extent * width >= _LEAST_BYTES.value
        and all(isinstance(atom, Variable) for atom, _ in terms)
        and all(n * width % VECTOR_BYTES == 0 for n in (output.offset.constant, *(factor for _, factor in terms)))
    )
