"""Records that Python fills in for native code: words, texts and arrays, kept alive together."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from xlakit.cpu.runtime.record import Record


class Words:
    """A record in memory. A text fills two fields, its address and ``<name>_size``; a list, its address alone."""

    def __init__(self, record: Record, **fields: int | str | Sequence[int]) -> None:
        self._record = record
        self._memory = (ctypes.c_int64 * (record.size // 8))()
        self._held: dict[str, Any] = {}
        self.address = ctypes.addressof(self._memory)
        self.set(**fields)

    def set(self, **fields: int | str | Sequence[int]) -> None:
        """Write fields."""
        for name, value in fields.items():
            if isinstance(value, str):
                data = value.encode()
                self._held[name] = ctypes.create_string_buffer(data)
                self[name] = ctypes.addressof(self._held[name])
                self[f"{name}_size"] = len(data)
            elif isinstance(value, int):
                self[name] = value
            else:
                self._held[name] = words_of(value)
                self[name] = ctypes.addressof(self._held[name])

    def hold(self, name: str, memory: Any) -> None:
        """Write the address of a ctypes object into a field, and keep the object alive as long as the record."""
        self._held[name] = memory
        self[name] = ctypes.addressof(memory)

    def __getitem__(self, name: str) -> int:
        return self._memory[self._record.index(name)]

    def __setitem__(self, name: str, value: int) -> None:
        self._memory[self._record.index(name)] = value


def words_of(values: Sequence[int]) -> Any:
    """An array of words in memory; at least one word, so that it has an address."""
    return (ctypes.c_int64 * max(1, len(values)))(*values)
