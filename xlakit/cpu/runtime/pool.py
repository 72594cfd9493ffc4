"""The thread pool: splits a job into chunks, which the calling thread and the workers execute in parallel.

``xlakit_parallel(ptr function, ptr table, i64 tasks, i64 grain)`` calls ``function(table, begin, end)`` for ranges that
together are [0, tasks), and returns when all calls have returned. Every range begins at a multiple of ``grain``, and is
``grain`` long except the last. If one thread executes the whole job, ranges grow until one takes a while; if no program
runs that could be canceled, there is one call with the whole range.

Between ranges, threads check whether the program is canceled (``xlakit_poll``), so that Ctrl-C ends long jobs; long
tasks check it themselves (``xlakit_is_cancelled``), and so does the caller while it waits for the workers. After a
cancellation this job and all later jobs of the program skip their remaining chunks, the context has the status as
``stopped``, and the entry returns it before a step reads incomplete results.

Each participant begins with its own contiguous share of the chunks, so that it finds the data of the previous job in
its cache, and then takes chunks that other participants have left. A thread that arrives late finds no chunk left, so
no job waits for a thread that the system does not schedule.

A job runs serially inside of another job, and while another Python thread owns the pool: two concurrent programs then
have a processor each, and no deadlock is possible.

Workers wait for a change of ``state``, first spinning and then asleep. Sleeping workers are woken as a tree: the caller
wakes two, and each of these two more. After ``fork`` the child has no workers, and starts its own at its first job.

Linux often wakes a thread on the processor of the thread that wakes it, where it may wait for up to 50 ms while another
processor is idle. So each thread of a job records its processor, and a worker that finds another one there moves away.
"""

from __future__ import annotations

import sys

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import CONTEXT
from xlakit.cpu.runtime.float_mode import get_mode, set_mode
from xlakit.cpu.runtime.record import Record
from xlakit.cpu.runtime.thread_state import THREAD, thread_state
from xlakit.cpu.runtime.threads import start_thread
from xlakit.cpu.threads import MAX_THREADS

# The parts of ``state``: the number of workers inside of the job, whether more may join, and the number of the job.
_INSIDE = (1 << 16) - 1
_OPEN = 1 << 16
_JOB_SHIFT = 17
_NEXT_JOB = 1 << _JOB_SHIFT

# How long a worker spins for the next job, and the caller for the last workers: slightly longer than a wake-up takes.
_SPIN_NANOSECONDS = 30_000
_STOP_NANOSECONDS = 1_000_000_000
# How long the caller sleeps between two cancellation checks.
_ASLEEP_NANOSECONDS = 100_000_000
# How long a thread that executes a job alone computes between two cancellation checks.
_ALONE_NANOSECONDS = 10_000_000

# state has its own cache line. owner: 1 while a thread runs a job. workers: the number of started workers. alive: those
# that have not ended. threads: the number that a job may use. processors: the number of processors. spin: the spinning
# time in nanoseconds. The rest describes the job, and does not change while a worker is inside.
_POOL = Record(
    state=1, _line_1=7,
    owner=1, workers=1, alive=1, threads=1, processors=1, spin=1, stopping=1, _line_2=1,
    function=1, table=1, tasks=1, grain=1, participants=1, running=1, mode=1, _line_3=1,
)  # fmt: skip

# The data of each participant, the caller being number 0: its share of the chunks, and its parking slot.
_PARTICIPANT = Record(next=1, end=1, _line_1=6, parking=waiting.PARKING_SLOT.size // 8)
_PARTICIPANT_BYTES = -(-_PARTICIPANT.size // 64) * 64

# Only Linux reports the processor of a thread. Sets of processors are bit masks of this length.
_CAN_MOVE = sys.platform == "linux"
_MOST_PROCESSORS = 1024
_MASK_BYTES = _MOST_PROCESSORS // 8


def emit_pool(module: Module) -> None:
    """Write the pool's functions into a module that has the functions of emit_thread_state."""
    module.global_data("pool", _POOL.size)
    module.global_data("participants", _PARTICIPANT_BYTES * MAX_THREADS)
    _emit_wake_children(module)
    if _CAN_MOVE:
        _emit_spread(module)
    _emit_cancellation(module)
    _emit_work(module)
    _emit_join(module)
    _emit_worker(module)
    _emit_grow(module)
    _emit_run_job(module)
    _emit_alone(module)
    _emit_parallel(module)
    _emit_thread_count(module)
    _emit_reset(module)
    _emit_stop(module)


def emit_pool_start(fn: Function, threads: Value, processors: Value) -> None:
    """Initialize the pool with the number of threads that a job may use and the number of processors."""
    pool = fn.address("pool")
    _POOL.store(fn, pool, "threads", threads)
    _POOL.store(fn, pool, "processors", processors)
    if _CAN_MOVE:
        fn.module.declare("sched_getaffinity", I32, [I32, I64, PTR])
        fn.call("sched_getaffinity", I32, fn.i32(0), fn.i64(_MASK_BYTES), fn.address("allowed"))
    fn.call("xlakit_pool_reset", VOID)


def _participant(fn: Function, number: Value) -> Value:
    return fn.at(fn.address("participants"), I64, number * (_PARTICIPANT_BYTES // 8))


def _parking_slot(fn: Function, number: Value) -> Value:
    return _PARTICIPANT.at(fn, _participant(fn, number), "parking")


def _field(fn: Function, name: str) -> Value:
    return _POOL.load(fn, fn.address("pool"), name)


def _state(fn: Function) -> Value:
    return fn.atomic_load(I64, fn.address("pool"), "seq_cst")


def _emit_wake_children(module: Module) -> None:
    """``wake_children(i64 number, i64 participants)``: wake the children of a participant in the tree."""
    fn, number, participants = module.begin("wake_children", VOID, [I64, I64])
    first = number * 2 + 1
    with fn.loop(first, (first + 2).smin(participants)) as children:
        waiting.wake(fn, _parking_slot(fn, children.index))


def _emit_spread(module: Module) -> None:
    """``claim_processor(i64 job) -> i1``: record that this thread runs here; whether another one of the job does.

    ``spread(i64 job)``: claim the processor, and if it was claimed before, move to a processor where no thread of the
    job runs.
    """
    # claims: for each processor the last job that a thread executed there. allowed: the processors of the process.
    module.global_data("claims", 8 * _MOST_PROCESSORS)
    module.global_data("allowed", _MASK_BYTES)
    module.declare("sched_getcpu", I32, [])
    module.declare("sched_setaffinity", I32, [I32, I64, PTR])
    fn, job = module.begin("claim_processor", I1, [I64])
    processor = fn.call("sched_getcpu", I32).cast("zext", I64)
    fn.return_if(processor >= _MOST_PROCESSORS, fn.constant(I1, 0))
    fn.ret(fn.atomic_update("xchg", fn.at(fn.address("claims"), I64, processor), job).eq(job))

    fn, job = module.begin("spread", VOID, [I64], attributes=(NO_INLINE,))
    fn.return_if(~fn.call("claim_processor", I1, job))
    mask = fn.alloca(I64, _MASK_BYTES // 8)
    words = fn.i64(_MASK_BYTES // 8)
    with fn.loop(0, words) as word:
        allowed = fn.load(I64, fn.at(fn.address("allowed"), I64, word.index))
        with fn.while_((fn.i64(0), allowed), lambda iteration: iteration.carried[0] < 64) as bit:
            number, free = bit.carried
            claim = fn.at(fn.address("claims"), I64, word.index * 64 + number)
            is_claimed = fn.atomic_load(I64, claim, "monotonic").eq(job)
            bit.next(number + 1, fn.select(is_claimed, free & ~(fn.i64(1) << number), free))
        fn.store(bit.results[1], fn.at(mask, I64, word.index))
    # If all are taken, the mask is empty; the system refuses it, and the thread stays on its processor.
    fn.call("sched_setaffinity", I32, fn.i32(0), fn.i64(_MASK_BYTES), mask)
    fn.call("claim_processor", I1, job)


def _emit_cancellation(module: Module) -> None:
    """``has_stopped() -> i1``: whether the call that this thread runs has been canceled, without polling.

    ``is_cancelled() -> i1`` also polls for signals and failures, as does ``xlakit_is_cancelled() -> i64`` for programs.
    """
    fn = module.function("has_stopped", I1, [])
    running = THREAD.pointer(fn, thread_state(fn), "running")
    fn.return_if(running.eq(fn.null()), fn.constant(I1, 0))
    fn.ret(CONTEXT.load(fn, running, "stopped").ne(0))

    fn = module.function("is_cancelled", I1, [], attributes=(NO_INLINE,))
    running = THREAD.pointer(fn, thread_state(fn), "running")
    fn.return_if(running.eq(fn.null()), fn.constant(I1, 0))
    status = fn.call("xlakit_poll", I64, running)
    with fn.if_(status.ne(0), likely=False):
        CONTEXT.store(fn, running, "stopped", status)
    fn.ret(status.ne(0))

    fn = module.function("xlakit_is_cancelled", I64, [], external=True)
    fn.ret(fn.call("is_cancelled", I1).cast("zext", I64))


def _emit_work(module: Module) -> None:
    """``work(i64 number)``: execute the participant's own chunks, then the remaining chunks of the others.

    A cancellation takes the remaining chunks from all participants.
    """
    fn, number = module.begin("work", VOID, [I64])
    participants, tasks, grain = (_field(fn, name) for name in ("participants", "tasks", "grain"))
    pool = fn.address("pool")
    function, table = (_POOL.pointer(fn, pool, name) for name in ("function", "table"))
    with fn.loop(0, participants) as iteration:
        position = number + iteration.index
        participant = _participant(fn, fn.select(position < participants, position, position - participants))
        following, end = _PARTICIPANT.at(fn, participant, "next"), _PARTICIPANT.load(fn, participant, "end")

        def claim(following: Value = following, end: Value = end) -> Value:
            # Reading first avoids moving the cache line of an exhausted counter between processors.
            some = fn.atomic_load(I64, following, "monotonic") < end
            one = fn.i64(1)
            return fn.if_else(some, lambda: (fn.atomic_update("add", following, one),), lambda: (end,))[0]

        with fn.while_((claim(),), lambda chunk, end=end: chunk.carried[0] < end) as chunk:
            begin = chunk.carried[0] * grain
            fn.call_pointer(function, VOID, table, begin, (begin + grain).smin(tasks))
            with fn.if_(fn.call("is_cancelled", I1), likely=False), fn.loop(0, participants) as other:
                left = _participant(fn, other.index)
                fn.atomic_store(_PARTICIPANT.load(fn, left, "end"), _PARTICIPANT.at(fn, left, "next"))
            chunk.next(claim())


def _emit_join(module: Module) -> None:
    """``join(ptr seen) -> i1``: enter the job if it is open; stores its number to ``seen`` in any case."""
    fn = module.function("join", I1, [PTR])
    pool = fn.address("pool")

    def may_join(pool_state: Value, joined: Value) -> Value:
        return (pool_state & _OPEN).ne(0) & ~joined

    start = (_state(fn), fn.constant(I1, 0))
    with fn.while_(start, lambda iteration: may_join(*iteration.carried)) as iteration:
        iteration.next(*fn.compare_exchange(pool, iteration.carried[0], iteration.carried[0] + 1))
    state, joined = iteration.results
    fn.store(state >> _JOB_SHIFT, fn.parameters[0])
    fn.ret(joined)


def _emit_worker(module: Module) -> None:
    """``worker(ptr number) -> ptr``: the function of a worker thread, from its start to its end."""
    fn = module.function("worker", PTR, [PTR])
    number = fn.parameters[0].cast("ptrtoint", I64)
    pool = fn.address("pool")
    # A job that starts inside of a job runs serially.
    THREAD.store(fn, thread_state(fn), "busy", fn.i64(1))
    seen = fn.alloca(I64)
    fn.store(fn.i64(0), seen)

    def waits() -> Value:
        return (_state(fn) >> _JOB_SHIFT).eq(fn.load(I64, seen))

    def runs(_: object) -> Value:
        return fn.atomic_load(I64, _POOL.at(fn, pool, "stopping")).eq(0)

    with fn.while_((fn.i64(0),), runs) as iteration:
        waiting.spin(fn, waits, iteration.carried[0])
        with fn.if_(waits()):
            waiting.sleep(fn, _parking_slot(fn, number), waits)
        joined = fn.call("join", I1, seen)

        def take_part() -> tuple[Value]:
            participants = _field(fn, "participants")
            invited = number < participants
            with fn.if_(invited):
                fn.call("wake_children", VOID, number, participants)
                if _CAN_MOVE:
                    fn.call("spread", VOID, fn.load(I64, seen))
                THREAD.store(fn, thread_state(fn), "running", _field(fn, "running"))
                set_mode(fn, _field(fn, "mode"))
                fn.call("work", VOID, number)
                THREAD.store(fn, thread_state(fn), "running", fn.i64(0))
            before = fn.atomic_update("sub", pool, fn.i64(1))
            with fn.if_((before & (_INSIDE | _OPEN)).eq(1)):
                waiting.wake(fn, _parking_slot(fn, fn.i64(0)))
            # A worker that was not needed goes to sleep soon.
            return (fn.select(invited, _field(fn, "spin"), fn.i64(0)),)

        iteration.next(*fn.if_else(joined, take_part, lambda: (fn.i64(0),)))
    fn.atomic_update("sub", _POOL.at(fn, pool, "alive"), fn.i64(1))
    fn.ret(fn.null())


def _emit_grow(module: Module) -> None:
    """``grow(i64 wanted)``: start workers until there are ``wanted`` or the system refuses. For the pool's owner."""
    fn, wanted = module.begin("grow", VOID, [I64], attributes=(NO_INLINE, COLD))
    pool = fn.address("pool")
    start = (_field(fn, "workers"), fn.constant(I1, 0))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < wanted) & ~iteration.carried[1]) as iteration:
        number = iteration.carried[0] + 1
        waiting.make_parking_slot(fn, _parking_slot(fn, number))
        fn.atomic_update("add", _POOL.at(fn, pool, "alive"), fn.i64(1))
        is_made = start_thread(fn, "worker", number.cast("inttoptr", PTR))
        with fn.if_(~is_made):
            fn.atomic_update("sub", _POOL.at(fn, pool, "alive"), fn.i64(1))
        iteration.next(fn.select(is_made, number, iteration.carried[0]), ~is_made)
    workers = iteration.results[0]
    _POOL.store(fn, pool, "workers", workers)
    # If there are more threads than processors, spinning would take time from the workers of the job.
    enough = workers < _field(fn, "processors")
    _POOL.store(fn, pool, "spin", fn.select(enough, fn.i64(_SPIN_NANOSECONDS), fn.i64(0)))


def _emit_run_job(module: Module) -> None:
    """``run_job(ptr function, ptr table, i64 tasks, i64 grain, i64 participants)``: run a job. For the pool's owner."""
    fn, function, table, tasks, grain, participants = module.begin("run_job", VOID, [PTR, PTR, I64, I64, I64])
    pool = fn.address("pool")
    zero = fn.i64(0)
    chunks = (tasks + grain - 1) // grain
    with fn.loop(0, participants) as iteration:
        participant = _participant(fn, iteration.index)
        _PARTICIPANT.store(fn, participant, "next", iteration.index * chunks // participants)
        _PARTICIPANT.store(fn, participant, "end", (iteration.index + 1) * chunks // participants)
    running = THREAD.load(fn, thread_state(fn), "running")
    for name, value in zip(
        ("function", "table", "tasks", "grain", "participants", "running", "mode"),
        (function, table, tasks, grain, participants, running, get_mode(fn)),
        strict=True,
    ):
        _POOL.store(fn, pool, name, value)
    before = fn.atomic_update("add", pool, fn.i64(_NEXT_JOB + _OPEN))
    if _CAN_MOVE:
        fn.call("claim_processor", I1, (before >> _JOB_SHIFT) + 1)
    fn.call("wake_children", VOID, zero, participants)
    fn.call("work", VOID, zero)
    fn.atomic_update("sub", pool, fn.i64(_OPEN))

    def others_work() -> Value:
        return (_state(fn) & _INSIDE).ne(0)

    with fn.if_(others_work()):
        waiting.spin(fn, others_work, _field(fn, "spin"))
        with fn.while_((), lambda _: others_work()):
            waiting.sleep(fn, _parking_slot(fn, zero), others_work, fn.i64(_ASLEEP_NANOSECONDS))
            fn.call("is_cancelled", I1)


def _emit_alone(module: Module) -> None:
    """``run_alone(ptr function, ptr table, i64 tasks, i64 grain)``: execute a job on the calling thread alone.

    Ranges double while one takes less than _ALONE_NANOSECONDS, so that cancellation checks are frequent and cheap.
    """
    fn, function, table, tasks, grain = module.begin("run_alone", VOID, [PTR, PTR, I64, I64])
    start = (fn.i64(0), grain, waiting.clock(fn), fn.constant(I1, 0))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < tasks) & ~iteration.carried[3]) as iteration:
        begin, length, then, _ = iteration.carried
        left = tasks - begin
        end = begin + length.smin(left)
        fn.call_pointer(function, VOID, table, begin, end)
        now = waiting.clock(fn)
        short = ((now - then) < _ALONE_NANOSECONDS) & (length < left)
        iteration.next(end, fn.select(short, length + length, length), now, fn.call("is_cancelled", I1))


def _emit_parallel(module: Module) -> None:
    """``xlakit_parallel``, described at the top of this file."""
    fn, function, table, tasks, grain = module.begin("xlakit_parallel", VOID, [PTR, PTR, I64, I64], external=True)
    zero, one = fn.i64(0), fn.i64(1)
    pool = fn.address("pool")
    fn.return_if((tasks <= 0) | fn.call("has_stopped", I1))
    grain = fn.select(grain < 1, one, grain)
    state = thread_state(fn)
    most_threads = ((tasks + grain - 1) // grain).smin(fn.call("xlakit_thread_count", I64))
    may_share = (most_threads > 1) & THREAD.load(fn, state, "busy").eq(0)
    owner = _POOL.at(fn, pool, "owner")
    (owned,) = fn.if_else(may_share, lambda: (fn.compare_exchange(owner, zero, one)[1],), lambda: (fn.constant(I1, 0),))

    def share() -> tuple[Value]:
        with fn.if_(_field(fn, "workers") < most_threads - 1, likely=False):
            fn.call("grow", VOID, most_threads - 1)
        participants = most_threads.smin(_field(fn, "workers") + 1)
        THREAD.store(fn, state, "busy", one)
        fn.call("run_job", VOID, function, table, tasks, grain, participants)
        THREAD.store(fn, state, "busy", zero)
        fn.atomic_store(zero, owner)
        return (fn.constant(I1, 1),)

    (was_shared,) = fn.if_else(owned, share, lambda: (fn.constant(I1, 0),))
    with fn.if_(~was_shared):
        # An outer job checks for cancellation itself, and without a program there is nothing to cancel.
        asks = THREAD.load(fn, state, "busy").eq(0) & THREAD.load(fn, state, "running").ne(0)
        whole = ~asks | (tasks <= grain)
        with fn.if_(whole):
            fn.call_pointer(function, VOID, table, zero, tasks)
        with fn.if_(~whole):
            fn.call("run_alone", VOID, function, table, tasks, grain)


def _emit_thread_count(module: Module) -> None:
    """``xlakit_thread_count() -> i64``: the number of threads that a job of this thread may use."""
    fn = module.function("xlakit_thread_count", I64, [], external=True)
    limit = THREAD.load(fn, thread_state(fn), "limit")
    count = fn.select(limit.eq(0), _field(fn, "threads"), limit)
    fn.ret(count.smin(MAX_THREADS))


def _emit_reset(module: Module) -> None:
    """``xlakit_pool_reset()``: set the pool to have no workers; at start, and in the child after a fork."""
    fn = module.function("xlakit_pool_reset", VOID, [], external=True)
    pool, zero = fn.address("pool"), fn.i64(0)
    for name in ("state", "owner", "workers", "alive", "spin", "stopping"):
        _POOL.store(fn, pool, name, zero)
    waiting.make_parking_slot(fn, _parking_slot(fn, zero))
    THREAD.store(fn, thread_state(fn), "busy", zero)


def _emit_stop(module: Module) -> None:
    """``xlakit_pool_stop()``: end the workers; every later job runs serially.

    Does nothing if another thread owns the pool and does not release it within a second.
    """
    fn = module.function("xlakit_pool_stop", VOID, [], external=True)
    pool, zero, one = fn.address("pool"), fn.i64(0), fn.i64(1)
    owner, alive = _POOL.at(fn, pool, "owner"), _POOL.at(fn, pool, "alive")
    deadline = waiting.clock(fn) + _STOP_NANOSECONDS

    def try_to_own() -> Value:
        return fn.compare_exchange(owner, zero, one)[1]

    start = (try_to_own(),)
    with fn.while_(start, lambda iteration: ~iteration.carried[0] & (waiting.clock(fn) < deadline)) as iteration:
        waiting.yield_processor(fn)
        iteration.next(try_to_own())
    fn.return_if(~iteration.results[0])
    fn.atomic_store(one, _POOL.at(fn, pool, "stopping"), "seq_cst")
    fn.atomic_update("add", pool, fn.i64(_NEXT_JOB))
    with fn.loop(1, _field(fn, "workers") + 1) as worker:
        waiting.wake(fn, _parking_slot(fn, worker.index))

    def some_live() -> Value:
        return (fn.atomic_load(I64, alive) > 0) & (waiting.clock(fn) < deadline)

    with fn.while_((), lambda _: some_live()):
        waiting.yield_processor(fn)
