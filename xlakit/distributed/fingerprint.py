"""The fingerprint by which processes know that they run the same program."""

from __future__ import annotations

import hashlib

from xlakit.execution.program import Program


def fingerprint(program: Program) -> int:
    """A fingerprint of a program that is the same in all processes, wherever its source files are."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(f"{program.grid.num_replicas} {program.grid.num_partitions}".encode())
    for computation in program.module.computations:
        digest.update(f"\n{computation.name} {computation.root.name}".encode())
        for instruction in computation.instructions:
            operands = " ".join(operand.name for operand in instruction.operands)
            digest.update(f"\n{instruction.name} {instruction.opcode} {instruction.shape} {operands}".encode())
    return int.from_bytes(digest.digest(), "little", signed=True)
