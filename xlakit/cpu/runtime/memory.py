"""The allocator of arenas, scratch and results. It reuses freed blocks: fresh pages cost more than most kernels.

``xlakit_allocate(i64 bytes) -> ptr`` (null if out of memory) gives at least ``bytes`` bytes, aligned to 64;
``xlakit_release(ptr)`` frees them, on any thread. Sizes are rounded up to classes, four for each power of two. A
released block of up to a megabyte is cached by the thread that released it, without a lock. Other blocks, and those
beyond the limit of a thread, go to shared lists up to a limit; beyond that, the largest go back to the system first.

Each block is preceded by a header of 64 bytes: its class, the next free block, and the address to pass to ``free``.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I8, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import ALWAYS_INLINE, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.record import Record
from xlakit.cpu.runtime.thread_state import SMALL_CLASSES, THREAD, thread_state

# Classes for all sizes below 2^47 bytes.
_CLASSES = 172
_MAX_BYTES = 1 << 47

# The limit in bytes of the free blocks of one thread.
_THREAD_LIMIT = 8 << 20

# Blocks of at least this size are aligned for huge pages, and advise the system to use them.
_HUGE = 2 << 20
_MADV_HUGEPAGE = 14

_HEADER = Record(size_class=1, next=1, origin=1, _fill=5)

# cached: the bytes in ``free``. held: the bytes allocated from the system, in use or free.
_CACHE = Record(limit=1, cached=1, held=1, _line=5, mutex=8, free=_CLASSES)


def emit_memory(module: Module, *, huge_pages: bool) -> Function:
    """Write the allocator's functions; gives the function to call with a thread's state when the thread ends."""
    module.global_data("cache", _CACHE.size)
    _emit_class_of(module)
    _emit_bytes_of(module)
    _emit_block_bytes(module)
    _emit_obtain(module, huge_pages=huge_pages)
    _emit_give_back(module)
    _emit_evict(module)
    _emit_trim(module)
    _emit_allocate_shared(module)
    _emit_release_shared(module)
    _emit_allocate(module)
    _emit_release(module)
    _emit_fork_hooks(module)
    _emit_statistics(module)
    return _emit_thread_exit(module)


def emit_memory_start(fn: Function, limit: Value) -> None:
    """Initialize the allocator with its limit of free bytes."""
    cache = fn.address("cache")
    _CACHE.store(fn, cache, "limit", limit)
    waiting.make_mutex(fn, _CACHE.at(fn, cache, "mutex"))


def _header(fn: Function, block: Value) -> Value:
    return fn.at(block, I8, -_HEADER.size)


def _next(fn: Function, block: Value) -> Value:
    return _HEADER.pointer(fn, _header(fn, block), "next")


def _set_next(fn: Function, block: Value, next_block: Value) -> None:
    fn.store(next_block, _HEADER.at(fn, _header(fn, block), "next"))


def _list(fn: Function, size_class: Value) -> Value:
    return fn.at(_CACHE.at(fn, fn.address("cache"), "free"), PTR, size_class)


def _add_cached(fn: Function, bytes: Value) -> Value:
    cache = fn.address("cache")
    total = _CACHE.load(fn, cache, "cached") + bytes
    _CACHE.store(fn, cache, "cached", total)
    return total


def _emit_class_of(module: Module) -> None:
    """``class_of(i64 bytes) -> i64``: the smallest class whose blocks have at least ``bytes`` bytes.

    Blocks of the classes 4 n to 4 n + 3 have 5, 6, 7 and 8 times 2**(n + 3) bytes, from 40 bytes on.
    """
    fn, bytes = module.begin("class_of", I64, [I64], attributes=(ALWAYS_INLINE,))
    last = fn.select(bytes < 64, fn.i64(64), bytes) - 1
    module.declare("llvm.ctlz.i64", I64, [I64, I1])
    exponent = 63 - fn.call("llvm.ctlz.i64", I64, last, fn.constant(I1, 1))
    fn.ret((exponent - 5) * 4 + ((last >> (exponent - 2)) & 3))


def _emit_bytes_of(module: Module) -> None:
    """``bytes_of(i64 class) -> i64``: the size of a class's blocks."""
    fn, size_class = module.begin("bytes_of", I64, [I64], attributes=(ALWAYS_INLINE,))
    fn.ret(((size_class & 3) + 5) << ((size_class >> 2) + 3))


def _emit_block_bytes(module: Module) -> None:
    """``block_bytes(ptr block) -> i64``: the size of a block."""
    fn = module.function("block_bytes", I64, [PTR])
    header = _header(fn, fn.parameters[0])
    fn.ret(fn.call("bytes_of", I64, _HEADER.load(fn, header, "size_class")))


def _emit_obtain(module: Module, *, huge_pages: bool) -> None:
    """``obtain(i64 class) -> ptr``: a block from the system, or null."""
    module.declare("posix_memalign", I32, [PTR, I64, I64])
    fn, size_class = module.begin("obtain", PTR, [I64], attributes=(NO_INLINE,))
    bytes = fn.call("bytes_of", I64, size_class)
    whole = bytes + _HEADER.size
    is_huge = bytes >= _HUGE
    result = fn.alloca(PTR)
    alignment = fn.select(is_huge, fn.i64(_HUGE), fn.i64(64))
    status = fn.call("posix_memalign", I32, result, alignment, whole)
    fn.return_if(status.ne(0), fn.null())
    origin = fn.load(PTR, result)
    if huge_pages:
        module.declare("madvise", I32, [PTR, I64, I32])
        with fn.if_(is_huge):
            fn.call("madvise", I32, origin, bytes & -_HUGE, fn.i32(_MADV_HUGEPAGE))
    fn.atomic_update("add", _CACHE.at(fn, fn.address("cache"), "held"), bytes)
    _HEADER.store(fn, origin, "size_class", size_class)
    fn.store(origin, _HEADER.at(fn, origin, "origin"))
    fn.ret(fn.at(origin, I8, _HEADER.size))


def _emit_give_back(module: Module) -> None:
    """``give_back(ptr block)``: return a block, and all blocks linked behind it, to the system."""
    module.declare("free", VOID, [PTR])
    fn = module.function("give_back", VOID, [PTR], attributes=(NO_INLINE,))
    cached_bytes = _CACHE.at(fn, fn.address("cache"), "held")
    with fn.while_(fn.parameters, lambda iteration: iteration.carried[0].ne(fn.null())) as iteration:
        (block,) = iteration.carried
        next_block = _next(fn, block)
        header = _header(fn, block)
        fn.atomic_update("sub", cached_bytes, fn.call("bytes_of", I64, _HEADER.load(fn, header, "size_class")))
        fn.call("free", VOID, _HEADER.pointer(fn, header, "origin"))
        iteration.next(next_block)


def _emit_evict(module: Module) -> None:
    """``evict(i64 goal) -> ptr``: under the lock, unlink blocks, large ones first, until ``goal`` bytes are left."""
    fn, goal = module.begin("evict", PTR, [I64], attributes=(NO_INLINE,))
    cached = _CACHE.at(fn, fn.address("cache"), "cached")

    def too_many(size_class: Value) -> Value:
        return (fn.load(I64, cached) > goal) & (size_class >= 0)

    start = (fn.i64(_CLASSES - 1), fn.null())
    with fn.while_(start, lambda iteration: too_many(iteration.carried[0])) as iteration:
        size_class, unlinked = iteration.carried
        head = _list(fn, size_class)
        block = fn.load(PTR, head)

        def take(block: Value = block, unlinked: Value = unlinked, list_head: Value = head) -> tuple[Value, Value]:
            fn.store(_next(fn, block), list_head)
            _add_cached(fn, -fn.call("bytes_of", I64, size_class))
            _set_next(fn, block, unlinked)
            return size_class, block

        def pass_on() -> tuple[Value, Value]:
            return size_class - 1, unlinked

        iteration.next(*fn.if_else(block.ne(fn.null()), take, pass_on))
    fn.ret(iteration.results[1])


def _emit_trim(module: Module) -> None:
    """``xlakit_memory_trim()``: return the free blocks of this thread and of the shared lists to the system."""
    fn = module.function("xlakit_memory_trim", VOID, [], external=True)
    fn.call("share_free", VOID, thread_state(fn))
    mutex = _CACHE.at(fn, fn.address("cache"), "mutex")
    waiting.lock(fn, mutex)
    evicted = fn.call("evict", PTR, fn.i64(0))
    waiting.unlock(fn, mutex)
    fn.call("give_back", VOID, evicted)


def _emit_allocate_shared(module: Module) -> None:
    """``allocate_shared(i64 class) -> ptr``: a block from the shared lists, or a fresh one."""
    fn, size_class = module.begin("allocate_shared", PTR, [I64], attributes=(NO_INLINE,))
    mutex, head = _CACHE.at(fn, fn.address("cache"), "mutex"), _list(fn, size_class)
    waiting.lock(fn, mutex)
    block = fn.load(PTR, head)
    with fn.if_(block.ne(fn.null())):
        fn.store(_next(fn, block), head)
        _add_cached(fn, -fn.call("bytes_of", I64, size_class))
    waiting.unlock(fn, mutex)
    fn.return_if(block.ne(fn.null()), block)
    fresh = fn.call("obtain", PTR, size_class)
    fn.return_if(fresh.ne(fn.null()), fresh)
    fn.call("xlakit_memory_trim", VOID)
    fn.ret(fn.call("obtain", PTR, size_class))


def _emit_release_shared(module: Module) -> None:
    """``release_shared(ptr block, i64 class)``: add a block to the shared lists."""
    fn, block, size_class = module.begin("release_shared", VOID, [PTR, I64], attributes=(NO_INLINE,))
    cache = fn.address("cache")
    bytes, limit = fn.call("bytes_of", I64, size_class), _CACHE.load(fn, cache, "limit")
    mutex, head = _CACHE.at(fn, cache, "mutex"), _list(fn, size_class)

    def give_back() -> tuple[Value]:
        _set_next(fn, block, fn.null())
        return (block,)

    def keep() -> tuple[Value]:
        waiting.lock(fn, mutex)
        # Blocks are evicted before this one is added, so that the block used last stays.
        evicted = fn.call("evict", PTR, limit - bytes)
        _set_next(fn, block, fn.load(PTR, head))
        fn.store(block, head)
        _add_cached(fn, bytes)
        waiting.unlock(fn, mutex)
        return (evicted,)

    fn.call("give_back", VOID, *fn.if_else(bytes > limit, give_back, keep))


def _emit_allocate(module: Module) -> None:
    for name in ("xlakit_allocate", "xlakit_scratch_acquire"):
        fn, bytes = module.begin(name, PTR, [I64], external=True)
        fn.return_if(bytes.compare("uge", _MAX_BYTES), fn.null())
        size_class = fn.call("class_of", I64, bytes)
        state = thread_state(fn)
        with fn.if_(size_class < SMALL_CLASSES):
            head = fn.at(THREAD.at(fn, state, "free"), PTR, size_class)
            block = fn.load(PTR, head)
            has_block = block.ne(fn.null())
            with fn.if_(has_block):
                fn.store(_next(fn, block), head)
                left = THREAD.load(fn, state, "cached") - fn.call("bytes_of", I64, size_class)
                THREAD.store(fn, state, "cached", left)
            fn.return_if(has_block, block)
        fn.ret(fn.call("allocate_shared", PTR, size_class))


def _emit_release(module: Module) -> None:
    for name in ("xlakit_release", "xlakit_scratch_release"):
        fn, block = module.begin(name, VOID, [PTR], external=True)
        fn.return_if(block.eq(fn.null()))
        size_class = _HEADER.load(fn, _header(fn, block), "size_class")
        state = thread_state(fn)
        total = THREAD.load(fn, state, "cached") + fn.call("bytes_of", I64, size_class)
        is_cached = (size_class < SMALL_CLASSES) & (total <= _THREAD_LIMIT)
        with fn.if_(is_cached):
            head = fn.at(THREAD.at(fn, state, "free"), PTR, size_class)
            _set_next(fn, block, fn.load(PTR, head))
            fn.store(block, head)
            THREAD.store(fn, state, "cached", total)
        fn.return_if(is_cached)
        fn.call("release_shared", VOID, block, size_class)


def _emit_thread_exit(module: Module) -> Function:
    """``share_free(ptr state)``: move a thread's blocks to shared lists; ``end_thread(ptr state)``: free it, too."""
    fn, state = module.begin("share_free", VOID, [PTR])
    with fn.loop(0, SMALL_CLASSES) as classes:
        head = fn.at(THREAD.at(fn, state, "free"), PTR, classes.index)
        with fn.while_((fn.load(PTR, head),), lambda iteration: iteration.carried[0].ne(fn.null())) as iteration:
            (block,) = iteration.carried
            next_block = _next(fn, block)
            fn.call("release_shared", VOID, block, classes.index)
            iteration.next(next_block)
        fn.store(fn.null(), head)
    THREAD.store(fn, state, "cached", fn.i64(0))

    fn, state = module.begin("end_thread", VOID, [PTR])
    fn.call("share_free", VOID, state)
    fn.call("free", VOID, state)
    return fn


def _emit_fork_hooks(module: Module) -> None:
    """``xlakit_memory_before_fork`` and ``..._after_fork``: lock the shared lists while the process forks."""
    for name, act in (("xlakit_memory_before_fork", waiting.lock), ("xlakit_memory_after_fork", waiting.unlock)):
        fn = module.function(name, VOID, [], external=True)
        act(fn, _CACHE.at(fn, fn.address("cache"), "mutex"))


def _emit_statistics(module: Module) -> None:
    """``xlakit_memory_held() -> i64``, ``xlakit_memory_cached() -> i64`` and ``xlakit_memory_limit(i64) -> i64``.

    ``cached`` counts the shared lists and those of the calling thread. ``limit`` sets the limit, and gives the old one.
    """
    fn = module.function("xlakit_memory_held", I64, [], external=True)
    fn.ret(fn.atomic_load(I64, _CACHE.at(fn, fn.address("cache"), "held")))
    fn = module.function("xlakit_memory_cached", I64, [], external=True)
    of_all = fn.atomic_load(I64, _CACHE.at(fn, fn.address("cache"), "cached"))
    fn.ret(of_all + THREAD.load(fn, thread_state(fn), "cached"))
    fn = module.function("xlakit_memory_limit", I64, [I64], external=True)
    fn.ret(fn.atomic_update("xchg", _CACHE.at(fn, fn.address("cache"), "limit"), fn.parameters[0]))
