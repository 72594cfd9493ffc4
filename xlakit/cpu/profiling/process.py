"""``XLAKIT_PROFILE=DIR`` profiles all programs that a process compiles, JAX's included, and writes the times at exit.

``DIR/profile_1234.txt`` has the tables of each program that was called in process 1234, the most expensive first;
``profile_1234.json`` has the same as data, and ``profile_1234.trace.json`` a timeline of all programs for Perfetto. The
programs and their times are kept in memory until then.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from xlakit import machine
from xlakit.cpu.profiling.report import Profile, make_profile
from xlakit.cpu.profiling.roofline import Roofline
from xlakit.cpu.profiling.rows import step_rows
from xlakit.cpu.profiling.trace_events import trace_json
from xlakit.cpu.threads import thread_count
from xlakit.data.text_table import aligned, duration
from xlakit.errors import ResourceError
from xlakit.formats.files import write_whole

if TYPE_CHECKING:
    from xlakit.cpu.profiling.recorder import Recorder
    from xlakit.cpu.profiling.times import Overhead
    from xlakit.ir.instruction import HloModule
    from xlakit.memory.plan import MemoryPlan


class Profiled(Protocol):
    """The properties of an executable that a profile needs."""

    @property
    def module(self) -> HloModule:
        """The module that was compiled."""
        ...

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of the times; None if it is not profiled."""
        ...

    def memory_plan(self) -> MemoryPlan:
        """The memory plan, which has the steps."""
        ...

    def optimized_module(self) -> HloModule:
        """The optimized module, whose instructions the steps implement."""
        ...


def profile_of(executable: Profiled, recorder: Recorder, overhead: Overhead | None = None) -> Profile:
    """The profile of a program's runs so far."""
    roofline = Roofline(machine.current(), thread_count())
    rows = step_rows(executable.optimized_module(), executable.memory_plan().steps, roofline)
    return make_profile(executable.module.name, rows, recorder, roofline, overhead)


@cache
def profiled_programs(folder: Path) -> ProfiledPrograms:
    """The programs whose profiles this process writes into a folder when it ends."""
    return ProfiledPrograms(folder)


class ProfiledPrograms:
    """The profiled programs of this process. Raises ResourceError if the folder cannot be created."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: list[Profiled] = []
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResourceError(
                f"profiles cannot be written into {folder}: {error.strerror or error}",
                hint="XLAKIT_PROFILE names a folder that can be written, or is unset",
            ) from None
        atexit.register(self._write_at_exit)
        # The parent writes the times of its own runs.
        os.register_at_fork(after_in_child=self._clear)

    def add(self, program: Profiled) -> None:
        """Register a program; its profile is written if it is called."""
        with self._lock:
            self._programs.append(program)

    def _clear(self) -> None:
        for program in self._programs:
            if program.recorder is not None:
                program.recorder.clear()

    def make_room(self) -> None:
        """Drop the events of programs whose event buffers are full; their totals stay."""
        for program in self._programs:
            if program.recorder is not None:
                program.recorder.make_room()

    def profiles(self) -> list[Profile]:
        """The profiles of the programs that were called, the most expensive first."""
        return profiles_of(self._programs)

    def write(self) -> list[Path]:
        """Write the files; gives their paths, none if no program was called."""
        profiles = self.profiles()
        if not profiles:
            return []
        texts = {
            ".txt": "\n\n\n".join([_summary(profiles), *map(str, profiles)]) + "\n",
            ".json": json.dumps([profile.as_dict() for profile in profiles], indent=1) + "\n",
            ".trace.json": trace_json(profiles) + "\n",
        }
        stem = self._new_stem()
        paths = [self._folder / f"{stem}{suffix}" for suffix in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(path, text)
        return paths

    def _new_stem(self) -> str:
        """A name that no file has yet: processes on several machines may have the same number."""
        stem, number = f"profile_{os.getpid()}", 1
        while True:
            name = stem if number == 1 else f"{stem}_{number}"
            try:
                (self._folder / f"{name}.txt").touch(exist_ok=False)
            except FileExistsError:
                number += 1
            else:
                return name

    def _write_at_exit(self) -> None:
        try:
            self.write()
        except OSError as error:
            print(f"xlakit: profiles cannot be written into {self._folder}: {error}", file=sys.stderr)


def profiles_of(programs: Iterable[Profiled]) -> list[Profile]:
    """The profiles of those programs that were called, the most expensive first."""
    with_recorders = [(program, program.recorder) for program in programs]
    called = [(program, recorder) for program, recorder in with_recorders if recorder and recorder.totals()[0].count]
    made = [profile_of(program, recorder) for program, recorder in called]
    return sorted(made, key=lambda profile: -profile.nanoseconds)


def _summary(profiles: list[Profile]) -> str:
    """A row for each program."""
    total = sum(profile.nanoseconds for profile in profiles)
    table = [("time", "part", "runs", "each", "program")]
    for profile in profiles:
        table.append(
            (
                duration(profile.nanoseconds),
                f"{profile.nanoseconds / max(1, total):.1%}",
                str(profile.runs),
                duration(profile.nanoseconds / profile.runs),
                profile.name,
            )
        )
    return aligned(table, right=range(4))
