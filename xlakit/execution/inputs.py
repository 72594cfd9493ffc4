"""Random arguments for a program, generated from a seed in ranges that suit the types."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import ProgramShape, Shape
from xlakit.errors import ResourceError, UnsupportedError
from xlakit.ir.operation import TOKEN, Array
from xlakit.settings import memory_limit

# The number of elements drawn at a time: NumPy draws in wider types, so a large array would need a larger temporary.
_PIECE = 1 << 16


def make_inputs(program: ProgramShape, seed: int) -> list[Any]:
    """One value for each parameter, the same for the same seed.

    Floats and complex numbers are normal, signed integers small and not negative (they are often indices or labels),
    unsigned integers cover their range (they are often bits or keys), PRED is a fair coin.

    Raises ResourceError where they need more memory than ``XLAKIT_MEMORY_LIMIT`` allows, before any is made, and
    UnsupportedError for a shape of which no value can be made up.
    """
    arrays = [leaf for shape in program.parameters for _, leaf in shape.leaves() if leaf.is_array]
    needed = sum(leaf.element_type.byte_width * math.prod(max(size, 0) for size in leaf.dimensions) for leaf in arrays)
    if needed > memory_limit():
        raise ResourceError(
            f"the arguments need {needed:,} bytes, the limit is {memory_limit():,}",
            hint="the environment variable XLAKIT_MEMORY_LIMIT sets the limit, in bytes",
        )
    rng = np.random.default_rng(seed)
    return [make_value(shape, rng) for shape in program.parameters]


def make_value(shape: Shape, rng: np.random.Generator) -> Any:
    """A value of a shape, in a range that suits its type. Raises UnsupportedError where none can be made up."""
    if shape.is_tuple:
        return tuple(make_value(s, rng) for s in shape.tuple_shapes)
    if shape.is_token:
        return TOKEN
    if not shape.is_array or any(size < 0 for size in shape.dimensions):
        raise UnsupportedError(f"no value can be made up for a parameter of shape {shape}", hint="give --input")
    kind, size = shape.element_type, shape.dimensions
    values = np.empty(math.prod(size), kind.dtype)
    for part in (values.real, values.imag) if kind.is_complex else (values,):
        for first in range(0, part.size, _PIECE):
            part[first : first + _PIECE] = _drawn(kind, rng, min(_PIECE, part.size - first))
    return values.reshape(size)


def _drawn(kind: PrimitiveType, rng: np.random.Generator, count: int) -> Array:
    """So many elements, or real or imaginary parts, in a type that NumPy draws."""
    if kind is PrimitiveType.PRED:
        return rng.integers(0, 2, count).astype(np.bool_)
    if kind.is_unsigned:
        return rng.integers(0, 1 << min(kind.bit_width, 63), count, dtype=np.uint64).astype(kind.dtype)
    if kind.is_signed:
        return rng.integers(0, min(8, 1 << (kind.bit_width - 1)), count).astype(kind.dtype)
    values = rng.standard_normal(count)
    return np.exp2(np.round(values)) if kind is PrimitiveType.F8E8M0FNU else values
