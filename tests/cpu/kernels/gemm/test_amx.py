"""Products in AMX's tile registers: exact integers, the bits of BF16 that are promised, and where they are not made."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit import target
from xlakit.cpu.kernels.common_families import function_of
from xlakit.cpu.kernels.dot.dot import plan_product
from xlakit.cpu.kernels.gemm.engine import Engine, choose_engine
from xlakit.cpu.kernels.gemm.macro_kernel import MacroKernel
from xlakit.cpu.kernels.gemm.operands import Direction, Matrix
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.shared.common import symbol_of
from xlakit.options import compiling
from xlakit.target import Processor

P = xla.PrimitiveType
BF16 = ml_dtypes.bfloat16
_FEATURES = ("avx2", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16", "amx-tile", "amx-bf16", "amx-int8")
AMX = Processor("sapphirerapids", tuple(f"+{feature}" for feature in _FEATURES))
NATIVE = {"cpu": "native", "vector_bytes": 0}
RESULTS = {"s8": np.int8, "s16": np.int16, "s32": np.int32, "u32": np.uint32}
# All products that tile registers can take, however empty they are; and none.
ALL, NONE = {"gemm.tile_waste": 1 << 20}, {"gemm.tile_waste": 0}

needs_amx = pytest.mark.skipif(
    not target.host().has("amx-tile"), reason="this processor has no AMX, or the system does not permit it"
)
# What of rows, columns and steps fills no tile register differs, and how many blocks of k there are.
SIZES = [(1, 1, 1), (3, 5, 7), (16, 64, 16), (17, 65, 33), (33, 130, 70), (130, 1, 33), (47, 63, 48), (70, 2100, 90)]


def product(kinds: tuple[str, str, str], sizes: tuple[int, int, int], *, turned: bool = False) -> xla.HloModule:
    rows, depth, columns = sizes
    left, right = (f"{depth},{rows}", f"{columns},{depth}") if turned else (f"{rows},{depth}", f"{depth},{columns}")
    return xla.HloModule.from_text(f"""HloModule product
ENTRY e {{
  a = {kinds[0]}[{left}] parameter(0)
  b = {kinds[1]}[{right}] parameter(1)
  ROOT r = {kinds[2]}[{rows},{columns}] dot(a, b),
    lhs_contracting_dims={{{1 - turned}}}, rhs_contracting_dims={{{int(turned)}}}
}}""")


def multiplied(kinds, a, b, *, turned=False, **options):
    module = product(kinds, (a.shape[0], a.shape[1], b.shape[1]), turned=turned)
    with compiling(**{**NATIVE, "knobs": ALL, **options}):
        run = xla.compile(module, backend="cpu", cache=False)
    return np.asarray(run(*((np.ascontiguousarray(x.T) for x in (a, b)) if turned else (a, b))))


def in_order_of_the_instruction(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums of 32 steps of k: even and odd ones apart, then both, then added. Products of BF16 are exact in F32."""
    rows, depth = a.shape
    depth_of_tiles = -(-depth // 32) * 32
    left, right = np.zeros((rows, depth_of_tiles), np.float32), np.zeros((depth_of_tiles, b.shape[1]), np.float32)
    left[:, :depth], right[:depth] = a, b
    total = np.zeros((rows, b.shape[1]), np.float32)
    for first in range(0, depth_of_tiles, 32):
        parts = [np.zeros_like(total), np.zeros_like(total)]
        for k in range(first, first + 32):
            parts[k % 2] += left[:, k, None] * right[k]
        total += parts[0] + parts[1]
    return total


@needs_amx
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_integers_are_exact(sizes, turned):
    rows, depth, columns = sizes
    random = np.random.default_rng(rows)
    for kinds in (
        ("s8", "s8", "s32"),
        ("u8", "s8", "s32"),
        ("s8", "u8", "s16"),
        ("u8", "u8", "u32"),
        ("s8", "s8", "s8"),
    ):
        a, b = (random.integers(0, 256, s, np.uint8) for s in ((rows, depth), (depth, columns)))
        # The ends of the range are where a sign that is taken wrongly shows most.
        a, b = (np.where(random.random(x.shape) < 0.3, 128, x).astype(np.uint8) for x in (a, b))
        a, b = (x.view(np.int8) if kind == "s8" else x for x, kind in zip((a, b), kinds[:2], strict=True))
        exact = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(RESULTS[kinds[2]])
        np.testing.assert_array_equal(multiplied(kinds, a, b, turned=turned), exact)


@needs_amx
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", [s for s in SIZES if s[1] < 300])
def test_numbers_of_bf16_are_added_in_the_order_of_the_instruction(sizes, turned):
    rows, depth, columns = sizes
    random = np.random.default_rng(depth)
    a, b = (random.standard_normal(s).astype(BF16) for s in ((rows, depth), (depth, columns)))
    expected = in_order_of_the_instruction(a, b)
    for flushes in (False, True):
        found = multiplied(("bf16", "bf16", "f32"), a, b, turned=turned, flush_subnormals=flushes)
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    # A subnormal number anywhere has all sums computed by fused operations: those without it have the same bits.
    a[-1, 0] = 2.0**-130
    found = multiplied(("bf16", "bf16", "f32"), a, b, turned=turned)
    np.testing.assert_array_equal(found.view(np.uint32), in_order_of_the_instruction(a, b).view(np.uint32))


@needs_amx
def test_numbers_of_bf16_that_sums_take_for_zero_are_kept():
    a, b = np.full((40, 64), 2.0**-130, BF16), np.full((64, 48), 2.0**120, BF16)
    assert set(multiplied(("bf16", "bf16", "f32"), a, b).ravel().tolist()) == {64 * 2.0**-10}
    # Products and sums that are subnormal though no operand is.
    a[:], b[:] = 2.0**-70, 2.0**-70
    assert set(multiplied(("bf16", "bf16", "f32"), a, b).ravel().tolist()) == {64 * 2.0**-140}


@needs_amx
def test_blocks_of_k_and_of_rows_do_not_change_whole_numbers():
    random = np.random.default_rng(3)
    a, b = (random.integers(-3, 4, s).astype(BF16) for s in ((300, 200), (200, 120)))
    for knobs in ({"gemm.sliver_bytes": 1024, "gemm.block_bytes": 1024}, {"gemm.most_columns": 64}, NONE):
        found = multiplied(("bf16", "bf16", "bf16"), a, b, knobs={**ALL, **knobs})
        np.testing.assert_array_equal(found, (a.astype(np.float64) @ b.astype(np.float64)).astype(BF16))


@needs_amx
def test_convolutions():
    random = np.random.default_rng(5)
    for features in (3, 8, 40):
        module = xla.HloModule.from_text(f"""HloModule convolution
ENTRY e {{
  a = s8[2,9,9,{features}] parameter(0)
  b = s8[3,3,{features},40] parameter(1)
  ROOT r = s32[2,7,7,40] convolution(a, b), window={{size=3x3}}, dim_labels=b01f_01io->b01f
}}""")
        a, b = (random.integers(-128, 128, s, np.int8) for s in ((2, 9, 9, features), (3, 3, features, 40)))
        with compiling(**NATIVE, knobs=ALL):
            found = np.asarray(xla.compile(module, backend="cpu", cache=False)(a, b))
        windows = np.lib.stride_tricks.sliding_window_view(a.astype(np.int64), (3, 3), axis=(1, 2))
        np.testing.assert_array_equal(found, np.einsum("bijfuv,uvfo->bijo", windows, b.astype(np.int64)))


@needs_amx
def test_no_tile_register_stays_configured():
    """The processor says which parts of its state are in use."""
    program = (
        "import numpy as np, xlakit as xla, ctypes, mmap\n"
        "m = xla.HloModule.from_text('HloModule m\\nENTRY e { a = s8[64,64] parameter(0) "
        "ROOT r = s32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0} }')\n"
        "run = xla.compile(m, backend='cpu')\n"
        # mov ecx, 1; xgetbv; ret: which parts of the state are in use.
        "code = mmap.mmap(-1, 4096, prot=7); code.write(bytes.fromhex('b9010000000f01d0c3'))\n"
        "used = ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(ctypes.c_char.from_buffer(code)))\n"
        "run(np.ones((64, 64), np.int8)); print(used() >> 17 & 3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "0"


# -- the choice ----------------------------------------------------------------------------------


@pytest.fixture
def with_amx(monkeypatch):
    monkeypatch.setattr("xlakit.cpu.kernels.gemm.engine.processor", lambda: AMX)
    monkeypatch.setattr(target, "processor", lambda: AMX)


def engine_for(rows: int, depth: int, columns: int, kind: P, result: P) -> Engine | None:
    matrices = (
        Matrix(kind, Direction(((rows, depth),)), Direction(((depth, 1),))),
        Matrix(kind, Direction(((columns, 1),)), Direction(((depth, columns),))),
    )
    plan = plan_product(Product(*matrices, result, Direction(((rows, columns),)), Direction(((columns, 1),))))
    return plan.engine if plan.blocking is None else plan.blocking.engine


@pytest.mark.parametrize(
    ("kinds", "unsigned"),
    [
        ((P.S8, P.S8), ""),
        ((P.U8, P.S8), "left"),
        ((P.S8, P.U8), "right"),
        ((P.U8, P.U8), "both"),
        ((P.PRED, P.U4), "both"),
    ],
)
def test_signs(kinds, unsigned, with_amx):
    engine = choose_engine(*kinds, P.S32)
    assert (engine.amx, engine.unsigned, engine.is_biased) == (True, unsigned, False)
    read = function_of(symbol_of(MacroKernel(engine, 32, 32, 1, 32, None, None, None, adds=False)))
    assert (read.engine.amx, read.engine.unsigned) == (True, unsigned)


def test_what_takes_no_tile_registers(with_amx):
    assert choose_engine(P.BF16, P.BF16, P.F32).amx
    assert not choose_engine(P.S16, P.S8, P.S32).amx
    assert not choose_engine(P.BF16, P.BF16, P.F64).amx
    assert not choose_engine(P.BF16, P.BF16, P.F32).one_by_one().amx
    # The sanitizer would not see what tile registers read and write.
    with compiling(sanitize=True):
        assert not choose_engine(P.S8, P.S8, P.S32).amx
    for other in (AMX.with_vectors(32), AMX.with_vectors(32).with_vectors(64), AMX.without("amx")):
        assert not any(other.has(f"amx-{name}") and other.vector_bytes == 64 for name in ("tile", "int8", "bf16"))


def test_small_products_take_vectors(with_amx):
    with compiling(knobs={}):
        full, empty = engine_for(256, 256, 256, P.S8, P.S32), engine_for(256, 8, 256, P.S8, P.S32)
    assert full is not None and full.amx and full.steps == 64
    assert empty is not None and not empty.amx


def test_a_processor_without_permission_has_no_amx(monkeypatch):
    target.host.cache_clear()
    own = target.host()
    try:
        monkeypatch.setattr(target, "_may_use_tiles", lambda: False)
        target.host.cache_clear()
        refused = target.host()
    finally:
        monkeypatch.undo()
        target.host.cache_clear()
    assert not any(f.startswith("+amx") for f in refused.features)
    assert [f[1:] for f in refused.features] == [f[1:] for f in own.features]
    assert (refused.text == own.text) == (not own.has("amx-tile"))


@needs_amx
def test_where_linux_refuses_tile_registers_products_take_vectors():
    """It does for a process with a stack for signals that has no room for them."""
    program = (
        "import ctypes, numpy as np, xlakit as xla\n"
        "class Stack(ctypes.Structure):\n"
        "    _fields_ = [('start', ctypes.c_void_p), ('flags', ctypes.c_int), ('size', ctypes.c_size_t)]\n"
        "memory = ctypes.create_string_buffer(4096)\n"
        "stack = Stack(ctypes.addressof(memory), 0, 4096)\n"
        "assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0\n"
        "m = xla.HloModule.from_text('HloModule m\\nENTRY e { a = s8[64,64] parameter(0) "
        "ROOT r = s32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0} }')\n"
        "run = xla.compile(m, backend='cpu')\n"
        "print(np.unique(run(np.ones((64, 64), np.int8))), 'tdpbssd' in run.assembly())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[64] False"
