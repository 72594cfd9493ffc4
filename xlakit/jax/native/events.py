"""Events. All but a few are ready when they are made: those are one event, which is never destroyed.

A pending event belongs to memory of the host that a buffer uses: it becomes ready when the buffer is destroyed.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.runtime import waiting
from xlakit.jax.api.arguments import arguments_of
from xlakit.jax.native.records import CALLBACK, EVENT

# One lock and one condition for all events that are waited for.
_MUTEX, _CONDITION = 0, 64


def emit_events(module: Module) -> None:
    """``event_start()``, ``make_event() -> ptr``, ``set_event(ptr)``, ``release_event(ptr)``, and their functions."""
    module.global_data("ready_event", EVENT.size)
    module.global_data("event_lock", 128)
    for name in ("pthread_cond_wait", "pthread_cond_init"):
        module.declare(name, I32, [PTR, PTR])
    module.declare("pthread_cond_broadcast", I32, [PTR])
    _emit_start(module)
    _emit_life(module)
    _emit_set(module)
    _emit_await(module)
    _emit_on_ready(module)
    fn = module.function("Event_Error", PTR, [PTR], external=True)
    fn.ret(fn.null())


def ready_event(fn: Function) -> Value:
    """The event that is always ready."""
    return fn.address("ready_event")


def _mutex(fn: Function) -> Value:
    return fn.address("event_lock")


def _condition(fn: Function) -> Value:
    return fn.at(fn.address("event_lock"), I64, _CONDITION // 8)


def _emit_start(module: Module) -> None:
    fn = module.function("event_start", VOID, [], external=True)
    event = ready_event(fn)
    EVENT.store(fn, event, "is_ready", fn.i64(1))
    waiting.make_mutex(fn, _mutex(fn))
    fn.call("pthread_cond_init", I32, _condition(fn), fn.null())
    fn.ret()


def _emit_life(module: Module) -> None:
    fn = module.function("make_event", PTR, [])
    event = fn.call("xlakit_allocate", PTR, fn.i64(EVENT.size))
    # One for the setter, one for the waiter.
    EVENT.store(fn, event, "references", fn.i64(2))
    EVENT.store(fn, event, "is_ready", fn.i64(0))
    EVENT.store(fn, event, "callbacks", fn.i64(0))
    fn.ret(event)

    fn = module.function("release_event", VOID, [PTR])
    (event,) = fn.parameters
    fn.return_if(event.eq(ready_event(fn)) | event.eq(fn.null()))
    before = fn.atomic_update("sub", EVENT.at(fn, event, "references"), fn.i64(1))
    fn.return_if(before.ne(1))
    fn.call("xlakit_release", VOID, event)
    fn.ret()

    fn = module.function("Event_Destroy", PTR, [PTR], external=True)
    fn.call("release_event", VOID, arguments_of("Event_Destroy").pointer(fn, fn.parameters[0], "event"))
    fn.ret(fn.null())


def _emit_set(module: Module) -> None:
    """``set_event(ptr)``: it is ready; waiting threads go on, callbacks are called. Takes the setter's reference."""
    fn = module.function("set_event", VOID, [PTR])
    (event,) = fn.parameters
    waiting.lock(fn, _mutex(fn))
    fn.atomic_store(fn.i64(1), EVENT.at(fn, event, "is_ready"))
    first = fn.load(PTR, EVENT.at(fn, event, "callbacks"))
    fn.call("pthread_cond_broadcast", I32, _condition(fn))
    waiting.unlock(fn, _mutex(fn))
    with fn.while_((first,), lambda iteration: iteration.carried[0].ne(fn.null())) as iteration:
        (callback,) = iteration.carried
        function = fn.load(PTR, CALLBACK.at(fn, callback, "function"))
        argument = fn.load(PTR, CALLBACK.at(fn, callback, "argument"))
        following = fn.load(PTR, CALLBACK.at(fn, callback, "next"))
        fn.call("xlakit_release", VOID, callback)
        fn.call_pointer(function, VOID, fn.null(), argument)
        iteration.next(following)
    fn.call("release_event", VOID, event)
    fn.ret()


def _emit_await(module: Module) -> None:
    args = arguments_of("Event_Await")
    fn = module.function("Event_Await", PTR, [PTR], external=True)
    event = args.pointer(fn, fn.parameters[0], "event")
    is_ready = EVENT.at(fn, event, "is_ready")
    fn.return_if(fn.atomic_load(I64, is_ready).ne(0), fn.null())
    waiting.lock(fn, _mutex(fn))
    with fn.while_((), lambda _: fn.atomic_load(I64, is_ready).eq(0)):
        fn.call("pthread_cond_wait", I32, _condition(fn), _mutex(fn))
    waiting.unlock(fn, _mutex(fn))
    fn.ret(fn.null())


def _emit_on_ready(module: Module) -> None:
    args = arguments_of("Event_OnReady")
    fn = module.function("Event_OnReady", PTR, [PTR], external=True)
    (given,) = fn.parameters
    event, function = args.pointer(fn, given, "event"), args.pointer(fn, given, "callback")
    argument = args.pointer(fn, given, "user_arg")
    is_ready = EVENT.at(fn, event, "is_ready")
    with fn.if_(fn.atomic_load(I64, is_ready).ne(0), likely=True):
        fn.call_pointer(function, VOID, fn.null(), argument)
        fn.ret(fn.null())
    callback = fn.call("xlakit_allocate", PTR, fn.i64(CALLBACK.size))
    fn.store(function, CALLBACK.at(fn, callback, "function"))
    fn.store(argument, CALLBACK.at(fn, callback, "argument"))
    waiting.lock(fn, _mutex(fn))
    is_late = fn.atomic_load(I64, is_ready).ne(0)
    with fn.if_(~is_late):
        fn.store(fn.load(PTR, EVENT.at(fn, event, "callbacks")), CALLBACK.at(fn, callback, "next"))
        fn.store(callback, EVENT.at(fn, event, "callbacks"))
    waiting.unlock(fn, _mutex(fn))
    with fn.if_(is_late):
        fn.call("xlakit_release", VOID, callback)
        fn.call_pointer(function, VOID, fn.null(), argument)
    fn.ret(fn.null())
