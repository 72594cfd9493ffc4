"""Arguments for a program: read from a file, or made up from a seed in ranges that suit the types."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from xlakit.data.literal import Array
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import ProgramShape, Shape
from xlakit.errors import ArgumentError, FormatError, UnsupportedError
from xlakit.ir.operation import TOKEN

# Elements that are drawn at a time: NumPy draws in wider types, of which a large array would take several times more.
_PIECE = 1 << 16


def make_inputs(program: ProgramShape, seed: int) -> list[Any]:
    """One value for each parameter, the same for the same seed.

    Floats and complex numbers are normal, signed integers small and not negative (they are often indices or labels),
    unsigned integers cover their range (they are often bits or keys), PRED is a fair coin.
    """
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


def read_inputs(path: str, program: ProgramShape) -> list[Any]:
    """The parameters' values from an ``.npz`` file (or one ``.npy`` for a single parameter).

    Arrays are found by the parameter's name, its number, or ``arg<number>``; elements of tuples by ``0.1``.
    Raises ArgumentError where one is missing, FormatError where the file is not NumPy's.
    """
    arrays = _load_arrays(path)
    names = program.parameter_names or ("",) * len(program.parameters)
    return [
        _read(arrays, [name, str(i), f"arg{i}"] if name else [str(i), f"arg{i}"], shape, Path(path).name)
        for i, (name, shape) in enumerate(zip(names, program.parameters, strict=True))
    ]


def _load_arrays(path: str) -> dict[str, Array]:
    with Path(path).open("rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            return {"0": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        # What NumPy, zipfile and zlib raise for files that are damaged, hold Python objects, or are something else.
        except (ValueError, EOFError, BadZipFile, zlib.error, RuntimeError, MemoryError):
            raise FormatError(
                f"{path} is not a file of NumPy arrays, or is damaged",
                hint="save one with numpy.savez; no object arrays",
            ) from None


def _read(arrays: dict[str, Array], keys: list[str], shape: Shape, file: str) -> Any:
    if shape.is_tuple:
        return tuple(_read(arrays, [f"{key}.{i}" for key in keys], s, file) for i, s in enumerate(shape.tuple_shapes))
    if shape.is_token:
        return TOKEN
    for key in keys:
        if key in arrays:
            array = arrays[key]
            wanted = shape.element_type.dtype
            # NumPy writes types that it does not know (bf16, f8, s4) as raw bytes.
            return array.view(wanted) if array.dtype.kind == "V" and array.itemsize == wanted.itemsize else array
    raise ArgumentError(
        f"{file} has no array for parameter {' or '.join(keys)}",
        hint=f"it has: {', '.join(sorted(arrays)) or 'nothing'}",
    )


def flatten(value: Any, prefix: str = "") -> dict[str, Array]:
    """The arrays in a nested tuple by their index (``0.1``; ``result`` for a value that is no tuple)."""
    if isinstance(value, tuple):
        leaves: dict[str, Array] = {}
        for i, element in enumerate(value):  # pyright: ignore[reportUnknownVariableType]
            leaves.update(flatten(element, f"{prefix}.{i}" if prefix else str(i)))
        return leaves
    return {} if value is None or value is TOKEN else {prefix or "result": np.asarray(value)}
