"""The sizes of LAPACK's workspaces: each routine is queried once for each call, when code is generated."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.linalg import lapack_routines as routines
from xlakit.cpu.kernels.shared import blas

_LARGEST = 2**31 - 1


def workspace_counts(call: routines.Call) -> dict[str, int]:
    """The number of elements of each workspace of a call, by name.

    They are at least what LAPACK's documentation requires, so code from the cache may run with another LAPACK. Raises
    DeclinedError if a number does not fit 32 bits.
    """
    counts = {work.name: work.count for work in call.works}
    queried = [work for work in call.works if work.is_asked]
    if queried:
        first = _workspace_query(call)
        for work in queried:
            counts[work.name] = max(work.count, _count(first[work.name]))
    if any(count > _LARGEST for count in counts.values()):
        raise DeclinedError(f"{call.routine} needs workspaces that its integers cannot count")
    return counts


def _count(first: Any) -> int:
    """A size that a routine has written as an element of its workspace."""
    number = np.real(first)
    if number.dtype == np.float32:
        # It may have been rounded down.
        number = np.nextafter(number, np.float32(np.inf))
    return math.ceil(float(number))


def _workspace_query(call: routines.Call) -> Mapping[str, Any]:
    """The first elements of the workspaces after a workspace query, which reports sizes and reads no array."""
    works = {work.name: np.zeros(4, work.kind.dtype) for work in call.works}
    anywhere = np.zeros(8, np.complex128)
    buffers: list[Any] = []

    def address(argument: routines.Argument) -> int | None:
        if isinstance(argument, routines.Work):
            return works[argument.name].ctypes.data
        if isinstance(argument, (routines.Operand, routines.Result)):
            return anywhere.ctypes.data
        if isinstance(argument, routines.Null):
            return None
        buffer = ctypes.create_string_buffer(_bytes(argument), 16)
        buffers.append(buffer)
        return ctypes.addressof(buffer)

    addresses = [address(argument) for argument in call.arguments]
    lengths = sum(isinstance(argument, routines.Letter) for argument in call.arguments)
    kinds = [ctypes.c_void_p] * len(addresses) + [ctypes.c_int64] * lengths
    ctypes.CFUNCTYPE(None, *kinds)(blas.address(call.routine))(*addresses, *[1] * lengths)
    return {name: memory[0] for name, memory in works.items()}


def _bytes(argument: routines.Letter | routines.Integer | routines.Data | routines.WorkSize) -> bytes:
    if isinstance(argument, routines.Letter):
        return argument.text.encode()
    if isinstance(argument, routines.Data):
        return argument.data
    number = argument.number if isinstance(argument, routines.Integer) else -1
    return number.to_bytes(4, "little", signed=True)
