"""Arguments for a program, made up, or read from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from xlakit.data.literal import Array
from xlakit.data.shape import ProgramShape, Shape
from xlakit.errors import ArgumentError
from xlakit.execution.inputs import make_inputs
from xlakit.formats.npz import read_arrays
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import TOKEN
from xlakit.ops.data import Copy, Parameter
from xlakit.ops.dynamic import SetDimensionSize
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.movement import Reshape


def made_up(entry: Computation, program: ProgramShape, seed: int) -> list[Any]:
    """Arguments from a seed, as :func:`make_inputs` draws them, for an entry whose whole arguments have these shapes.

    Sizes that ``set-dimension-size`` takes lie within the bounds. Raises what make_inputs raises.
    """
    values = make_inputs(program, seed)
    for number, largest in _size_limits(entry).items():
        # An element type may not hold the bound, and then none of its values exceeds it.
        if largest < np.iinfo(values[number].dtype).max:
            values[number] = np.mod(values[number], values[number].dtype.type(largest + 1))
    return values


def _size_limits(entry: Computation) -> dict[int, int]:
    """The largest value of each parameter that is the size of a dimension, by its number."""
    limits: dict[int, int] = {}
    for instruction in entry.instructions:
        if isinstance(instruction.op, SetDimensionSize):
            array, size = instruction.operands
            while isinstance(size.op, (Convert, Copy, Reshape)):
                size = size.operands[0]
            if isinstance(size.op, Parameter) and size.shape.element_type.is_integral:
                bound = array.shape.dimensions[instruction.op.dimension]
                limits[size.op.number] = min(bound, limits.get(size.op.number, bound))
    return limits


def read_inputs(path: str, program: ProgramShape) -> list[Any]:
    """The parameters' values from an ``.npz`` file (or one ``.npy`` for a single parameter).

    Arrays are found by the parameter's name, its number, or ``arg<number>``; elements of tuples by ``0.1``.
    Raises ArgumentError where one is missing, FormatError where the file is not NumPy's.
    """
    arrays = read_arrays(Path(path))
    names = program.parameter_names or ("",) * len(program.parameters)
    return [
        _read(arrays, [name, str(i), f"arg{i}"] if name else [str(i), f"arg{i}"], shape, Path(path).name)
        for i, (name, shape) in enumerate(zip(names, program.parameters, strict=True))
    ]


def _read(arrays: dict[str, Array], keys: list[str], shape: Shape, file: str) -> Any:
    if shape.is_tuple:
        return tuple(_read(arrays, [f"{key}.{i}" for key in keys], s, file) for i, s in enumerate(shape.tuple_shapes))
    if shape.is_token:
        return TOKEN
    for key in keys:
        if key in arrays:
            array = arrays[key]
            dtype = shape.element_type.dtype
            # Raw bytes are those of a type that NumPy does not know.
            return array.view(dtype) if array.dtype.kind == "V" and array.itemsize == dtype.itemsize else array
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
