"""Structures of the interface that Python reads and writes: arguments of its functions, and named values."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

from xlakit.jax.api.arguments import arguments_of

# The kinds of named values.
_INTEGERS: Final = 2
_FLOAT: Final = 3
_CTYPES: Final = {8: ctypes.c_int64, 4: ctypes.c_int32, 1: ctypes.c_int8}


class ArgumentStruct:
    """The structure at an address: ``struct["field"]``, and ``struct["field"] = number``."""

    __slots__ = ("_address", "_layout")

    def __init__(self, function: str, address: int) -> None:
        self._layout = arguments_of(function)
        self._address = address

    def _field(self, name: str) -> Any:
        offset, size = self._layout.offset_and_size(name)
        return _CTYPES[size].from_address(self._address + offset)

    def __getitem__(self, name: str) -> int:
        return self._field(name).value

    def __setitem__(self, name: str, value: int) -> None:
        self._field(name).value = value

    def has(self, name: str) -> bool:
        """Whether the caller's structure is new enough to have a field."""
        offset, size = self._layout.offset_and_size(name)
        return offset + size <= self["struct_size"]

    def data(self, name: str, size: str) -> bytes:
        """The bytes whose address is in the field ``name`` and whose number is in the field ``size``."""
        return ctypes.string_at(self[name], self[size])


class NamedValues:
    """Names with floats or lists of integers, as an array of the interface's named values: in memory that stays as
    long as this object.
    """

    def __init__(self, values: Mapping[str, float | Sequence[int]]) -> None:
        layout = arguments_of("NamedValue")
        self.count = len(values)
        self._memory = ctypes.create_string_buffer(layout.size * max(1, self.count))
        self._held: list[Any] = []
        self.address = ctypes.addressof(self._memory)
        for number, (name, value) in enumerate(values.items()):
            address = self.address + number * layout.size
            entry = ArgumentStruct("NamedValue", address)
            entry["struct_size"], entry["extension_start"] = layout.size, 0
            text = name.encode()
            entry["name"], entry["name_size"] = self._place(ctypes.create_string_buffer(text)), len(text)
            if isinstance(value, (int, float)):
                entry["type"], entry["value_size"] = _FLOAT, 1
                ctypes.c_float.from_address(address + layout.offset_and_size("value")[0]).value = value
            else:
                entry["type"], entry["value_size"] = _INTEGERS, len(value)
                entry["value"] = self._place((ctypes.c_int64 * len(value))(*value))

    def _place(self, memory: Any) -> int:
        self._held.append(memory)
        return ctypes.addressof(memory)
