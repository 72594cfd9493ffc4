"""Large results, written past the caches: a loop writes strips to a buffer, which is then copied to memory.

A store through the caches first reads the line that it writes to, and evicts lines that are still needed. Results
larger than the caches gain nothing from this: without it, memory moves two thirds of a copy's bytes.

No prefetcher foresees short runs that are far from one another, as a tile of a transposed array has them: each line
that is read for a store takes the latency of its place. So these results bypass the caches from a smaller size on.
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


def _least_scattered() -> int:
    """Lines beyond the second level come at the latency of the last level, or of memory.

    A last level that is read more than twice as fast as memory is near, and what reads the result finds it there.
    """
    found = machine.current()
    is_near = found.rate("read_bytes_per_nanosecond_l3") > 2 * found.rate("read_bytes_per_nanosecond_memory")
    return found.l3 // 2 if is_near else found.l2


# Results larger than this bypass the caches: their lines would be evicted before they are read.
_LEAST_WRITTEN = knob("non_temporal.least_written", lambda: machine.current().l3 // 2, 0, 4096, tries=(0, 1 << 62))
# The same for results whose short runs are far from one another.
LEAST_SCATTERED = knob("non_temporal.least_scattered", _least_scattered, 0, 4096, tries=(0, 1 << 62))
_VECTOR_BYTES = 32
LINE_BYTES = 64
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


def copy_past_caches(fn: Function, target: Value, source: Value, bytes: Value | int) -> None:
    """Copy a run of bytes: whole lines by non-temporal stores, and what is before and behind them as usual.

    To write a part of a line past the caches takes memory longer than a whole line.
    """
    wide, last = vector(I8, _VECTOR_BYTES), LINE_BYTES - 1
    head = (-target.cast("ptrtoint", I64) & last).smin(bytes)
    end = head + ((bytes - head) & ~last)
    fn.copy(target, source, head)
    with fn.loop(head, end, _VECTOR_BYTES) as run:
        value = fn.load(wide, fn.at(source, I8, run.index), align=1)
        fn.store(value, fn.at(target, I8, run.index), align=_VECTOR_BYTES, nontemporal=True)
    fn.copy(fn.at(target, I8, end), fn.at(source, I8, end), bytes - end)


@contextmanager
def written_past_caches(
    emitter: Emitter,
    outputs: Sequence[Output],
    buffers: Sequence[Value],
    group: Group,
    begin: Value,
    count: Value | int,
) -> Generator[None]:
    """Write ``count`` elements of outputs, from ``begin`` on along a loop, to buffers, which are copied at the end."""
    fn = emitter.fn
    with emitter.scope():
        # The position of the first element in each result, which is the first of its buffer.
        emitter.bind_group(group, begin)
        positions = [emitter.index(o.offset) for o in outputs]
    given = list(zip(outputs, buffers, positions, strict=True))
    with emitter.redirecting({o.array: Redirection(buffer, position) for o, buffer, position in given}):
        yield
    for output, buffer, position in given:
        width = output.kind.byte_width
        copy_past_caches(fn, fn.at(emitter.arrays[output.array], I8, position * width), buffer, count * width)


@contextmanager
def non_temporal(emitter: Emitter, level: Level, outputs: Sequence[Output]) -> Generator[Level]:
    """The innermost loop, or a strip of it after which its large outputs are written past the caches."""
    chosen = past_caches(outputs, level.group)
    if not chosen:
        yield level
        return
    fn = emitter.fn
    begin, end = (fn.i64(n) if isinstance(n, int) else n for n in (level.begin, level.end))
    iterations = min(_ITERATIONS.value, level.group.extent)
    even = level.divisor % iterations == 0
    buffers = [fn.alloca(I8, iterations * o.kind.byte_width, align=64) for o in chosen]
    with fn.loop(begin, end, iterations) as strip, emitter.scope():
        last = strip.index + iterations if even else (strip.index + iterations).smin(end)
        count = fn.i64(iterations) if even else last - strip.index
        with written_past_caches(emitter, chosen, buffers, level.group, strip.index, count):
            yield level.strip(strip.index, last, iterations, even=even)


def past_caches(outputs: Sequence[Output], group: Group) -> list[Output]:
    """The outputs of an innermost loop that :func:`non_temporal` writes past the caches."""
    chosen = [o for o in alone(outputs) if _may_bypass_caches(o, group)]
    return [] if chosen and is_slow(outputs, group) else chosen


def alone(outputs: Sequence[Output]) -> list[Output]:
    """Outputs that share no array: a buffer is for one of them, and pieces of a concatenation go through the caches."""
    written = Counter(o.array for o in outputs)
    return [o for o in outputs if written[o.array] == 1]


def is_slow(outputs: Sequence[Output], group: Group) -> bool:
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
        and (high + 1 - low) * width > _LEAST_WRITTEN.value
        and output.offset.factor_of(group.variables[-1]) == 1
        and group.extent * width >= _LEAST_BYTES.value
        and all(isinstance(atom, Variable) for atom, _ in terms)
        and all(n * width % _VECTOR_BYTES == 0 for n in (output.offset.constant, *(factor for _, factor in terms)))
    )
