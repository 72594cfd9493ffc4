"""Queries the version of a handler of XLA's typed FFI, which also tells handlers from plain C functions.

A handler writes its version to the address in an extension of the call frame. A plain function ``void f(void* out,
void** in)`` takes the frame for its result and overwrites it, and takes the second argument for its operands. For that
case the frame is at the start of a large writable mapping, and further arguments, which handlers ignore, point to
operands of zeros. A plain function then returns without having written a version.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

from xlakit.execution.calls.ffi import structures
from xlakit.execution.calls.ffi.structures import Stage

# The bytes of each mapping that a plain function may write to or read; pages that it does not touch are not allocated.
_ROOM: Final = 1 << 28
_OPERANDS: Final = 64
_POINTERS: Final = 5
_ASKED = ctypes.CFUNCTYPE(ctypes.c_size_t, *[ctypes.c_void_p] * (1 + _POINTERS))


def ask_version(address: int, frame: structures.CallFrame) -> tuple[tuple[int, int], int]:
    """Call a handler for its version; gives (major, minor), or (0, 0) if it writes none, and the error it returns.

    frame: a call frame without operands and results, for any stage.
    """
    metadata = structures.Metadata(ctypes.sizeof(structures.Metadata))
    metadata.api_version.struct_size = ctypes.sizeof(structures.ApiVersion)
    extension = structures.MetadataExtension(
        ctypes.sizeof(structures.MetadataExtension), structures.METADATA_EXTENSION, None, ctypes.addressof(metadata)
    )
    frame.stage, frame.extension_start = Stage.EXECUTE, ctypes.addressof(extension)
    with mmap.mmap(-1, _ROOM) as written, mmap.mmap(-1, _ROOM) as read:
        written.write(bytes(frame))
        # Only addresses are kept: a mapping cannot be closed while a ctypes view of it exists.
        out, zeros = (ctypes.addressof(ctypes.c_char.from_buffer(memory)) for memory in (written, read))
        operands = (ctypes.c_void_p * _OPERANDS)(*[zeros] * _OPERANDS)
        error: int = _ASKED(address)(out, *[ctypes.addressof(operands)] * _POINTERS)
    return (metadata.api_version.major, metadata.api_version.minor), error
