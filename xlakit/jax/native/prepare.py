"""The preparation of calls: takes references to their arguments and allocates the memory of their results."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import NativeStruct
from xlakit.jax.native.buffers import locked
from xlakit.jax.native.memory import is_ours, is_queued, share, users
from xlakit.jax.native.queue import blocks_of, data_of, events_of
from xlakit.jax.native.records import BLOCK, BUFFER, CALL, EVENT, EXECUTABLE, RESULT


class Prepared(IntEnum):
    """The outcome of a step of the preparation."""

    WELL = 0
    GONE = 1
    NO_MEMORY = 2
    CLASH = 3
    OTHER_LAYOUT = 4


def emit_prepare(module: Module) -> None:
    """``hold_all(struct, call) -> i64`` and ``make_all(struct, call) -> i64``: the two steps; both give a Prepared.

    struct: the arguments of LoadedExecutable_Execute. call: a CALL, whose tables are zero. Between the steps
    ``mark_donated(struct, i64 1)`` marks donated buffers as deleted, so that other threads do not see the program's
    writes; with 0 it undoes that. ``give_up(call)`` releases the references of a call, and the call. For the queue
    there are ``has_view(struct, call) -> i1`` and ``own_foreign(struct, call) -> i1``.
    """
    _emit_is_donatable(module)
    _emit_clashes(module)
    _emit_fit(module)
    _emit_hold(module)
    _emit_mark_donated(module)
    _emit_can_donate(module)
    _emit_make_results(module)
    _emit_steps(module)
    _emit_give_up(module)
    _emit_foreign(module)


def word(fn: Function, array: Value, index: Value | int) -> Value:
    """A pointer in an array of pointers."""
    return fn.load(PTR, fn.at(array, PTR, index))


def result_of(fn: Function, results: Value, number: Value) -> Value:
    """The RESULT of a number."""
    return fn.at(results, I64, number * (RESULT.size // 8))


def is_donated(fn: Function, executable: Value, options: Value, argument: Value) -> Value:
    """Whether a call takes over (donates) an argument."""
    donated = fn.load(PTR, EXECUTABLE.at(fn, executable, "donated"))
    asked = fn.load(I64, fn.at(donated, I64, argument)).ne(0)
    return fn.if_else(asked, lambda: (fn.call("is_donatable", I1, options, argument),), lambda: (fn.constant(I1, 0),))[
        0
    ]


def _emit_is_donatable(module: Module) -> None:
    """``is_donatable(ptr options, i64 argument) -> i1``: whether the caller permits the donation of an argument."""
    fn, options, argument = module.begin("is_donatable", I1, [PTR, I64])
    given = NativeStruct(fn, "ExecuteOptions", options)
    numbers = given.pointer("non_donatable_input_indices")
    count = given.load("num_non_donatable_input_indices")
    with fn.loop(0, count, carried=[fn.constant(I1, 1)]) as iteration:
        iteration.next(iteration.carried[0] & fn.load(I64, fn.at(numbers, I64, iteration.index)).ne(argument))
    fn.ret(iteration.results[0])


def _emit_hold(module: Module) -> None:
    """``hold_arguments(ptr call, ptr buffers, i64 count, i64 first) -> i1``: take references to a device's arguments.

    False if one of them is deleted. first: the number of the device's first argument among all.
    """
    fn, call, buffers, count, first = module.begin("hold_arguments", I1, [PTR, PTR, I64, I64])
    blocks, data, events = (fn.at(table(fn, call), PTR, first) for table in (blocks_of, data_of, events_of))
    start = (fn.i64(0), fn.constant(I1, 1))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < count) & iteration.carried[1]) as iteration:
        number, _ = iteration.carried
        buffer = word(fn, buffers, number)
        block = fn.call("hold", PTR, buffer)
        is_there = block.ne(fn.null())
        fn.store(block, fn.at(blocks, PTR, number))
        with fn.if_(is_there):
            fn.store(fn.load(PTR, BLOCK.at(fn, block, "data")), fn.at(data, PTR, number))
            with fn.if_(fn.atomic_load(I64, BUFFER.at(fn, buffer, "event"), "monotonic").ne(0), likely=False):
                event = fn.call("pending_event", PTR, buffer)
                fn.store(event, fn.at(events, PTR, number))
                pending = event.ne(fn.null()).cast("zext", I64)
                CALL.store(fn, call, "num_pending", CALL.load(fn, call, "num_pending") + pending)
                with fn.if_(event.ne(fn.null())):
                    is_from_host = EVENT.load(fn, event, "is_from_host")
                    CALL.store(fn, call, "is_from_host", CALL.load(fn, call, "is_from_host") | is_from_host)
        iteration.next(number + 1, is_there)
    fn.ret(iteration.results[1])


def _emit_mark_donated(module: Module) -> None:
    fn, struct, deleted = module.begin("mark_donated", VOID, [PTR, I64])
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    executable, options = given.pointer("executable"), given.pointer("options")
    lists = given.pointer("argument_lists")
    with fn.loop(0, given.load("num_devices")) as devices:
        buffers = word(fn, lists, devices.index)
        with fn.loop(0, given.load("num_args")) as iteration:
            with fn.if_(is_donated(fn, executable, options, iteration.index)):
                buffer = word(fn, buffers, iteration.index)
                with locked(fn, buffer):
                    BUFFER.store(fn, buffer, "is_deleted", deleted)


def _emit_clashes(module: Module) -> None:
    """``clashes(executable, options, buffers, blocks) -> i1``: whether a donated buffer occurs as another argument."""
    fn, buffers, count, argument = module.begin("occurs_again", I1, [PTR, I64, I64])
    donated_buffer = word(fn, buffers, argument)
    with fn.loop(0, count, carried=[fn.constant(I1, 0)]) as iteration:
        is_same = word(fn, buffers, iteration.index).eq(donated_buffer) & iteration.index.ne(argument)
        iteration.next(iteration.carried[0] | is_same)
    fn.ret(iteration.results[0])

    fn, executable, options, buffers, blocks = module.begin("clashes", I1, [PTR] * 4)
    count = EXECUTABLE.load(fn, executable, "num_args")
    with fn.loop(0, count, carried=[fn.constant(I1, 0)]) as iteration:
        # Fast path: with two references, of the buffer and of this call, the buffer occurs only once.
        references = users(fn, word(fn, blocks, iteration.index))
        is_suspect = (references > 2) & is_donated(fn, executable, options, iteration.index)
        (clash,) = fn.if_else(
            is_suspect,
            lambda: (fn.call("occurs_again", I1, buffers, count, iteration.index),),
            lambda: (fn.constant(I1, 0),),
        )
        iteration.next(iteration.carried[0] | clash)
    fn.ret(iteration.results[0])


def _emit_fit(module: Module) -> None:
    """``fit(ptr executable, ptr buffers) -> i1``: whether the arguments have the layouts that the program requires."""
    fn, executable, buffers = module.begin("fit", I1, [PTR, PTR])
    layouts = fn.load(PTR, EXECUTABLE.at(fn, executable, "layouts"))
    with fn.loop(0, EXECUTABLE.load(fn, executable, "num_args"), carried=[fn.constant(I1, 1)]) as iteration:
        required = fn.load(I64, fn.at(layouts, I64, iteration.index))
        actual = BUFFER.load(fn, word(fn, buffers, iteration.index), "layout")
        iteration.next(iteration.carried[0] & actual.eq(required))
    fn.ret(iteration.results[0])


def _emit_can_donate(module: Module) -> None:
    """``can_donate(ptr options, i64 donor, ptr buffers, ptr blocks, i1 later) -> i1``: may a result use its memory?

    Calls in the queue may still use the memory if this call enters the queue after them (``later``).
    """
    fn, options, donor, buffers, blocks, later = module.begin("can_donate", I1, [PTR, I64, PTR, PTR, I1])
    fn.return_if(donor < 0, fn.constant(I1, 0))
    buffer, block = word(fn, buffers, donor), word(fn, blocks, donor)
    # Two users: the buffer and this call.
    alone = users(fn, block).eq(2) & (later | ~is_queued(fn, block))
    alone = alone & BUFFER.load(fn, buffer, "external").eq(0) & is_ours(fn, block)
    fn.ret(alone & fn.call("is_donatable", I1, options, donor))


def _emit_make_results(module: Module) -> None:
    """``make_results(executable, options, buffers, blocks, result_blocks, data, later) -> i1``:
    false without memory.

    Stores for each result a block, the donated argument's or a new one, in ``result_blocks``, and its address in
    ``data``.
    """
    fn = module.function("make_results", I1, [PTR, PTR, PTR, PTR, PTR, PTR, I1])
    executable, options, buffers, blocks, result_blocks, data, later = fn.parameters
    count = EXECUTABLE.load(fn, executable, "num_outputs")
    results = fn.load(PTR, EXECUTABLE.at(fn, executable, "results"))
    start = (fn.i64(0), fn.constant(I1, 1))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < count) & iteration.carried[1]) as iteration:
        number, _ = iteration.carried
        result = result_of(fn, results, number)
        donor = RESULT.load(fn, result, "donor")

        def donated(donor: Value = donor) -> tuple[Value]:
            block = word(fn, blocks, donor)
            share(fn, block)
            return (block,)

        def fresh(result: Value = result) -> tuple[Value]:
            return (fn.call("make_block", PTR, RESULT.load(fn, result, "size")),)

        (block,) = fn.if_else(fn.call("can_donate", I1, options, donor, buffers, blocks, later), donated, fresh)
        fn.store(block, fn.at(result_blocks, PTR, number))
        is_there = block.ne(fn.null())
        with fn.if_(is_there):
            fn.store(fn.load(PTR, BLOCK.at(fn, block, "data")), fn.at(data, PTR, number))
        iteration.next(number + 1, is_there)
    fn.ret(iteration.results[1])


def _for_devices(module: Module, name: str, step: Callable[[Function, Value, Value, Value], Value]) -> None:
    """Emit a function of (struct, call) that does a step for each device, until a step fails; it gives a Prepared.

    step: emits the step of one device, given these two and the number of the device; gives its Prepared.
    """
    fn, struct, call = module.begin(name, I64, [PTR, PTR])
    count = NativeStruct(fn, "LoadedExecutable_Execute", struct).load("num_devices")
    start = (fn.i64(0), fn.i64(Prepared.WELL))
    with fn.while_(start, lambda t: (t.carried[0] < count) & t.carried[1].eq(Prepared.WELL)) as iteration:
        device = iteration.carried[0]
        iteration.next(device + 1, step(fn, struct, call, device))
    fn.ret(iteration.results[1])


class _DeviceArguments(NamedTuple):
    """A program, the options of its call, and the buffers and blocks of the ``num_args`` arguments of one device.

    first: the number of the first of them among the arguments of all devices.
    """

    executable: Value
    options: Value
    buffers: Value
    blocks: Value
    first: Value
    num_args: Value

    @staticmethod
    def of(fn: Function, struct: Value, call: Value, device: Value) -> _DeviceArguments:
        """Those of a device, from the structure of the call."""
        given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
        executable, options, count = given.pointer("executable"), given.pointer("options"), given.load("num_args")
        first, buffers = device * count, word(fn, given.pointer("argument_lists"), device)
        return _DeviceArguments(executable, options, buffers, fn.at(blocks_of(fn, call), PTR, first), first, count)


def _emit_steps(module: Module) -> None:
    """``hold_all(struct, call)``: hold the arguments of all devices; ``make_all(struct, call)``: make their results."""

    def hold(fn: Function, struct: Value, call: Value, device: Value) -> Value:
        own = _DeviceArguments.of(fn, struct, call, device)

        def check() -> tuple[Value]:
            clash = fn.call("clashes", I1, own.executable, own.options, own.buffers, own.blocks)
            fit = fn.call("fit", I1, own.executable, own.buffers)
            fits = fn.select(fit, fn.i64(Prepared.WELL), fn.i64(Prepared.OTHER_LAYOUT))
            return (fn.select(clash, fn.i64(Prepared.CLASH), fits),)

        is_held = fn.call("hold_arguments", I1, call, own.buffers, own.num_args, own.first)
        return fn.if_else(is_held, check, lambda: (fn.i64(Prepared.GONE),))[0]

    def make(fn: Function, struct: Value, call: Value, device: Value) -> Value:
        own = _DeviceArguments.of(fn, struct, call, device)
        begin = CALL.load(fn, call, "total_args") + device * EXECUTABLE.load(fn, own.executable, "num_outputs")
        targets = (fn.at(table(fn, call), PTR, begin) for table in (blocks_of, data_of))
        # Only calls for the queue have a weight.
        later = CALL.load(fn, call, "weight").ne(0)
        given = own.executable, own.options, own.buffers, own.blocks
        is_made = fn.call("make_results", I1, *given, *targets, later)
        return fn.select(is_made, fn.i64(Prepared.WELL), fn.i64(Prepared.NO_MEMORY))

    _for_devices(module, "hold_all", hold)
    _for_devices(module, "make_all", make)


def _emit_give_up(module: Module) -> None:
    """``give_up(ptr call)``, and ``release_arguments(ptr call)``, which does not release the blocks of results."""
    for name, count_field in (("give_up", "count"), ("release_arguments", "total_args")):
        fn, call = module.begin(name, VOID, [PTR])
        blocks, events = blocks_of(fn, call), events_of(fn, call)
        with fn.loop(0, CALL.load(fn, call, count_field)) as iteration:
            block = word(fn, blocks, iteration.index)
            with fn.if_(block.ne(fn.null())):
                fn.call("release_block", VOID, block)
        with fn.loop(0, CALL.load(fn, call, "total_args")) as iteration:
            event = word(fn, events, iteration.index)
            with fn.if_(event.ne(fn.null()), likely=False):
                fn.call("release_event", VOID, event)
        fn.call("xlakit_release", VOID, call)


def _emit_foreign(module: Module) -> None:
    """Foreign memory (NumPy arrays): a caller may write to it after the call returns, so calls in the queue use copies.

    ``has_view(struct, call) -> i1``: whether the memory of an argument cannot be replaced by a copy, since it belongs
    to another library, or NumPy has a view of it. ``own_foreign(struct, call) -> i1``: replace foreign memory of
    arguments by copies, in their buffers, too; false without memory.
    """
    _emit_has_view(module)
    _emit_own_copy(module)
    _emit_own_foreign(module)


def _argument(fn: Function, struct: Value, num_args: Value, number: Value) -> Value:
    """The buffer of an argument, by its number among those of all devices."""
    lists = NativeStruct(fn, "LoadedExecutable_Execute", struct).pointer("argument_lists")
    return word(fn, word(fn, lists, number // num_args), number % num_args)


def _emit_has_view(module: Module) -> None:
    fn, struct, call = module.begin("has_view", I1, [PTR, PTR])
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    blocks, num_args = blocks_of(fn, call), given.load("num_args")
    no = fn.constant(I1, 0)
    with fn.loop(0, CALL.load(fn, call, "total_args"), carried=[no]) as iteration:
        block, buffer = word(fn, blocks, iteration.index), _argument(fn, struct, num_args, iteration.index)

        def is_view(block: Value = block, buffer: Value = buffer) -> tuple[Value]:
            return (BLOCK.load(fn, block, "event").eq(0) | BUFFER.load(fn, buffer, "external").ne(0),)

        (view,) = fn.if_else(is_ours(fn, block), lambda: (no,), is_view)
        iteration.next(iteration.carried[0] | view)
    fn.ret(iteration.results[0])


def _emit_own_copy(module: Module) -> None:
    """``own_copy(ptr buffer, ptr block) -> ptr``: a copy of the block, or null; it also becomes the buffer's block.

    A buffer that has another block by now, or external readers, keeps its block.
    """
    fn, buffer, block = module.begin("own_copy", PTR, [PTR, PTR])
    size = BUFFER.load(fn, buffer, "size")
    copied_block = fn.call("make_block", PTR, size)
    fn.return_if(copied_block.eq(fn.null()), copied_block)
    fn.copy(fn.load(PTR, BLOCK.at(fn, copied_block, "data")), fn.load(PTR, BLOCK.at(fn, block, "data")), size)
    field = BUFFER.at(fn, buffer, "block")
    with locked(fn, buffer):
        is_same = fn.load(PTR, field).eq(block) & BUFFER.load(fn, buffer, "external").eq(0)
        with fn.if_(is_same):
            share(fn, copied_block)
            fn.store(copied_block, field)
    with fn.if_(is_same):
        fn.call("release_block", VOID, block)
    fn.ret(copied_block)


def _emit_own_foreign(module: Module) -> None:
    fn, struct, call = module.begin("own_foreign", I1, [PTR, PTR])
    given = NativeStruct(fn, "LoadedExecutable_Execute", struct)
    blocks, data = blocks_of(fn, call), data_of(fn, call)
    num_args = given.load("num_args")
    with fn.loop(0, CALL.load(fn, call, "total_args")) as iteration:
        block = word(fn, blocks, iteration.index)
        with fn.if_(~is_ours(fn, block), likely=False):
            copied_block = fn.call("own_copy", PTR, _argument(fn, struct, num_args, iteration.index), block)
            fn.return_if(copied_block.eq(fn.null()), fn.constant(I1, 0))
            fn.store(copied_block, fn.at(blocks, PTR, iteration.index))
            fn.store(fn.load(PTR, BLOCK.at(fn, copied_block, "data")), fn.at(data, PTR, iteration.index))
            fn.call("release_block", VOID, block)
    fn.ret(fn.constant(I1, 1))
