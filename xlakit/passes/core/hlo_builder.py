"""HloBuilder: the interface through which passes make instructions, with shapes inferred."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_shape
from xlakit.ir.attributes import SliceDimension
from xlakit.ir.enums import ComparisonDirection
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import OPERATIONS, Array, Op
from xlakit.ops.data import Constant, GetTupleElement, Iota, Tuple
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.movement import Broadcast, Reshape, Slice, Transpose


@lru_cache(maxsize=256)
def _array_shape(kind: PrimitiveType, sizes: tuple[int, ...]) -> Shape:
    """The shape of a constant; rules make many scalars, and checking a shape takes longer than the rest."""
    return make_shape(kind, sizes)


class HloBuilder(ABC):
    """Makes instructions by operation; subclasses decide where they are inserted, and their source location.

    An instruction that would be the identity is not made: its operand is returned.
    """

    @abstractmethod
    def add(self, op: Op, *operands: Instruction, shape: Shape | None = None) -> Instruction:
        """A new instruction; ``shape`` is the declared result of an operation whose operands do not determine it."""

    def apply(self, opcode: str, *operands: Instruction) -> Instruction:
        """An operation without attributes on these operands."""
        return self.add(OPERATIONS[opcode](), *operands)

    # -- numbers -----------------------------------------------------------------------------------

    def constant(self, array: Array) -> Instruction:
        """A constant of a NumPy array, whose dtype is that of a primitive type."""
        shape = _array_shape(PrimitiveType.from_dtype(array.dtype), array.shape)
        return self.add(Constant(literal=Literal(shape, np.asarray(array))))

    def scalar(self, value: object, kind: PrimitiveType) -> Instruction:
        """A scalar constant. The type must be able to hold the value; a value of the type's dtype keeps its bits."""
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype == kind.dtype:
            return self.constant(np.asarray(value))
        return self.add(Constant(literal=Literal.from_value(value, kind)))

    def full(self, value: object, shape: Shape) -> Instruction:
        """An array whose elements are all one value: a constant if the shape is a scalar, else a broadcast of one."""
        return self.broadcast(self.scalar(value, shape.element_type), shape.dimensions)

    def iota(self, shape: Shape, dimension: int) -> Instruction:
        """An iota: each element is its own index along a dimension."""
        return self.add(Iota(iota_dimension=dimension), shape=shape)

    # -- moves and conversions of elements -----------------------------------------------------------

    def broadcast(self, operand: Instruction, sizes: Sequence[int], dimensions: Sequence[int] = ()) -> Instruction:
        """The operand broadcast to ``sizes``; its dimension i becomes dimension ``dimensions[i]`` of the result.

        Without ``dimensions`` the operand must be a scalar, or have these sizes already.
        """
        operand_sizes = operand.shape.dimensions
        if operand_sizes == tuple(sizes) and list(dimensions) in ([], list(range(len(operand_sizes)))):
            return operand
        shape = operand.shape.with_dimensions(tuple(sizes))
        return self.add(Broadcast(dimensions=tuple(dimensions)), operand, shape=shape)

    def reshape(self, operand: Instruction, sizes: Sequence[int]) -> Instruction:
        """The operand reshaped to ``sizes``."""
        if tuple(sizes) == operand.shape.dimensions:
            return operand
        return self.add(Reshape(), operand, shape=operand.shape.with_dimensions(tuple(sizes)))

    def transpose(self, operand: Instruction, permutation: Sequence[int]) -> Instruction:
        """The operand with permuted dimensions."""
        if list(permutation) == list(range(len(permutation))):
            return operand
        return self.add(Transpose(dimensions=tuple(permutation)), operand)

    def slice(self, operand: Instruction, ranges: Sequence[SliceDimension]) -> Instruction:
        """A slice of an array."""
        sizes = operand.shape.dimensions
        if all((r.start, r.limit, r.stride) == (0, size, 1) for r, size in zip(ranges, sizes, strict=True)):
            return operand
        return self.add(Slice(slice=tuple(ranges)), operand)

    def slice_along(self, operand: Instruction, dimension: int, start: int, limit: int) -> Instruction:
        """The elements of an array from ``start`` to ``limit`` along one dimension."""
        ranges = [SliceDimension(0, size) for size in operand.shape.dimensions]
        ranges[dimension] = SliceDimension(start, limit)
        return self.slice(operand, ranges)

    def convert(self, operand: Instruction, kind: PrimitiveType) -> Instruction:
        """The operand converted to another element type."""
        if operand.shape.element_type is kind:
            return operand
        return self.add(Convert(), operand, shape=operand.shape.without_layout().with_element_type(kind))

    def compare(self, a: Instruction, b: Instruction, direction: str) -> Instruction:
        """The element-wise comparison of two arrays, such as ``a < b`` for the direction "LT"."""
        return self.add(Compare(direction=ComparisonDirection.of(direction)), a, b)

    # -- tuples --------------------------------------------------------------------------------------

    def tuple(self, *parts: Instruction) -> Instruction:
        """A tuple."""
        return self.add(Tuple(), *parts)

    def element(self, value: Instruction, number: int) -> Instruction:
        """An element of a tuple."""
        if isinstance(value.op, Tuple) and not value.control_predecessors:
            return value.operands[number]
        return self.add(GetTupleElement(index=number), value)

    def elements(self, value: Instruction) -> list[Instruction]:
        """All elements of a tuple; of an array, itself."""
        if not value.shape.is_tuple:
            return [value]
        return [self.element(value, number) for number in range(len(value.shape.tuple_shapes))]
