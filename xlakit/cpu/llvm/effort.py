"""The levels of LLVM's effort for a function."""

from __future__ import annotations

from enum import Enum


class Effort(Enum):
    """The passes over the IR, and the optimization level of code generation, for a function."""

    ALL = "all"  # its passes over the IR, and good code
    TIDY = "tidy"  # variables in registers, plain simplifications, and good code: loops are not vectorized
    CODE = "code"  # good code for what is written in vectors already, and which passes would hardly change
    LITTLE = "little"  # code as fast as it is made: what takes time is in the functions that are called
