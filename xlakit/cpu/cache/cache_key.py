"""Keys of the compile cache: digests of all inputs that machine code depends on.

A key covers the program, the compiler's options, the compiler itself and the machine. Names and metadata of
instructions are part of it only if an error of the running program can show them: one of a step that Python executes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import llvmlite
import ml_dtypes
import numpy as np

from xlakit import compile_cache, machine, options, target
from xlakit.machine_code import ready_made

if TYPE_CHECKING:
    from xlakit.ir.instruction import HloModule
    from xlakit.link import Link

# A source file, its size, and when it was changed in nanoseconds.
_Source = tuple[str, int, int]
# Folders of the package whose files are not part of the key: they call the compiler, and the compiler imports none.
_NOT_OF_COMPILER = frozenset({"__pycache__", "tools", "compat"})

_LOADED = time.time()
# The sources are checked at most once in this time: to stat all of them takes as long as to compile a tiny program.
_LOOK_SECONDS = 1.0
# The last check of the sources: its time, whether a source had changed since the process started, and the sources.
_looked: list[tuple[float, bool, list[_Source]]] = []

# Environment variables that change the generated code.
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

    c_functions: the targets of custom calls that machine code executes; the code does not contain the functions'
    addresses. lapack_calls: the targets of custom calls that are calls of LAPACK. native_collectives: whether
    collectives are compiled. link: the cost model of the connection between the processes that run the program.
    """
    # Imported here: a program that is found by its serialized source needs no key of its module.
    from xlakit.cpu.cache.module_text import module_parts

    compiler = _of_compiler()
    if compiler is None:
        return None
    digest = hashlib.sha256(_with_processor(compiler))
    settings = (
        num_replicas,
        num_partitions,
        native_collectives,
        link and (link.alpha, link.beta, link.products),
        *sorted((*c_functions, *lapack_calls)),
        *_environment(),
    )
    try:
        parts = module_parts(module, lapack_calls, num_partitions=num_partitions)
    except (KeyError, AttributeError, TypeError):
        # An operand of another computation, or an attribute of a wrong type: the verifier reports it later.
        return None
    digest.update(repr(settings).encode())
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return "program-" + digest.hexdigest()[:40]


def runtime_key(variant: str) -> str | None:
    """The key of machine code that programs share, for the processor; None where nothing can be cached."""
    compiler = _of_compiler()
    if compiler is None:
        return None
    return "runtime-" + hashlib.sha256(_with_processor(compiler) + variant.encode()).hexdigest()[:40]


def process_code(variant: str, make: Callable[[], compile_cache.Entry]) -> compile_cache.Entry:
    """Machine code that serves the whole process, such as the runtime: from the compile cache, or kept there after it.

    It comes with the package, or is compiled by ``make``, for the lowest level of the instruction set whatever options
    are in force: there is one such code in a process, and it is for any processor.
    """
    with options.compiling(options.DEFAULT, cpu=target.lowest_level()):
        key = _process_key(variant) if compile_cache.is_enabled() else None
        entry = None if key is None else compile_cache.load(key)
        if entry is None:
            entry = ready_made.load(variant) or make()
            if key is not None:
                compile_cache.save(key, entry)
        return entry


def _process_key(variant: str) -> str | None:
    """The key of machine code that serves the whole process; where it is for any processor, none is asked for."""
    compiler = _of_compiler() if target.lowest_level() else None
    if compiler is None:
        return runtime_key(variant)
    return "runtime-" + hashlib.sha256(compiler + f"{target.lowest_level()} {variant}".encode()).hexdigest()[:40]


def source_key(form: str, versions: Collection[str], parts: Sequence[bytes]) -> str | None:
    """The key of a program's source bytes, under which its program is found; None where nothing can be cached.

    form: the kind of source. versions: those of the packages that parse it, beside this package.
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
    """The compiler's digest with the processor that code is generated for: features, vectors, caches and threads."""
    made_for = target.processor()
    features = f"{made_for.name} {made_for.text} {made_for.vector_bytes}"
    return compiler + f"{features} {machine.current().text}\n".encode()


def _environment() -> list[str]:
    return [*(os.environ.get(name, "") for name in _VARIABLES), options.current().text]


def compiler_has_changed() -> bool:
    """Whether a source file has changed since this process started: then the files are not the code that runs.

    The files are checked at most once a second. A program that is cached between two checks has the key of the old
    sources, so no process that runs the new sources finds it.
    """
    # Not time.monotonic, which tests replace by a clock that expects a certain number of calls.
    now = time.perf_counter()
    if not _looked or now - _looked[-1][0] >= _LOOK_SECONDS:
        sources = _sources()
        _looked[:] = [(now, any(changed > _start() * 1e9 for _, _, changed in sources), sources)]
    return _looked[-1][1]


@cache
def _start() -> float:
    """The earliest time at which this process, or the one that it was forked from, can have read a source file."""
    try:
        words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        since_boot = int(words[19]) / os.sysconf("SC_CLK_TCK")
        return min(_LOADED, time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot)
    except (OSError, AttributeError, ValueError, IndexError):
        # Not Linux: the time at which this module was loaded, shortly after the first file was read.
        return _LOADED


@cache
def _of_compiler() -> bytes | None:
    """A digest of the versions of compiler and system and of this package's sources; None if these have changed."""
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
    """The file with the version of SciPy, whose LAPACK programs call; empty where SciPy is not installed.

    Importing SciPy, or reading the metadata of its package, takes as long as loading a program from the cache.
    """
    spec = find_spec("scipy")
    try:
        return "" if spec is None or spec.origin is None else Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return ""


def _sources() -> list[_Source]:
    """The source files of the compiler; none where the package is not in a directory."""
    sources: list[_Source] = []
    root = str(Path(__file__).parents[2])
    folders = [root] if os.path.isdir(root) else []
    while folders:
        # Every new process stats several hundred files; os.scandir takes a third of the time that Path objects take.
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    sources.append((entry.path[len(root) + 1 :], status.st_size, status.st_mtime_ns))
                elif entry.name not in _NOT_OF_COMPILER and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return sorted(sources)
