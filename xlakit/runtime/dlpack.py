"""DLPack: exchanges arrays with other libraries without a copy.

NumPy makes and reads the capsules. It does not know bfloat16 and 8-bit floats: they are exchanged as integers of their
size, and the type code in the capsule is patched. The offsets are those of DLPack's ``dlpack.h``, version 1.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final, cast

import ml_dtypes
import numpy as np

from xlakit.errors import ArgumentError, UnsupportedError
from xlakit.ir.operation import Array

# kDLCPU, device 0.
CPU: Final = (1, 0)
_HOSTS: Final = (1, 3)  # kDLCPU; and kDLCUDAHost, memory of processors too

# Where a DLTensor starts in a managed tensor, by the capsule's name; and its dtype in the DLTensor: code, bits, lanes.
_TENSOR: Final = {b"dltensor": 0, b"dltensor_versioned": 32}
_CODE, _BITS = 20, 21
_UNSIGNED: Final = 1
_VERSION: Final = (1, 0)


@cache
def _codes() -> dict[np.dtype[Any], int]:
    """The type codes of types that NumPy does not know."""
    return {
        np.dtype(ml_dtypes.bfloat16): 4,
        np.dtype(ml_dtypes.float8_e3m4): 7,
        np.dtype(ml_dtypes.float8_e4m3): 8,
        np.dtype(ml_dtypes.float8_e4m3b11fnuz): 9,
        np.dtype(ml_dtypes.float8_e4m3fn): 10,
        np.dtype(ml_dtypes.float8_e4m3fnuz): 11,
        np.dtype(ml_dtypes.float8_e5m2): 12,
        np.dtype(ml_dtypes.float8_e5m2fnuz): 13,
        np.dtype(ml_dtypes.float8_e8m0fnu): 14,
    }


def exported(
    view: Array,
    owner: Array | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> object:
    """The capsule of a read-only array.

    view: the array. owner: the array that owns its memory, if the memory is ours. Consumers of the protocol's older
    form, which has no read-only flag, get a view of the owner; without an owner, or with ``copy``, they get a copy.
    """
    code = _codes().get(view.dtype)
    if code is None and view.dtype.kind not in "biufc":
        raise UnsupportedError(
            f"DLPack has no type for {view.dtype} in a byte of its own", hint="convert it with NumPy"
        )
    exported_array = view
    if copy:
        exported_array = view.copy()
    elif max_version is None or max_version < _VERSION:
        exported_array = _writable(owner) if owner is not None else None
        if exported_array is None:
            if copy is False:
                raise BufferError("this consumer of DLPack cannot be told that memory is read-only")
            exported_array = view.copy()
    if code is not None:
        exported_array = exported_array.view(f"u{view.dtype.itemsize}")
    capsule = exported_array.__dlpack__(max_version=max_version, dl_device=dl_device)
    if code is not None:
        _set_code(capsule, code)
    return capsule


def _writable(array: Array) -> Array:
    """A view that is marked as writable."""
    array.setflags(write=True)
    view = array.view()
    array.setflags(write=False)
    return view


def imported(tensor: Any) -> Array:
    """An array in the memory of a tensor: NumPy's, PyTorch's, JAX's, or of any other library that knows DLPack.

    Raises ArgumentError for what does not know it or lies on another device, UnsupportedError for an unknown type.
    """
    if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
        raise ArgumentError(f"a {type(tensor).__name__} does not know DLPack", hint="give a tensor, or use device.put")
    kind, _ = tensor.__dlpack_device__()
    if kind not in _HOSTS:
        raise ArgumentError(
            f"the tensor is on a device of DLPack's kind {int(kind)}", hint="bring it to the host first"
        )
    try:
        capsule = tensor.__dlpack__(max_version=_VERSION)
    except TypeError:
        capsule = tensor.__dlpack__()
    address = _dtype_address(capsule)
    custom_dtype = {code: dtype for dtype, code in _codes().items()}.get(ctypes.c_uint8.from_address(address).value)
    if custom_dtype is not None:
        ctypes.c_uint8.from_address(address).value = _UNSIGNED
    try:
        array = np.from_dlpack(cast("Any", _Holder(capsule)))
    except (BufferError, RuntimeError) as error:
        raise UnsupportedError(f"NumPy cannot read this tensor's memory: {error}") from None
    return array if custom_dtype is None else array.view(custom_dtype)


class _Holder:
    """An object from which NumPy takes a capsule."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


def _set_code(capsule: object, code: int) -> None:
    ctypes.c_uint8.from_address(_dtype_address(capsule)).value = code


def _dtype_address(capsule: object) -> int:
    """The address of the type's code in the tensor of a capsule; raises ArgumentError for a used capsule."""
    is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_IsValid", ctypes.pythonapi)
    )
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    for name, offset in _TENSOR.items():
        if is_valid(capsule, name):
            return int(pointer(capsule, name)) + offset + _CODE
    raise ArgumentError("what __dlpack__ gave is no DLPack capsule, or has been used", hint="give a tensor")
