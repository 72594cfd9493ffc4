"""Levels of the instruction set: what code is made for, refused, kept by, and has of instructions."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit import options, target
from xlakit.cpu.cache.cache_key import program_key
from xlakit.options import DEFAULT, compiling, of_tag
from xlakit.target import Processor, levels

pytestmark = pytest.mark.usefixtures("no_chosen_width")


# Halves, elementary functions, sums, products of several types, a sort and integers: what instructions differ in.
PROGRAM = """HloModule levels
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
less { a = f16[] parameter(0)  b = f16[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e {
  h = f16[9,17] parameter(0)
  t = f16[17,9] transpose(h), dimensions={1,0}
  hh = f16[9,9] dot(h, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  i = s8[9,17] convert(h)
  j = s8[17,9] transpose(i), dimensions={1,0}
  ij = s32[9,9] dot(i, j), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  f = f32[9,17] convert(h)
  r = f32[9,17] round-nearest-even(f)
  g = f32[9,17] floor(f)
  rg = f32[9,17] add(r, g)
  zero = f32[] constant(0)
  s = f32[9] reduce(rg, zero), dimensions={1}, to_apply=add
  o = f16[9,17] sort(h), dimensions={1}, to_apply=less
  b = bf16[9,17] convert(h)
  p = s8[9,17] popcnt(i)
  ROOT all = (f16[9,9], s32[9,9], f32[9], f16[9,17], bf16[9,17], s8[9,17]) tuple(hh, ij, s, o, b, p)
}"""
ELEMENTARY = "HloModule m\nENTRY e { p = f64[40] parameter(0)  ROOT r = f64[40] tanh(p) }"


def module(text: str = PROGRAM) -> xla.HloModule:
    return xla.HloModule.from_text(text)


def short_floats() -> np.ndarray:
    return (np.arange(9 * 17).reshape(9, 17) % 23 - 11).astype(np.float16)


@pytest.mark.parametrize("level", levels())
def test_every_level_gives_the_same(level: str):
    expected = xla.compile(module(), backend="interpreter")(short_floats())
    with compiling(cpu=level):
        found = xla.compile(module(), backend="cpu", cache=False)(short_floats())
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.skipif(not target.host().has("avx2"), reason="a level of x86 with a feature of a higher one")
def test_features_that_follow_a_level_give_the_same():
    expected = xla.compile(module(), backend="interpreter")(short_floats())
    with compiling(cpu="x86-64-v2+avx+f16c"):
        assert of_tag(options.current().tag).cpu == "x86-64-v2+avx+f16c"
        found = xla.compile(module(), backend="cpu", cache=False)(short_floats())
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)


# With the least and the greatest numbers, infinities and NaNs, quiet and not, of both signs.
@pytest.mark.parametrize("level", levels())
def test_every_half_to_f32_and_back(level: str):
    text = """HloModule halves
    ENTRY e {
      u = u16[65536] parameter(0)
      v = u32[32768] parameter(1)
      h = f16[65536] bitcast-convert(u)
      f = f32[65536] convert(h)
      wide = u32[65536] bitcast-convert(f)
      g = f32[32768] bitcast-convert(v)
      k = f16[32768] convert(g)
      narrow = u16[32768] bitcast-convert(k)
      ROOT r = (u32[65536], u16[32768]) tuple(wide, narrow)
    }"""
    codes = np.arange(1 << 16, dtype=np.uint16)
    finite = np.sort(codes.view(np.float16)[np.isfinite(codes.view(np.float16))].astype(np.float32))
    middles = (finite[1:] + finite[:-1]) / 2
    random = np.random.default_rng(5).integers(0, 1 << 32, 1 << 14, dtype=np.uint32)
    with np.errstate(all="ignore"):
        middles = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf))])
    single = np.concatenate([np.resize(middles.view(np.uint32)[::8], (1 << 14) - 4), random])
    single = np.concatenate([single, np.array([0x7F800001, 0xFF812345, 0x7F800000, 0xFFC00000], np.uint32)])
    with compiling(cpu=level):
        wide, narrow = xla.compile(module(text), backend="cpu", cache=False)(codes, single)
    values, nan = codes.view(np.float16), np.isnan(codes.view(np.float16))
    np.testing.assert_array_equal(wide[~nan], values.astype(np.float32).view(np.uint32)[~nan])
    # A NaN keeps its bits, and is quiet.
    codes = codes.astype(np.uint32)
    payload = 0x7FC00000 | ((codes & 0x3FF) << 13) | ((codes & 0x8000) << 16)
    np.testing.assert_array_equal(wide[nan], payload[nan])
    numbers = single.view(np.float32)
    with np.errstate(all="ignore"):
        rounded = numbers.astype(np.float16).view(np.uint16)
    nan = np.isnan(numbers)
    np.testing.assert_array_equal(narrow[~nan], rounded[~nan])
    quiet = 0x7E00 | ((single >> 13) & 0x3FF) | ((single >> 16) & 0x8000)
    np.testing.assert_array_equal(narrow[nan], quiet[nan])


@pytest.mark.skipif("x86-64-v3" not in levels(), reason="levels of x86")
def test_code_has_the_instructions_of_its_level():
    def assembly(level: str) -> str:
        with compiling(cpu=level):
            return xla.compile(module(ELEMENTARY), backend="cpu", cache=False).assembly()

    low, middle = assembly("x86-64-v2"), assembly("x86-64-v3")
    assert re.search(r"%xmm\d", low)
    assert not re.search(r"%[yz]mm\d|vfmadd", low)
    assert re.search(r"%ymm\d", middle)
    assert "vfmadd" in middle
    assert "%zmm" not in middle


def test_what_cannot_run_here_is_told(monkeypatch: pytest.MonkeyPatch):
    with compiling(cpu="x86-64-v9"), pytest.raises(xla.ArgumentError, match="there is no level 'x86-64-v9'"):
        xla.compile(module(), backend="cpu")
    only = Processor("small", tuple(f"+{feature}" for feature in target._V2))
    with compiling(cpu="x86-64-v3"):
        kept = pickle.dumps(xla.compile(module(), backend="cpu")) if "x86-64-v3" in levels() else b""
    monkeypatch.setattr(target, "host", lambda: only)
    with compiling(DEFAULT, cpu="x86-64-v3"), pytest.raises(xla.ArgumentError, match="has no avx, avx2, bmi") as told:
        xla.compile(module(), backend="cpu")
    assert "code for x86-64, x86-64-v2 and native runs here" in str(told.value)
    with compiling(DEFAULT, cpu="x86-64-v2", vector_bytes=64):
        assert target.vector_bytes() == 64  # in four registers each
        assert target.processor().features == only.features
    if kept:
        with pytest.raises(xla.ArgumentError, match="cannot run code for x86-64-v3"):
            pickle.loads(kept)


@pytest.mark.skipif("x86-64-v2" not in levels(), reason="levels of x86")
def test_a_level_is_kept_with_what_is_made_for_it(monkeypatch: pytest.MonkeyPatch):
    with compiling(cpu="x86-64-v2"):
        made = xla.compile(module(ELEMENTARY), backend="cpu", cache=False)
        key = program_key(module(), 1, 1)
    again = pickle.loads(pickle.dumps(made))
    assert not re.search(r"%[yz]mm", again.assembly())
    with compiling(cpu="native"):
        assert key is None or program_key(module(), 1, 1) != key
    # The code of a level is the same on all machines that have it, and found by them in a cache that they share.
    larger = Processor("large", tuple(f"+{feature}" for feature in (*target._V4, "more")))
    monkeypatch.setattr(target, "host", lambda: larger)
    with compiling(cpu="x86-64-v2"):
        assert program_key(module(), 1, 1) == key
    with compiling(cpu="x86-64-v2+more"):
        assert target.has_feature("more")
        assert not target.has_feature("avx")


@pytest.mark.skipif("x86-64-v2" not in levels(), reason="levels of x86")
def test_the_environment_says_a_level_for_the_runtime_as_well(tmp_path):
    code = (
        "import numpy as np, xlakit\n"
        "from xlakit import target\n"
        f"m = xlakit.HloModule.from_text({ELEMENTARY!r})\n"
        "print(xlakit.compile(m, backend='cpu')(np.zeros(40)).sum(), target.processor().name)\n"
    )
    environment = {**os.environ, "XLAKIT_CACHE_DIR": str(tmp_path), "XLAKIT_CPU": "x86-64-v2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300, capture_output=True)
    assert done.stdout.decode().split() == ["0.0", "x86-64-v2"]
    # No machine code that was kept, the runtime's included, begins as instructions with vectors of 64 bytes do.
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"\x62\xf1\x7c\x48" not in kept


def test_bf16_is_rounded_by_integers():
    # Instructions for it would flush what is below the least normal number.
    values = np.array([1e-39, -1e-39, 1.0 + 2.0**-8, 3.39e38], np.float32)
    text = "HloModule m\nENTRY e { p = f32[4] parameter(0)  ROOT r = bf16[4] convert(p) }"
    np.testing.assert_array_equal(xla.compile(module(text), backend="cpu")(values), values.astype(ml_dtypes.bfloat16))
