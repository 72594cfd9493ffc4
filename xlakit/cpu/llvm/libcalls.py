"""Functions that LLVM's code generation calls by itself, and that the process does not have.

A call of one appears where no IR asked for it. LLVM turns ``fptrunc (copysign x, y)`` into ``copysign (fptrunc x), y``
and then brings y to the narrower type; where x is an F64 that becomes an F16 by two roundings, that is a call of
``__truncdfhf2``. InstCombine makes a copysign of bit operations, too, so that no way to write the IR avoids it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# F64 to F16, rounded once, half to even: first to F32 towards zero with a last bit of 1 where that is inexact, so that
# the second rounding sees on which side of a tie the number is.
_TRUNCDFHF2: Final = """
define half @__truncdfhf2(double %x) {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %bits = bitcast float %near to i32
  %back.size = call double @llvm.fabs.f64(double %back)
  %size = call double @llvm.fabs.f64(double %x)
  %away = fcmp ogt double %back.size, %size
  %less = sub i32 %bits, 1
  %below = select i1 %away, i32 %less, i32 %bits
  %odd = or i32 %below, 1
  %inexact = fcmp one double %back, %x
  %chosen = select i1 %inexact, i32 %odd, i32 %bits
  %single = bitcast i32 %chosen to float
  %half = fptrunc float %single to half
  ret half %half
}

declare double @llvm.fabs.f64(double)
"""

LIBCALLS: Final = {"__truncdfhf2": _TRUNCDFHF2}
"""The IR of each function by its name."""


def called_by(objects: Sequence[bytes]) -> list[str]:
    """The names of the functions of :data:`LIBCALLS` that object files may call."""
    return [name for name in LIBCALLS if any(name.encode() in data for data in objects)]
