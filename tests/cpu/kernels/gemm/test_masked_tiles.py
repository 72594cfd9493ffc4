"""Tiles that end in the middle of a register: one function for several widths, which touches no other columns."""

import ctypes
import mmap
from dataclasses import replace

import numpy as np
import pytest

from xlakit import target
from xlakit.cpu.kernels.gemm.engine import choose_engine
from xlakit.cpu.kernels.gemm.macro_kernel import MacroKernel, computed_columns
from xlakit.cpu.kernels.shared import common, common_code
from xlakit.cpu.kernels.shared.masked import has_masks
from xlakit.data.primitive import PrimitiveType as P
from xlakit.options import compiling

WORD, POINTER = ctypes.c_int64, ctypes.c_void_p
ROWS, DEPTH = 8, 5

needs_masks = pytest.mark.skipif("x86-64-v4" not in target.levels(), reason="no masked instructions")


@pytest.fixture
def level_with_masks(monkeypatch):
    monkeypatch.delenv("XLAKIT_VECTOR_BYTES", raising=False)
    with compiling(cpu="x86-64-v4", vector_bytes=64):
        assert has_masks()
        yield


def at_end_of_page(array):
    """A copy of an array, whose end is that of memory that may be accessed."""
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert not ctypes.CDLL(None).mprotect(POINTER(start + mmap.PAGESIZE), WORD(mmap.PAGESIZE), 0)
    made = np.frombuffer(memory, array.dtype, array.size, mmap.PAGESIZE - array.nbytes).reshape(array.shape)
    made[...] = array
    return made


def addresses_of(rows):
    return np.array([row.ctypes.data for row in rows], np.int64)


@needs_masks
@pytest.mark.parametrize("adds", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("width", [3, 5, 7, 11, 17, 19, 23, 31])
def test_they_end_with_the_last_column(width, packed, adds, level_with_masks):
    engine = replace(choose_engine(P.F32, P.F32, P.F32), mr=ROWS)
    computed, masks = computed_columns(engine, width, packed=packed, direct=True)
    assert masks == (width != 17 or packed)
    unpacked = None if packed else P.F32
    symbol = common.symbol_of(
        MacroKernel(engine, None if masks else width, computed, 1, None, unpacked, None, None, adds=True)
    )
    code = ctypes.CFUNCTYPE(None, *[WORD] * 4, *[POINTER] * 3, *[WORD] * 4, POINTER, *[WORD] * 4)(
        common_code.resolve(symbol)
    )
    random = np.random.default_rng(width)
    left = random.integers(-9, 9, (ROWS, DEPTH)).astype(np.float32)
    # Packed slivers are padded, so only what is read in place ends there.
    right = at_end_of_page(random.integers(-9, 9, (DEPTH, computed if packed else width)).astype(np.float32))
    result = at_end_of_page(np.full((ROWS, width), 7, np.float32))
    rows, targets, runs = addresses_of(left), addresses_of(result), np.zeros(2, np.int64)
    sizes = (DEPTH, 1, right.shape[1])
    pointers = rows.ctypes.data, right.ctypes.data, runs.ctypes.data
    code(1, 1, 0, 0, *pointers, 1, *sizes, targets.ctypes.data, 0, adds, 0, width)
    np.testing.assert_array_equal(result, left @ right[:, :width] + 7 * adds)


@needs_masks
def test_several_widths_share_one_function(level_with_masks):
    engine = choose_engine(P.F32, P.F32, P.F32)
    read = [computed_columns(engine, width, packed=False, direct=True) for width in (5, 6, 7, 8, 9, 21, 24)]
    assert read == [(8, True)] * 3 + [(8, False), (16, True), (24, True), (24, False)]
    packed = [computed_columns(engine, width, packed=True, direct=True) for width in (5, 15, 16, 17, 31)]
    assert packed == [(16, True)] * 2 + [(16, False)] + [(32, True)] * 2
    # What is converted afterwards is stored in whole registers.
    assert computed_columns(engine, 5, packed=True, direct=False) == (16, False)


def test_other_levels_have_tiles_for_each_width():
    with compiling(vector_bytes=16):
        engine = choose_engine(P.F32, P.F32, P.F32)
        assert computed_columns(engine, 7, packed=False, direct=True) == (7, False)
    with compiling(sanitize=True):
        engine = choose_engine(P.F32, P.F32, P.F32)
        assert computed_columns(engine, 7, packed=False, direct=True) == (7, False)
