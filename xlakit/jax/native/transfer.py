"""Buffers made from memory of the host: copied, or used without a copy."""

from __future__ import annotations

from dataclasses import dataclass

from xlakit.cpu.llvm import I1, I8, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import Arguments, arguments_of
from xlakit.jax.api.numbers import TYPE_NUMBERS, Code
from xlakit.jax.native.buffers import device_and_memory
from xlakit.jax.native.errors import fail_if
from xlakit.jax.native.events import ready_event
from xlakit.jax.native.records import BLOCK

# From this number on, PJRT's host buffer semantics let the buffer use the host's memory as long as it lives.
_ZERO_COPY = 2
_MAX_TYPES = 64


def emit_transfer(module: Module) -> None:
    """Emit the functions that make buffers from memory."""
    widths = bytearray(_MAX_TYPES)
    for kind, number in TYPE_NUMBERS.items():
        widths[number] = kind.dtype.itemsize if kind.is_array else 0
    module.constant_data("element_bytes", bytes(widths))
    _emit_plain_layout(module)
    _emit_count(module)
    _emit_is_dense(module)
    _emit_gather(module)
    _emit_from_host(module)
    _emit_view(module)
    _emit_uninitialized(module)


def _emit_plain_layout(module: Module) -> None:
    """``is_plain_layout(ptr layout, i64 rank) -> i1``: whether a layout is major to minor, and not tiled."""
    args = arguments_of("MemoryLayout")
    # A layout has a size and extensions, and then, as the first of its fields, the structure of a tiled one.
    fn = module.function("is_plain_layout", I1, [PTR, I64])
    layout, rank = fn.parameters
    order = args.pointer(fn, layout, "minor_to_major")
    is_other = args.load(fn, layout, "type").ne(0) | args.load(fn, layout, "num_tiles").ne(0)
    fn.return_if(is_other | args.load(fn, layout, "minor_to_major_size").ne(rank), fn.constant(I1, 0))
    with fn.loop(0, rank, carried=[fn.constant(I1, 1)]) as iteration:
        is_next = fn.load(I64, fn.at(order, I64, iteration.index)).eq(rank - 1 - iteration.index)
        iteration.next(iteration.carried[0] & is_next)
    fn.ret(iteration.results[0])


def _emit_count(module: Module) -> None:
    """``count_of(ptr dims, i64 rank) -> i64``."""
    fn = module.function("count_of", I64, [PTR, I64])
    dims, rank = fn.parameters
    with fn.loop(0, rank, carried=[fn.i64(1)]) as iteration:
        iteration.next(iteration.carried[0] * fn.load(I64, fn.at(dims, I64, iteration.index)))
    fn.ret(iteration.results[0])


def _emit_is_dense(module: Module) -> None:
    """``is_dense(ptr dims, ptr strides, i64 rank, i64 element) -> i1``: whether memory lies major to minor."""
    fn = module.function("is_dense", I1, [PTR, PTR, I64, I64])
    dims, strides, rank, element = fn.parameters
    with fn.loop(0, rank, carried=[element, fn.constant(I1, 1)]) as iteration:
        expected, good = iteration.carried
        dimension = rank - 1 - iteration.index
        size = fn.load(I64, fn.at(dims, I64, dimension))
        fits = fn.load(I64, fn.at(strides, I64, dimension)).eq(expected) | size.eq(1)
        iteration.next(expected * size, good & fits)
    fn.ret(iteration.results[1])


def _emit_gather(module: Module) -> None:
    """``gather(target, source, dims, strides, i64 rank, i64 element, i64 count)``: copy, element by element."""
    fn = module.function("gather", VOID, [PTR, PTR, PTR, PTR, I64, I64, I64])
    target, source, dims, strides, rank, element, count = fn.parameters
    with fn.loop(0, count) as each:
        with fn.loop(0, rank, carried=[each.index, fn.i64(0)]) as iteration:
            rest, offset = iteration.carried
            dimension = rank - 1 - iteration.index
            size = fn.load(I64, fn.at(dims, I64, dimension))
            step = fn.load(I64, fn.at(strides, I64, dimension))
            iteration.next(rest // size, offset + (rest % size) * step)
        fn.copy(fn.at(target, I8, each.index * element), fn.at(source, I8, iteration.results[1]), element)
    fn.ret()


@dataclass(frozen=True, slots=True)
class _Requested:
    """What the arguments of a call say of the buffer to be made; ``element``: the bytes of an element."""

    type: Value
    dims: Value
    rank: Value
    element: Value

    def count(self, fn: Function) -> Value:
        """The number of elements."""
        return fn.call("count_of", I64, self.dims, self.rank)


def _requested(fn: Function, args: Arguments, given: Value) -> _Requested:
    type, dims, rank = args.load(fn, given, "type"), args.pointer(fn, given, "dims"), args.load(fn, given, "num_dims")
    is_known = type.compare("ult", _MAX_TYPES)
    width = fn.load(I8, fn.at(fn.address("element_bytes"), I8, fn.select(is_known, type, fn.i64(0))))
    element = width.cast("zext", I64)
    fail_if(fn, element.eq(0), Code.UNIMPLEMENTED, "xlakit has no buffers of this element type")
    return _Requested(type, dims, rank, element)


def _check_layout(fn: Function, layout: Value, rank: Value) -> None:
    with fn.if_(layout.ne(fn.null())):
        plain = fn.call("is_plain_layout", I1, layout, rank)
        fail_if(fn, ~plain, Code.UNIMPLEMENTED, "xlakit's buffers lie major to minor, and are not tiled")


def _is_aligned(fn: Function, data: Value, element: Value) -> Value:
    # A complex number is aligned as its parts are.
    mask = fn.select(element > 8, fn.i64(7), element - 1)
    return (data.cast("ptrtoint", I64) & mask).eq(0)


def _emit_from_host(module: Module) -> None:
    args = arguments_of("Client_BufferFromHostBuffer")
    fn = module.function("Client_BufferFromHostBuffer", PTR, [PTR], external=True)
    (given,) = fn.parameters
    device, memory = device_and_memory(fn, args.pointer(fn, given, "device"), args.pointer(fn, given, "memory"))
    asked = _requested(fn, args, given)
    _check_layout(fn, args.pointer(fn, given, "device_layout"), asked.rank)
    source, strides = args.pointer(fn, given, "data"), args.pointer(fn, given, "byte_strides")
    has_strides = strides.ne(fn.null()) & args.load(fn, given, "num_byte_strides").ne(0)

    def is_dense() -> tuple[Value]:
        return (fn.call("is_dense", I1, asked.dims, strides, asked.rank, asked.element),)

    (dense,) = fn.if_else(has_strides, is_dense, lambda: (fn.constant(I1, 1),))
    count = asked.count(fn)
    size = count * asked.element
    aligned = _is_aligned(fn, source, asked.element)
    uses_host_memory = (args.load(fn, given, "semantics") >= _ZERO_COPY) & dense & aligned

    def wrapped() -> tuple[Value, Value]:
        event = fn.call("make_event", PTR)
        block = fn.call("wrap_block", PTR, source)
        fn.store(event, BLOCK.at(fn, block, "event"))
        return block, event

    def fresh() -> tuple[Value, Value]:
        return fn.call("make_block", PTR, size), ready_event(fn)

    block, event = fn.if_else(uses_host_memory, wrapped, fresh)
    fail_if(fn, block.eq(fn.null()), Code.RESOURCE_EXHAUSTED, "there is not enough memory for the buffer")
    with fn.if_(~uses_host_memory):
        target = fn.load(PTR, BLOCK.at(fn, block, "data"))
        with fn.if_(dense):
            fn.copy(target, source, size)
        with fn.if_(~dense):
            fn.call("gather", VOID, target, source, asked.dims, strides, asked.rank, asked.element, count)
    fn.store(event, args.at(fn, given, "done_with_host_buffer"))
    made = fn.call("make_buffer", PTR, device, memory, block, asked.type, asked.rank, size, asked.dims)
    fn.store(made, args.at(fn, given, "buffer"))
    fn.ret(fn.null())


def _emit_view(module: Module) -> None:
    args = arguments_of("Client_CreateViewOfDeviceBuffer")
    fn = module.function("Client_CreateViewOfDeviceBuffer", PTR, [PTR], external=True)
    (given,) = fn.parameters
    device, memory = device_and_memory(fn, args.pointer(fn, given, "device"), args.pointer(fn, given, "memory"))
    asked = _requested(fn, args, given)
    _check_layout(fn, args.pointer(fn, given, "layout"), asked.rank)
    data = args.pointer(fn, given, "data")
    fail_if(
        fn, ~_is_aligned(fn, data, asked.element), Code.INVALID_ARGUMENT, "the memory is not aligned to its elements"
    )
    block = fn.call("wrap_block", PTR, data)
    fn.store(args.pointer(fn, given, "on_delete"), BLOCK.at(fn, block, "deleter"))
    fn.store(args.pointer(fn, given, "on_delete_argument"), BLOCK.at(fn, block, "deleter_argument"))
    size = asked.count(fn) * asked.element
    made = fn.call("make_buffer", PTR, device, memory, block, asked.type, asked.rank, size, asked.dims)
    fn.store(made, args.at(fn, given, "buffer"))
    fn.ret(fn.null())


def _emit_uninitialized(module: Module) -> None:
    args = arguments_of("Client_CreateUninitializedBuffer")
    fn = module.function("Client_CreateUninitializedBuffer", PTR, [PTR], external=True)
    (given,) = fn.parameters
    device, memory = device_and_memory(fn, args.pointer(fn, given, "device"), args.pointer(fn, given, "memory"))
    asked = _requested(fn, args, given)
    size = asked.count(fn) * asked.element
    block = fn.call("make_block", PTR, size)
    fail_if(fn, block.eq(fn.null()), Code.RESOURCE_EXHAUSTED, "there is not enough memory for the buffer")
    made = fn.call("make_buffer", PTR, device, memory, block, asked.type, asked.rank, size, asked.dims)
    fn.store(made, args.at(fn, given, "buffer"))
    fn.ret(fn.null())
