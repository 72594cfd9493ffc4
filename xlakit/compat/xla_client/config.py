"""A configuration value that the process sets and each thread can override."""

from __future__ import annotations

import threading
import types
from typing import Any

from xlakit.compat.xla_client.binding import bound

# The value of a thread that does not override the process's value.
unset = object()


class _Local(threading.local):
    value: Any = unset


class Config:
    """One value: the thread's own if it is set, else that of the process."""

    __slots__ = ("_global", "_local", "include_in_jit_key")

    __class_getitem__ = classmethod(types.GenericAlias)

    @bound
    def __init__(self, value: Any, include_in_jit_key: bool = False) -> None:
        self._global = value
        self._local = _Local()
        self.include_in_jit_key = include_in_jit_key

    @property
    def value(self) -> Any:
        """The value for this thread."""
        return self._global if self._local.value is unset else self._local.value

    def get_global(self) -> Any:
        """The value of the process."""
        return self._global

    def set_global(self, value: Any) -> None:
        """Set the value of the process."""
        self._global = value

    def get_local(self) -> Any:
        """The value of this thread, or ``unset``."""
        return self._local.value

    def set_local(self, value: Any) -> None:
        """Set the value of this thread; ``unset`` leaves it to the process."""
        self._local.value = value

    def swap_local(self, value: Any) -> Any:
        """Set the value of this thread; gives what it was."""
        before, self._local.value = self._local.value, value
        return before
