"""Verification: with ``XLAKIT_VERIFY`` each run of a program is repeated by plain code, and the results are compared.

``XLAKIT_VERIFY=plain`` compiles every program as usual, and once more without all of :data:`xlakit.options.PLAIN`; a
list of some of these names leaves out only those. Any program, or test suite, can so find wrong optimizations::

    XLAKIT_VERIFY=plain JAX_PLATFORMS=xlakit python program.py

A difference is an InternalError. Results must be equal to the bit, except those that depend on sums of floats or on
elementary functions (:mod:`xlakit.passes.analysis.roundings`), which may differ by some roundings. Elementary
functions are an exception only if ``XLAKIT_VERIFY`` includes ``rewrites``: else both programs fold the same
constants.

Programs with external side effects, with draws from the device's random state, or with several devices run once, and
are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from xlakit.cpu.execution.executable import CpuExecutable
from xlakit.errors import InternalError
from xlakit.ir.instruction import HloModule
from xlakit.ops.random import Rng, RngGetAndUpdateState
from xlakit.passes.analysis.roundings import inexact_results, largest_epsilon

if TYPE_CHECKING:
    from xlakit.cpu.runtime import Context
    from xlakit.execution.device import Device
    from xlakit.ir.operation import Array

_STATEFUL = (Rng, RngGetAndUpdateState)
# Types of less than a byte, each of whose numbers takes a byte in NumPy.
_NARROW = frozenset(np.dtype(k) for k in (ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4))
# The allowed error of sums in another order: this many epsilons, times the largest number of the result.
_UNITS = 4096.0


def can_be_repeated(module: HloModule) -> bool:
    """Whether a second run of a program gives the same results, and has no further effect."""
    computations = module.computations
    draws = any(isinstance(i.op, _STATEFUL) for c in computations for i in c.instructions)
    return not draws and not module.entry.has_side_effect


class VerifiedExecutable(CpuExecutable):
    """A program that compares each of its runs with a run of a plain program."""

    def __init__(self, optimized: CpuExecutable, plain: CpuExecutable) -> None:
        """``optimized`` and ``plain`` are the same program compiled in two ways."""
        super().__init__(
            optimized._reference, optimized._program, optimized._target, optimized._generate, key=optimized._key
        )
        self._plain = plain
        self._inexact = inexact_results(self.module, folds="rewrites" in plain._options.plain)
        self._epsilon = largest_epsilon(self.module)
        # A native call would run only one of the two programs.
        self._native_call, self._runs_natively = None, False

    def _run_in(
        self, context: Context, device: Device, arrays: Sequence[Array], in_place: Sequence[tuple[int, int]]
    ) -> list[Array]:
        if self.num_devices > 1:
            return super()._run_in(context, device, arrays, in_place)
        # Donated arguments are overwritten, so the plain program gets copies.
        copies = [np.array(array) for array in arrays]
        results = super()._run_in(context, device, arrays, in_place)
        self._compare(results, self._plain._run_in(self._plain._context, device, copies, ()))
        return results

    def _compare(self, results: Sequence[Array], expected: Sequence[Array]) -> None:
        for number, (result, other) in enumerate(zip(results, expected, strict=True)):
            # The results are followed by the sizes of dynamic dimensions.
            inexact = number < len(self._inexact) and self._inexact[number]
            fault = difference(result, other, self._epsilon if inexact else None)
            if fault:
                why = "roundings of sums are allowed for" if inexact else "no rounding may differ here"
                raise InternalError(
                    f"'{self.module.name}' gives another result {number} than the plain program: {fault} ({why})",
                    hint="try XLAKIT_VERIFY=memory, then fusion, rewrites, inline, llvm, to find the part at fault",
                )


def difference(actual: Array, expected: Array, epsilon: float | None = None) -> str:
    """The difference of two arrays, in words; empty if they do not differ.

    epsilon: of the narrowest float type that the results are computed from, if they may differ by roundings; then
    integers, which may come from comparisons of floats, are not compared. None requires the same bits, except for NaNs.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    kind: Any = actual.dtype
    is_real = kind.kind == "f" or (kind.kind == "V" and "float" in kind.name)
    if kind.kind == "c":
        parts = ((np.real(actual), np.real(expected)), (np.imag(actual), np.imag(expected)))
        if epsilon is None:
            return next((found for found in (difference(*pair) for pair in parts) if found), "")
    if epsilon is None:
        wrong = _bits(actual) != _bits(expected)
        if is_real:
            wrong &= ~(np.isnan(actual) & np.isnan(expected))
    elif is_real or kind.kind == "c":
        wrong = _beyond(actual, expected, epsilon)
    else:
        return ""
    if not wrong.any():
        return ""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = f"{np.count_nonzero(wrong)} of {wrong.size} elements"
    return f"{count}, the first at {list(where)}: {actual[where]!r} instead of {expected[where]!r}"


def _beyond(actual: Array, expected: Array, epsilon: float) -> Array:
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    dtype = np.real(actual).dtype
    unit = max(epsilon, float(ml_dtypes.finfo(dtype).eps))
    with np.errstate(all="ignore"):
        size = np.abs(b[np.isfinite(b)])
        allowed = _UNITS * unit * max(1.0, float(size.max(initial=0.0)))
        # A number that overflows in one order of summation may be NaN in another.
        special = ~np.isfinite(a) & ~np.isfinite(b)
        return np.asarray(~((a == b) | special | (np.abs(a - b) <= allowed)))


def _bits(array: Array) -> Array:
    if array.dtype in _NARROW:
        # Only two or four bits of the byte are the number; the others are undefined.
        return array.astype(np.int8)
    return np.array(array, order="C").reshape(-1).view(f"u{array.dtype.itemsize}").reshape(array.shape)
