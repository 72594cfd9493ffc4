"""A small typed layer for writing LLVM IR.

A Module has Functions; a Function hands out Values, which know their Type and compute with Python's operators. Types
are checked as the code is written, so that a fault shows where it is made and not as a parse error of LLVM.
"""

from xlakit.cpu.llvm.function import Effort, Function, Loop
from xlakit.cpu.llvm.module import Module
from xlakit.cpu.llvm.types import BF16, F16, F32, F64, I1, I8, I16, I32, I64, I128, PTR, VOID, Type, integer, vector
from xlakit.cpu.llvm.values import Value

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
