"""The recorder of a profiled program: memory for times, and the native code that writes them.

Steps are numbered from 1, in the order of :func:`xlakit.memory.steps.walk`; 0 is the whole call. The memory consists of
8-byte words:

 | header | totals of 0 | totals of 1 | ... | event | event | ... |

Totals are sums over all executions. An event is one execution, or one range of a kernel's tasks that a thread executed;
first ones are kept, as many as there is room for. Threads add to both at the same time, by atomic operations.

A program imports the three functions, which are loaded with the first profiled program, and its recorder. Each program
has its own recorder; the import ``xlakit_profile_recorder_12`` is one with 12 rows of totals.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

import numpy as np

from xlakit import options
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value, engine
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.record import Record
from xlakit.dataclass import dataclass

# The names of the imports of profiled code.
PREFIX: Final = "xlakit_profile_"
RECORDER: Final = f"{PREFIX}recorder_"
CLOCK: Final = f"{PREFIX}clock"
NOTE: Final = f"{PREFIX}note"
RANGE: Final = f"{PREFIX}range"

# An event's number has this bit if it is a range of tasks, not a whole step.
_RANGE_BIT: Final = 1 << 40
# The number of events that a recorder keeps.
EVENTS: Final = 1 << 16

_HEADER = Record(next=1, capacity=1, rows=1, _fill=5)
# busy: the total time of all ranges of tasks. least is _NEVER before the first execution.
_TOTALS = Record(count=1, total=1, least=1, most=1, busy=1, ranges=1, _fill=2)
_EVENT = Record(number=1, begin=1, end=1, thread=1)
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over all executions of one step, in nanoseconds.

    busy: the total time of threads on ranges of its tasks; 0 if threads do not share its kernels.
    """

    count: int
    total: int
    least: int
    most: int
    busy: int
    ranges: int


@dataclass(frozen=True, slots=True)
class Event:
    """One execution of a step, or one range of tasks, by a thread; in nanoseconds of the monotonic clock.

    step: its number; 0 for the whole call. thread: its identifier, as in :attr:`threading.Thread.ident`.
    """

    step: int
    is_range: bool
    begin: int
    end: int
    thread: int


class Recorder:
    """The times of one program. It must live as long as the program's code."""

    def __init__(self, rows: int) -> None:
        """rows: the number of steps plus one."""
        self._rows = rows
        self._first_event = (_HEADER.size + rows * _TOTALS.size) // 8
        # Pages that are never written take no memory.
        self._words = np.zeros(self._first_event + EVENTS * (_EVENT.size // 8), np.int64)
        self.clear()

    @staticmethod
    def of_imports(imports: Iterable[str]) -> Recorder | None:
        """The recorder for a program with these imports; None if it is not profiled."""
        name = next((name for name in imports if name.startswith(RECORDER)), None)
        return None if name is None else Recorder(int(name.removeprefix(RECORDER)))

    @property
    def symbols(self) -> dict[str, int]:
        """The addresses of the program's profiling imports."""
        return {f"{RECORDER}{self._rows}": self._words.ctypes.data, **_code().symbols}

    def clear(self) -> None:
        """Reset all times; the program must not be running."""
        self._words[: self._first_event] = 0
        self._words[_HEADER.index("capacity")] = EVENTS
        self._words[_HEADER.index("rows")] = self._rows
        for row in range(self._rows):
            self._words[self._row(row) + _TOTALS.index("least")] = _NEVER

    def make_room(self) -> None:
        """Drop all events if the buffer is full (then none is being written). Totals stay."""
        if self._kept == EVENTS:
            self._words[self._first_event :] = 0
            self._words[_HEADER.index("next")] = 0

    def _row(self, number: int) -> int:
        return (_HEADER.size + number * _TOTALS.size) // 8

    def totals(self) -> list[Totals]:
        """The totals of the whole call, and of each step."""
        found: list[Totals] = []
        for number in range(self._rows):
            start = self._row(number)
            words = self._words[start : start + _TOTALS.size // 8].tolist()
            count, total, least, most, busy, ranges = words[:6]
            found.append(Totals(count, total, least if count else 0, most, busy, ranges))
        return found

    @property
    def dropped(self) -> int:
        """The number of events that were dropped because the buffer was full."""
        totals = self.totals()
        return sum(t.count + t.ranges for t in totals) - self._kept

    @property
    def _kept(self) -> int:
        return min(EVENTS, int(self._words[_HEADER.index("next")]))

    def events(self) -> Iterator[Event]:
        """The kept events, in the order in which they ended."""
        size = _EVENT.size // 8
        for number in range(self._kept):
            start = self._first_event + number * size
            step, begin, end, thread = self._words[start : start + size].tolist()
            # A canceled call may have left an event without an end.
            if end:
                yield Event(step & (_RANGE_BIT - 1), bool(step & _RANGE_BIT), begin, end, thread & ((1 << 64) - 1))


# -- native code -----------------------------------------------------------------------------------


class _Code:
    """The native functions that profiled programs call."""

    def __init__(self) -> None:
        names = [CLOCK, NOTE, RANGE]
        with options.compiling(options.DEFAULT, cpu=options.current().cpu):
            data = engine.make_object(_text(), level=1)
        self._library = Library("xlakit_profile", data, names, {}, stays=True)
        self.symbols = {name: self._library.address(name) for name in names}


_code = cache(_Code)


def _text() -> str:
    module = Module("profile")
    module.declare("pthread_self", I64, [])
    fn = module.function(CLOCK, I64, [], external=True)
    fn.ret(waiting.clock(fn))
    _emit_event(module)
    _emit_note(module)
    _emit_range(module)
    return module.text()


def _emit_event(module: Module) -> None:
    """``event(ptr recorder, i64 number, i64 begin, i64 end)``: append an event, if there is room."""
    fn, recorder, number, begin, end = module.begin("event", VOID, [PTR, I64, I64, I64])
    following, capacity = _HEADER.at(fn, recorder, "next"), _HEADER.load(fn, recorder, "capacity")
    # Reading first keeps the counter from growing without limit.
    fn.return_if(fn.atomic_load(I64, following, "monotonic") >= capacity)
    slot = fn.atomic_update("add", following, fn.i64(1), "monotonic")
    fn.return_if(slot >= capacity)
    rows = _HEADER.load(fn, recorder, "rows")
    first = fn.at(recorder, I64, rows * (_TOTALS.size // 8) + _HEADER.size // 8)
    event = fn.at(first, I64, slot * (_EVENT.size // 8))
    thread = fn.call("pthread_self", I64)
    for name, value in (("number", number), ("begin", begin), ("end", end), ("thread", thread)):
        _EVENT.store(fn, event, name, value)


def _totals(fn: Function, recorder: Value, number: Value) -> Value:
    return fn.at(recorder, I64, number * (_TOTALS.size // 8) + _HEADER.size // 8)


def _emit_note(module: Module) -> None:
    """``xlakit_profile_note(ptr recorder, i64 number, i64 begin) -> i64``: record the end of a step; gives the time."""
    fn, recorder, number, begin = module.begin(NOTE, I64, [PTR, I64, I64], external=True)
    now = waiting.clock(fn)
    took = now - begin
    totals = _totals(fn, recorder, number)
    for opcode, name, value in (
        ("add", "count", fn.i64(1)),
        ("add", "total", took),
        ("min", "least", took),
        ("max", "most", took),
    ):
        fn.atomic_update(opcode, _TOTALS.at(fn, totals, name), value, "monotonic")
    fn.call("event", VOID, recorder, number, begin, now)
    fn.ret(now)


def _emit_range(module: Module) -> None:
    """``xlakit_profile_range(ptr recorder, i64 number, i64 begin)``: record the end of a range of a step's tasks."""
    fn, recorder, number, begin = module.begin(RANGE, VOID, [PTR, I64, I64], external=True)
    now = waiting.clock(fn)
    totals = _totals(fn, recorder, number)
    fn.atomic_update("add", _TOTALS.at(fn, totals, "ranges"), fn.i64(1), "monotonic")
    fn.atomic_update("add", _TOTALS.at(fn, totals, "busy"), now - begin, "monotonic")
    fn.call("event", VOID, recorder, number | _RANGE_BIT, begin, now)


def now() -> int:
    """The clock of the events, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
