"""Which calls go into the queue, so that Python goes on meanwhile. It is learned from the calls before.

A call in the queue costs some ten microseconds, and its NumPy arguments are copied. It gains what Python does beside
it, if there are processors for both: where Python and all threads of a program need more than there are, they wait for
each other, and it may be better that the program leaves one to Python. So there are three ways for a call, and the best
of them is found by trying:

| way | thread | threads of the program |
|---|---|---|
| HERE | Python's | all |
| BESIDE | the queue's | one less |
| TOGETHER | the queue's | all |

They are tried where the program takes more than a millisecond (``time``; of programs that take less, one call in 16 is
measured), and Python is busy between its calls: for ``gap`` nanoseconds since the last call returned, less what it
waited for programs meanwhile (``waited``), a sixteenth of the program's time at least. Both are means in which a new
value counts a quarter.

| phase | the way of a call | after so many calls comes |
|---|---|---|
| 0, 1, 2 | the one of this number; ``periods`` sums up the times from call to call, when the queue is full | the next |
| 3 | the one with the least time (``way``); HERE unless another is clearly better | 0 |

A gap that is too small leads back to phase 0. So do calls in the queue, in phase 3, whose times (``recent``) are a
quarter more or less than when their way was tried, or more than those of HERE then. Threads of Python that call one
program may overwrite each other's numbers: then a slower way may be taken.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.runtime import waiting
from xlakit.jax.native.records import EVENT, EXECUTABLE

# The name of a global: which calls go into the queue at all.
MODE: Final = "queue_mode"


class Way(IntEnum):
    """How a call runs."""

    HERE = 0
    BESIDE = 1
    TOGETHER = 2


_SETTLED: Final = len(Way)

_LONG_NANOSECONDS: Final = 1_000_000
# The first calls are all measured, then one in so many.
_MEASURED_CALLS: Final = 4
_MEASURED_SHARE: Final = 16
# What Python must do between calls, as a part of the program's time.
_LEAST_GAP: Final = 16
# How many calls of a phase are too early to count, since the queue becomes full with them, and how many count; how many
# go the best way, and after how many of these their times are looked at. Powers of two, but for the first.
_EARLY_CALLS: Final = 4
_COUNTED_CALLS: Final = 8
_SETTLED_CALLS: Final = 512
_WATCHED_CALLS: Final = 64
# What another way takes at most, in 16ths of the time of HERE.
_LEAST_GAIN: Final = 15, 16


def emit_dispatch(module: Module) -> None:
    """``is_measured(ptr executable) -> i1``, ``note_time(ptr executable, i64 nanoseconds)`` of a call on this thread,

    ``note_return(ptr executable)``: a call returns; ``note_end(ptr event)``: a call in the queue has ended;
    ``way_of(ptr executable, i64 threads) -> i64``, and for Python ``set_queue_mode(i64)``.
    """
    module.global_data(MODE, 8)
    fn = module.function("set_queue_mode", VOID, [I64], external=True)
    fn.store(fn.parameters[0], fn.address(MODE))
    fn.ret()
    _emit_measuring(module)
    _emit_gap(module)
    _emit_next_phase(module)
    _emit_has_changed(module)
    _emit_way(module)


def is_long(fn: Function, executable: Value) -> Value:
    """Whether a program takes so long that it may go into the queue."""
    return EXECUTABLE.load(fn, executable, "time") >= _LONG_NANOSECONDS


def _mean(fn: Function, executable: Value, name: str, sample: Value) -> Value:
    """Let a sample count in a mean; gives the new one."""
    before = EXECUTABLE.load(fn, executable, name)
    after = fn.select(before.eq(0), sample, before + (sample - before).integer("ashr", 2))
    EXECUTABLE.store(fn, executable, name, after)
    return after


def _waited(fn: Function) -> Value:
    return fn.atomic_load(I64, fn.address("waited"), "monotonic")


def _emit_measuring(module: Module) -> None:
    fn = module.function("is_measured", I1, [PTR])
    (executable,) = fn.parameters
    runs = EXECUTABLE.load(fn, executable, "runs")
    EXECUTABLE.store(fn, executable, "runs", runs + 1)
    fn.ret((runs < _MEASURED_CALLS) | (runs & (_MEASURED_SHARE - 1)).eq(0) | is_long(fn, executable))

    fn = module.function("note_time", VOID, [PTR, I64])
    executable, nanoseconds = fn.parameters
    # The first call finds nothing in the caches, and memory that is new.
    fn.return_if(EXECUTABLE.load(fn, executable, "runs") < 2)
    _mean(fn, executable, "time", nanoseconds)
    fn.ret()

    fn = module.function("note_return", VOID, [PTR])
    (executable,) = fn.parameters
    EXECUTABLE.store(fn, executable, "left", waiting.clock(fn))
    EXECUTABLE.store(fn, executable, "waited", _waited(fn))
    fn.ret()

    fn = module.function("note_end", VOID, [PTR])
    since = EVENT.load(fn, fn.parameters[0], "waited_since")
    with fn.if_(since.ne(0)):
        fn.atomic_update("add", fn.address("waited"), waiting.clock(fn) - since, "monotonic")
    fn.ret()


def _emit_gap(module: Module) -> None:
    """``gap_of(ptr executable, i64 now) -> i64``: how long Python is busy between two calls."""
    fn = module.function("gap_of", I64, [PTR, I64])
    executable, now = fn.parameters
    left, most = EXECUTABLE.load(fn, executable, "left"), EXECUTABLE.load(fn, executable, "time") * 2
    own = (now - left) - (_waited(fn) - EXECUTABLE.load(fn, executable, "waited"))
    # One long gap, such as the saving of a model, says little of the next one.
    own = fn.select((own < 1) | left.eq(0), fn.i64(1), fn.select(own > most, most, own))
    fn.ret(_mean(fn, executable, "gap", own))


def _period(fn: Function, executable: Value, way: Value | int) -> Value:
    return fn.at(EXECUTABLE.at(fn, executable, "periods"), I64, way)


def _emit_next_phase(module: Module) -> None:
    """``next_phase(ptr executable, i64 threads)``: after the calls of one."""
    fn = module.function("next_phase", VOID, [PTR, I64])
    executable, threads = fn.parameters
    time, gap = (EXECUTABLE.load(fn, executable, name) for name in ("time", "gap"))
    following = EXECUTABLE.load(fn, executable, "phase") + 1
    # With one thread less the program takes longer: more than what Python does beside it makes up for.
    is_vain = (threads < 2) | (time >= gap * (threads - 1) * 2)
    following = fn.select(is_vain & following.eq(Way.BESIDE), fn.i64(Way.TOGETHER), following)
    following = fn.select(following > _SETTLED, fn.i64(Way.HERE), following)
    EXECUTABLE.store(fn, executable, "phase", following)
    EXECUTABLE.store(fn, executable, "count", fn.i64(0))
    EXECUTABLE.store(fn, executable, "recent", fn.i64(0))
    with fn.if_(following.eq(Way.HERE)):
        _forget(fn, executable)
    with fn.if_(following.eq(_SETTLED)):
        here = fn.load(I64, _period(fn, executable, Way.HERE))
        best, least = fn.i64(Way.HERE), here * _LEAST_GAIN[0] // _LEAST_GAIN[1]
        for way in (Way.BESIDE, Way.TOGETHER):
            its = fn.load(I64, _period(fn, executable, way))
            is_better = its.ne(0) & (its < least)
            best, least = fn.select(is_better, fn.i64(way), best), fn.select(is_better, its, least)
        EXECUTABLE.store(fn, executable, "way", best)
    fn.ret()


def _forget(fn: Function, executable: Value) -> None:
    for way in Way:
        fn.store(fn.i64(0), _period(fn, executable, way))


def _emit_has_changed(module: Module) -> None:
    """``has_changed(ptr executable, i64 period, i64 count) -> i1``: whether the best way has come to take another time.

    count: how many calls went it before.
    """
    fn = module.function("has_changed", I1, [PTR, I64, I64])
    executable, period, count = fn.parameters
    recent = EXECUTABLE.load(fn, executable, "recent") + period
    is_due = (count & (_WATCHED_CALLS - 1)).eq(_WATCHED_CALLS - 1)
    EXECUTABLE.store(fn, executable, "recent", fn.select(is_due, fn.i64(0), recent))
    way = EXECUTABLE.load(fn, executable, "way")
    # A quarter of the time that so many calls would take.
    here, quarter = (
        fn.load(I64, _period(fn, executable, tried)) * (_WATCHED_CALLS // _COUNTED_CALLS // 4)
        for tried in (fn.i64(Way.HERE), way)
    )
    is_other = (recent > here * 4) | (recent > quarter * 5) | (recent < quarter * 3)
    fn.ret(is_due & way.ne(Way.HERE) & is_other)


def _emit_way(module: Module) -> None:
    fn = module.function("way_of", I64, [PTR, I64], external=True)
    executable, threads = fn.parameters
    fn.return_if(~is_long(fn, executable), fn.i64(Way.HERE))
    now = waiting.clock(fn)
    period = now - EXECUTABLE.load(fn, executable, "entered")
    EXECUTABLE.store(fn, executable, "entered", now)
    gap, time = fn.call("gap_of", I64, executable, now), EXECUTABLE.load(fn, executable, "time")
    is_idle = gap * _LEAST_GAP < time
    with fn.if_(is_idle):
        for name in ("phase", "count"):
            EXECUTABLE.store(fn, executable, name, fn.i64(0))
        _forget(fn, executable)
    fn.return_if(is_idle, fn.i64(Way.HERE))
    phase, count = (EXECUTABLE.load(fn, executable, name) for name in ("phase", "count"))
    is_settled, most = phase.eq(_SETTLED), (time + gap) * 2
    period = fn.select(period > most, most, period)
    with fn.if_(~is_settled & (count >= _EARLY_CALLS)):
        field = _period(fn, executable, phase)
        fn.store(fn.load(I64, field) + period, field)
    EXECUTABLE.store(fn, executable, "count", count + 1)
    last = fn.select(is_settled, fn.i64(_SETTLED_CALLS), fn.i64(_EARLY_CALLS + _COUNTED_CALLS - 1))
    changed = fn.if_else(
        is_settled,
        lambda: (fn.call("has_changed", I1, executable, period, count),),
        lambda: (fn.constant(I1, 0),),
    )[0]
    with fn.if_((count >= last) | changed):
        fn.call("next_phase", VOID, executable, threads)
    phase = EXECUTABLE.load(fn, executable, "phase")
    fn.ret(fn.select(phase.eq(_SETTLED), EXECUTABLE.load(fn, executable, "way"), phase))
