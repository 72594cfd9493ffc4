"""Fingerprints of kernels: two instructions with the same fingerprint have the same code."""

from __future__ import annotations

import hashlib
from typing import Any

from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Kind, Op
from xlakit.ops.data import Constant


def fingerprint(instruction: Instruction, *, constants: bool = True) -> Any:
    """The operation, the shapes of operands and result, and the called computations, without names.

    The values of constant scalars are part of it, because code may contain them, unless ``constants`` is False.
    """
    operands = tuple(_of_op(o.op) if constants and is_constant_scalar(o) else _shape(o) for o in instruction.operands)
    return (_of_op(instruction.op), operands, _shape(instruction))


def kernel_digest(instruction: Instruction) -> str:
    """A name for the code of an instruction, the same in all processes."""
    return hashlib.sha256(repr(fingerprint(instruction)).encode()).hexdigest()[:24]


def is_constant_scalar(instruction: Instruction) -> bool:
    """Whether an instruction is a constant of rank 0."""
    return isinstance(instruction.op, Constant) and instruction.shape.is_array and not instruction.shape.rank


def _shape(instruction: Instruction) -> Any:
    return instruction.shape.without_layout()


def _of_op(op: Op) -> Any:
    values: list[Any] = [op.opcode]
    for spec in op.attributes:
        value = getattr(op, spec.name)
        if spec.kind is Kind.COMPUTATION:
            value = None if value is None else _of_computation(value)
        elif spec.kind is Kind.COMPUTATION_LIST:
            value = tuple(_of_computation(c) for c in value)
        elif spec.kind is Kind.LITERAL and value is not None:
            value = (value.shape, value.array.tobytes() if value.shape.is_array else id(value))
        values.append(value)
    return tuple(values)


def _of_computation(computation: Computation) -> Any:
    numbers = {instruction: i for i, instruction in enumerate(computation.instructions)}
    return (
        numbers[computation.root],
        tuple((_of_op(i.op), tuple(numbers[o] for o in i.operands), _shape(i)) for i in computation.instructions),
    )
