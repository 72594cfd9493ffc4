"""Chooses less LLVM effort for kernels that run once, where optimizing them takes longer than it saves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xlakit.cpu.llvm import Effort, Module
from xlakit.cpu.llvm.promises import CONTRACTS, REASSOCIATES
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.memory.steps import KernelStep, Step, with_loop_depth
from xlakit.options import knob

# Calling a program takes some microseconds. A kernel whose estimated cost in one run is no more than this gets code
# without any optimization, which takes a few times as long to run ...
_QUICK_NANOSECONDS = knob("effort.quick_nanoseconds", 30.0, 0.0, 1e6)
# ... as long as all such kernels together cost no more than this.
_QUICK_TOGETHER = knob("effort.quick_together", 150.0, 0.0, 1e7)
# Kernels that cost no more than this are compiled without LLVM's vectorizer, ...
_SCALAR_NANOSECONDS = knob("effort.scalar_nanoseconds", 100.0, 0.0, 1e6)
# ... and kernels without long loops up to this cost: the vectorizer could not use their short loops, which are
# unrolled.
_ROLLED_NANOSECONDS = knob("effort.rolled_nanoseconds", 500.0, 0.0, 1e6)

# A call of any function except LLVM's intrinsics.
_CALLS = re.compile(r"\bcall [^@\n]*(?:@(?!llvm\.)|%[\w.]+\()")


def lessen_efforts(module: Module, steps: Sequence[Step]) -> None:
    """Lower the effort of cheap kernels that are not called in loops. Their results keep the same bits.

    In a loop, the call of a kernel that computes one vector takes as long as the kernel, so such kernels get the effort
    at which they can be inlined.
    """
    costs: dict[str, float] = {}
    for phase in phases_in(steps):
        costs[phase.function] = costs.get(phase.function, 0.0) + phase.cost
    for phase in phases_in(steps, outside=False):
        costs.pop(phase.function, None)
        fn = module.functions[phase.function]
        if fn.is_one_vector:
            fn.effort = Effort.ALL
    left = _QUICK_TOGETHER.value
    for name, cost in sorted(costs.items(), key=lambda item: item[1]):
        fn = module.functions[name]
        if not (fn.effort is Effort.ALL or fn.is_one_vector) or cost > _ROLLED_NANOSECONDS.value:
            continue
        text = fn.text()
        if _is_rounded_by_llvm(text):
            continue
        # An always-inlined function is inlined only into functions of its own effort.
        if cost <= min(_QUICK_NANOSECONDS.value, left) and not _CALLS.search(text):
            fn.effort = Effort.LITTLE
            left -= cost
        elif cost <= _SCALAR_NANOSECONDS.value or not fn.has_long_loops:
            fn.has_independent_loops = fn.has_long_loops = False


def _is_rounded_by_llvm(text: str) -> bool:
    """Whether LLVM may reorder a function's sums or fuse products into them: then the effort may change its results."""
    return f" {REASSOCIATES} " in text or f" {CONTRACTS} " in text


def phases_in(steps: Sequence[Step], *, outside: bool = True) -> Iterator[Phase]:
    """The phases of all calls of kernels; with ``outside=False`` only of calls in loops."""
    for step, depth in with_loop_depth(steps):
        if isinstance(step, KernelStep) and (outside or depth):
            yield from step.phases
