"""The fingerprint by which processes know that they run the same program, and its locations in messages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from xlakit.data.literal import Literal
from xlakit.execution.program import Program
from xlakit.execution.session import RendezvousKey
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Kind, Op

_LONGEST_SIGNATURE = 200


@dataclass(slots=True)
class Fingerprint:
    """A program, as other processes know it.

    number: the same in all processes, wherever its source files are, and not 0. text: the program in errors. locations:
    what has been found for rendezvous of the program; see :meth:`location`.
    """

    number: int
    text: str
    locations: dict[tuple[object, ...], tuple[int, str]] = field(default_factory=dict)

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
        """A number for the instruction and group of a rendezvous, the same in all processes; and its name in errors.

        kind: what the members exchange there.
        """
        instruction = rendezvous.instruction
        # Instructions live as long as the program, so that none takes the id of another one.
        key = id(instruction), kind, rendezvous.channel_id, rendezvous.members
        found = self.locations.get(key)
        if found is None:
            # Not the layouts: a program that comes from the compile cache says them where a fresh one need not.
            shapes = [operand.shape.to_string(with_layout=False) for operand in instruction.operands]
            text = f"{kind} {instruction.opcode} {instruction.name} {rendezvous.channel_id} {rendezvous.members}"
            name = f"{name_of(program, rendezvous)} with {', '.join(shapes)}"
            found = self.locations[key] = digest(text + " ".join(shapes)), name
        return found


def _attributes(op: Op) -> str:
    """The attributes of an operation. What custom calls are told is none: it may have addresses of one process."""
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
