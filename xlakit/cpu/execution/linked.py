"""A program's machine code linked into memory, with its constants and the contexts of its calls."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xlakit.cpu.kernels.shared import common_code
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.program import FFI_TABLE, c_symbol
from xlakit.cpu.runtime import CONTEXT, Context, runtime_symbols
from xlakit.options import current

if TYPE_CHECKING:
    from xlakit.cpu.profiling.recorder import Recorder
    from xlakit.cpu.program import Program
    from xlakit.execution.random_state import RandomState
    from xlakit.ir.operation import Array

_numbers = itertools.count(1)
# The prefix of the functions that code with bounds checks imports; only the sanitizer makes such code.
_BOUNDS = "xlakit_bounds_"
# The prefix of the functions that draw from a device's random state, in the order of the device's calls.
_RANDOM = "xlakit_random_"
# The prefix of the functions that profiled code imports.
_PROFILE = "xlakit_profile_"


class Linked:
    """The machine code of a program, linked with its imports. It must live as long as it may be called."""

    def __init__(
        self, program: Program, c_functions: Mapping[str, int] | None = None, functions: Sequence[str] = ()
    ) -> None:
        """``functions`` are further functions, beside the entry, whose addresses are needed."""
        # The recorder of a profiled program, else None.
        self.recorder = _recorder(program.imports)
        symbols = _addresses(program.imports, c_functions or {})
        if self.recorder is not None:
            symbols |= self.recorder.symbols
        names = [program.entry, *functions]
        self._library = Library(f"program{next(_numbers)}", program.objects, names, symbols)
        # Whether a call reads only its arguments, writes only its results, and needs no Python.
        self.is_pure = self.recorder is None and not (
            c_functions or program.host_instructions or any(name.startswith(_RANDOM) for name in program.imports)
        )
        self._entry = self._library.address(program.entry)
        self._arena_bytes = program.arena_bytes
        self._flushes = bool(current().flush_subnormals)
        self._constants = [readable(c) for c in program.constants]
        self._constant_table = (ctypes.c_void_p * max(1, len(self._constants)))(
            *[c.ctypes.data for c in self._constants]
        )

    def address(self, function: str) -> int:
        """The address of a function that was named in the constructor."""
        return self._library.address(function)

    def new_context(self, *, ordinal: int = 0, host: int = 0, random: RandomState | None = None) -> Context:
        """The origin for calls on one device; see :class:`Context`."""
        flushes = self._flushes
        context = Context(
            self._entry, arena_bytes=self._arena_bytes, host=host, ordinal=ordinal, random=random, flushes=flushes
        )
        words = (ctypes.c_int64 * (CONTEXT.size // 8)).from_address(context.address)
        words[CONTEXT.index("spare")] = ctypes.addressof(self._constant_table)
        return context


def readable(array: Array) -> Array:
    """The array, or a C-contiguous, aligned copy of it, which machine code can read."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, requirements=["C", "A"])


def _recorder(imports: Sequence[str]) -> Recorder | None:
    if not any(name.startswith(_PROFILE) for name in imports):
        return None
    from xlakit.cpu.profiling.recorder import Recorder

    return Recorder.of_imports(imports)


def _addresses(imports: Sequence[str], c_functions: Mapping[str, int]) -> dict[str, int]:
    """The addresses of a program's imports."""
    imported = frozenset(imports)
    # Giving a symbol to the linker takes time, and a program imports few functions of the runtime.
    symbols = {name: address for name, address in runtime_symbols().items() if name in imported}
    symbols |= {c_symbol(name): address for name, address in c_functions.items()}
    if FFI_TABLE in imports:
        from xlakit.execution.calls.ffi.interface import table_address

        symbols[FFI_TABLE] = table_address()
    if any(name.startswith(_BOUNDS) for name in imports):
        from xlakit.cpu.runtime.bounds import bounds_symbols

        symbols |= bounds_symbols()
    for name in imports:
        if name.startswith("xlakit_") and name not in symbols and not name.startswith(_PROFILE):
            function_address = common_code.resolve(name)
            if function_address is None:
                # Imported here: few programs need it.
                from xlakit.cpu.kernels.shared import blas

                function_address = blas.resolve(name)
            if function_address is not None:
                symbols[name] = function_address
    return symbols
