"""``XLAKIT_PROFILE=DIR``: the times of all programs that a process compiles, JAX's included, written when it ends.

``DIR/profile_1234.txt`` has the tables of each program that was called in process 1234, the most expensive first;
``profile_1234.json`` the same as data, and ``profile_1234.trace.json`` a timeline of all of them for Perfetto. Programs
and their times are kept until then.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
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

if TYPE_CHECKING:
    from xlakit.cpu.profiling.recorder import Recorder
    from xlakit.cpu.profiling.times import Overhead
    from xlakit.ir.instruction import HloModule
    from xlakit.memory.plan import MemoryPlan


class Profiled(Protocol):
    """What a profile needs of an executable."""

    @property
    def module(self) -> HloModule:
        """The program."""
        ...

    @property
    def recorder(self) -> Recorder | None:
        """Its times."""
        ...

    def memory_plan(self) -> MemoryPlan:
        """Its steps."""
        ...

    def optimized_module(self) -> HloModule:
        """The program that its steps are those of."""
        ...


def profile_of(executable: Profiled, recorder: Recorder, overhead: Overhead | None = None) -> Profile:
    """The times of a program so far."""
    roofline = Roofline(machine.current(), thread_count())
    rows = step_rows(executable.optimized_module(), executable.memory_plan().steps, roofline)
    return make_profile(executable.module.name, rows, recorder, roofline, overhead)


@cache
def profiled_programs(folder: Path) -> ProfiledPrograms:
    """The programs whose times this process writes into a folder when it ends."""
    return ProfiledPrograms(folder)


class ProfiledPrograms:
    """The profiled programs of this process. Raises ResourceError where the folder cannot be made."""

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
        # What the parent has run before is the parent's to write.
        os.register_at_fork(after_in_child=self._clear)

    def add(self, program: Profiled) -> None:
        """Keep a program and write its times, if it is called."""
        with self._lock:
            self._programs.append(program)

    def _clear(self) -> None:
        for program in self._programs:
            if program.recorder is not None:
                program.recorder.clear()

    def make_room(self) -> None:
        """Forget the events of programs that have no room for more; their totals stay."""
        for program in self._programs:
            if program.recorder is not None:
                program.recorder.make_room()

    def profiles(self) -> list[Profile]:
        """The profiles of the programs that were called, the most expensive first."""
        programs = [(program, program.recorder) for program in self._programs]
        called = [(program, recorder) for program, recorder in programs if recorder and recorder.totals()[0].count]
        made = [profile_of(program, recorder) for program, recorder in called]
        return sorted(made, key=lambda profile: -profile.nanoseconds)

    def write(self) -> list[Path]:
        """Write the files; gives their paths, none where no program was called."""
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
            path.write_text(text, encoding="utf-8")
        return paths

    def _new_stem(self) -> str:
        """A name that no file has: processes on several machines may have one number."""
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
