"""Program: the result of compiling a module, which is all that is needed to run it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from xlakit.compile_cache import Entry
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.errors import FormatError, XlakitError

if TYPE_CHECKING:
    from xlakit.execution.groups import Grid
    from xlakit.ir.attributes import Annotations
    from xlakit.ir.instruction import HloModule, Instruction
    from xlakit.ir.operation import Array
    from xlakit.link import Link

# Constants larger than this are not stored in the cache entry; they are taken from the module when it is loaded. For
# smaller ones that would be slower: it parses the module, and so imports the parser at start-up.
_LARGE_CONSTANT = 1 << 20

# The names of the sections of an entry that may hold the module of host calls, by its format.
_TEXT, _PROTO = "host calls", "host module"

# The symbol of XLA's typed FFI API table, which handlers call back.
FFI_TABLE = "xlakit_ffi_table"


def c_symbol(name: str) -> str:
    """The symbol of the C function of a custom call in machine code; the name may have any characters."""
    return "xlakit_c_function_" + name.encode("utf-8", "surrogateescape").hex()


@dataclass(frozen=True, slots=True)
class Target:
    """The devices and external functions that a program is compiled for.

    grid: the devices that run it. c_functions: the custom calls that are C functions, with their addresses.
    native_collectives: whether machine code executes the collectives, which needs all devices in this process.
    lapack_calls: the custom calls that LAPACK implements and that no registered function replaces. link: the connection
    between the processes that run it, if there are several.
    """

    grid: Grid
    c_functions: Mapping[str, int] = field(default_factory=dict[str, int])
    native_collectives: bool = True
    lapack_calls: Collection[str] = frozenset()
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """Machine code, and the data that it is called with.

    objects: object files that are linked together. entry: the name of the function that runs it. imports: the symbols
    that it needs from the runtime and from libraries. constants: arrays whose addresses it gets. host_instructions: the
    instruction of each host call, by number; they belong to ``host_module``, the optimized program, which is None if
    there are none. in_place: for each result that may have the memory of an argument, the two numbers among arrays.
    collectives: the instruction of each rendezvous, by number. slots: the number of members of each rendezvous slot of
    a run.
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
        """The entry for the compile cache; ``module`` is the compiled module, which is there again for reading."""
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
        positions: Mapping[Instruction, list[int]] = {}
        names: list[tuple[int, str]] = []
        if self.host_module is not None:
            stored, positions = self._stored_calls(self.host_module)
            is_whole = stored is self.host_module
            sections |= _as_section(stored, is_whole=is_whole)
            names = [] if is_whole else [(position, i.name) for i, (_, position) in positions.items()]
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
                "names": names,
                "slots": self.slots,
            },
            sections,
        )

    def _stored_calls(self, module: HloModule) -> tuple[HloModule, dict[Instruction, list[int]]]:
        """The module that is kept of ``host_module``, and where the instructions that Python runs or names are in it.

        Custom calls need nothing of their program but themselves and what they call, and it may have thousands of
        other instructions. Of a host instruction of another kind, the whole is kept: the pair of a collective between
        processes, for one.
        """
        from xlakit.ops.custom_call import CustomCall

        if not all(isinstance(i.op, CustomCall) for i in self.host_instructions):
            return module, _positions(module)
        return _calls_alone(module, [*self.host_instructions, *self.collectives])

    @staticmethod
    def from_entry(entry: Entry, module: Callable[[], HloModule]) -> Program:
        """The program in an entry; raises FormatError if the entry does not fit.

        module: gives the compiled module. It is called only if constants are taken from it.
        """
        fields, sections = entry.fields, entry.sections
        try:
            constants = tuple(_constant(sections, module, *c) for c in fields["constants"])
            collectives = _Deferred(sections, fields["collectives"], fields["names"])
            locations = fields["host_instructions"]
            host_module = collectives.module if locations else None
            return Program(
                tuple(bytes(sections[f"object {number}"]) for number in range(fields["objects"])),
                fields["entry"],
                tuple(fields["imports"]),
                fields["arena_bytes"],
                constants,
                () if host_module is None else tuple(_instruction_at(host_module, *location) for location in locations),
                host_module,
                tuple((result, argument) for result, argument in fields["in_place"]),
                collectives,
                tuple(fields["slots"]),
            )
        except (KeyError, IndexError, TypeError, ValueError, XlakitError) as error:
            raise FormatError(f"it does not fit the program: {error}") from error


class _Deferred(Sequence["Instruction"]):
    """Instructions of a module that is parsed when one of them is first needed, which only error reports do."""

    def __init__(
        self,
        sections: Mapping[str, bytes | memoryview],
        positions: Sequence[Sequence[int]],
        names: Sequence[tuple[int, str]],
    ) -> None:
        self._text, self._proto = (bytes(sections.get(name, b"")) for name in (_TEXT, _PROTO))
        self._positions = positions
        self._names = names

    @cached_property
    def module(self) -> HloModule:
        """The parsed module."""
        from xlakit.ir.instruction import HloModule

        module = HloModule.from_text(_decoded(self._text)) if self._text else HloModule.from_proto(self._proto)
        return _renamed(module, self._names)

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, number: int) -> Instruction: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Instruction]: ...

    def __getitem__(self, number: int | slice) -> Instruction | Sequence[Instruction]:
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        return _instruction_at(self.module, *self._positions[number])


def _as_section(module: HloModule, *, is_whole: bool) -> dict[str, bytes]:
    """The section of a module that has the instructions that Python runs or names.

    Calls are text, whose reader is imported in a fifth of the time that protobuf takes. A whole program is a proto,
    which is read faster, and so are calls that a text would not give back: it leaves out precisions that are defaults,
    and has no frontend attributes whose names are not words.
    """
    from xlakit.ir.instruction import HloModule

    if not is_whole:
        with suppress(XlakitError):
            text = module.to_text().encode("utf-8", "surrogateescape")
            if HloModule.from_text(_decoded(text)) == module:
                return {_TEXT: text}
    return {_PROTO: module.to_proto()}


def _decoded(text: bytes) -> str:
    """HLO text, in which strings may have bytes that are no UTF-8."""
    return text.decode("utf-8", "surrogateescape")


def _constant_locations(module: HloModule) -> dict[int, list[int]]:
    """The positions of a module's large constants, keyed by the id of their arrays."""
    from xlakit.ops.data import Constant

    locations: dict[int, list[int]] = {}
    for instruction, position in _positions(module).items():
        if isinstance(instruction.op, Constant) and instruction.op.literal.shape.is_array:
            array = instruction.op.literal.array
            if array.nbytes > _LARGE_CONSTANT:
                locations[id(array)] = position
    return locations


def _constant(
    sections: Any, module: Callable[[], HloModule], kind: str, dimensions: list[int], location: str | list[int]
) -> Array:
    if not isinstance(location, str):
        from xlakit.ops.data import Constant

        return _instruction_at(module(), *location).op_as(Constant).literal.array
    dtype = PrimitiveType.from_name(kind).dtype
    # A copy has NumPy's alignment, a view of the entry none.
    return np.frombuffer(sections[location], dtype).reshape(dimensions).copy()


def _positions(module: HloModule) -> dict[Instruction, list[int]]:
    """The number of the computation of each instruction and its index there, which :func:`_instruction_at` takes."""
    return {
        instruction: [number, position]
        for number, computation in enumerate(module.computations)
        for position, instruction in enumerate(computation.instructions)
    }


def _calls_alone(module: HloModule, calls: Sequence[Instruction]) -> tuple[HloModule, dict[Instruction, list[int]]]:
    """A module that has some instructions of another one, and parameters for their other operands; their positions."""
    from xlakit.data.shape import make_tuple_shape
    from xlakit.ir.attributes import StackFrames
    from xlakit.ir.instruction import Computation, Instruction
    from xlakit.ops.data import Parameter, Tuple

    parameters: dict[Instruction, Instruction] = {}
    made: dict[Instruction, Instruction] = {}
    for call in dict.fromkeys(calls):
        for operand in call.operands:
            if operand not in made and operand not in parameters:
                number = len(parameters)
                name = f"{call.name}.operand.{number}"
                parameters[operand] = Instruction(Parameter(number=number), (), operand.shape, name)
        operands = [made.get(o) or parameters[o] for o in call.operands]
        made[call] = call.replace(operands=operands, control_predecessors=(), annotations=_located(module, call))
    root = Instruction(Tuple(), [*made.values()], make_tuple_shape([i.shape for i in made]), "calls")
    smaller = module.with_entry(Computation("calls", (*parameters.values(), *made.values(), root), root))
    if len(smaller.computations) == 1:
        smaller = smaller.replace(stack_frames=StackFrames())
    positions = _positions(smaller)
    return smaller, {old: positions[new] for old, new in made.items()}


def _renamed(module: HloModule, names: Sequence[tuple[int, str]]) -> HloModule:
    """A module whose entry's instructions at these positions have these names, which errors give.

    Calls of several computations may have the same name, and a name need not be one that a text can hold.
    """
    entry = module.entry
    new = {entry.instructions[position]: name for position, name in names}
    if all(old.name == name for old, name in new.items()):
        return module
    return module.replace(
        entry=entry.rebuild(lambda old, operands: old.replace(operands=operands, name=new.get(old, old.name)))
    )


def _located(module: HloModule, call: Instruction) -> Annotations:
    """The annotations of a call, which say where it comes from without the module's tables of all stack frames.

    These take longer to read than the rest of what is kept.
    """
    metadata, location = call.annotations.metadata, module.location_of(call)
    if metadata is None or location is None:
        return call.annotations
    file, line, column = location.file, location.line, location.column
    at = replace(metadata, source_file=file, source_line=line, source_column=column, stack_frame_id=0)
    return replace(call.annotations, metadata=at)


def _instruction_at(module: HloModule, computation: int, position: int) -> Instruction:
    return module.computations[computation].instructions[position]
