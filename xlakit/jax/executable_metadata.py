"""The metadata that JAX queries for every program: its name, the number of its arguments, its results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from xlakit.dataclass import dataclass
from xlakit.errors import FormatError
from xlakit.jax.api.numbers import TYPE_NUMBERS
from xlakit.jax.devices import MEMORY_KINDS, MEMORY_SPACES
from xlakit.runtime.layouts import minor_to_major

if TYPE_CHECKING:
    from xlakit.data.shape import Shape
    from xlakit.ir.instruction import HloModule
    from xlakit.jax.spanning import SpanningExecutable
    from xlakit.runtime.executable import LoadedExecutable


@dataclass(frozen=True, slots=True)
class Result:
    """An array that a program returns: PJRT's number of its type, its dimensions, size in bytes and kind of memory.

    order: its dimensions from the minor to the major one; empty for major to minor.
    """

    type: int
    dimensions: tuple[int, ...]
    bytes: int
    memory: str
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutableMetadata:
    """The metadata of a program, available without its module and its machine code.

    orders: for each argument its dimensions from the minor to the major one; empty for major to minor.
    donated: numbers of the arguments whose buffers the program takes. in_place: results that may be computed in the
    memory of an argument, with the argument's number. fingerprint: of the program, for JAX. devices: the numbers of the
    devices that run it.
    """

    name: str
    orders: tuple[tuple[int, ...], ...]
    results: tuple[Result, ...]
    donated: tuple[int, ...]
    in_place: tuple[tuple[int, int], ...]
    fingerprint: str
    num_replicas: int
    num_partitions: int
    devices: tuple[int, ...]

    @staticmethod
    def of(loaded: LoadedExecutable | SpanningExecutable, module: HloModule, description: bytes) -> ExecutableMetadata:
        """The metadata of a compiled program; the module says the layouts that JAX sees."""
        program = module.program_shape
        leaves = [leaf for _, leaf in program.result.leaves()]
        # A program that Python runs copies its results from arrays, so none is computed in place.
        in_place = tuple(loaded.in_place) if loaded.native_entry is not None else ()
        return ExecutableMetadata(
            module.name,
            tuple(map(minor_to_major, program.parameters)),
            tuple(
                Result(
                    TYPE_NUMBERS[s.element_type], tuple(s.dimensions), s.byte_size, _memory_kind(s), minor_to_major(s)
                )
                for s in leaves
            ),
            tuple(sorted(_donated(module, in_place))),
            in_place,
            hashlib.sha256(description).hexdigest(),
            loaded.num_replicas,
            loaded.num_partitions,
            tuple(device.id for device in loaded.local_devices()),
        )

    def fields(self) -> dict[str, Any]:
        """The metadata as values that JSON can represent."""
        return asdict(self)

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> ExecutableMetadata:
        """The inverse of :meth:`fields`. Raises FormatError for anything else."""
        try:
            values: dict[str, Any] = dict(fields)
            values["results"] = tuple(
                Result(r["type"], tuple(r["dimensions"]), r["bytes"], r["memory"], tuple(r["order"]))
                for r in fields["results"]
            )
            values["orders"] = tuple(map(tuple, fields["orders"]))
            values["in_place"] = tuple((result, argument) for result, argument in fields["in_place"])
            values["donated"], values["devices"] = tuple(fields["donated"]), tuple(fields["devices"])
            return ExecutableMetadata(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"this is not the metadata of a program: {error}") from error


def _donated(module: HloModule, in_place: Sequence[tuple[int, int]]) -> set[int]:
    """The arguments whose buffers a program takes: those that XLA would pair with a result.

    An offered argument (``buffer_donor``) is paired with a result of as many bytes, and is kept if no such result is
    left. Arguments that the program may write to (``in_place``) are paired first.
    """
    paired = {entry.output_index for entry in module.input_output_alias}
    leaves = enumerate(module.program_shape.result.leaves())
    written = {result for result, _ in in_place}
    remaining = [leaf.byte_size for n, (index, leaf) in leaves if index not in paired and n not in written]
    donated = {entry.parameter_number for entry in module.input_output_alias} | {argument for _, argument in in_place}
    for number in sorted({entry.parameter_number for entry in module.buffer_donor} - donated):
        size = module.program_shape.parameters[number].byte_size
        if size in remaining:
            remaining.remove(size)
            donated.add(number)
    return donated


def _memory_kind(shape: Shape) -> str:
    """The kind of memory that the layout of a result names; an unknown memory space means the device's memory."""
    space = shape.layout.memory_space if shape.layout is not None else 0
    return next((kind for kind, number in MEMORY_SPACES.items() if number == space), MEMORY_KINDS[0])
