"""Copies between the host and buffers whose source or target is given later.

A transfer manager makes buffers at once and receives their bytes piece by piece, from any thread. A buffer is ready
when the piece marked as the last one has arrived and no piece is being copied. A raw copy to the host gives its caller
a function, which the caller calls with the memory to copy to.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I8, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.runtime.record import Record
from xlakit.jax.api.arguments import NativeStruct, arguments_of, slot_function
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.buffers import checked_range, memory_device
from xlakit.jax.native.errors import error, fail_if
from xlakit.jax.native.events import ready_event
from xlakit.jax.native.layouts import element_bytes, order_in
from xlakit.jax.native.memory import share
from xlakit.jax.native.records import BLOCK, BUFFER, EVENT

# The buffers of a manager; a STAGED for each follows.
_MANAGER = Record(count=1, device=1)
# buffer: null once the caller has taken it. block: referenced as long as the manager exists, since a piece may be
# copied while the buffer gets an error and is destroyed. event: null once it is ready. size: in bytes. state: the
# number of pieces being copied, plus _LAST once the last one has arrived.
_STAGED = Record(buffer=1, block=1, event=1, size=1, state=1)
_LAST = 1 << 32

# A raw copy: pending is the event of the program that computes the buffer, or null.
_RAW_COPY = Record(block=1, pending=1, event=1, target=1, offset=1, size=1)

_NO_MEMORY = "there is not enough memory for the buffers of a transfer"
_LOST = "the transfer manager was destroyed before the last piece of the buffer had come"


def emit_staging(module: Module) -> None:
    """Emit the functions of transfer managers, and ``Buffer_CopyRawToHostFuture``."""
    _emit_settle(module)
    _emit_destroy(module)
    _emit_stage(module)
    _emit_create(module)
    _emit_transfer(module)
    _emit_set_error(module)
    _emit_getters(module)
    _emit_raw_copy(module)
    _emit_future(module)


def _staged_buffer(fn: Function, manager: Value, index: Value) -> Value:
    return fn.at(manager, I8, index * _STAGED.size + _MANAGER.size)


def _emit_settle(module: Module) -> None:
    """``settle(ptr staged, ptr error)``: make the buffer ready, or failed with an error, which is consumed."""
    fn, staged, failure = module.begin("settle", VOID, [PTR, PTR])
    event = fn.atomic_update("xchg", _STAGED.at(fn, staged, "event"), fn.i64(0)).cast("inttoptr", PTR)
    with fn.if_(event.eq(fn.null())):
        # Another call has settled it already.
        fn.call("xlakit_release", VOID, failure)
        fn.ret()
    fn.call("complete_event", VOID, event, failure)


def _emit_destroy(module: Module) -> None:
    fn, manager = module.begin("destroy_manager", VOID, [PTR])
    with fn.loop(0, _MANAGER.load(fn, manager, "count")) as each:
        staged = _staged_buffer(fn, manager, each.index)
        with fn.if_(_STAGED.load(fn, staged, "event").ne(0)):
            fn.call("settle", VOID, staged, error(fn, Code.ABORTED, _LOST))
        block = fn.load(PTR, _STAGED.at(fn, staged, "block"))
        with fn.if_(block.ne(fn.null())):
            fn.call("release_block", VOID, block)
        fn.call("destroy_buffer", VOID, fn.load(PTR, _STAGED.at(fn, staged, "buffer")))
    fn.call("xlakit_release", VOID, manager)

    name = "AsyncHostToDeviceTransferManager_Destroy"
    fn, given = slot_function(module, name)
    manager = given.pointer("manager")
    fn.return_if(manager.eq(fn.null()), fn.null())
    fn.call("destroy_manager", VOID, manager)


def _emit_stage(module: Module) -> None:
    """``stage(ptr staged, ptr device, ptr memory, ptr spec, ptr layout) -> ptr``: make a buffer; gives an error."""
    fn, staged, device, memory, spec, layout = module.begin("stage", PTR, [PTR] * 5)
    given = NativeStruct(fn, "ShapeSpec", spec)
    dims, rank, type = given.pointer("dims"), given.load("num_dims"), given.load("type")
    element = element_bytes(fn, type)
    fail_if(fn, element.eq(0), Code.UNIMPLEMENTED, "xlakit has no buffers of this element type")
    order = order_in(fn, layout, rank)
    size = fn.call("count_of", I64, dims, rank) * element
    block, event = fn.call("make_block", PTR, size), fn.call("make_event", PTR)
    is_missing = block.eq(fn.null()) | event.eq(fn.null())
    with fn.if_(is_missing, likely=False):
        fn.call("xlakit_release", VOID, event)
        with fn.if_(block.ne(fn.null())):
            fn.call("release_block", VOID, block)
        fn.ret(error(fn, Code.RESOURCE_EXHAUSTED, _NO_MEMORY))
    EVENT.store(fn, event, "is_from_host", fn.i64(1))
    buffer = fn.call("make_buffer", PTR, device, memory, block, type, rank, size, dims, order)
    fn.store(event, BUFFER.at(fn, buffer, "event"))
    share(fn, block)
    for name, value in (("buffer", buffer), ("block", block), ("event", event)):
        fn.store(value, _STAGED.at(fn, staged, name))
    _STAGED.store(fn, staged, "size", size)
    fn.ret(fn.null())


def _emit_create(module: Module) -> None:
    fn, given = slot_function(module, "Client_CreateBuffersForAsyncHostToDevice")
    count, specs = given.load("num_shape_specs"), given.pointer("shape_specs")
    layouts, num_layouts = given.pointer("device_layouts"), given.load("num_device_layouts")
    fail_if(
        fn, num_layouts.ne(0) & num_layouts.ne(count), Code.INVALID_ARGUMENT, "there is not one layout for each shape"
    )
    memory = given.pointer("memory")
    device = memory_device(fn, memory)
    bytes = count * _STAGED.size + _MANAGER.size
    manager = fn.call("xlakit_allocate", PTR, bytes)
    fail_if(fn, manager.eq(fn.null()), Code.RESOURCE_EXHAUSTED, _NO_MEMORY)
    fn.fill(manager, 0, bytes)
    _MANAGER.store(fn, manager, "count", count)
    fn.store(device, _MANAGER.at(fn, manager, "device"))
    with fn.loop(0, count) as each:
        spec = fn.at(specs, I8, each.index * arguments_of("ShapeSpec").size)

        def own_layout(index: Value = each.index) -> tuple[Value]:
            return (fn.load(PTR, fn.at(layouts, PTR, index)),)

        (layout,) = fn.if_else(num_layouts.ne(0), own_layout, lambda: (fn.null(),))
        failure = fn.call("stage", PTR, _staged_buffer(fn, manager, each.index), device, memory, spec, layout)
        with fn.if_(failure.ne(fn.null()), likely=False):
            fn.call("destroy_manager", VOID, manager)
            fn.ret(failure)
    fn.store(manager, given.at("manager"))


def _one_of(module: Module, name: str) -> tuple[Function, NativeStruct, Value]:
    """A function about one buffer of a manager: the function, its arguments, and the buffer's record."""
    fn, given = slot_function(module, name)
    manager, index = given.pointer("manager"), given.load("buffer_index")
    is_none = index.compare("uge", _MANAGER.load(fn, manager, "count"))
    fail_if(fn, is_none, Code.INVALID_ARGUMENT, "the transfer manager has no buffer of this number")
    return fn, given, _staged_buffer(fn, manager, index)


def _begin(fn: Function, staged: Value) -> None:
    """Count a piece that is being copied. Emits the return of an error for a piece after the last one."""
    state = _STAGED.at(fn, staged, "state")
    before = fn.atomic_update("add", state, fn.i64(1))
    is_late = (before >= _LAST) | _STAGED.load(fn, staged, "event").eq(0)
    with fn.if_(is_late, likely=False):
        fn.atomic_update("sub", state, fn.i64(1))
    fail_if(fn, is_late, Code.FAILED_PRECONDITION, "a piece of a buffer has come after the last one")


def _end(fn: Function, staged: Value, is_last: Value) -> None:
    """Count a copied piece; make the buffer ready if the last one has arrived and no other one is being copied."""
    state = _STAGED.at(fn, staged, "state")
    with fn.if_(is_last):
        fn.atomic_update("add", state, fn.i64(_LAST))
    with fn.if_(fn.atomic_update("sub", state, fn.i64(1)).eq(_LAST + 1)):
        fn.call("settle", VOID, staged, fn.null())


def _emit_transfer(module: Module) -> None:
    name = "AsyncHostToDeviceTransferManager_TransferData"
    fn, given, staged = _one_of(module, name)
    offset, size = checked_range(fn, given, _STAGED.load(fn, staged, "size"))
    _begin(fn, staged)
    data = fn.load(PTR, BLOCK.at(fn, fn.load(PTR, _STAGED.at(fn, staged, "block")), "data"))
    fn.copy(fn.at(data, I8, offset), given.pointer("data"), size)
    _end(fn, staged, given.load("is_last").ne(0))
    fn.store(ready_event(fn), given.at("event"))


def _emit_set_error(module: Module) -> None:
    name = "AsyncHostToDeviceTransferManager_SetBufferError"
    fn, given, staged = _one_of(module, name)
    text, size = given.pointer("message"), given.load("message_size")
    fn.call("settle", VOID, staged, fn.call("make_error", PTR, given.load("code"), text, size))


def _emit_getters(module: Module) -> None:
    name = "AsyncHostToDeviceTransferManager_RetrieveBuffer"
    fn, given, staged = _one_of(module, name)
    buffer = fn.atomic_update("xchg", _STAGED.at(fn, staged, "buffer"), fn.i64(0)).cast("inttoptr", PTR)
    fail_if(fn, buffer.eq(fn.null()), Code.FAILED_PRECONDITION, "the buffer has been taken already")
    fn.store(buffer, given.at("buffer"))

    name = "AsyncHostToDeviceTransferManager_BufferSize"
    fn, given, staged = _one_of(module, name)
    given.store("size", _STAGED.load(fn, staged, "size"))

    for name, field in (
        ("AsyncHostToDeviceTransferManager_Device", "device"),
        ("AsyncHostToDeviceTransferManager_BufferCount", "count"),
    ):
        fn, given = slot_function(module, name)
        given.store(field, _MANAGER.load(fn, given.pointer("manager"), field))


# -- to the host ------------------------------------------------------------------------------------------


def _emit_raw_copy(module: Module) -> None:
    """The functions of a raw copy.

    ``end_raw_copy(ptr error, ptr copy)`` copies, or fails with an error, which it consumes. The caller calls
    ``begin_raw_copy(ptr arguments)`` with the memory to copy to, once it is known.
    """
    fn, failure, copy = module.begin("end_raw_copy", VOID, [PTR, PTR])
    block = fn.load(PTR, _RAW_COPY.at(fn, copy, "block"))
    with fn.if_(failure.eq(fn.null())):
        source = fn.at(fn.load(PTR, BLOCK.at(fn, block, "data")), I8, _RAW_COPY.load(fn, copy, "offset"))
        fn.copy(fn.load(PTR, _RAW_COPY.at(fn, copy, "target")), source, _RAW_COPY.load(fn, copy, "size"))
    fn.call("release_block", VOID, block)
    fn.call("release_event", VOID, fn.load(PTR, _RAW_COPY.at(fn, copy, "pending")))
    fn.call("complete_event", VOID, fn.load(PTR, _RAW_COPY.at(fn, copy, "event")), failure)
    fn.call("xlakit_release", VOID, copy)

    fn, struct = module.begin("begin_raw_copy", VOID, [PTR])
    given = NativeStruct(fn, "CopyRawToHostFuture_Callback", struct)
    # This structure has no extensions; the second word is what the caller was given for the function.
    copy, code = given.pointer("extension_start"), given.load("code")
    with fn.if_(code.ne(0), likely=False):
        text, size = given.pointer("message"), given.load("message_size")
        fn.call("end_raw_copy", VOID, fn.call("make_error", PTR, code, text, size), copy)
        fn.ret()
    fn.store(given.pointer("target"), _RAW_COPY.at(fn, copy, "target"))
    pending = fn.load(PTR, _RAW_COPY.at(fn, copy, "pending"))
    with fn.if_(pending.eq(fn.null())):
        fn.call("end_raw_copy", VOID, fn.null(), copy)
        fn.ret()
    wait = fn.alloca(I64, arguments_of("Event_OnReady").size // 8)
    waiting = NativeStruct(fn, "Event_OnReady", wait)
    for name, value in (("event", pending), ("callback", fn.address("end_raw_copy")), ("user_arg", copy)):
        fn.store(value, waiting.at(name))
    fn.call("Event_OnReady", PTR, wait)


def _emit_future(module: Module) -> None:
    name = "Buffer_CopyRawToHostFuture"
    fn, given = slot_function(module, name)
    buffer = given.pointer("buffer")
    offset, size = checked_range(fn, given, BUFFER.load(fn, buffer, "size"))
    copy, event = fn.call("xlakit_allocate", PTR, fn.i64(_RAW_COPY.size)), fn.call("make_event", PTR)
    block = fn.call("hold", PTR, buffer)
    is_missing = copy.eq(fn.null()) | event.eq(fn.null()) | block.eq(fn.null())
    with fn.if_(is_missing, likely=False):
        for allocation in (copy, event):
            fn.call("xlakit_release", VOID, allocation)
        with fn.if_(block.ne(fn.null())):
            fn.call("release_block", VOID, block)
            fn.ret(error(fn, Code.RESOURCE_EXHAUSTED, "there is not enough memory to copy the buffer"))
        fn.ret(error(fn, Code.INVALID_ARGUMENT, "the buffer has been deleted or donated"))
    pending = fn.call("pending_event", PTR, buffer)
    for field, value in (("block", block), ("pending", pending), ("event", event)):
        fn.store(value, _RAW_COPY.at(fn, copy, field))
    for field, value in (("offset", offset), ("size", size)):
        _RAW_COPY.store(fn, copy, field, value)
    for field, value in (("event", event), ("callback_data", copy), ("callback", fn.address("begin_raw_copy"))):
        fn.store(value, given.at(field))
