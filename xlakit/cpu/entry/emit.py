"""Writes the entry from the steps: ``i64 entry(ptr arguments, ptr results, ptr context)``, which returns a Status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from xlakit.cpu.entry.collective_step import emit_collective
from xlakit.cpu.entry.effort import lessen_efforts, phases_in
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.kernels.shared.parallel import grain_of, is_parallel
from xlakit.cpu.llvm import I8, I32, I64, PTR, VOID, Effort, Module, Value
from xlakit.cpu.llvm.bounds import within
from xlakit.cpu.llvm.promises import ALWAYS_INLINE, NO_INLINE
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.cpu.runtime.context import CONTEXT
from xlakit.cpu.runtime.host import failed_call
from xlakit.memory.assignment import SMALL_BYTES, BufferSlice, Space
from xlakit.memory.plan import MemoryPlan
from xlakit.memory.steps import (
    CollectiveStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    NumberStep,
    RandomStep,
    Step,
    WhileStep,
    inner,
    walk,
)
from xlakit.memory.values import HloValue
from xlakit.options import current, is_plain, knob

if TYPE_CHECKING:
    from xlakit.cpu.entry.probes import Probes

ENTRY = "xlakit_entry"
_THREADS = ("xlakit_blas_get_threads", "xlakit_blas_set_threads")
# Slices that are not variables of the entry are copied word by word if they have at most this many words.
_FEW_WORDS = knob("emit.few_words", 16, 0, 64)
# In a loop, if every kernel costs more than this, the time of the entry's own code does not matter.
_CALLED_NANOSECONDS = knob("emit.called_nanoseconds", 2_000.0, 0.0, 1e9)
# A kernel that costs more than this is not inlined into the entry.
_INLINED_NANOSECONDS = knob("emit.inlined_nanoseconds", 100.0, 0.0, 5_000.0)
_MOST_ARRAYS = knob("emit.most_arrays", 128, 2)
# A program with more steps than this keeps kernels as functions: LLVM's time is superlinear in a function's size.
_MOST_INLINED = knob("emit.most_inlined", 48, 0, 1000)
_MOST_INLINED_LINES = knob("emit.most_inlined_lines", 1200, 0, 100_000)
# Constants of at most this size are globals of the module, so that LLVM can fold loads of them in inlined kernels.
_FOLDED_BYTES = knob("emit.folded_bytes", 256, 0, 4096)
# A loop polls for signals after about this much estimated work, and so does the entry after a kernel that costs more.
_POLL_NANOSECONDS = knob("emit.poll_nanoseconds", 1_000_000.0, 100.0)


class EntryWriter:
    """Writes the entry function of one module from its memory plan."""

    def __init__(self, module: Module, plan: MemoryPlan) -> None:
        self._module = module
        self._plan = plan
        # Calls of BLAS are already split into tasks for our threads, so BLAS must not start threads of its own.
        self._calls_blas = any(name.startswith(blas.PREFIX) for name in module.declared)
        name = "program" if self._calls_blas else ENTRY
        self._fn = module.function(name, I64, [PTR, PTR, PTR], external=not self._calls_blas)
        self._variables: dict[BufferSlice, Value] = {}
        self._constants: Value | None = None
        self._inlines = True
        self._is_cold, self._is_in_loop = True, False
        self._shared_table: Value | None = None
        self._probes: Probes | None = None
        if current().profile:
            # Imported here: few programs are profiled.
            from xlakit.cpu.entry.probes import Probes

            self._probes = Probes(module, self._fn, plan.steps)
        for name, result, parameters in (
            ("xlakit_parallel", VOID, [PTR, PTR, I64, I64]),
            ("xlakit_host_call", I64, [PTR, I64, PTR]),
            ("xlakit_poll", I64, [PTR]),
        ):
            module.declare(name, result, parameters)

    def write(self) -> None:
        """Write the whole function."""
        fn, steps = self._fn, self._plan.steps
        context = fn.parameters[2]
        self._arena = CONTEXT.pointer(fn, context, "arena")
        self._constants = CONTEXT.pointer(fn, context, "spare")
        lessen_efforts(self._module, steps)
        self._inlines = not is_plain("inline") and self._is_short(steps)
        begin = self._probes.begin() if self._probes else None
        self._steps(steps)
        if self._probes and begin:
            self._probes.end(None, begin)
        fn.ret(fn.i64(0))
        # The entry's own time does not matter if each step runs once, or if kernels in loops take much longer than a
        # call.
        fn.effort = Effort.LITTLE if self._is_cold else Effort.ALL
        if self._calls_blas:
            self._write_around_blas()

    def _is_short(self, steps: Sequence[Step]) -> bool:
        """Whether kernels may be inlined: the steps are few, and so are the lines of small kernels over all calls."""
        if sum(not inner(step) for step in walk(steps)) > _MOST_INLINED.value:
            return False
        inlined = [p.function for p in phases_in(steps) if self._is_small(p)]
        lines = {name: self._module.functions[name].text().count("\n") for name in set(inlined)}
        return sum(lines[name] for name in inlined) <= _MOST_INLINED_LINES.value

    def _is_small(self, phase: Phase) -> bool:
        kernel = self._module.functions[phase.function]
        return bool(phase.tasks) and phase.cost <= _INLINED_NANOSECONDS.value and kernel.effort is Effort.ALL

    def _write_around_blas(self) -> None:
        """Write the entry as a wrapper that limits BLAS to one thread while the program runs."""
        get, set = (self._module.declare(name, I32 if i == 0 else VOID, [I32] * i) for i, name in enumerate(_THREADS))
        enter = self._module.declare("xlakit_library_enter", VOID, [PTR, PTR])
        leave = self._module.declare("xlakit_library_leave", VOID, [])
        fn = self._module.function(ENTRY, I64, [PTR, PTR, PTR], external=True)
        fn.call(enter, VOID, fn.address(get), fn.address(set))
        status = fn.call(self._fn, I64, *fn.parameters)
        fn.call(leave, VOID)
        fn.ret(status)
        fn.effort = self._fn.effort

    # -- addresses -------------------------------------------------------------------------------

    def _address(self, value: HloValue) -> Value:
        """The address of a value, bounded for the sanitizer by the bytes of the value."""
        return within(self._fn, self._begin(value), value.bytes)

    def _begin(self, value: HloValue) -> Value:
        fn, buffer_slice = self._fn, self._plan.slice_of(value)
        arguments, results, _ = fn.parameters
        if buffer_slice.space is Space.ARGUMENT:
            return fn.pointer(arguments, buffer_slice.number)
        if buffer_slice.space is Space.RESULT:
            return fn.pointer(results, buffer_slice.number)
        if buffer_slice.space is Space.CONSTANT and self._constants is not None:
            if self._inlines and 0 < buffer_slice.size <= _FOLDED_BYTES.value:
                return self._folded(buffer_slice)
            return fn.pointer(self._constants, buffer_slice.number)
        if buffer_slice.space is Space.VARIABLE:
            variable = self._variables.get(buffer_slice)
            if variable is None:
                variable = self._variables[buffer_slice] = fn.alloca(I64, max(1, -(-buffer_slice.size // 8)), align=16)
            return variable
        return fn.at(self._arena, I8, buffer_slice.offset)

    def _folded(self, buffer_slice: BufferSlice) -> Value:
        """The address of a constant that is data of the module."""
        data = np.ascontiguousarray(self._plan.program.constants[buffer_slice.number]).tobytes()
        return self._fn.address(self._module.shared_data(f"constant_{buffer_slice.number}", data))

    def _table(self, values: Sequence[HloValue]) -> Value:
        """The address of a table of the addresses of values, as kernels take it; valid until the next table."""
        fn = self._fn
        addresses = [self._address(value) for value in values]
        if self._inlines or len(values) > _MOST_ARRAYS.value:
            return fn.table(addresses)
        # Steps run one after the other, so one table can serve all of them; thousands of tables would overflow the
        # stack.
        table = self._shared_table = self._shared_table or fn.alloca(PTR, _MOST_ARRAYS.value)
        for number, address in enumerate(addresses):
            fn.store(address, fn.at(table, PTR, number))
        return table

    # -- steps -----------------------------------------------------------------------------------

    def _steps(self, steps: Sequence[Step]) -> None:
        probes = self._probes
        now = probes.begin() if probes and steps else None
        for step in steps:
            self._step(step)
            if probes and now:
                now = probes.end(step, now)

    def _step(self, step: Step) -> None:
        if isinstance(step, KernelStep):
            self._kernel(step)
        elif isinstance(step, CopyStep):
            self._copy(step)
        elif isinstance(step, HostStep):
            self._host(step)
        elif isinstance(step, RandomStep):
            self._random(step)
        elif isinstance(step, CollectiveStep):
            self._collective(step)
        elif isinstance(step, NumberStep):
            self._number(step)
        elif isinstance(step, WhileStep):
            self._while(step)
        else:
            self._conditional(step)

    def _kernel(self, step: KernelStep) -> None:
        fn = self._fn
        table = self._table(step.table)
        for phase in step.phases:
            if not phase.tasks:
                continue
            kernel = self._module.functions[phase.function]
            if self._inlines and self._is_in_loop and phase.cost <= _CALLED_NANOSECONDS.value:
                self._is_cold = False
            if self._inlines and self._is_small(phase):
                self._is_cold = False
                _add(kernel.attributes, ALWAYS_INLINE)
            else:
                _add(kernel.attributes, NO_INLINE)
                kernel.is_apart = True
            function = self._probes.kernel(step, phase) if self._probes else phase.function
            if is_parallel(phase):
                grain = grain_of(phase)
                fn.call("xlakit_parallel", VOID, fn.address(function), table, fn.i64(phase.tasks), fn.i64(grain))
            else:
                fn.call(function, VOID, table, fn.i64(0), fn.i64(phase.tasks))
            if is_parallel(phase) or phase.cost > _POLL_NANOSECONDS.value:
                # A canceled job leaves results incomplete, so no later step may run.
                status = fn.call("xlakit_poll", I64, fn.parameters[2])
                fn.return_if(status.ne(0), status)

    def _copy(self, step: CopyStep) -> None:
        fn = self._fn
        source, target = self._plan.slice_of(step.source), self._plan.slice_of(step.target)
        if source is target:
            return
        to, origin = self._address(step.target), self._address(step.source)
        if source.space is Space.ARGUMENT and target.space is Space.RESULT:
            # The caller may have passed the same memory for both.
            with fn.if_(to.ne(origin)):
                fn.copy(to, origin, target.size)
            return
        words, remainder = divmod(target.size, I64.bytes)
        if not remainder and target.size > SMALL_BYTES.value and words <= _FEW_WORDS.value:
            # One load and one store for each word, never vectors: words that were just stored are forwarded from the
            # store buffer; a wider load of several would wait until all of them are in the cache.
            loaded = [fn.load(I64, fn.at(origin, I64, n), alone=True) for n in range(words)]
            for n, word in enumerate(loaded):
                fn.store(word, fn.at(to, I64, n))
        else:
            fn.copy(to, origin, target.size)

    def _host(self, step: HostStep) -> None:
        fn = self._fn
        table = self._table((*step.operands, *step.results))
        context = fn.parameters[2]
        if not step.function:
            status = fn.call("xlakit_host_call", I64, context, fn.i64(step.number), table)
            fn.return_if(status.ne(0), status)
            return
        error = fn.call(step.function, PTR, table, CONTEXT.load(fn, context, "ordinal"))

        def report() -> tuple[Value]:
            return (fn.call("xlakit_host_call", I64, context, fn.i64(failed_call(step.number)), error),)

        (status,) = fn.if_else(error.ne(fn.null()), report, lambda: (fn.i64(0),))
        fn.return_if(status.ne(0), status)

    def _random(self, step: RandomStep) -> None:
        fn, state = self._fn, self._address(step.state)
        if step.delta is None:
            self._module.declare("xlakit_random_draw", VOID, [PTR, PTR])
            fn.call("xlakit_random_draw", VOID, fn.parameters[2], state)
        else:
            self._module.declare("xlakit_random_state", VOID, [PTR, PTR, I64])
            fn.call("xlakit_random_state", VOID, fn.parameters[2], state, fn.i64(step.delta))

    def _collective(self, step: CollectiveStep) -> None:
        emit_collective(self._fn, step, [self._address(b) for b in (*step.operands, *step.results, *step.arrival)])

    def _number(self, step: NumberStep) -> None:
        fn = self._fn
        device = CONTEXT.load(fn, fn.parameters[2], "ordinal")
        number = device.integer("udiv", step.divisor).integer("urem", step.modulus)
        fn.store(number.cast("trunc", I32), self._address(step.result))

    def _while(self, step: WhileStep) -> None:
        fn = self._fn
        outside, self._is_in_loop = self._is_in_loop, True
        iterations = max(1, int(_POLL_NANOSECONDS.value / (5.0 + _cost(step.condition) + _cost(step.body))))
        interval = 1 << min(20, iterations.bit_length())

        def condition(_: object) -> Value:
            self._steps(step.condition)
            return fn.load(I8, self._address(step.predicate)).ne(0)

        with fn.while_([fn.i64(1)], condition) as loop:
            self._steps(step.body)
            count = loop.carried[0]
            with fn.if_((count & (interval - 1)).eq(0), likely=False):
                status = fn.call("xlakit_poll", I64, fn.parameters[2])
                fn.return_if(status.ne(0), status)
            loop.next(count + 1)
        self._is_in_loop = outside

    def _conditional(self, step: ConditionalStep) -> None:
        fn = self._fn
        address = self._address(step.index)
        if step.is_predicate:
            chosen = fn.select(fn.load(I8, address).ne(0), fn.i64(0), fn.i64(1))
        else:
            index = fn.load(I32, address).cast("sext", I64)
            last = fn.i64(len(step.branches) - 1)
            chosen = fn.select((index < 0) | (index > last), last, index)
        self._branches(step.branches, chosen, 0)

    def _branches(self, branches: Sequence[Sequence[Step]], chosen: Value, first: int) -> None:
        """Write a binary search among the branches; ``first`` is the number of the first of them."""
        if len(branches) == 1:
            self._steps(branches[0])
            return
        middle = len(branches) // 2
        self._fn.if_else(
            chosen < first + middle,
            lambda: self._branches(branches[:middle], chosen, first),
            lambda: self._branches(branches[middle:], chosen, first + middle),
        )


def _add(attributes: list[str], attribute: str) -> None:
    if attribute not in attributes:
        attributes.append(attribute)


def _cost(steps: Sequence[Step]) -> float:
    """The estimated nanoseconds of steps; an inner loop counts as one iteration, because it polls by itself."""
    total = 0.0
    for step in steps:
        if isinstance(step, KernelStep):
            total += sum(p.cost for p in step.phases)
        elif isinstance(step, WhileStep):
            total += _cost(step.body)
        elif isinstance(step, ConditionalStep):
            total += max((_cost(b) for b in step.branches), default=0.0)
        elif isinstance(step, CopyStep):
            total += step.target.bytes * 0.05
        elif isinstance(step, (RandomStep, NumberStep)):
            total += 10.0
        elif isinstance(step, CollectiveStep):
            total += 5_000.0 + step.rendezvous.phase.cost
        else:
            total += 20_000.0
    return total
