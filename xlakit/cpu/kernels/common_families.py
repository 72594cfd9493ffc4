"""The functions that all programs share, by the names of their families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xlakit.cpu.kernels.fft.lanes import Pass
from xlakit.cpu.kernels.gemm.panels import PackRows, PackSlivers
from xlakit.cpu.kernels.gemm.tile import Tiles, Walk
from xlakit.cpu.kernels.sort.common import (
    ChunkPlaces,
    CountDigits,
    MakeRecords,
    MoveByDigit,
    SortRecords,
    TakeApart,
)
from xlakit.cpu.kernels.sort.top_k_common import CollectFirst, JoinFirst, KeepFirst

_PRODUCTS = (Tiles, Walk, PackRows, PackSlivers)
_SORTS = (MakeRecords, TakeApart, CountDigits, MoveByDigit, SortRecords, ChunkPlaces)
_FIRST = (KeepFirst, JoinFirst, CollectFirst)

FAMILIES: Mapping[str, Callable[..., Any]] = {c.family: c for c in (*_PRODUCTS, Pass, *_SORTS, *_FIRST)}
