"""Fingerprints of programs, by which processes check that they run the same one, and of locations in programs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from xlakit.data.literal import Literal
from xlakit.execution.program import Program
from xlakit.execution.session import PreparedCollective, RendezvousKey
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Kind, Op

_LONGEST_SIGNATURE = 200


@dataclass(slots=True)
class Fingerprint:
    """The identity of a program across processes.

    number: a hash, the same in all processes, wherever the source files are, and not 0. text: the program's description
    in errors. locations: a cache of :meth:`location`. prepared: the prepared collectives, by instruction, device and
    the processes of devices.
    """

    number: int
    text: str
    locations: dict[tuple[object, ...], tuple[int, str]] = field(default_factory=dict)
    prepared: dict[tuple[object, ...], PreparedCollective | None] = field(default_factory=dict)

    @staticmethod
    def of(program: Program) -> Fingerprint:
        """The fingerprint of a program."""
        lines = [f"{program.grid.num_replicas} {program.grid.num_partitions}"]
        for computation in program.module.computations:
            lines.append(f"{computation.name} {computation.root.name}")
            for instruction in computation.instructions:
                operands = " ".join(operand.name for operand in instruction.operands)
                attributes = _attributes(instruction.op)
                lines.append(f"{instruction.name} {instruction.opcode} {instruction.shape} {operands} {attributes}")
        number = digest("\n".join(lines)) or 1
        signature = program.module.entry.program_shape.to_string(with_layout=False)
        if len(signature) > _LONGEST_SIGNATURE:
            signature = signature[:_LONGEST_SIGNATURE] + ".."
        return Fingerprint(number, f"{program.module.name} {signature}, of digest {number % 2**64:016x}")

    def location(self, program: Program, rendezvous: RendezvousKey, kind: str) -> tuple[int, str]:
        """A number for the site and group of a rendezvous, the same in all processes; and its name in errors.

        kind: what the members exchange there.
        """
        instruction = rendezvous.instruction
        # Keyed by id(instruction), which is unique, as instructions live as long as the program.
        key = id(instruction), kind, rendezvous.members
        number_and_name = self.locations.get(key)
        if number_and_name is None:
            shapes = [operand.shape.to_string(with_layout=False) for operand in instruction.operands]
            name = f"{name_of(program, rendezvous)} with {', '.join(shapes)}"
            number_and_name = self.locations[key] = digest(f"{kind} {rendezvous.site} {rendezvous.members}"), name
        return number_and_name


def _attributes(op: Op) -> str:
    """The attributes of an operation, without the configs of custom calls: these may contain addresses of a process."""
    texts: list[str] = []
    for spec in op.attributes:
        value = getattr(op, spec.name)
        if isinstance(value, Computation):
            value = value.name
        elif spec.kind is Kind.COMPUTATION_LIST:
            value = [computation.name for computation in value or ()]
        elif isinstance(value, Literal):
            value = _literal(value)
        texts.append(repr(value))
    return " ".join(texts)


def _literal(literal: Literal) -> str:
    if literal.shape.is_tuple:
        return " ".join(map(_literal, literal.elements))
    if not literal.shape.is_array:
        return str(literal.shape)
    return hashlib.blake2b(np.ascontiguousarray(literal.array).tobytes(), digest_size=8).hexdigest()


def name_of(program: Program, rendezvous: RendezvousKey) -> str:
    """The instruction of a rendezvous, and its line, in errors."""
    instruction = rendezvous.instruction
    line = program.module.location_of(instruction)
    return f"{instruction.opcode} '{instruction.name}'{f' at {line}' if line else ''}"


@lru_cache(maxsize=1024)
def group_number(members: tuple[int, ...]) -> int:
    """A number of 64 bits for a group, the same in all processes."""
    return digest(repr(members))


def digest(text: str) -> int:
    """A number of 64 bits for a text, the same in all processes."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
