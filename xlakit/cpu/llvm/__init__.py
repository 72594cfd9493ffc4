"""A small typed layer for writing LLVM IR.

A Module has Functions; a Function makes Values, which know their Type and compute with Python's operators. Types are
checked while code is written, so that a fault is raised where it is made, and not as a parse error of LLVM.

The modules are imported on first use: a process whose programs are all in the compile cache writes no code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xlakit.cpu.llvm.effort import Effort
    from xlakit.cpu.llvm.function import Function, Loop
    from xlakit.cpu.llvm.module import Module
    from xlakit.cpu.llvm.types import BF16, F16, F32, F64, I1, I8, I16, I32, I64, I128, PTR, VOID, Type, integer, vector
    from xlakit.cpu.llvm.values import Value
else:
    # The modules of all names except types.
    _MODULES = {"Effort": "effort", "Function": "function", "Loop": "function", "Module": "module", "Value": "values"}

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in __all__:
            module = import_module(f"xlakit.cpu.llvm.{_MODULES.get(name, 'types')}")
            value = globals()[name] = getattr(module, name)
            return value
        raise AttributeError(f"module 'xlakit.cpu.llvm' has no attribute '{name}'")


__all__ = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "I128",
    "PTR",
    "VOID",
    "Effort",
    "Function",
    "Loop",
    "Module",
    "Type",
    "Value",
    "integer",
    "vector",
]
