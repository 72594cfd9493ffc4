"""A matrix product: its operands, and the directions through its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xlakit.cpu.kernels.gemm.operands import Direction, Matrix, element_bytes, joined
from xlakit.cpu.llvm import I8, VOID, Function, Module, Value
from xlakit.cpu.scalars.memory import element_type
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass


class LineWriter(Protocol):
    """Writes ``(ptr source, ptr target, i64 begin, i64 end)``, which copies lines ``begin`` to ``end`` of the source.

    ``target`` is the address that line 0 would have.
    """

    def emit_lines(self, module: Module) -> Function:
        """Write the function into a module."""
        ...


@dataclass(frozen=True, slots=True)
class Lines:
    """The left operand is a copy in lines; a thread copies the lines that its next ``chunk`` rows read.

    An image is ``steps`` times ``rows`` rows, and has ``image`` lines of ``elements`` elements. The rows of its step n
    read ``reach`` lines from line n * stride + low of the image on. batches: the direction of the batches in the array;
    the lines that are copied are those of one batch.

        image 0:  line 0  line 1  line 2  line 3  ...      three lines are read in each step, with stride 1
                  [rows of step 0      ]                   a chunk's lines are in the second-level cache, and those
                          [rows of step 1      ]           of the next chunk are written to the same memory
    """

    writer: LineWriter
    rows: int
    steps: int
    stride: int
    low: int
    reach: int
    image: int
    elements: int
    chunk: int
    batches: Direction = Direction(())

    @property
    def most(self) -> int:
        """The largest number of lines of a chunk, wherever the chunk begins."""
        steps = (self.chunk - 1) // self.rows + (self.chunk > 1)
        skipped = -(-steps // self.steps) * max(0, self.image - self.steps * self.stride)
        return steps * self.stride + skipped + self.reach

    def first(self, row: Value) -> Value:
        """The first line that a row reads."""
        step = row.integer("udiv", self.rows)
        image, step = step.integer("udiv", self.steps), step.integer("urem", self.steps)
        return image * self.image + step * self.stride + self.low

    def write(
        self, fn: Function, lhs: Matrix, array: Value, batch: Value, memory: Value, rows: tuple[Value, Value]
    ) -> Value:
        """Write the lines of some rows of a batch to ``memory``; gives the address of lhs if all lines were there."""
        width = element_bytes(lhs.kind)
        begin, end = self.first(rows[0]), self.first(rows[1] - 1) + self.reach
        target = fn.at(memory, I8, -begin * (self.elements * width))
        source = fn.at(array, I8, self.batches.offset(fn, batch) * width) if self.batches.dims else array
        fn.call(self.writer.emit_lines(fn.module), VOID, source, target, begin, end)
        return fn.at(target, I8, lhs.first * width)


@dataclass(frozen=True, slots=True)
class Product:
    """result[b, i, j] = sum over k of lhs[b, i, k] * rhs[b, k, j].

    The operands' directions along k have the same sizes. ``batches`` are the directions through the batches of lhs,
    rhs and result.
    """

    lhs: Matrix
    rhs: Matrix
    result: PrimitiveType
    rows: Direction
    columns: Direction
    batches: tuple[Direction, Direction, Direction] = (Direction(()), Direction(()), Direction(()))
    # first: the offset of the first element in the result. arrays: the indices of lhs, rhs and result in the table.
    first: int = 0
    arrays: tuple[int, int, int] = (0, 1, 2)
    # How lhs, which then has the same memory for all batches, is copied from the array in the table; None if it is the
    # array itself.
    lines: Lines | None = None
    # The number of products whose columns alternate in the lanes of a register: each has as many of the columns, one
    # product after the other, and the elements of their left operands, with the same row and step of k, are adjacent.
    interleaved: int = 1

    @property
    def batch(self) -> int:
        """The number of products."""
        return self.batches[2].size

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows and columns of the result, and steps of k."""
        return self.rows.size, self.columns.size, self.lhs.along.size

    def bases(self, fn: Function, arrays: Sequence[Value], batch: Value) -> list[Value]:
        """The addresses of lhs, rhs and result of a batch; ``arrays``: those of all batches."""
        kinds = self.lhs.kind, self.rhs.kind, self.result
        firsts = self.lhs.first, self.rhs.first, self.first
        return [
            fn.at(array, element_type(kind), direction.offset(fn, batch) + first)
            for array, kind, direction, first in zip(arrays, kinds, self.batches, firsts, strict=True)
        ]


# A dimension: its size, and its stride in each array that has it.
Dims = list[tuple[int, tuple[int, ...]]]


def make_product(
    kinds: tuple[PrimitiveType, PrimitiveType, PrimitiveType], batch: Dims, rows: Dims, columns: Dims, along: Dims
) -> Product:
    """A product, given its dimensions.

    Their strides are those in (lhs, rhs, result) for batches, in (lhs, result) for rows, in (rhs, result) for columns,
    and in (lhs, rhs) for k.
    """

    def direction(dims: Dims, operand: int) -> Direction:
        return Direction(tuple((size, strides[operand]) for size, strides in dims))

    return Product(
        Matrix(kinds[0], direction(rows, 0), direction(along, 0)),
        Matrix(kinds[1], direction(columns, 0), direction(along, 1)),
        kinds[2],
        # Rows or columns of several dimensions may be contiguous in the result, though not in the operand.
        joined(direction(rows, 1)),
        joined(direction(columns, 1)),
        (direction(batch, 0), direction(batch, 1), direction(batch, 2)),
    )


def merged(dims: Dims) -> Dims:
    """Merge dimensions that are contiguous in all arrays; drop those of size 1."""
    merged_dims: Dims = []
    for size, strides in dims:
        if size == 1:
            continue
        if merged_dims and all(a == b * size for a, b in zip(merged_dims[-1][1], strides, strict=True)):
            merged_dims[-1] = (merged_dims[-1][0] * size, strides)
        else:
            merged_dims.append((size, strides))
    return merged_dims
