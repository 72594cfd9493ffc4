"""Programs as bytes that JAX keeps in files: the program and its options, with a checksum.

There is no machine code in them. It is in the compile cache, where a program that was compiled on this machine finds it
again, and it would not fit other processors.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from xlakit.errors import FormatError, UnsupportedError
from xlakit.jax.lowerings.callbacks import TARGET, TARGET_ON_PARTS
from xlakit.jax.sources import described_module

if TYPE_CHECKING:
    from xlakit.jax.program import Program

_CALLBACKS: Final = (TARGET, TARGET_ON_PARTS)
_MAGIC: Final = b"xlakit program 1\n"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_LENGTH_BYTES: Final = 8


def serialize(program: Program) -> bytes:
    """A program as bytes. Raises UnsupportedError for one that calls Python functions, which are those of a process."""
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
    options = program.options
    body = len(options).to_bytes(_LENGTH_BYTES, "little") + options + described_module(program.description)
    return _MAGIC + hashlib.sha256(body).digest() + body


def deserialize(data: bytes) -> tuple[bytes, bytes]:
    """The HLO proto and the options in what :func:`serialize` gave. Raises FormatError where it did not."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    if not data.startswith(_MAGIC):
        raise FormatError("this is no program that xlakit has serialized", hint="other platforms read their own alone")
    body = data[begin:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : begin]:
        raise FormatError("a serialized program is damaged: its checksum is wrong")
    end = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "little")
    return body[end:], body[_LENGTH_BYTES:end]
