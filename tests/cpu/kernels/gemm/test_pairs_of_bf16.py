"""Products of BF16 by pairs: subnormal numbers are kept unless options say otherwise, whatever the instructions do."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit import machine, target
from xlakit.cpu.kernels.gemm.engine import choose_engine, has_pairs_of_bf16
from xlakit.options import DEFAULT, compiling
from xlakit.target import Processor

P = xla.PrimitiveType
BF16 = ml_dtypes.bfloat16


@pytest.fixture(autouse=True)
def pairs():
    """Products take the instruction where the processor has it, even if it is slow there."""
    with compiling(knobs={"gemm.pairs_of_bf16": 1000.0}):
        yield


def product(rows: int, depth: int, columns: int, kind: str, *, turned: bool = False) -> xla.HloModule:
    left = f"{depth},{rows}" if turned else f"{rows},{depth}"
    return xla.HloModule.from_text(f"""HloModule product
ENTRY e {{
  a = bf16[{left}] parameter(0)
  b = bf16[{depth},{columns}] parameter(1)
  ROOT r = {kind}[{rows},{columns}] dot(a, b), lhs_contracting_dims={{{0 if turned else 1}}}, rhs_contracting_dims={{0}}
}}""")


def whole(seed: int, *sizes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, sizes).astype(BF16)


@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("sizes", [(1, 5, 7), (13, 17, 19), (48, 32, 64), (100, 33, 47), (37, 300, 5), (70, 700, 90)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("flushes", [False, True])
def test_whole_numbers_are_exact(sizes, kind, turned, flushes):
    rows, depth, columns = sizes
    a, b = whole(1, depth, rows) if turned else whole(1, rows, depth), whole(2, depth, columns)
    module = product(*sizes, kind, turned=turned)
    with compiling(flush_subnormals=flushes):
        found = xla.compile(module, backend="cpu", cache=False)(a, b)
    np.testing.assert_array_equal(found, xla.compile(module, backend="interpreter")(a, b))


def test_convolutions():
    text = """HloModule convolution
ENTRY e {
  a = bf16[3,9,11,5] parameter(0)
  b = bf16[3,3,5,20] parameter(1)
  ROOT r = f32[3,9,11,20] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}"""
    a, b = whole(3, 3, 9, 11, 5), whole(4, 3, 3, 5, 20)
    module = xla.HloModule.from_text(text)
    with compiling(flush_subnormals=True):
        found = xla.compile(module, backend="cpu", cache=False)(a, b)
    np.testing.assert_array_equal(found, xla.compile(module, backend="interpreter")(a, b))


@pytest.mark.parametrize("flushes", [False, True])
def test_subnormal_numbers_are_kept_unless_options_say_otherwise(flushes):
    a, b = np.full((24, 32), 2.0**-130, BF16), np.full((32, 40), 2.0**120, BF16)
    with compiling(flush_subnormals=flushes):
        found = xla.compile(product(24, 32, 40, "f32"), backend="cpu", cache=False)(a, b)
    exact = 32 * 2.0**-10
    # Instructions for pairs take subnormal operands for zero, and so does all arithmetic in that mode.
    assert set(found.ravel().tolist()) <= ({0.0, exact} if flushes else {exact})


# Just inside and just outside of what the instruction may do: products, sums that cancel, and what is beyond F32.
@pytest.mark.parametrize("exponents", [(-56, -56), (-57, -56), (-100, -12), (-126, 14), (-127, 15), (61, 61)])
def test_the_ends_of_the_range(exponents):
    left, right = (2.0**e for e in exponents)
    rng = np.random.default_rng(6)
    a = ((1 + rng.integers(0, 128, (30, 50)) / 128) * left).astype(BF16)
    b = ((1 + rng.integers(0, 128, (50, 70)) / 128) * right).astype(BF16)
    # Neighbors cancel but for their last bits.
    a[:, 1::2], b[1::2] = a[:, ::2], -b[::2]
    b[1::4] *= BF16(1 + 2.0**-7)
    found = xla.compile(product(30, 50, 70, "f32"), backend="cpu", cache=False)(a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert np.all(np.abs(found - exact) <= 50 * 2.0**-24 * scale + 2.0**-149)


def test_both_ways_give_the_same_bits():
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((40, 300)).astype(BF16), rng.standard_normal((300, 90)).astype(BF16)
    compiled = xla.compile(product(40, 300, 90, "f32"), backend="cpu", cache=False)
    usual = compiled(a, b)
    a[39, 7] = 2.0**-130
    np.testing.assert_array_equal(compiled(a, b)[:39].view(np.uint32), usual[:39].view(np.uint32))


@pytest.mark.parametrize("flushes", [False, True])
def test_special_numbers(flushes):
    a, b = np.ones((16, 4), BF16), np.ones((4, 32), BF16)
    a[0, 1], a[1, 2], a[2, 0] = np.inf, np.nan, -np.inf
    b[1, 3] = 0
    module = product(16, 4, 32, "f32")
    with compiling(flush_subnormals=flushes):
        found = xla.compile(module, backend="cpu", cache=False)(a, b)
    np.testing.assert_array_equal(found, xla.compile(module, backend="interpreter")(a, b))


def test_pairs_are_chosen_where_they_are_faster(tmp_path, monkeypatch):
    own = Processor("any", ("+avx512f", "+avx2", "+avx512bf16"))
    monkeypatch.setattr(target, "host", lambda: own)
    path = tmp_path / "machine.json"
    monkeypatch.setenv(machine.VARIABLE, str(path))
    with compiling(DEFAULT):
        for rate, name in [(99, "float"), (101, "bf16")]:
            rates = {"fused_per_nanosecond_f32": 100, "bf16_products_per_nanosecond": rate}
            path.write_text(json.dumps({"measured": rates}))
            machine._of_file.cache_clear()
            assert choose_engine(P.BF16, P.BF16, P.F32).name == name


def test_where_pairs_are_chosen(monkeypatch):
    has = Processor("any", ("+avx512f", "+avx2", "+avx512bf16"))
    for own, chosen in [(has, True), (Processor("other", ("+avx512f", "+avx2")), False)]:
        monkeypatch.setattr(target, "host", lambda own=own: own)
        with compiling(cpu="native", vector_bytes=0):
            assert has_pairs_of_bf16(P.BF16, P.BF16, P.F32) is chosen
            assert not has_pairs_of_bf16(P.BF16, P.F16, P.F32)
            assert not has_pairs_of_bf16(P.BF16, P.BF16, P.F64)
        for flushes in (False, True):
            with compiling(flush_subnormals=flushes, cpu="native", vector_bytes=0):
                assert choose_engine(P.BF16, P.BF16, P.F32).flushes is (chosen and flushes)


@pytest.mark.parametrize("columns", [3993, 320, 33])
def test_only_what_is_packed_is_looked_at(columns):
    """Only the last task has a partial sliver; other memory, or none, follows the slivers of the other tasks."""
    module = xla.HloModule.from_text(
        f"""HloModule m
    ENTRY e {{
      x = bf16[6,322] parameter(0)
      y = bf16[{columns},322] parameter(1)
      ROOT r = f32[6,{columns}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
    }}"""
    )
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-3, 4, (n, 322)).astype(ml_dtypes.bfloat16) for n in (6, columns))
    with compiling(sanitize=True, knobs={"gemm.task_products": 1 << 16}):
        result = xla.compile(module, backend="cpu", cache=False)(x, y)
    np.testing.assert_array_equal(result, x.astype(np.float32) @ y.astype(np.float32).T)
