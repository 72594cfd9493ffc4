"""Argument structures of the interface's functions, read and written by Python."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from xlakit.jax.api.arguments import arguments_of

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
