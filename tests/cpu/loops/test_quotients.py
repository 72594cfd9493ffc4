"""Quotients of numbers made of integers by constants, which are computed from the inverse. See loops/emit/fused.py."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.loops.emit.fused import exact_inverse
from xlakit.target import fuses

NORMALIZED = """HloModule normalized
ENTRY e {{
  x = {kind}[{n}] parameter(0)
  f = f32[{n}] convert(x)
  a = f32[] constant({first})
  b = f32[{n}] broadcast(a), dimensions={{}}
  q = f32[{n}] divide(f, b)
  c = f32[] constant({middle})
  d = f32[{n}] broadcast(c), dimensions={{}}
  s = f32[{n}] subtract(q, d)
  g = f32[] constant({last})
  h = f32[{n}] broadcast(g), dimensions={{}}
  ROOT r = f32[{n}] divide(s, h)
}}"""


def divisions(executable):
    """The number of divisions in the code of a program."""
    return executable.llvm_ir().count("fdiv")


def same_bits(found, expected):
    np.testing.assert_array_equal(np.asarray(found).view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize(
    ("first", "middle", "last"),
    [(255, 0.5, 0.2), (255, 0.485, 0.229), (-255, 0.456, 0.224), (7, 3, -1.1), (127.5, 1, 0.3), (255, -0.406, 0.225)],
)
@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16"])
def test_a_normalized_integer_has_the_bits_of_divisions(kind, first, middle, last):
    bits = int(kind[1:])
    x = np.arange(1 << bits).astype(np.uint16).astype({"u": f"u{bits // 8}", "s": f"i{bits // 8}"}[kind[0]])
    text = NORMALIZED.format(kind=kind, n=x.size, first=first, middle=middle, last=last)
    executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    first, middle, last = (np.float32(c) for c in (first, middle, last))
    same_bits(executable(x), (x.astype(np.float32) / first - middle) / last)
    if (float(first), float(middle)) == (255, 0.5) and fuses():
        assert divisions(executable) == 0


def hard(c):
    """Integers of 24 bits whose quotients by a number are next to the middle of two F32."""
    odd = abs(float(c).as_integer_ratio()[0])
    odd //= odd & -odd
    found = []
    for rest in (1, -1, 3, -3):
        x = rest * pow(1 << 24, -1, odd) % odd if odd > 1 else 0
        found += [x, x + odd, 2 * x, x << (24 - max(1, x.bit_length()))]
    return [x for x in found if x < 1 << 24]


def test_quotients_by_many_constants_have_the_bits_of_divisions():
    rng = np.random.default_rng(0)
    significands = [*rng.integers(1 << 23, 1 << 24, 50), *((1 << 23) + np.arange(5)), *((1 << 24) - np.arange(1, 6))]
    short = rng.integers(1, 1 << 11, 20)
    signs = rng.choice([-1, 1], 80)
    constants = [np.float32(s * k * 2.0**-20) for s, k in zip(signs, [*significands, *short], strict=True)]
    x = np.array([n for c in constants for n in hard(c)], np.int32)
    x = np.concatenate([x, -x, np.arange(-1000, 1000), rng.integers(-(1 << 31), (1 << 31) - 1, 20000)]).astype(np.int32)
    lines = "".join(
        f"c{i} = f32[] constant({c!s})\nb{i} = f32[{x.size}] broadcast(c{i}), dimensions={{}}\n"
        f"q{i} = f32[{x.size}] divide(f, b{i})\n"
        for i, c in enumerate(constants)
    )
    kinds = ", ".join([f"f32[{x.size}]"] * len(constants))
    names = ", ".join(f"q{i}" for i in range(len(constants)))
    text = f"""HloModule quotients
    ENTRY e {{
      x = s32[{x.size}] parameter(0)
      f = f32[{x.size}] convert(x)
      {lines}
      ROOT t = ({kinds}) tuple({names})
    }}"""
    executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    for found, c in zip(executable(x), constants, strict=True):
        same_bits(found, x.astype(np.float32) / c)
    assert sum(exact_inverse(float(c)) is not None for c in constants) > len(constants) // 2


@pytest.mark.parametrize(
    ("number", "divided"),
    [
        # 0 becomes -0.
        ("multiply(f, m)", True),
        # Subnormal numbers, and numbers that were.
        ("multiply(f, t)", True),
        ("multiply(u, v)", True),
        ("add(f, m)", False),
        ("subtract(m, f)", False),
    ],
)
def test_numbers_that_may_be_special_are_divided(number, divided):
    x = np.arange(256).astype(np.uint8)
    parts = {"m": "-2.5", "t": "1e-38", "v": "1e30"}
    lines = "\n".join(
        f"{n}0 = f32[] constant({c})\n{n} = f32[256] broadcast({n}0), dimensions={{}}" for n, c in parts.items()
    )
    text = f"""HloModule special
    ENTRY e {{
      x = u8[256] parameter(0)
      f = f32[256] convert(x)
      {lines}
      u = f32[256] multiply(f, t)
      y = f32[256] {number}
      c = f32[] constant(255)
      b = f32[256] broadcast(c), dimensions={{}}
      ROOT r = f32[256] divide(y, b)
    }}"""
    executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    if fuses():
        assert (divisions(executable) > 0) is divided
    f = x.astype(np.float32)
    m, t, v = (np.float32(parts[n]) for n in "mtv")
    y = {"multiply(f, m)": f * m, "multiply(f, t)": f * t, "multiply(u, v)": f * t * v, "add(f, m)": f + m}
    same_bits(executable(x), y.get(number, m - f) / np.float32(255))


def test_any_other_number_is_divided():
    text = """HloModule plain
    ENTRY e {
      x = f32[8] parameter(0)
      c = f32[] constant(255)
      b = f32[8] broadcast(c), dimensions={}
      ROOT r = f32[8] divide(x, b)
    }"""
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-38, 3e38, 1], np.float32)
    np.testing.assert_array_equal(xla.compile(xla.HloModule.from_text(text), backend="cpu")(x), x / np.float32(255))


@pytest.mark.parametrize("c", [0.0, float("inf"), float("nan"), 1e-30, 1e30])
def test_extreme_divisors_have_no_inverse(c):
    assert exact_inverse(c) is None
