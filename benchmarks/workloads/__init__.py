"""All workloads, by group. A module here is a group; each Workload in it is one row."""

from __future__ import annotations

from benchmarks.program import Workload
from benchmarks.workloads import (
    batches,
    convolution,
    dispatch,
    elementwise,
    indexing,
    loops,
    matmul,
    models,
    random,
    reductions,
    transforms,
)

_MODULES = (
    elementwise,
    reductions,
    matmul,
    convolution,
    indexing,
    loops,
    batches,
    random,
    transforms,
    models,
    dispatch,
)

WORKLOADS: tuple[Workload, ...] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Workload)
)
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(w.group for w in WORKLOADS))
