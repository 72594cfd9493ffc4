"""Operands of a product: their layout in memory, and readers that convert elements to the engine's packed type."""

from __future__ import annotations

import math

from xlakit.cpu.kernels.gemm.engine import Engine, stored_as_packed, to_packed
from xlakit.cpu.llvm import Function, Value, vector
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass

# The contiguous direction of an operand: along k, across it (rows or columns), or neither.
ALONG, ACROSS, SINGLE = "along", "across", "single"
# Pieces of fewer elements are copied element by element.
_LEAST_PIECE = 4


@dataclass(frozen=True, slots=True)
class Direction:
    """A direction through an array: (size, stride) for each dimension, the last running fastest."""

    dims: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """The number of elements in this direction."""
        return math.prod(size for size, _ in self.dims)

    @property
    def run(self) -> int:
        """The number of elements in a run, which all have the same stride."""
        return self.dims[-1][0] if self.dims else 1

    @property
    def stride(self) -> int:
        """The stride of the elements of a run."""
        return self.dims[-1][1] if self.dims else 0

    @property
    def outer(self) -> Direction:
        """The direction from run to run."""
        return Direction(self.dims[:-1])

    def offset(self, fn: Function, index: Value) -> Value:
        """The offset of element ``index`` from the first."""
        total = fn.i64(0)
        for position, (size, stride) in reversed(list(enumerate(self.dims))):
            last = position == 0
            total = total + (index if last else index.integer("urem", size)) * stride
            index = index if last else index.integer("udiv", size)
        return total


def element_bytes(kind: PrimitiveType) -> int:
    """The bytes of an element in memory."""
    return memory_type(kind).bytes * (2 if kind.is_complex else 1)


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand: the type of its elements, its direction along rows or columns, and its direction along k.

    first: the offset of its first element. in_place: its elements are read many times, like those of overlapping
    windows, so that packing would multiply its size.
    """

    kind: PrimitiveType
    across: Direction
    along: Direction
    first: int = 0
    in_place: bool = False


def form_of(matrix: Matrix, width: int, *, along_first: bool = True) -> str:
    """The contiguous direction of an operand of which ``width`` rows or columns are packed at a time."""
    across, k = matrix.across, matrix.along
    along = k.stride == 1 or k.run == 1
    is_across_contiguous = (across.stride == 1 or across.run == 1) and (
        len(across.dims) <= 1 or across.run % width == 0
    )
    if along and (along_first or not is_across_contiguous):
        return ALONG
    return ACROSS if is_across_contiguous else SINGLE


def pieces_of(matrix: Matrix, width: int) -> tuple[str, int]:
    """The form for columns, and the number of columns that are adjacent wherever a sliver begins.

    ``width`` columns that are adjacent in groups of 16 are read as vectors of 16 elements.
    """
    form, across = form_of(matrix, width, along_first=False), matrix.across
    piece = math.gcd(width, across.run)
    if form == SINGLE and across.stride == 1 and piece >= _LEAST_PIECE:
        return ACROSS, piece
    return form, width


def can_read_in_place(engine: Engine, rhs: Matrix) -> bool:
    """Whether micro-kernels can read the right operand without packing."""
    across = rhs.across
    if engine.group > 1 or engine.parts > 1 or rhs.kind.is_complex:
        return False
    if len(across.dims) > 1:
        # The operand consists of slivers already.
        as_packed = len(across.dims) == 2 and across.stride == 1 and across.run == engine.nr
        return as_packed and stored_as_packed(engine, rhs.kind)
    return across.stride == 1 or across.run == 1


@dataclass(slots=True)
class Block:
    """A block of k: ``kc`` steps from ``step`` on, in each of the ``runs`` runs from ``run`` on."""

    run: Value
    runs: Value | int
    step: Value
    kc: Value | int


def joined(direction: Direction) -> Direction:
    """The direction with adjacent dimensions merged if they are contiguous."""
    dims: list[tuple[int, int]] = []
    for size, stride in direction.dims:
        if dims and dims[-1][1] == size * stride:
            dims[-1] = (dims[-1][0] * size, stride)
        elif size != 1:
            dims.append((size, stride))
    return Direction(tuple(dims))


@dataclass(slots=True)
class ElementReader:
    """Reads elements of one type in one function, converted to packed elements."""

    fn: Function
    engine: Engine
    kind: PrimitiveType
    result: PrimitiveType
    is_left: bool = False

    def packed(self, stored: Value) -> Value:
        """Convert a part of an element to the packed type."""
        value = stored
        if not stored_as_packed(self.engine, self.kind):
            value = to_packed(self.fn, self.engine, self.kind, self.result, stored)
        return value ^ -128 if self.is_left and self.engine.is_biased else value

    def at(self, pointer: Value, offset: Value) -> Value:
        """The address ``offset`` elements after ``pointer``."""
        return self.fn.at(pointer, memory_type(self.kind), offset * (2 if self.kind.is_complex else 1))

    def elements(self, pointer: Value, count: int) -> list[Value]:
        """The parts of ``count`` contiguous elements, in the packed type."""
        fn, type = self.fn, memory_type(self.kind)
        if self.kind.is_complex:
            pairs = fn.load(vector(type, 2 * count), pointer, align=type.bytes)
            if count == 1:
                return [self.packed(fn.lane(pairs, part)) for part in (0, 1)]
            return [self.packed(fn.shuffle(pairs, pairs, range(part, 2 * count, 2))) for part in (0, 1)]
        values = [self.packed(fn.load(vector(type, count), pointer, align=type.bytes))]
        if self.engine.parts == 2:
            values.append(fn.constant(values[0].type, 0))
        return values


@dataclass(slots=True)
class OperandReader:
    """Reads one operand in one function."""

    fn: Function
    engine: Engine
    matrix: Matrix
    base: Value
    result: PrimitiveType

    def elements(self, offset: Value, count: int) -> list[Value]:
        """The parts of ``count`` contiguous elements, in the packed type."""
        reader = ElementReader(self.fn, self.engine, self.matrix.kind, self.result)
        return reader.elements(reader.at(self.base, offset), count)

    def across(self, index: Value) -> Value:
        """The offset of a row or column from the first."""
        return self.matrix.across.offset(self.fn, index)


def in_groups(steps: Value, group: int) -> Value:
    """The number of complete groups in ``steps`` steps of k."""
    return steps >> group.bit_length() - 1


def times(a: Value | int, b: Value | int) -> Value | int:
    """The product of two numbers, each of which may be known at compile time."""
    if isinstance(a, int):
        return a * b if isinstance(b, int) else b * a
    return a * b


def smaller(a: Value, b: Value) -> Value:
    """The smaller of two signed integers."""
    if a.constant is not None and b.constant is not None:
        return a if a.constant <= b.constant else b
    return a.smin(b)


def rounded_up(number: int, multiple: int) -> int:
    """The least multiple that is not less than a number."""
    return -(-number // multiple) * multiple
