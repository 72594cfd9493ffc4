"""The processor that code is compiled for: this machine's own, or the part of its features that the options allow.

``XLAKIT_CPU`` names a level of an instruction set; ``XLAKIT_VECTOR_BYTES`` is the width of vectors, which may be wider
than registers, so that each machine can run code for wider vectors. A level is a set of features, by LLVM's names, that
all processors of that level have: code for a level is the same wherever it is compiled, and runs on each of them.
Further features may follow a level: ``x86-64-v3+avxvnni``.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import cache

from xlakit import options
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError
from xlakit.machine_code import identification
from xlakit.machine_code.identification import Identification

_V1 = ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_V2 = (*_V1, "crc32", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
# By level: LLVM's name of a processor, and its features. The levels of x86 are those of its psABI.
_LEVELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "x86-64": ("x86-64", _V1),
    "x86-64-v2": ("x86-64-v2", _V2),
    "x86-64-v3": ("x86-64-v3", _V3),
    "x86-64-v4": ("x86-64-v4", _V4),
    "armv8-a": ("generic", ("fp-armv8", "neon")),
    "armv8.2-a": ("generic", ("crc", "dotprod", "fp-armv8", "fullfp16", "lse", "neon", "rdm")),
}
# The system call arch_prctl of Linux on x86-64, its request for a part of the processor's state, and AMX's registers.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
# Features of x86, not named after AVX, that only machines with AVX2 have.
_WITH_AVX2 = frozenset({"vaes", "vpclmulqdq", "sha512", "sm3", "sm4"})


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor: LLVM's name of it, and its features.

    features: as LLVM takes them, with a sign before each. registers: the number of registers that hold a vector, a
    power of two.
    """

    name: str
    features: tuple[str, ...]
    registers: int = 1

    def has(self, feature: str) -> bool:
        """Whether it has a feature, by LLVM's name."""
        return f"+{feature}" in self.features

    @property
    def vector_bytes(self) -> int:
        """The bytes of a vector: those of a register, times ``registers``."""
        register = 64 if self.has("avx512f") else 32 if self.has("avx2") else 16
        return self.registers * register

    @property
    def gathers(self) -> bool:
        """Whether it has instructions that gather faster than single loads do."""
        # AMD gathers by microcode, which takes longer, and a miss holds up all lanes.
        return self.has("avx2") and not self.name.startswith("znver")

    @property
    def text(self) -> str:
        """All features, as LLVM takes them, and its preference among gather instructions and single loads."""
        tuning = ("+prefer-no-gather",) if self.has("avx2") and not self.gathers else ()
        return ",".join((*self.features, *tuning))

    def without(self, prefix: str) -> Processor:
        """This processor without the features whose names begin with ``prefix``."""
        features = (f"-{f[1:]}" if f[1:].startswith(prefix) else f for f in self.features)
        return Processor(self.name, tuple(features), self.registers)

    def with_vectors(self, width: int) -> Processor:
        """This processor with vectors of ``width`` bytes.

        For narrower vectors, features that need wider registers are left out. Wider vectors take several registers, as
        LLVM splits them: slower, but except for instructions the code of a processor with wider registers.
        """
        if width >= self.vector_bytes:
            return Processor(self.name, self.features, width // self.vector_bytes)
        features = [f for f in self.features if not _is_wider(f[1:], width)]
        # LLVM also takes away the features that imply this one.
        return Processor(self.name, (*features, "-avx512f" if width == 32 else "-avx2"))


def _is_wider(feature: str, width: int) -> bool:
    if width == 32:
        return feature.startswith(("avx512", "avx10", "evex512", "amx"))
    return (feature.startswith(("avx", "evex512", "amx")) and feature != "avx") or feature in _WITH_AVX2


@cache
def host() -> Processor:
    """This machine's processor, with the features that this process may use."""
    name, features = _kept_or_asked() if identification.can_be_kept() else _asked()
    found = Processor(name, tuple(features.split(",")))
    if not found.has("amx-tile") or _may_use_tiles():
        return found
    return found.without("amx")


def _kept_or_asked() -> tuple[str, str]:
    kept = Identification.kept()
    found = None if kept is None else kept.known()
    if found is None:
        found = _asked()
        kept = kept or new_identification()
        if kept is not None:
            kept.keep(*found)
    return found


def _asked() -> tuple[str, str]:
    """LLVM's name of this machine's processor, and its features in alphabetical order."""
    from xlakit.machine_code import llvm

    return llvm.host()


def new_identification() -> Identification | None:
    """The identification of processors by code that is compiled now; None where no image of it can be made."""
    from xlakit.machine_code import llvm
    from xlakit.machine_code.elf import image_of

    llvm.set_up()
    machine = llvm.machine_of("", "", 2)
    with llvm.parsed(identification.TEXT) as module:
        image = image_of([llvm.emitted(machine, module)])
    llvm.functions().DisposeTargetMachine(machine)
    return None if image is None else Identification(image.to_bytes(), {})


def _may_use_tiles() -> bool:
    """Whether the system lets this process use AMX's tile registers; this function asks the system for it.

    Linux saves these registers for processes that have asked, and ends others at the first tile instruction. Its
    permission holds for all threads, and for forked processes, until another program is executed. Linux refuses if it
    is too old, if a filter of system calls does, or if a thread has an alternative signal stack that is too small for
    the registers. Without the permission, the processor counts as one without AMX: in all choices of the compiler and
    in the keys of what it keeps.
    """
    if not sys.platform.startswith("linux"):
        return False
    ask: Callable[..., int] = ctypes.CDLL(None).syscall
    return ask(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST), ctypes.c_long(_TILE_DATA)) == 0


def levels() -> list[str]:
    """The levels whose code this machine can run, the lowest first."""
    return _levels_of(host())


def _levels_of(own: Processor) -> list[str]:
    return [name for name, (_, features) in _LEVELS.items() if all(map(own.has, features))]


def lowest_level() -> str:
    """The level whose code all machines of this instruction set run; "" for an instruction set without levels."""
    name = platform.machine().lower()
    return "x86-64" if name in ("x86_64", "amd64") else "armv8-a" if name in ("aarch64", "arm64") else ""


def processor() -> Processor:
    """The processor that code is compiled for, by the options.

    Raises ArgumentError if this machine cannot run such code.
    """
    chosen = options.current()
    return _processor(host(), chosen.cpu, chosen.vector_bytes)


@cache
def _processor(own: Processor, cpu: str, width: int) -> Processor:
    found = _of_level(own, cpu) if cpu else own
    return found.with_vectors(width) if width else found


def _of_level(own: Processor, cpu: str) -> Processor:
    level, *more = cpu.split("+")
    runs = _levels_of(own)
    can = f"code for {', '.join(runs)} and native runs here" if runs else "this machine runs native code alone"
    if level not in _LEVELS:
        raise ArgumentError(f"XLAKIT_CPU is {cpu!r}: there is no level {level!r}", hint=can)
    name, features = _LEVELS[level]
    wanted = dict.fromkeys((*features, *more))
    missing = [feature for feature in wanted if not own.has(feature)]
    if missing:
        raise ArgumentError(
            f"this processor ({own.name}, {platform.machine()}) cannot run code for {cpu}: "
            f"it has no {', '.join(missing)}",
            hint=can,
        )
    return Processor(name, tuple(f"+{feature}" for feature in wanted))


def vector_bytes() -> int:
    """The bytes of a vector of the processor that code is compiled for."""
    return processor().vector_bytes


def has_feature(name: str) -> bool:
    """Whether the processor that code is compiled for has a feature, by LLVM's name of it."""
    return processor().has(name)


def converts_halves() -> bool:
    """Whether this processor has instructions that convert F16 to F32 and back."""
    return not is_x86() or has_feature("f16c")


def fuses() -> bool:
    """Whether this processor has instructions for a product and a sum that are rounded once."""
    return not is_x86() or has_feature("fma")


@cache
def is_x86() -> bool:
    """Whether this machine's instruction set is x86's."""
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
