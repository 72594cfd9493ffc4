"""Probes: calls that the entry of a profiled program makes between its steps (:mod:`xlakit.cpu.profiling`)."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.kernels.shared.parallel import is_parallel
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.cpu.profiling.recorder import CLOCK, NOTE, RANGE, RECORDER
from xlakit.memory.steps import KernelStep, Step, walk


class Probes:
    """The probes of one entry. A step begins when the step before it ends, so one reading of the clock serves both."""

    def __init__(self, module: Module, fn: Function, steps: Sequence[Step]) -> None:
        self._module = module
        self._fn = fn
        self._numbers = {step: number for number, step in enumerate(walk(steps), 1)}
        # The recorder is data, imported by its address as a function would be.
        self._recorder = f"{RECORDER}{len(self._numbers) + 1}"
        for name, result, parameters in (
            (self._recorder, VOID, []),
            (CLOCK, I64, []),
            (NOTE, I64, [PTR, I64, I64]),
            (RANGE, VOID, [PTR, I64, I64]),
        ):
            module.declare(name, result, parameters)

    def begin(self) -> Value:
        """The time before a sequence of steps."""
        return self._fn.call(CLOCK, I64)

    def end(self, step: Step | None, begin: Value) -> Value:
        """Record that a step, or the whole call if ``step`` is None, has ended; gives the time."""
        fn, number = self._fn, 0 if step is None else self._numbers[step]
        return fn.call(NOTE, I64, fn.address(self._recorder), fn.i64(number), begin)

    def kernel(self, step: KernelStep, phase: Phase) -> str:
        """The function to call for a phase: if threads share the step, a wrapper that records each range of tasks."""
        if not any(map(is_parallel, step.phases)):
            return phase.function
        fn = self._module.function(f"{phase.function}.profiled", VOID, [PTR, I64, I64], attributes=(NO_INLINE,))
        fn.is_apart = True
        begin = fn.call(CLOCK, I64)
        fn.call(phase.function, VOID, *fn.parameters)
        fn.call(RANGE, VOID, fn.address(self._recorder), fn.i64(self._numbers[step]), begin)
        return fn.name
