"""Arrays with dynamic dimensions at the border of a compiled program: padded to their bounds, with their sizes added.

``passes/dynamic/padding.py`` makes the program that takes and gives these arrays, and defines their order.
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
    """Converts between the caller's arrays and those of a program some of whose dimensions are dynamic."""

    def __init__(self, arguments: Sequence[Shape], results: Sequence[Shape]) -> None:
        self._arguments = arguments
        self._results = results

    @staticmethod
    def of(module: HloModule) -> DynamicArrays | None:
        """The converter of a module; None if none of its argument and result arrays has a dynamic dimension."""
        arguments = [leaf for p in module.entry.parameters for _, leaf in p.shape.leaves() if leaf.is_array]
        results = [leaf for _, leaf in module.entry.root.shape.leaves() if leaf.is_array]
        if not any(shape.is_dynamic for shape in (*arguments, *results)):
            return None
        return DynamicArrays(arguments, results)

    def padded(self, arrays: Sequence[Array]) -> list[Array]:
        """The program's arguments: each array padded to its bounds, followed by the sizes of all dynamic dimensions."""
        full: list[Array] = []
        sizes: list[Array] = []
        for array, shape in zip(arrays, self._arguments, strict=True):
            full.append(array if array.shape == shape.dimensions else _at_bounds(array, shape))
            sizes += [np.array(array.shape[d], _SIZE) for d in _dynamic_dimensions(shape)]
        return [*full, *sizes]

    def size_arrays(self) -> list[Array]:
        """New scalars for the sizes of the results' dynamic dimensions, which the program writes after its results."""
        return [allocate_array((), _SIZE) for shape in self._results for _ in _dynamic_dimensions(shape)]

    def cut(self, arrays: Sequence[Array]) -> list[Array]:
        """The caller's results: each array cut to the sizes that the program wrote."""
        count = len(self._results)
        sizes = iter(arrays[count:])
        results: list[Array] = []
        for array, shape in zip(arrays[:count], self._results, strict=True):
            parts = [slice(None)] * array.ndim
            for d in _dynamic_dimensions(shape):
                parts[d] = slice(int(next(sizes)))
            part = array[tuple(parts)]
            # A view would keep the memory of the padding alive.
            results.append(array if part.shape == array.shape else part.copy())
        return results


def _dynamic_dimensions(shape: Shape) -> list[int]:
    return [d for d, mark in enumerate(shape.dynamic_dimensions) if mark]


def _at_bounds(array: Array, shape: Shape) -> Array:
    """A new array with the dimensions of ``shape`` that has ``array`` at its origin and zeros elsewhere."""
    full = allocate_array(shape.dimensions, array.dtype)
    full[...] = array.dtype.type(0)
    full[tuple(slice(0, n) for n in array.shape)] = array
    return full
