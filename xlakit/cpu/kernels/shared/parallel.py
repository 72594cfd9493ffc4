"""Decides which kernels run on several threads, and how many tasks a thread takes at a time."""

from __future__ import annotations

from dataclasses import replace

from xlakit import machine
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.options import is_plain, knob, times

# A phase that costs less than three times a wake-up runs on the calling thread alone; the tasks that a thread takes at
# once must cost as much as its wake-up.
_PARALLEL_NANOSECONDS = knob(
    "parallel.parallel_nanoseconds",
    lambda: 3 * machine.current().wake_nanoseconds,
    0.0,
    1e12,
    tries=(0.0, 1e12),
)
_GRAIN_NANOSECONDS = knob(
    "parallel.grain_nanoseconds", lambda: machine.current().wake_nanoseconds, 0.0, 1e9, tries=(times(0.25), times(4))
)


def is_parallel(phase: Phase) -> bool:
    """Whether a phase is worth running on several threads."""
    if phase.grain is not None:
        return phase.grain > 0 and not is_plain("llvm")
    return phase.tasks > 1 and phase.cost > _PARALLEL_NANOSECONDS.value and not is_plain("llvm")


def grain_of(phase: Phase) -> int:
    """The number of tasks that a thread takes at a time."""
    if phase.grain:
        return phase.grain
    return max(1, int(_GRAIN_NANOSECONDS.value * phase.tasks / max(1.0, phase.cost)))


def as_chosen(phase: Phase) -> Phase:
    """The phase, with a grain fixed by the knobs in force now, not when the entry is written."""
    return replace(phase, grain=grain_of(phase) if is_parallel(phase) else 0)
