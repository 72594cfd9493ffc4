"""An image of machine code, and its place in memory."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from xlakit.dataclass import dataclass
from xlakit.errors import ExecutionError, FormatError

# The page size of the processors that images are made for; a multiple would be correct, too.
PAGE: Final = 4096
_MAGIC: Final = b"XLAKITM1"
_HEAD: Final = struct.Struct(f"<{len(_MAGIC)}sI")
_FAILED: Final = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class Image:
    """Machine code for any place in memory. Its three parts follow one another there, each on pages of its own.

    code: is executed. constants: are read, with a table of addresses at the end. data: is written; here its initial
    contents. zeros: the number of zero bytes after it. addresses: the contents of the table: the address of an imported
    symbol, by its name, or of a byte of the image, by its offset. functions: the offsets of functions that can be
    looked up.
    """

    code: bytes
    constants: bytes
    data: bytes
    zeros: int
    addresses: tuple[str | int, ...]
    functions: Mapping[str, int]

    def to_bytes(self) -> bytes:
        """The image as bytes, for files."""
        lengths = len(self.code), len(self.constants), len(self.data)
        fields = {"lengths": lengths, "zeros": self.zeros, "addresses": self.addresses, "functions": self.functions}
        header = json.dumps(fields).encode()
        return b"".join((_HEAD.pack(_MAGIC, len(header)), header, self.code, self.constants, self.data))

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> Image:
        """The image from the bytes that :meth:`to_bytes` gives; raises FormatError for other bytes."""
        try:
            _, length = _HEAD.unpack_from(data)
            at = _HEAD.size + length
            fields = json.loads(bytes(data[_HEAD.size : at]))
            parts: list[bytes] = []
            for length in fields["lengths"]:
                parts.append(bytes(data[at : at + length]))
                at += length
            code, constants, written = parts
            if at != len(data):
                raise ValueError("its parts do not fill it")
            return Image(code, constants, written, fields["zeros"], tuple(fields["addresses"]), fields["functions"])
        except (KeyError, TypeError, ValueError, struct.error) as error:
            raise FormatError(f"it is no image of machine code: {error}") from error


def is_image(data: bytes | memoryview) -> bool:
    """Whether bytes begin like an image."""
    return bytes(data[: len(_MAGIC)]) == _MAGIC


def pages(size: int) -> int:
    """The bytes of the pages for ``size`` bytes."""
    return -(-size // PAGE) * PAGE


@cache
def _system() -> Any:
    """The functions of the system, and of all libraries of this process."""
    # The functions used here return at once, so the GIL is kept.
    system = ctypes.PyDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mmap.argtypes, system.mmap.restype = [pointer, size, number, number, number, ctypes.c_int64], pointer
    system.mprotect.argtypes, system.mprotect.restype = [pointer, size, number], number
    system.munmap.argtypes, system.munmap.restype = [pointer, size], number
    return system


def address_in_process(symbol: str) -> int | None:
    """The address of a function of the libraries that this process has loaded; None if there is none."""
    try:
        return ctypes.cast(getattr(_system(), symbol), ctypes.c_void_p).value
    except AttributeError:
        return None


class MappedImage:
    """An image in memory. It stays as long as this object does."""

    def __init__(self, image: Image, address_of: Callable[[str], int]) -> None:
        """address_of: the address of an imported symbol. Raises ExecutionError where the system gives no memory."""
        sizes = pages(len(image.code)), pages(len(image.constants)), pages(len(image.data) + image.zeros)
        imported = {a: address_of(a) for a in image.addresses if isinstance(a, str)}
        # The system maps at least a page; an image without functions is valid.
        size = max(PAGE, sum(sizes))
        start = self._start = _mapped(size)
        # At the end of the process, the code may still run.
        weakref.finalize(self, _system().munmap, start, size).atexit = False
        table = [imported[a] if isinstance(a, str) else start + a for a in image.addresses]
        words = struct.pack(f"<{len(table)}Q", *table)
        parts = image.code, image.constants[: len(image.constants) - len(words)] + words, image.data
        at = start
        for part, size in zip(parts, sizes, strict=True):
            ctypes.memmove(at, part, len(part))
            at += size
        _protect(start, sizes[0], mmap.PROT_READ | mmap.PROT_EXEC)
        _protect(start + sizes[0], sizes[1], mmap.PROT_READ)
        self._functions = image.functions

    def address(self, function: str) -> int:
        """The address of a function. Raises KeyError if the image has no such function."""
        return self._start + self._functions[function]


def _mapped(size: int) -> int:
    start = _system().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if start in (None, _FAILED):
        raise _refused(f"{size} bytes for machine code")
    return start


def _protect(start: int, size: int, protection: int) -> None:
    if size and _system().mprotect(start, size, protection):
        raise _refused("memory that is executed")


def _refused(what: str) -> ExecutionError:
    return ExecutionError(
        f"the system gives this process no {what}: {os.strerror(ctypes.get_errno())}",
        hint="limits of memory, of mappings (vm.max_map_count) or of executable memory are in force",
    )
