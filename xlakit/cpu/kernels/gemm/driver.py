"""The loops around the micro-tiles of a product: tasks, blocks, packing. Common functions do the work inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from xlakit.cpu.kernels.gemm.address_tables import Addresses, Table, fill_table
from xlakit.cpu.kernels.gemm.areas import make_areas
from xlakit.cpu.kernels.gemm.bf16_range import Ranges
from xlakit.cpu.kernels.gemm.blocking import Blocking, plan_gemm, task_count
from xlakit.cpu.kernels.gemm.check import check_blocking
from xlakit.cpu.kernels.gemm.engine import stored_as_packed
from xlakit.cpu.kernels.gemm.epilogue import EpilogueCall, Rectangle
from xlakit.cpu.kernels.gemm.macro_kernel import MacroKernel, computed_columns
from xlakit.cpu.kernels.gemm.operands import (
    ACROSS,
    SINGLE,
    Block,
    Direction,
    OperandReader,
    element_bytes,
    form_of,
    in_groups,
    joined,
    smaller,
    times,
)
from xlakit.cpu.kernels.gemm.panels import PackPanels, form_of_panels
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.gemm.rows import PackRows
from xlakit.cpu.kernels.gemm.slivers import packing_of
from xlakit.cpu.kernels.gemm.store import Output, is_stored_by_tiles
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I8, I64, PTR, VOID, Effort, Function, Loop, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.primitive import PrimitiveType
from xlakit.options import knob

# The entry of the table with the right operand if it is packed once for all tasks (``packed_once.py``).
_PACKED_ONCE = 3
# The number of tiles whose sums are computed before they are converted to results.
_TILES = knob("gemm_driver.tiles", 8, 1, 2)
# Tables and sums are on the stack if they have at most this many bytes.
_STACK_BYTES = knob("gemm_driver.stack_bytes", 4 << 10, 0)
# Tiles of so many steps of k hardly notice the branch by which one function serves one block of k and several.
_MANY_STEPS = 32
# From this number of multiplications on, the time outside of micro-tiles is negligible.
_LARGE = knob("gemm.large", 1 << 18, 0)


class GemmEmitter:
    """Emits one task function. Ragged dots have subclasses with other rows and other blocks of k.

    begins_with_zeros: whether there may be no block of k at all, so that the sums must be cleared first.
    """

    begins_with_zeros = False

    def __init__(
        self, fn: Function, product: Product, blocking: Blocking, epilogue_call: EpilogueCall | None = None
    ) -> None:
        check_blocking(product, blocking, covers_k=not self.begins_with_zeros)
        self.fn, self.product, self.blocking, self.engine = fn, product, blocking, blocking.engine
        self.rows, self.columns, _ = product.sizes
        self.epilogue_call = epilogue_call
        self.packed_once = fn.pointer(fn.parameters[0], _PACKED_ONCE) if blocking.packs_once else None
        self.arrays = [fn.load(PTR, fn.at(fn.parameters[0], PTR, n)) for n in product.arrays]
        engine = self.engine
        self.several = blocking.k_blocks > 1
        self.local = blocking.local_width(product) if epilogue_call is not None and epilogue_call.local else 0
        self.direct = not self.begins_with_zeros and is_stored_by_tiles(
            engine, product.result, product.columns, local=self.local > 0
        )
        self.areas = make_areas(
            product, blocking, direct=self.direct, local_width=self.local, converted_rows=_TILES.value * engine.mr
        )
        self.sliver = blocking.sliver_elements
        # The elements of a row of a tile of sums.
        self.tile_row = engine.nr * engine.parts

    def emit(self) -> None:
        """Emit the loop over tasks."""
        fn, blocking = self.fn, self.blocking
        _, begin, end = fn.parameters
        areas = self.areas
        small = areas.bytes <= _STACK_BYTES.value
        scratch = fn.alloca(I8, areas.bytes, align=64) if small else acquire(fn, areas.bytes)
        self.area = areas.pointers_in(fn, scratch)
        self.ranges = Ranges(fn, self.engine, self.area.ranges)
        if blocking.packs[0]:
            length, height = blocking.packed_kc * self.engine.parts, blocking.left_step
            rows = Direction(((blocking.mc // height, length * height), (height, 1)))
            if height == 1:
                rows = Direction(((blocking.mc, length),))
            source = Addresses(self.area.left, self.engine.packed.bytes)
            fill_table(fn, rows, fn.i64(0), fn.i64(blocking.mc), source, Table(self.area.pointers))
        else:
            self.area.pointers = self.area.sources
        if blocking.is_mixed:
            # The runs of the packed operand are contiguous.
            side = blocking.packs.index(True)
            direction = Direction(((blocking.runs, blocking.kc * (blocking.left_step, self.engine.nr)[side]),))
            table = Table(fn.at(self.area.packed_runs, I64, side), apart=2)
            fill_table(fn, direction, fn.i64(0), fn.i64(blocking.runs), Addresses(), table)
        with fn.while_([begin], lambda loop: loop.carried[0] < end) as loop:
            task = loop.carried[0]
            if blocking.batches_inner:
                batch, rest = task.integer("urem", self.product.batch), task.integer("udiv", self.product.batch)
                column_task, row_task = (
                    rest.integer("urem", blocking.column_tasks),
                    rest.integer("udiv", blocking.column_tasks),
                )
                count = fn.i64(1)
            else:
                row_task, rest = task.integer("urem", blocking.row_tasks), task.integer("udiv", blocking.row_tasks)
                column_task, batch = (
                    rest.integer("urem", blocking.column_tasks),
                    rest.integer("udiv", blocking.column_tasks),
                )
                count = smaller(end - task, fn.i64(blocking.row_tasks) - row_task)
            first = row_task * blocking.task_rows
            last = smaller(first + count * blocking.task_rows, fn.i64(self.rows))
            self.compute_rows(batch, column_task * blocking.task_columns, first, last)
            loop.next(task + count)
        if not small:
            release(fn, scratch)

    def bases(self, batch: Value) -> list[Value]:
        """The addresses of lhs, rhs and result of a batch."""
        return self.product.bases(self.fn, self.arrays, batch)

    def compute_rows(self, batch: Value, column: Value, first: Value, last: Value) -> None:
        """Compute rows ``first`` to ``last`` (exclusive) of the columns of one task."""
        fn, blocking, left, lines = self.fn, self.blocking, self.product.lhs, self.product.lines
        self.begin_columns(batch, column)
        if blocking.packs[1] and not blocking.packs_once:
            self.find_columns()
            if blocking.ahead:
                with self.k_blocks() as loop:
                    block = self.block(loop.index)
                    self.fill_run_tables(block)
                    self.pack_right(loop.index, block)
        if lines is None:
            self._blocks_of_rows(batch, first, last)
            return
        with fn.loop(first, last, lines.chunk, hints=AS_WRITTEN) as chunk:
            end = smaller(chunk.index + lines.chunk, last)
            self.lhs.base = lines.write(fn, left, self.arrays[0], batch, self.area.lines, (chunk.index, end))
            self._blocks_of_rows(batch, chunk.index, end)

    def begin_columns(self, batch: Value, column: Value) -> None:
        """Find the operands, and the part of the result, for the columns of one task."""
        fn, blocking, product = self.fn, self.blocking, self.product
        bases = self.bases(batch)
        self.lhs = OperandReader(fn, self.engine, product.lhs, bases[0], product.result)
        self.rhs = OperandReader(fn, self.engine, product.rhs, bases[1], product.result)
        self.output = Output(fn, self.engine, product.result, product.rows, product.columns, bases[2])
        if self.local:
            rows, columns = Direction(((self.rows, self.local),)), Direction(((self.columns, 1),))
            self.output = Output(fn, self.engine, product.result, rows, columns, self.area.results)
        self.column = column
        self.whole = self._width().integer("udiv", self.engine.nr)
        if self.packed_once is not None:
            right = blocking.packed_once_bytes(product) // blocking.column_tasks
            self.area.right = fn.at(self.packed_once, I8, column.integer("udiv", blocking.task_columns) * right)

    def find_columns(self) -> None:
        """Fill the table of the addresses of a task's columns, from which they are packed."""
        fn, rhs, columns = self.fn, self.product.rhs, self.engine.nr
        width = self._width()
        padded = (width + (columns - 1)).integer("udiv", columns) * columns
        source = Addresses(self.rhs.base, element_bytes(rhs.kind))
        fill_table(fn, rhs.across, self.column, width, source, Table(self.area.sliver_sources, padded=padded))

    def _blocks_of_rows(self, batch: Value, first: Value, last: Value) -> None:
        fn, blocking, column = self.fn, self.blocking, self.column
        with fn.loop(first, last, blocking.mc, hints=AS_WRITTEN) as rows:
            end = smaller(rows.index + blocking.mc, last)
            if self.local:
                self.output.origin = rows.index, column
            self._rows(rows.index, end)
            if self.epilogue_call is not None:
                base = self.area.results if self.local else self.arrays[2]
                width = smaller(column + blocking.task_columns, fn.i64(self.columns))
                self.epilogue_call.call(fn, Rectangle(base, batch, (rows.index, end), (column, width)))

    def _width(self) -> Value:
        """The number of the task's columns."""
        fn, blocking = self.fn, self.blocking
        if blocking.column_tasks == 1:
            return fn.i64(self.columns)
        return smaller(fn.i64(self.columns) - self.column, fn.i64(blocking.task_columns))

    def each(self, do: Callable[[Value, Value, int], None]) -> None:
        """Call ``do`` with the first sliver, the number and the width of slivers.

        It is called once for whole slivers, and once for each width that a partial one may have.
        """
        if self.whole.constant != 0:
            do(self.fn.i64(0), self.whole, self.engine.nr)
        for width, when in self.partial_slivers():
            with when:
                do(self.whole, self.fn.i64(1), width)

    def partial_slivers(self) -> Iterator[tuple[int, AbstractContextManager[object]]]:
        """The widths of the partial sliver that a task may have, each with the branch of the tasks that have it."""
        blocking = self.blocking
        last, other = blocking.partial_columns(self.product)
        if blocking.column_tasks == 1 or last == other:
            if last:
                yield last, nullcontext()
            return
        is_last = (self.column + blocking.task_columns).compare("sge", self.columns)
        for width, condition in ((last, is_last), (other, ~is_last)):
            if width:
                yield width, self.fn.if_(condition)

    def k_blocks(self) -> AbstractContextManager[Loop]:
        """The loop over the blocks of k."""
        return self.fn.loop(0, self.blocking.k_blocks, hints=AS_WRITTEN)

    def block(self, number: Value) -> Block:
        """Block ``number`` of k."""
        fn, blocking, along = self.fn, self.blocking, self.product.lhs.along
        if not self.several:
            return Block(fn.i64(0), blocking.runs, fn.i64(0), blocking.kc)
        if blocking.runs > 1 or blocking.kc == along.run:
            run = number * blocking.runs
            total = along.outer.size
            runs = blocking.runs if total % blocking.runs == 0 else smaller(fn.i64(total) - run, fn.i64(blocking.runs))
            return Block(run, runs, fn.i64(0), blocking.kc)
        per_run = -(-along.run // blocking.kc)
        step = number.integer("urem", per_run) * blocking.kc
        even = along.run % blocking.kc == 0
        kc = blocking.kc if even else smaller(fn.i64(along.run) - step, fn.i64(blocking.kc))
        return Block(number.integer("udiv", per_run), 1, step, kc)

    # -- tables ----------------------------------------------------------------------------------

    def _fill_row_tables(self, first: Value, last: Value) -> None:
        """Fill the tables of the rows of a block and of their sums; rows beyond the end repeat the last row."""
        fn, engine, output = self.fn, self.engine, self.output
        count = last - first
        padded = (count + (engine.mr - 1)).integer("udiv", engine.mr) * engine.mr
        lhs = self.product.lhs
        source = Addresses(self.lhs.base, element_bytes(lhs.kind))
        fill_table(fn, lhs.across, first, count, source, Table(self.area.sources, padded=padded))
        if not self.direct:
            row = Direction(((self.blocking.mc, self.tile_row),))
            fill_table(
                fn, row, fn.i64(0), padded, Addresses(self.area.sums, engine.acc.bytes), Table(self.area.targets)
            )
            return
        row, column = output.origin or (fn.i64(0), fn.i64(0))
        base = fn.at(output.base, engine.acc, output.columns.offset(fn, self.column - column))
        targets = Table(self.area.targets, padded=padded, pad=self.area.sums)
        fill_table(fn, output.rows, first - row, count, Addresses(base, engine.acc.bytes), targets)

    def fill_run_tables(self, block: Block) -> None:
        """Fill the tables of the distances of the runs of a block of k from the first elements of rows and columns."""
        fn = self.fn
        runs = fn.i64(block.runs) if isinstance(block.runs, int) else block.runs
        for side, matrix in enumerate((self.product.lhs, self.product.rhs)):
            outer = joined(matrix.along.outer)
            distances = Addresses(base=block.step * matrix.along.stride)
            fill_table(fn, outer, block.run, runs, distances, Table(fn.at(self.area.runs, I64, side), apart=2))
            if self.blocking.is_mixed and not self.blocking.packs[side]:
                table = Table(fn.at(self.area.packed_runs, I64, side), apart=2)
                fill_table(fn, outer, block.run, runs, distances, table)

    # -- packing ---------------------------------------------------------------------------------

    def _pack_rows(self, count: Value, block: Block) -> None:
        fn, engine, lhs = self.fn, self.engine, self.product.lhs
        if self.blocking.in_panels:
            form = form_of_panels(lhs, engine, begins_with_panels=self._begins_with(engine.mr))
            pack = PackPanels(replace(engine, vectors=1), lhs.kind, self._seen_by(lhs.kind), form)
        else:
            form = form_of(lhs, engine.lanes)
            if form == ACROSS and (engine.parts == 2 or not self._begins_with(engine.lanes)):
                form = SINGLE
            pack = PackRows(replace(engine, mr=1, vectors=1), lhs.kind, self._seen_by(lhs.kind), form)
        common.call(
            fn,
            pack,
            self.area.sources,
            self.area.runs,
            *_numbers(fn, block.runs, block.kc, lhs.along.stride),
            count,
            self.area.left,
            fn.i64(self.blocking.packed_kc),
        )
        self.ranges.note_left(self.area.left, count, self.blocking.packed_kc, block)

    def _begins_with(self, rows: int) -> bool:
        """Whether blocks begin at multiples of some rows, so that these never extend from one run into the next."""
        blocking = self.blocking
        if len(self.product.lhs.across.dims) <= 1:
            return True
        blocks = self.rows <= blocking.mc or blocking.mc % rows == 0
        return blocks and (blocking.row_tasks == 1 or blocking.task_rows % rows == 0)

    def pack_right(self, number: Value, block: Block) -> None:
        """Pack the columns of one task, for one block of k."""
        fn, engine, rhs = self.fn, self.engine, self.product.rhs
        runs, kc = block.runs, block.kc
        if len(joined(rhs.along).dims) <= 1:
            # Adjacent runs of k in this operand are one run.
            runs, kc = 1, times(runs, kc)

        def pack(sliver: Value, slivers: Value, width: int) -> None:
            common.call(
                fn,
                packing_of(rhs, engine, width, kc if isinstance(kc, int) else None, self._seen_by(rhs.kind)),
                fn.at(self.area.sliver_sources, PTR, sliver * engine.nr),
                fn.at(self.area.runs, I64, 1),
                *_numbers(fn, runs, kc, rhs.along.stride),
                slivers,
                self._packed_sliver(number, sliver),
                fn.i64(self.sliver),
                fn.i64(width),
            )

        self.each(pack)
        # Behind the slivers of a task there is nothing, or the slivers of another block of k.
        slivers = (self._width() + (engine.nr - 1)).integer("udiv", engine.nr)
        self.ranges.note_right(self._packed_sliver(number, fn.i64(0)), slivers, self.sliver, block, self._kept(number))

    def _seen_by(self, kind: PrimitiveType) -> PrimitiveType:
        """The type of the result, if packing an operand of ``kind`` depends on it; else ``kind``."""
        return kind if stored_as_packed(self.engine, kind) else self.product.result

    def _kept(self, number: Value) -> Value:
        """The position of block ``number`` of k among the kept packed blocks of the right operand."""
        return number if self.blocking.ahead else self.fn.i64(0)

    def _packed_sliver(self, number: Value, sliver: Value) -> Value:
        start = self._kept(number) * (self.blocking.slivers(self.product) * self.sliver)
        return self.fn.at(self.area.right, self.engine.packed, start + sliver * self.sliver)

    # -- tiles -----------------------------------------------------------------------------------

    def _rows(self, first: Value, last: Value) -> None:
        """One block of rows: for each block of k, pack the operands, then multiply tile by tile."""
        fn, blocking, engine = self.fn, self.blocking, self.engine
        count = last - first
        self._fill_row_tables(first, last)
        if self.begins_with_zeros:
            fn.fill(self.area.sums, 0, self.areas.sums)
        with self.k_blocks() as loop:
            block = self.block(loop.index)
            self.fill_run_tables(block)
            if blocking.packs[1] and not blocking.ahead:
                self.pack_right(loop.index, block)
            if blocking.packs[0]:
                self._pack_rows(count, block)
            self.flushes = self.ranges.flushing_is_exact(self._kept(loop.index))
            if self.direct or self.several:
                advance = engine.nr if self.direct else blocking.mc * self.tile_row
                self.each(lambda s, n, w: self._multiply(loop.index, block, (s, n), (fn.i64(0), count), w, advance))
            else:
                self.each(lambda s, n, w: self._converted(loop.index, block, (s, n), (first, last), w))
        if self.several and not self.direct:
            distance = blocking.mc * self.tile_row * engine.acc.bytes

            def finish(sliver: Value, slivers: Value, width: int) -> None:
                with fn.loop(0, slivers, hints=AS_WRITTEN) as each:
                    number = sliver + each.index
                    self._finish(fn.at(self.area.sums, I8, number * distance), number, first, count, width)

            self.each(finish)

    def _multiply(
        self,
        number: Value,
        block: Block,
        slivers: tuple[Value, Value],
        rows: tuple[Value, Value],
        width: int,
        advance: int,
    ) -> None:
        """Multiply tiles: ranges of slivers and rows, each given by its first and their number.

        The sums of the next sliver are ``advance`` elements further on.
        """
        fn, blocking, engine = self.fn, self.blocking, self.engine
        (sliver, count), lhs, rhs = slivers, self.product.lhs, self.product.rhs
        runs, kc, table = block.runs, block.kc, self.area.packed_runs if self.blocking.is_mixed else self.area.runs
        if all(blocking.packs):
            runs, kc = 1, times(runs, kc)
            table = fn.address(fn.module.shared_data("no_distance", bytes(16), align=8))
        if engine.group > 1:
            # Both operands are padded to whole groups of steps.
            kc = -(-kc // engine.group) if isinstance(kc, int) else in_groups(kc + (engine.group - 1), engine.group)
        next_right = self.sliver * engine.packed.bytes
        if not blocking.packs[1]:
            # With two dimensions, the outer one counts slivers.
            step = engine.nr * rhs.across.stride if len(rhs.across.dims) < 2 else rhs.across.dims[0][1]
            next_right = step * memory_type(rhs.kind).bytes
        common.call(
            fn,
            self._macro_kernel(width, kc),
            (rows[1] + (engine.mr - 1)).integer("udiv", engine.mr),
            count,
            *_numbers(fn, next_right, advance),
            fn.at(self.area.pointers, PTR, rows[0]),
            self._right(number, sliver),
            table,
            *_numbers(
                fn,
                runs,
                kc,
                blocking.left_step if blocking.packs[0] else lhs.along.stride,
                engine.nr if blocking.packs[1] else rhs.along.stride,
            ),
            self.area.targets,
            sliver * advance,
            fn.i64(1) if self.begins_with_zeros else number,
            self.flushes,
            fn.i64(width),
        )

    def _macro_kernel(self, width: int, kc: Value | int) -> MacroKernel:
        """The macro-kernel for slivers of ``width`` columns."""
        blocking, engine, product = self.blocking, self.engine, self.product
        kind = product.rhs.kind
        wide, masks = computed_columns(engine, width, packed=blocking.packs[1], direct=self.direct)
        step = product.lhs.along.stride
        steps = kc if isinstance(kc, int) else _MANY_STEPS
        return MacroKernel(
            engine,
            None if masks else width if self.direct else wide,
            wide,
            blocking.left_step if blocking.packs[0] else step if step in (1, engine.interleaved) else None,
            engine.nr if blocking.packs[1] else None,
            None if blocking.packs[1] else kind,
            None if blocking.packs[1] or stored_as_packed(engine, kind) else product.result,
            steps if steps <= (4 if engine.mr > 1 else 8) else None,
            self.several or steps >= _MANY_STEPS,
            blocking.packs[1] and blocking.ahead,
            blocking.in_panels,
        )

    def _right(self, number: Value, sliver: Value) -> Value:
        """The address of the right operand of a sliver."""
        rhs = self.product.rhs
        if self.blocking.packs[1]:
            return self._packed_sliver(number, sliver)
        start = self.rhs.across(self.column + sliver * self.engine.nr)
        return self.fn.at(self.rhs.base, memory_type(rhs.kind), start)

    # -- conversion of sums to results ------------------------------------------------------------

    def _converted(
        self, number: Value, block: Block, slivers: tuple[Value, Value], rows: tuple[Value, Value], width: int
    ) -> None:
        """Multiply a few tiles, convert their sums to results, and continue with the next."""
        fn, most = self.fn, _TILES.value * self.engine.mr
        first, last = rows
        with fn.loop(0, slivers[1], hints=AS_WRITTEN) as each, fn.loop(0, last - first, most, hints=AS_WRITTEN) as row:
            sliver = slivers[0] + each.index
            count = smaller(last - first - row.index, fn.i64(most))
            self._multiply(number, block, (sliver, fn.i64(1)), (row.index, count), width, 0)
            self._finish(self.area.sums, sliver, first + row.index, count, width)

    def _finish(self, sums: Value, sliver: Value, first: Value, count: Value, width: int) -> None:
        """Convert the sums of some rows to results."""
        engine = self.engine
        sums_of_row = sums, engine.vectors * engine.parts
        self.output.call_store_rows(sums_of_row, first, self.column + sliver * engine.nr, count, width)


def _numbers(fn: Function, *numbers: Value | int) -> Sequence[Value]:
    return [fn.i64(n) if isinstance(n, int) else n for n in numbers]


def emit_gemm(
    module: Module,
    product: Product,
    blocking: Blocking | None = None,
    *,
    name: str = "gemm",
    epilogue_call: EpilogueCall | None = None,
) -> Function:
    """A task function for a product; its table is lhs, rhs, result, and a right operand that is packed once for all.

    If ``epilogue_call`` is given, it is called after each block of rows.
    """
    blocking = blocking or plan_gemm(product)
    fn = module.function(name, VOID, [PTR, I64, I64])
    if task_count(product, blocking):
        GemmEmitter(fn, product, blocking, epilogue_call).emit()
        rows, columns, depth = product.sizes
        fn.effort = Effort.LITTLE if rows * columns * depth >= _LARGE.value else Effort.ALL
    return fn
