"""Library functions that LLVM's code generation calls by itself and that the process may not have.

Such a call appears although no IR contains it. LLVM turns ``fptrunc (copysign x, y)`` into
``copysign (fptrunc x), y``, and then converts y to the narrower type; for an F64 that becomes an F16 by two roundings,
this conversion is a call of ``__truncdfhf2``. InstCombine also makes a copysign of bit operations, so no way of
writing the IR avoids the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# F64 to F16 with one rounding, half to even. The number is first rounded to F32 toward zero, with the last bit set if
# that is inexact (round to odd), so that the second rounding sees on which side of a tie the number is.
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
