"""Decompositions of many small matrices whose batch is the minor dimension: each vector lane computes one matrix.

Element (i, k) of all matrices is contiguous in memory, so the loops over one matrix compute with vectors of these
elements. The pass batch-minor makes such fusions; each is ``transpose(op(transpose(x), ..))``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.linalg.matrices import Matrices, factor_rows
from xlakit.cpu.llvm import Function, Module, Value, vector
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.scalars import register_type
from xlakit.cpu.scalars.memory import as_real
from xlakit.ir.enums import Transpose
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.batches.products import decomposition_of
from xlakit.target import vector_bytes

# Writes the code for some lanes, given the matrices of the operands and the result.
_Compute = Callable[[Sequence[Matrices]], None]


def emit_in_lanes(module: Module, computation: Computation) -> Kernel | None:
    """The kernel of such a fusion; its table has the operands and the result. None for other fusions."""
    inner = decomposition_of(computation)
    if inner is None:
        return None
    kind, batch = inner.shape.element_type, computation.root.shape.dimensions[-1]
    sizes = [x.shape.dimensions[-3:-1] for x in (*computation.parameters, computation.root)]
    groups = math.prod(computation.root.shape.dimensions[:-3])
    fn, table, begin, end = kernel_function(module, "decompositions")
    arrays = [fn.pointer(table, number) for number in range(len(sizes))]
    compute = _cholesky(fn, inner) if isinstance(inner.op, Cholesky) else _substitution(fn, inner)
    lanes = vector_bytes() // register_type(kind).bytes
    # Matrices that would fill only a part of the last vector are computed one by one.
    vectors, singles = divmod(batch, lanes)

    def run(group: Value, lane: Value, lanes: int) -> None:
        matrices = [
            Matrices(fn, kind, array, group * (rows * columns * batch) + lane, (columns * batch, batch), lanes)
            for array, (rows, columns) in zip(arrays, sizes, strict=True)
        ]
        compute(matrices)

    with fn.loop(begin, end, hints=NO_UNROLL) as task:
        group, member = (task.index.integer(name, vectors + singles) for name in ("udiv", "urem"))
        single = member - vectors + vectors * lanes
        if not singles:
            run(group, member * lanes, lanes)
        elif not vectors:
            run(group, single, 1)
        else:
            fn.if_else(member < vectors, lambda: run(group, member * lanes, lanes), lambda: run(group, single, 1))
    tasks = groups * (vectors + singles)
    return Kernel((Phase(fn.name, tasks, tasks * cost_model().cycles(_cycles(inner))),))


def _cycles(inner: Instruction) -> float:
    """The estimated cycles for the matrices of a vector."""
    size = inner.operands[0].shape.dimensions[-1]
    sides = math.prod(inner.shape.dimensions[-2:]) / size
    return 50.0 + size * size * (8.0 + (size / 3 if isinstance(inner.op, Cholesky) else sides))


def _cholesky(fn: Function, inner: Instruction) -> _Compute:
    """The factors, computed row by row as in the kernel of a single matrix."""
    kind, lower = inner.shape.element_type, inner.op_as(Cholesky).lower
    size = inner.shape.dimensions[-1]

    def compute(matrices: Sequence[Matrices]) -> None:
        matrix, factor = (m if lower else m.transposed() for m in matrices)
        type = vector(register_type(kind), matrix.lanes)
        good = factor_rows(matrix, factor, size)
        # A matrix that is not positive definite has no factor: all elements become NaN.
        nan = fn.constant(type, math.nan)
        with fn.loop(0, size, hints=NO_UNROLL) as rows:
            with fn.loop(0, rows.index + 1, hints=NO_UNROLL) as columns:
                element = as_real(factor.load(rows.index, columns.index))
                factor.store(fn.select(good, element, nan), rows.index, columns.index)
            with fn.loop(rows.index + 1, size, hints=NO_UNROLL) as columns:
                factor.store(fn.select(good, fn.constant(type, 0.0), nan), rows.index, columns.index)

    return compute


def _substitution(fn: Function, inner: Instruction) -> _Compute:
    """Substitution in t x = b, one right-hand side after the other, where t is a or its transpose."""
    op = inner.op_as(TriangularSolve)
    size = inner.operands[0].shape.dimensions[-1]
    sides = inner.shape.dimensions[-1 if op.left_side else -2]
    is_transposed = (op.transpose_a is not Transpose.NO_TRANSPOSE) == op.left_side
    lower = op.lower != is_transposed

    def compute(matrices: Sequence[Matrices]) -> None:
        a, *others = matrices
        t = a.transposed() if is_transposed else a
        b, x = others if op.left_side else [m.transposed() for m in others]
        with fn.loop(0, sides, hints=NO_UNROLL) as each, fn.loop(0, size, hints=NO_UNROLL) as steps:
            side = each.index
            row = steps.index if lower else fn.i64(size - 1) - steps.index
            first, last = (fn.i64(0), row) if lower else (row + 1, fn.i64(size))
            with fn.loop(first, last, carried=[as_real(b.load(row, side))], hints=NO_UNROLL) as known:
                product = as_real(t.load(row, known.index)) * as_real(x.load(known.index, side))
                known.next(known.carried[0] - product)
            solved = known.results[0]
            x.store(solved if op.unit_diagonal else solved / as_real(t.load(row, row)), row, side)

    return compute
