"""Families of small programs, generated: one operation at many types, sizes, positions. Each is a module here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Final

from benchmarks.breadth import (
    composed,
    convolutions,
    decompositions,
    elementwise,
    indexing,
    integers,
    loops,
    movement,
    ordering,
    products,
    randoms,
    reductions,
    transforms,
)
from benchmarks.program import Workload

# The rows of each family, by its name.
FAMILIES: Final = MappingProxyType[str, Callable[[], Iterator[Workload]]](
    {
        "elementwise": elementwise.rows,
        "integers": integers.rows,
        "reductions": reductions.rows,
        "ordering": ordering.rows,
        "movement": movement.rows,
        "indexing": indexing.rows,
        "products": products.rows,
        "convolutions": convolutions.rows,
        "transforms": transforms.rows,
        "decompositions": decompositions.rows,
        "random": randoms.rows,
        "loops": loops.rows,
        "composed": composed.rows,
    }
)
