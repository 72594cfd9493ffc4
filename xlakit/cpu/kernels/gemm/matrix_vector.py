"""A matrix with contiguous rows times a vector: each result is one sum along a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xlakit.cpu.kernels.gemm.micro_kernel import NO_UNROLL
from xlakit.cpu.kernels.gemm.operands import Direction, Packer
from xlakit.cpu.kernels.gemm.store import Output
from xlakit.cpu.kernels.shared.engine import Engine, acc_vector, stored_as_packed
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value, vector
from xlakit.cpu.scalars.memory import memory_type

if TYPE_CHECKING:
    from xlakit.cpu.kernels.gemm.product import Product

# Rows that are summed at the same time, so that elements of the vector are loaded once for all of them.
_ROWS_AT_ONCE = 4


def emit_matrix_vector(
    module: Module, engine: Engine, product: Product, arrays: tuple[int, int], task_rows: int
) -> Function:
    """A task function: result[b, i] = sum over k of matrix[b, i, k] * vector[b, k]; one run of k, of stride 1.

    product: of the matrix on the left and the vector on the right. arrays: the indices of matrix and vector in the
    table, the result's is 2. A task is ``task_rows`` rows of one batch.
    """
    matrix, vector_, result, batches = product.lhs, product.rhs, product.result, product.batches
    rows, depth = matrix.across.size, matrix.along.size
    require(
        f"a matrix of {rows} x {depth} times a vector, {task_rows} rows a task",
        [
            ("a task has rows", task_rows > 0),
            ("rows of the matrix are contiguous", depth < 2 or matrix.along.dims == ((depth, 1),)),
            ("the vector is as long as a row", vector_.along.size == depth and len(vector_.along.dims) <= 1),
            ("elements are computed one by one", engine.group == engine.parts == 1),
            ("batches are those of the result", len({direction.size for direction in batches}) == 1),
        ],
    )
    fn = module.function("dot", VOID, [PTR, I64, I64])
    _, begin, end = fn.parameters
    row_tasks = -(-rows // task_rows)
    tables = [fn.load(PTR, fn.at(fn.parameters[0], PTR, n)) for n in (*arrays, 2)]
    in_place = stored_as_packed(engine, vector_.kind) and (vector_.along.stride == 1 or depth == 1)
    scratch = fn.null() if in_place else acquire(fn, max(1, depth * engine.packed.bytes))
    with fn.loop(begin, end, hints=NO_UNROLL) as task:
        batch = task.index.integer("udiv", row_tasks)
        first = task.index.integer("urem", row_tasks) * task_rows
        bases: list[Value] = []
        for array, kind, direction in zip(tables, (matrix.kind, vector_.kind, result), batches, strict=True):
            bases.append(fn.at(array, memory_type(kind), direction.offset(fn, batch)))
        values = bases[1]
        if not in_place:
            packer = Packer(fn, engine, vector_, bases[1], result)
            with fn.loop(0, depth, independent=True) as k:
                element = packer.elements(k.index * vector_.along.stride, 1)[0]
                fn.store(element, fn.at(scratch, engine.packed, k.index))
            values = scratch
        packer = Packer(fn, engine, matrix, bases[0], result)
        output = Output(fn, engine, result, Direction(()), Direction(((rows, 1),)), bases[2])
        last = (first + task_rows).smin(rows)
        _rows(packer, values, output, first, last)
    if not in_place:
        release(fn, scratch)
    fn.ret()
    return fn


def _rows(packer: Packer, values: Value, output: Output, first: Value, last: Value) -> None:
    fn, engine = packer.fn, packer.engine
    rows = packer.matrix.across.size
    at_once = min(_ROWS_AT_ONCE, engine.lanes)
    if rows >= at_once:
        whole = first + ((last - first) & -at_once)
        with fn.loop(first, whole, at_once, hints=NO_UNROLL) as row:
            joined = fn.undefined(acc_vector(engine, at_once))
            for lane, total in enumerate(_sums(packer, values, row.index, at_once)):
                joined = fn.with_lane(joined, lane, total)
            output.store_tile([[(joined,)]], fn.i64(0), row.index, at_once)
        first = whole
    if rows % at_once:
        with fn.loop(first, last, hints=NO_UNROLL) as row:
            total = _sums(packer, values, row.index, 1)
            output.store_tile([[(total[0],)]], fn.i64(0), row.index, 1)


def _sums(packer: Packer, values: Value, row: Value, count: int) -> list[Value]:
    """The sums along ``count`` rows."""
    fn, engine = packer.fn, packer.engine
    depth, lanes = packer.matrix.along.size, engine.lanes
    # Enough sums that an addition need not wait for the one before.
    repeat = max(1, 8 // count)
    while repeat > 1 and depth < repeat * lanes:
        repeat //= 2
    starts = [packer.across(row + r) for r in range(count)]
    whole = depth // (lanes * repeat) * (lanes * repeat)

    def add(sums: Sequence[Value], k: Value, width: int, registers: int) -> list[Value]:
        found = list(sums)
        for n in range(registers):
            at = k + n * width
            type = vector(engine.packed, width)
            factor = fn.load(type, fn.at(values, engine.packed, at), align=engine.packed.bytes)
            for r, start in enumerate(starts):
                element = packer.elements(start + at, width)[0]
                slot = r * registers + n
                found[slot] = _sum_of_product(fn, element, factor, found[slot])
        return found

    totals = [fn.constant(engine.acc, 0)] * count
    if whole:
        zero = [fn.constant(acc_vector(engine), 0)] * (count * repeat)
        with fn.loop(0, whole, lanes * repeat, carried=zero, hints=NO_UNROLL) as loop:
            loop.next(*add(loop.carried, loop.index, lanes, repeat))
        for r in range(count):
            register = loop.results[r * repeat]
            for other in loop.results[r * repeat + 1 : (r + 1) * repeat]:
                register = register + other
            totals[r] = _across(fn, register)
    if depth > whole:
        with fn.loop(whole, depth, carried=totals, hints=NO_UNROLL) as loop:
            loop.next(*add(loop.carried, loop.index, 1, 1))
        totals = list(loop.results)
    return totals


def _sum_of_product(fn: Function, a: Value, b: Value, c: Value) -> Value:
    return c + a * b if a.type.is_int else fn.intrinsic("llvm.fmuladd", c.type, a, b, c)


def _across(fn: Function, register: Value) -> Value:
    """The sum of the lanes, halves first."""
    lanes = register.type.lanes
    while lanes > 1:
        lanes //= 2
        high = fn.shuffle(register, register, range(lanes, 2 * lanes)) if lanes > 1 else fn.lane(register, 1)
        low = fn.shuffle(register, register, range(lanes)) if lanes > 1 else fn.lane(register, 0)
        register = low + high
    return register
