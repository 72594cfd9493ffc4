"""Execution of programs: from buffers of arguments to buffers of results.

A program runs on the calling thread and the threads of the pool; or, if that is faster for Python (dispatch.py), on the
queue's thread (queue.py). ``run`` in its record is machine code, or a ctypes callback for a program that needs Python,
which never enters the queue; the native code that calls it is the same for both.
"""

from __future__ import annotations

from typing import Final

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.jax.api.arguments import NativeStruct, slot_function
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.buffers import delete
from xlakit.jax.native.dispatch import MODE, Way, is_long
from xlakit.jax.native.errors import error, fail_if
from xlakit.jax.native.events import ready_event
from xlakit.jax.native.executables import keep
from xlakit.jax.native.memory import is_queued, leave_to_queue, share_with_queue
from xlakit.jax.native.prepare import Prepared, is_donated, result_of, word
from xlakit.jax.native.python import interrupt, is_kept
from xlakit.jax.native.queue import LONG_WEIGHT, await_empty, blocks_of, data_of, events_of
from xlakit.jax.native.records import BUFFER, CALL, DEVICE, EVENT, EXECUTABLE, FAILURE, RESULT, Mode

_FAULTS: Final = (
    (
        Prepared.GONE,
        Code.INVALID_ARGUMENT,
        "a buffer that is given to the program has been deleted or donated\n"
        "  hint: use the results of the program that it was donated to, or copy it before that",
    ),
    (
        Prepared.NO_MEMORY,
        Code.RESOURCE_EXHAUSTED,
        "there is not enough memory for the results of the program\n"
        "  hint: delete arrays that are not needed any more, or cut those of the program",
    ),
    (
        Prepared.CLASH,
        Code.INVALID_ARGUMENT,
        "a buffer is donated to the program, and given to it a second time\n"
        "  hint: copy it for one of the arguments, or do not donate it",
    ),
    (
        Prepared.OTHER_LAYOUT,
        Code.INVALID_ARGUMENT,
        "a buffer lies in another layout than the program was compiled for\n"
        "  hint: put it into that layout by jax.device_put, or compile the program for the buffer's",
    ),
)


def emit_execute(module: Module) -> None:
    """Emit the function LoadedExecutable_Execute."""
    _emit_finish(module)
    _emit_give_results(module)
    _emit_await_arguments(module)
    _emit_way(module)
    _emit_run_here(module)
    _emit_enqueue(module)
    _emit_execute(module)


def _emit_finish(module: Module) -> None:
    """``finish(executable, options, device, buffers, result_blocks, outputs, event)``: release donated buffers,
    make results.

    event: of the call that computes the results; null if they are ready.
    """
    fn, executable, options, device, buffers, result_blocks, outputs, event = module.begin("finish", VOID, [PTR] * 7)
    with fn.loop(0, EXECUTABLE.load(fn, executable, "num_args")) as iteration:
        with fn.if_(is_donated(fn, executable, options, iteration.index)):
            delete(fn, word(fn, buffers, iteration.index))
    memories = fn.load(PTR, DEVICE.at(fn, device, "memories"))
    results = fn.load(PTR, EXECUTABLE.at(fn, executable, "results"))
    with fn.loop(0, EXECUTABLE.load(fn, executable, "num_outputs")) as iteration:
        result = result_of(fn, results, iteration.index)
        type, rank, size = (RESULT.load(fn, result, name) for name in ("type", "num_dims", "size"))
        dims = fn.load(PTR, RESULT.at(fn, result, "dims"))
        order = fn.load(PTR, RESULT.at(fn, result, "order"))
        block = word(fn, result_blocks, iteration.index)
        memory = word(fn, memories, RESULT.load(fn, result, "memory"))
        buffer = fn.call("make_buffer", PTR, device, memory, block, type, rank, size, dims, order)
        fn.store(fn.call("add_reference", PTR, event), BUFFER.at(fn, buffer, "event"))
        fn.store(buffer, fn.at(outputs, PTR, iteration.index))


def _emit_give_results(module: Module) -> None:
    """``give_results(struct, call, event)``: return the results of all devices; the event is as for ``finish``."""
    fn, struct, call, event = module.begin("give_results", VOID, [PTR, PTR, PTR])
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    executable, options, lists, outputs, events, other = (
        given.pointer(name)
        for name in (
            "executable", "options", "argument_lists", "output_lists", "device_complete_events", "execute_device"
        )
    )  # fmt: skip
    result_blocks = fn.at(blocks_of(fn, call), PTR, CALL.load(fn, call, "total_args"))
    num_outputs = EXECUTABLE.load(fn, executable, "num_outputs")
    devices = fn.load(PTR, EXECUTABLE.at(fn, executable, "devices"))
    ended = fn.select(event.eq(fn.null()), ready_event(fn), event)
    with fn.loop(0, given.load("num_devices")) as iteration:
        device = fn.select(other.eq(fn.null()), word(fn, devices, iteration.index), other)
        results = fn.at(result_blocks, PTR, iteration.index * num_outputs)
        buffers, targets = word(fn, lists, iteration.index), word(fn, outputs, iteration.index)
        fn.call("finish", VOID, executable, options, device, buffers, results, targets, event)
        with fn.if_(events.ne(fn.null())):
            fn.store(fn.call("add_reference", PTR, ended), fn.at(events, PTR, iteration.index))


def _emit_await_arguments(module: Module) -> None:
    """``await_arguments(struct, call) -> ptr``: before a call on this thread, wait until its arguments are ready.

    Gives the error of an argument, or null. Afterwards no call in the queue uses memory that the program may write to.
    """
    fn, struct, call = module.begin("await_arguments", PTR, [PTR, PTR], attributes=(NO_INLINE,))
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    executable, options = given.pointer("executable"), given.pointer("options")
    num_args, blocks, events = given.load("num_args"), blocks_of(fn, call), events_of(fn, call)
    with fn.loop(0, CALL.load(fn, call, "total_args")) as iteration:
        event = word(fn, events, iteration.index)
        with fn.if_(event.ne(fn.null()), likely=False):
            with fn.if_(fn.call("await_event", I1, event), likely=False):
                fn.ret(fn.call("interrupted", PTR))
            its_error = fn.load(PTR, EVENT.at(fn, event, "error"))
            with fn.if_(its_error.ne(fn.null()), likely=False):
                fn.ret(fn.call("copy_error", PTR, its_error))
        with fn.if_(is_queued(fn, word(fn, blocks, iteration.index)), likely=False):
            with fn.if_(is_donated(fn, executable, options, iteration.index % num_args)):
                with fn.if_(await_empty(fn), likely=False):
                    fn.ret(fn.call("interrupted", PTR))
    fn.ret(fn.null())


def _emit_way(module: Module) -> None:
    """``call_way(struct, call) -> i64``: the Way of a call; also sets its weight in the queue and its threads."""
    fn, struct, call = module.begin("call_way", I64, [PTR, PTR])
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    executable = given.pointer("executable")
    here, mode = fn.i64(Way.HERE), fn.load(I64, fn.address(MODE))
    fn.return_if(EXECUTABLE.load(fn, executable, "is_pure").eq(0) | mode.eq(Mode.OFF), here)
    long, pending = is_long(fn, executable), CALL.load(fn, call, "num_pending").ne(0)
    fn.return_if(~(long | pending | mode.eq(Mode.ON)), here)
    threads = fn.call("xlakit_thread_count", I64)
    learned = fn.call("way_of", I64, executable, threads)
    # A call with pending arguments enters the queue, so that it waits there and not in Python.
    must = learned.eq(Way.HERE) & ((pending & ~long) | mode.eq(Mode.ON))
    way = fn.select(must, fn.i64(Way.QUEUED_ALL_THREADS), learned)
    fn.return_if(way.eq(Way.HERE), here)
    is_view = fn.call("has_view", I1, struct, call)
    fn.return_if(is_view | ~fn.call("ensure_thread", I1), here)
    CALL.store(fn, call, "threads", threads - way.eq(Way.QUEUED_ONE_LESS).cast("zext", I64))
    CALL.store(fn, call, "weight", fn.select(long, fn.i64(LONG_WEIGHT), fn.i64(1)))
    fn.ret(way)


def _emit_run_here(module: Module) -> None:
    """``run_here(struct, call) -> ptr``: run it on this thread, and return its results; gives an error or null."""
    fn, struct, call = module.begin("run_here", PTR, [PTR, PTR])
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    executable = given.pointer("executable")
    data = data_of(fn, call)
    run, context = (fn.load(PTR, EXECUTABLE.at(fn, executable, name)) for name in ("run", "context"))
    results = fn.at(data, PTR, CALL.load(fn, call, "total_args"))
    measured = EXECUTABLE.load(fn, executable, "is_pure").ne(0) & fn.call("is_measured", I1, executable)

    def now() -> Value:
        return fn.if_else(measured, lambda: (waiting.clock(fn),), lambda: (fn.i64(0),))[0]

    since = now()
    status = fn.call_pointer(run, I64, context, data, results)
    with fn.if_(status.ne(0), likely=False):
        failure = _return_interrupted(fn, struct, call, status)
        fn.call("mark_donated", VOID, struct, fn.i64(0))
        fn.call("give_up", VOID, call)
        fn.ret(failure)
    with fn.if_(measured):
        fn.call("note_time", VOID, executable, now() - since)
    fn.call("give_results", VOID, struct, call, fn.null())
    fn.call("release_arguments", VOID, call)
    with fn.if_(measured & is_long(fn, executable)):
        fn.atomic_update("add", fn.address("waited"), now() - since, "monotonic")
        fn.call("note_return", VOID, executable)
    fn.ret(fn.null())


def _return_interrupted(fn: Function, struct: Value, call: Value, status: Value) -> Value:
    """If a signal handler ended the program with an exception, return results that have failed; else gives the error.

    The call itself ends well: an error of it would be raised in place of the handler's exception, which Python raises
    when the call returns. Of a program that machine code runs, that exception is set still; of one that Python runs,
    it is handed over where its error is made.
    """

    def interrupted() -> tuple[Value, Value]:
        interrupt(fn)
        return error(fn, Code.CANCELLED, "the program was interrupted"), fn.constant(I1, 1)

    def failed() -> tuple[Value, Value]:
        was_kept = is_kept(fn)
        failure = fn.call(FAILURE, PTR, status)
        return failure, is_kept(fn) & ~was_kept

    failure, is_interrupted = fn.if_else(fn.call("settle_signals", I1), interrupted, failed)
    with fn.if_(is_interrupted):
        event = fn.call("make_event", PTR)
        with fn.if_(event.ne(fn.null())):
            fn.call("complete_event", VOID, event, failure)
            fn.call("give_results", VOID, struct, call, event)
            fn.call("release_event", VOID, event)
            fn.call("release_arguments", VOID, call)
            fn.ret(fn.null())
    return failure


def _emit_enqueue(module: Module) -> None:
    """``enqueue(struct, call, event)``: return the pending results, and put the call into the queue."""
    fn, struct, call, event = module.begin("enqueue", VOID, [PTR, PTR, PTR], attributes=(NO_INLINE,))
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    executable = given.pointer("executable")
    blocks, total_args = blocks_of(fn, call), CALL.load(fn, call, "total_args")
    fn.store(event, CALL.at(fn, call, "event"))
    keep(fn, executable)
    # Buffers take the references of the results' blocks.
    with fn.loop(total_args, CALL.load(fn, call, "count")) as iteration:
        share_with_queue(fn, word(fn, blocks, iteration.index))
    with fn.loop(0, total_args) as iteration:
        leave_to_queue(fn, word(fn, blocks, iteration.index))
    fn.call("give_results", VOID, struct, call, event)
    fn.call("note_return", VOID, executable)
    fn.call("push", VOID, call)
    fn.call("release_event", VOID, event)


def _check_call(fn: Function, executable: Value, num_devices: Value, num_args: Value) -> None:
    is_gone = EXECUTABLE.load(fn, executable, "is_deleted").ne(0)
    fail_if(fn, is_gone, Code.FAILED_PRECONDITION, "the program has been deleted")
    is_wrong = EXECUTABLE.load(fn, executable, "num_devices").ne(num_devices)
    fail_if(fn, is_wrong, Code.INVALID_ARGUMENT, "the program runs on another number of devices")
    # If none of its devices is in this process there are no arguments, and jaxlib passes a count of zero.
    is_wrong = EXECUTABLE.load(fn, executable, "num_args").ne(num_args) & num_devices.ne(0)
    fail_if(fn, is_wrong, Code.INVALID_ARGUMENT, "the program takes another number of arguments")


def _fail_unless_well(fn: Function, struct: Value, call: Value, prepared: Value, *, marked: bool = True) -> None:
    for state, code, text in _FAULTS:
        is_so = prepared.eq(state)
        with fn.if_(is_so, likely=False):
            if marked:
                fn.call("mark_donated", VOID, struct, fn.i64(0))
            fn.call("give_up", VOID, call)
        fail_if(fn, is_so, code, text)


def _new_call(fn: Function, struct: Value, executable: Value) -> Value:
    """A call with empty tables. Emits the return of an error where there is no memory."""
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    num_devices = given.load("num_devices")
    total_args = num_devices * given.load("num_args")
    count = total_args + num_devices * EXECUTABLE.load(fn, executable, "num_outputs")
    bytes = (count * 2 + total_args) * 8 + CALL.size
    call = fn.call("xlakit_allocate", PTR, bytes)
    fail_if(fn, call.eq(fn.null()), Code.RESOURCE_EXHAUSTED, "there is not enough memory to call the program")
    fn.fill(call, 0, bytes)
    fn.store(executable, CALL.at(fn, call, "executable"))
    CALL.store(fn, call, "total_args", total_args)
    CALL.store(fn, call, "count", count)
    return call


def _await_arguments(fn: Function, struct: Value, call: Value) -> None:
    """Wait for the arguments of a call. Emits the return of an error of one of them."""
    failure = fn.call("await_arguments", PTR, struct, call)
    with fn.if_(failure.ne(fn.null()), likely=False):
        fn.call("give_up", VOID, call)
        fn.ret(failure)


def _emit_execute(module: Module) -> None:
    """The function itself, and ``execute_later(struct, call) -> ptr``, its way into the queue."""
    fn, struct, call = module.begin("execute_later", PTR, [PTR, PTR], attributes=(NO_INLINE,))
    with fn.if_(fn.call("await_queue", I1, CALL.load(fn, call, "weight")), likely=False):
        fn.call("give_up", VOID, call)
        fn.ret(fn.call("interrupted", PTR))
    owned = fn.call("own_foreign", I1, struct, call)
    there_is = fn.select(owned, fn.i64(Prepared.WELL), fn.i64(Prepared.NO_MEMORY))
    _fail_unless_well(fn, struct, call, there_is, marked=False)
    fn.call("mark_donated", VOID, struct, fn.i64(1))
    _fail_unless_well(fn, struct, call, fn.call("make_all", I64, struct, call))
    event = fn.call("make_event", PTR)
    is_there = event.ne(fn.null())
    _fail_unless_well(fn, struct, call, fn.select(is_there, fn.i64(Prepared.WELL), fn.i64(Prepared.NO_MEMORY)))
    fn.call("enqueue", VOID, struct, call, event)
    fn.ret(fn.null())

    fn, given = slot_function(module, "LoadedExecutable_Execute")
    struct = given.address
    executable = given.pointer("executable")
    _check_call(fn, executable, given.load("num_devices"), given.load("num_args"))
    call = _new_call(fn, struct, executable)
    _fail_unless_well(fn, struct, call, fn.call("hold_all", I64, struct, call), marked=False)
    # A call in the queue never waits, so transfers from the host are waited for here.
    with fn.if_(CALL.load(fn, call, "is_from_host").ne(0), likely=False):
        _await_arguments(fn, struct, call)
    with fn.if_(fn.call("call_way", I64, struct, call).ne(Way.HERE), likely=False):
        fn.ret(fn.call("execute_later", PTR, struct, call))
    with fn.if_(CALL.load(fn, call, "num_pending").ne(0) | fn.call("queue_weight", I64).ne(0)):
        _await_arguments(fn, struct, call)
    fn.call("mark_donated", VOID, struct, fn.i64(1))
    _fail_unless_well(fn, struct, call, fn.call("make_all", I64, struct, call))
    fn.ret(fn.call("run_here", PTR, struct, call))
