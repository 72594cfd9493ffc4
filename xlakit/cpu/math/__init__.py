"""Elementary functions as LLVM code."""

from xlakit.cpu.math.library import FUNCTION_NAMES, ULP_BOUNDS, math_function

__all__ = ["FUNCTION_NAMES", "ULP_BOUNDS", "math_function"]
