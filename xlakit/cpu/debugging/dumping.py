"""Dumping programs: ``XLAKIT_DUMP_TO=DIR`` writes each program that a process compiles into a folder.

Each program gets its own folder, ``DIR/module_0007``, with a ``manifest.json`` that describes it, the program before
optimization (``module.hlo``), and the parts that ``XLAKIT_DUMP`` lists, separated by commas: ``passes`` (the program
after each pass), ``plan`` or ``memory-plan``, ``llvm``, ``asm`` or ``assembly``, and ``arguments`` (those of the first
call, for each device). The default is ``arguments``; ``hlo`` writes the program alone. ``XLAKIT_DUMP_FILTER`` restricts
the dumps to programs whose name matches one of its patterns (``jit_step*,*loss*``). ``xlakit run DIR/module_0007`` runs
the program on these arguments.

Programs that the interpreter runs are not written. Programs that are only inspected, never called, have no arguments.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlakit.errors import ResourceError
from xlakit.execution.groups import Grid
from xlakit.formats.files import write_whole
from xlakit.formats.npz import write_arrays

if TYPE_CHECKING:
    from xlakit.cpu.execution.executable import CpuExecutable
    from xlakit.cpu.execution.generated import GeneratedProgram
    from xlakit.ir.instruction import HloModule
    from xlakit.ir.operation import Array
    from xlakit.settings import Dump

MANIFEST: Final = "manifest.json"
MODULE: Final = "module.hlo"


def dump(program: CpuExecutable, request: Dump, seed: int) -> None:
    """Write a program; if the request has ``arguments``, those of its first call are written when it is called.

    Raises ResourceError where the folder cannot be written.
    """
    with _writing(request.folder):
        folder, manifest = _dump(
            program, program.module, Grid(program.num_replicas, program.num_partitions), request, seed
        )
    if "arguments" in request.parts:
        program.watch_arguments(_Arguments(program.module, folder, manifest).write)


def dump_generated(program: GeneratedProgram, module: HloModule, grid: Grid, request: Dump, seed: int) -> None:
    """Write a program that is not called, and so has no arguments.

    Raises ResourceError where the folder cannot be written.
    """
    with _writing(request.folder):
        _dump(program, module, grid, request, seed)


@contextmanager
def _writing(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"a program cannot be written into {folder}: {error.strerror or error}",
            hint="XLAKIT_DUMP_TO names a folder that can be written, or is unset",
        ) from None


def _dump(
    program: CpuExecutable | GeneratedProgram, module: HloModule, grid: Grid, request: Dump, seed: int
) -> tuple[Path, dict[str, Any]]:
    """Write a program without its arguments; gives its folder and the contents of its manifest."""
    folder = _new_folder(request.folder)
    manifest = {
        "module": module.name,
        "process": os.getpid(),
        "num_replicas": grid.num_replicas,
        "num_partitions": grid.num_partitions,
        "seed": seed,
        "files": _write_parts(program, module, folder, request.parts),
        "arguments": [],
    }
    _write_manifest(folder, manifest)
    return folder, manifest


def _new_folder(parent: Path) -> Path:
    """Create the folder with the next free number; two processes that share the parent never get the same folder."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        folder = parent / f"module_{number:04}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def _write_parts(
    program: CpuExecutable | GeneratedProgram, module: HloModule, folder: Path, parts: frozenset[str]
) -> list[str]:
    """Write the files of a program; gives their names."""
    texts: dict[str, Any] = {
        "hlo": (MODULE, module.to_text),
        "plan": ("memory-plan.txt", lambda: program.memory_plan().as_text()),
        "llvm": ("module.ll", program.llvm_ir),
        "asm": ("module.s", program.assembly),
    }
    files: list[str] = []
    # The program itself is always written: no other part is of use without it.
    for part in ("hlo", *(part for part in texts if part != "hlo" and part in parts)):
        name, make = texts[part]
        write_whole(folder / name, make().rstrip("\n") + "\n")
        files.append(name)
    return files + (_write_passes(module, folder) if "passes" in parts else [])


def _write_passes(module: HloModule, folder: Path) -> list[str]:
    """Write the program before the passes and after each pass that changes it."""
    from xlakit.passes.pipeline import run_pipeline

    (folder / "passes").mkdir()
    files: list[str] = []

    def write(number: int, name: str, module: HloModule) -> None:
        files.append(f"passes/{number:02}-{name}.hlo")
        write_whole(folder / files[-1], module.to_text())

    def look(number: int, name: str, before: HloModule, after: HloModule) -> None:
        if after is not before:
            write(number, name, after)

    write(0, "before", module)
    run_pipeline(module, dump=look)
    return files


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


class _Arguments:
    """Writes the arguments of a program's first call on each device."""

    def __init__(self, module: HloModule, folder: Path, manifest: dict[str, Any]) -> None:
        self._names = argument_names(module)
        self._folder = folder
        self._manifest = manifest
        self._lock = threading.Lock()
        self._written: set[int] = set()

    def write(self, device: int, arrays: Sequence[Array]) -> None:
        """Write the arguments of a device, if this is its first call."""
        with self._lock:
            if device in self._written:
                return
            self._written.add(device)
            with _writing(self._folder):
                self._save(f"arguments/device_{device:04}.npz", arrays)

    def _save(self, name: str, arrays: Sequence[Array]) -> None:
        (self._folder / "arguments").mkdir(exist_ok=True)
        write_arrays(self._folder / name, dict(zip(self._names, arrays, strict=True)))
        self._manifest["arguments"] = sorted([*self._manifest["arguments"], name])
        _write_manifest(self._folder, self._manifest)


def argument_names(module: HloModule) -> list[str]:
    """The names of the argument arrays: the parameter's number, then the indices into its tuples, such as ``0.1``."""
    return [
        ".".join(map(str, (parameter, *index)))
        for parameter, instruction in enumerate(module.entry.parameters)
        for index, shape in instruction.shape.leaves()
        if shape.is_array
    ]
