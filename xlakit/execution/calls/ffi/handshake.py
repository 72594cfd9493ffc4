"""How a handler of XLA's typed FFI is asked for its version, so that a plain C function is told apart from one.

A handler writes its version where an extension of the call frame says. ``void f(void* out, void** in)`` takes the frame
for its result: it writes over it, and reads whatever is in the register of its second argument. So the frame lies at
the start of memory that is there to be written, and further arguments, which handlers do not look at, point to operands
of zeros. A plain function then leaves no version behind.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

from xlakit.execution.calls.ffi import structures
from xlakit.execution.calls.ffi.structures import Stage

# What a function may write and read; memory that it does not touch costs nothing.
_ROOM: Final = 1 << 28
_OPERANDS: Final = 64
_POINTERS: Final = 5
_ASKED = ctypes.CFUNCTYPE(ctypes.c_size_t, *[ctypes.c_void_p] * (1 + _POINTERS))


def ask_version(address: int, frame: structures.CallFrame) -> tuple[tuple[int, int], int]:
    """The version that a handler says it has, (0, 0) where it says none, and the error that it gives.

    frame: one without operands and results, for any stage.
    """
    metadata = structures.Metadata(ctypes.sizeof(structures.Metadata))
    metadata.api_version.struct_size = ctypes.sizeof(structures.ApiVersion)
    extension = structures.MetadataExtension(
        ctypes.sizeof(structures.MetadataExtension), structures.METADATA_EXTENSION, None, ctypes.addressof(metadata)
    )
    frame.stage, frame.extension_start = Stage.EXECUTE, ctypes.addressof(extension)
    with mmap.mmap(-1, _ROOM) as written, mmap.mmap(-1, _ROOM) as read:
        written.write(bytes(frame))
        # The view of the memory must be gone before the memory is.
        out, zeros = (ctypes.addressof(ctypes.c_char.from_buffer(memory)) for memory in (written, read))
        operands = (ctypes.c_void_p * _OPERANDS)(*[zeros] * _OPERANDS)
        error: int = _ASKED(address)(out, *[ctypes.addressof(operands)] * _POINTERS)
    return (metadata.api_version.major, metadata.api_version.minor), error
