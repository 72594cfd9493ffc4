"""Buffers whose elements come from the host in pieces, and raw copies to memory that comes later, without JAX."""

import ctypes

import numpy as np
import pytest
from test_jax_interface import call, message, structure

from xlakit.jax.api.arguments import arguments_of
from xlakit.jax.api.numbers import TYPE_NUMBERS
from xlakit.jax.arguments import ArgumentStruct
from xlakit.jax.native.records import DEVICE, MEMORY

_F32 = next(number for kind, number in TYPE_NUMBERS.items() if kind.name == "F32")
_MANAGER = "AsyncHostToDeviceTransferManager_"


class Transfer:
    """A transfer manager of buffers of F32, on a device that is nothing but its record."""

    def __init__(self, native, *shapes, layouts=()):
        self.native = native
        self._device = ctypes.create_string_buffer(DEVICE.size)
        self._memory = ctypes.create_string_buffer(MEMORY.size)
        at = ctypes.addressof(self._memory) + MEMORY.offset("device")
        ctypes.c_int64.from_address(at).value = ctypes.addressof(self._device)
        size = arguments_of("ShapeSpec").size
        specs = ctypes.create_string_buffer(size * len(shapes))
        kept = []
        for number, shape in enumerate(shapes):
            dims = (ctypes.c_int64 * len(shape))(*shape)
            kept.append(dims)
            spec = ArgumentStruct("ShapeSpec", ctypes.addressof(specs) + number * size)
            spec["dims"], spec["num_dims"], spec["type"] = ctypes.addressof(dims), len(shape), _F32
        name = "Client_CreateBuffersForAsyncHostToDevice"
        memory, given = structure(
            name,
            shape_specs=ctypes.addressof(specs),
            num_shape_specs=len(shapes),
            memory=ctypes.addressof(self._memory),
        )
        if layouts:
            given["device_layouts"], given["num_device_layouts"] = layouts
        self.error = call(native, name, memory)
        self.manager = given["manager"]

    def call(self, name, index=None, **fields):
        """Call a function of the manager; gives its error, and its arguments."""
        if index is not None:
            fields["buffer_index"] = index
        memory, given = structure(_MANAGER + name, manager=self.manager, **fields)
        return call(self.native, _MANAGER + name, memory), given, memory

    def asked(self, name, field, index=None):
        """What a function of the manager says."""
        error, given, _keep = self.call(name, index)
        assert error is None
        return given[field]

    def send(self, index, offset, data, *, last=False):
        data = np.ascontiguousarray(data)
        error, given, _keep = self.call(
            "TransferData", index, data=data.ctypes.data, offset=offset, size=data.nbytes, is_last=last
        )
        assert error or given["event"]
        return error

    def take(self, index):
        return self.asked("RetrieveBuffer", "buffer", index)

    def destroy(self):
        assert self.call("Destroy")[0] is None


def state(native, buffer):
    """Whether a buffer is computed, and its error."""
    memory, given = structure("Buffer_ReadyEvent", buffer=buffer)
    assert call(native, "Buffer_ReadyEvent", memory) is None
    event = given["event"]
    memory, given = structure("Event_IsReady", event=event)
    assert call(native, "Event_IsReady", memory) is None
    ready = bool(given["is_ready"])
    memory, _ = structure("Event_Error", event=event)
    error = call(native, "Event_Error", memory) if ready else None
    memory, _ = structure("Event_Destroy", event=event)
    call(native, "Event_Destroy", memory)
    return ready, error


def read(native, buffer, count):
    """The elements of a computed buffer."""
    found = np.zeros(count, np.float32)
    memory, _ = structure("Buffer_CopyRawToHost", buffer=buffer, data=found.ctypes.data, offset=0, size=found.nbytes)
    assert call(native, "Buffer_CopyRawToHost", memory) is None
    return found


def destroy(native, buffer):
    memory, _ = structure("Buffer_Destroy", buffer=buffer)
    assert call(native, "Buffer_Destroy", memory) is None


def test_a_buffer_is_there_when_its_last_piece_has_come(native):
    transfer = Transfer(native, (4, 5), (3,))
    assert transfer.error is None
    assert transfer.asked("BufferCount", "count") == 2
    assert [transfer.asked("BufferSize", "size", n) for n in range(2)] == [80, 12]
    assert transfer.asked("Device", "device") == ctypes.addressof(transfer._device)
    first, second = transfer.take(0), transfer.take(1)
    data = np.arange(20, dtype=np.float32)
    assert transfer.send(0, 40, data[10:]) is None
    assert transfer.send(1, 0, data[:3], last=True) is None
    assert (state(native, first), state(native, second)) == ((False, None), (True, None))
    assert transfer.send(0, 0, data[:10], last=True) is None
    assert state(native, first) == (True, None)
    transfer.destroy()
    np.testing.assert_array_equal(read(native, first, 20), data)
    np.testing.assert_array_equal(read(native, second, 3), data[:3])
    for buffer in (first, second):
        destroy(native, buffer)


def test_an_array_without_elements_is_there_after_its_only_piece(native):
    transfer = Transfer(native, (0,), ())
    buffer = transfer.take(0)
    assert transfer.send(0, 0, np.zeros(0, np.float32), last=True) is None
    assert state(native, buffer) == (True, None)
    # The other buffer has not been taken, and is given up with the manager.
    transfer.destroy()
    destroy(native, buffer)


def test_what_a_manager_refuses(native):
    transfer = Transfer(native, (2,))
    piece = np.ones(2, np.float32)
    assert message(native, transfer.send(1, 0, piece)) == (3, "the transfer manager has no buffer of this number")
    assert message(native, transfer.send(-1, 0, piece))[0] == 3
    for offset in (4, -4, 1 << 62):
        assert message(native, transfer.send(0, offset, piece)) == (3, "the range is not within the buffer")
    assert transfer.send(0, 0, piece, last=True) is None
    assert message(native, transfer.send(0, 0, piece)) == (9, "a piece of a buffer has come after the last one")
    destroy(native, transfer.take(0))
    assert message(native, transfer.call("RetrieveBuffer", 0)[0]) == (9, "the buffer has been taken already")
    transfer.destroy()
    layouts = (ctypes.c_int64 * 1)(0)
    refused = Transfer(native, (2,), (3,), layouts=(ctypes.addressof(layouts), 1))
    assert message(native, refused.error) == (3, "there is not one layout for each shape")


def test_buffers_have_the_error_of_what_should_have_filled_them(native):
    transfer = Transfer(native, (2,), (2,))
    first, second = transfer.take(0), transfer.take(1)
    text = b"the network is gone"
    kept = ctypes.create_string_buffer(text)
    fields = {"code": 14, "message": ctypes.addressof(kept), "message_size": len(text)}
    assert transfer.call("SetBufferError", 0, **fields)[0] is None
    assert message(native, state(native, first)[1]) == (14, "the network is gone")
    # Another error changes nothing; nothing may come any more.
    assert transfer.call("SetBufferError", 0, **fields)[0] is None
    assert message(native, transfer.send(0, 0, np.ones(2, np.float32)))[0] == 9
    transfer.destroy()
    code, said = message(native, state(native, second)[1])
    assert code == 10
    assert "before the last piece" in said
    memory, _ = structure("Buffer_CopyRawToHost", buffer=second, data=0, offset=0, size=8)
    assert message(native, call(native, "Buffer_CopyRawToHost", memory))[0] == 10
    for buffer in (first, second):
        destroy(native, buffer)


def raw_copy(native, buffer, offset, size):
    """What a raw copy gives before its memory is known; the error if it is refused."""
    memory, given = structure("Buffer_CopyRawToHostFuture", buffer=buffer, offset=offset, size=size)
    error = call(native, "Buffer_CopyRawToHostFuture", memory)
    return error, given, memory


def tell(given, target=0, code=0, text=b""):
    """Call the function that a raw copy has given with the memory to copy to, or an error."""
    kept = ctypes.create_string_buffer(text)
    memory, told = structure(
        "CopyRawToHostFuture_Callback", code=code, message=ctypes.addressof(kept), message_size=len(text), target=target
    )
    told["extension_start"] = given["callback_data"]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(given["callback"])(ctypes.addressof(memory))


def ended(native, given):
    memory, _ = structure("Event_Await", event=given["event"])
    error = call(native, "Event_Await", memory)
    memory, _ = structure("Event_Destroy", event=given["event"])
    call(native, "Event_Destroy", memory)
    return error


@pytest.mark.parametrize("is_there", [False, True])
def test_a_raw_copy_waits_for_its_memory_and_for_the_buffer(native, is_there):
    transfer = Transfer(native, (4,))
    buffer, data = transfer.take(0), np.arange(4, dtype=np.float32)
    if is_there:
        assert transfer.send(0, 0, data, last=True) is None
    error, given, _keep = raw_copy(native, buffer, 4, 8)
    assert error is None
    # The copy has the memory of the buffer, whose record may go.
    destroy(native, buffer)
    target = np.zeros(2, np.float32)
    tell(given, target.ctypes.data)
    if not is_there:
        assert target.tolist() == [0, 0]
        assert transfer.send(0, 0, data, last=True) is None
    assert ended(native, given) is None
    assert target.tolist() == [1, 2]
    transfer.destroy()


def test_what_becomes_of_a_raw_copy_that_is_not_possible(native):
    transfer = Transfer(native, (4,))
    buffer = transfer.take(0)
    for offset, size in ((4, 16), (-4, 4), (0, -1)):
        assert message(native, raw_copy(native, buffer, offset, size)[0])[0] == 3
    _, given, _keep = raw_copy(native, buffer, 0, 16)
    tell(given, code=8, text=b"no memory to copy to")
    assert message(native, ended(native, given)) == (8, "no memory to copy to")
    _, given, _keep = raw_copy(native, buffer, 0, 16)
    tell(given, np.zeros(4, np.float32).ctypes.data)
    transfer.destroy()
    assert message(native, ended(native, given))[0] == 10
    memory, _ = structure("Buffer_Delete", buffer=buffer)
    call(native, "Buffer_Delete", memory)
    assert message(native, raw_copy(native, buffer, 0, 16)[0]) == (3, "the buffer has been deleted or donated")
    destroy(native, buffer)
