"""Quicksort in vectors: the same order as NumPy's, whatever the records are like."""

import numpy as np
import pytest
from cpu.kernels.sort.sort_running import make_sort, same_bits

from xlakit import target
from xlakit.cpu.kernels import common_families
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.common import SortRecords
from xlakit.cpu.kernels.sort.plan import Method, make_layout, plan_rows
from xlakit.cpu.llvm import I32
from xlakit.data.primitive import PrimitiveType as P
from xlakit.machine import VARIABLE
from xlakit.options import compiling
from xlakit.passes.analysis.sort_order import Part, SortKey

KINDS = ["float32", "float64", "int32", "uint32", "int64", "uint64"]
# Whole vectors of both widths, a window and its neighbors, remainders, and more than a window in each part.
LENGTHS = [129, 130, 191, 192, 193, 1000, 4099]


def patterns(rng, kind, length):
    """Rows that are hard to divide, and others."""
    dtype = np.dtype(kind)
    bits = rng.integers(0, 1 << 62, length).astype(f"u{dtype.itemsize}").view(dtype)
    if dtype.kind == "f":
        bits = np.where(np.isfinite(bits), bits, dtype.type(1.5))
    rising = np.arange(length)
    rows = [
        bits,
        rising,
        rising[::-1],
        np.concatenate([rising[::2], rising[::-2]])[:length],
        np.zeros(length),
        rising % 2,
        rng.integers(0, 5, length),
        np.where(rising == length // 2, 0, 1),
        np.where(rising % 9 == 0, 0, rng.integers(1, 1 << 20, length)),
    ]
    # -0 is an exception, which is sorted in another way.
    return [np.ascontiguousarray(row).astype(dtype) for row in rows]


def check(kind, length, comparator, order):
    rng = np.random.default_rng(length)
    plan, program = make_sort(comparator, [np.zeros(length, kind)], 0)
    assert plan.method is Method.RADIX
    for row in patterns(rng, kind, length):
        result = np.zeros_like(row)
        program.run([row, result])
        same_bits(result, order(row), plan.phases)
        inside = row.copy()
        program.run([inside, inside if plan.in_place[0] else result])
        same_bits(inside if plan.in_place[0] else result, order(row), "in place")


@pytest.mark.parametrize("kind", KINDS)
def test_ascending(kind):
    for length in LENGTHS:
        check(kind, length, lambda a, b: a < b, np.sort)


@pytest.mark.parametrize("kind", KINDS)
def test_descending(kind):
    for length in LENGTHS:
        check(kind, length, lambda a, b: a > b, lambda row: np.sort(row)[::-1])


@pytest.mark.parametrize("cuts", [0, 1])
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_ranges_that_were_cut_too_often(kind, cuts):
    with compiling(knobs={"sort_quick.cuts": cuts}):
        for length in (193, 4099):
            check(kind, length, lambda a, b: a < b, np.sort)


def layout(key, kinds=None):
    return make_layout([key], kinds or [key.kind], 1000, alone=True)


def test_records_that_are_a_key_alone():
    assert all(layout(SortKey(0, kind)).is_whole for kind in (P.F32, P.F64, P.S32, P.U64, P.BF16))
    # Beside it there is something that a sort must not move: what equal keys come with.
    assert not layout(SortKey(0, P.F32), [P.F32, P.F32]).is_whole
    assert not layout(SortKey(0, P.S64), [P.S64, P.F64]).is_whole
    assert not layout(SortKey(0, P.F32, Part.REAL), [P.C64]).is_whole
    # Their bits in memory order in another way.
    assert not any(layout(SortKey(0, kind)).is_whole for kind in (P.S4, P.F8E4M3FN))


def test_vectors_are_compressed_where_there_are_instructions_for_it(monkeypatch):
    monkeypatch.delenv("XLAKIT_VECTOR_BYTES", raising=False)
    key = SortKey(0, P.F32)
    of_keys = [SortRecords.of(layout(key), key, whole, exceptions=False, counter=I32) for whole in (True, False)]
    can = target.has_feature("avx512f")
    told = ["avx512.mask.compress" in common_families.text(common.symbol_of(function)) for function in of_keys]
    assert told == [can, False]
    for options in ({"vector_bytes": 16}, {"sanitize": True}):
        with compiling(**options):
            assert "avx512" not in common_families.text(common.symbol_of(of_keys[0]))


@pytest.mark.parametrize(("threads", "method"), [(2, Method.RADIX), (16, Method.PARALLEL_RADIX)])
def test_a_long_row_is_shared_where_there_are_threads_for_it(threads, method, monkeypatch, tmp_path):
    monkeypatch.delenv("XLAKIT_VECTOR_BYTES", raising=False)
    if not target.has_feature("avx512f"):
        method = Method.PARALLEL_RADIX
    (tmp_path / "machine").write_text(f'{{"threads": {threads}}}')
    monkeypatch.setenv(VARIABLE, str(tmp_path / "machine"))
    assert plan_rows((P.F32,), 1, 1 << 20, 1, (SortKey(0, P.F32),)).method is method
