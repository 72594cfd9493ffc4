"""Chooses the operations that are made in batch-minor form, by the estimated gain in each computation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import While
from xlakit.ops.data import Constant, GetTupleElement, Iota, Parameter, Tuple
from xlakit.ops.dot import Dot
from xlakit.ops.gather import Gather
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.options import knob
from xlakit.passes.analysis.loops import Loop, loop_of, trip_count
from xlakit.passes.batches.forms import Batch, Maker
from xlakit.passes.batches.rules import maker_of
from xlakit.passes.core.framework import is_fixed

# The unit of costs and gains is one element of an operation on short rows.
# The cost of transposing an element between the forms.
_MOVED = knob("batch_minor.moved", 2.0, 0.0, 100.0)
# The additional cost of transposing an array: its own kernel.
_MOVED_ARRAY = knob("batch_minor.moved_array", 512.0, 0.0)
# The gain of an element-wise operation per element: it is as fast in either form alone, but not fused with others.
_ELEMENTWISE_GAIN = 0.25
# The gain of a dot is capped at that of so many multiplications for each member.
_DOT_GAIN = 64
# The assumed trip count of a loop whose trip count is unknown.
_ITERATIONS = 16
# Operations that move elements within short rows, or combine them.
_ON_ROWS = (Broadcast, Concatenate, Gather, Pad, Reduce, Reverse, Slice, Transpose)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a computation.

    makers: the functions that make its operations in batch-minor form; empty if that has no gain. loops: its loops that
    carry their state in that form. gain: in elements of operations on short rows. carries: whether the computation is
    the body or condition of a loop, whose state can have either form.
    """

    makers: Mapping[Instruction, Maker]
    loops: Mapping[Instruction, Loop]
    gain: float
    carries: bool


def plans_of(computations: Iterable[Computation], batch: Batch) -> dict[Computation, Plan]:
    """A plan for each computation that runs as a program, given callees first."""
    own = list(computations)
    loops = [loop for c in own for i in c.calling_instructions if isinstance(i.op, While) and (loop := loop_of(i))]
    states = {c for loop in loops for c in (loop.body, loop.condition)}
    found: dict[Computation, Plan] = {}
    # Where nothing works on rows, the programs are as fast in either form, and transposes come on top.
    if not any(_works_on_rows(x, batch) for c in own for x in c.instructions if maker_of(x, batch) is not None):
        return found
    for computation in own:
        found[computation] = _plan(computation, batch, found, carries=computation in states)
    return found


def _plan(computation: Computation, batch: Batch, inner: Mapping[Computation, Plan], *, carries: bool) -> Plan:
    makers, loops = _candidates(computation, batch, inner)
    gain = sum(_gain_of(x, batch) for x in makers)
    moved = _moved(computation, batch, makers, loops, carries)
    gain -= sum(_MOVED.value * x.shape.num_elements + _MOVED_ARRAY.value for x in moved)
    if gain < 0 or (gain == 0 and not carries):
        makers, gain = {}, 0.0
    return Plan(makers, loops, gain + sum(_gain_of_loop(loop, inner) for loop in loops.values()), carries)


def _candidates(
    computation: Computation, batch: Batch, inner: Mapping[Computation, Plan]
) -> tuple[dict[Instruction, Maker], dict[Instruction, Loop]]:
    """The operations and the loops of a computation that can be made in batch-minor form."""
    ordered = {p for i in computation.instructions for p in i.control_predecessors}
    whole = {o for i in computation.instructions if not isinstance(i.op, GetTupleElement) for o in i.operands}
    whole.add(computation.root)
    makers: dict[Instruction, Maker] = {}
    loops: dict[Instruction, Loop] = {}
    for x in computation.instructions:
        if x in ordered or is_fixed(x) or (x.shape.is_tuple and x in whole):
            continue
        loop = loop_of(x)
        if loop is not None:
            state = sum(s.num_elements for s in x.shape.tuple_shapes if batch.is_moved(s))
            if _gain_of_loop(loop, inner) > 2 * _MOVED.value * state:
                loops[x] = loop
        elif (maker := maker_of(x, batch)) is not None:
            makers[x] = maker
    return makers, loops


def _works_on_rows(x: Instruction, batch: Batch) -> bool:
    """Whether an operation is faster in batch-minor form by itself, and not only between others."""
    # A product with weights that all members share has no gain of its own, but may become sums of vectors.
    on_rows = isinstance(x.op, (*_ON_ROWS, Cholesky, TriangularSolve)) and _gain_of(x, batch) > 0
    return on_rows or isinstance(x.op, Dot)


def _gain_of(x: Instruction, batch: Batch) -> float:
    """The gain of an operation in batch-minor form, in elements of operations on short rows."""
    shapes = [s for i in (x, *x.operands) for _, s in i.shape.leaves() if batch.is_moved(s)]
    if not shapes or _is_known(x) or isinstance(x.op, Reshape):
        return 0.0
    if isinstance(x.op, Dot):
        if any(batch.dimension(o.shape) is None for o in x.operands):
            return 0.0
        sizes = x.operands[0].shape.dimensions
        products = x.shape.num_elements * math.prod(sizes[d] for d in x.op.lhs_contracting_dims)
        return float(min(products, _DOT_GAIN * batch.size))
    if isinstance(x.op, (Cholesky, TriangularSolve)):
        return float(x.shape.num_elements * x.operands[0].shape.dimensions[-1])
    elements = float(max(s.num_elements for s in shapes))
    return elements if isinstance(x.op, _ON_ROWS) else _ELEMENTWISE_GAIN * elements


def _gain_of_loop(loop: Loop, inner: Mapping[Computation, Plan]) -> float:
    plan = inner.get(loop.body)
    return plan.gain * (trip_count(loop) or _ITERATIONS) if plan else 0.0


def _moved(
    computation: Computation,
    batch: Batch,
    makers: Mapping[Instruction, Maker],
    loops: Mapping[Instruction, Loop],
    carries: bool,
) -> set[Instruction]:
    """The values that must be transposed between the forms, given the operations in batch-minor form."""
    starts = {loop.operands[0] for loop in loops}

    def is_minor(x: Instruction) -> bool:
        if not isinstance(x.op, GetTupleElement):
            return x in makers
        (whole,) = x.operands
        return whole in makers or whole in loops or (carries and isinstance(whole.op, Parameter))

    found: set[Instruction] = set()
    for x in computation.instructions:
        if carries and x is computation.root and isinstance(x.op, Tuple):
            # The state takes results in either form.
            continue
        wants = x in makers or x in starts
        found.update(o for o in x.operands if batch.is_moved(o.shape) and is_minor(o) != wants and not _is_known(o))
    return found


def _is_known(x: Instruction) -> bool:
    """Whether an instruction can be made in either form at no cost."""
    return isinstance(x.op, (Constant, Iota)) or (isinstance(x.op, Broadcast) and not x.operands[0].shape.dimensions)
