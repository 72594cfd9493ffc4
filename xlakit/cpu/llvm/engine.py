"""From the text of a module to machine code: LLVM's own passes, an object file, and its functions' addresses."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from xlakit.cpu.llvm.function import Effort
from xlakit.errors import InternalError

# LLVM's global state (targets, the JIT) is set up once; llvmlite is not safe for all of it from several threads.
_lock = threading.Lock()


@cache
def _targets() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def host_features() -> tuple[str, str]:
    """The name of this machine's processor and its features, as LLVM writes them."""
    _targets()
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def target_machine(level: int = 3) -> Any:
    """The machine that code is made for: this one."""
    cpu, features = host_features()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small", jit=False
    )


# The levels of LLVM's passes, and of its code generation. More passes than those of level 1 take longer for the same.
_LEVELS = {Effort.ALL: (1, 3), Effort.CODE: (0, 3), Effort.LITTLE: (0, 0)}


def compiled(text: str, effort: Effort) -> bytes:
    """The object file of an IR text."""
    passes, code = _LEVELS[effort]
    return emit_object(optimize(text, passes), code)


def optimized(text: str, effort: Effort) -> str:
    """The IR text after LLVM's own passes."""
    return str(optimize(text, _LEVELS[effort][0]))


def assembly(text: str, effort: Effort) -> str:
    """The assembly text of an IR text."""
    passes, code = _LEVELS[effort]
    return emit_assembly(optimize(text, passes), code)


def optimize(text: str, level: int = _LEVELS[Effort.ALL][0]) -> Any:
    """The LLVM module of an IR text after LLVM's own passes; raises InternalError where the text is faulty."""
    with _lock:
        machine = target_machine(level)
        try:
            module = llvm.parse_assembly(text)
        except RuntimeError as error:
            raise InternalError(f"the compiler wrote faulty LLVM IR: {error}") from None
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = True
        # Loops that gain from more say so themselves; for all of them it would double the time to compile.
        options.slp_vectorization = False
        options.loop_interleaving = False
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return module


def emit_object(module: Any, level: int = 3) -> bytes:
    """The object file of an optimised module; level 0 takes least time, and gives code that takes most."""
    with _lock:
        return target_machine(level).emit_object(module)


def emit_assembly(module: Any, level: int = 3) -> str:
    """The assembly text of an optimised module."""
    with _lock:
        return target_machine(level).emit_assembly(module)


class Library:
    """Machine code in memory. It stays as long as this object does."""

    def __init__(
        self, name: str, objects: bytes | Sequence[bytes], functions: Sequence[str], symbols: Mapping[str, int]
    ) -> None:
        """Object files linked together; ``functions`` are those that are asked for, ``symbols`` what they import."""
        with _lock:
            _targets()
            builder = llvm.JITLibraryBuilder()
            for data in (objects,) if isinstance(objects, bytes) else objects:
                builder.add_object_img(data)
            builder.add_current_process()
            for symbol, address in symbols.items():
                builder.import_symbol(symbol, address)
            for function in functions:
                builder.export_symbol(function)
            self._tracker = builder.link(_jit(), name)
        self._addresses = {function: int(self._tracker[function]) for function in functions}

    def address(self, function: str) -> int:
        """Where a function starts."""
        return self._addresses[function]


@cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(target_machine(), use_jit_link=True)
