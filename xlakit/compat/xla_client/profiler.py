"""TraceMe, and sessions that collect what it traces."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import platform
import threading
import time
import weakref
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xlakit.compat.xla_client.binding import bound, incompatible, unconstructed
from xlakit.compat.xla_client.errors import as_status, with_status
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError, ExecutionError, UnsupportedError
from xlakit.formats.xspace import Line, Span, chrome_events, now, plane_names, write_xspace


@dataclass(slots=True, eq=False)
class ProfileOptions:
    """Options of a session. Only Python's TraceMe is traced; the options are kept."""

    duration_ms: int = field(init=False, default=0)
    enable_hlo_proto: bool = field(init=False, default=True)
    host_tracer_level: int = field(init=False, default=2)
    include_dataset_ops: bool = field(init=False, default=True)
    python_tracer_level: int = field(init=False, default=1)
    raise_error_on_start_failure: bool = field(init=False, default=False)
    repository_path: str = field(init=False, default="")
    start_timestamp_ns: int = field(init=False, default=0)


class ProfilerSession:
    """Collects the blocks that TraceMe traces, until it is stopped, or is no more. One at a time."""

    _lock = threading.Lock()
    _current: weakref.ref[ProfilerSession] | None = None

    def __init__(self, options: ProfileOptions | None = None) -> None:
        self.options = options or ProfileOptions()
        self._spans: dict[int, list[Span]] = {}
        self._written: bytes | None = None
        with ProfilerSession._lock:
            if ProfilerSession.current() is not None:
                raise as_status(
                    ExecutionError("a profiler session is active already", hint="stop it before another one"),
                    code="ALREADY_EXISTS",
                )
            ProfilerSession._current = weakref.ref(self)

    @staticmethod
    def current() -> ProfilerSession | None:
        """The session that records, if there is one."""
        reference = ProfilerSession._current
        return None if reference is None else reference()

    def add(self, span: Span) -> None:
        """Add a block of this thread."""
        self._spans.setdefault(threading.get_ident(), []).append(span)

    def stop(self) -> bytes:
        """End the session; gives its events as an XSpace, the same ones when called again."""
        with ProfilerSession._lock:
            if ProfilerSession.current() is self:
                ProfilerSession._current = None
            if self._written is None:
                threads = enumerate(self._spans.items())
                lines = [Line(thread, f"python {number}", spans) for number, (thread, spans) in threads]
                self._written = write_xspace("/host:CPU", lines)
        return self._written

    @with_status
    def export(self, xspace: bytes, tensorboard_dir: str, /) -> None:
        """Write an XSpace where TensorBoard looks for it: ``HOST.xplane.pb`` in ``plugins/profile/TIME``.

        ``HOST.trace.json.gz`` beside it is for Chrome and Perfetto.
        """
        events = chrome_events(xspace)
        run = time.strftime("%Y_%m_%d_%H_%M_%S")
        folder = os.path.join(tensorboard_dir, "plugins", "profile", run)
        os.makedirs(folder, exist_ok=True)
        stem = os.path.join(folder, platform.node() or "localhost")
        with open(f"{stem}.xplane.pb", "wb") as file:
            file.write(xspace)
        with gzip.open(f"{stem}.trace.json.gz", "wt", encoding="utf-8") as file:
            json.dump({"displayTimeUnit": "ns", "traceEvents": events}, file)

    def stop_and_export(self, tensorboard_dir: str, /) -> None:
        """End the session and write its events into a folder."""
        self.export(self.stop(), tensorboard_dir)


class TraceMe:
    """A block of code with a name and metadata; a context manager. Sessions record how long it took."""

    __slots__ = ("_metadata", "_name", "_outer", "_start")

    def __init__(self, name: str, /, **kwargs: Any) -> None:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise incompatible("TraceMe", f"the name of a block is text, not a {type(name).__name__}")
        self._name = name
        self._metadata = kwargs
        self._start = 0
        # The block for the sessions of servers.
        self._outer: Any = None

    def __enter__(self) -> Self:
        if ProfilerServer.count:
            self._outer = _jaxlib_profiler().TraceMe(self._name, **self._metadata)
            self._outer.__enter__()
        self._start = now()
        return self

    def __exit__(
        self, ex_type: type[BaseException] | None, ex_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._outer is not None:
            self._outer.__exit__(ex_type, ex_value, traceback)
        session = ProfilerSession.current()
        if session is not None:
            metadata = {name: str(value) for name, value in self._metadata.items()}
            session.add(Span(self._name, self._start, now(), metadata))

    def set_metadata(self, **kwargs: Any) -> None:
        """Add metadata."""
        self._metadata.update(kwargs)
        if self._outer is not None:
            self._outer.set_metadata(**kwargs)

    @staticmethod
    def is_enabled() -> bool:
        """Whether a session records."""
        return ProfilerSession.current() is not None


class ProfilerServer:
    """A server that TensorBoard asks for the blocks of TraceMe, as long as it is referred to."""

    # The number of running servers.
    count = 0

    @unconstructed
    def __init__(self, server: _Server) -> None:
        self._server = server
        ProfilerServer.count += 1
        weakref.finalize(self, _count_down)


def _count_down() -> None:
    ProfilerServer.count -= 1


class _Server:
    """jaxlib's server on a port."""

    def __init__(self, port: int) -> None:
        self._running = _jaxlib_profiler().start_server(port)


def _jaxlib_profiler() -> Any:
    try:
        return importlib.import_module("jaxlib._profiler")
    except ImportError:
        raise UnsupportedError(
            "the profiler server is jaxlib's, which is not installed",
            hint="install jaxlib, or use ProfilerSession or xlakit run --profile",
        ) from None


@bound
def start_server(port: int) -> ProfilerServer:
    """A server of profiles on a port, or on a free one for 0. It is jaxlib's; raises XlaRuntimeError without it."""
    return ProfilerServer(_Server(port))


@bound
def register_plugin_profiler(c_api: Any, /) -> None:
    """Raises XlaRuntimeError: profilers of plugins are not called."""
    raise UnsupportedError("profilers of plugins are not supported", hint="use ProfilerSession")


@bound
def get_fdo_profile(xspace: bytes, as_textproto: bool = False, /) -> bytes:
    """The profile of the instructions that ran on accelerators; a trace of processors has none, and gives nothing.

    Raises XlaRuntimeError for a trace of an accelerator.
    """
    _refuse_accelerators(xspace)
    return b""


@bound
def get_profiled_instructions_proto(tensorboard_dir: str) -> bytes:
    """The profile of the traces in a folder and below, as of :func:`get_fdo_profile`. Raises XlaRuntimeError."""
    for xspace in _traces_in(tensorboard_dir):
        _refuse_accelerators(xspace)
    return b""


@bound
def get_instructions_profile(tensorboard_dir: str) -> list[tuple[str, float]]:
    """The instructions of :func:`get_profiled_instructions_proto`, with their costs."""
    get_profiled_instructions_proto(tensorboard_dir)
    return []


@bound
def aggregate_profiled_instructions(profiles: list[bytes], percentile: int) -> bytes:
    """Several profiles as one. Raises XlaRuntimeError for profiles that have instructions."""
    if any(profiles):
        raise UnsupportedError("profiles of accelerators are not read", hint="use the tools of their platform")
    return b""


def _traces_in(folder: str) -> list[bytes]:
    found = sorted(Path(folder).rglob("*.xplane.pb"))
    if not found:
        error = ArgumentError("the folder has no trace", hint="export one with ProfilerSession")
        raise as_status(error, f"there is no trace in {folder}", code="NOT_FOUND")
    return [path.read_bytes() for path in found]


def _refuse_accelerators(xspace: bytes) -> None:
    if names := [name for name in plane_names(xspace) if name.startswith("/device:")]:
        raise UnsupportedError(f"the trace of {names[0]} is not read", hint="use the tools of that platform")
