"""Buffers: arrays on devices; dense, with their dimensions in any order.

A buffer is ready when it is made, or a call in the queue computes it: then it has the event of that call. Functions
that read the memory wait for the event first, and return its error.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from xlakit.cpu.llvm import I1, I8, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.runtime import waiting
from xlakit.jax.api.arguments import NativeStruct, slot_function
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.errors import fail_if
from xlakit.jax.native.events import is_ready, note_wait, ready_event
from xlakit.jax.native.layouts import dimension_at, dimensions, element_bytes, order_in, order_of
from xlakit.jax.native.memory import share
from xlakit.jax.native.records import BLOCK, BUFFER, DEVICE, EVENT, LAYOUT_BASE, MEMORY

_GONE = "the buffer has been deleted or donated"


def emit_buffers(module: Module) -> None:
    """Emit the functions of existing buffers."""
    _emit_make(module)
    _emit_hold(module)
    _emit_pending(module)
    _emit_drop(module)
    _emit_lives(module)
    _emit_external(module)
    _emit_dimensions(module)
    _emit_layout(module)
    _emit_addresses(module)
    _emit_to_host(module)
    _emit_copy_raw(module)
    _emit_copies(module)


def _emit_make(module: Module) -> None:
    """``make_buffer(device, memory, block, i64 type, i64 rank, i64 size, ptr dims, ptr order) -> ptr``.

    order: from the minor dimension on, or null for major to minor. The buffer is computed.
    """
    fn = module.function("make_buffer", PTR, [PTR, PTR, PTR, I64, I64, I64, PTR, PTR])
    device, memory, block, type, rank, size, dims, order = fn.parameters
    buffer = fn.call("xlakit_allocate", PTR, rank * 16 + BUFFER.size)
    for name, value in (("device", device), ("memory", memory), ("block", block)):
        fn.store(value, BUFFER.at(fn, buffer, name))
    for name, value in (("type", type), ("num_dims", rank), ("size", size)):
        BUFFER.store(fn, buffer, name, value)
    for name in ("lock", "is_deleted", "external", "event"):
        BUFFER.store(fn, buffer, name, fn.i64(0))
    own_dims, own_order = dimensions(fn, buffer), order_of(fn, buffer, rank)
    with fn.loop(0, rank, carried=[fn.i64(0)]) as iteration:
        fn.store(fn.load(I64, fn.at(dims, I64, iteration.index)), fn.at(own_dims, I64, iteration.index))
        dimension = dimension_at(fn, order, rank, iteration.index)
        fn.store(dimension, fn.at(own_order, I64, iteration.index))
        # See layout_number.
        iteration.next(iteration.carried[0] * LAYOUT_BASE + (dimension ^ (rank - 1 - iteration.index)))
    BUFFER.store(fn, buffer, "layout", iteration.results[0])
    fn.ret(buffer)


def memory_device(fn: Function, memory: Value) -> Value:
    """The device that a memory belongs to."""
    return fn.load(PTR, MEMORY.at(fn, memory, "device"))


def locked(fn: Function, buffer: Value) -> AbstractContextManager[None]:
    """Emit code that runs while it holds the lock of a buffer, for a few instructions."""
    return waiting.spin_locked(fn, BUFFER.at(fn, buffer, "lock"))


def _emit_pending(module: Module) -> None:
    """``pending_event(ptr buffer) -> ptr``: the event of a buffer that is not computed, which the caller releases.

    Null for one that is computed. ``await_buffer(ptr buffer) -> ptr``: wait for it; gives its error, or null.
    """
    fn, buffer = module.begin("pending_event", PTR, [PTR])
    field = BUFFER.at(fn, buffer, "event")
    fn.return_if(fn.atomic_load(I64, field, "monotonic").eq(0), fn.null())
    with locked(fn, buffer):
        event = fn.load(PTR, field)

        def found() -> tuple[Value]:
            is_well = is_ready(fn, event) & fn.load(PTR, EVENT.at(fn, event, "error")).eq(fn.null())
            with fn.if_(is_well):
                # The event is ready: the buffer drops its reference.
                fn.store(fn.null(), field)
                fn.call("release_event", VOID, event)
            with fn.if_(~is_well):
                fn.call("add_reference", PTR, event)
            return (fn.select(is_well, fn.null(), event),)

        (pending,) = fn.if_else(event.ne(fn.null()), found, lambda: (event,))
    fn.ret(pending)

    fn = module.function("await_buffer", PTR, [PTR])
    event = fn.call("pending_event", PTR, fn.parameters[0])
    fn.return_if(event.eq(fn.null()), event)

    def interrupted() -> tuple[Value]:
        return (fn.call("interrupted", PTR),)

    def result() -> tuple[Value]:
        return (fn.call("copy_error", PTR, fn.load(PTR, EVENT.at(fn, event, "error"))),)

    (error,) = fn.if_else(fn.call("await_event", I1, event), interrupted, result)
    fn.call("release_event", VOID, event)
    fn.ret(error)


def _emit_hold(module: Module) -> None:
    """``hold(ptr buffer) -> ptr``: its block, which the caller releases; null if the buffer is deleted."""
    fn, buffer = module.begin("hold", PTR, [PTR])
    with locked(fn, buffer):
        is_there = BUFFER.load(fn, buffer, "is_deleted").eq(0)
        block = fn.select(is_there, fn.load(PTR, BUFFER.at(fn, buffer, "block")), fn.null())
        with fn.if_(block.ne(fn.null())):
            share(fn, block)
    fn.ret(block)


def _emit_drop(module: Module) -> None:
    """``drop(ptr buffer, i1 delete, i1 is_last)``: mark a buffer as deleted if asked to; release a deleted one's block.

    The block stays while readers outside of the plugin hold it, unless this was the last reference to the buffer.
    """
    fn, buffer, delete, is_last = module.begin("drop", VOID, [PTR, I1, I1])
    with locked(fn, buffer):
        with fn.if_(delete):
            BUFFER.store(fn, buffer, "is_deleted", fn.i64(1))
        field = BUFFER.at(fn, buffer, "block")
        is_free = BUFFER.load(fn, buffer, "external").eq(0) | is_last
        is_released = is_free & BUFFER.load(fn, buffer, "is_deleted").ne(0)
        block = fn.select(is_released, fn.load(PTR, field), fn.null())
        with fn.if_(is_released):
            fn.store(fn.null(), field)
    with fn.if_(block.ne(fn.null())):
        fn.call("release_block", VOID, block)


def delete(fn: Function, buffer: Value) -> None:
    """Mark a buffer as deleted."""
    fn.call("drop", VOID, buffer, fn.constant(I1, 1), fn.constant(I1, 0))


def _emit_lives(module: Module) -> None:
    fn, buffer = module.begin("destroy_buffer", VOID, [PTR])
    fn.return_if(buffer.eq(fn.null()))
    fn.call("drop", VOID, buffer, fn.constant(I1, 1), fn.constant(I1, 1))
    fn.call("release_event", VOID, fn.load(PTR, BUFFER.at(fn, buffer, "event")))
    fn.call("xlakit_release", VOID, buffer)

    fn, given = slot_function(module, "Buffer_Destroy")
    fn.call("destroy_buffer", VOID, given.pointer("buffer"))

    fn, given = slot_function(module, "Buffer_Delete")
    delete(fn, given.pointer("buffer"))

    fn, given = slot_function(module, "Buffer_ReadyEvent")
    event = fn.call("pending_event", PTR, given.pointer("buffer"))
    is_pending = event.ne(fn.null())
    with fn.if_(is_pending):
        note_wait(fn, event)
    fn.store(fn.select(is_pending, event, ready_event(fn)), given.at("event"))

    fn, given = slot_function(module, "Buffer_IsOnCpu")
    given.store("is_on_cpu", fn.i64(1))


def _emit_external(module: Module) -> None:
    """References of other libraries to a buffer, whose memory stays as long as there are any, even if it is deleted."""
    fn, given = slot_function(module, "Buffer_IncreaseExternalReferenceCount", "Buffer_Delete")
    buffer = given.pointer("buffer")
    with locked(fn, buffer):
        is_gone = BUFFER.load(fn, buffer, "is_deleted").ne(0)
        with fn.if_(~is_gone):
            BUFFER.store(fn, buffer, "external", BUFFER.load(fn, buffer, "external") + 1)
    fail_if(fn, is_gone, Code.INVALID_ARGUMENT, _GONE)

    fn, given = slot_function(module, "Buffer_DecreaseExternalReferenceCount", "Buffer_Delete")
    buffer = given.pointer("buffer")
    with locked(fn, buffer):
        BUFFER.store(fn, buffer, "external", BUFFER.load(fn, buffer, "external") - 1)
    fn.call("drop", VOID, buffer, fn.constant(I1, 0), fn.constant(I1, 0))


def _emit_dimensions(module: Module) -> None:
    for slot in ("Buffer_Dimensions", "Buffer_UnpaddedDimensions"):
        fn, given = slot_function(module, slot)
        buffer = given.pointer("buffer")
        fn.store(dimensions(fn, buffer), given.at("dims"))
        given.store("num_dims", BUFFER.load(fn, buffer, "num_dims"))

    fn, given = slot_function(module, "Buffer_DynamicDimensionIndices")
    fn.store(fn.null(), given.at("indices"))
    given.store("num_indices", fn.i64(0))


def _emit_layout(module: Module) -> None:
    fn, given = slot_function(module, "Buffer_GetMemoryLayout")
    buffer = given.pointer("buffer")
    rank = BUFFER.load(fn, buffer, "num_dims")
    fn.store(order_of(fn, buffer, rank), given.at("minor_to_major"))
    given.store("minor_to_major_size", rank)
    for name in ("tile_dims", "tile_dim_sizes", "num_tiles", "type"):
        given.store(name, fn.i64(0))


def _emit_addresses(module: Module) -> None:
    for slot in ("Buffer_UnsafePointer", "Buffer_OpaqueDeviceMemoryDataPointer"):
        fn, given = slot_function(module, slot)
        block = _held_block(fn, given.pointer("buffer"))
        fn.store(fn.load(PTR, BLOCK.at(fn, block, "data")), given.at("address"))
        fn.call("release_block", VOID, block)


def _held_block(fn: Function, buffer: Value) -> Value:
    """The block of a buffer, after waiting for it; the caller releases it. Emits returns of errors."""
    error = fn.call("await_buffer", PTR, buffer)
    fn.return_if(error.ne(fn.null()), error)
    block = fn.call("hold", PTR, buffer)
    fail_if(fn, block.eq(fn.null()), Code.INVALID_ARGUMENT, _GONE)
    return block


def _emit_to_host(module: Module) -> None:
    """``Buffer_ToHostBuffer``: copy the elements in the order of a layout; without a target, give their size only."""
    fn, given = slot_function(module, "Buffer_ToHostBuffer")
    buffer, target = given.pointer("buffer"), given.pointer("data")
    size = BUFFER.load(fn, buffer, "size")
    with fn.if_(target.eq(fn.null())):
        given.store("size", size)
        fn.ret(fn.null())
    rank = BUFFER.load(fn, buffer, "num_dims")
    own_order = order_of(fn, buffer, rank)
    order = order_in(fn, given.pointer("host_layout"), rank)
    order = fn.select(order.eq(fn.null()), own_order, order)
    fail_if(fn, given.load("size") < size, Code.INVALID_ARGUMENT, "the host's memory is smaller than the buffer")
    block = _held_block(fn, buffer)
    data, element = fn.load(PTR, BLOCK.at(fn, block, "data")), element_bytes(fn, BUFFER.load(fn, buffer, "type"))
    is_copied = fn.call("reorder", I1, target, data, dimensions(fn, buffer), own_order, order, rank, element)
    fn.call("release_block", VOID, block)
    fail_if(fn, ~is_copied, Code.RESOURCE_EXHAUSTED, "there is not enough memory to copy the buffer")
    fn.store(ready_event(fn), given.at("event"))


def checked_range(fn: Function, given: NativeStruct, size: Value) -> tuple[Value, Value]:
    """The offset and size of a range of a buffer of ``size`` bytes. Emits the return of an error if it is outside."""
    offset, count = given.load("offset"), given.load("size")
    outside = (offset < 0) | (count < 0) | (offset > size) | (count > size - offset)
    fail_if(fn, outside, Code.INVALID_ARGUMENT, "the range is not within the buffer")
    return offset, count


def _emit_copy_raw(module: Module) -> None:
    """``Buffer_CopyRawToHost``: copy a range of the buffer's bytes, in their order in memory."""
    fn, given = slot_function(module, "Buffer_CopyRawToHost")
    buffer = given.pointer("buffer")
    offset, count = checked_range(fn, given, BUFFER.load(fn, buffer, "size"))
    block = _held_block(fn, buffer)
    fn.copy(given.pointer("data"), fn.at(fn.load(PTR, BLOCK.at(fn, block, "data")), I8, offset), count)
    fn.call("release_block", VOID, block)
    fn.store(ready_event(fn), given.at("event"))


def _emit_copies(module: Module) -> None:
    for slot, target in (("Buffer_CopyToDevice", "device"), ("Buffer_CopyToMemory", "memory")):
        fn, given = slot_function(module, slot)
        buffer, destination = given.pointer("buffer"), given.pointer(target)
        device, memory = device_and_memory(
            fn, *((destination, fn.null()) if target == "device" else (fn.null(), destination))
        )
        source = _held_block(fn, buffer)
        size = BUFFER.load(fn, buffer, "size")
        block = fn.call("make_block", PTR, size)
        with fn.if_(block.eq(fn.null()), likely=False):
            fn.call("release_block", VOID, source)
        fail_if(fn, block.eq(fn.null()), Code.RESOURCE_EXHAUSTED, "there is not enough memory for a copy of the buffer")
        fn.copy(fn.load(PTR, BLOCK.at(fn, block, "data")), fn.load(PTR, BLOCK.at(fn, source, "data")), size)
        fn.call("release_block", VOID, source)
        type, rank = BUFFER.load(fn, buffer, "type"), BUFFER.load(fn, buffer, "num_dims")
        dims = dimensions(fn, buffer), order_of(fn, buffer, rank)
        copy = fn.call("make_buffer", PTR, device, memory, block, type, rank, size, *dims)
        fn.store(copy, given.at("copy"))


def device_and_memory(fn: Function, device: Value, memory: Value) -> tuple[Value, Value]:
    """The device and the memory of which the caller gives at least one; the other may be null."""

    def of_memory() -> tuple[Value, Value]:
        return memory_device(fn, memory), memory

    def of_device() -> tuple[Value, Value]:
        return device, fn.load(PTR, DEVICE.at(fn, device, "memory"))

    found = fn.if_else(memory.ne(fn.null()), of_memory, of_device)
    return found[0], found[1]
