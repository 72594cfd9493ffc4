"""The steps of programs in the traces of ``jax.profiler``.

While a trace is recorded, programs run as variants that take the times of their steps (``Program.take_times``). With
``XLAKIT_PROFILE`` all programs are such variants from the start.

PJRT's extension for profilers points to a table of functions: they create, start and stop a profiler, and collect its
data, an XSpace: first its size, then its bytes. Source: PJRT_Profiler_Extension, PLUGIN_Profiler_Api.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from xlakit.cpu.runtime.numpy_api import keep_for_ever
from xlakit.errors import XlakitError
from xlakit.jax.records import words_of
from xlakit.settings import profile_folder

if TYPE_CHECKING:
    from xlakit.cpu.profiling.report import Profile
    from xlakit.jax.program import Program
    from xlakit.jax.slots import State

_NUMBER: Final = 1
# TensorBoard shows the planes of this prefix as devices of their own.
_PLANE: Final = "/device:CUSTOM:xlakit"

_CREATED, _PROFILER, _BUFFER, _SIZE = 3, 1, 2, 3
"""Which word of a call's structure a field is; the first one is its size."""


class _Session:
    """A trace from its start to its stop, in nanoseconds of the monotonic clock."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._programs: list[Program] = []
        self._warnings: list[str] = []
        self._begin = self._end = 0
        self._data: bytes | None = None
        self._buffer: Any = None

    def start(self) -> None:
        self._programs, self._warnings, self._end, self._data = [], [], 0, None
        folder = profile_folder()
        if folder is None:
            self._state.forget_dead()
            for program in list(self._state.programs.values()):
                self._take_times(program)
            # Those that are compiled from now on.
            self._state.on_program = self._take_times
        else:
            from xlakit.cpu.profiling.process import profiled_programs

            profiled_programs(folder).make_room()
        self._begin = _now()

    def _take_times(self, program: Program) -> None:
        try:
            if program.take_times():
                self._programs.append(program)
        except XlakitError as error:
            self._warnings.append(f"{program.name}: its calls are shown without steps: {error}")

    def stop(self) -> None:
        self._end = _now()
        if self._state.on_program == self._take_times:
            self._state.on_program = None
        for program in self._programs:
            program.take_no_times()

    def data(self) -> bytes:
        """The XSpace of the programs that ran; empty if none did."""
        if self._data is None:
            from xlakit.cpu.profiling.spans import thread_lines
            from xlakit.formats.xspace import write_xspace

            profiles = self._profiles()
            lines = thread_lines(profiles, self._begin, self._end or _now())
            dropped = sum(profile.dropped for profile in profiles)
            warnings = [f"there was no room for {dropped} events of xlakit's programs"] if dropped else []
            warnings += self._warnings
            self._data = write_xspace(_PLANE, lines, warnings) if lines or warnings else b""
        return self._data

    def _profiles(self) -> list[Profile]:
        from xlakit.cpu.profiling.process import profiled_programs, profiles_of

        folder = profile_folder()
        if folder is not None:
            return profiled_programs(folder).profiles()
        variants: list[Any] = [program.timed for program in self._programs]
        return profiles_of([variant.compiled for variant in variants])

    def address(self) -> int:
        """The address of the data, which is valid as long as the session."""
        self._buffer = ctypes.create_string_buffer(self.data())
        return ctypes.addressof(self._buffer)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Profiler:
    """The functions behind the extension; an exception becomes an error handle, whose text jaxlib requests."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._sessions: dict[int, _Session] = {}
        self._errors: dict[int, Any] = {}
        self._made = 0

    def extension(self, following: int) -> Any:
        """The extension's structure, before another one, whose address is ``following`` or 0."""
        functions = [
            self._function(self._destroy_error, fails=False),
            self._function(self._error_message, fails=False),
            self._function(self._error_code),
            *(self._function(f) for f in (self._create, self._destroy, self._start, self._stop, self._collect)),
        ]
        addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
        table = words_of([8 * (len(addresses) + 2), 0, *addresses])
        structure = words_of([40, _NUMBER, following, ctypes.addressof(table), 0])
        for part in (functions, table, structure, self):
            keep_for_ever(part)
        return structure

    def _function(self, function: Callable[[Any], None], *, fails: bool = True) -> Any:
        def call(arguments: int) -> int:
            try:
                function(ctypes.cast(arguments, ctypes.POINTER(ctypes.c_int64)))
            except Exception as error:
                return self._new_error(f"{type(error).__name__}: {error}")
            return 0

        if not fails:
            # Functions about errors cannot return errors.
            return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda arguments: _ignore(call(arguments)))
        return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(call)

    # -- errors: their handles are addresses of their texts ----------------------------------------

    def _new_error(self, message: str) -> int:
        text = ctypes.create_string_buffer(message.encode())
        self._errors[ctypes.addressof(text)] = text
        return ctypes.addressof(text)

    def _destroy_error(self, words: Any) -> None:
        self._errors.pop(words[1], None)

    def _error_message(self, words: Any) -> None:
        words[2], words[3] = words[1], len(self._errors[words[1]].value)

    def _error_code(self, words: Any) -> None:
        words[2] = _INTERNAL

    # -- sessions ----------------------------------------------------------------------------------

    def _create(self, words: Any) -> None:
        self._made += 1
        self._sessions[self._made] = _Session(self._state)
        words[_CREATED] = self._made

    def _destroy(self, words: Any) -> None:
        del self._sessions[words[_PROFILER]]

    def _start(self, words: Any) -> None:
        self._sessions[words[_PROFILER]].start()

    def _stop(self, words: Any) -> None:
        self._sessions[words[_PROFILER]].stop()

    def _collect(self, words: Any) -> None:
        session = self._sessions[words[_PROFILER]]
        data = session.data()
        if words[_BUFFER]:
            ctypes.memmove(words[_BUFFER], data, min(len(data), words[_SIZE]))
        elif data:
            # A caller that passes no buffer gets the address of the session's data.
            words[_BUFFER] = session.address()
        words[_SIZE] = len(data)


_INTERNAL: Final = 13


def _ignore(_: int) -> None:
    return None


def announce(capsule: Any) -> None:
    """Tell jaxlib that the platform has a profiler; ``capsule`` holds its table of functions."""
    from jax._src import lib

    bindings: Any = lib
    bindings._profiler.register_plugin_profiler(capsule)
