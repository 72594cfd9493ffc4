"""Buffers made from memory of the host: copied, or used without a copy."""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.dataclass import dataclass
from xlakit.jax.api.arguments import Arguments, arguments_of
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.buffers import device_and_memory
from xlakit.jax.native.errors import fail_if
from xlakit.jax.native.events import ready_event
from xlakit.jax.native.layouts import element_bytes, order_in
from xlakit.jax.native.records import BLOCK

# From this number on, PJRT's host buffer semantics let the buffer use the host's memory as long as it lives.
_ZERO_COPY = 2


def emit_transfer(module: Module) -> None:
    """Emit the functions that make buffers from memory."""
    _emit_is_dense(module)
    _emit_from_host(module)
    _emit_view(module)
    _emit_uninitialized(module)


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
    element = element_bytes(fn, type)
    fail_if(fn, element.eq(0), Code.UNIMPLEMENTED, "xlakit has no buffers of this element type")
    return _Requested(type, dims, rank, element)


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
    order = order_in(fn, args.pointer(fn, given, "device_layout"), asked.rank)
    source, strides = args.pointer(fn, given, "data"), args.pointer(fn, given, "byte_strides")
    has_strides = strides.ne(fn.null()) & args.load(fn, given, "num_byte_strides").ne(0)

    def is_dense() -> tuple[Value]:
        return (fn.call("is_dense", I1, asked.dims, strides, asked.rank, asked.element),)

    (dense,) = fn.if_else(has_strides, is_dense, lambda: (fn.constant(I1, 1),))
    is_plain = fn.call("is_plain_order", I1, order, asked.rank)
    fail_if(
        fn,
        ~(is_plain | has_strides),
        Code.UNIMPLEMENTED,
        "an array for another layout than major to minor needs strides",
    )
    count = asked.count(fn)
    size = count * asked.element
    aligned = _is_aligned(fn, source, asked.element)
    uses_host_memory = (args.load(fn, given, "semantics") >= _ZERO_COPY) & dense & aligned & is_plain

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
        with fn.if_(dense & is_plain):
            fn.copy(target, source, size)
        with fn.if_(~dense & is_plain):
            fn.call("gather", VOID, target, source, asked.dims, strides, asked.rank, asked.element, count)
        with fn.if_(~is_plain):
            array = asked.dims, strides, order, asked.rank, asked.element
            done = fn.call("gather_in_order", I1, target, source, *array)
            with fn.if_(~done):
                fn.call("release_block", VOID, block)
            fail_if(fn, ~done, Code.RESOURCE_EXHAUSTED, "there is not enough memory for the buffer")
    fn.store(event, args.at(fn, given, "done_with_host_buffer"))
    made = fn.call("make_buffer", PTR, device, memory, block, asked.type, asked.rank, size, asked.dims, order)
    fn.store(made, args.at(fn, given, "buffer"))
    fn.ret(fn.null())


def _emit_view(module: Module) -> None:
    args = arguments_of("Client_CreateViewOfDeviceBuffer")
    fn = module.function("Client_CreateViewOfDeviceBuffer", PTR, [PTR], external=True)
    (given,) = fn.parameters
    device, memory = device_and_memory(fn, args.pointer(fn, given, "device"), args.pointer(fn, given, "memory"))
    asked = _requested(fn, args, given)
    order = order_in(fn, args.pointer(fn, given, "layout"), asked.rank)
    data = args.pointer(fn, given, "data")
    fail_if(
        fn, ~_is_aligned(fn, data, asked.element), Code.INVALID_ARGUMENT, "the memory is not aligned to its elements"
    )
    block = fn.call("wrap_block", PTR, data)
    fn.store(args.pointer(fn, given, "on_delete"), BLOCK.at(fn, block, "deleter"))
    fn.store(args.pointer(fn, given, "on_delete_argument"), BLOCK.at(fn, block, "deleter_argument"))
    size = asked.count(fn) * asked.element
    made = fn.call("make_buffer", PTR, device, memory, block, asked.type, asked.rank, size, asked.dims, order)
    fn.store(made, args.at(fn, given, "buffer"))
    fn.ret(fn.null())


def _emit_uninitialized(module: Module) -> None:
    args = arguments_of("Client_CreateUninitializedBuffer")
    fn = module.function("Client_CreateUninitializedBuffer", PTR, [PTR], external=True)
    (given,) = fn.parameters
    device, memory = device_and_memory(fn, args.pointer(fn, given, "device"), args.pointer(fn, given, "memory"))
    asked = _requested(fn, args, given)
    order = order_in(fn, args.pointer(fn, given, "layout"), asked.rank)
    size = asked.count(fn) * asked.element
    block = fn.call("make_block", PTR, size)
    fail_if(fn, block.eq(fn.null()), Code.RESOURCE_EXHAUSTED, "there is not enough memory for the buffer")
    made = fn.call("make_buffer", PTR, device, memory, block, asked.type, asked.rank, size, asked.dims, order)
    fn.store(made, args.at(fn, given, "buffer"))
    fn.ret(fn.null())
