"""The arguments that the candidates of a reduction run with: as parameters change, their values change with them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xlakit.data.literal import Array
from xlakit.data.shape import ProgramShape, Shape
from xlakit.execution.inputs import make_inputs, make_value
from xlakit.formats.npz import write_arrays
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import TOKEN
from xlakit.tools.inputs import flatten, made_up, read_inputs


@dataclass(frozen=True)
class Arguments:
    """Values for parameters: made up from a seed as ``xlakit run`` makes them up, or given by the parameters' names.

    given: the arrays of parameters by name; of tuples by name and index (``p.0.1``).
    path: the file that they are from, for messages.
    """

    seed: int = 0
    given: Mapping[str, Array] = field(default_factory=dict[str, Array])
    path: str = ""

    @staticmethod
    def from_file(path: str, program: ProgramShape, seed: int = 0) -> Arguments:
        """The arguments in a file, as ``xlakit run --input`` reads it. Raises ArgumentError, FormatError, OSError."""
        values = read_inputs(path, program)
        return Arguments(seed, _flat(names_of(program), values), path)

    @property
    def options(self) -> str:
        """The options of the command line."""
        return " ".join([f"--input {self.path}"] * bool(self.path) + [f"--seed {self.seed}"] * bool(self.seed))

    def values(self, program: ProgramShape, entry: Computation | None = None) -> list[Any]:
        """A value for each parameter; made up for an entry, it fits what that does with it.

        Where arrays were given, one that is smaller than it was has its first elements, and a new one is made up from
        the seed and its name.
        """
        if not self.given:
            return make_inputs(program, self.seed) if entry is None else made_up(entry, program, self.seed)
        return [self._value(name, s) for name, s in zip(names_of(program), program.parameters, strict=True)]

    def _value(self, name: str, shape: Shape) -> Any:
        if shape.is_tuple:
            return tuple(self._value(f"{name}.{i}", s) for i, s in enumerate(shape.tuple_shapes))
        if shape.is_token:
            return TOKEN
        array = self.given.get(name)
        if array is None or array.ndim != shape.rank or any(a < d for a, d in zip(array.shape, shape.dimensions)):  # noqa: B905
            return make_value(shape, np.random.default_rng([self.seed, zlib.crc32(name.encode())]))
        part = array[tuple(slice(size) for size in shape.dimensions)]
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(part).astype(shape.element_type.dtype).reshape(shape.dimensions)

    def save(self, path: Path, program: ProgramShape) -> None:
        """Write the values of a program's parameters, for ``xlakit run --input``."""
        write_arrays(path, _flat(names_of(program), self.values(program)))


def names_of(program: ProgramShape) -> tuple[str, ...]:
    """The names of a program's parameters, or their numbers."""
    return program.parameter_names or tuple(f"arg{i}" for i in range(len(program.parameters)))


def _flat(names: Sequence[str], values: Sequence[Any]) -> dict[str, Array]:
    leaves: dict[str, Array] = {}
    for name, value in zip(names, values, strict=True):
        leaves |= flatten(value, name)
    return leaves
