"""Buffers: arrays on devices, always computed; dense, with their dimensions in any order."""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I8, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import arguments_of
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.errors import fail_if
from xlakit.jax.native.events import ready_event
from xlakit.jax.native.layouts import dimensions, element_bytes, order_in, order_of
from xlakit.jax.native.memory import share
from xlakit.jax.native.records import BLOCK, BUFFER, DEVICE, LAYOUT_BASE, MEMORY

_GONE = "the buffer has been deleted or donated"


def emit_buffers(module: Module) -> None:
    """Emit the functions of existing buffers."""
    _emit_make(module)
    _emit_hold(module)
    _emit_drop(module)
    _emit_lives(module)
    _emit_external(module)
    _emit_dimensions(module)
    _emit_layout(module)
    _emit_addresses(module)
    _emit_to_host(module)
    _emit_copies(module)


def _emit_make(module: Module) -> None:
    """``make_buffer(device, memory, block, i64 type, i64 rank, i64 size, ptr dims, ptr order) -> ptr``.

    order: from the minor dimension on, or null for major to minor.
    """
    fn = module.function("make_buffer", PTR, [PTR, PTR, PTR, I64, I64, I64, PTR, PTR])
    device, memory, block, type, rank, size, dims, order = fn.parameters
    buffer = fn.call("xlakit_allocate", PTR, rank * 16 + BUFFER.size)
    for name, value in (("device", device), ("memory", memory), ("block", block)):
        fn.store(value, BUFFER.at(fn, buffer, name))
    for name, value in (("type", type), ("num_dims", rank), ("size", size)):
        BUFFER.store(fn, buffer, name, value)
    for name in ("lock", "is_deleted", "external"):
        BUFFER.store(fn, buffer, name, fn.i64(0))
    own, own_order = dimensions(fn, buffer), order_of(fn, buffer, rank)
    with fn.loop(0, rank, carried=[fn.i64(0)]) as iteration:
        fn.store(fn.load(I64, fn.at(dims, I64, iteration.index)), fn.at(own, I64, iteration.index))
        plain = rank - 1 - iteration.index
        (dimension,) = fn.if_else(
            order.eq(fn.null()),
            lambda: (plain,),
            lambda: (fn.load(I64, fn.at(order, I64, iteration.index)),),
        )
        fn.store(dimension, fn.at(own_order, I64, iteration.index))
        # See layout_number.
        iteration.next(iteration.carried[0] * LAYOUT_BASE + (dimension ^ plain))
    BUFFER.store(fn, buffer, "layout", iteration.results[0])
    fn.ret(buffer)


def memory_device(fn: Function, memory: Value) -> Value:
    """The device that a memory belongs to."""
    return fn.load(PTR, MEMORY.at(fn, memory, "device"))


def _locked(fn: Function, buffer: Value) -> None:
    lock = BUFFER.at(fn, buffer, "lock")
    with fn.while_((), lambda _: fn.atomic_update("xchg", lock, fn.i64(1)).ne(0)):
        fn.pause()


def _unlock(fn: Function, buffer: Value) -> None:
    fn.atomic_store(fn.i64(0), BUFFER.at(fn, buffer, "lock"))


def _emit_hold(module: Module) -> None:
    """``hold(ptr buffer) -> ptr``: its block, which the caller releases; null if the buffer is deleted."""
    fn = module.function("hold", PTR, [PTR])
    (buffer,) = fn.parameters
    _locked(fn, buffer)
    is_there = BUFFER.load(fn, buffer, "is_deleted").eq(0)
    block = fn.select(is_there, fn.load(PTR, BUFFER.at(fn, buffer, "block")), fn.null())
    with fn.if_(block.ne(fn.null())):
        share(fn, block)
    _unlock(fn, buffer)
    fn.ret(block)


def _emit_drop(module: Module) -> None:
    """``drop(ptr buffer, i1 delete, i1 even_held)``: delete it if asked to, and release a block that nothing uses."""
    fn = module.function("drop", VOID, [PTR, I1, I1])
    buffer, delete, even_held = fn.parameters
    _locked(fn, buffer)
    with fn.if_(delete):
        BUFFER.store(fn, buffer, "is_deleted", fn.i64(1))
    field = BUFFER.at(fn, buffer, "block")
    is_free = BUFFER.load(fn, buffer, "external").eq(0) | even_held
    is_released = is_free & BUFFER.load(fn, buffer, "is_deleted").ne(0)
    block = fn.select(is_released, fn.load(PTR, field), fn.null())
    with fn.if_(is_released):
        fn.store(fn.null(), field)
    _unlock(fn, buffer)
    with fn.if_(block.ne(fn.null())):
        fn.call("release_block", VOID, block)
    fn.ret()


def delete(fn: Function, buffer: Value) -> None:
    """Mark a buffer as deleted."""
    fn.call("drop", VOID, buffer, fn.constant(I1, 1), fn.constant(I1, 0))


def _emit_lives(module: Module) -> None:
    fn = module.function("Buffer_Destroy", PTR, [PTR], external=True)
    buffer = arguments_of("Buffer_Destroy").pointer(fn, fn.parameters[0], "buffer")
    fn.return_if(buffer.eq(fn.null()), fn.null())
    fn.call("drop", VOID, buffer, fn.constant(I1, 1), fn.constant(I1, 1))
    fn.call("xlakit_release", VOID, buffer)
    fn.ret(fn.null())

    fn = module.function("Buffer_Delete", PTR, [PTR], external=True)
    delete(fn, arguments_of("Buffer_Delete").pointer(fn, fn.parameters[0], "buffer"))
    fn.ret(fn.null())

    args = arguments_of("Buffer_ReadyEvent")
    fn = module.function("Buffer_ReadyEvent", PTR, [PTR], external=True)
    fn.store(ready_event(fn), args.at(fn, fn.parameters[0], "event"))
    fn.ret(fn.null())

    args = arguments_of("Buffer_IsOnCpu")
    fn = module.function("Buffer_IsOnCpu", PTR, [PTR], external=True)
    args.store(fn, fn.parameters[0], "is_on_cpu", fn.i64(1))
    fn.ret(fn.null())


def _emit_external(module: Module) -> None:
    fn = module.function("Buffer_IncreaseExternalReferenceCount", PTR, [PTR], external=True)
    buffer = arguments_of("Buffer_Delete").pointer(fn, fn.parameters[0], "buffer")
    _locked(fn, buffer)
    is_gone = BUFFER.load(fn, buffer, "is_deleted").ne(0)
    with fn.if_(~is_gone):
        BUFFER.store(fn, buffer, "external", BUFFER.load(fn, buffer, "external") + 1)
    _unlock(fn, buffer)
    fail_if(fn, is_gone, Code.INVALID_ARGUMENT, _GONE)
    fn.ret(fn.null())

    fn = module.function("Buffer_DecreaseExternalReferenceCount", PTR, [PTR], external=True)
    buffer = arguments_of("Buffer_Delete").pointer(fn, fn.parameters[0], "buffer")
    _locked(fn, buffer)
    BUFFER.store(fn, buffer, "external", BUFFER.load(fn, buffer, "external") - 1)
    _unlock(fn, buffer)
    fn.call("drop", VOID, buffer, fn.constant(I1, 0), fn.constant(I1, 0))
    fn.ret(fn.null())


def _emit_dimensions(module: Module) -> None:
    for slot in ("Buffer_Dimensions", "Buffer_UnpaddedDimensions"):
        args = arguments_of(slot)
        fn = module.function(slot, PTR, [PTR], external=True)
        (given,) = fn.parameters
        buffer = args.pointer(fn, given, "buffer")
        fn.store(dimensions(fn, buffer), args.at(fn, given, "dims"))
        args.store(fn, given, "num_dims", BUFFER.load(fn, buffer, "num_dims"))
        fn.ret(fn.null())

    args = arguments_of("Buffer_DynamicDimensionIndices")
    fn = module.function("Buffer_DynamicDimensionIndices", PTR, [PTR], external=True)
    fn.store(fn.null(), args.at(fn, fn.parameters[0], "indices"))
    args.store(fn, fn.parameters[0], "num_indices", fn.i64(0))
    fn.ret(fn.null())


def _emit_layout(module: Module) -> None:
    args = arguments_of("Buffer_GetMemoryLayout")
    fn = module.function("Buffer_GetMemoryLayout", PTR, [PTR], external=True)
    (given,) = fn.parameters
    buffer = args.pointer(fn, given, "buffer")
    rank = BUFFER.load(fn, buffer, "num_dims")
    fn.store(order_of(fn, buffer, rank), args.at(fn, given, "minor_to_major"))
    args.store(fn, given, "minor_to_major_size", rank)
    for name in ("tile_dims", "tile_dim_sizes", "num_tiles", "type"):
        args.store(fn, given, name, fn.i64(0))
    fn.ret(fn.null())


def _emit_addresses(module: Module) -> None:
    for slot in ("Buffer_UnsafePointer", "Buffer_OpaqueDeviceMemoryDataPointer"):
        args = arguments_of(slot)
        fn = module.function(slot, PTR, [PTR], external=True)
        (given,) = fn.parameters
        block = _held(fn, args.pointer(fn, given, "buffer"))
        fn.store(fn.load(PTR, BLOCK.at(fn, block, "data")), args.at(fn, given, "address"))
        fn.call("release_block", VOID, block)
        fn.ret(fn.null())


def _held(fn: Function, buffer: Value) -> Value:
    """The block of a buffer, which the caller releases. Emits the return of an error for a deleted buffer."""
    block = fn.call("hold", PTR, buffer)
    fail_if(fn, block.eq(fn.null()), Code.INVALID_ARGUMENT, _GONE)
    return block


def _emit_to_host(module: Module) -> None:
    args = arguments_of("Buffer_ToHostBuffer")
    fn = module.function("Buffer_ToHostBuffer", PTR, [PTR], external=True)
    (given,) = fn.parameters
    buffer, target = args.pointer(fn, given, "buffer"), args.pointer(fn, given, "data")
    size = BUFFER.load(fn, buffer, "size")
    with fn.if_(target.eq(fn.null())):
        args.store(fn, given, "size", size)
        fn.ret(fn.null())
    rank = BUFFER.load(fn, buffer, "num_dims")
    own_order = order_of(fn, buffer, rank)
    order = order_in(fn, args.pointer(fn, given, "host_layout"), rank)
    order = fn.select(order.eq(fn.null()), own_order, order)
    fail_if(
        fn, args.load(fn, given, "size") < size, Code.INVALID_ARGUMENT, "the host's memory is smaller than the buffer"
    )
    block = _held(fn, buffer)
    data, element = fn.load(PTR, BLOCK.at(fn, block, "data")), element_bytes(fn, BUFFER.load(fn, buffer, "type"))
    well = fn.call("reorder", I1, target, data, dimensions(fn, buffer), own_order, order, rank, element)
    fn.call("release_block", VOID, block)
    fail_if(fn, ~well, Code.RESOURCE_EXHAUSTED, "there is not enough memory to copy the buffer")
    fn.store(ready_event(fn), args.at(fn, given, "event"))
    fn.ret(fn.null())

    args = arguments_of("Buffer_CopyRawToHost")
    fn = module.function("Buffer_CopyRawToHost", PTR, [PTR], external=True)
    (given,) = fn.parameters
    buffer = args.pointer(fn, given, "buffer")
    offset, count = args.load(fn, given, "offset"), args.load(fn, given, "size")
    outside = (offset < 0) | (count < 0) | ((offset + count) > BUFFER.load(fn, buffer, "size"))
    fail_if(fn, outside, Code.INVALID_ARGUMENT, "the range is not within the buffer")
    block = _held(fn, buffer)
    fn.copy(args.pointer(fn, given, "data"), fn.at(fn.load(PTR, BLOCK.at(fn, block, "data")), I8, offset), count)
    fn.call("release_block", VOID, block)
    fn.store(ready_event(fn), args.at(fn, given, "event"))
    fn.ret(fn.null())


def _emit_copies(module: Module) -> None:
    for slot, target in (("Buffer_CopyToDevice", "device"), ("Buffer_CopyToMemory", "memory")):
        args = arguments_of(slot)
        fn = module.function(slot, PTR, [PTR], external=True)
        (given,) = fn.parameters
        buffer, destination = args.pointer(fn, given, "buffer"), args.pointer(fn, given, target)
        device, memory = device_and_memory(
            fn, *((destination, fn.null()) if target == "device" else (fn.null(), destination))
        )
        source = _held(fn, buffer)
        size = BUFFER.load(fn, buffer, "size")
        block = fn.call("make_block", PTR, size)
        with fn.if_(block.eq(fn.null()), likely=False):
            fn.call("release_block", VOID, source)
        fail_if(fn, block.eq(fn.null()), Code.RESOURCE_EXHAUSTED, "there is not enough memory for a copy of the buffer")
        fn.copy(fn.load(PTR, BLOCK.at(fn, block, "data")), fn.load(PTR, BLOCK.at(fn, source, "data")), size)
        fn.call("release_block", VOID, source)
        type, rank = BUFFER.load(fn, buffer, "type"), BUFFER.load(fn, buffer, "num_dims")
        dims = dimensions(fn, buffer), order_of(fn, buffer, rank)
        made = fn.call("make_buffer", PTR, device, memory, block, type, rank, size, *dims)
        fn.store(made, args.at(fn, given, "copy"))
        fn.ret(fn.null())


def device_and_memory(fn: Function, device: Value, memory: Value) -> tuple[Value, Value]:
    """The device and the memory of which the caller gives at least one; the other may be null."""

    def of_memory() -> tuple[Value, Value]:
        return memory_device(fn, memory), memory

    def of_device() -> tuple[Value, Value]:
        return device, fn.load(PTR, DEVICE.at(fn, device, "memory"))

    found = fn.if_else(memory.ne(fn.null()), of_memory, of_device)
    return found[0], found[1]
