"""Restores the floating-point environment that Python expects, on threads that have another one.

jaxlib calls the compiler on a thread that flushes subnormal numbers to zero. On it ``struct`` and NumPy would flush
subnormal constants of programs; threads that it starts inherit the setting.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# No platform's fenv_t is larger.
_BYTES: Final = 256


class FloatEnvironment:
    """The floating-point environment of the thread that creates this object."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(None)
        self._usual = self._now()

    def _now(self) -> ctypes.Array[ctypes.c_char]:
        found = ctypes.create_string_buffer(_BYTES)
        self._c.fegetenv(found)
        return found

    @contextmanager
    def here(self) -> Generator[None]:
        """Set this environment on the current thread, and restore the previous one at the end of the block."""
        before = self._now()
        self._c.fesetenv(self._usual)
        try:
            yield
        finally:
            self._c.fesetenv(before)
