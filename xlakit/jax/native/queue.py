"""The queue: asynchronous calls of programs, which run one after the other on a separate thread.

A call that enters has everything but the values of its arguments: the memory of its results is allocated, donated
buffers are marked as deleted, and each argument is ready or a result of an earlier call in the queue. So a call never
waits when its turn comes, and it fails without running if a call that computes one of its arguments has failed. Only
programs that need no Python enter: the thread never takes the GIL, so Python threads may wait for it with the GIL held.

| state of a call | it is in | its event | what happens next |
|---|---|---|---|
| made | no list | pending | the caller: ``push`` |
| waiting | the list from ``first`` to ``last`` | pending | the thread takes the first one, then it is ``running`` |
| running | ``running`` | pending | the thread: it releases blocks and events, completes the event, and frees the call |
| done | nowhere | ready, with an error or none | |

The list, ``running`` and ``weight`` change under the events' lock. The condition ``work`` wakes the thread for a new
call; the events' condition wakes waiters when a call has ended. A call counts in ``weight`` until it is done; a caller
waits while the total weight would exceed the limit.

Linux tends to wake the thread on the processor of its waker, where the two would compete while another processor is
idle. So the thread moves away from the processor of a call's caller.

After ``cancel_queue`` waiting calls fail until none is left, and the running one is interrupted. A forked child has no
queue thread: the calls of the parent fail there, and a new thread is made for the next call.
"""

from __future__ import annotations

import sys
from typing import Final

from xlakit.cpu.llvm import I1, I8, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import CONTEXT, Status
from xlakit.cpu.runtime.devices.replicas import REPLICAS
from xlakit.cpu.runtime.record import Record
from xlakit.cpu.runtime.threads import start_thread
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.errors import error
from xlakit.jax.native.events import condition, is_ready, mutex, wait_until
from xlakit.jax.native.records import CALL, EVENT, EXECUTABLE

# Only Linux reports the processor of a thread. Sets of processors are masks of so many bits.
_CAN_MOVE: Final = sys.platform == "linux"
_MOST_PROCESSORS: Final = 1024
_MASK_BYTES: Final = _MOST_PROCESSORS // 8

# is_cancelled: whether calls fail. has_thread: whether the thread has been made. usual: the floating-point environment
# of the thread. allowed: the processors that it may run on.
_QUEUE: Final = Record(
    first=1, last=1, running=1, weight=1, is_cancelled=1, has_thread=1, _line=2, work=8, usual=32,
    allowed=_MASK_BYTES // 8,
)  # fmt: skip

# The weight of a call of a long program: three of them fill the queue.
LONG_WEIGHT: Final = 21
_MOST_WEIGHT: Final = 64

_FAULTS: Final = {
    Status.OUT_OF_MEMORY: (
        Code.RESOURCE_EXHAUSTED,
        "there is not enough memory for the program's intermediate values",
    ),
    Status.INTERRUPTED: (Code.CANCELLED, "the program was interrupted"),
    Status.DEADLOCKED: (
        Code.INTERNAL,
        "the devices of the program wait for each other at collectives that not all of them come to; with "
        "XLAKIT_ASYNC=0 the call raises this, with the instructions and lines at which they wait",
    ),
}
_UNKNOWN_FAULT: Final = "the program ended with an unknown status"
_FORKED: Final = "the process was forked while the program ran; fork before, or wait for the results first"


def emit_queue(module: Module) -> None:
    """``queue_start()``, ``ensure_thread() -> i1``, ``push(ptr call)``, ``await_queue(i64 weight) -> i1``.

    For Python ``queue_weight() -> i64``, ``cancel_queue()``, and three functions for a fork.
    """
    module.global_data("queue", _QUEUE.size)
    module.declare("pthread_cond_wait", I32, [PTR, PTR])
    module.declare("pthread_cond_signal", I32, [PTR])
    for name in ("fegetenv", "fesetenv"):
        module.declare(name, I32, [PTR])
    if _CAN_MOVE:
        _emit_move_away(module)
    _emit_start(module)
    _emit_thread(module)
    _emit_run(module)
    _emit_serve(module)
    _emit_push(module)
    _emit_for_python(module)
    _emit_fork(module)


def blocks_of(fn: Function, call: Value) -> Value:
    """The table of a call's blocks; see CALL."""
    return fn.at(call, I8, CALL.size)


def data_of(fn: Function, call: Value) -> Value:
    """The table of the addresses of its arguments and results."""
    return fn.at(blocks_of(fn, call), PTR, CALL.load(fn, call, "count"))


def events_of(fn: Function, call: Value) -> Value:
    """The table of its arguments' events."""
    return fn.at(data_of(fn, call), PTR, CALL.load(fn, call, "count"))


def _queue(fn: Function) -> Value:
    return fn.address("queue")


def _work(fn: Function) -> Value:
    return _QUEUE.at(fn, _queue(fn), "work")


def _get(fn: Function, name: str) -> Value:
    return fn.load(PTR, _QUEUE.at(fn, _queue(fn), name))


def _set(fn: Function, name: str, value: Value) -> None:
    fn.store(value, _QUEUE.at(fn, _queue(fn), name))


def _weight(fn: Function) -> Value:
    return fn.atomic_load(I64, _QUEUE.at(fn, _queue(fn), "weight"))


def _interrupt(fn: Function, call: Value, *, stop: bool) -> None:
    """Set or clear the flag that interrupts all runs of a call's program."""
    executable = fn.load(PTR, CALL.at(fn, call, "executable"))
    own_context = EXECUTABLE.at(fn, executable, "context")
    devices = EXECUTABLE.load(fn, executable, "num_devices")

    def of_devices() -> tuple[Value]:
        return (fn.load(PTR, REPLICAS.at(fn, fn.load(PTR, own_context), "origins")),)

    (contexts,) = fn.if_else(devices > 1, of_devices, lambda: (own_context,))
    with fn.loop(0, devices) as each:
        context = fn.load(PTR, fn.at(contexts, PTR, each.index))
        fn.atomic_store(fn.i64(int(stop)), CONTEXT.at(fn, context, "interrupt"))


def _emit_start(module: Module) -> None:
    fn = module.function("queue_start", VOID, [], external=True)
    # Saved for the queue's thread, which may be started by a thread of jaxlib that flushes subnormal numbers to zero.
    fn.call("fegetenv", I32, _QUEUE.at(fn, _queue(fn), "usual"))
    if _CAN_MOVE:
        fn.call("sched_getaffinity", I32, fn.i32(0), fn.i64(_MASK_BYTES), _QUEUE.at(fn, _queue(fn), "allowed"))
    fn.call("reset_queue", VOID)

    fn = module.function("reset_queue", VOID, [])
    for name in ("first", "last", "running", "weight", "is_cancelled", "has_thread"):
        _set(fn, name, fn.i64(0))
    fn.fill(_work(fn), 0, 64)
    fn.call("pthread_cond_init", I32, _work(fn), fn.null())


def _emit_move_away(module: Module) -> None:
    """``move_away(i64 processor)``: if this thread runs on that processor, move it to another one that it may use."""
    module.declare("sched_getcpu", I32, [])
    for name in ("sched_getaffinity", "sched_setaffinity"):
        module.declare(name, I32, [I32, I64, PTR])
    fn, processor = module.begin("move_away", VOID, [I64])
    fn.return_if(_processor(fn).ne(processor) | (processor >= _MOST_PROCESSORS))
    mask = fn.alloca(I64, _MASK_BYTES // 8)
    fn.copy(mask, _QUEUE.at(fn, _queue(fn), "allowed"), _MASK_BYTES)
    word = fn.at(mask, I64, processor >> 6)
    fn.store(fn.load(I64, word) & ~(fn.i64(1) << (processor & 63)), word)
    # If there is no other processor the mask is empty; the system refuses it, and the thread is not moved.
    fn.call("sched_setaffinity", I32, fn.i32(0), fn.i64(_MASK_BYTES), mask)


def _processor(fn: Function) -> Value:
    """The processor on which this thread runs; 0 where the system does not say."""
    return fn.call("sched_getcpu", I32).cast("zext", I64) if _CAN_MOVE else fn.i64(0)


def _emit_thread(module: Module) -> None:
    """``ensure_thread() -> i1``: starts the queue's thread if it has none; whether it has one then."""
    fn = module.function("make_thread", VOID, [], attributes=(NO_INLINE, COLD))
    with fn.if_(start_thread(fn, "serve_queue", fn.null())):
        _set(fn, "has_thread", fn.i64(1))

    fn = module.function("ensure_thread", I1, [])
    has_thread = _QUEUE.at(fn, _queue(fn), "has_thread")
    fn.return_if(fn.atomic_load(I64, has_thread).ne(0), fn.constant(I1, 1))
    waiting.lock(fn, mutex(fn))
    with fn.if_(fn.load(I64, has_thread).eq(0)):
        fn.call("make_thread", VOID)
    waiting.unlock(fn, mutex(fn))
    fn.ret(fn.load(I64, has_thread).ne(0))


def _emit_run(module: Module) -> None:
    """``fault_of(i64 status) -> ptr``, ``inherited_error(ptr call) -> ptr``, ``run_call(ptr call) -> ptr``.

    Each gives an error, or null. An inherited error is that of the first argument that could not be computed.
    """
    fn, status = module.begin("fault_of", PTR, [I64], attributes=(NO_INLINE, COLD))
    for number, (code, text) in _FAULTS.items():
        with fn.if_(status.eq(number)):
            fn.ret(error(fn, code, text))
    fn.ret(error(fn, Code.INTERNAL, _UNKNOWN_FAULT))

    fn, call = module.begin("inherited_error", PTR, [PTR])
    events = events_of(fn, call)
    with fn.loop(0, CALL.load(fn, call, "total_args"), carried=[fn.null()]) as iteration:
        event = fn.load(PTR, fn.at(events, PTR, iteration.index))

        def its_error(event: Value = event) -> tuple[Value]:
            return (fn.load(PTR, EVENT.at(fn, event, "error")),)

        (found,) = fn.if_else(event.ne(fn.null()), its_error, lambda: (fn.null(),))
        iteration.next(fn.select(iteration.carried[0].eq(fn.null()), found, iteration.carried[0]))
    fn.ret(fn.call("copy_error", PTR, iteration.results[0]))

    fn, call = module.begin("run_call", PTR, [PTR])
    executable = fn.load(PTR, CALL.at(fn, call, "executable"))
    inherited = fn.call("inherited_error", PTR, call)
    fn.return_if(inherited.ne(fn.null()), inherited)
    with fn.if_(_get(fn, "is_cancelled").ne(fn.null()), likely=False):
        fn.ret(fn.call("fault_of", PTR, fn.i64(Status.INTERRUPTED)))
    run, context = (fn.load(PTR, EXECUTABLE.at(fn, executable, name)) for name in ("run", "context"))
    if _CAN_MOVE:
        fn.call("move_away", VOID, CALL.load(fn, call, "processor"))
    fn.call("xlakit_limit_threads", I64, CALL.load(fn, call, "threads"))
    data = data_of(fn, call)
    results = fn.at(data, PTR, CALL.load(fn, call, "total_args"))
    status = fn.call_pointer(run, I64, context, data, results)
    with fn.if_(status.ne(0), likely=False):
        fn.ret(fn.call("fault_of", PTR, status))
    fn.ret(fn.null())


def _emit_serve(module: Module) -> None:
    """``serve_queue(ptr) -> ptr``, the main function of the queue's thread; ``end_call(ptr call, ptr error)``."""
    fn, call, failure = module.begin("end_call", VOID, [PTR, PTR])
    blocks, events = blocks_of(fn, call), events_of(fn, call)
    executable, event = (fn.load(PTR, CALL.at(fn, call, name)) for name in ("executable", "event"))
    with fn.loop(0, CALL.load(fn, call, "total_args")) as iteration:
        fn.call("release_event", VOID, fn.load(PTR, fn.at(events, PTR, iteration.index)))
    with fn.loop(0, CALL.load(fn, call, "count")) as iteration:
        fn.call("release_queued", VOID, fn.load(PTR, fn.at(blocks, PTR, iteration.index)))
    fn.call("note_end", VOID, event)
    fn.call("complete_event", VOID, event, failure)
    waiting.lock(fn, mutex(fn))
    _set(fn, "running", fn.null())
    with fn.if_(_get(fn, "is_cancelled").ne(fn.null()), likely=False):
        _interrupt(fn, call, stop=False)
        _set(fn, "is_cancelled", _get(fn, "first").ne(fn.null()).cast("zext", I64))
    fn.atomic_update("sub", _QUEUE.at(fn, _queue(fn), "weight"), CALL.load(fn, call, "weight"))
    fn.call("pthread_cond_broadcast", I32, condition(fn))
    waiting.unlock(fn, mutex(fn))
    fn.call("release_executable", VOID, executable)
    fn.call("xlakit_release", VOID, call)

    fn = module.function("serve_queue", PTR, [PTR])
    fn.call("fesetenv", I32, _QUEUE.at(fn, _queue(fn), "usual"))
    fn.call("xlakit_detach_thread", VOID)
    with fn.while_((), lambda _: fn.constant(I1, 1)):
        waiting.lock(fn, mutex(fn))
        with fn.while_((), lambda _: _get(fn, "first").eq(fn.null())):
            fn.call("pthread_cond_wait", I32, _work(fn), mutex(fn))
        call = _get(fn, "first")
        _set(fn, "first", fn.load(PTR, CALL.at(fn, call, "next")))
        _set(fn, "running", call)
        waiting.unlock(fn, mutex(fn))
        fn.call("end_call", VOID, call, fn.call("run_call", PTR, call))
    fn.ret(fn.null())


def _emit_push(module: Module) -> None:
    """``push(ptr call)``: append a call to the queue, which owns it from here on."""
    fn, call = module.begin("push", VOID, [PTR])
    fn.store(fn.null(), CALL.at(fn, call, "next"))
    CALL.store(fn, call, "processor", _processor(fn))
    waiting.lock(fn, mutex(fn))
    is_first = _get(fn, "first").eq(fn.null())
    with fn.if_(is_first):
        _set(fn, "first", call)
    with fn.if_(~is_first):
        fn.store(call, CALL.at(fn, _get(fn, "last"), "next"))
    _set(fn, "last", call)
    fn.atomic_update("add", _QUEUE.at(fn, _queue(fn), "weight"), CALL.load(fn, call, "weight"))
    with fn.if_(is_first):
        fn.call("pthread_cond_signal", I32, _work(fn))
    waiting.unlock(fn, mutex(fn))

    # await_queue: wait until a call of this weight may enter or, for the greatest weight, until the queue is empty.
    fn, weight = module.begin("await_queue", I1, [I64])

    def has_room() -> Value:
        return (_weight(fn) + weight) <= _MOST_WEIGHT

    fn.return_if(has_room(), fn.constant(I1, 0))
    since = waiting.clock(fn)
    is_interrupted = wait_until(fn, has_room)
    fn.atomic_update("add", fn.address("waited"), waiting.clock(fn) - since, "monotonic")
    fn.ret(is_interrupted)


def await_empty(fn: Function) -> Value:
    """Wait until the queue is empty; gives an I1, whether a signal handler has raised an exception meanwhile."""
    return fn.call("await_queue", I1, fn.i64(_MOST_WEIGHT))


def _emit_for_python(module: Module) -> None:
    fn = module.function("queue_weight", I64, [], external=True)
    fn.ret(_weight(fn))

    fn = module.function("cancel_queue", VOID, [], external=True)
    waiting.lock(fn, mutex(fn))
    _set(fn, "is_cancelled", fn.i64(1))
    running = _get(fn, "running")
    with fn.if_(running.ne(fn.null())):
        _interrupt(fn, running, stop=True)
    waiting.unlock(fn, mutex(fn))


def _emit_fork(module: Module) -> None:
    for name, act in (("queue_before_fork", waiting.lock), ("queue_after_fork_in_parent", waiting.unlock)):
        fn = module.function(name, VOID, [], external=True)
        act(fn, mutex(fn))

    fn = module.function("queue_after_fork_in_child", VOID, [], external=True)
    running, first = _get(fn, "running"), _get(fn, "first")
    # Reset before the callbacks of events run below, which use locks of the events and of the queue.
    fn.call("reset_events", VOID)
    fn.call("reset_queue", VOID)

    def fail(call: Value) -> None:
        # The references of the call are not released, as the thread that used them does not exist in the child.
        event = fn.load(PTR, CALL.at(fn, call, "event"))
        with fn.if_(~is_ready(fn, event)):
            fn.call("complete_event", VOID, event, error(fn, Code.ABORTED, _FORKED))

    with fn.if_(running.ne(fn.null())):
        fail(running)
    with fn.while_((first,), lambda iteration: iteration.carried[0].ne(fn.null())) as iteration:
        (call,) = iteration.carried
        fail(call)
        iteration.next(fn.load(PTR, CALL.at(fn, call, "next")))
