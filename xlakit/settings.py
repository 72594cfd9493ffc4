"""Settings of the environment that say how programs run, not how they are compiled (:mod:`xlakit.options`)."""

from __future__ import annotations

import os
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError

# The valid names in XLAKIT_DEBUG.
_DEBUG: Final = frozenset({"passes"})
# More bytes than any machine has.
_MOST_KEPT_BYTES: Final = 1 << 47
# The valid names in XLAKIT_DUMP.
DUMPED: Final = frozenset({"hlo", "passes", "plan", "llvm", "asm", "arguments"})
# What XLAKIT_DUMP calls by a short name, `xlakit inspect --as` calls by a long one; both take either.
LONG_NAMES: Final = {"asm": "assembly", "plan": "memory-plan"}
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SHORT_NAMES: Final = {name: short for short, name in LONG_NAMES.items()}


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def bytes_in(variable: str) -> int | None:
    """The number of bytes that an environment variable gives, such as 500M or 4G; None if it is not set or empty.

    Raises ArgumentError if it is something else.
    """
    text = os.environ.get(variable)
    if not text:
        return None
    unit = _UNITS.get(text[-1].upper())
    number = text if unit is None else text[:-1]
    if not (number.isascii() and number.isdecimal()):
        raise ArgumentError(
            f"{variable} is {text!r}, not a number of bytes", hint="set it to a number such as 500M or 4G, or unset it"
        )
    return int(number) * (unit or 1)


def memory_limit() -> int:
    """The most bytes that a value, or a program's results, may have in memory: XLAKIT_MEMORY_LIMIT, or all there is."""
    given = bytes_in("XLAKIT_MEMORY_LIMIT")
    if given is not None:
        return given
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        # This system does not report its memory.
        return sys.maxsize


def kept_bytes() -> int:
    """The most bytes of free blocks that the runtime keeps: XLAKIT_KEPT_BYTES, or an eighth of the memory up to 1 GiB.

    Raises ArgumentError if the environment variable is not a number of bytes.
    """
    given = bytes_in("XLAKIT_KEPT_BYTES")
    if given is not None:
        return min(given, _MOST_KEPT_BYTES)
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        # This system does not report its memory.
        return 1 << 30
    return min(1 << 30, memory // 8)


def default_timeout() -> float:
    """The seconds to wait for others if no timeout is given: XLAKIT_TIMEOUT, or 30."""
    text = os.environ.get("XLAKIT_TIMEOUT", "30")
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(
            f"XLAKIT_TIMEOUT is {text!r}, not a number of seconds", hint="set it to a number such as 60, or unset it"
        ) from None


def receive_limit() -> int:
    """The most bytes of early messages of other processes that a process keeps: XLAKIT_RECEIVE_LIMIT, or 1 GiB."""
    given = bytes_in("XLAKIT_RECEIVE_LIMIT")
    return 1 << 30 if given is None else given


def asynchronous() -> bool | None:
    """Whether XLAKIT_ASYNC lets JAX's programs run while Python goes on: 1 or 0; None if it is not set."""
    text = os.environ.get("XLAKIT_ASYNC", "")
    if text not in ("", "0", "1"):
        raise ArgumentError(f"XLAKIT_ASYNC is {text!r}", hint="set it to 0 or 1, or unset it")
    return None if not text else text == "1"


def debugged() -> frozenset[str]:
    """The names in XLAKIT_DEBUG, separated by commas; none by default."""
    text = os.environ.get("XLAKIT_DEBUG", "")
    names = frozenset(names_in(text))
    if not names <= _DEBUG:
        raise ArgumentError(f"XLAKIT_DEBUG is {text!r}", hint=f"set it to {', '.join(sorted(_DEBUG))}, or unset it")
    return names


@dataclass(frozen=True, slots=True)
class Dump:
    """The parts of each compiled program that are written, and the folder; see :mod:`xlakit.cpu.debugging.dumping`."""

    folder: Path
    parts: frozenset[str]
    patterns: tuple[str, ...]

    def wants(self, name: str) -> bool:
        """Whether a program of this name is to be written."""
        return not self.patterns or any(fnmatchcase(name, pattern) for pattern in self.patterns)


def dump_request() -> Dump | None:
    """The request of XLAKIT_DUMP_TO, XLAKIT_DUMP and XLAKIT_DUMP_FILTER; None if no folder is given."""
    names = names_in(os.environ.get("XLAKIT_DUMP", "")) or ("arguments",)
    parts = frozenset(_SHORT_NAMES.get(name, name) for name in names)
    if not parts <= DUMPED:
        raise ArgumentError(
            f"XLAKIT_DUMP is {os.environ['XLAKIT_DUMP']!r}",
            hint=f"name some of {', '.join(sorted(DUMPED))}, or unset it",
        )
    folder = os.environ.get("XLAKIT_DUMP_TO", "")
    patterns = names_in(os.environ.get("XLAKIT_DUMP_FILTER", ""))
    return Dump(Path(folder), parts, patterns) if folder else None


def profile_folder() -> Path | None:
    """The folder that XLAKIT_PROFILE names, for the times of all programs; None where it names none."""
    folder = os.environ.get("XLAKIT_PROFILE", "")
    return Path(folder) if folder else None


def check_settings() -> None:
    """Read all variables, so that an invalid one is an error at the start. Raises ArgumentError."""
    memory_limit()
    default_timeout()
    asynchronous()
    debugged()
    dump_request()
