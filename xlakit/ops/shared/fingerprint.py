"""Fingerprints of instructions, without names: those with the same one have the same code."""

from __future__ import annotations

import hashlib
from typing import Any

from xlakit.data.literal import Literal
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Kind, Op
from xlakit.ops.data import Constant


def fingerprint(instruction: Instruction) -> Any:
    """The operation, the shapes of operands and result, and the called computations, without names.

    The values of constant scalars are part of it, because code may contain them.
    """
    operands = tuple(_of_op(o.op) if is_constant_scalar(o) else _shape(o) for o in instruction.operands)
    return (_of_op(instruction.op), operands, _shape(instruction))


def operation_fingerprint(instruction: Instruction) -> Any:
    """The operation and the called computations, without names, and the shapes of the operands.

    The start of an async pair has that of the synchronous operation.
    """
    opcode, *attributes = _of_op(instruction.op)
    return (opcode.removesuffix("-start"), *attributes), tuple(map(_shape, instruction.operands))


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
            value = _of_literal(value)
        values.append(value)
    return tuple(values)


def _of_literal(literal: Literal) -> Any:
    if literal.shape.is_tuple:
        return tuple(map(_of_literal, literal.elements))
    return literal.shape, literal.array.tobytes() if literal.shape.is_array else b""


def _of_computation(computation: Computation) -> Any:
    numbers = {instruction: i for i, instruction in enumerate(computation.instructions)}
    return (
        numbers[computation.root],
        tuple((_of_op(i.op), tuple(numbers[o] for o in i.operands), _shape(i)) for i in computation.instructions),
    )
