"""Conversions between all kinds of numbers, of what lies at the bounds of each type and beyond."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling
from xlakit.target import is_x86

INTEGERS = ("s4", "s8", "s16", "s32", "s64", "u4", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f8e8m0fnu")


def beside(values):
    """Numbers, what is next to each, and what is half a unit away."""
    return [value + step for value in values for step in (-1, -0.5, 0, 0.5, 1)]


def edges(kind):
    """What a type has near all powers of two, and what it has beside finite numbers."""
    dtype = xla.PrimitiveType.from_name(kind).dtype
    if kind[0] in "su":
        bounds = np.iinfo(dtype)
        near = [sign * 2**k + step for k in range(64) for sign in (1, -1) for step in (-1, 0, 1, 2**k >> 9, 2**k >> 12)]
        return np.array([n for n in near if bounds.min <= n <= bounds.max], dtype)
    powers = [sign * 2.0**k for k in (*range(18), 24, 30, 31, 32, 53, 62, 63, 64) for sign in (1, -1)]
    ties = [
        s * 2.0**k * (1 + t + e)
        for k in range(-152, 129)
        for t in (2**-4, 2**-8, 2**-11)
        for e in (0, 2**-40, -(2**-40))
        for s in (1, -1)
    ]
    with np.errstate(all="ignore"):
        special = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, -1e-300, 5e-324]
        return np.array([*beside(powers), *ties, *special]).astype(np.float32 if kind != "f64" else dtype).astype(dtype)


@pytest.mark.parametrize("source", ["f64", "f32", "bf16", "s32", "u32", "s64"])
def test_conversions_at_the_bounds_of_types(source):
    x = edges(source)
    targets = [t for t in (*FLOATS, *INTEGERS) if t != source and (t in FLOATS or source not in INTEGERS)]
    made = "".join(f"  r{n} = {t}[{len(x)}] convert(x)\n" for n, t in enumerate(targets))
    text = (
        f"HloModule conversions\nENTRY e {{\n  x = {source}[{len(x)}] parameter(0)\n{made}  ROOT r = ("
        + ", ".join(f"{t}[{len(x)}]" for t in targets)
        + ") tuple("
        + ", ".join(f"r{n}" for n in range(len(targets)))
        + ")\n}"
    )
    module = xla.HloModule.from_text(text)
    with np.errstate(all="ignore"):
        found, expected = (xla.compile(module, backend=name)(x) for name in ("cpu", "interpreter"))
    for target, ours, theirs in zip(targets, found, expected, strict=True):
        a, b = (np.asarray(v).astype(np.float64 if target in FLOATS else object) for v in (ours, theirs))
        np.testing.assert_array_equal(a, b, err_msg=target)
        if target in FLOATS:
            zero = b == 0
            np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]), err_msg=target)


@pytest.mark.skipif(not is_x86(), reason="other processors have saturating instructions")
@pytest.mark.parametrize(
    ("source", "target"), [("f32", "s8"), ("f32", "s32"), ("f32", "u32"), ("f16", "u8"), ("f64", "s32")]
)
def test_floats_become_integers_in_vectors(source, target):
    text = f"HloModule m\nENTRY e {{\n  x = {source}[4096] parameter(0)\n  ROOT r = {target}[4096] convert(x)\n}}"
    machine_code = xla.compile(xla.HloModule.from_text(text), backend="cpu", cache=False).assembly()
    assert "cvttp" in machine_code
    assert "cvttss2si" not in machine_code and "cvttsd2si" not in machine_code


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("source", ["f64", "f32"])
def test_powers_of_two_below_the_normal_numbers_of_f32(source, flushes):
    fractions = np.array([1, 1 + 2**-23, 1.25, 1.5, 1.75, 2 - 2**-23])
    around = np.concatenate([np.ldexp(fractions, e) for e in (-160, -140, -129, -128, -127, -126, -125, 0, 126, 127)])
    special = np.array([0.0, -0.0, -1.0, -(2.0**-127), np.inf, -np.inf, np.nan])
    x = np.concatenate([around, special]).astype(xla.PrimitiveType.from_name(source).dtype)
    text = (
        f"HloModule m\nENTRY e {{\n x = {source}[{x.size}] parameter(0)\n ROOT y = f8e8m0fnu[{x.size}] convert(x)\n}}"
    )
    module = xla.HloModule.from_text(text)
    expected = np.asarray(xla.compile(module, backend="interpreter")(x))
    with compiling(flush_subnormals=flushes):
        actual = np.asarray(xla.compile(module, backend="cpu", cache=False)(x))
    np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))
