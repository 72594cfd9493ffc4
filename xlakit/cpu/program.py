"""Program: what is left of a module when it is compiled, which is all that running it takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from xlakit.compile_cache import Entry
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.errors import FormatError, XlakitError

if TYPE_CHECKING:
    from xlakit.execution.groups import Grid
    from xlakit.ir.instruction import HloModule, Instruction
    from xlakit.ir.operation import Array
    from xlakit.link import Link

# Constants of the module that are larger than this are not written to disk once more. To take a smaller one from there
# would take longer: in the first second, whatever reads programs would be loaded for that.
_LARGE_CONSTANT = 1 << 20


# The symbol of the table of functions that handlers of XLA's typed FFI call back.
FFI_TABLE = "xlakit_ffi_table"


def c_symbol(name: str) -> str:
    """The symbol by which machine code knows the C function of a custom call; the name may have any characters."""
    return "xlakit_c_function_" + name.encode("utf-8", "surrogateescape").hex()


@dataclass(frozen=True, slots=True)
class Target:
    """What a program is compiled for.

    grid: the devices that run it. c_functions: the custom calls that are C functions, with their addresses.
    native_collectives: whether machine code does the collectives, which needs all devices in this process.
    lapack_calls: the custom calls that are calls of LAPACK, and that no other function answers. link: between the
    processes that run it, where there are several.
    """

    grid: Grid
    c_functions: Mapping[str, int] = field(default_factory=dict[str, int])
    native_collectives: bool = True
    lapack_calls: Collection[str] = frozenset()
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """Machine code, and what it is called with.

    objects: object files that are linked together. entry: the name of the function that runs it. imports: what it takes
    from the runtime and from libraries. constants: arrays whose addresses it is given. host_instructions: what Python
    does for it, by the numbers of its host calls; they are instructions of ``host_module``, the optimized program,
    which is None where there are none. in_place: for each result that may lie in the memory of an argument, its number
    and the argument's, among arrays. collectives: instructions of the optimized program at which machine code meets
    other devices, by their numbers. slots: how many devices meet in each of the slots that a run has.
    """

    objects: tuple[bytes, ...]
    entry: str
    imports: tuple[str, ...]
    arena_bytes: int
    constants: tuple[Array, ...] = ()
    host_instructions: tuple[Instruction, ...] = ()
    host_module: HloModule | None = None
    in_place: tuple[tuple[int, int], ...] = ()
    collectives: Sequence[Instruction] = ()
    slots: tuple[int, ...] = ()

    def to_entry(self, module: HloModule) -> Entry:
        """What the compile cache keeps; ``module`` is what was compiled, which will be there again."""
        sections: dict[str, bytes | memoryview] = {f"object {number}": data for number, data in enumerate(self.objects)}
        locations = _constant_locations(module)
        constants: list[Any] = []
        for number, array in enumerate(self.constants):
            location = locations.get(id(array))
            if location is None:
                location = f"constant {number}"
                sections[location] = np.ascontiguousarray(array).tobytes()
            kind = PrimitiveType.from_dtype(array.dtype).hlo_name
            constants.append([kind, list(array.shape), location])
        if self.host_module is not None:
            sections["host module"] = self.host_module.to_proto()
        positions = {} if self.host_module is None else _positions(self.host_module)
        return Entry(
            {
                "objects": len(self.objects),
                "entry": self.entry,
                "imports": self.imports,
                "arena_bytes": self.arena_bytes,
                "constants": constants,
                "host_instructions": [positions[i] for i in self.host_instructions],
                "in_place": self.in_place,
                "collectives": [positions[i] for i in self.collectives],
                "slots": self.slots,
            },
            sections,
        )

    @staticmethod
    def from_entry(entry: Entry, module: Callable[[], HloModule]) -> Program:
        """The program that an entry holds; raises FormatError where that cannot be.

        module: gives what was compiled. It is called where constants are to be taken from there.
        """
        fields, sections = entry.fields, entry.sections
        try:
            constants = tuple(_constant(sections, module, *c) for c in fields["constants"])
            collectives = _Deferred(sections.get("host module"), fields["collectives"])
            locations = fields["host_instructions"]
            host_module = collectives.module if locations else None
            return Program(
                tuple(bytes(sections[f"object {number}"]) for number in range(fields["objects"])),
                fields["entry"],
                tuple(fields["imports"]),
                fields["arena_bytes"],
                constants,
                () if host_module is None else tuple(_at(host_module, *location) for location in locations),
                host_module,
                tuple((result, argument) for result, argument in fields["in_place"]),
                collectives,
                tuple(fields["slots"]),
            )
        except (KeyError, IndexError, TypeError, ValueError, XlakitError) as error:
            raise FormatError(f"it does not fit the program: {error}") from error


class _Deferred(Sequence["Instruction"]):
    """Instructions of a module that is read when one of them is asked for: only errors tell of them."""

    def __init__(self, proto: bytes | memoryview | None, positions: Sequence[Sequence[int]]) -> None:
        self._proto = b"" if proto is None else bytes(proto)
        self._positions = positions

    @cached_property
    def module(self) -> HloModule:
        """The module."""
        from xlakit.ir.instruction import HloModule

        return HloModule.from_proto(self._proto)

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, number: int) -> Instruction: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Instruction]: ...

    def __getitem__(self, number: int | slice) -> Instruction | Sequence[Instruction]:
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        return _at(self.module, *self._positions[number])


def _constant_locations(module: HloModule) -> dict[int, list[int]]:
    """Where in a module its large constants are, by the identity of their arrays."""
    from xlakit.ops.data import Constant

    found: dict[int, list[int]] = {}
    for instruction, position in _positions(module).items():
        if isinstance(instruction.op, Constant) and instruction.op.literal.shape.is_array:
            array = instruction.op.literal.array
            if array.nbytes > _LARGE_CONSTANT:
                found[id(array)] = position
    return found


def _constant(
    sections: Any, module: Callable[[], HloModule], kind: str, dimensions: list[int], location: str | list[int]
) -> Array:
    if not isinstance(location, str):
        from xlakit.ops.data import Constant

        return _at(module(), *location).op_as(Constant).literal.array
    dtype = PrimitiveType.from_name(kind).dtype
    # A copy lies where NumPy aligns it.
    return np.frombuffer(sections[location], dtype).reshape(dimensions).copy()


def _positions(module: HloModule) -> dict[Instruction, list[int]]:
    """For each instruction the number of its computation and its index there, as :func:`_at` takes them."""
    return {
        instruction: [number, position]
        for number, computation in enumerate(module.computations)
        for position, instruction in enumerate(computation.instructions)
    }


def _at(module: HloModule, computation: int, position: int) -> Instruction:
    return module.computations[computation].instructions[position]
