"""The right operand of a product, packed once for all tasks: a phase before the product packs it into scratch memory.

Without it each task packs the slivers that it reads, which its neighbors in the same columns pack, too. Rows of tasks
may then be as many as balance the load.
"""

from __future__ import annotations

from collections.abc import Callable

from xlakit import machine
from xlakit.cpu.kernels.gemm.bf16_range import Ranges
from xlakit.cpu.kernels.gemm.blocking import Blocking
from xlakit.cpu.kernels.gemm.driver import GemmEmitter
from xlakit.cpu.kernels.gemm.operands import smaller
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.gemm.tasks import LEAST_SLIVERS, PACKING
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I64, PTR, VOID, Effort, Function, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.passes.analysis.cost_model import cost_model

# The packing tasks of a thread.
_PACKING_TASKS = 4


def emit_packing(module: Module, product: Product, blocking: Blocking, *, name: str = "packing") -> Function:
    """The task function that packs the right operand for all tasks of a product, whose table it has."""
    fn = module.function(name, VOID, [PTR, I64, I64])
    _Packing(fn, product, blocking).emit()
    fn.effort = Effort.LITTLE
    return fn


def packing_phase(name: str, product: Product, blocking: Blocking, reads: Accesses | None = None) -> Phase:
    """The phase of a function that packs the right operand. reads: what it reads, if that is stated."""
    _, columns, depth = product.sizes
    cost = columns * depth * PACKING.value * cost_model().multiplication
    return Phase(name, _packing_tasks(product, blocking), cost, nests=((reads,),) if reads else None)


class _Packing(GemmEmitter):
    """Packs the right operand. A task is some slivers of a block of k, for one of the column tasks of the product."""

    def emit(self) -> None:
        """Emit the loop over tasks."""
        fn, blocking = self.fn, self.blocking
        _, begin, end = fn.parameters
        scratch = acquire(fn, self.areas.bytes)
        self.area = self.areas.pointers_in(fn, scratch)
        self.ranges = Ranges(fn, self.engine, self.area.ranges)
        pieces = _packing_tasks(self.product, blocking) // (blocking.column_tasks * blocking.k_blocks)
        self.piece = -(-blocking.slivers(self.product) // pieces)
        with fn.loop(begin, end, hints=AS_WRITTEN) as task:
            rest = task.index.integer("udiv", pieces)
            number = rest.integer("urem", blocking.k_blocks)
            self.first_sliver = task.index.integer("urem", pieces) * self.piece
            self.begin_columns(fn.i64(0), rest.integer("udiv", blocking.k_blocks) * blocking.task_columns)
            self.find_columns()
            block = self.block(number)
            self.fill_run_tables(block)
            self.pack_right(number, block)
        release(fn, scratch)

    def each(self, do: Callable[[Value, Value, int], None]) -> None:
        """Call ``do`` with the first sliver, the number and the width of the task's slivers."""
        fn, first = self.fn, self.first_sliver
        end = first + self.piece
        count = smaller(end, self.whole) - first
        with fn.if_(count > 0):
            do(first, count, self.engine.nr)
        for width, when in self.partial_slivers():
            with when, fn.if_((first <= self.whole) & (self.whole < end)):
                do(self.whole, fn.i64(1), width)


def _packing_tasks(product: Product, blocking: Blocking) -> int:
    """The number of tasks that pack a right operand once for all tasks; a multiple of the blocks that are packed."""
    blocks = blocking.column_tasks * blocking.k_blocks
    pieces = -(-_PACKING_TASKS * machine.current().threads // blocks)
    slivers = blocking.slivers(product)
    pieces = max(1, min(pieces, slivers // LEAST_SLIVERS.value))
    # As many as have slivers.
    return blocks * -(-slivers // -(-slivers // pieces))
