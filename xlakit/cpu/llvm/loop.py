"""Loop: the index and the carried values of a loop, for the code inside of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.cpu.llvm.values import Value
from xlakit.errors import InternalError

# The fewest lanes for which vectorizing pays.
_LEAST_LANES = 4
# LLVM writes a scalar remainder loop only if the trip count is at least this, or unknown.
_LEAST_WITH_REST = 16
# Forbids LLVM to vectorize a loop.
SCALAR: Final = '"llvm.loop.vectorize.enable", i1 false'
# Hints. NO_UNROLL: LLVM does not unroll the loop. AS_WRITTEN: nor does it vectorize the loop, whose large body uses
# vectors already.
NO_UNROLL: Final = ('"llvm.loop.unroll.disable"',)
AS_WRITTEN: Final = (*NO_UNROLL, SCALAR)


class Loop:
    """A loop being written: ``index``, the ``carried`` values of this iteration, and ``next`` to set those of the next.

    After the loop, ``results`` are the carried values after the last iteration.
    """

    __slots__ = ("carried", "index", "next_values", "results")

    def __init__(self, index: Value, carried: Sequence[Value]) -> None:
        self.index = index
        self.carried = tuple(carried)
        self.next_values: tuple[Value, ...] = self.carried
        self.results: tuple[Value, ...] = ()

    def next(self, *values: Value) -> None:
        """Set the carried values of the next iteration."""
        if [v.type for v in values] != [v.type for v in self.carried]:
            raise InternalError(f"the loop carries {self.carried}, not {values}")
        self.next_values = values


def for_few_iterations(begin: object, end: object) -> list[str]:
    """Hints to unroll a loop with a known, small trip count, which LLVM would vectorize with slow masked stores."""
    few = isinstance(begin, int) and isinstance(end, int) and end - begin < _LEAST_LANES
    return [SCALAR, '"llvm.loop.unroll.full"'] if few else []


def hints_for_iterations(hints: Sequence[str], begin: object, end: object, step: int) -> list[str]:
    """The hints that are given to a loop with these bounds.

    A loop whose trip count is known to be less than _LEAST_WITH_REST gets no scalar remainder loop: LLVM masks the last
    vectors instead. If such a loop is also interleaved, an assertion of LLVM fails on masked stores of several adjacent
    elements, which ends the process. So these loops get no interleave hint.
    """
    few = isinstance(begin, int) and isinstance(end, int) and end - begin < _LEAST_WITH_REST * step
    return [hint for hint in hints if not (few and "interleave" in hint)]
