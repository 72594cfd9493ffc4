"""Which memory arrays share with the host, and what they refuse. What is expected is what jaxlib 0.6.0 does."""

import gc

import ml_dtypes
import numpy as np
import pytest

from xlakit.compat import xla_client as xc

ops, xe, S = xc.ops, xc._xla, xc.Shape


def placed(offset, dtype=np.float32, count=256):
    """An array that begins so many bytes after a multiple of 64."""
    dtype = np.dtype(dtype)
    memory = np.zeros(count * dtype.itemsize + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + count * dtype.itemsize].view(dtype)


def address(array):
    return np.asarray(array).ctypes.data


@pytest.mark.parametrize("offset", [0, 4, 16, 32])
def test_only_aligned_memory_is_shared(client, offset):
    x = placed(offset)
    array = client.buffer_from_pyval(x)
    tensor = xe.dlpack_managed_tensor_to_buffer(x.__dlpack__(), client)
    for made in (array, tensor):
        assert (address(made) == x.ctypes.data) == (offset == 0)
    x[0] = 7
    assert np.asarray(array)[0] == np.asarray(tensor)[0] == (7 if offset == 0 else 0)


def test_packed_types_are_copied(client):
    x = placed(0, ml_dtypes.int4)
    assert address(client.buffer_from_pyval(x)) != x.ctypes.data


@pytest.mark.parametrize(
    "strided",
    [lambda x: x[::-1], lambda x: x[:, ::2], lambda x: x[..., :2], lambda x: x[:, :1]],
    ids=["reversed", "stepped", "part of rows", "one row"],
)
def test_tensors_with_gaps_are_refused(client, strided):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    with pytest.raises(xc.XlaRuntimeError, match=r"UNIMPLEMENTED: .* must lie side by side"):
        xe.dlpack_managed_tensor_to_buffer(strided(x).__dlpack__(), client)


@pytest.mark.parametrize("shape", [(1, 4), (0, 3), (), (2, 1, 3)])
def test_tensors_without_gaps(client, shape):
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    found = np.asarray(xe.dlpack_managed_tensor_to_buffer(x.__dlpack__(), client))
    assert found.shape == shape and np.array_equal(found, x)


@pytest.fixture(scope="module")
def doubling(client):
    """A program whose parameter is donated."""
    builder = xc.XlaBuilder("sharing_doubling")
    x = ops.Parameter(builder, 0, S("f32[256]"))
    builder.setup_alias([], 0, [])
    return client.compile(builder.build(ops.Add(x, x)))


@pytest.mark.parametrize(
    "view",
    [np.asarray, lambda a: np.asarray(a)[1:], memoryview, xe.buffer_to_dlpack_managed_tensor],
    ids=["array", "part", "memoryview", "tensor"],
)
def test_an_array_that_is_viewed_is_not_donated(client, doubling, view):
    array = client.buffer_from_pyval(np.ones(256, np.float32))
    held = view(array)
    (result,) = doubling.execute([array])
    assert not array.is_deleted()
    assert np.array_equal(np.asarray(array), np.ones(256)) and np.asarray(result).sum() == 512
    del held
    gc.collect()
    doubling.execute([array])
    assert array.is_deleted()


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4, np.float16])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 2)])
def test_views_keep_type_and_shape(client, dtype, shape):
    x = np.ones(shape, dtype)
    found = np.asarray(client.buffer_from_pyval(x))
    assert (found.dtype, found.shape, found.flags.writeable) == (x.dtype, shape, False)
    assert np.array_equal(found, x)
    with pytest.raises(ValueError, match="WRITEABLE"):
        found.setflags(write=True)


@pytest.mark.parametrize("dtype", ["float6_e2m3fn", "int1"])
def test_types_that_jaxlib_does_not_know(client, dtype):
    x = np.zeros(2, getattr(ml_dtypes, dtype))
    for make in (client.buffer_from_pyval, xc.shape_from_pyval):
        with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT: Unknown NumPy dtype"):
            make(x)


def test_types_without_a_buffer_are_a_buffer_error(client):
    with pytest.raises(BufferError, match="buffer protocol"):
        memoryview(client.buffer_from_pyval(np.zeros(2, ml_dtypes.float8_e4m3b11fnuz)))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_numbers_of_more_than_64_bits(client, value):
    with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT: .* does not fit S64"):
        client.buffer_from_pyval(value)


@pytest.mark.parametrize("offset", [0, 16])
def test_a_copy_that_is_donated_holds_the_result(client, offset):
    builder = xc.XlaBuilder("donated")
    result = ops.Neg(ops.Parameter(builder, 0, S("f32[256]")))
    builder.setup_alias([], 0, [])
    executable = client.compile(builder.build(result))
    x = placed(offset)
    array = client.buffer_from_pyval(x, force_copy=True)
    given = array.unsafe_buffer_pointer()
    (found,) = executable.execute([array])
    assert (found.unsafe_buffer_pointer(), array.is_deleted()) == (given, True)
    assert not np.shares_memory(np.asarray(found), x)


def test_what_cannot_be_written_to_is_copied_where_that_is_asked_for(client):
    x = placed(0)
    x.setflags(write=False)
    assert address(client.buffer_from_pyval(x, force_copy=True)) != x.ctypes.data
