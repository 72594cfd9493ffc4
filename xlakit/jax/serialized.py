"""Executables as bytes, which JAX writes to files: the program and its options, with a checksum.

The bytes contain no machine code, which other processors could not run; on the same machine the compile cache has it.
They contain the level of the instruction set (``XLAKIT_CPU``) for which the program is compiled when it is loaded;
without a level it is compiled for the processor that loads it. The format is

    the magic line, SHA-256 of all that follows, then two texts, each preceded by its length in 8 bytes: the level, and
    JAX's options; then the program, an HLO proto or StableHLO's bytecode, with the layouts of arguments and results
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from xlakit.errors import FormatError, UnsupportedError
from xlakit.jax.lowerings.callbacks import TARGET, TARGET_ON_PARTS
from xlakit.options import current

if TYPE_CHECKING:
    from xlakit.jax.program import Program

_CALLBACKS: Final = (TARGET, TARGET_ON_PARTS)
_MAGIC: Final = b"xlakit program 4\n"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_LENGTH_BYTES: Final = 8


def serialize(program: Program) -> bytes:
    """A program as bytes. Raises UnsupportedError if it calls Python functions, which exist in this process only."""
    from xlakit.ops.custom_call import CustomCall

    module = program.loaded.module
    for computation in module.computations:
        for instruction in computation.instructions:
            if isinstance(instruction.op, CustomCall) and instruction.op.custom_call_target in _CALLBACKS:
                raise UnsupportedError(
                    f"a program in a file that calls a Python function ('{instruction.name}')",
                    location=module.location_of(instruction),
                    hint="the function is one of this process; serialize programs that have no callbacks",
                )
    body = _counted(current().cpu.encode()) + _counted(program.options) + program.description.for_file
    return _MAGIC + hashlib.sha256(body).digest() + body


def _counted(text: bytes) -> bytes:
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def deserialize(data: bytes) -> tuple[bytes, bytes, str]:
    """The description of the program, the options and the level in bytes of :func:`serialize`. Raises FormatError."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    if not data.startswith(_MAGIC):
        raise FormatError("this is no program that xlakit has serialized", hint="other platforms read their own alone")
    body = data[begin:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : begin]:
        raise FormatError("a serialized program is damaged: its checksum is wrong")
    level, body = _cut(body)
    options, description = _cut(body)
    return description, options, level.decode()


def _cut(body: bytes) -> tuple[bytes, bytes]:
    """The first text of a body, and what follows it."""
    end = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "little")
    return body[_LENGTH_BYTES:end], body[end:]
