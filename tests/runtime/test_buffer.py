"""Buffers: from and to the host, shared or copied, and their end."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
from device_programs import Held, add, floats

import xlakit as xla

ZERO_COPY = xla.HostBufferSemantics.ZERO_COPY


@pytest.fixture
def client():
    with xla.Client(devices=2) as made:
        yield made


@pytest.fixture
def device(client):
    return client.devices()[0]


@pytest.mark.parametrize("kind", [k for k in xla.PrimitiveType if k.is_array], ids=lambda k: k.hlo_name)
def test_every_type_goes_in_and_out(device, kind):
    values = np.array([[0, 1, 0], [1, 1, 0]]).astype(kind.dtype)
    buffer = device.put(values)
    assert buffer.dtype == values.dtype
    assert buffer.shape == xla.make_shape(kind, (2, 3)).with_default_layout()
    assert buffer.on_device_size_in_bytes() == values.nbytes
    assert np.asarray(buffer).tobytes() == values.tobytes()


def test_what_a_buffer_is(client, device):
    buffer = device.put([[1.0, 2.0]])
    assert (str(buffer.shape), buffer.dtype, buffer.device) == ("f64[1,2]{1,0}", np.float64, device)
    assert buffer.is_ready()
    assert buffer.block_until_ready() is buffer
    assert repr(buffer) == "<Buffer f64[1,2]{1,0} on cpu:0>"
    assert not buffer.is_deleted()
    assert buffer.unsafe_buffer_pointer() % 64 == 0
    assert np.array(client.buffer_from_host(xla.Literal.from_value(7, xla.S8))) == 7
    # Any layout comes to lie major to minor, and the other byte order is turned.
    odd = np.arange(6, dtype=">i4").reshape(2, 3).T[::-1]
    np.testing.assert_array_equal(device.put(odd), odd)
    assert np.asarray(device.put(odd)).flags.c_contiguous


def test_what_cannot_be_a_buffer(client, device):
    with pytest.raises(xla.UnsupportedError, match="no primitive type holds"):
        device.put(np.array(["a"]))
    with pytest.raises(xla.ArgumentError, match="device is 'cpu:0'"):
        client.buffer_from_host(1.0, "cpu:0")
    with pytest.raises(xla.ArgumentError, match=r"known: immutable_only_during_call, .*zero_copy"):
        device.put(1.0, host_buffer_semantics="never")


def test_the_array_of_a_buffer_is_a_view_that_cannot_be_written_to(device):
    buffer = device.put(floats(1, 2, 3, 4))
    view = np.asarray(buffer)
    assert view.ctypes.data == buffer.unsafe_buffer_pointer()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True
    copy = np.array(buffer)
    copy[0] = 5
    assert np.asarray(buffer)[0] == 1
    np.testing.assert_array_equal(np.asarray(buffer, dtype=np.int64), [1, 2, 3, 4])
    with pytest.raises(ValueError, match="is a copy"):
        buffer.__array__(np.dtype(np.int64), copy=False)
    # The view outlives the buffer.
    buffer.delete()
    np.testing.assert_array_equal(view, floats(1, 2, 3, 4))


def test_by_default_an_array_is_copied_before_the_call_returns(device):
    for size in (4, 1 << 20):
        values = np.ones(size, np.float32)
        buffer = device.put(values)
        values[:] = 2
        assert np.asarray(buffer).max() == 1
        shown = np.ones(size, np.float32)
        hidden = shown[:]
        hidden.flags.writeable = False
        # The view cannot be written to, the array behind it can.
        buffer = device.put(hidden)
        shown[:] = 2
        assert np.asarray(buffer).max() == 1


def test_an_array_that_cannot_change_is_not_copied(device):
    values = floats(1, 2, 3, 4)
    values.flags.writeable = False
    assert device.put(values).unsafe_buffer_pointer() == values.ctypes.data
    text = np.frombuffer(bytes(16), np.float32)
    assert device.put(text).unsafe_buffer_pointer() == text.ctypes.data
    buffer = device.put(floats(1, 2, 3, 4))
    assert device.put(np.asarray(buffer)).unsafe_buffer_pointer() == buffer.unsafe_buffer_pointer()


def test_zero_copy_reads_where_the_array_is_if_it_lies_right(device):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for semantics in (ZERO_COPY, "zero_copy", "ZERO_COPY"):
        assert device.put(values, host_buffer_semantics=semantics).unsafe_buffer_pointer() == values.ctypes.data
    turned = device.put(values.T, host_buffer_semantics=ZERO_COPY)
    assert not np.may_share_memory(np.asarray(turned), values)
    np.testing.assert_array_equal(turned, values.T)
    crooked = np.zeros(17, np.uint8)[1:].view(np.float32)
    buffer = device.put(crooked, host_buffer_semantics=ZERO_COPY)
    assert buffer.unsafe_buffer_pointer() != crooked.ctypes.data
    # The buffer keeps the array alive, and no longer.
    values = np.ones(4, np.float32)
    gone = weakref.ref(values)
    buffer = device.put(values, host_buffer_semantics=ZERO_COPY)
    del values
    gc.collect()
    assert gone() is not None
    buffer.delete()
    gc.collect()
    assert gone() is None


def test_a_large_array_may_be_copied_later(client, device):
    held = Held(client)
    held.start(device.put(floats(1, 2, 3, 4)))
    values = np.ones(1 << 20, np.float32)
    buffer = device.put(values, host_buffer_semantics="immutable_until_transfer_completes")
    assert not buffer.is_ready()
    held.end()
    assert np.asarray(buffer).sum() == 1 << 20
    values[:] = 2
    assert np.asarray(buffer).max() == 1


@pytest.mark.parametrize("size", [4, 1 << 20])
def test_a_copy_on_another_device(client, device, size):
    buffer = device.put(np.arange(size, dtype=np.float32))
    copy = buffer.copy_to_device(client.devices()[1])
    assert copy.device.id == 1
    np.testing.assert_array_equal(copy, buffer)
    assert copy.unsafe_buffer_pointer() != buffer.unsafe_buffer_pointer()
    same = buffer.copy_to_device(device)
    assert same.unsafe_buffer_pointer() == buffer.unsafe_buffer_pointer()
    buffer.delete()
    assert np.asarray(same)[-1] == np.asarray(copy)[-1] == size - 1


def test_a_copy_of_what_is_still_to_come(client, device):
    held = Held(client)
    pending = held.start(device.put(floats(1, 2, 3, 4)))
    copy = pending.copy_to_device(client.devices()[1])
    alias = pending.copy_to_device(device)
    # An earlier request keeps its copy.
    pending.delete()
    assert not copy.is_ready()
    held.end()
    np.testing.assert_array_equal(copy, floats(1, 2, 3, 4))
    np.testing.assert_array_equal(alias, floats(1, 2, 3, 4))
    with xla.Client() as other:
        np.testing.assert_array_equal(copy.copy_to_device(other.devices()[0]), copy)


def test_a_deleted_buffer_says_so(client, device):
    buffer = device.put(floats(1, 2, 3, 4))
    buffer.delete()
    buffer.delete()
    assert buffer.is_deleted()
    program = client.compile(add())
    for use in (
        lambda: np.asarray(buffer),
        buffer.block_until_ready,
        buffer.is_ready,
        buffer.unsafe_buffer_pointer,
        lambda: buffer.copy_to_device(device),
        lambda: program.execute([buffer, buffer]),
        lambda: np.from_dlpack(buffer),
    ):
        with pytest.raises(
            xla.DeletedBufferError, match=r"buffer f32\[4\] on device 0 .* was deleted\n.*test_buffer.py:"
        ):
            use()
    assert "deleted" in repr(buffer)
    # The shape is still known.
    assert buffer.shape.dimensions == (4,)


def test_dlpack_shares_memory_with_numpy(device):
    buffer = device.put(np.arange(6, dtype=np.float32).reshape(2, 3))
    there = np.from_dlpack(buffer)
    assert there.ctypes.data == buffer.unsafe_buffer_pointer()
    assert not there.flags.writeable
    back = device.from_dlpack(there)
    assert back.unsafe_buffer_pointer() == there.ctypes.data
    assert device.from_dlpack(there, copy=True).unsafe_buffer_pointer() != there.ctypes.data
    np.testing.assert_array_equal(device.from_dlpack(there.T), there.T)
    with pytest.raises(xla.ArgumentError, match="does not lie as buffers do"):
        device.from_dlpack(there.T, copy=False)
    with pytest.raises(xla.ArgumentError, match="does not know DLPack"):
        device.from_dlpack([1, 2])
    with pytest.raises(xla.UnsupportedError, match="int4"):
        np.from_dlpack(device.put(np.zeros(3, ml_dtypes.int4)))
    with pytest.raises(xla.ArgumentError, match="stream"):
        buffer.__dlpack__(stream=1)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.bool_, np.complex64, np.int8])
def test_dlpack_carries_types_that_numpy_lacks(client, device, dtype):
    buffer = device.put(np.array([0, 1, 1]).astype(dtype))
    other = client.buffer_from_dlpack(Tensor(buffer), client.devices()[1])
    assert other.dtype == buffer.dtype
    assert other.unsafe_buffer_pointer() == buffer.unsafe_buffer_pointer()
    np.testing.assert_array_equal(other, buffer)


class Tensor:
    """Another library's tensor, of the protocol's older form."""

    def __init__(self, buffer):
        self.buffer = buffer

    def __dlpack__(self, stream=None):
        return self.buffer.__dlpack__()

    def __dlpack_device__(self):
        return self.buffer.__dlpack_device__()


def test_dlpack_of_memory_that_is_not_ours_is_copied_for_who_cannot_be_told_to_only_read(device):
    values = floats(1, 2, 3, 4)
    buffer = device.put(values, host_buffer_semantics=ZERO_COPY)
    assert np.from_dlpack(buffer).ctypes.data == values.ctypes.data
    old = device.from_dlpack(Tensor(buffer))
    assert old.unsafe_buffer_pointer() != values.ctypes.data
    with pytest.raises(BufferError, match="read-only"):
        buffer.__dlpack__(copy=False)


def test_dlpack_with_torch(device):
    torch = pytest.importorskip("torch")
    buffer = device.put(np.arange(4, dtype=ml_dtypes.bfloat16))
    tensor = torch.from_dlpack(buffer)
    assert tensor.dtype == torch.bfloat16
    assert tensor.data_ptr() == buffer.unsafe_buffer_pointer()
    made = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    back = device.from_dlpack(made)
    assert back.unsafe_buffer_pointer() == made.data_ptr()
    np.testing.assert_array_equal(back, made.numpy())
