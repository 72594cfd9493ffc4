"""Buffers made from memory of the host: copied, or used without a copy."""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import slot_function
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.buffers import device_and_memory
from xlakit.jax.native.errors import fail_if
from xlakit.jax.native.events import ready_event
from xlakit.jax.native.layouts import element_bytes, order_in
from xlakit.jax.native.records import BLOCK

# PJRT's host buffer semantics with numbers from this one on permit the buffer to use the host's memory.
_ZERO_COPY = 2
# As in jaxlib's CPU, memory with less alignment is copied; programs that refill a NumPy array after passing it rely on
# that.
_ZERO_COPY_ALIGNMENT = 64
_NO_MEMORY = "there is not enough memory for the buffer"


def emit_transfer(module: Module) -> None:
    """Emit the functions that make buffers from memory."""
    _emit_is_dense(module)
    _emit_from_host(module)
    _emit_view(module)
    _emit_uninitialized(module)


def _emit_is_dense(module: Module) -> None:
    """``is_dense(ptr dims, ptr strides, i64 rank, i64 element) -> i1``: whether memory lies major to minor."""
    fn, dims, strides, rank, element = module.begin("is_dense", I1, [PTR, PTR, I64, I64])
    with fn.loop(0, rank, carried=[element, fn.constant(I1, 1)]) as iteration:
        expected, good = iteration.carried
        dimension = rank - 1 - iteration.index
        size = fn.load(I64, fn.at(dims, I64, dimension))
        fits = fn.load(I64, fn.at(strides, I64, dimension)).eq(expected) | size.eq(1)
        iteration.next(expected * size, good & fits)
    fn.ret(iteration.results[1])


class _BufferMaker:
    """Emits a function of the interface that makes a buffer: reads the buffer's description, and returns the buffer.

    layout: the name of the argument with the layout. Emits returns of errors for invalid or unsupported descriptions.
    """

    def __init__(self, module: Module, name: str, layout: str) -> None:
        self.fn, self.given = fn, given = slot_function(module, name)
        self._owners = device_and_memory(fn, given.pointer("device"), given.pointer("memory"))
        self._type = given.load("type")
        self.dims, self.rank = given.pointer("dims"), given.load("num_dims")
        # The bytes of an element.
        self.element = element_bytes(fn, self._type)
        fail_if(fn, self.element.eq(0), Code.UNIMPLEMENTED, "xlakit has no buffers of this element type")
        self.order = order_in(fn, given.pointer(layout), self.rank)

    def count(self) -> Value:
        """The number of elements."""
        return self.fn.call("count_of", I64, self.dims, self.rank)

    def fail_without(self, block: Value) -> None:
        """Return an error where there was no memory for a block."""
        is_missing = block.eq(self.fn.null())
        fail_if(self.fn, is_missing, Code.RESOURCE_EXHAUSTED, _NO_MEMORY)

    def give(self, block: Value, size: Value) -> None:
        """Give the buffer with a block of ``size`` bytes."""
        fn = self.fn
        buffer = fn.call("make_buffer", PTR, *self._owners, block, self._type, self.rank, size, self.dims, self.order)
        fn.store(buffer, self.given.at("buffer"))


def _is_aligned(fn: Function, data: Value, element: Value) -> Value:
    # A complex number is aligned as its parts are.
    mask = fn.select(element > 8, fn.i64(7), element - 1)
    return (data.cast("ptrtoint", I64) & mask).eq(0)


def _emit_from_host(module: Module) -> None:
    maker = _BufferMaker(module, "Client_BufferFromHostBuffer", "device_layout")
    fn, given, order = maker.fn, maker.given, maker.order
    source, strides = given.pointer("data"), given.pointer("byte_strides")
    has_strides = strides.ne(fn.null()) & given.load("num_byte_strides").ne(0)

    def is_dense() -> tuple[Value]:
        return (fn.call("is_dense", I1, maker.dims, strides, maker.rank, maker.element),)

    (dense,) = fn.if_else(has_strides, is_dense, lambda: (fn.constant(I1, 1),))
    is_plain = fn.call("is_plain_order", I1, order, maker.rank)
    fail_if(
        fn,
        ~(is_plain | has_strides),
        Code.UNIMPLEMENTED,
        "an array for another layout than major to minor needs strides",
    )
    count = maker.count()
    size = count * maker.element
    aligned = (source.cast("ptrtoint", I64) & (_ZERO_COPY_ALIGNMENT - 1)).eq(0)
    uses_host_memory = (given.load("semantics") >= _ZERO_COPY) & dense & aligned & is_plain

    def wrapped() -> tuple[Value, Value]:
        event = fn.call("make_event", PTR)
        block = fn.call("wrap_block", PTR, source)
        fn.store(event, BLOCK.at(fn, block, "event"))
        return block, event

    def fresh() -> tuple[Value, Value]:
        return fn.call("make_block", PTR, size), ready_event(fn)

    block, event = fn.if_else(uses_host_memory, wrapped, fresh)
    maker.fail_without(block)
    with fn.if_(~uses_host_memory):
        target = fn.load(PTR, BLOCK.at(fn, block, "data"))
        with fn.if_(dense & is_plain):
            fn.copy(target, source, size)
        with fn.if_(~dense & is_plain):
            fn.call("gather", VOID, target, source, maker.dims, strides, maker.rank, maker.element, count)
        with fn.if_(~is_plain):
            array = maker.dims, strides, order, maker.rank, maker.element
            done = fn.call("gather_in_order", I1, target, source, *array)
            with fn.if_(~done):
                fn.call("release_block", VOID, block)
            fail_if(fn, ~done, Code.RESOURCE_EXHAUSTED, _NO_MEMORY)
    fn.store(event, given.at("done_with_host_buffer"))
    maker.give(block, size)


def _emit_view(module: Module) -> None:
    maker = _BufferMaker(module, "Client_CreateViewOfDeviceBuffer", "layout")
    fn, given = maker.fn, maker.given
    data = given.pointer("data")
    fail_if(
        fn, ~_is_aligned(fn, data, maker.element), Code.INVALID_ARGUMENT, "the memory is not aligned to its elements"
    )
    block = fn.call("wrap_block", PTR, data)
    fn.store(given.pointer("on_delete"), BLOCK.at(fn, block, "deleter"))
    fn.store(given.pointer("on_delete_argument"), BLOCK.at(fn, block, "deleter_argument"))
    maker.give(block, maker.count() * maker.element)


def _emit_uninitialized(module: Module) -> None:
    maker = _BufferMaker(module, "Client_CreateUninitializedBuffer", "layout")
    size = maker.count() * maker.element
    block = maker.fn.call("make_block", PTR, size)
    maker.fail_without(block)
    maker.give(block, size)
