"""Loop: what code inside of a loop sees of it while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.cpu.llvm.values import Value
from xlakit.errors import InternalError

# The lanes of a vector worth having.
_LEAST_LANES = 4
# LLVM makes a second loop, of what vectors leave, only for loops of so many iterations, or of a number unknown to it.
_LEAST_WITH_REST = 16
# LLVM is not to make vectors of a loop.
SCALAR: Final = '"llvm.loop.vectorize.enable", i1 false'
# Hints: LLVM does not unroll a loop; and does not vectorize it either, whose body is large, and in vectors already.
NO_UNROLL: Final = ('"llvm.loop.unroll.disable"',)
AS_WRITTEN: Final = (*NO_UNROLL, SCALAR)


class Loop:
    """A loop being written: ``index``, the ``carried`` values of this iteration, and ``next`` for those of the next.

    After the loop, ``results`` are the carried values as the last iteration left them.
    """

    __slots__ = ("carried", "index", "next_values", "results")

    def __init__(self, index: Value, carried: Sequence[Value]) -> None:
        self.index = index
        self.carried = tuple(carried)
        self.next_values: tuple[Value, ...] = self.carried
        self.results: tuple[Value, ...] = ()

    def next(self, *values: Value) -> None:
        """Say what the carried values are in the next iteration."""
        if [v.type for v in values] != [v.type for v in self.carried]:
            raise InternalError(f"the loop carries {self.carried}, not {values}")
        self.next_values = values


def for_few_iterations(begin: object, end: object) -> list[str]:
    """Hints for a loop of few iterations: LLVM would vectorize it with a mask, and masked stores are slow."""
    few = isinstance(begin, int) and isinstance(end, int) and end - begin < _LEAST_LANES
    return [SCALAR, '"llvm.loop.unroll.full"'] if few else []


def hints_for_iterations(hints: Sequence[str], begin: object, end: object, step: int) -> list[str]:
    """The hints that a loop of so many iterations is given.

    A loop that LLVM knows to be shorter than _LEAST_WITH_REST gets no second one for what is left of it: LLVM masks the
    last vectors instead, and in loops that are also interleaved an assertion of LLVM fails on masked stores of several
    elements side by side, which ends the process.
    """
    few = isinstance(begin, int) and isinstance(end, int) and end - begin < _LEAST_WITH_REST * step
    return [hint for hint in hints if not (few and "interleave" in hint)]
