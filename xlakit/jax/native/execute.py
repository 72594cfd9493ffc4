"""Execution of programs: from buffers of arguments to buffers of results.

A program runs on the calling thread, and on threads of the pool. ``run`` in its record is machine code, or a ctypes
callback for a program that needs Python; the native code around it is the same for both.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Type, Value
from xlakit.cpu.llvm.promises import APART, SELDOM
from xlakit.jax.api.arguments import arguments_of
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.buffers import delete
from xlakit.jax.native.errors import fail_if
from xlakit.jax.native.events import ready_event
from xlakit.jax.native.memory import is_ours, share
from xlakit.jax.native.records import BLOCK, BUFFER, DEVICE, EXECUTABLE, RESULT


class _Prepared(IntEnum):
    """How the preparation of a call has ended."""

    WELL = 0
    GONE = 1
    NO_MEMORY = 2
    CLASH = 3
    OTHER_LAYOUT = 4


_FAULTS: Final = (
    (_Prepared.GONE, Code.INVALID_ARGUMENT, "a buffer that is given to the program has been deleted or donated"),
    (_Prepared.NO_MEMORY, Code.RESOURCE_EXHAUSTED, "there is not enough memory for the results of the program"),
    (_Prepared.CLASH, Code.INVALID_ARGUMENT, "a buffer is donated to the program, and given to it a second time"),
    (
        _Prepared.OTHER_LAYOUT,
        Code.INVALID_ARGUMENT,
        "a buffer lies in another layout than the program was compiled for",
    ),
)

# Of Python's own interface, what native code here imports: name, result and parameters.
PYTHON_FUNCTIONS: Final[list[tuple[str, Type, list[Type]]]] = [
    ("PyGILState_Ensure", I32, []),
    ("PyGILState_Release", VOID, [I32]),
    ("PyErr_Occurred", PTR, []),
    ("PyErr_Clear", VOID, []),
    ("PyErr_SetInterrupt", VOID, []),
]


def emit_execute(module: Module) -> None:
    """Emit the functions of executables, except getters."""
    module.global_data("dead_executables", 8)
    module.declare("xlakit_jax_failure", PTR, [I64, I64])
    _emit_lives(module)
    _emit_is_donatable(module)
    _emit_hold_arguments(module)
    _emit_clashes(module)
    _emit_fit(module)
    _emit_can_donate(module)
    _emit_make_results(module)
    _emit_release_blocks(module)
    _emit_settle_signals(module)
    _emit_finish(module)
    _emit_prepare(module)
    _emit_give_up(module)
    _emit_execute(module)


def _emit_lives(module: Module) -> None:
    """Names of a program, and ``take_dead() -> ptr``: a list of those without a name left."""
    for slot in ("Executable_Destroy", "LoadedExecutable_Destroy"):
        fn = module.function(slot, PTR, [PTR], external=True)
        executable = arguments_of(slot).pointer(fn, fn.parameters[0], "executable")
        before = fn.atomic_update("sub", EXECUTABLE.at(fn, executable, "references"), fn.i64(1))
        fn.return_if(before.ne(1), fn.null())
        # What Python holds for it is not given back here, where Python may not run.
        dead, address = fn.address("dead_executables"), executable.cast("ptrtoint", I64)
        with fn.while_((fn.constant(I1, 0),), lambda iteration: ~iteration.carried[0]) as iteration:
            first = fn.atomic_load(I64, dead)
            EXECUTABLE.store(fn, executable, "next", first)
            iteration.next(fn.compare_exchange(dead, first, address)[1])
        fn.ret(fn.null())

    fn = module.function("take_dead", I64, [], external=True)
    fn.ret(fn.atomic_update("xchg", fn.address("dead_executables"), fn.i64(0)))

    args = arguments_of("LoadedExecutable_GetExecutable")
    fn = module.function("LoadedExecutable_GetExecutable", PTR, [PTR], external=True)
    executable = args.pointer(fn, fn.parameters[0], "executable")
    fn.atomic_update("add", EXECUTABLE.at(fn, executable, "references"), fn.i64(1))
    fn.store(executable, args.at(fn, fn.parameters[0], "unloaded"))
    fn.ret(fn.null())

    args = arguments_of("LoadedExecutable_Delete")
    fn = module.function("LoadedExecutable_Delete", PTR, [PTR], external=True)
    EXECUTABLE.store(fn, args.pointer(fn, fn.parameters[0], "executable"), "is_deleted", fn.i64(1))
    fn.ret(fn.null())


def _word(fn: Function, array: Value, index: Value | int) -> Value:
    return fn.load(PTR, fn.at(array, PTR, index))


def _emit_is_donatable(module: Module) -> None:
    """``is_donatable(ptr options, i64 argument) -> i1``: whether the caller gives an argument away if asked to."""
    args = arguments_of("ExecuteOptions")
    fn = module.function("is_donatable", I1, [PTR, I64])
    options, argument = fn.parameters
    numbers = args.pointer(fn, options, "non_donatable_input_indices")
    count = args.load(fn, options, "num_non_donatable_input_indices")
    with fn.loop(0, count, carried=[fn.constant(I1, 1)]) as iteration:
        iteration.next(iteration.carried[0] & fn.load(I64, fn.at(numbers, I64, iteration.index)).ne(argument))
    fn.ret(iteration.results[0])


def _emit_hold_arguments(module: Module) -> None:
    """``hold_arguments(ptr buffers, i64 count, ptr blocks, ptr data) -> i1``: false where one of them is gone."""
    fn = module.function("hold_arguments", I1, [PTR, I64, PTR, PTR])
    buffers, count, blocks, data = fn.parameters
    start = (fn.i64(0), fn.constant(I1, 1))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < count) & iteration.carried[1]) as iteration:
        number, _ = iteration.carried
        block = fn.call("hold", PTR, _word(fn, buffers, number))
        is_there = block.ne(fn.null())
        fn.store(block, fn.at(blocks, PTR, number))
        with fn.if_(is_there):
            fn.store(fn.load(PTR, BLOCK.at(fn, block, "data")), fn.at(data, PTR, number))
        iteration.next(number + 1, is_there)
    fn.ret(iteration.results[1])


def _is_donated(fn: Function, executable: Value, options: Value, argument: Value) -> Value:
    """Whether a call takes an argument away from its owner."""
    donated = fn.load(PTR, EXECUTABLE.at(fn, executable, "donated"))
    asked = fn.load(I64, fn.at(donated, I64, argument)).ne(0)
    return fn.if_else(asked, lambda: (fn.call("is_donatable", I1, options, argument),), lambda: (fn.constant(I1, 0),))[
        0
    ]


def _emit_clashes(module: Module) -> None:
    """``clashes(executable, options, buffers, blocks) -> i1``: whether a donated buffer is among the others, too."""
    fn = module.function("occurs_again", I1, [PTR, I64, I64])
    buffers, count, argument = fn.parameters
    own = _word(fn, buffers, argument)
    with fn.loop(0, count, carried=[fn.constant(I1, 0)]) as iteration:
        is_same = _word(fn, buffers, iteration.index).eq(own) & iteration.index.ne(argument)
        iteration.next(iteration.carried[0] | is_same)
    fn.ret(iteration.results[0])

    fn = module.function("clashes", I1, [PTR] * 4)
    executable, options, buffers, blocks = fn.parameters
    count = EXECUTABLE.load(fn, executable, "num_args")
    with fn.loop(0, count, carried=[fn.constant(I1, 0)]) as iteration:
        # Where the buffer and this call alone use its memory, it has been given once.
        references = fn.atomic_load(I64, BLOCK.at(fn, _word(fn, blocks, iteration.index), "references"))
        is_suspect = (references > 2) & _is_donated(fn, executable, options, iteration.index)
        (clash,) = fn.if_else(
            is_suspect,
            lambda: (fn.call("occurs_again", I1, buffers, count, iteration.index),),
            lambda: (fn.constant(I1, 0),),
        )
        iteration.next(iteration.carried[0] | clash)
    fn.ret(iteration.results[0])


def _emit_fit(module: Module) -> None:
    """``fit(ptr executable, ptr buffers) -> i1``: whether arguments lie as the program takes them."""
    fn = module.function("fit", I1, [PTR, PTR])
    executable, buffers = fn.parameters
    layouts = fn.load(PTR, EXECUTABLE.at(fn, executable, "layouts"))
    with fn.loop(0, EXECUTABLE.load(fn, executable, "num_args"), carried=[fn.constant(I1, 1)]) as iteration:
        wanted = fn.load(I64, fn.at(layouts, I64, iteration.index))
        found = BUFFER.load(fn, _word(fn, buffers, iteration.index), "layout")
        iteration.next(iteration.carried[0] & found.eq(wanted))
    fn.ret(iteration.results[0])


def _emit_can_donate(module: Module) -> None:
    """``can_donate(ptr options, i64 donor, ptr buffers, ptr blocks) -> i1``: whether a result may lie in its memory."""
    fn = module.function("can_donate", I1, [PTR, I64, PTR, PTR])
    options, donor, buffers, blocks = fn.parameters
    fn.return_if(donor < 0, fn.constant(I1, 0))
    buffer, block = _word(fn, buffers, donor), _word(fn, blocks, donor)
    # The buffer uses its memory, and this call.
    alone = fn.atomic_load(I64, BLOCK.at(fn, block, "references")).eq(2)
    alone = alone & BUFFER.load(fn, buffer, "external").eq(0) & is_ours(fn, block)
    fn.ret(alone & fn.call("is_donatable", I1, options, donor))


def _emit_make_results(module: Module) -> None:
    """``make_results(executable, options, buffers, blocks, made, data) -> i1``: false where memory is out."""
    fn = module.function("make_results", I1, [PTR, PTR, PTR, PTR, PTR, PTR])
    executable, options, buffers, blocks, made, data = fn.parameters
    count = EXECUTABLE.load(fn, executable, "num_outputs")
    results = fn.load(PTR, EXECUTABLE.at(fn, executable, "results"))
    start = (fn.i64(0), fn.constant(I1, 1))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < count) & iteration.carried[1]) as iteration:
        number, _ = iteration.carried
        result = _result(fn, results, number)
        donor = RESULT.load(fn, result, "donor")

        def given(donor: Value = donor) -> tuple[Value]:
            block = _word(fn, blocks, donor)
            share(fn, block)
            return (block,)

        def fresh(result: Value = result) -> tuple[Value]:
            return (fn.call("make_block", PTR, RESULT.load(fn, result, "size")),)

        (block,) = fn.if_else(fn.call("can_donate", I1, options, donor, buffers, blocks), given, fresh)
        fn.store(block, fn.at(made, PTR, number))
        is_there = block.ne(fn.null())
        with fn.if_(is_there):
            fn.store(fn.load(PTR, BLOCK.at(fn, block, "data")), fn.at(data, PTR, number))
        iteration.next(number + 1, is_there)
    fn.ret(iteration.results[1])


def _result(fn: Function, results: Value, number: Value) -> Value:
    return fn.at(results, I64, number * (RESULT.size // 8))


def _emit_release_blocks(module: Module) -> None:
    """``release_blocks(ptr blocks, i64 count)``: of those that there are."""
    fn = module.function("release_blocks", VOID, [PTR, I64])
    blocks, count = fn.parameters
    with fn.loop(0, count) as iteration:
        block = _word(fn, blocks, iteration.index)
        with fn.if_(block.ne(fn.null())):
            fn.call("release_block", VOID, block)
    fn.ret()


def _emit_settle_signals(module: Module) -> None:
    """``settle_signals() -> i1``: whether a signal handler has raised something while the program ran; no more, then.

    JAX makes an error of a program that ends early, and would not see an exception that is set already. When that error
    is made, the interrupt comes again, and Python raises it where it may.
    """
    for name, result, parameters in PYTHON_FUNCTIONS:
        module.declare(name, result, parameters)
    fn = module.function("settle_signals", I1, [], attributes=(APART, SELDOM))
    state = fn.call("PyGILState_Ensure", I32)
    has_raised = fn.call("PyErr_Occurred", PTR).ne(fn.null())
    with fn.if_(has_raised):
        fn.call("PyErr_Clear", VOID)
    fn.call("PyGILState_Release", VOID, state)
    fn.ret(has_raised)


def _emit_finish(module: Module) -> None:
    """``finish(executable, options, device, buffers, made, outputs)``: donated buffers go, results become buffers."""
    fn = module.function("finish", VOID, [PTR] * 6)
    executable, options, device, buffers, made, outputs = fn.parameters
    with fn.loop(0, EXECUTABLE.load(fn, executable, "num_args")) as iteration:
        with fn.if_(_is_donated(fn, executable, options, iteration.index)):
            delete(fn, _word(fn, buffers, iteration.index))
    memories = fn.load(PTR, DEVICE.at(fn, device, "memories"))
    results = fn.load(PTR, EXECUTABLE.at(fn, executable, "results"))
    with fn.loop(0, EXECUTABLE.load(fn, executable, "num_outputs")) as iteration:
        result = _result(fn, results, iteration.index)
        type, rank, size = (RESULT.load(fn, result, name) for name in ("type", "num_dims", "size"))
        dims = fn.load(PTR, RESULT.at(fn, result, "dims"))
        order = fn.load(PTR, RESULT.at(fn, result, "order"))
        block = _word(fn, made, iteration.index)
        memory = _word(fn, memories, RESULT.load(fn, result, "memory"))
        buffer = fn.call("make_buffer", PTR, device, memory, block, type, rank, size, dims, order)
        fn.store(buffer, fn.at(outputs, PTR, iteration.index))
    fn.ret()


def _emit_prepare(module: Module) -> None:
    """``prepare(args, blocks, half) -> i64``: fill the table of a call, which has zeros; see _Prepared."""
    args = arguments_of("LoadedExecutable_Execute")
    fn = module.function("prepare", I64, [PTR, PTR, I64])
    given, blocks, half = fn.parameters
    executable, options = args.pointer(fn, given, "executable"), args.pointer(fn, given, "options")
    num_devices, num_args = args.load(fn, given, "num_devices"), args.load(fn, given, "num_args")
    num_outputs = EXECUTABLE.load(fn, executable, "num_outputs")
    data, num_given = fn.at(blocks, PTR, half), num_devices * num_args
    lists = args.pointer(fn, given, "argument_lists")
    start = (fn.i64(0), fn.i64(_Prepared.WELL))
    with fn.while_(start, lambda t: (t.carried[0] < num_devices) & t.carried[1].eq(_Prepared.WELL)) as iteration:
        device = iteration.carried[0]
        buffers, first, begin = _word(fn, lists, device), device * num_args, num_given + device * num_outputs
        own = fn.at(blocks, PTR, first)
        targets = fn.at(blocks, PTR, begin), fn.at(data, PTR, begin)

        def make() -> tuple[Value]:
            done = fn.call("make_results", I1, executable, options, buffers, own, *targets)
            return (fn.select(done, fn.i64(_Prepared.WELL), fn.i64(_Prepared.NO_MEMORY)),)

        def check() -> tuple[Value]:
            clash = fn.call("clashes", I1, executable, options, buffers, own)
            fits = fn.call("fit", I1, executable, buffers)
            refused = fn.select(clash, fn.i64(_Prepared.CLASH), fn.i64(_Prepared.OTHER_LAYOUT))
            (state,) = fn.if_else(clash | ~fits, lambda: (refused,), make)
            return (state,)

        held = fn.call("hold_arguments", I1, buffers, num_args, own, fn.at(data, PTR, first))
        (state,) = fn.if_else(held, check, lambda: (fn.i64(_Prepared.GONE),))
        iteration.next(device + 1, state)
    fn.ret(iteration.results[1])


def _emit_give_up(module: Module) -> None:
    """``give_up(ptr blocks, i64 count)``: release what a call's table holds, and the table."""
    fn = module.function("give_up", VOID, [PTR, I64])
    blocks, count = fn.parameters
    fn.call("release_blocks", VOID, blocks, count)
    fn.call("xlakit_release", VOID, blocks)
    fn.ret()


def _check_call(fn: Function, executable: Value, num_devices: Value, num_args: Value) -> None:
    is_gone = EXECUTABLE.load(fn, executable, "is_deleted").ne(0)
    fail_if(fn, is_gone, Code.FAILED_PRECONDITION, "the program has been deleted")
    is_wrong = EXECUTABLE.load(fn, executable, "num_devices").ne(num_devices)
    fail_if(fn, is_wrong, Code.INVALID_ARGUMENT, "the program runs on another number of devices")
    # Where none of its devices is here, nothing is given, and jaxlib counts nothing.
    is_wrong = EXECUTABLE.load(fn, executable, "num_args").ne(num_args) & num_devices.ne(0)
    fail_if(fn, is_wrong, Code.INVALID_ARGUMENT, "the program takes another number of arguments")


def _emit_execute(module: Module) -> None:
    """The function itself. Its table has words for each device and argument, then for each device and result, twice:

    the blocks of the arguments, those of the results, and the addresses of both, as programs take them.
    """
    args = arguments_of("LoadedExecutable_Execute")
    fn = module.function("LoadedExecutable_Execute", PTR, [PTR], external=True)
    (given,) = fn.parameters
    executable = args.pointer(fn, given, "executable")
    num_devices, num_args = args.load(fn, given, "num_devices"), args.load(fn, given, "num_args")
    _check_call(fn, executable, num_devices, num_args)
    num_given = num_devices * num_args
    half = num_given + num_devices * EXECUTABLE.load(fn, executable, "num_outputs")
    blocks = fn.call("xlakit_allocate", PTR, half * 16)
    fail_if(fn, blocks.eq(fn.null()), Code.RESOURCE_EXHAUSTED, "there is not enough memory to call the program")
    fn.fill(blocks, 0, half * 16)
    prepared = fn.call("prepare", I64, given, blocks, half)
    for state, code, text in _FAULTS:
        is_so = prepared.eq(state)
        with fn.if_(is_so, likely=False):
            fn.call("give_up", VOID, blocks, half)
        fail_if(fn, is_so, code, text)
    data = fn.at(blocks, PTR, half)
    run, context = (fn.load(PTR, EXECUTABLE.at(fn, executable, name)) for name in ("run", "context"))
    status = fn.call_pointer(run, I64, context, data, fn.at(data, PTR, num_given))
    with fn.if_(status.ne(0), likely=False):
        fn.call("give_up", VOID, blocks, half)
        has_raised = fn.call("settle_signals", I1)
        failure = fn.call("xlakit_jax_failure", PTR, executable.cast("ptrtoint", I64), status)
        with fn.if_(has_raised):
            fn.call("PyErr_SetInterrupt", VOID)
        fn.ret(failure)
    _give_results(fn, given, fn.at(blocks, PTR, num_given))
    fn.call("give_up", VOID, blocks, num_given)
    fn.ret(fn.null())


def _give_results(fn: Function, given: Value, made: Value) -> None:
    """Hand the results of all devices out; ``made`` are their blocks."""
    args = arguments_of("LoadedExecutable_Execute")
    executable, options, lists, outputs, events, other = (
        args.pointer(fn, given, name)
        for name in (
            "executable", "options", "argument_lists", "output_lists", "device_complete_events", "execute_device"
        )
    )  # fmt: skip
    num_outputs = EXECUTABLE.load(fn, executable, "num_outputs")
    devices = fn.load(PTR, EXECUTABLE.at(fn, executable, "devices"))
    with fn.loop(0, args.load(fn, given, "num_devices")) as iteration:
        device = fn.select(other.eq(fn.null()), _word(fn, devices, iteration.index), other)
        results = fn.at(made, PTR, iteration.index * num_outputs)
        buffers, targets = _word(fn, lists, iteration.index), _word(fn, outputs, iteration.index)
        fn.call("finish", VOID, executable, options, device, buffers, results, targets)
        with fn.if_(events.ne(fn.null())):
            fn.store(ready_event(fn), fn.at(events, PTR, iteration.index))
