"""The instructions of a program in F64 and C128: what each would compute without roundings to narrower types."""

from __future__ import annotations

import threading

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.data import Constant
from xlakit.ops.shared.numerics import convert


class Promotion:
    """Instructions and computations with F64 for every floating point type, and C128 for every complex one.

    Operations on bits (bitcast-convert) would have another meaning; the caller leaves them out. Devices, which are
    threads, may share a promotion.
    """

    def __init__(self) -> None:
        self._computations: dict[Computation, Computation] = {}
        self._instructions: dict[Instruction, Instruction] = {}
        self._lock = threading.RLock()

    def computation(self, computation: Computation) -> Computation:
        """The computation in F64, as all that it calls."""
        with self._lock:
            promoted = self._computations.get(computation)
            if promoted is None:
                promoted = self._computations[computation] = computation.rebuild(self._changed)
            return promoted

    def instruction(self, instruction: Instruction) -> Instruction:
        """An instruction of a computation that :meth:`computation` was asked for."""
        return self._instructions[instruction]

    def _changed(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        new = old.replace(op=self._operation(old.op), operands=operands, shape=promoted_shape(old.shape))
        self._instructions[old] = new
        return new

    def _operation(self, op: Op) -> Op:
        if isinstance(op, Constant):
            return Constant(literal=_literal(op.literal))
        return op.map_computations(self.computation) if op.can_call else op


def _literal(literal: Literal) -> Literal:
    if literal.shape.is_tuple:
        return Literal(promoted_shape(literal.shape), None, [_literal(e) for e in literal.elements])
    if not literal.shape.is_array:
        return literal
    return Literal(promoted_shape(literal.shape), convert(literal.array, promoted_type(literal.shape.element_type)))


def promoted_shape(shape: Shape) -> Shape:
    """The shape with promoted element types."""
    return shape.with_leaves(lambda x: x.with_element_type(promoted_type(x.element_type)) if x.is_array else x)


def promoted_type(kind: PrimitiveType) -> PrimitiveType:
    """F64 for floating point types, C128 for complex ones, the type itself otherwise."""
    if kind.is_complex:
        return PrimitiveType.C128
    return PrimitiveType.F64 if kind.is_floating else kind
