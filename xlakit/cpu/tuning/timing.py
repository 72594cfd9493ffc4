"""Whether one function is faster than another, on a machine on which nothing takes the same time twice.

The two run alternately, so that what slows the machine down for a while slows both; each round gives their ratio.
The other one is faster only if the median of the ratios is below one by a clear margin, and if nearly all rounds say
so. Functions that take little time run several times in a round. The clock is a parameter, so that tests do not depend
on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Final

from xlakit.dataclass import dataclass

# Gives nanoseconds.
Clock = Callable[[], float]
CLOCK: Final[Clock] = time.perf_counter_ns

_ROUNDS: Final = 11
# After so many rounds of which none was faster, it is not going to be.
_HOPELESS: Final = 3
# The part of the time that must be gained, and the part of the rounds that must show it.
MARGIN: Final = 0.05
_AGREEING: Final = 0.8
# A round shall take at least so long for each of the two, in so many runs at most.
_LEAST_NANOSECONDS: Final = 300_000.0
_MOST_RUNS: Final = 500


@dataclass(frozen=True, slots=True)
class Comparison:
    """How long two functions take.

    base, other: nanoseconds of one run, medians. ratio: the median of the rounds' ratios of the other to the base.
    is_clear: whether the other one is faster beyond doubt.
    """

    base: float
    other: float
    ratio: float
    is_clear: bool


def compare(base: Callable[[], object], other: Callable[[], object], clock: Clock = CLOCK) -> Comparison:
    """Run both alternately, and compare their times."""
    other()
    runs = _runs_in_round(base, clock)
    times: list[tuple[float, float]] = []
    for number in range(_ROUNDS):
        # Neither of them always comes after the other.
        if number % 2:
            second = _timed(other, runs, clock)
            times.append((_timed(base, runs, clock), second))
        else:
            times.append((_timed(base, runs, clock), _timed(other, runs, clock)))
        if number + 1 == _HOPELESS and all(o >= b for b, o in times):
            break
    ratios = [o / b for b, o in times]
    ratio = median(ratios)
    agreeing = sum(r < 1 for r in ratios) / len(ratios)
    is_clear = ratio <= 1 - MARGIN and agreeing >= _AGREEING
    return Comparison(median(b for b, _ in times), median(o for _, o in times), ratio, is_clear)


def _runs_in_round(run: Callable[[], object], clock: Clock) -> int:
    """How many runs take long enough to be timed; the first one, which may be slow, does not count."""
    run()
    once = max(1.0, _timed(run, 1, clock))
    return max(1, min(_MOST_RUNS, int(_LEAST_NANOSECONDS / once)))


def _timed(run: Callable[[], object], runs: int, clock: Clock) -> float:
    """Nanoseconds of one of some runs."""
    start = clock()
    for _ in range(runs):
        run()
    return max(1.0, clock() - start) / runs
