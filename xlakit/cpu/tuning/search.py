"""The search for faster settings, and the comparison of the times of two functions on a noisy machine.

The search sets one knob after the other to each of its alternative numbers, and keeps what is clearly faster. An
alternative counts only if its code differs, if it gives the same results (up to rounding of sums), and if it is clearly
faster (:func:`compare`). The final choice is compared with the default once more: among many alternatives that are not
faster, some look faster by chance.

A comparison runs the two functions alternately, so that a temporary slowdown of the machine affects both; each round
gives the ratio of their times. The other function is faster only if the median ratio is below one by a margin, and if
nearly all rounds agree. Short functions run several times in a round. The clock is a parameter, so that tests do not
depend on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from statistics import median
from typing import Any, Final, Protocol

import numpy as np

from xlakit.cpu.tuning.record import Choice
from xlakit.dataclass import dataclass
from xlakit.errors import UnsupportedError, XlakitError
from xlakit.options import KNOBS

# A function that gives the time in nanoseconds.
Clock = Callable[[], float]
CLOCK: Final[Clock] = time.perf_counter_ns

_ROUNDS: Final = 11
# If the other function is faster in none of the first rounds, the comparison stops after this number of rounds.
_HOPELESS: Final = 3
# The least gain, as a part of the time, and the part of the rounds that must show a gain.
MARGIN: Final = 0.05
_AGREEING: Final = 0.8
# The least time of a round for each of the two functions, and the most runs that may take.
_LEAST_NANOSECONDS: Final = 300_000.0
_MOST_RUNS: Final = 500


@dataclass(frozen=True, slots=True)
class Comparison:
    """The times of two functions.

    base, other: median nanoseconds of one run. ratio: the median over rounds of other's time divided by base's.
    is_clear: whether the other one is clearly faster.
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
        # The order alternates, so that neither always runs second.
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
    """The number of runs in a round; the first run, which may be slow, is not timed."""
    run()
    once = max(1.0, _timed(run, 1, clock))
    return max(1, min(_MOST_RUNS, int(_LEAST_NANOSECONDS / once)))


def _timed(run: Callable[[], object], runs: int, clock: Clock) -> float:
    """Nanoseconds of one run, averaged over ``runs``."""
    start = clock()
    for _ in range(runs):
        run()
    return max(1.0, clock() - start) / runs


# The allowed difference of results with sums in another order, as a part of the largest element, by bytes of an
# element.
_TOLERANCE: Mapping[int, float] = {1: 0.3, 2: 3e-2, 4: 1e-4, 8: 1e-9, 16: 1e-9}


class Built(Protocol):
    """A compiled alternative that can be timed."""

    @property
    def code(self) -> str:
        """The code before LLVM's passes, by which alternatives are compared."""
        ...

    def run(self) -> Any:
        """Run it once; gives the result."""
        ...


@dataclass(slots=True)
class Found:
    """The result of a search.

    choice: the knobs to set. comparison: of the choice with the default; None if the default stays. same_bits: whether
    the results have the same bits. compared: the number of timed alternatives. failed: the reasons why others were not
    timed.
    """

    choice: Choice = field(default_factory=dict[str, float])
    comparison: Comparison | None = None
    same_bits: bool = True
    compared: int = 0
    failed: list[str] = field(default_factory=list[str])


def search(
    build: Callable[[Choice], Built],
    base: Built,
    alternatives: Sequence[tuple[str, Sequence[float]]],
    *,
    clock: Clock = CLOCK,
    is_over: Callable[[], bool] = lambda: False,
) -> Found:
    """Find the fastest setting of some knobs.

    build: compiles the code with knobs set. base: the code without. alternatives: names of knobs, and the numbers to
    try. is_over: called before each alternative; whether there is no time left.
    """
    found = Found()
    seen = {base.code}
    expected = base.run()
    fastest, same = base, True
    for name, numbers in alternatives:
        chosen: dict[str, float] = dict(found.choice)
        for number in numbers:
            if is_over():
                break
            tried = {**chosen, name: number}
            other = _built(build, tried, found)
            if other is None or other.code in seen:
                continue
            seen.add(other.code)
            agreement = _agreement(expected, other.run())
            if agreement is None:
                found.failed.append(f"{_named(tried)}: the results differ")
                continue
            found.compared += 1
            if compare(fastest.run, other.run, clock).is_clear:
                found.choice, fastest, same = tried, other, agreement
    if fastest is not base:
        found.comparison = compare(base.run, fastest.run, clock)
        if not found.comparison.is_clear:
            found.choice, found.comparison, same = {}, None, True
    found.same_bits = same
    return found


def knobs_to_try(names: set[str]) -> list[tuple[str, Sequence[float]]]:
    """The alternatives of these knobs, for the knobs that have any."""
    return [(name, KNOBS[name].tries) for name in sorted(names) if KNOBS[name].tries]


def _built(build: Callable[[Choice], Built], tried: Choice, found: Found) -> Built | None:
    """The code with knobs set; None if there is none, which ``found`` notes where that is a fault."""
    try:
        return build(tried)
    except UnsupportedError:
        # The alternative does not apply here.
        return None
    except XlakitError as error:
        found.failed.append(f"{_named(tried)}: {error.rule}")
        return None


def _named(choice: Choice) -> str:
    return ", ".join(f"{name}={number:g}" for name, number in choice.items())


def _agreement(expected: Any, actual: Any) -> bool | None:
    """Whether results have the same bits; None if they differ by more than another order of sums can explain."""
    if isinstance(expected, tuple):
        parts = [_agreement(e, a) for e, a in zip(expected, actual, strict=True)]
        return None if None in parts else all(parts)
    if not isinstance(expected, np.ndarray | np.generic):
        return True
    ours, other = np.asarray(expected), np.asarray(actual)
    if ours.tobytes() == other.tobytes():
        return True
    if ours.dtype.kind in "biu":
        return None
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    a, b = ours.astype(wide), other.astype(wide)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return None
    largest = float(np.max(np.abs(a), initial=0.0, where=finite))
    apart = float(np.max(np.abs(a - b), initial=0.0, where=finite))
    return False if apart <= _TOLERANCE[ours.dtype.itemsize] * largest else None
