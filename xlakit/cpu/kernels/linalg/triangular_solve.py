"""triangular-solve: small systems by loops, larger ones by micro-tiles of products or BLAS, on blocks of sides."""

from __future__ import annotations

import math
import struct

from xlakit import machine
from xlakit.cpu.kernels.gemm.engine import Engine
from xlakit.cpu.kernels.linalg.strips import Strips, engine_of, most_sides
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.llvm import VOID, Function, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.scalars import Scalar, complex as of_complex, load, store
from xlakit.cpu.scalars.memory import as_real, from_parts, memory_type, parts
from xlakit.cpu.scalars.real import BINARY
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.enums import Transpose
from xlakit.ir.instruction import Instruction
from xlakit.ops.linear_algebra import TriangularSolve
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model

# Up to this size of the triangle a call of BLAS costs more than it saves.
SMALL = knob("triangular_solve.small", 16, 0, 4)
# The least multiplications and right-hand sides of a task: BLAS packs the triangle again for each.
_TASK_PRODUCTS = knob("triangular_solve.task_products", 1 << 18, 10, tries=(times(0.25), times(4)))
_LEAST_SIDES = knob("triangular_solve.least_sides", 64, 1)


@dataclass(frozen=True, slots=True)
class _Problem:
    """``batch`` systems of ``size`` unknowns, with ``sides`` right-hand sides each.

    engine: the micro-tile of systems that are solved by strips.
    """

    op: TriangularSolve
    kind: PrimitiveType
    batch: int
    size: int
    sides: int
    engine: Engine | None

    @property
    def products(self) -> float:
        """The number of real multiplications of a system."""
        return 0.5 * self.size * self.size * self.sides * (4 if self.kind.is_complex else 1)

    @property
    def system(self) -> tuple[bool, tuple[int, int]]:
        """Whether t is lower in t x = b, where t is a or its transpose, and the steps of its elements in a."""
        turned = self.op.transpose_a is not Transpose.NO_TRANSPOSE
        backwards = turned == self.op.left_side
        return self.op.lower != backwards, (1, self.size) if backwards else (self.size, 1)

    @property
    def block(self) -> int:
        """The number of right-hand sides of a task."""
        shared = -(-self.sides // -(-machine.current().threads // max(1, self.batch)))
        target = max(_LEAST_SIDES.value, shared, int(_TASK_PRODUCTS.value * self.sides / max(1.0, self.products)))
        if self.engine is None:
            return min(self.sides, -(-target // 16) * 16)
        return min(self.sides, -(-target // self.engine.nr) * self.engine.nr, most_sides(self.engine, self.size))

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return self.batch * -(-self.sides // self.block)


def emit_triangular_solve(module: Module, instruction: Instruction) -> Kernel:
    """The kernel; its table has a, b and the result, which starts as b. Raises DeclinedError for narrow types."""
    op = instruction.op_as(TriangularSolve)
    shape = instruction.shape
    *batch, rows, columns = shape.dimensions
    size, sides = (rows, columns) if op.left_side else (columns, rows)
    kind = shape.element_type
    engine = None if size <= SMALL.value else engine_of(kind, size, sides)
    problem = _Problem(op, kind, math.prod(batch), size, sides, engine)
    fn, table, begin, end = kernel_function(module, "triangular_solve")
    a, x = (fn.pointer(table, n) for n in (0, 2))
    solve = _solver(fn, problem)
    blocks = -(-sides // problem.block)
    with fn.loop(begin, end, hints=NO_UNROLL) as task:
        matrix = task.index.integer("udiv", blocks)
        first = task.index.integer("urem", blocks) * problem.block
        count = (fn.i64(sides) - first).umin(problem.block)
        width = 2 if problem.kind.is_complex else 1
        type = memory_type(problem.kind)
        start = matrix * (size * sides) + (first if op.left_side else first * size)
        solve.solve(fn.at(a, type, matrix * (size * size * width)), fn.at(x, type, start * width), count)
    cost = cost_model().cycles(problem.batch * (200.0 + problem.products * 0.4))
    return Kernel((Phase(fn.name, problem.tasks, cost, nests=((Accesses.in_place([0], [2]),),)),), {0: 1})


def _solver(fn: Function, problem: _Problem) -> _Loops | _Blas | Strips:
    size, op, engine = problem.size, problem.op, problem.engine
    if engine is None:
        return _Loops(fn, problem) if size <= SMALL.value else _Blas(fn, problem)
    lower, a_steps = problem.system
    x_steps = (problem.sides, 1) if op.left_side else (1, size)
    return Strips(fn, problem.kind, engine, size, problem.block, lower, op.unit_diagonal, a_steps, x_steps)


class _Blas:
    """Solves by ``trsm``. Fortran sees the transpose of row-major arrays: x op(a) = b as op(a)' x' = b'."""

    def __init__(self, fn: Function, problem: _Problem) -> None:
        self._fn = fn
        self._problem = problem
        self._letter = blas.LETTERS[problem.kind]
        self._routine = blas.declare(fn.module, f"{self._letter}trsm", 11)
        self._arguments = blas.Arguments(fn)

    def solve(self, a: Value, x: Value, count: Value) -> None:
        """Solve for ``count`` right-hand sides from ``x`` on."""
        problem, op, arguments = self._problem, self._problem.op, self._arguments
        size, sides = arguments.integer(problem.size), arguments.computed("sides", count)
        turned = {Transpose.TRANSPOSE: "T", Transpose.ADJOINT: "C"}.get(op.transpose_a, "N")
        self._fn.call(
            self._routine,
            VOID,
            arguments.letter("R" if op.left_side else "L"),
            arguments.letter("U" if op.lower else "L"),
            arguments.letter(turned),
            arguments.letter("U" if op.unit_diagonal else "N"),
            sides if op.left_side else size,
            size if op.left_side else sides,
            arguments.data(struct.pack(blas.FACTORS[self._letter], *(1, 0)[: 2 if problem.kind.is_complex else 1])),
            a,
            size,
            x,
            arguments.integer(problem.sides) if op.left_side else size,
        )


class _Loops:
    """Solves by substitution the system t x = b, where t is a or its transpose and x is [size, sides]."""

    def __init__(self, fn: Function, problem: _Problem) -> None:
        self._fn = fn
        self._problem = problem
        self._is_adjoint = problem.op.transpose_a is Transpose.ADJOINT
        self._lower, self._a_steps = problem.system

    def solve(self, a: Value, x: Value, count: Value) -> None:
        """Solve for ``count`` right-hand sides from ``x`` on."""
        fn = self._fn
        if self._problem.op.left_side:
            self._substitute(a, x, count)
            return
        with fn.loop(0, count, hints=NO_UNROLL) as loop:
            self._substitute(a, self._at(x, loop.index * self._problem.size), None)

    def _substitute(self, a: Value, x: Value, count: Value | None) -> None:
        """Solve for ``count`` adjacent sides, or, if that is None, for one side whose elements are adjacent."""
        fn, size = self._fn, self._problem.size
        step = 1 if count is None else self._problem.sides
        with fn.loop(0, size, hints=NO_UNROLL) as steps:
            row = steps.index if self._lower else fn.i64(size - 1) - steps.index
            first, last = (fn.i64(0), row) if self._lower else (row + 1, fn.i64(size))
            row_address = self._at(x, row * step)
            if count is None:
                start = self._load(row_address, fn.i64(0))
                with fn.loop(first, last, carried=parts(start), hints=NO_UNROLL) as known:
                    factor = self._factor(a, row, known.index)
                    difference = self._less(from_parts(known.carried), factor, self._load(x, known.index))
                    known.next(*parts(difference))
                self._store(self._divided(a, row, from_parts(known.results)), row_address, fn.i64(0))
                return
            with fn.loop(first, last, hints=NO_UNROLL) as known:
                factor, other = self._factor(a, row, known.index), self._at(x, known.index * step)
                with fn.loop(0, count, independent=True) as sides:
                    difference = self._less(
                        self._load(row_address, sides.index), factor, self._load(other, sides.index)
                    )
                    self._store(difference, row_address, sides.index)
            with fn.loop(0, count, independent=True) as sides:
                self._store(self._divided(a, row, self._load(row_address, sides.index)), row_address, sides.index)

    def _less(self, value: Scalar, factor: Scalar, other: Scalar) -> Scalar:
        return self._apply("subtract", value, self._apply("multiply", factor, other))

    def _divided(self, a: Value, row: Value, value: Scalar) -> Scalar:
        if self._problem.op.unit_diagonal:
            return value
        return self._apply("divide", value, self._factor(a, row, row))

    def _factor(self, a: Value, row: Value, column: Value) -> Scalar:
        element = self._load(a, row * self._a_steps[0] + column * self._a_steps[1])
        return (element[0], -element[1]) if self._is_adjoint and isinstance(element, tuple) else element

    def _apply(self, opcode: str, left: Scalar, right: Scalar) -> Scalar:
        if isinstance(left, tuple):
            return of_complex.apply(self._fn, opcode, self._problem.kind, (left, right))
        return BINARY[opcode](self._fn, self._problem.kind, left, as_real(right))

    def _at(self, array: Value, index: Value) -> Value:
        kind = self._problem.kind
        return self._fn.at(array, memory_type(kind), index * (2 if kind.is_complex else 1))

    def _load(self, array: Value, index: Value) -> Scalar:
        return load(self._fn, self._problem.kind, array, index)

    def _store(self, scalar: Scalar, array: Value, index: Value) -> None:
        store(self._fn, self._problem.kind, scalar, array, index)
