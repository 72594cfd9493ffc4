"""Arrays of any size up to their bounds, as compiled programs take and give them: padded, with their sizes beside them.

The other side of ``passes/dynamic/padding.py``, which says the order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.cpu.runtime.call import allocate_array
from xlakit.data.shape import Shape
from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import Array

_SIZE = np.dtype(np.int32)


class DynamicArrays:
    """The arrays that a program takes and gives, some of them of dynamic dimensions."""

    def __init__(self, arguments: Sequence[Shape], results: Sequence[Shape]) -> None:
        self._arguments = arguments
        self._results = results

    @staticmethod
    def of(module: HloModule) -> DynamicArrays | None:
        """Those of a module; None where no dimension of them is dynamic."""
        arguments = [leaf for p in module.entry.parameters for _, leaf in p.shape.leaves() if leaf.is_array]
        results = [leaf for _, leaf in module.entry.root.shape.leaves() if leaf.is_array]
        if not any(shape.is_dynamic for shape in (*arguments, *results)):
            return None
        return DynamicArrays(arguments, results)

    def padded(self, arrays: Sequence[Array]) -> list[Array]:
        """Arguments as the program takes them: each at its bounds, then all sizes."""
        full: list[Array] = []
        sizes: list[Array] = []
        for array, shape in zip(arrays, self._arguments, strict=True):
            full.append(array if array.shape == shape.dimensions else _at_bounds(array, shape))
            sizes += [np.array(array.shape[d], _SIZE) for d in _dynamic_dimensions(shape)]
        return [*full, *sizes]

    def size_arrays(self) -> list[Array]:
        """Fresh arrays for the sizes that the program gives, behind those for its results."""
        return [allocate_array((), _SIZE) for shape in self._results for _ in _dynamic_dimensions(shape)]

    def cut(self, arrays: Sequence[Array]) -> list[Array]:
        """Results as the caller gets them, each of the sizes that the program gave."""
        count = len(self._results)
        sizes = iter(arrays[count:])
        found: list[Array] = []
        for array, shape in zip(arrays[:count], self._results, strict=True):
            parts = [slice(None)] * array.ndim
            for d in _dynamic_dimensions(shape):
                parts[d] = slice(int(next(sizes)))
            part = array[tuple(parts)]
            # A view would keep the memory of the padding alive.
            found.append(array if part.shape == array.shape else part.copy())
        return found


def _dynamic_dimensions(shape: Shape) -> list[int]:
    return [d for d, mark in enumerate(shape.dynamic_dimensions) if mark]


def _at_bounds(array: Array, shape: Shape) -> Array:
    """The array in the low corner of a fresh one at its bounds, with zeros around it."""
    full = allocate_array(shape.dimensions, array.dtype)
    full[...] = array.dtype.type(0)
    full[tuple(slice(0, n) for n in array.shape)] = array
    return full
