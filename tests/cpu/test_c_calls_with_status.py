"""C functions behind custom calls of the versions of the interface that return a status."""

import ctypes
import struct

import numpy as np
import pytest
from evaluating import build, f32, floats, same

import xlakit as xla
from xlakit.ir.enums import CustomCallApiVersion as Version

MEMORY = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]


def plus_one(out, given):
    values = np.ctypeslib.as_array(ctypes.cast(given[0], ctypes.POINTER(ctypes.c_float)), (2,))
    np.ctypeslib.as_array(ctypes.cast(out, ctypes.POINTER(ctypes.c_float)), (2,))[:] = values + 1


def fail(status, text):
    """What XlaCustomCallStatusSetFailure does: a short text lies in the status itself."""
    address = status + 16 if len(text) < 16 else ctypes.addressof(LONG)
    head = struct.pack("<QQ", address, len(text)) + (text if len(text) < 16 else b"").ljust(16, b"\0") + b"\1"
    ctypes.memmove(status, head, len(head))


LONG = ctypes.create_string_buffer(b"the matrix is singular")


@ctypes.CFUNCTYPE(None, *MEMORY, ctypes.c_void_p)
def with_status(out, given, status):
    plus_one(out, given)
    if ctypes.c_float.from_address(out).value < 0:
        fail(status, LONG.value if ctypes.c_float.from_address(out).value < -5 else b"is negative")


@ctypes.CFUNCTYPE(None, *MEMORY, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
def with_opaque(out, given, opaque, length, status):
    plus_one(out, given)
    if length:
        fail(status, ctypes.string_at(opaque, length))


def run(function, version, value, opaque="", backend="cpu"):
    program = build(lambda x: xla.custom_call(x.builder, "f", [x], f32(2), opaque, api_version=version), f32(2))
    return xla.compile(program, custom_calls={"f": function}, backend=backend)(value)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_a_status_of_success_and_of_failure(backend):
    version = Version.API_VERSION_STATUS_RETURNING
    same(run(with_status, version, floats([1, 2]), backend=backend), floats([2, 3]))
    for value, text in ((-2, "is negative"), (-9, "the matrix is singular")):
        with pytest.raises(xla.ExecutionError, match=f"'f' has failed: {text}"):
            run(with_status, version, floats([value, 0]), backend=backend)


def test_the_opaque_text():
    version = Version.API_VERSION_STATUS_RETURNING_UNIFIED
    same(run(with_opaque, version, floats([1, 2])), floats([2, 3]))
    with pytest.raises(xla.ExecutionError, match="'f' has failed: told so"):
        run(with_opaque, version, floats([1, 2]), "told so")
