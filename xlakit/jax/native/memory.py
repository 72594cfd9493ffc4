"""Blocks: reference-counted memory that buffers share.

The word ``references`` has two counts of 32 bits: the lower one counts buffers and running functions, the upper one
calls in the queue. Calls in the queue run one after the other, so a call may write to memory that besides it only
earlier calls use.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I8, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.native.records import BLOCK

# Up to this size the memory follows its record in one allocation. Larger memory is allocated separately, as the record
# would push it into the allocator's next size class.
_SMALL_BYTES = 16384
# The reference of a call in the queue: one in the upper 32 bits.
QUEUED = 1 << 32


def emit_blocks(module: Module) -> None:
    """``make_block(i64 bytes) -> ptr``, ``wrap_block(ptr data) -> ptr`` (foreign memory), ``release_block(ptr)``, and

    ``release_queued(ptr)`` for a call in the queue. The first gives null if there is no memory.
    """
    fn = module.function("wrap_block", PTR, [PTR])
    block = fn.call("xlakit_allocate", PTR, fn.i64(BLOCK.size))
    _prepare(fn, block, fn.parameters[0])
    BLOCK.store(fn, block, "is_foreign", fn.i64(1))
    fn.ret(block)

    fn, bytes = module.begin("make_block", PTR, [I64])
    block = fn.call("xlakit_allocate", PTR, fn.select(bytes <= _SMALL_BYTES, bytes, fn.i64(0)) + BLOCK.size)
    fn.return_if(block.eq(fn.null()), block)
    _prepare(fn, block, fn.at(block, I8, BLOCK.size))
    fn.return_if(bytes <= _SMALL_BYTES, block)
    data = fn.call("xlakit_allocate", PTR, bytes)
    with fn.if_(data.eq(fn.null()), likely=False):
        fn.call("xlakit_release", VOID, block)
        fn.ret(fn.null())
    fn.store(data, BLOCK.at(fn, block, "data"))
    fn.ret(block)
    _emit_free(module)
    _emit_release(module)


def _prepare(fn: Function, block: Value, data: Value) -> None:
    BLOCK.store(fn, block, "references", fn.i64(1))
    fn.store(data, BLOCK.at(fn, block, "data"))
    for name in ("is_foreign", "event", "deleter"):
        BLOCK.store(fn, block, name, fn.i64(0))


def _emit_release(module: Module) -> None:
    for name, count in (("release_block", 1), ("release_queued", QUEUED)):
        fn, block = module.begin(name, VOID, [PTR])
        before = fn.atomic_update("sub", BLOCK.at(fn, block, "references"), fn.i64(count))
        fn.return_if(before.ne(count))
        fn.call("free_block", VOID, block)


def _emit_free(module: Module) -> None:
    fn, block = module.begin("free_block", VOID, [PTR])
    data = fn.load(PTR, BLOCK.at(fn, block, "data"))
    event, deleter = (fn.load(PTR, BLOCK.at(fn, block, name)) for name in ("event", "deleter"))
    with fn.if_(is_ours(fn, block) & data.ne(fn.at(block, I8, BLOCK.size))):
        fn.call("xlakit_release", VOID, data)
    with fn.if_(deleter.ne(fn.null())):
        fn.call_pointer(deleter, VOID, data, fn.load(PTR, BLOCK.at(fn, block, "deleter_argument")))
    with fn.if_(event.ne(fn.null())):
        fn.call("complete_event", VOID, event, fn.null())
    fn.call("xlakit_release", VOID, block)


def is_ours(fn: Function, block: Value) -> Value:
    """Whether the memory is not foreign: only then may a program write to it if the buffer is donated."""
    return BLOCK.load(fn, block, "is_foreign").eq(0)


def users(fn: Function, block: Value) -> Value:
    """The number of buffers and running functions that use a block."""
    return fn.atomic_load(I64, BLOCK.at(fn, block, "references")) & (QUEUED - 1)


def is_queued(fn: Function, block: Value) -> Value:
    """Whether a call in the queue uses a block."""
    return fn.atomic_load(I64, BLOCK.at(fn, block, "references")) >= QUEUED


def share_with_queue(fn: Function, block: Value) -> None:
    """Add a reference of a call in the queue to a block."""
    fn.atomic_update("add", BLOCK.at(fn, block, "references"), fn.i64(QUEUED))


def leave_to_queue(fn: Function, block: Value) -> None:
    """Convert a reference of a running function to one of a call in the queue."""
    fn.atomic_update("add", BLOCK.at(fn, block, "references"), fn.i64(QUEUED - 1))


def share(fn: Function, block: Value) -> None:
    """Add a reference to a block."""
    fn.atomic_update("add", BLOCK.at(fn, block, "references"), fn.i64(1))
