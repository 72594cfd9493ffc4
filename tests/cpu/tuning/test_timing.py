"""Comparisons of times, on a clock that the test moves."""

import itertools
from collections.abc import Iterable, Iterator

import pytest

from xlakit.cpu.tuning.search import Comparison, compare


class Clock:
    """A clock that stands still but for what it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, times: Iterable[float]):
        """A function whose runs take such times, in nanoseconds."""
        left: Iterator[float] = itertools.cycle(times)

        def run() -> None:
            self.now += next(left)

        return run


def compared(base: Iterable[float], other: Iterable[float]) -> Comparison:
    clock = Clock()
    return compare(clock.taking(base), clock.taking(other), clock)


def test_what_takes_half_the_time_is_faster():
    found = compared([1e6], [5e5])
    assert found == Comparison(1e6, 5e5, 0.5, True)


@pytest.mark.parametrize("ratio", [0.96, 1.0, 1.5])
def test_what_is_hardly_faster_is_not_clearly_so(ratio):
    assert not compared([1e6], [ratio * 1e6]).is_clear


def test_noise_is_not_taken_for_a_gain():
    # The same times in another order: the median of the ratios is below one, but many rounds disagree.
    assert not compared([1e6, 2e6, 1e6, 1.1e6], [0.9e6, 2.2e6, 0.9e6, 1.4e6]).is_clear


def test_single_slow_rounds_do_not_hide_a_gain():
    found = compared([1e6], [0.7e6] * 6 + [5e6])
    assert found.is_clear
    assert found.ratio == pytest.approx(0.7)


def test_what_is_short_runs_several_times_in_a_round():
    clock, runs = Clock(), []

    def other() -> None:
        runs.append(1)
        clock.now += 500.0

    found = compare(clock.taking([1000.0]), other, clock)
    assert found.is_clear
    assert found.base == 1000.0
    assert len(runs) > 100 * 11


def test_what_is_always_slower_is_given_up_soon():
    clock, runs = Clock(), []

    def other() -> None:
        runs.append(1)
        clock.now += 2e6

    assert not compare(clock.taking([1e6]), other, clock).is_clear
    assert len(runs) < 8
