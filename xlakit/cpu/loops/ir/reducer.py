"""Reducers: the reductions of a fusion as computations on nodes, and the identities of operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xlakit.cpu.llvm import Function
from xlakit.cpu.loops.ir.index import Node
from xlakit.cpu.loops.ir.keys import Keys, keys_for
from xlakit.cpu.loops.ir.nodes import Constant
from xlakit.cpu.loops.ir.tracer import Index, Tracer, as_kind
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.memory import as_real, rounded
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.elementwise.binary import Add, Maximum, Minimum
from xlakit.ops.reduction import Reduce, applied_op, identity_element, reducer_op
from xlakit.ops.shared.numerics import to_double
from xlakit.passes.core.computation_builder import binary_computation
from xlakit.passes.core.framework import PassContext


@dataclass(frozen=True, slots=True)
class Reducer:
    """One reduction: the computation, its inputs in each iteration, and its initial values."""

    instruction: Instruction
    computation: Computation
    inputs: tuple[Node, ...]
    initial: tuple[Node, ...]
    # The keys by which floats are reduced as integers, if any.
    keys: Keys | None = None

    @property
    def kinds(self) -> tuple[PrimitiveType, ...]:
        """The element types of its results."""
        return tuple(node.kind for node in self.initial)

    def result(self, fn: Function, part: int, value: Scalar) -> Scalar:
        """The final value of the reduction, rounded to its type."""
        if self.keys is not None:
            return self.keys.to_float(fn, as_real(value))
        kind = self.kinds[part]
        if kind.is_complex or isinstance(applied_op(self.computation), (Maximum, Minimum)):
            return value
        return rounded(fn, kind, as_real(value))

    def partial(self, fn: Function, values: Sequence[Scalar]) -> list[Scalar]:
        """Running values of the reduction, not rounded, with keys turned back into floats."""
        return [v if self.keys is None else self.keys.to_float(fn, as_real(v)) for v in values]

    def starts_neutral(self) -> bool:
        """Whether it starts from its identity, so that parts of it can be reduced separately."""
        op = applied_op(self.computation)
        if op is None or not isinstance(self.initial[0], Constant):
            return False
        return is_neutral(op, self.initial[0].value, self.initial[0].kind)


def trace_reducer(tracer: Tracer, reduce: Instruction, index: Index) -> Reducer:
    """The reducer for a reduction whose operands are read at an index."""
    count = len(reduce.operands) // 2
    inits = reduce.operands[count:]
    inputs = [
        as_kind(tracer.element(array, index), init.shape.element_type)
        for array, init in zip(reduce.operands[:count], inits, strict=True)
    ]
    initial = [tracer.element(init, ()) for init in inits]
    computation = reduce.op_as(Reduce).to_apply
    op = reducer_op(computation)
    keys = keys_for(op, inputs[0]) if op is not None and count == 1 else None
    if op is None or keys is None:
        return Reducer(reduce, computation, tuple(inputs), tuple(initial))
    combination = binary_computation(op.opcode, op, keys.integers, PassContext())
    return Reducer(reduce, combination, (keys.of(inputs[0]),), (keys.of(initial[0]),), keys)


def part_kind(reduce: Instruction, part: int) -> PrimitiveType:
    """The element type of result ``part`` of a reduction."""
    shape = reduce.shape
    return shape.tuple_shapes[part].element_type if shape.is_tuple else shape.element_type


def is_neutral(op: Op, value: Any, kind: PrimitiveType) -> bool:
    """Whether combining ``value`` with any number by an operation changes nothing except, maybe, the sign of a zero."""
    if kind.is_complex:
        return isinstance(op, Add) and bool(value == 0)
    number = value.item() if hasattr(value, "item") else value
    return bool(number == neutral_number(op, kind))


def neutral_number(op: Op, kind: PrimitiveType) -> float:
    """The identity of an operation on real numbers."""
    identity = identity_element(op, kind)
    if identity is None:
        # A float type without infinities is reduced in a wider type, which has them.
        return -math.inf if isinstance(op, Maximum) else math.inf
    return float(to_double(identity)) if kind.is_floating else int(identity)


def wide_kind(kind: PrimitiveType) -> PrimitiveType:
    """The element type of partial results of a reduction: narrow floats are not rounded in between."""
    return PrimitiveType.F32 if kind.is_floating and kind.bit_width < 32 else kind
