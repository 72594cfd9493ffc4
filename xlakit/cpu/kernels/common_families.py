"""The functions that all programs share: finds the family of a function by its imported name, and writes its code.

``shared/common.py`` makes the names, ``shared/common_code.py`` stores the machine code.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from xlakit.cpu.kernels.shared.common_code import PREFIX, options_of
from xlakit.cpu.llvm import VOID, Effort, Module
from xlakit.data.primitive import PrimitiveType
from xlakit.options import compiling, current
from xlakit.passes.analysis.sort_order import SortKey

# The module and the class of each family. Modules are imported on first use: the first product of a process needs
# neither sorts nor transforms.
FAMILIES: Final = MappingProxyType(
    {
        "gemm_macro_kernel": ("gemm.macro_kernel", "MacroKernel"),
        "gemm_addresses": ("gemm.address_tables", "FillTable"),
        "gemm_pack_rows": ("gemm.rows", "PackRows"),
        "gemm_pack_slivers": ("gemm.slivers", "PackSlivers"),
        "gemm_pack_panels": ("gemm.panels", "PackPanels"),
        "gemm_exponents": ("gemm.bf16_range", "Exponents"),
        "triangular_solve_block": ("linalg.strips", "SolveBlock"),
        "fft": ("fft.lanes", "Pass"),
        "fft_load_columns": ("fft.moves", "LoadColumns"),
        "fft_load_rows": ("fft.moves", "LoadRows"),
        "fft_store_columns": ("fft.moves", "StoreColumns"),
        "fft_store_rows": ("fft.moves", "StoreRows"),
        "sort_pack": ("sort.common", "PackRecords"),
        "sort_unpack": ("sort.common", "UnpackRecords"),
        "sort_count": ("sort.digits", "CountDigits"),
        "sort_move": ("sort.digits", "MoveByDigit"),
        "sort_networks": ("sort.common", "SortNetworks"),
        "sort_by_digits": ("sort.digits", "SortByDigits"),
        "sort_quickly": ("sort.common", "SortQuickly"),
        "sort_chunk_positions": ("sort.digits", "ChunkPositions"),
        "top_k_keep": ("sort.top_k_common", "KeepFirst"),
        "top_k_join": ("sort.top_k_common", "JoinFirst"),
        "top_k_collect": ("sort.top_k_common", "CollectFirst"),
    }
)


def function_of(symbol: str) -> Any:
    """The common function with this name."""
    head, *values = symbol.removeprefix(PREFIX).split(".")
    module, name = FAMILIES[head.partition("$")[0]]
    return _imported(module, name)(*map(_read, values))


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(f"xlakit.cpu.kernels.{module}"), name)


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
        return _imported("gemm.engine", "Engine").decoded(rest)
    if kind == "o":
        return SortKey.decoded(rest)
    return rest
