"""Keys of the compile cache: digests of all that machine code is made from.

A key stands for the program, what was asked of the compiler, the compiler itself and the machine. Names and metadata of
instructions count only where they can be heard of while the program runs: in errors of what Python does for it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from collections.abc import Collection, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import llvmlite
import ml_dtypes
import numpy as np

from xlakit import machine, options, target

if TYPE_CHECKING:
    from xlakit.ir.instruction import HloModule
    from xlakit.link import Link

# A source file, its size, and when it was changed in nanoseconds.
_Source = tuple[str, int, int]
# Folders of the package on which nothing depends that compiles: they call the compiler.
_NOT_OF_COMPILER = frozenset({"__pycache__", "tools", "compat"})

_LOADED = time.time()
# The status of all source files takes as long to get as a tiny program takes to compile.
_LOOK_SECONDS = 1.0
# When the sources were checked last, whether they had changed, and what they were.
_looked: list[tuple[float, bool, list[_Source]]] = []

# What changes the code that is made of a program.
_VARIABLES = ("XLAKIT_DISABLE_PASSES", "XLAKIT_FUEL")


def program_key(
    module: HloModule,
    num_replicas: int,
    num_partitions: int,
    c_functions: Collection[str] = (),
    lapack_calls: Collection[str] = (),
    *,
    native_collectives: bool = True,
    link: Link | None = None,
) -> str | None:
    """The key of a program's machine code; None for a module that is not well formed, or where nothing can be cached.

    c_functions: the names of custom calls that machine code does itself; it does not know the addresses of functions.
    lapack_calls: the names of those that are calls of LAPACK.
    native_collectives: whether collectives are compiled. link: between the processes that run the program.
    """
    # Programs that are found by their serialized form need no key of the module.
    from xlakit.cpu.module_text import module_parts

    compiler = _of_compiler()
    if compiler is None:
        return None
    digest = hashlib.sha256(_with_processor(compiler))
    asked = (
        num_replicas,
        num_partitions,
        native_collectives,
        link and (link.alpha, link.beta),
        *sorted((*c_functions, *lapack_calls)),
        *_environment(),
    )
    try:
        parts = module_parts(module, lapack_calls, num_partitions=num_partitions)
    except (KeyError, AttributeError, TypeError):
        # An operand from elsewhere, or an attribute of a wrong type: verification raises the error.
        return None
    digest.update(repr(asked).encode())
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return "program-" + digest.hexdigest()[:40]


def runtime_key(variant: str) -> str | None:
    """The key of a variant of the runtime's machine code; None where nothing can be cached."""
    compiler = _of_compiler()
    if compiler is None:
        return None
    return "runtime-" + hashlib.sha256(_with_processor(compiler) + variant.encode()).hexdigest()[:40]


def source_key(form: str, versions: Collection[str], parts: Sequence[bytes]) -> str | None:
    """The key of what a program's source, in bytes, is known to become; None where nothing can be cached.

    form: what kind of source it is. versions: of what reads it, beside this package.
    """
    compiler = _of_compiler()
    if compiler is None:
        return None
    digest = hashlib.sha256(_with_processor(compiler))
    digest.update(repr((form, *versions, *_environment(), *map(len, parts))).encode())
    for part in parts:
        digest.update(part)
    return "source-" + digest.hexdigest()[:40]


def _with_processor(compiler: bytes) -> bytes:
    """What tells of the compiler, with the processor that code is made for: features, vectors, caches and threads."""
    made_for = target.processor()
    features = f"{made_for.name} {made_for.text} {made_for.vector_bytes}"
    return compiler + f"{features} {machine.current().text}\n".encode()


def _environment() -> list[str]:
    return [*(os.environ.get(name, "") for name in _VARIABLES), options.current().text]


def compiler_has_changed() -> bool:
    """Whether sources of the compiler have changed since this process started: then they do not describe its code.

    They are checked at most once a second. Programs cached in between have the key of the old sources, so that no
    process with the new ones finds them.
    """
    # Not time.monotonic: tests of programs replace it by a clock of their own, which counts the callers it expects.
    now = time.perf_counter()
    if not _looked or now - _looked[-1][0] >= _LOOK_SECONDS:
        sources = _sources()
        _looked[:] = [(now, any(changed > _start() * 1e9 for _, _, changed in sources), sources)]
    return _looked[-1][1]


@cache
def _start() -> float:
    """When this process, or what it was forked from, may have read the first of our files."""
    try:
        words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        since_boot = int(words[19]) / os.sysconf("SC_CLK_TCK")
        return min(_LOADED, time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot)
    except (OSError, AttributeError, ValueError, IndexError):
        # Not Linux: the files were read shortly before.
        return _LOADED


@cache
def _of_compiler() -> bytes | None:
    """The compiler and the system: versions, and the sources of this package."""
    if compiler_has_changed():
        return None
    sources = _looked[-1][2] if _looked else _sources()
    parts = [
        llvmlite.__version__,
        np.__version__,
        _version_of_scipy(),
        ml_dtypes.__version__,
        sys.implementation.cache_tag or "",
        sys.platform,
        platform.machine(),
        *map(str, sources or [version("xlakit")]),
    ]
    return hashlib.sha256("\n".join(parts).encode()).digest()


def _version_of_scipy() -> str:
    """The file that says the version of SciPy, whose LAPACK programs call; empty where it is not there.

    Importing SciPy, or reading the metadata of its package, takes as long as a program of the cache takes to load.
    """
    spec = find_spec("scipy")
    try:
        return "" if spec is None or spec.origin is None else Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return ""


def _sources() -> list[_Source]:
    """The source files; none where the package is no directory."""
    found: list[_Source] = []
    root = str(Path(__file__).parents[1])
    folders = [root] if os.path.isdir(root) else []
    while folders:
        # Every new process gets the status of some hundred files: without Path objects in a third of the time.
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    found.append((entry.path[len(root) + 1 :], status.st_size, status.st_mtime_ns))
                elif entry.name not in _NOT_OF_COMPILER and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return sorted(found)
