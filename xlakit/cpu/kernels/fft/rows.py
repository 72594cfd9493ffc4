"""Transforms of single long rows, as a sequence of steps.

A length n = a * b is transformed as the columns of a matrix [a, b], multiplied by roots of unity, and transformed as
its rows, in groups of columns or rows. Steps before and after it handle real rows and other lengths. If there are few
rows, tasks share each step of them; if there are many, a task computes whole rows, which stay in the near caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.fft.four_step import FourStep
from xlakit.cpu.kernels.fft.lanes import lane_count
from xlakit.cpu.kernels.fft.plan import Axis, convolution_length, four_step_factors, is_smooth, work
from xlakit.cpu.kernels.fft.points import CHUNK, LONGEST_CHIRP, Points
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I8, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.llvm.promises import CONTRACTS
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model

# Rows of fewer points are not worth sharing between tasks.
_SHARED = knob("fft_rows.shared", 1 << 14, 8, 64, tries=(times(0.25), times(4)))
_FEW_ROWS = knob("fft_rows.few_rows", 4, 0, 1000)

# The memories of steps: the row itself, its result, three temporaries, and the data shared by all rows.
_SOURCE, _TARGET, _X, _Y, _Z, _SHARED_SPECTRUM = range(6)
_SCRATCH = 2


@dataclass(frozen=True, slots=True)
class _Step:
    """``void(ptr source, ptr target, i64 begin, i64 end)`` over chunks, and the memories that it reads and writes."""

    function: Function
    chunks: int
    source: int
    target: int
    cost: float


def row_length(axis: Axis) -> int:
    """The length of the complex transforms."""
    return axis.points if is_smooth(axis.points) else convolution_length(axis.points)


def are_long_rows(axis: Axis) -> bool:
    """Whether a row's length has two factors that each fill a vector."""
    return four_step_factors(row_length(axis), lane_count(axis.part)) is not None


def long_row_cost(axis: Axis) -> float | None:
    """The estimated nanoseconds of all rows; None if a row is too short or its length has no two suitable factors."""
    lanes = lane_count(axis.part)
    length = row_length(axis)
    pair = four_step_factors(length, lanes)
    if axis.inner != 1 or pair is None:
        return None
    a, b = pair
    row_cost = -(-b // lanes) * work(a) + -(-a // lanes) * work(b) + 1.6 * length
    return cost_model().cycles(axis.outer * 1.2 * (row_cost if length == axis.points else 2.2 * row_cost))


def emit_long_rows(module: Module, axis: Axis, scratch: int) -> tuple[Sequence[Phase], int]:
    """The phases, and the bytes of scratch that they need after the first ``scratch`` bytes."""
    pipeline = _Pipeline(module, axis)
    pipeline.build()
    before = pipeline.emit_before(scratch)
    if pipeline.rows >= _FEW_ROWS.value or pipeline.length < _SHARED.value:
        return [*before, pipeline.emit_whole(scratch)], pipeline.shared_bytes
    after = scratch + pipeline.shared_bytes
    bytes = pipeline.shared_bytes + len(pipeline.memories) * pipeline.bytes * pipeline.rows
    return [*before, *pipeline.emit_shared(scratch, after)], bytes


class _Pipeline:
    """The steps for one axis."""

    def __init__(self, module: Module, axis: Axis) -> None:
        self.module = module
        self.axis = axis
        self.length = row_length(axis)
        pair = four_step_factors(self.length, lane_count(axis.part))
        if pair is None:
            raise InternalError(f"a length of {self.length} has no two smooth factors")
        self.four_step = FourStep(module, axis.part, *pair)
        self.rows = axis.outer * axis.inner
        self.steps: list[_Step] = []
        # Steps that run once, before all rows.
        self.before: list[_Step] = []
        # All memories have the size of the largest.
        self.bytes = -(-max(self.four_step.bytes, 2 * axis.spectrum * axis.part.bytes) // 64) * 64

    @property
    def memories(self) -> list[int]:
        """The temporary memories that the steps of a row use."""
        return sorted({m for s in self.steps for m in (s.source, s.target)} - {_SOURCE, _TARGET, _SHARED_SPECTRUM})

    @property
    def shared_bytes(self) -> int:
        """The bytes for data that all rows share: the spectrum of the chirp, and the same size to compute it."""
        return 2 * self.bytes if self.before else 0

    # -- which steps there are -------------------------------------------------------------------

    def build(self) -> None:
        """Write the functions of all steps."""
        axis = self.axis
        if axis.writes_real and axis.is_halved:
            self._simple(Points.tangle, _SOURCE, _Z)
            self._transform(_Z, _TARGET, False, True, axis.scale)
        elif axis.writes_real:
            self._simple(Points.mirror, _SOURCE, _Z)
            self._transform(_Z, _Z, False, False, 1.0)
            self._simple(Points.imaginary, _Z, _TARGET)
        elif axis.reads_real and axis.is_halved:
            self._transform(_SOURCE, _Z, False, False, 1.0)
            self._simple(Points.untangle, _Z, _TARGET)
        elif axis.reads_real:
            self._simple(Points.widen, _SOURCE, _Z)
            self._transform(_Z, _Z, False, False, 1.0)
            self._simple(Points.narrow, _Z, _TARGET)
        else:
            self._transform(_SOURCE, _TARGET, axis.is_inverse, axis.is_inverse, axis.scale)

    def _transform(self, source: int, target: int, swaps_in: bool, swaps_out: bool, scale: float) -> None:
        """A complex transform; if the length is not smooth, as a convolution with a chirp (Bluestein)."""
        if self.length == self.axis.points:
            self._four_step(source, target, swaps_in, swaps_out, scale)
            return
        self._simple(Points.chirped, source, _Y, swaps_in)
        self._four_step(_Y, _Y, False, False, 1.0)
        # Exchanging real and imaginary parts turns the forward transform into the backward one.
        if self.axis.points > LONGEST_CHIRP.value:
            self._simple(Points.kept_spectrum, _SHARED_SPECTRUM, _Y)
            steps, self.steps = self.steps, self.before
            self._simple(Points.back_chirp, _SHARED_SPECTRUM, _SHARED_SPECTRUM)
            self._four_step(_SHARED_SPECTRUM, _SHARED_SPECTRUM, False, False, 1.0)
            self.steps = steps
        else:
            self._simple(Points.spectrum, _Y, _Y)
        self._four_step(_Y, _Y, False, True, 1.0)
        self._simple(Points.unchirped, _Y, target, swaps_out, scale)

    def _four_step(self, source: int, target: int, swaps_in: bool, swaps_out: bool, scale: float) -> None:
        four_step, half = self.four_step, self.length * 1.5
        self.steps.append(_Step(four_step.columns(swaps_in), four_step.column_chunks, source, _X, half))
        self.steps.append(_Step(four_step.rows(swaps_out, scale), four_step.row_chunks, _X, target, half))

    def _simple(
        self, write: Callable[[Points], int], source: int, target: int, swaps: bool = False, scale: float = 1.0
    ) -> None:
        """A pointwise step, whose chunks are ranges of points."""
        fn = self.module.function(f"fft_{write.__name__}", VOID, [PTR, PTR, I64, I64])
        fn.fast_math = CONTRACTS
        count = write(Points(fn, self.axis, self.length, swaps, scale))
        self.steps.append(_Step(fn, -(-count // CHUNK), source, target, cost_model().cycles(2.0 * count)))

    # -- how they run ----------------------------------------------------------------------------

    def emit_before(self, scratch: int) -> list[Phase]:
        """The phases that compute the data shared by all rows: the spectrum of the chirp of Bluestein's algorithm."""
        phases: list[Phase] = []
        for step in self.before:
            fn, table, begin, end = kernel_function(self.module, "fft_before_rows")
            space = self._scratch(fn, table, scratch)
            addresses = {_SHARED_SPECTRUM: space, _X: fn.at(space, I8, self.bytes)}
            fn.call(step.function, VOID, addresses[step.source], addresses[step.target], begin, end)
            phases.append(Phase(fn.name, step.chunks, step.cost))
        return phases

    def emit_whole(self, shared: int) -> Phase:
        """One phase, whose tasks each execute all steps of a row."""
        fn, table, begin, end = kernel_function(self.module, "fft_long_rows")
        source, target = self.axis.source.pointer(fn, table), self.axis.target.pointer(fn, table)
        memories = self.memories
        scratch = acquire(fn, len(memories) * self.bytes)
        with fn.loop(begin, end, hints=AS_WRITTEN) as task:
            addresses = {memory: fn.at(scratch, I8, n * self.bytes) for n, memory in enumerate(memories)}
            addresses |= self._row(fn, source, target, task.index)
            if self.before:
                addresses[_SHARED_SPECTRUM] = self._scratch(fn, table, shared)
            for step in self.steps:
                fn.call(
                    step.function, VOID, addresses[step.source], addresses[step.target], fn.i64(0), fn.i64(step.chunks)
                )
        release(fn, scratch)
        return Phase(fn.name, self.rows, self.rows * sum(s.cost for s in self.steps))

    def emit_shared(self, shared: int, scratch: int) -> list[Phase]:
        """A phase for each step, whose tasks each execute a chunk of one row.

        A transform of 2**20 points takes 0.76 of the time on two threads.
        """
        memories = self.memories
        phases: list[Phase] = []
        for step in self.steps:
            fn, table, begin, end = kernel_function(self.module, "fft_shared_rows")
            source, target = self.axis.source.pointer(fn, table), self.axis.target.pointer(fn, table)
            space = self._scratch(fn, table, scratch)
            with fn.loop(begin, end, hints=AS_WRITTEN) as task:
                row, chunk = task.index.integer("udiv", step.chunks), task.index.integer("urem", step.chunks)
                first_buffer = row * len(memories)
                addresses = {
                    memory: fn.at(space, I8, (first_buffer + n) * self.bytes) for n, memory in enumerate(memories)
                }
                addresses |= self._row(fn, source, target, row)
                if self.before:
                    addresses[_SHARED_SPECTRUM] = self._scratch(fn, table, shared)
                fn.call(step.function, VOID, addresses[step.source], addresses[step.target], chunk, chunk + 1)
            phases.append(Phase(fn.name, self.rows * step.chunks, self.rows * step.cost))
        return phases

    def _scratch(self, fn: Function, table: Value, offset: int) -> Value:
        return fn.at(fn.pointer(table, _SCRATCH), I8, offset)

    def _row(self, fn: Function, source: Value, target: Value, row: Value) -> dict[int, Value]:
        """The addresses of a row in the source and in the target, as entries of a table of memories."""
        part, inner = self.axis.part, self.axis.inner
        if inner > 1:
            # The points of a column are ``inner`` complex numbers apart.
            outer, column = row.integer("udiv", inner), row.integer("urem", inner)
            start = outer * (2 * self.axis.length * inner) + column * 2
            return {_SOURCE: fn.at(source, part, start), _TARGET: fn.at(target, part, start)}
        return {
            _SOURCE: fn.at(source, part, row * self.axis.source_row),
            _TARGET: fn.at(target, part, row * self.axis.target_row),
        }
