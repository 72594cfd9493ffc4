"""Program: what is left of a module when it is compiled, which is all that running it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xlakit.cpu.cache import Entry
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import FormatError, XlakitError
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import Array
from xlakit.ops.data import Constant

# Constants of the module that are larger than this are not written to disk once more.
_LARGE_CONSTANT = 4096


@dataclass(frozen=True, slots=True)
class Program:
    """Machine code, and what it is called with.

    entry: the name of the function that runs it. imports: what it takes from the runtime and from libraries.
    constants: arrays whose addresses it is given. host_instructions: what Python does for it, by the numbers of its
    host calls; they are instructions of ``host_module``, the optimised program, which is None where there are none.
    in_place: for each result that may lie in the memory of an argument, its number and the argument's, among arrays.
    """

    object_data: bytes
    entry: str
    imports: tuple[str, ...]
    arena_bytes: int
    constants: tuple[Array, ...] = ()
    host_instructions: tuple[Instruction, ...] = ()
    host_module: HloModule | None = None
    in_place: tuple[tuple[int, int], ...] = ()

    def to_entry(self, module: HloModule) -> Entry:
        """What the compile cache keeps; ``module`` is what was compiled, which will be there again."""
        sections: dict[str, bytes | memoryview] = {"object": self.object_data}
        places = _constant_places(module)
        constants: list[Any] = []
        for number, array in enumerate(self.constants):
            place = places.get(id(array))
            if place is None:
                place = f"constant {number}"
                sections[place] = np.ascontiguousarray(array).tobytes()
            kind = PrimitiveType.from_dtype(array.dtype).hlo_name
            constants.append([kind, list(array.shape), place])
        if self.host_module is not None:
            sections["host module"] = self.host_module.to_proto()
        positions = {} if self.host_module is None else _positions(self.host_module)
        return Entry(
            {
                "entry": self.entry,
                "imports": self.imports,
                "arena_bytes": self.arena_bytes,
                "constants": constants,
                "host_instructions": [positions[i] for i in self.host_instructions],
                "in_place": self.in_place,
            },
            sections,
        )

    @staticmethod
    def from_entry(entry: Entry, module: HloModule) -> Program:
        """The program that an entry holds; raises FormatError where that cannot be."""
        fields, sections = entry.fields, entry.sections
        try:
            constants = tuple(_constant(sections, module, *c) for c in fields["constants"])
            host_module = HloModule.from_proto(bytes(sections["host module"])) if "host module" in sections else None
            places = fields["host_instructions"]
            return Program(
                bytes(sections["object"]),
                fields["entry"],
                tuple(fields["imports"]),
                fields["arena_bytes"],
                constants,
                () if host_module is None else tuple(_at(host_module, *place) for place in places),
                host_module,
                tuple((result, argument) for result, argument in fields["in_place"]),
            )
        except (KeyError, IndexError, TypeError, ValueError, XlakitError) as error:
            raise FormatError(f"it does not fit the program: {error}") from error


def _constant_places(module: HloModule) -> dict[int, list[int]]:
    """Where in a module its large constants are, by the identity of their arrays."""
    found: dict[int, list[int]] = {}
    for instruction, position in _positions(module).items():
        if isinstance(instruction.op, Constant) and instruction.op.literal.shape.is_array:
            array = instruction.op.literal.array
            if array.nbytes > _LARGE_CONSTANT:
                found[id(array)] = position
    return found


def _constant(sections: Any, module: HloModule, kind: str, dimensions: list[int], place: str | list[int]) -> Array:
    if not isinstance(place, str):
        return _at(module, *place).op_as(Constant).literal.array
    dtype = PrimitiveType.from_name(kind).dtype
    # A copy lies where NumPy aligns it.
    return np.frombuffer(sections[place], dtype).reshape(dimensions).copy()


def _positions(module: HloModule) -> dict[Instruction, list[int]]:
    return {
        instruction: [number, position]
        for number, computation in enumerate(module.computations)
        for position, instruction in enumerate(computation.instructions)
    }


def _at(module: HloModule, computation: int, position: int) -> Instruction:
    return module.computations[computation].instructions[position]
