"""ragged-dot: products whose rows, steps of k or batches are divided by group sizes that are given at run time.

A part of the result has the blocking of a normal product. If rows are grouped, a task visits all groups, and multiplies
those of its rows that belong to a group with the matrix of the group. If k is grouped, each group is a batch with its
own range of k. If batches are grouped, batches beyond the sum of the sizes are zero.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from xlakit.cpu.kernels.dot.dot import real_parts
from xlakit.cpu.kernels.gemm.blocking import Blocking, plan_gemm, task_count
from xlakit.cpu.kernels.gemm.driver import GemmEmitter
from xlakit.cpu.kernels.gemm.operands import Block, smaller
from xlakit.cpu.kernels.gemm.product import Dims, Product, make_product, merged
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Loop, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.loops.emit.kernel import Kernel, Phase
from xlakit.cpu.scalars import constant, load, memory_type, store
from xlakit.cpu.scalars.memory import as_real
from xlakit.data.layout import row_major_strides
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.ops.dot_variants import RaggedDot
from xlakit.ops.shared.contraction import free_dimensions
from xlakit.passes.analysis.cost_model import cost_model


def emit_ragged_dot(module: Module, instruction: Instruction) -> Kernel:
    """The kernel; its table is lhs, rhs, group sizes and result."""
    plan = _plan(instruction)
    fn = module.function("ragged_dot", VOID, [PTR, I64, I64])
    tasks = task_count(plan.product, plan.blocking)
    if tasks:
        writer = _WRITERS[plan.mode](fn, plan)
        writer.emit()
    rows, columns, depth = plan.product.sizes
    return Kernel((Phase(fn.name, tasks, plan.product.batch * rows * columns * depth * cost_model().multiplication),))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The group sizes: their type, their number, and whether each index of earlier dimensions has its own sizes."""

    kind: PrimitiveType
    count: int
    has_prefix: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan of a ragged dot.

    mode: "rows", "sums" or "batches". ragged: the size of the ragged dimension. inner: the number of rows, batches or
    runs of k for each index of it. step: the stride between the groups' matrices in rhs. before: the number of indices
    of the contracting dimensions before the ragged one.
    """

    mode: str
    product: Product
    blocking: Blocking
    groups: _Groups
    ragged: int
    inner: int = 1
    step: int = 0
    before: int = 1


def _plan(instruction: Instruction) -> _Plan:
    op = instruction.op_as(RaggedDot)
    lhs, rhs, sizes = (o.shape for o in instruction.operands)
    groups = _Groups(sizes.element_type, sizes.dimensions[-1], sizes.rank > 1)
    sides = _Sides(op, lhs, rhs, instruction.shape)
    ragged = op.lhs_ragged_dims[0]
    if ragged in op.lhs_batch_dims:
        product = sides.product(sides.batch(0), sides.rows(0), sides.columns(0))
        after = math.prod(lhs.dimensions[d] for d in op.lhs_batch_dims[op.lhs_batch_dims.index(ragged) + 1 :])
        return _Plan("batches", product, plan_gemm(product), groups, lhs.dimensions[ragged], after)
    if ragged in op.lhs_contracting_dims:
        # Groups are the outermost batch dimension, and all of them have the same operands.
        out = row_major_strides(instruction.shape.dimensions)
        batch: Dims = [(groups.count, (0, 0, out[0])), *sides.batch(1)]
        position = op.lhs_contracting_dims.index(ragged)
        order = [p for p in range(len(op.lhs_contracting_dims)) if p != position]
        product = sides.product(batch, sides.rows(1), sides.columns(1), [*order, position])
        before, after = (
            math.prod(lhs.dimensions[op.lhs_contracting_dims[p]] for p in order if (p < position) == is_before)
            for is_before in (True, False)
        )
        return _Plan("sums", product, _in_several(product), groups, lhs.dimensions[ragged], after, 0, before)
    rows = sides.rows(0)
    position = sides.free.index(ragged)
    # Rows before the ragged dimension are batches that share rhs.
    batch = [*sides.batch(0), *((size, (left, 0, out)) for size, (left, out) in rows[:position])]
    product = sides.product(batch, rows[position:], sides.columns(0))
    after = math.prod(size for size, _ in rows[position + 1 :])
    step = sides.right[op.rhs_group_dims[0]]
    return _Plan("rows", product, plan_gemm(product), groups, lhs.dimensions[ragged], after, step)


def _in_several(product: Product) -> Blocking:
    """A blocking whose blocks of k may begin anywhere in a run; sums of several blocks are accumulated in memory."""
    blocking = plan_gemm(product)
    group = blocking.engine.group
    kc = max(group, min(blocking.runs * blocking.kc, product.lhs.along.run) // group * group)
    return replace(blocking, runs=1, kc=kc, k_blocks=2, ahead=False)


class _Sides:
    """The dimensions of a ragged dot, with their strides in the arrays that have them."""

    def __init__(self, op: RaggedDot, lhs: Shape, rhs: Shape, result: Shape) -> None:
        self._op = op
        self._left, self.right = row_major_strides(lhs.dimensions), row_major_strides(rhs.dimensions)
        if not result.element_type.is_complex:
            # Real results of complex operands depend on the real parts only.
            lhs, self._left = real_parts(lhs, self._left)
            rhs, self.right = real_parts(rhs, self.right)
        self._out = row_major_strides(result.dimensions)
        self._lhs, self._rhs, self._kind = lhs, rhs, result.element_type
        self.free = free_dimensions(lhs.rank, op.lhs_batch_dims, op.lhs_contracting_dims)
        self._columns = free_dimensions(rhs.rank, op.rhs_batch_dims, op.rhs_contracting_dims, op.rhs_group_dims)

    def batch(self, first: int) -> Dims:
        """The batch dimensions, which are dimensions of the result from ``first`` on."""
        pairs = zip(self._op.lhs_batch_dims, self._op.rhs_batch_dims, strict=True)
        return [
            (self._lhs.dimensions[a], (self._left[a], self.right[b], self._out[first + n]))
            for n, (a, b) in enumerate(pairs)
        ]

    def rows(self, first: int) -> Dims:
        """The free dimensions of lhs, which are dimensions of the result after ``first`` and the batch."""
        first += len(self._op.lhs_batch_dims)
        return [(self._lhs.dimensions[d], (self._left[d], self._out[first + n])) for n, d in enumerate(self.free)]

    def columns(self, first: int) -> Dims:
        """The free dimensions of rhs, which are the last dimensions of the result."""
        first += len(self._op.lhs_batch_dims) + len(self.free)
        return [(self._rhs.dimensions[d], (self.right[d], self._out[first + n])) for n, d in enumerate(self._columns)]

    def product(self, batch: Dims, rows: Dims, columns: Dims, order: Sequence[int] | None = None) -> Product:
        """The product; ``order`` fixes the order of the contracting dimensions, if that matters."""
        pairs = list(zip(self._op.lhs_contracting_dims, self._op.rhs_contracting_dims, strict=True))
        along: Dims = [(self._lhs.dimensions[a], (self._left[a], self.right[b])) for a, b in pairs]
        if order is None:
            # The innermost dimension should be contiguous.
            along = merged(sorted(along, key=lambda dim: (-min(dim[1]), dim[1])))
        else:
            along = [along[k] for k in order]
        kinds = self._lhs.element_type, self._rhs.element_type, self._kind
        return make_product(kinds, merged(batch), merged(rows), merged(columns), along)


class _Writer(GemmEmitter):
    """The base of the emitters of all modes. The table has lhs, rhs, group sizes and result."""

    def __init__(self, fn: Function, plan: _Plan) -> None:
        product = replace(plan.product, arrays=(0, 1, 3))
        super().__init__(fn, product, plan.blocking)
        self.plan = plan
        self.sizes = fn.pointer(fn.parameters[0], 2)

    def size(self, prefix: Value, group: Value) -> Value:
        """The size of a group, for an index of the dimensions before the ragged one."""
        fn, groups = self.fn, self.plan.groups
        index = prefix * groups.count + group if groups.has_prefix else group
        return as_real(load(fn, groups.kind, self.sizes, index)).resized(I64, signed=groups.kind.is_signed)

    def clamped(self, position: Value) -> Value:
        """A position along the ragged dimension, clamped to its range."""
        fn = self.fn
        return smaller(position.smax(0), fn.i64(self.plan.ragged))

    def clear(self, batch: Value, column: Value, first: Value, last: Value) -> None:
        """Store zeros to the rows from ``first`` below ``last`` in the columns of one task."""
        fn, product = self.fn, self.product
        base = self.bases(batch)[2]
        end = smaller(column + self.blocking.task_columns, fn.i64(self.columns))
        zero = constant(fn, product.result, product.result.dtype.type(0))
        with fn.loop(first, last, hints=AS_WRITTEN) as rows:
            start = product.rows.offset(fn, rows.index)
            with fn.loop(column, end, independent=True) as columns:
                store(fn, product.result, zero, base, start + product.columns.offset(fn, columns.index))


class _Rows(_Writer):
    """Multiplies each group of rows by a matrix of its own."""

    def bases(self, batch: Value) -> list[Value]:
        """The addresses of lhs, of the group's rhs, and of the result."""
        lhs, rhs, result = super().bases(batch)
        kind = self.product.rhs.kind
        step = self.group * (self.plan.step * (2 if kind.is_complex else 1))
        return [lhs, self.fn.at(rhs, memory_type(kind), step), result]

    def compute_rows(self, batch: Value, column: Value, first: Value, last: Value) -> None:
        """Multiply group by group; a row belongs to the first group that ends behind it."""
        fn, plan = self.fn, self.plan
        zero = fn.i64(0)
        with fn.loop(0, plan.groups.count, carried=[zero, zero], hints=AS_WRITTEN) as loop:
            sum, reached = loop.carried
            sum = sum + self.size(batch, loop.index)
            end = self.clamped(sum)
            low = first.smax(reached * plan.inner)
            high = smaller(last, end * plan.inner)
            with fn.if_(low < high):
                self.group = loop.index
                super().compute_rows(batch, column, low, high)
            loop.next(sum, reached.smax(end))
        self.group = zero
        self.clear(batch, column, first.smax(loop.results[1] * plan.inner), last)


class _Batches(_Writer):
    """Computes only the batches that the group sizes count."""

    def compute_rows(self, batch: Value, column: Value, first: Value, last: Value) -> None:
        """Compute a part of a batch, or store zeros."""
        fn, plan = self.fn, self.plan
        position = batch.integer("udiv", plan.inner).integer("urem", plan.ragged)
        prefix = batch.integer("udiv", plan.inner * plan.ragged)
        with fn.loop(0, plan.groups.count, carried=[fn.i64(0)], hints=AS_WRITTEN) as loop:
            loop.next(loop.carried[0] + self.size(prefix, loop.index))
        counted = position < loop.results[0]
        with fn.if_(counted):
            super().compute_rows(batch, column, first, last)
        with fn.if_(~counted):
            self.clear(batch, column, first, last)


class _Sums(_Writer):
    """Sums each group separately: the groups are batches, each with its own steps of k."""

    # A group may be empty, so its sums must begin with zeros.
    begins_with_zeros = True

    def compute_rows(self, batch: Value, column: Value, first: Value, last: Value) -> None:
        """Compute a part of a group's result."""
        count = self.product.batch // self.plan.groups.count
        self.group, self.own = batch.integer("udiv", count), batch.integer("urem", count)
        super().compute_rows(batch, column, first, last)

    @contextmanager
    def k_blocks(self) -> Generator[Loop]:
        """The blocks of k between the group's first and last step, run by run."""
        fn, plan, kc = self.fn, self.plan, self.blocking.kc
        with fn.loop(0, self.product.lhs.along.outer.size, hints=AS_WRITTEN) as runs:
            prefix = self.own * plan.before + runs.index.integer("udiv", plan.inner)
            with fn.loop(0, self.group, carried=[fn.i64(0)], hints=AS_WRITTEN) as loop:
                loop.next(loop.carried[0] + self.size(prefix, loop.index))
            low = self.clamped(loop.results[0])
            high = self.clamped(loop.results[0] + self.size(prefix, self.group))
            with fn.loop(low, high, kc, hints=AS_WRITTEN) as loop:
                self.current = Block(runs.index, 1, loop.index, smaller(high - loop.index, fn.i64(kc)))
                yield loop

    def block(self, number: Value) -> Block:
        """The current block."""
        return self.current


_WRITERS: dict[str, type[_Rows | _Batches | _Sums]] = {"rows": _Rows, "batches": _Batches, "sums": _Sums}
