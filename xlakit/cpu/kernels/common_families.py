"""The functions that all programs share, by the names of their families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xlakit.cpu.kernels.fft_lanes import Pass
from xlakit.cpu.kernels.gemm_panels import PackRows, PackSlivers
from xlakit.cpu.kernels.gemm_tile import Tiles, Walk

FAMILIES: Mapping[str, Callable[..., Any]] = {c.family: c for c in (Tiles, Walk, PackRows, PackSlivers, Pass)}
