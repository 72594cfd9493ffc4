"""Reducers: one reduction of a fusion as a computation on nodes, and what changes nothing when it is reduced."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from xlakit.cpu.llvm import Function
from xlakit.cpu.loops.ir.nodes import Constant, Node
from xlakit.cpu.loops.ir.tracer import Index, Tracer, as_kind
from xlakit.cpu.loops.ir.walking import simple_reducer
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.memory import as_real, rounded
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.reduction import Reduce


@dataclass(frozen=True, slots=True)
class Reducer:
    """One reduction: the computation, what it takes in each iteration, what it starts from."""

    instruction: Instruction
    computation: Computation
    inputs: tuple[Node, ...]
    initial: tuple[Node, ...]

    @property
    def kinds(self) -> tuple[PrimitiveType, ...]:
        """The element types of its results."""
        return tuple(node.kind for node in self.initial)

    def result(self, fn: Function, part: int, value: Scalar) -> Scalar:
        """What is folded in the end, as its type holds it."""
        kind = self.kinds[part]
        if kind.is_complex or simple_reducer(self.computation) in ("maximum", "minimum"):
            return value
        return rounded(fn, kind, as_real(value))

    def starts_neutral(self) -> bool:
        """Whether it starts from what changes nothing, so that parts of it can be folded apart."""
        opcode = simple_reducer(self.computation)
        if opcode is None or not isinstance(self.initial[0], Constant):
            return False
        return is_neutral(opcode, self.initial[0].value, self.initial[0].kind)


def trace_reducer(tracer: Tracer, reduce: Instruction, index: Index) -> Reducer:
    """A reduction whose operands are read at an index."""
    count = len(reduce.operands) // 2
    inits = reduce.operands[count:]
    inputs = [
        as_kind(tracer.element(array, index), init.shape.element_type)
        for array, init in zip(reduce.operands[:count], inits, strict=True)
    ]
    initial = [tracer.element(init, ()) for init in inits]
    return Reducer(reduce, reduce.op_as(Reduce).to_apply, tuple(inputs), tuple(initial))


def part_kind(reduce: Instruction, part: int) -> PrimitiveType:
    """The element type of part ``part`` of what a reduction gives."""
    shape = reduce.shape
    return shape.tuple_shapes[part].element_type if shape.is_tuple else shape.element_type


def is_neutral(opcode: str, value: Any, kind: PrimitiveType) -> bool:
    """Whether folding ``value`` into something by an operation changes nothing."""
    if kind.is_complex:
        return bool(opcode == "add" and value == 0)
    number = value.item() if hasattr(value, "item") else value
    return bool(number == neutral_number(opcode, kind))


def neutral_number(opcode: str, kind: PrimitiveType) -> float:
    """What changes nothing that it is folded into by an operation on real numbers."""
    if kind is PrimitiveType.PRED:
        return int(opcode in ("and", "multiply", "minimum"))
    if opcode in ("add", "or", "xor"):
        # 0 would make another zero of -0.
        return -0.0 if kind.is_floating else 0
    if opcode == "multiply":
        return 1
    if kind.is_floating:
        return -math.inf if opcode == "maximum" else math.inf
    if opcode == "and":
        return -1 if kind.is_signed else (1 << kind.bit_width) - 1
    least = -(1 << (kind.bit_width - 1)) if kind.is_signed else 0
    return least if opcode == "maximum" else least + (1 << kind.bit_width) - 1


def wide_kind(kind: PrimitiveType) -> PrimitiveType:
    """The element type that parts of a reduction are kept in: narrow floats are not rounded in between."""
    return PrimitiveType.F32 if kind.is_floating and kind.bit_width < 32 else kind
