"""Decides which calls go into the queue, so that Python continues meanwhile; learned from the times of earlier calls.

A call in the queue costs some ten microseconds, and its NumPy arguments are copied. In return Python runs concurrently,
if there are processors for both: if Python and all threads of a program need more processors than there are, they
compete, and it may be better if the program leaves one to Python. So a call may run in three ways, and the best of them
is found by trying:

| way | thread | threads of the program |
|---|---|---|
| HERE | Python's | all |
| QUEUED_ONE_LESS | the queue's | one less |
| QUEUED_ALL_THREADS | the queue's | all |

The ways are tried if the program takes more than a millisecond (``time``; of shorter programs one call in 16 is
measured), and if Python is busy between its calls for at least a sixteenth of the program's time. ``gap`` is that busy
time: the nanoseconds since the last call returned, without those for which Python waited for programs (``waited``).
``time`` and ``gap`` are moving means, in which a new value has the weight 1/4.

| phase | the way of a call | next phase, after a fixed number of calls |
|---|---|---|
| 0, 1, 2 | the way of this number; ``periods`` sums up the times from call to call, when the queue is full | the next |
| 3 | the way with the least time (``way``); HERE unless another is clearly better | 0 |

A gap that is too small leads back to phase 0. So do, in phase 3, calls in the queue whose times (``recent``) differ by
more than a quarter from those when the way was tried, or exceed those of HERE then. Python threads that call the same
program may overwrite each other's numbers, which may only choose a slower way.
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
    """The three ways in which a call may run; see the table above."""

    HERE = 0
    QUEUED_ONE_LESS = 1
    QUEUED_ALL_THREADS = 2


_SETTLED: Final = len(Way)

_LONG_NANOSECONDS: Final = 1_000_000
# The number of first calls, which are all measured; after them one in so many is.
_MEASURED_CALLS: Final = 4
_MEASURED_SHARE: Final = 16
# The least gap between calls is the program's time divided by this.
_LEAST_GAP: Final = 16
# In phases 0 to 2: the number of first calls that are ignored, as they fill the queue, and the number of calls that are
# counted. In phase 3: the number of calls, and the number after which their times are checked. All are powers of two,
# except the first.
_EARLY_CALLS: Final = 4
_COUNTED_CALLS: Final = 8
_SETTLED_CALLS: Final = 512
_WATCHED_CALLS: Final = 64
# Another way is clearly better than HERE if it takes at most this fraction (numerator, denominator) of HERE's time.
_LEAST_GAIN: Final = 15, 16


def emit_dispatch(module: Module) -> None:
    """``is_measured(ptr executable) -> i1``, ``note_time(ptr executable, i64 nanoseconds)`` of a call on this thread,

    ``note_return(ptr executable)``: a call returns; ``note_end(ptr event)``: a call in the queue has ended;
    ``way_of(ptr executable, i64 threads) -> i64``, and for Python ``set_queue_mode(i64)``.
    """
    module.global_data(MODE, 8)
    fn = module.function("set_queue_mode", VOID, [I64], external=True)
    fn.store(fn.parameters[0], fn.address(MODE))
    _emit_measuring(module)
    _emit_gap(module)
    _emit_next_phase(module)
    _emit_has_changed(module)
    _emit_way(module)


def is_long(fn: Function, executable: Value) -> Value:
    """Whether a program takes so long that it may go into the queue."""
    return EXECUTABLE.load(fn, executable, "time") >= _LONG_NANOSECONDS


def _mean(fn: Function, executable: Value, name: str, sample: Value) -> Value:
    """Update a moving mean by a sample; gives the new mean."""
    before = EXECUTABLE.load(fn, executable, name)
    after = fn.select(before.eq(0), sample, before + (sample - before).integer("ashr", 2))
    EXECUTABLE.store(fn, executable, name, after)
    return after


def _waited(fn: Function) -> Value:
    return fn.atomic_load(I64, fn.address("waited"), "monotonic")


def _emit_measuring(module: Module) -> None:
    fn, executable = module.begin("is_measured", I1, [PTR])
    runs = EXECUTABLE.load(fn, executable, "runs")
    EXECUTABLE.store(fn, executable, "runs", runs + 1)
    fn.ret((runs < _MEASURED_CALLS) | (runs & (_MEASURED_SHARE - 1)).eq(0) | is_long(fn, executable))

    fn, executable, nanoseconds = module.begin("note_time", VOID, [PTR, I64])
    # The first call is ignored: caches are cold, and its memory is newly allocated.
    fn.return_if(EXECUTABLE.load(fn, executable, "runs") < 2)
    _mean(fn, executable, "time", nanoseconds)

    fn, executable = module.begin("note_return", VOID, [PTR])
    EXECUTABLE.store(fn, executable, "left", waiting.clock(fn))
    EXECUTABLE.store(fn, executable, "waited", _waited(fn))

    fn = module.function("note_end", VOID, [PTR])
    since = EVENT.load(fn, fn.parameters[0], "waited_since")
    with fn.if_(since.ne(0)):
        fn.atomic_update("add", fn.address("waited"), waiting.clock(fn) - since, "monotonic")


def _emit_gap(module: Module) -> None:
    """``gap_of(ptr executable, i64 now) -> i64``: the mean time for which Python is busy between two calls."""
    fn, executable, now = module.begin("gap_of", I64, [PTR, I64])
    left, most = EXECUTABLE.load(fn, executable, "left"), EXECUTABLE.load(fn, executable, "time") * 2
    gap = (now - left) - (_waited(fn) - EXECUTABLE.load(fn, executable, "waited"))
    # Limited to twice the program's time, as one long gap (saving a model, say) does not predict the next one.
    gap = fn.select((gap < 1) | left.eq(0), fn.i64(1), fn.select(gap > most, most, gap))
    fn.ret(_mean(fn, executable, "gap", gap))


def _period(fn: Function, executable: Value, way: Value | int) -> Value:
    return fn.at(EXECUTABLE.at(fn, executable, "periods"), I64, way)


def _emit_next_phase(module: Module) -> None:
    """``next_phase(ptr executable, i64 threads)``: after the calls of one."""
    fn, executable, threads = module.begin("next_phase", VOID, [PTR, I64])
    time, gap = (EXECUTABLE.load(fn, executable, name) for name in ("time", "gap"))
    following = EXECUTABLE.load(fn, executable, "phase") + 1
    # QUEUED_ONE_LESS is skipped if running with one thread less would cost more time than Python's concurrent work
    # saves.
    is_vain = (threads < 2) | (time >= gap * (threads - 1) * 2)
    following = fn.select(is_vain & following.eq(Way.QUEUED_ONE_LESS), fn.i64(Way.QUEUED_ALL_THREADS), following)
    following = fn.select(following > _SETTLED, fn.i64(Way.HERE), following)
    EXECUTABLE.store(fn, executable, "phase", following)
    EXECUTABLE.store(fn, executable, "count", fn.i64(0))
    EXECUTABLE.store(fn, executable, "recent", fn.i64(0))
    with fn.if_(following.eq(Way.HERE)):
        _forget(fn, executable)
    with fn.if_(following.eq(_SETTLED)):
        here = fn.load(I64, _period(fn, executable, Way.HERE))
        best, least = fn.i64(Way.HERE), here * _LEAST_GAIN[0] // _LEAST_GAIN[1]
        for way in (Way.QUEUED_ONE_LESS, Way.QUEUED_ALL_THREADS):
            its = fn.load(I64, _period(fn, executable, way))
            is_better = its.ne(0) & (its < least)
            best, least = fn.select(is_better, fn.i64(way), best), fn.select(is_better, its, least)
        EXECUTABLE.store(fn, executable, "way", best)


def _forget(fn: Function, executable: Value) -> None:
    for way in Way:
        fn.store(fn.i64(0), _period(fn, executable, way))


def _emit_has_changed(module: Module) -> None:
    """``has_changed(ptr executable, i64 period, i64 count) -> i1``: whether the time of the best way has changed.

    count: the number of calls before this one that took the way.
    """
    fn, executable, period, count = module.begin("has_changed", I1, [PTR, I64, I64])
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
    fn, executable, threads = module.begin("way_of", I64, [PTR, I64], external=True)
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
