"""Elementary functions as LLVM code."""

from xlakit.cpu.math.library import ULP_BOUNDS, math_function

__all__ = ["ULP_BOUNDS", "math_function"]
