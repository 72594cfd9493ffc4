"""Kernels: one fused computation as a function over a range of tasks.

A kernel is ``void(ptr table, i64 begin, i64 end)``: the table has pointers to its arrays, inputs first, and the range
is the call's share of the tasks. Tasks write different elements, so the result does not depend on the number of
threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import NamedTuple

from xlakit import machine, target
from xlakit.cpu.llvm import I64, PTR, VOID, Effort, Function, Module, Value
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.loops.emit.accesses import Nest
from xlakit.cpu.loops.emit.emitter import INTERLEAVED, Emitter
from xlakit.cpu.loops.emit.gather_prefetch import strips
from xlakit.cpu.loops.emit.lanes import has_long_code, picks, write_iterations
from xlakit.cpu.loops.emit.levels import Level, Output
from xlakit.cpu.loops.emit.non_temporal import non_temporal
from xlakit.cpu.loops.ir.cost import element_cost
from xlakit.cpu.loops.ir.index import Node
from xlakit.cpu.loops.ir.nodes import Apply, walk
from xlakit.cpu.loops.ir.space import Group
from xlakit.cpu.scalars import Scalar, store
from xlakit.cpu.scalars.memory import from_parts, parts
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.traits import Transcendental
from xlakit.ops.elementwise.elementary import Erf, Exponential, Log, Logistic, Rsqrt, Sqrt, Tanh
from xlakit.options import knob, times

# If an iteration is a long chain of dependent operations, two interleaved iterations keep the processor busy. Chains of
# so many cycles (of the cost model) are longer than processors look ahead; the knob has them in nanoseconds.
_LONG_CYCLES = 8.0
_LONG_CHAIN = knob("kernel.long_chain", lambda: _long_chain(machine.current()), 0.0, 100.0, tries=(0.0, 100.0))
DOUBLED = ('"llvm.loop.interleave.count", i32 2',)
# Functions whose code holds one or two values beside constants, and how many of them a chain is made of at most.
_OF_FEW_VALUES = (Erf, Exponential, Log, Logistic, Rsqrt, Sqrt, Tanh)
_FEW_FUNCTIONS = 2
# Elements whose vectors fill one register.
_ONE_REGISTER = frozenset({PrimitiveType.F32, PrimitiveType.PRED})
# The wanted time of a task: long compared to its hand-over to a thread, short compared to the work to be shared.
TASK_NANOSECONDS = knob(
    "kernel.task_nanoseconds", lambda: 2 * machine.current().wake_nanoseconds, 50.0, 1e9, tries=(times(0.25), times(4))
)
# For a phase that takes longer than this, the time of a call does not matter.
_CALLED_NANOSECONDS = knob("kernel.called_nanoseconds", 2_000.0, 0.0, 1e9)
# The smallest of phases that are joined, as corners of padded arrays, are compiled without vectorization if all of them
# together are no larger part of the cost.
_CORNERS = knob("kernel.corners", 0.02, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Phase:
    """One parallel step of a kernel: its function, its number of tasks, and the cost of all tasks in nanoseconds.

    grain: the number of tasks that a thread takes at a time, if tuning has chosen it; 0 if one thread takes all.
    nests: what it reads and writes, and in which order; None if nothing is stated.
    """

    function: str
    tasks: int
    cost: float
    grain: int | None = None
    nests: tuple[Nest, ...] | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """The phases of a kernel. Its table has the arrays of operands and results, and scratch memory if it needs some.

    updates: the results that are operands changed in place: their numbers, with the numbers of the operands.
    """

    phases: tuple[Phase, ...]
    updates: dict[int, int] = field(default_factory=dict)
    scratch_bytes: int = 0


class TaskFunction(NamedTuple):
    """A kernel's function under construction, with an emitter for its arrays and the range of tasks."""

    fn: Function
    emitter: Emitter
    begin: Value
    end: Value


def kernel_function(module: Module, name: str) -> tuple[Function, Value, Value, Value]:
    """Begin the function of a kernel, ``void(ptr table, i64 begin, i64 end)``; gives it and its parameters."""
    fn = module.function(name, VOID, [PTR, I64, I64])
    table, begin, end = fn.parameters
    return fn, table, begin, end


def task_function(module: Module, name: str, arrays: int, lanes: int = 1) -> TaskFunction:
    """Begin a kernel's function. ``lanes`` are those of its emitter."""
    fn, table, begin, end = kernel_function(module, name)
    pointers = [fn.pointer(table, number) for number in range(arrays)]
    emitter = emitter_of(fn, pointers, lanes)
    return TaskFunction(fn, emitter, begin, end)


def emitter_of(fn: Function, arrays: Sequence[Value], lanes: int) -> Emitter:
    """An emitter for a function whose innermost loops have vectors of ``lanes`` lanes, or are LLVM's to vectorize."""
    fn.effort = Effort.CODE if lanes > 1 else Effort.ALL
    return Emitter(fn, arrays, lanes)


def joined(module: Module, name: str, phases: Sequence[Phase]) -> Phase:
    """One phase for several that do not depend on one another: its tasks are the tasks of all of them."""
    if len(phases) == 1:
        return phases[0]
    fn, table, begin, end = kernel_function(module, name)
    first, cost = 0, sum(phase.cost for phase in phases)
    left = cost * _CORNERS.value
    for corner in sorted(phases, key=lambda phase: phase.cost):
        left -= corner.cost
        if left >= 0:
            small = module.functions[corner.function]
            small.has_independent_loops = small.has_long_loops = False
    for phase in phases:
        if phase.cost > _CALLED_NANOSECONDS.value:
            called = module.functions[phase.function]
            called.attributes.append(NO_INLINE)
            called.is_apart = True
        bounds = [(b - first).smax(0).smin(phase.tasks) for b in (begin, end)]
        with fn.if_(bounds[0] < bounds[1]):
            fn.call(phase.function, VOID, table, *bounds)
        first += phase.tasks
    nests = [None if phase.nests is None else list(phase.nests) for phase in phases]
    stated = None if None in nests else tuple(nest for own in nests for nest in own or ())
    return Phase(fn.name, first, cost, nests=stated)


def store_all(emitter: Emitter, outputs: Sequence[Output]) -> None:
    """Compute and store one element of each output."""
    values = [(o, emitter.lane_values(o.node), emitter.write_address(o.array, o.offset)) for o in outputs]
    for output, scalar, (base, index) in values:
        for first, some in _lanes_to_store(emitter, scalar):
            # The value of a node is rounded to its type.
            step = emitter.step_of(output.offset)
            place = base, index + first * step if first else index
            store(emitter.fn, output.kind, some, *place, step, is_rounded=True)


def _lanes_to_store(emitter: Emitter, scalar: Scalar) -> list[tuple[int, Scalar]]:
    """The lanes that no earlier vector has stored, in vectors of powers of two, with the number of their first lane."""
    first, width, fn = emitter.stored, emitter.width, emitter.fn
    if not first:
        return [(0, scalar)]
    found: list[tuple[int, Scalar]] = []
    while first < width:
        count = 1 << (width - first).bit_length() - 1
        lanes = range(first, first + count)
        some = (fn.shuffle(p, p, lanes) if count > 1 else fn.lane(p, first) for p in parts(scalar))
        found.append((first, from_parts(tuple(some))))
        first += count
    return found


def hints_for(nodes: Sequence[Node]) -> Sequence[str]:
    """The loop hints for LLVM, for an innermost loop that computes the nodes."""
    return hints_for_long_chains(nodes) if element_cost(nodes) > _LONG_CHAIN.value else ()


def hints_for_long_chains(nodes: Sequence[Node]) -> Sequence[str]:
    """As :func:`hints_for`, if an iteration is a long chain of dependent operations.

    A processor that executes a vector as several operations looks ahead over fewer vectors. Four iterations keep it
    busy if registers suffice, as they do for functions that hold one or two values beside constants in memory. Several
    functions are mostly chains of their own, and would take LLVM long.
    """
    every = list(walk(nodes)) if _operations_of_vector(machine.current()) > 1 else []
    functions = [n.op for n in every if isinstance(n, Apply) and isinstance(n.op, Transcendental)]
    is_narrow = all(isinstance(f, _OF_FEW_VALUES) for f in functions) and all(n.kind in _ONE_REGISTER for n in every)
    return INTERLEAVED if 1 <= len(functions) <= _FEW_FUNCTIONS and is_narrow else DOUBLED


def _operations_of_vector(described: machine.Machine) -> float:
    return target.vector_bytes() / min(described.unit_bytes or target.vector_bytes(), target.vector_bytes())


def _long_chain(described: machine.Machine) -> float:
    return described.cycle * _LONG_CYCLES / _operations_of_vector(described)


def side_by_side(hints: Sequence[str]) -> int:
    """The number of vector iterations that hints ask to interleave."""
    return 4 if hints is INTERLEAVED else 2 if hints is DOUBLED else 1


def nest(
    emitter: Emitter,
    levels: Sequence[Level],
    nodes: Sequence[Node],
    body: Callable[[], None],
    outputs: Sequence[Output] = (),
    *,
    inside: Sequence[Group] = (),
    independent: bool = True,
) -> None:
    """Write loops, outermost first; before each loop, the nodes that do not change in it are computed.

    outputs: the elements that the body stores, if each iteration of the innermost loop stores each of them once.
    inside: the loops that the body has unrolled.
    independent: whether no iteration of the innermost loop reads what another one writes; False if the body keeps
    values in memory that all iterations use.
    """
    if not levels:
        body()
        return
    level, *inner = levels
    if inner:
        with _opened(emitter, level):
            # The loops around this nest count too, such as the loop over the tasks of a kernel.
            emitter.hoist(nodes, emitter.bound_variables())
            nest(emitter, inner, nodes, body, outputs, inside=inside, independent=independent)
        return
    with non_temporal(emitter, level, outputs) as level, strips(emitter, level, nodes, inside) as level:
        if emitter.lanes > 1 and outputs:
            write_all_iterations(emitter, level, nodes, outputs)
            return
        with _opened(emitter, level, hints_for(nodes) if independent else (), independent=independent):
            body()


def write_all_iterations(emitter: Emitter, level: Level, nodes: Sequence[Node], outputs: Sequence[Output]) -> None:
    """Write an innermost loop in vectors: each iteration computes and stores one element of each output."""

    def iteration(running: Sequence[Scalar]) -> Sequence[Scalar]:
        store_all(emitter, outputs)
        return running

    # Where vectors are only sorted, the loop itself would take as long as one iteration.
    several = 4 if picks(level.group, nodes) and not has_long_code(nodes) else side_by_side(hints_for(nodes))
    write_iterations(emitter, level, nodes, outputs, emitter.lanes * several, iteration)


@contextmanager
def _opened(emitter: Emitter, level: Level, hints: Sequence[str] = (), *, independent: bool = False) -> Generator[None]:
    bounds = (0, level.count) if level.count else (level.begin, level.end)
    with emitter.fn.loop(*bounds, independent=independent, hints=hints) as loop, emitter.scope():
        emitter.bind_group(level.group, loop.index + level.begin if level.count else loop.index)
        yield


@dataclass(frozen=True, slots=True)
class Split:
    """The division of a nest into tasks: over the outer groups, and possibly over blocks of the next group."""

    outer: tuple[Group, ...]
    inner: tuple[Group, ...]
    block: int
    count: int

    @staticmethod
    def of(groups: Sequence[Group], cost: float) -> Split:
        """Divide a nest, an iteration of which costs ``cost``, so that a task takes about the wanted time."""
        wanted = max(64.0, TASK_NANOSECONDS.value / cost)
        outer: list[Group] = []
        rest = list(groups)
        left = math.prod(g.extent for g in rest)
        while len(rest) > 1 and left > wanted and left // max(1, rest[0].extent) >= wanted / 8:
            left //= max(1, rest[0].extent)
            outer.append(rest.pop(0))
        block = 0
        count = math.prod(g.extent for g in outer)
        if rest and left > 2 * wanted and rest[0].extent > 1:
            each = left // rest[0].extent
            # Blocks are whole cache lines, whatever the element type.
            block = max(1, int(wanted // each))
            block = block if block < 64 else _even_block(block // 64, rest[0].extent) * 64
            if block < rest[0].extent:
                count *= -(-rest[0].extent // block)
            else:
                block = 0
        return Split(tuple(outer), tuple(rest), block, count)

    @contextmanager
    def tasks(
        self, fn: Function, emitter: Emitter, begin: Value, end: Value, nodes: Sequence[Node]
    ) -> Generator[list[Level]]:
        """Write the loop over tasks; gives the loops that are left inside a task."""
        if self.count == 1:
            yield [Level(g, 0, g.extent) for g in self.inner]
            return
        with fn.loop(begin, end) as loop, emitter.scope():
            number = loop.index
            levels = [Level(g, 0, g.extent) for g in self.inner]
            if self.block:
                first = self.inner[0]
                blocks = -(-first.extent // self.block)
                low = (number.integer("urem", blocks) if self.outer else number) * self.block
                number = number.integer("udiv", blocks)
                levels[0] = Level.block(first, low, self.block)
            emitter.bind_groups(self.outer, number)
            emitter.hoist(nodes, frozenset(v for g in self.outer for v in g.variables))
            yield levels


def _even_block(wanted: int, extent: int) -> int:
    """About the wanted number of blocks of 64 elements, such that the extent is divided evenly if possible."""
    near = (n for step in range(wanted // 3 + 1) for n in (wanted + step, wanted - step) if n > 0)
    return next((n for n in near if extent % (64 * n) == 0), wanted)
