"""Events. Most are ready when they are made: all of these are the same event, which is never destroyed.

A pending event belongs to host memory that a buffer uses, and becomes ready when the buffer is destroyed; or it belongs
to a call in the queue (queue.py) and to the buffers of its results, and becomes ready when the call has ended, with the
error if it failed.
"""

from __future__ import annotations

from collections.abc import Callable

from xlakit.cpu.llvm import I1, I8, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.runtime import waiting
from xlakit.jax.api.arguments import slot_function
from xlakit.jax.native.python import without_gil
from xlakit.jax.native.records import CALLBACK, ERROR, EVENT

# One lock and one condition for all events that are waited for, and for the queue.
_CONDITION = 64
# The interval at which a waiting thread checks for signals.
_ASLEEP_NANOSECONDS = 100_000_000


def emit_events(module: Module) -> None:
    """``event_start()``, and of events ``make_event() -> ptr``, ``add_reference(ptr) -> ptr``, ``release_event(ptr)``;

    ``complete_event(ptr, ptr error)``, ``await_event(ptr) -> i1``, ``copy_error(ptr error) -> ptr``, and the functions
    of the interface.
    """
    module.global_data("ready_event", EVENT.size)
    module.global_data("event_lock", 128)
    # The total time for which threads have waited for programs, or run long ones, in nanoseconds.
    module.global_data("waited", 8)
    module.declare("pthread_cond_init", I32, [PTR, PTR])
    module.declare("pthread_cond_timedwait", I32, [PTR, PTR, PTR])
    module.declare("pthread_cond_broadcast", I32, [PTR])
    _emit_start(module)
    _emit_copy_error(module)
    _emit_make_and_release(module)
    _emit_complete(module)
    _emit_await(module)
    _emit_on_ready(module)
    fn, given = slot_function(module, "Event_Error")
    event = given.pointer("event")
    fn.ret(fn.call("copy_error", PTR, fn.load(PTR, EVENT.at(fn, event, "error"))))


def ready_event(fn: Function) -> Value:
    """The event that is always ready."""
    return fn.address("ready_event")


def is_ready(fn: Function, event: Value) -> Value:
    """Whether an event is ready: an acquire load, so writes before its completion are visible afterwards."""
    return fn.atomic_load(I64, EVENT.at(fn, event, "is_ready")).ne(0)


def note_wait(fn: Function, event: Value) -> None:
    """Record the time of the first wait for an event."""
    with fn.if_(EVENT.load(fn, event, "waited_since").eq(0)):
        EVENT.store(fn, event, "waited_since", waiting.clock(fn))


def mutex(fn: Function) -> Value:
    """The lock of events and of the queue."""
    return fn.address("event_lock")


def condition(fn: Function) -> Value:
    """The condition variable of threads that wait for an event, or for a shorter queue; ``mutex`` is its lock."""
    return fn.at(fn.address("event_lock"), I8, _CONDITION)


def wait_until(fn: Function, is_so: Callable[[], Value]) -> Value:
    """Wait until ``is_so``, which ``condition`` announces; gives an I1, whether a signal handler raised meanwhile."""

    def wait() -> tuple[Value]:
        start = (fn.constant(I1, 0),)
        with fn.while_(start, lambda iteration: ~is_so() & ~iteration.carried[0]) as iteration:
            waiting.lock(fn, mutex(fn))
            until = waiting.deadline_in(fn, fn.i64(_ASLEEP_NANOSECONDS))
            with fn.while_((fn.i32(0),), lambda sleep: ~is_so() & sleep.carried[0].eq(0)) as sleep:
                sleep.next(fn.call("pthread_cond_timedwait", I32, condition(fn), mutex(fn), until))
            waiting.unlock(fn, mutex(fn))
            late = ~is_so()
            iteration.next(*fn.if_else(late, lambda: (fn.call("check_signals", I1),), lambda: (fn.constant(I1, 0),)))
        return (iteration.results[0],)

    return without_gil(fn, wait)[0]


def _emit_start(module: Module) -> None:
    """``event_start()``, once in a process; ``reset_events()``: makes their lock anew, as a child of a fork must."""
    fn = module.function("event_start", VOID, [], external=True)
    event = ready_event(fn)
    EVENT.store(fn, event, "is_ready", fn.i64(1))
    fn.call("reset_events", VOID)

    fn = module.function("reset_events", VOID, [])
    waiting.make_mutex(fn, mutex(fn))
    fn.fill(condition(fn), 0, 64)
    fn.call("pthread_cond_init", I32, condition(fn), fn.null())


def _emit_copy_error(module: Module) -> None:
    fn, error = module.begin("copy_error", PTR, [PTR])
    fn.return_if(error.eq(fn.null()), error)
    code, size = (ERROR.load(fn, error, name) for name in ("code", "message_size"))
    fn.ret(fn.call("make_error", PTR, code, fn.at(error, I8, ERROR.size), size))


def _emit_make_and_release(module: Module) -> None:
    fn = module.function("make_event", PTR, [])
    event = fn.call("xlakit_allocate", PTR, fn.i64(EVENT.size))
    with fn.if_(event.ne(fn.null()), likely=True):
        fn.fill(event, 0, EVENT.size)
        # A reference for the thread that completes it, and one for its owner.
        EVENT.store(fn, event, "references", fn.i64(2))
    fn.ret(event)

    fn, event = module.begin("add_reference", PTR, [PTR])
    with fn.if_(event.ne(ready_event(fn)) & event.ne(fn.null())):
        fn.atomic_update("add", EVENT.at(fn, event, "references"), fn.i64(1))
    fn.ret(event)

    fn, event = module.begin("release_event", VOID, [PTR])
    fn.return_if(event.eq(ready_event(fn)) | event.eq(fn.null()))
    before = fn.atomic_update("sub", EVENT.at(fn, event, "references"), fn.i64(1))
    fn.return_if(before.ne(1))
    fn.call("xlakit_release", VOID, fn.load(PTR, EVENT.at(fn, event, "error")))
    fn.call("xlakit_release", VOID, event)

    fn, given = slot_function(module, "Event_Destroy")
    fn.call("release_event", VOID, given.pointer("event"))


def _emit_complete(module: Module) -> None:
    """``complete_event(ptr, ptr error)``: make it ready, wake waiting threads, and call its callbacks.

    Consumes the reference of the completing thread, and the error, which is null for a success.
    """
    fn, event, error = module.begin("complete_event", VOID, [PTR, PTR])
    waiting.lock(fn, mutex(fn))
    fn.store(error, EVENT.at(fn, event, "error"))
    fn.atomic_store(fn.i64(1), EVENT.at(fn, event, "is_ready"))
    first = fn.load(PTR, EVENT.at(fn, event, "callbacks"))
    fn.call("pthread_cond_broadcast", I32, condition(fn))
    waiting.unlock(fn, mutex(fn))
    with fn.while_((first,), lambda iteration: iteration.carried[0].ne(fn.null())) as iteration:
        (callback,) = iteration.carried
        function = fn.load(PTR, CALLBACK.at(fn, callback, "function"))
        argument = fn.load(PTR, CALLBACK.at(fn, callback, "argument"))
        following = fn.load(PTR, CALLBACK.at(fn, callback, "next"))
        fn.call("xlakit_release", VOID, callback)
        fn.call_pointer(function, VOID, fn.call("copy_error", PTR, error), argument)
        iteration.next(following)
    fn.call("release_event", VOID, event)


def _emit_await(module: Module) -> None:
    """``await_event(ptr) -> i1``: wait until it is ready; 1 if a signal handler has raised an exception meanwhile."""
    fn, event = module.begin("await_event", I1, [PTR])
    fn.return_if(is_ready(fn, event), fn.constant(I1, 0))
    note_wait(fn, event)
    fn.ret(wait_until(fn, lambda: is_ready(fn, event)))

    fn, given = slot_function(module, "Event_Await")
    event = given.pointer("event")
    with fn.if_(fn.call("await_event", I1, event), likely=False):
        fn.ret(fn.call("interrupted", PTR))
    fn.ret(fn.call("copy_error", PTR, fn.load(PTR, EVENT.at(fn, event, "error"))))


def _emit_on_ready(module: Module) -> None:
    fn, given = slot_function(module, "Event_OnReady")
    event, function = given.pointer("event"), given.pointer("callback")
    argument = given.pointer("user_arg")

    def call_now() -> None:
        error = fn.call("copy_error", PTR, fn.load(PTR, EVENT.at(fn, event, "error")))
        fn.call_pointer(function, VOID, error, argument)

    with fn.if_(is_ready(fn, event), likely=True):
        call_now()
        fn.ret(fn.null())
    callback = fn.call("xlakit_allocate", PTR, fn.i64(CALLBACK.size))
    fn.store(function, CALLBACK.at(fn, callback, "function"))
    fn.store(argument, CALLBACK.at(fn, callback, "argument"))
    waiting.lock(fn, mutex(fn))
    became_ready = is_ready(fn, event)
    with fn.if_(~became_ready):
        fn.store(fn.load(PTR, EVENT.at(fn, event, "callbacks")), CALLBACK.at(fn, callback, "next"))
        fn.store(callback, EVENT.at(fn, event, "callbacks"))
    waiting.unlock(fn, mutex(fn))
    with fn.if_(became_ready):
        fn.call("xlakit_release", VOID, callback)
        call_now()
