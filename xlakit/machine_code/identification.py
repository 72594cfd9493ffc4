"""The identification of an x86-64 processor: the words from which LLVM derives its name and features.

Loading LLVM takes longer than all else that a cached program needs, and would be necessary for these alone. So the
compile cache has the function that reads the words, with LLVM's name and features for each processor met so far.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from typing import Any, Final

import llvmlite

from xlakit import compile_cache
from xlakit.errors import ExecutionError, FormatError
from xlakit.machine_code import ready_made
from xlakit.machine_code.image import Image, MappedImage

# The registers that the instruction cpuid gives for a leaf and a part of it, and the states that the system saves.
TEXT: Final = """
define void @leaf(i32 %leaf, i32 %part, ptr %into) nounwind {
  %words = call { i32, i32, i32, i32 } asm "cpuid", "={ax},={bx},={cx},={dx},0,2"(i32 %leaf, i32 %part)
  store { i32, i32, i32, i32 } %words, ptr %into
  ret void
}

define void @states(ptr %into) nounwind {
  %words = call { i32, i32 } asm "xgetbv", "={ax},={dx},{cx}"(i32 0)
  store { i32, i32 } %words, ptr %into
  ret void
}
"""
_A, _B, _C, _D = range(4)
# The leaves with their parts, and the registers that have features. Words are left out that differ between the cores of
# a processor, or with the states that the system has saved.
_LEAVES: Final = (
    (1, 0, (_A, _C, _D)),
    (7, 0, (_A, _B, _C, _D)),
    (7, 1, (_A, _B, _C, _D)),
    (0xD, 1, (_A,)),
    (0x14, 0, (_A, _B)),
    (0x19, 0, (_B,)),
    (0x1E, 1, (_A,)),
    (0x24, 0, (_A, _B)),
    (0x80000001, 0, (_C, _D)),
    (0x80000008, 0, (_B,)),
    (0x80000021, 0, (_A,)),
)
_EXTENDED: Final = 0x80000000
# In register C of leaf 1: the system saves states, and xgetbv tells which.
_SAVES_STATES: Final = 1 << 27
# Increase this number when other words are read.
_FORMAT: Final = 1


def key() -> str:
    """The key of its entry in the compile cache."""
    return f"processor-{llvmlite.__version__}-{_FORMAT}"


def can_be_kept() -> bool:
    """Whether this machine has such words, and the compile cache is on."""
    is_known = sys.platform.startswith("linux") and platform.machine() == "x86_64"
    return is_known and compile_cache.is_enabled()


class Identification:
    """The processors known to the compile cache, and the words of this one."""

    def __init__(self, image: bytes, known: dict[str, list[str]]) -> None:
        """Raises FormatError for bytes that are no image, and ExecutionError where the system refuses memory."""
        self._image, self._known = image, known
        self._code = MappedImage(Image.from_bytes(image), _imports_nothing)
        self._words = _words(self._function("leaf"), self._function("states"))

    @staticmethod
    def kept() -> Identification | None:
        """The identification in the compile cache; None if there is none."""
        entry = compile_cache.load(key()) or ready_made.load(key())
        if entry is None:
            return None
        try:
            return Identification(bytes(entry.sections["image"]), dict(entry.fields["known"]))
        except (KeyError, ValueError, FormatError) as error:
            compile_cache.discard(key(), f"it tells of no processors: {error}")
        except ExecutionError:
            # LLVM reports the failure, if it is needed.
            return None
        return None

    def _function(self, name: str) -> Callable[..., Any]:
        return ctypes.PYFUNCTYPE(None)(self._code.address(name))

    def known(self) -> tuple[str, str] | None:
        """LLVM's name of this processor, and its features, if they are known."""
        found = self._known.get(self._words)
        return None if found is None else (found[0], found[1])

    def keep(self, name: str, features: str) -> None:
        """Keep LLVM's name and features of this processor."""
        self._known[self._words] = [name, features]
        compile_cache.save(key(), self.entry)

    @property
    def entry(self) -> compile_cache.Entry:
        """What the compile cache has of it."""
        return compile_cache.Entry({"known": self._known}, {"image": self._image})


def _imports_nothing(symbol: str) -> int:
    raise FormatError(f"it imports {symbol}")


def _words(leaf: Callable[..., Any], states: Callable[..., Any]) -> str:
    registers = (ctypes.c_uint32 * 4)()

    def read(number: int, part: int = 0) -> list[int]:
        leaf(ctypes.c_uint32(number), ctypes.c_uint32(part), registers)
        return list(registers)

    last, *maker = read(0)
    last_extended = read(_EXTENDED)[_A]
    found = [last, *maker, last_extended]
    for number, part, asked in _LEAVES:
        if number <= (last if number < _EXTENDED else last_extended):
            words = read(number, part)
            found += (words[register] for register in asked)
            if number == 1 and words[_C] & _SAVES_STATES:
                states(registers)
                found += registers[:2]
    return " ".join(f"{word:x}" for word in found)
