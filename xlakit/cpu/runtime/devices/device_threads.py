"""The device threads: native threads that run the devices of a program concurrently, and then wait for the next run.

``run_devices(ptr run) -> status`` executes a RUN (see rendezvous.py) on as many threads as it has workers, the caller
being the first, and returns when all have ended; each worker runs a share of the devices (shares.py).

Idle threads sleep in a list. The caller takes those that it needs, or starts new ones, and wakes two; each of these
wakes two more. If the system refuses to start a thread, the caller runs all devices. After ``fork`` the child has no
device threads.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import Status
from xlakit.cpu.runtime.devices.deadlocks import handles_signals
from xlakit.cpu.runtime.devices.fibers import machine
from xlakit.cpu.runtime.devices.rendezvous import RUN, parking_slot_at, table_at
from xlakit.cpu.runtime.record import Record
from xlakit.cpu.runtime.thread_state import THREAD, thread_state
from xlakit.cpu.runtime.threads import emit_for_python, start_thread

# idle: the first thread of the list. waiting: the length of the list. alive: the threads that have not ended.
_THREADS = Record(idle=1, waiting=1, alive=1, stopping=1, _line=4, mutex=8)

# A thread: the next one in the list, the run that it works for (0 for none, 1 to end), and its worker number.
_WORKER = Record(next=1, run=1, number=1, _line=5, parking=waiting.PARKING_SLOT.size // 8)
_END = 1

# The most threads in the list.
_MOST_WAITING = 64

# The interval at which the caller handles signals while it waits for the other workers.
_SIGNAL_NANOSECONDS = 50_000_000
_STOP_NANOSECONDS = 1_000_000_000


def emit_device_threads(module: Module) -> None:
    """Write the functions into a module that has the functions of ``emit_shares``."""
    module.global_data("device_threads", _THREADS.size)
    _emit_give_work(module)
    _emit_worker(module)
    _emit_take_and_make_worker(module)
    _emit_gather(module)
    _emit_await_all(module)
    _emit_run_devices(module)
    # (origin, arguments, results, run): one device, on a separate thread for each.
    emit_for_python(module, "xlakit_execute_member", "execute_member", 4)
    _emit_reset(module)
    _emit_stop(module)


def _field(fn: Function, name: str) -> Value:
    return _THREADS.at(fn, fn.address("device_threads"), name)


def _thread_of(fn: Function, run: Value, worker: Value) -> Value:
    """The address of the entry for a worker's thread in a run."""
    return fn.at(table_at(fn, run, "threads"), PTR, worker)


def _emit_give_work(module: Module) -> None:
    """``give_work(ptr worker, i64 run)``: assign a run to a worker, or tell it to end."""
    # This holds the mutex of the worker's parking slot until the worker is woken, because after seeing the value the
    # worker may end at once and free its memory, including the parking slot.
    fn, worker, run = module.begin("give_work", VOID, [PTR, I64])
    parking = _WORKER.at(fn, worker, "parking")
    mutex = waiting.PARKING_SLOT.at(fn, parking, "mutex")
    module.declare("pthread_cond_signal", I32, [PTR])
    waiting.lock(fn, mutex)
    fn.atomic_store(run, _WORKER.at(fn, worker, "run"), "seq_cst")
    fn.call("pthread_cond_signal", I32, waiting.PARKING_SLOT.at(fn, parking, "condition"))
    waiting.unlock(fn, mutex)


def _emit_worker(module: Module) -> None:
    """The life of a thread: ``device_worker`` from start to end, ``work_for`` in a run, ``join_idle`` after it."""
    _emit_wake_workers(module)
    _emit_device_worker(module)
    _emit_work_for(module)
    _emit_join_idle(module)


def _emit_wake_workers(module: Module) -> None:
    """``wake_workers(ptr run, i64 number)``: wake the children of a worker in the tree."""
    fn, run, number = module.begin("wake_workers", VOID, [PTR, I64])
    first, count = number * 2 + 1, RUN.load(fn, run, "workers")
    last = fn.select(first + 2 < count, first + 2, count)
    with fn.loop(first, last) as each:
        worker = fn.load(PTR, _thread_of(fn, run, each.index))
        _WORKER.store(fn, worker, "number", each.index)
        fn.call("give_work", VOID, worker, run.cast("ptrtoint", I64))


def _emit_device_worker(module: Module) -> None:
    """``device_worker(ptr worker) -> ptr``: wait for runs and execute them, until told to end or no longer needed."""
    fn, worker = module.begin("device_worker", PTR, [PTR])

    def idle() -> Value:
        return fn.atomic_load(I64, _WORKER.at(fn, worker, "run"), "seq_cst").eq(0)

    with fn.while_((fn.constant(I1, 1),), lambda iteration: iteration.carried[0]) as iteration:
        waiting.sleep(fn, _WORKER.at(fn, worker, "parking"), idle)
        run = fn.load(I64, _WORKER.at(fn, worker, "run"))

        def work(run: Value = run) -> tuple[Value]:
            return (fn.call("work_for", I1, run.cast("inttoptr", PTR), worker),)

        def leave() -> tuple[Value]:
            return (fn.constant(I1, 0),)

        iteration.next(*fn.if_else(run.ne(_END), work, leave))
    fn.call("free", VOID, worker)
    fn.atomic_update("sub", _field(fn, "alive"), fn.i64(1))
    fn.ret(fn.null())


def _emit_work_for(module: Module) -> None:
    """``work_for(ptr run, ptr worker) -> i1``: execute a share of a run; gives whether this worker stays."""
    # A worker enters the idle list before it decrements ``left``, so that the caller finds all workers there for its
    # next run. The last worker wakes the caller, which frees the run only after locking the mutex, when no worker
    # touches it.
    fn, run, worker = module.begin("work_for", I1, [PTR, PTR])
    number = _WORKER.load(fn, worker, "number")
    fn.call("wake_workers", VOID, run, number)
    THREAD.store(fn, thread_state(fn), "limit", RUN.load(fn, run, "limit"))
    fn.call("run_share", VOID, run, number)
    fn.atomic_store(fn.i64(0), _WORKER.at(fn, worker, "run"), "seq_cst")
    stays = fn.call("join_idle", I1, worker)
    parking = parking_slot_at(fn, run, 0)
    mutex = waiting.PARKING_SLOT.at(fn, parking, "mutex")
    waiting.lock(fn, mutex)
    left = RUN.load(fn, run, "left") - 1
    RUN.store(fn, run, "left", left)
    with fn.if_(left.eq(0)):
        fn.call("pthread_cond_signal", I32, waiting.PARKING_SLOT.at(fn, parking, "condition"))
    waiting.unlock(fn, mutex)
    fn.ret(stays)


def _emit_join_idle(module: Module) -> None:
    """``join_idle(ptr worker) -> i1``: enter the idle list, unless it is full; gives whether the worker stays."""
    fn, worker = module.begin("join_idle", I1, [PTR])
    waiting.lock(fn, _field(fn, "mutex"))
    stays = (fn.load(I64, _field(fn, "waiting")) < _MOST_WAITING) & fn.load(I64, _field(fn, "stopping")).eq(0)
    with fn.if_(stays):
        fn.store(fn.load(PTR, _field(fn, "idle")), _WORKER.at(fn, worker, "next"))
        fn.store(worker, _field(fn, "idle"))
        fn.store(fn.load(I64, _field(fn, "waiting")) + 1, _field(fn, "waiting"))
    waiting.unlock(fn, _field(fn, "mutex"))
    fn.ret(stays)


def _emit_take_and_make_worker(module: Module) -> None:
    """``take_worker() -> ptr``: an idle thread, or null; ``make_worker() -> ptr``: a new one, or null."""
    fn = module.function("take_worker", PTR, [])
    waiting.lock(fn, _field(fn, "mutex"))
    worker = fn.load(PTR, _field(fn, "idle"))
    with fn.if_(worker.ne(fn.null())):
        fn.store(_WORKER.pointer(fn, worker, "next"), _field(fn, "idle"))
        fn.store(fn.load(I64, _field(fn, "waiting")) - 1, _field(fn, "waiting"))
    waiting.unlock(fn, _field(fn, "mutex"))
    fn.ret(worker)

    fn = module.function("make_worker", PTR, [], attributes=(NO_INLINE, COLD))
    worker = fn.call("calloc", PTR, fn.i64(1), fn.i64(_WORKER.size))
    fn.return_if(worker.eq(fn.null()), worker)
    waiting.make_parking_slot(fn, _WORKER.at(fn, worker, "parking"))
    fn.atomic_update("add", _field(fn, "alive"), fn.i64(1))
    with fn.if_(~start_thread(fn, "device_worker", worker)):
        fn.atomic_update("sub", _field(fn, "alive"), fn.i64(1))
        fn.call("free", VOID, worker)
        fn.ret(fn.null())
    fn.ret(worker)


def _emit_gather(module: Module) -> None:
    """``gather_workers(ptr run) -> i1``: get a thread for each worker but the first; all or none."""
    fn, run = module.begin("gather_workers", I1, [PTR])
    count = RUN.load(fn, run, "workers")
    start = (fn.i64(1), fn.constant(I1, 1))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < count) & iteration.carried[1]) as iteration:
        idle = fn.call("take_worker", PTR)
        (worker,) = fn.if_else(idle.ne(fn.null()), lambda: (idle,), lambda: (fn.call("make_worker", PTR),))
        fn.store(worker, _thread_of(fn, run, iteration.carried[0]))
        has_worker = worker.ne(fn.null())
        iteration.next(iteration.carried[0] + has_worker.cast("zext", I64), has_worker)
    end, enough = iteration.results
    with fn.if_(~enough):
        with fn.loop(1, end) as each:
            worker = fn.load(PTR, _thread_of(fn, run, each.index))
            with fn.if_(~fn.call("join_idle", I1, worker)):
                fn.call("give_work", VOID, worker, fn.i64(_END))
    fn.ret(enough)


def _emit_await_all(module: Module) -> None:
    """``await_all(ptr run) -> i64``: wait until all workers have ended; RAISED if a signal handler raised."""
    fn, run = module.begin("await_all", I64, [PTR])
    parking = parking_slot_at(fn, run, 0)
    mutex, left = waiting.PARKING_SLOT.at(fn, parking, "mutex"), RUN.at(fn, run, "left")
    is_main = handles_signals(fn)

    def some_left() -> Value:
        return fn.atomic_load(I64, left).ne(0)

    with fn.while_((fn.i64(Status.DONE),), lambda _: some_left()) as iteration:
        waiting.sleep(fn, parking, some_left, fn.i64(_SIGNAL_NANOSECONDS))
        looks = is_main & some_left() & iteration.carried[0].eq(Status.DONE)

        def look() -> tuple[Value]:
            status = fn.call("run_signal_handlers", I64)
            with fn.if_(status.ne(Status.DONE)):
                fn.call("xlakit_run_stop", VOID, run)
            return (status,)

        iteration.next(*fn.if_else(looks, look, lambda: (iteration.carried[0],)))
    # After the mutex is locked here, the last worker has released it and touches the run no more.
    waiting.lock(fn, mutex)
    waiting.unlock(fn, mutex)
    fn.ret(iteration.results[0])


def _emit_run_devices(module: Module) -> None:
    """``run_devices``, described at the top; gives await_all's status.

    If threads are missing, the caller runs all devices in turn, or gives OUT_OF_MEMORY if the machine has no fibers.
    The statuses of the devices are in the run's ``statuses``.
    """
    fn, run = module.begin("run_devices", I64, [PTR])
    workers = RUN.load(fn, run, "workers")
    with fn.if_(workers.eq(1)):
        fn.call("run_share", VOID, run, fn.i64(0))
        fn.ret(fn.i64(Status.DONE))

    gathered = fn.call("gather_workers", I1, run)
    with fn.if_(~gathered, likely=False):
        _emit_fall_back(fn, run)
    RUN.store(fn, run, "left", workers - 1)
    RUN.store(fn, run, "limit", THREAD.load(fn, thread_state(fn), "limit"))
    fn.call("wake_workers", VOID, run, fn.i64(0))
    fn.call("run_share", VOID, run, fn.i64(0))
    fn.ret(fn.call("await_all", I64, run))


def _emit_fall_back(fn: Function, run: Value) -> None:
    if machine() is not None:
        RUN.store(fn, run, "workers", fn.i64(1))
        fn.call("run_share", VOID, run, fn.i64(0))
        fn.ret(fn.i64(Status.DONE))
    else:
        fn.ret(fn.i64(Status.OUT_OF_MEMORY))


def _emit_reset(module: Module) -> None:
    """``xlakit_device_threads_reset()``: drop all threads and fibers; at start, and in the child after a fork."""
    fn = module.function("xlakit_device_threads_reset", VOID, [], external=True)
    fn.call("fibers_reset", VOID)
    fn.fill(fn.address("device_threads"), 0, _THREADS.size)
    waiting.make_mutex(fn, _field(fn, "mutex"))


def _emit_stop(module: Module) -> None:
    """``xlakit_device_threads_stop()``: end idle threads now, others after their run; waits for at most a second."""
    fn = module.function("xlakit_device_threads_stop", VOID, [], external=True)
    waiting.lock(fn, _field(fn, "mutex"))
    fn.store(fn.i64(1), _field(fn, "stopping"))
    with fn.while_(
        (fn.load(PTR, _field(fn, "idle")),), lambda iteration: iteration.carried[0].ne(fn.null())
    ) as iteration:
        (worker,) = iteration.carried
        following = _WORKER.pointer(fn, worker, "next")
        fn.call("give_work", VOID, worker, fn.i64(_END))
        iteration.next(following)
    fn.store(fn.null(), _field(fn, "idle"))
    waiting.unlock(fn, _field(fn, "mutex"))
    deadline = waiting.clock(fn) + _STOP_NANOSECONDS

    def some_live() -> Value:
        return (fn.atomic_load(I64, _field(fn, "alive")) > 0) & (waiting.clock(fn) < deadline)

    with fn.while_((), lambda _: some_live()):
        waiting.yield_processor(fn)
