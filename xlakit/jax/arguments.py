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


class NamedFloats:
    """Names with numbers, as an array of the interface's named values: in memory that stays as long as this object."""

    def __init__(self, values: Mapping[str, float]) -> None:
        layout = arguments_of("NamedValue")
        self.count = len(values)
        self._memory = ctypes.create_string_buffer(layout.size * max(1, self.count))
        self._names = [ctypes.create_string_buffer(name.encode()) for name in values]
        self.address = ctypes.addressof(self._memory)
        for number, (name, value) in enumerate(zip(self._names, values.values(), strict=True)):
            address = self.address + number * layout.size
            entry = ArgumentStruct("NamedValue", address)
            entry["struct_size"], entry["extension_start"] = layout.size, 0
            entry["name"], entry["name_size"] = ctypes.addressof(name), len(name.value)
            entry["type"], entry["value_size"] = _FLOAT, 1
            ctypes.c_float.from_address(address + layout.offset_and_size("value")[0]).value = value


class NamedIntegers:
    """One name with a list of whole numbers, in memory that stays as long as this object."""

    def __init__(self, name: str, values: Sequence[int]) -> None:
        layout = arguments_of("NamedValue")
        self._memory = ctypes.create_string_buffer(layout.size)
        self._name = ctypes.create_string_buffer(name.encode())
        self._values = (ctypes.c_int64 * len(values))(*values)
        self.address = ctypes.addressof(self._memory)
        entry = ArgumentStruct("NamedValue", self.address)
        entry["struct_size"], entry["extension_start"] = layout.size, 0
        entry["name"], entry["name_size"] = ctypes.addressof(self._name), len(self._name.value)
        entry["type"], entry["value_size"] = _INTEGERS, len(values)
        entry["value"] = ctypes.addressof(self._values)
