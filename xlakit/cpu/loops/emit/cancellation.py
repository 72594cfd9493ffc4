"""Long loops of one task, cut into strips: before each, the thread asks whether the program is to go on.

Between tasks the thread pool asks (``runtime/pool.py``). What cannot be cut into tasks, because each iteration needs
the one before, would otherwise not react to Ctrl-C before its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.llvm import I64, Function, Value
from xlakit.options import knob

# The estimated time between two cancellation checks; a check takes fifty nanoseconds.
_STRIP_NANOSECONDS = knob("cancellation.strip_nanoseconds", 5_000_000.0, 1.0, 100.0)


def iterations_between(cost: float) -> int:
    """How many iterations come between two cancellation checks, for the cost of one in nanoseconds; a power of two."""
    return 1 << max(1, int(_STRIP_NANOSECONDS.value / max(cost, 0.01))).bit_length() - 1


def in_strips(
    fn: Function,
    bounds: tuple[Value | int, Value | int],
    iterations: int,
    running: Sequence[Value],
    body: Callable[[Value, Value, Sequence[Value]], Sequence[Value] | None],
) -> Sequence[Value]:
    """A loop in strips of so many iterations; ``body`` writes the one between two bounds, and gives what runs on.

    Once the program is canceled the rest is left out: its results are thrown away.
    """
    begin, end = (fn.i64(n) if isinstance(n, int) else n for n in bounds)
    fn.module.declare("xlakit_is_cancelled", I64, [])
    with fn.while_(
        [begin, *running], lambda loop: (loop.carried[0] < end) & fn.call("xlakit_is_cancelled", I64).eq(0)
    ) as loop:
        first, *before = loop.carried
        after = (first + iterations).smin(end)
        loop.next(after, *(body(first, after, before) or ()))
    return loop.results[1:]
