"""Divides the long loop of a task into strips; before each strip, the thread checks whether the program is canceled.

Between tasks, the thread pool does so (``runtime/pool.py``). A loop that cannot be divided into tasks, because each
iteration needs the one before, would otherwise not react to Ctrl-C before its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.llvm import I64, Function, Value
from xlakit.options import knob

# The estimated time between two cancellation checks; a check takes fifty nanoseconds.
_STRIP_NANOSECONDS = knob("cancellation.strip_nanoseconds", 5_000_000.0, 1.0, 100.0)


def iterations_between(cost: float) -> int:
    """The number of iterations between two checks, a power of two; ``cost`` is of one iteration, in nanoseconds."""
    return 1 << max(1, int(_STRIP_NANOSECONDS.value / max(cost, 0.01))).bit_length() - 1


def in_strips(
    fn: Function,
    bounds: tuple[Value | int, Value | int],
    iterations: int,
    running: Sequence[Value],
    body: Callable[[Value, Value, Sequence[Value]], Sequence[Value] | None],
) -> Sequence[Value]:
    """Write a loop in strips of ``iterations``; ``body`` writes the loop between two bounds, and gives its values.

    Once the program is canceled, the remaining strips are skipped: the results are discarded.
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
