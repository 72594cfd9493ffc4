"""Which kernels are shared out to several threads, and in pieces of which size."""

from __future__ import annotations

from dataclasses import replace

from xlakit import machine
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.options import is_plain, knob, times

# What costs less than waking threads three times is done by the calling thread alone, and what another thread does must
# take as long as waking it.
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
    """Whether it pays to have several threads at it."""
    if phase.grain is not None:
        return phase.grain > 0 and not is_plain("llvm")
    return phase.tasks > 1 and phase.cost > _PARALLEL_NANOSECONDS.value and not is_plain("llvm")


def grain_of(phase: Phase) -> int:
    """How many tasks a thread takes at a time."""
    if phase.grain:
        return phase.grain
    return max(1, int(_GRAIN_NANOSECONDS.value * phase.tasks / max(1.0, phase.cost)))


def as_chosen(phase: Phase) -> Phase:
    """A phase whose grain is fixed by the knobs in force now, not by those in force when the entry is written."""
    return replace(phase, grain=grain_of(phase) if is_parallel(phase) else 0)
