"""Functions that LLVM's code generation calls by itself."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.llvm import engine, libcalls
from xlakit.cpu.llvm.function import Effort
from xlakit.cpu.llvm.library import Library
from xlakit.target import converts_halves

# Two roundings after a sign that is an F64's: LLVM makes a call of it.
_SIGN_THROUGH_ROUNDINGS = """
define void @rounded(ptr %x, ptr %sign, ptr %to) {
  %a = load double, ptr %x
  %b = load double, ptr %sign
  %c = call double @llvm.copysign.f64(double %a, double %b)
  %single = fptrunc double %c to float
  %half = fptrunc float %single to half
  store half %half, ptr %to
  ret void
}
declare double @llvm.copysign.f64(double, double)
"""

_ROUNDED = """
define void @rounded(ptr %x, ptr %to) {
  %a = load double, ptr %x
  %half = call half @__truncdfhf2(double %a)
  store half %half, ptr %to
  ret void
}
declare half @__truncdfhf2(double)
"""

pytestmark = pytest.mark.skipif(not converts_halves(), reason="without such instructions, no F16 is made by LLVM")


@cache
def _library(name: str, text: str) -> Library:
    return Library(name, engine.compiled(text, Effort.CODE), ["rounded"], {})


def _called(text: str, *arguments: float) -> np.float16:
    library = _library(f"libcalls_test_{len(arguments)}", text)
    numbers = [np.array(x) for x in arguments]
    to = np.zeros((), np.float16)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(numbers) + 1))(library.address("rounded"))
    function(*(array.ctypes.data for array in (*numbers, to)))
    return to[()]


@pytest.mark.parametrize("sign", [1.0, -1.0, -0.0, np.nan])
def test_signs_that_pass_two_roundings(sign: float) -> None:
    expected = np.float16(np.float32(np.copysign(2.0 / 3.0, sign)))
    assert _called(_SIGN_THROUGH_ROUNDINGS, 2.0 / 3.0, sign).tobytes() == expected.tobytes()


def test_rounding_to_halves_is_that_of_numpy() -> None:
    rng = np.random.default_rng(5)
    ties = np.ldexp(2.0 * rng.integers(1, 2048, 40) + 1, rng.integers(-30, 6, 40))
    nearly = np.concatenate([np.nextafter(ties, 0), ties, np.nextafter(ties, np.inf)])
    special = [
        0.0,
        65519.999999999,
        65520.0,
        1e300,
        np.inf,
        2.0**-24,
        2.0**-25,
        np.nextafter(2.0**-25, 1),
        1e-300,
        5e-324,
    ]
    numbers = np.concatenate([nearly, special])
    numbers = np.concatenate([numbers, -numbers])
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16)
    got = np.array([_called(_ROUNDED, x) for x in numbers])
    np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))
    assert np.isnan(_called(_ROUNDED, np.nan))


def test_only_what_is_called_is_made() -> None:
    assert libcalls.called_by([b"an object", b"\0__truncdfhf2\0"]) == ["__truncdfhf2"]
    assert libcalls.called_by([b"an object"]) == []


def test_halves_of_five_functions_put_together() -> None:
    """The loop takes them one by one, each under its condition, so that signs pass two roundings."""
    module = xla.HloModule.from_text("""HloModule m
        ENTRY e {
          p = f16[20] parameter(0)
          a = f16[20] cbrt(p)
          b = f16[20] sinh(p)
          c = f16[20] exponential(p)
          d = f16[20] negate(p)
          f = f16[20] rsqrt(p)
          ROOT r = f16[100] concatenate(a, b, c, d, f), dimensions={0}
        }""")
    p = np.linspace(-5, 5, 20).astype(np.float16)
    compiled, reference = xla.compile(module)(p), xla.compile(module, backend="interpreter")(p)
    np.testing.assert_array_max_ulp(np.nan_to_num(compiled), np.nan_to_num(reference), 1)
