"""A few rows times a large row-major matrix, which is read once, row by row.

A task computes a block of columns. Several rows of the matrix are read concurrently, each as a stream, while the sums
of the block stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable

from xlakit import machine
from xlakit.cpu.kernels.gemm.engine import Engine, acc_vector
from xlakit.cpu.kernels.gemm.micro_kernel import with_product
from xlakit.cpu.kernels.gemm.operands import OperandReader, smaller
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.gemm.store import Output
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.options import knob

MOST_ROWS = knob("gemm_few_rows.most_rows", 4, 0, 1, 9, tries=(0, 8))
# The sums stay in the first-level cache while the matrix is streamed.
_SUMS_BYTES = knob("gemm_few_rows.sums_bytes", lambda: machine.current().l1 // 2, 512)


def columns_per_task(engine: Engine, rows: int, columns: int) -> int:
    """The columns of a task."""
    most = _SUMS_BYTES.value // (rows * engine.parts * engine.acc.bytes)
    # About a page of a row of the matrix, but short enough that threads share it: not less than a KiB, which is read as
    # a stream.
    page = min(1024, max(1024 // engine.acc.bytes, -(-columns // 4)))
    target = min(most, max(page, -(-columns // 8)))
    # At least a vector of sums for each row.
    return max(1, min(target // engine.lanes, -(-columns // engine.lanes))) * engine.lanes


def emit_few_rows(module: Module, engine: Engine, product: Product) -> Function:
    """A task function for a product of at most MOST_ROWS rows; rhs has one dimension across, of stride 1."""
    rows, columns, _ = product.sizes
    across = product.rhs.across
    require(
        f"a product of {product.sizes}, row after row of its right operand",
        [
            (f"there are at most {MOST_ROWS.value} rows", 0 < rows <= MOST_ROWS.value),
            ("there are columns", columns > 0 and product.columns.size == across.size),
            ("columns are contiguous", len(across.dims) == 1 and across.stride == 1),
            ("elements are computed one by one", engine.group == 1),
            ("operands have as many steps of k", product.lhs.along.size == product.rhs.along.size),
        ],
    )
    fn = module.function("dot", VOID, [PTR, I64, I64])
    _Emitter(fn, engine, product).emit()
    return fn


class _Emitter:
    """Writes one task function."""

    def __init__(self, fn: Function, engine: Engine, product: Product) -> None:
        self.fn, self.engine, self.product = fn, engine, product
        self.rows, self.columns, self.depth = product.sizes
        self.task_columns = columns_per_task(engine, self.rows, self.columns)
        # With this many streams the sums of one row fit into registers; with more rows there are fewer streams.
        self.streams = 8 if self.rows == 1 else 4

    def emit(self) -> None:
        """The loop over tasks: batches, and blocks of columns."""
        fn, engine, product = self.fn, self.engine, self.product
        table, begin, end = fn.parameters
        tables = [fn.pointer(table, n) for n in product.arrays]
        factors_bytes = -(-self.rows * engine.parts * self.depth * engine.packed.bytes // 64) * 64
        scratch = acquire(fn, factors_bytes + self._sums_bytes)
        self.factors = scratch
        self.sums = fn.at(scratch, engine.packed, factors_bytes // engine.packed.bytes)
        blocks = -(-self.columns // self.task_columns)
        with fn.loop(begin, end, hints=AS_WRITTEN) as task:
            batch = task.index.integer("udiv", blocks)
            first = task.index.integer("urem", blocks) * self.task_columns
            bases = product.bases(fn, tables, batch)
            self.rhs = OperandReader(fn, engine, product.rhs, bases[1], product.result)
            self.output = Output(fn, engine, product.result, product.rows, product.columns, bases[2])
            self._pack_factors(OperandReader(fn, engine, product.lhs, bases[0], product.result))
            self._block(first, smaller(fn.i64(self.columns) - first, fn.i64(self.task_columns)))
        release(fn, scratch)

    def _pack_factors(self, lhs: OperandReader) -> None:
        """Pack the rows of lhs, so that the elements of all rows at one step of k are adjacent."""
        fn, along = self.fn, self.product.lhs.along
        with fn.loop(0, self.rows, hints=AS_WRITTEN) as row, fn.loop(0, self.depth, independent=True) as k:
            values = lhs.elements(lhs.across(row.index) + along.offset(fn, k.index), 1)
            for part, value in enumerate(values):
                fn.store(value, self._factor_address(k.index, row.index, part))

    def _block(self, first: Value, width: Value) -> None:
        fn = self.fn
        fn.fill(self.sums, 0, self._sums_bytes)
        whole = self.depth // self.streams * self.streams
        with fn.loop(0, whole, self.streams, hints=AS_WRITTEN) as k:
            self._streams(k.index, self.streams, first, width)
        with fn.loop(whole, self.depth, hints=AS_WRITTEN) as k:
            self._streams(k.index, 1, first, width)

        def finish(column: Value, lanes: int) -> None:
            sums = [[self._sums(row, column, lanes)] for row in range(self.rows)]
            self.output.store_tile(sums, fn.i64(0), first + column, lanes)

        self._columns(width, finish)

    def _streams(self, k: Value, count: int, first: Value, width: Value) -> None:
        """Add the products of ``count`` steps of k to all sums of the block."""
        fn, engine = self.fn, self.engine
        along = self.product.rhs.along
        starts = [self.rhs.across(first) + along.offset(fn, k + n) for n in range(count)]
        factors = [
            [
                [fn.load(engine.packed, self._factor_address(k + n, row, part)) for part in range(engine.parts)]
                for n in range(count)
            ]
            for row in range(self.rows)
        ]

        def add(column: Value, lanes: int) -> None:
            elements = [self.rhs.elements(start + column, lanes) for start in starts]
            for row in range(self.rows):
                total = self._sums(row, column, lanes)
                for factor, element in zip(factors[row], elements, strict=True):
                    spread = [fn.splat(f, lanes) if lanes > 1 else f for f in factor]
                    total = with_product(fn, engine, spread, element, total)
                for part, value in enumerate(total):
                    fn.store(value, self._sum_address(row, column, part), align=engine.acc.bytes)

        self._columns(width, add)

    def _columns(self, width: Value, body: Callable[[Value, int], None]) -> None:
        """Emit ``body`` for all columns of the block, one register at a time."""
        fn, lanes = self.fn, self.engine.lanes
        tail = self.columns % lanes
        whole = width & -lanes
        with fn.loop(0, whole, lanes, hints=AS_WRITTEN) as column:
            body(column.index, lanes)
        if tail:
            with fn.if_(whole.ne(width)):
                body(whole, tail)

    @property
    def _sums_bytes(self) -> int:
        return self.rows * self.engine.parts * self.task_columns * self.engine.acc.bytes

    def _sums(self, row: int, column: Value, lanes: int) -> tuple[Value, ...]:
        """The parts of adjacent sums."""
        fn, engine = self.fn, self.engine
        addresses = [self._sum_address(row, column, part) for part in range(engine.parts)]
        return tuple(fn.load(acc_vector(engine, lanes), address, align=engine.acc.bytes) for address in addresses)

    def _sum_address(self, row: int, column: Value, part: int) -> Value:
        number = row * self.engine.parts + part
        return self.fn.at(self.sums, self.engine.acc, column + number * self.task_columns)

    def _factor_address(self, k: Value, row: Value | int, part: int) -> Value:
        engine = self.engine
        number = (k * self.rows + row) * engine.parts + part
        return self.fn.at(self.factors, engine.packed, number)
