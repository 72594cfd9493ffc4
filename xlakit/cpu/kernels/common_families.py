"""The functions that all programs share: finds the family of a function by its imported name, and writes its code.

``shared/common.py`` makes the names, ``shared/common_code.py`` stores the machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xlakit.cpu.kernels.fft.lanes import Pass
from xlakit.cpu.kernels.fft.moves import LoadColumns, LoadRows, StoreColumns, StoreRows
from xlakit.cpu.kernels.gemm.address_tables import FillTable
from xlakit.cpu.kernels.gemm.bf16_range import Exponents
from xlakit.cpu.kernels.gemm.engine import Engine
from xlakit.cpu.kernels.gemm.macro_kernel import MacroKernel
from xlakit.cpu.kernels.gemm.packing import PackRows, PackSlivers
from xlakit.cpu.kernels.gemm.panels import PackPanels
from xlakit.cpu.kernels.shared.common_code import PREFIX, options_of
from xlakit.cpu.kernels.sort.common import (
    ChunkPositions,
    CountDigits,
    MoveByDigit,
    PackRecords,
    SortByDigits,
    SortNetworks,
    SortQuickly,
    UnpackRecords,
)
from xlakit.cpu.kernels.sort.top_k_common import CollectFirst, JoinFirst, KeepFirst
from xlakit.cpu.llvm import VOID, Effort, Module
from xlakit.data.primitive import PrimitiveType
from xlakit.options import compiling, current
from xlakit.passes.analysis.sort_order import SortKey

_PRODUCTS = (MacroKernel, FillTable, PackRows, PackPanels, PackSlivers, Exponents)
_TRANSFORMS = (Pass, LoadColumns, LoadRows, StoreColumns, StoreRows)
_SORTS = (PackRecords, UnpackRecords, CountDigits, MoveByDigit, SortByDigits, SortNetworks, SortQuickly, ChunkPositions)
_FIRST = (KeepFirst, JoinFirst, CollectFirst)

FAMILIES: Mapping[str, Callable[..., Any]] = {c.family: c for c in (*_PRODUCTS, *_TRANSFORMS, *_SORTS, *_FIRST)}


def function_of(symbol: str) -> Any:
    """The common function with this name."""
    head, *values = symbol.removeprefix(PREFIX).split(".")
    return FAMILIES[head.partition("$")[0]](*map(_read, values))


def text(symbol: str) -> str:
    """The LLVM IR of a common function, given the name that programs import."""
    return part(symbol)[1]


def part(symbol: str) -> tuple[Effort, str]:
    """The effort and the LLVM IR of a common function."""
    function = function_of(symbol)
    module = Module(symbol)
    # The options in force may differ from those of the program that imports it.
    with compiling(options_of(symbol)):
        fn = module.function(symbol, VOID, function.parameters, external=True)
        function.write(fn)
        text = module.text()
        if not current().sanitize:
            return fn.effort, text
        from xlakit.cpu.llvm.bounds_checks import BoundsChecks

        return fn.effort, BoundsChecks(module.functions, PREFIX, frozenset()).checked(text)


def _read(text: str) -> Any:
    kind, rest = text[0], text[1:]
    if kind == "n":
        return None
    if kind == "b":
        return rest == "1"
    if kind == "i":
        return int(rest)
    if kind == "k":
        return next(k for k in PrimitiveType if k.hlo_name == rest)
    if kind == "e":
        return Engine.decoded(rest)
    if kind == "o":
        return SortKey.decoded(rest)
    return rest
