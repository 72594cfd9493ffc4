"""Object files in memory, linked by LLVM's JIT: what cannot be laid out as an image before it is needed."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from xlakit import target
from xlakit.errors import InternalError
from xlakit.machine_code.llvm import lock, set_up


class LinkedObjects:
    """Object files in memory, linked by LLVM. They stay as long as this object does."""

    def __init__(
        self, name: str, objects: Sequence[bytes], functions: Sequence[str], symbols: Mapping[str, int], *, stays: bool
    ) -> None:
        """As :class:`xlakit.cpu.llvm.library.Library` takes them."""
        set_up()
        builder = llvm.JITLibraryBuilder()
        for data in objects:
            builder.add_object_img(data)
        builder.add_current_process()
        for symbol, address in symbols.items():
            builder.import_symbol(symbol, address)
        for function in functions:
            builder.export_symbol(function)
        with lock:
            jit = _lasting_jit() if stays else _next_jit()
            try:
                tracker = builder.link(jit.engine, name)
            except RuntimeError as error:
                raise InternalError(f"machine code of {name} cannot be linked: {error}") from None
            jit.alive += 1
        self._addresses = {function: int(tracker[function]) for function in functions}
        # When the process ends, code may still run, and what would free it is half taken down.
        weakref.finalize(self, _release, jit, tracker).atexit = False
        _free_released()

    def address(self, function: str) -> int:
        """Where a function starts."""
        return self._addresses[function]


# -- freeing machine code --------------------------------------------------------------------------
#
# LLVM frees the code of a library that is given up, and keeps what it knows of its symbols, some kilobytes, until the
# whole JIT goes. So a JIT takes so many libraries and then no more, and goes with the last of them:
#
#     linked         0 .. 16        16             16                16
#     alive          0 .. 16        16 .. 1        0                 -
#                    the next one   takes none     closed            gone
#
# Making a JIT takes as long as linking a few programs, and a library that stays keeps what 15 others leave behind.
_LIBRARIES_OF_A_JIT = 16


class _Jit:
    """An LLJIT, how many libraries it has linked, and how many of them are there."""

    def __init__(self) -> None:
        host = target.host()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=host.name, features=host.text, opt=3, reloc="pic", codemodel="small", jit=False
        )
        self.engine: Any = llvm.create_lljit_compiler(machine, use_jit_link=True)
        self.linked = 0
        self.alive = 0


_lasting_jit = cache(_Jit)
_newest: list[_Jit] = []
# Libraries to be freed. The garbage collector may release one at any point, where its thread may hold the lock.
_released: deque[tuple[_Jit, Any]] = deque()


def _next_jit() -> _Jit:
    """The JIT for the next library; the lock is held."""
    if not _newest or _newest[0].linked == _LIBRARIES_OF_A_JIT:
        _newest[:] = [_Jit()]
    _newest[0].linked += 1
    return _newest[0]


def _release(jit: _Jit, tracker: Any) -> None:
    _released.append((jit, tracker))
    _free_released()


def _free_released() -> None:
    """Free what has been given up; where another library is being linked, that is done after it."""
    while _released and lock.acquire(blocking=False):
        try:
            while _released:
                jit, tracker = _released.popleft()
                tracker.close()
                jit.alive -= 1
                if not jit.alive and jit.linked == _LIBRARIES_OF_A_JIT:
                    jit.engine.close()
        finally:
            lock.release()
