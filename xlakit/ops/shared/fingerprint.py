"""Fingerprints of operations, without names: instructions with the same one do the same."""

from __future__ import annotations

from typing import Any

from xlakit.data.literal import Literal
from xlakit.ir.instruction import Computation, Instruction, post_order
from xlakit.ir.operation import Kind, Op


def operation_fingerprint(instruction: Instruction) -> Any:
    """The operation and the called computations, without names, and the shapes of the operands.

    The start of an async pair has that of the synchronous operation.
    """
    opcode, *attributes = of_operation(instruction.op)
    return (opcode.removesuffix("-start"), *attributes), tuple(map(shape_of, instruction.operands))


def shape_of(instruction: Instruction) -> Any:
    """The shape of an instruction, without layouts."""
    return instruction.shape.without_layout()


def of_operation(op: Op) -> Any:
    """The operation with its attributes; of computations what their instructions do."""
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
    # Parts of a program that repeat, such as layers, may have constants and operands in other places; what nothing uses
    # may only be left out, and moved, where it does nothing else.
    acts = computation.has_side_effect
    instructions = computation.instructions if acts else tuple(post_order([computation.root]))
    numbers = {instruction: i for i, instruction in enumerate(instructions)}
    return (
        numbers[computation.root],
        tuple((of_operation(i.op), tuple(numbers[o] for o in i.operands), shape_of(i)) for i in instructions),
    )
