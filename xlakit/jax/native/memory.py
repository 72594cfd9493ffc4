"""Blocks: memory that buffers share, with a count of its users."""

from __future__ import annotations

from xlakit.cpu.llvm import I8, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.native.records import BLOCK

# Up to this size the memory follows its record. Larger blocks come in sizes of the allocator's, which are those of
# arrays; the record would push them into the next one.
_SMALL_BYTES = 16384


def emit_blocks(module: Module) -> None:
    """``make_block(i64 bytes) -> ptr``, ``wrap_block(ptr data) -> ptr`` (foreign memory), ``release_block(ptr)``.

    The first gives null where there is no memory.
    """
    fn = module.function("wrap_block", PTR, [PTR])
    block = fn.call("xlakit_allocate", PTR, fn.i64(BLOCK.size))
    _prepare(fn, block, fn.parameters[0])
    BLOCK.store(fn, block, "is_foreign", fn.i64(1))
    fn.ret(block)

    fn = module.function("make_block", PTR, [I64])
    (bytes,) = fn.parameters
    small = fn.call("xlakit_allocate", PTR, fn.select(bytes <= _SMALL_BYTES, bytes, fn.i64(0)) + BLOCK.size)
    fn.return_if(small.eq(fn.null()), small)
    _prepare(fn, small, fn.at(small, I8, BLOCK.size))
    fn.return_if(bytes <= _SMALL_BYTES, small)
    data = fn.call("xlakit_allocate", PTR, bytes)
    with fn.if_(data.eq(fn.null()), likely=False):
        fn.call("xlakit_release", VOID, small)
        fn.ret(fn.null())
    fn.store(data, BLOCK.at(fn, small, "data"))
    fn.ret(small)
    _emit_release(module)


def _prepare(fn: Function, block: Value, data: Value) -> None:
    BLOCK.store(fn, block, "references", fn.i64(1))
    fn.store(data, BLOCK.at(fn, block, "data"))
    for name in ("is_foreign", "event", "deleter"):
        BLOCK.store(fn, block, name, fn.i64(0))


def _emit_release(module: Module) -> None:
    fn = module.function("release_block", VOID, [PTR])
    (block,) = fn.parameters
    before = fn.atomic_update("sub", BLOCK.at(fn, block, "references"), fn.i64(1))
    fn.return_if(before.ne(1))
    data = fn.load(PTR, BLOCK.at(fn, block, "data"))
    event, deleter = (fn.load(PTR, BLOCK.at(fn, block, name)) for name in ("event", "deleter"))
    with fn.if_(is_ours(fn, block) & data.ne(fn.at(block, I8, BLOCK.size))):
        fn.call("xlakit_release", VOID, data)
    with fn.if_(deleter.ne(fn.null())):
        fn.call_pointer(deleter, VOID, data, fn.load(PTR, BLOCK.at(fn, block, "deleter_argument")))
    with fn.if_(event.ne(fn.null())):
        fn.call("set_event", VOID, event)
    fn.call("xlakit_release", VOID, block)
    fn.ret()


def is_ours(fn: Function, block: Value) -> Value:
    """Whether the memory is not foreign: then a program that is given the buffer for good may write to it."""
    return BLOCK.load(fn, block, "is_foreign").eq(0)


def share(fn: Function, block: Value) -> None:
    """Add a reference to a block."""
    fn.atomic_update("add", BLOCK.at(fn, block, "references"), fn.i64(1))
