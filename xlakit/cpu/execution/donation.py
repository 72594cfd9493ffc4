"""Donated arguments: the pairs of results and arguments that may share memory, and reuse of that memory in a call."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from xlakit.data.nesting import leaves_of
from xlakit.ir.operation import TOKEN, Array, Value
from xlakit.memory.values import ALIGNMENT

# The number of a result array, and the number of an argument array whose memory the result may have.
Pair = tuple[int, int]


def arrays_of(value: Value) -> list[Array]:
    """The arrays in a value, in order; tokens have none."""
    return [leaf for leaf in leaves_of(value) if leaf is not TOKEN]


def donated_pairs(pairs: Sequence[Pair], arguments: Sequence[Value], donate: Sequence[int]) -> list[Pair]:
    """The pairs whose argument array belongs to a donated argument; ``donate`` has the numbers of donated arguments."""
    owners = [number for number, value in enumerate(arguments) for _ in arrays_of(value)]
    return pairs_among(pairs, {array for array, owner in enumerate(owners) if owner in donate})


def pairs_among(pairs: Sequence[Pair], donated: Set[int]) -> list[Pair]:
    """The pairs whose argument array is in ``donated``."""
    return [pair for pair in pairs if pair[1] in donated]


def reuse_memory(results: list[Array], arguments: Sequence[Array], pairs: Sequence[Pair]) -> None:
    """Replaces results by arrays in the memory of their donated arguments, where that memory is safe to write."""
    for result, argument in pairs:
        if _can_be_written(arguments, argument):
            results[result] = _memory_for(results[result], arguments[argument])


def _can_be_written(arrays: Sequence[Array], number: int) -> bool:
    """Whether an argument is writable and aligned, and shares its memory with no other argument."""
    array = arrays[number]
    if not array.flags.writeable or array.ctypes.data % ALIGNMENT:
        return False
    return not any(np.may_share_memory(array, other) for n, other in enumerate(arrays) if n != number)


def _memory_for(result: Array, memory: Array) -> Array:
    """An array of a result's type and shape, in the memory of an argument.

    Both have the same number of bytes; a module may pair values of different types or dimensions.
    """
    if memory.dtype == result.dtype and memory.shape == result.shape:
        return memory
    return memory.reshape(-1).view(result.dtype).reshape(result.shape)
