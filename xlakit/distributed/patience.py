"""Patience: how long a device waits for other processes, and the error when it gives up.

A waiting process asks the others for their state. It waits for processes that compute without limit; for those that
have left or ended the program not at all; and for those that wait elsewhere, or do not answer, until the timeout.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from xlakit.distributed.processes import Processes
from xlakit.distributed.watch import Phase, State
from xlakit.errors import RankError
from xlakit.execution.run import Run

# Seconds until the first question, and the factor by which intervals between questions grow.
_FIRST, _LATER = 0.25, 1.5
_HINT = "the environment variable XLAKIT_TIMEOUT says how many seconds to wait for a process that does not come"
_MOST_LINES = 8


class Patience:
    """Waiting for some processes at one point of a run: ``mark``, or the beginning where that is None.

    number: that of the run among all that the processes have begun.
    """

    def __init__(self, processes: Processes, run: Run, number: int, mark: int | None, ranks: Sequence[int]) -> None:
        self._processes = processes
        self._run = run
        self._number = number
        self._mark = mark
        self._ranks = ranks
        self._since = self._last_change = time.monotonic()
        self._interval = min(_FIRST, self._processes.timeout / 8)
        self._next = self._since + self._interval

    def check(self) -> None:
        """Ask for the states of the other processes if it is time; raises RankError if they cannot arrive any more."""
        self._run.check()
        now = time.monotonic()
        if now >= self._next:
            self._interval = min(_LATER * self._interval, self._processes.timeout / 8)
            self._next = now + self._interval
            self._look(now)

    def _look(self, now: float) -> None:
        states = {rank: self._state(rank) for rank in self._ranks}
        absent = {rank: state for rank, state in states.items() if state is None or not self._is_there(state)}
        gone = {rank: state for rank, state in absent.items() if state is not None and self._is_gone(state)}
        if gone:
            raise self._error(f"waits in vain:{self._lines(gone)}", "all processes must run the same programs")
        if any(state is not None and self._computes(state) for state in absent.values()):
            self._last_change = now
        if now - self._last_change > self._processes.timeout:
            rule = f"some processes did not come for {self._processes.timeout:g} seconds:{self._lines(absent)}"
            raise self._error(rule, _HINT)
        for rank in self._ranks:
            self._processes.watch.ask(rank)

    def _error(self, rule: str, hint: str) -> RankError:
        # If the wait is at an instruction, callers add that.
        name = self._run.program.module.name
        return RankError(rule, operation=f"the beginning of '{name}'" if self._mark is None else "", hint=hint)

    def _state(self, rank: int) -> State | None:
        """The state that a process has reported since this wait began, if it is recent."""
        state = self._processes.watch.states.get(rank)
        if state is None or state.when < self._since or time.monotonic() - state.when > self._processes.timeout / 2:
            return None
        return state

    def _is_there(self, state: State) -> bool:
        return state.posted >= self._number if self._mark is None else self._mark in state.marks

    def _is_gone(self, state: State) -> bool:
        if state.phase is Phase.LEFT:
            return True
        return state.run > self._number or (state.run == self._number and state.phase is Phase.OUTSIDE)

    def _computes(self, state: State) -> bool:
        return state.phase is Phase.RUNNING

    def _lines(self, absent: Mapping[int, State | None]) -> str:
        lines = [f"\n  {self._processes.name_of(rank)} {self._says(state)}" for rank, state in absent.items()]
        more = f"\n  and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
        return "".join(lines[:_MOST_LINES]) + more

    def _says(self, state: State | None) -> str:
        if state is None:
            return "does not answer"
        if state.phase is Phase.LEFT:
            return "has ended"
        ended = self._number + (state.phase is not Phase.OUTSIDE)
        if state.run >= ended:
            return "has ended the program"
        if state.phase is Phase.OUTSIDE:
            return "runs no program"
        if state.phase is Phase.STARTING:
            return "is at the beginning of a program"
        return f"waits in {state.text}" if state.phase is Phase.WAITING else "computes"
