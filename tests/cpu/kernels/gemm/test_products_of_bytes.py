"""Products of integers of 8 bits are exact modulo the width of their result, however many go into one instruction."""

from __future__ import annotations

import itertools
import platform

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.kernels.common_families import function_of
from xlakit.cpu.kernels.gemm.engine import choose_engine, has_fours
from xlakit.cpu.kernels.gemm.macro_kernel import MacroKernel
from xlakit.cpu.kernels.shared.common import symbol_of
from xlakit.options import compiling
from xlakit.target import Processor

P = xla.PrimitiveType
KINDS = (P.S8, P.U8, P.PRED, P.S4, P.U4)
# What of fours, vectors and tiles is left over differs.
SIZES = [(3, 5, 7), (13, 37, 50), (33, 130, 70), (130, 1, 33), (100, 3, 100), (70, 701, 90), (5, 4, 300)]


def drawn(random: np.random.Generator, kind: P, sizes: tuple[int, int]) -> np.ndarray:
    if kind is P.PRED:
        return random.random(sizes) < 0.5
    low = -(1 << kind.bit_width - 1) if kind.is_signed else 0
    # The ends of the range are where a sign that is taken wrongly shows most.
    values = random.integers(low, low + (1 << kind.bit_width), sizes)
    return np.where(random.random(sizes) < 0.3, low + (1 << kind.bit_width) - 1, values).astype(kind.dtype)


def product(kinds: tuple[P, P], result: P, sizes: tuple[int, int, int], turned: tuple[bool, bool]) -> xla.HloModule:
    rows, depth, columns = sizes
    left = f"{depth},{rows}" if turned[0] else f"{rows},{depth}"
    right = f"{columns},{depth}" if turned[1] else f"{depth},{columns}"
    return xla.HloModule.from_text(f"""HloModule product
ENTRY e {{
  a = {kinds[0].hlo_name}[{left}] parameter(0)
  b = {kinds[1].hlo_name}[{right}] parameter(1)
  ROOT r = {result.hlo_name}[{rows},{columns}] dot(a, b),
    lhs_contracting_dims={{{1 - turned[0]}}}, rhs_contracting_dims={{{int(turned[1])}}}
}}""")


PAIRS = [(a, b) for a, b in itertools.product(KINDS, KINDS) if a.bit_width + b.bit_width > 8]


@pytest.mark.parametrize(("number", "kinds"), list(enumerate(PAIRS)))
def test_products_are_exact(number, kinds):
    random = np.random.default_rng(number)
    for result, shift in ((P.S32, 0), (P.S16, 3)):
        rows, depth, columns = sizes = SIZES[(number + shift) % len(SIZES)]
        turned = (bool(random.integers(2)), bool(random.integers(2)))
        a, b = drawn(random, kinds[0], (rows, depth)), drawn(random, kinds[1], (depth, columns))
        run = xla.compile(product(kinds, result, sizes, turned))
        found = run(a.T if turned[0] else a, b.T if turned[1] else b)
        expected = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(result.dtype)
        np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="about levels of x86-64")
@pytest.mark.parametrize("kinds", [(P.S8, P.S8), (P.U8, P.S8), (P.S16, P.S16)])
def test_pairs_of_vectors_that_no_instruction_multiplies(kinds):
    random = np.random.default_rng(5)
    a, b = drawn(random, kinds[0], (17, 40)), drawn(random, kinds[1], (40, 33))
    with compiling(cpu="x86-64", vector_bytes=64):
        found = xla.compile(product(kinds, P.S32, (17, 40, 33), (False, False)))(a, b)
    expected = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("kinds", [(P.S32, P.S8), (P.U8, P.S16), (P.S8, P.S8)])
def test_results_of_bytes_take_bytes_of_their_operands(kinds):
    random = np.random.default_rng(4)
    a, b = drawn(random, kinds[0], (40, 70)), drawn(random, kinds[1], (70, 50))
    found = xla.compile(product(kinds, P.U8, (40, 70, 50), (False, False)))(a, b)
    np.testing.assert_array_equal(np.asarray(found), np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(np.uint8))


@pytest.mark.parametrize("features", [1, 3, 4, 6, 8])
def test_convolutions_whose_runs_are_no_fours(features):
    random = np.random.default_rng(features)
    x = drawn(random, P.S8, (2, 9 * 9 * features)).reshape(2, 9, 9, features)
    k = drawn(random, P.S8, (3, 3 * features * 32)).reshape(3, 3, features, 32)
    module = xla.HloModule.from_text(f"""HloModule conv
ENTRY e {{
  x = s8[2,9,9,{features}] parameter(0)
  k = s8[3,3,{features},32] parameter(1)
  ROOT r = s32[2,7,7,32] convolution(x, k), window={{size=3x3}}, dim_labels=b01f_01io->b01f
}}""")
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (3, 3), axis=(1, 2))
    expected = np.einsum("bijfuv,uvfo->bijo", windows, k.astype(np.int64))
    np.testing.assert_array_equal(np.asarray(xla.compile(module)(x, k)), expected)


VNNI = Processor("znver4", tuple(f"+{f}" for f in ("avx2", "avx512f", "avx512bw", "avx512vl", "avx512vnni")))


@pytest.mark.parametrize(
    ("kinds", "unsigned"),
    [
        ((P.S8, P.S8), "biased"),
        ((P.U8, P.S8), "left"),
        ((P.S8, P.U8), "right"),
        ((P.PRED, P.U8), "right"),
        ((P.U4, P.U8), "right"),
        ((P.U8, P.U8), ""),
        ((P.S16, P.S8), ""),
    ],
)
def test_the_operand_without_a_sign(kinds, unsigned, monkeypatch):
    monkeypatch.setattr("xlakit.cpu.kernels.gemm.engine.processor", lambda: VNNI)
    engine = choose_engine(*kinds, P.S32)
    assert (engine.group, engine.unsigned) == (4 if unsigned else 2, unsigned)


def test_fours_need_the_instruction():
    assert has_fours(VNNI)
    assert not has_fours(VNNI.with_vectors(32))
    # Vectors of several registers have no instruction of their own.
    assert not has_fours(VNNI.with_vectors(32).with_vectors(64))


def test_kernels_are_named_after_the_operand_without_a_sign(monkeypatch):
    """A name that left it out would give products the kernel of others."""
    monkeypatch.setattr("xlakit.cpu.kernels.gemm.engine.processor", lambda: VNNI)
    engine = choose_engine(P.S8, P.S8, P.S32)
    tiles = MacroKernel(engine, 32, 32, 1, 32, None, None, None, adds=False)
    read = function_of(symbol_of(tiles))
    assert read.engine.unsigned == "biased"
    assert (read.engine.group, read.engine.packed, read.engine.flushes) == (4, engine.packed, False)
