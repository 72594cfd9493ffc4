"""Fingerprints of kernels: instructions with the same one have the same code."""

from __future__ import annotations

import hashlib
from typing import Any

from xlakit.ir.instruction import Instruction
from xlakit.ops.data import Constant
from xlakit.ops.shared.fingerprint import of_operation, shape_of


def fingerprint(instruction: Instruction) -> Any:
    """The operation, the shapes of operands and result, and the called computations, without names.

    The values of constant scalars are part of it, because code may contain them.
    """
    operands = tuple(of_operation(o.op) if is_constant_scalar(o) else shape_of(o) for o in instruction.operands)
    return (of_operation(instruction.op), operands, shape_of(instruction))


def kernel_digest(instruction: Instruction) -> str:
    """A name for the code of an instruction, the same in all processes."""
    return hashlib.sha256(repr(fingerprint(instruction)).encode()).hexdigest()[:24]


def is_constant_scalar(instruction: Instruction) -> bool:
    """Whether an instruction is a constant of rank 0."""
    return isinstance(instruction.op, Constant) and instruction.shape.is_array and not instruction.shape.rank
