"""Quicksort in vectors: the same order as NumPy's, whatever the records are like."""

import numpy as np
import pytest
from cpu.kernels.sort.sort_running import make_sort, same_bits

import xlakit as xla
from xlakit import target
from xlakit.cpu.kernels import common_families
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.common import SortQuickly
from xlakit.cpu.kernels.sort.digits import SortByDigits
from xlakit.cpu.kernels.sort.plan import Method, plan_rows
from xlakit.cpu.kernels.sort.quick import has_compress
from xlakit.cpu.kernels.sort.record import make_layout
from xlakit.data.primitive import PrimitiveType as P
from xlakit.machine import VARIABLE
from xlakit.options import compiling
from xlakit.passes.analysis.sort_order import Part, SortKey
from xlakit.target import vector_bytes

KINDS = ["float32", "float64", "int32", "uint32", "int64", "uint64"]
# Whole vectors of both widths, what the largest networks sort and its neighbors, remainders, and more than these in
# each part.
LENGTHS = [129, 130, 192, 255, 256, 257, 1000, 4099]
# Those of smaller networks.
SHORT = [2, 15, 16, 17, 32, 33, 63, 64, 65, 100, 127, 128]


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
    return [np.ascontiguousarray(row).astype(dtype) for row in rows]


def check(kind, length, comparator, order):
    rng = np.random.default_rng(length)
    plan, program = make_sort(comparator, [np.zeros(length, kind)], 0)
    if length > 128:
        assert plan.method is (Method.QUICK if has_compress(plan.records[0].bits) else Method.RADIX)
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


@pytest.mark.parametrize("kind", KINDS)
def test_short_rows(kind):
    with compiling(knobs={"sort_plan.ranked_row": 0}):
        for length in SHORT:
            check(kind, length, lambda a, b: a < b, np.sort)
            check(kind, length, lambda a, b: a > b, lambda row: np.sort(row)[::-1])


def test_rows_that_fill_two_vectors_are_sorted_in_networks():
    for kind in (P.F32, P.S64, P.BF16):
        record = layout(SortKey(0, kind))
        for length in (15, 16, 31, 32, 64):
            two = has_compress(record.bits) and length * record.bits >= 2 * 8 * vector_bytes()
            method = plan_rows((kind,), 1000, length, 1, (SortKey(0, kind),)).method
            assert method is (Method.QUICK if two else Method.RANKS), (kind, length)


def same_value(x):
    """The comparator's operand with one bit pattern for zeros, and one for NaNs."""
    kind = x.shape.element_type.dtype
    zero, nan = (xla.constant(x.builder, np.asarray(v, kind)) for v in (0, np.nan))
    return xla.select(xla.ne(x, x), nan, xla.select(xla.eq(x, zero), zero, x))


def rising(a, b):
    return xla.lt_total_order(same_value(a), same_value(b))


def falling(a, b):
    return xla.gt_total_order(same_value(a), same_value(b))


def stable(rows, *, descending):
    """Rows in the order of same_value, equal elements as they were."""
    is_nan = np.isnan(rows)
    numbers = np.where(is_nan, 0, -rows if descending else rows)
    order = np.lexsort((numbers, is_nan != descending), axis=-1)
    return np.take_along_axis(rows, order, -1)


def rows_with_equal_keys(kind, count, length):
    """Rows of numbers, of both zeros, and of NaNs with all kinds of bits, from few of them to nothing else."""
    rng = np.random.default_rng(length)
    word = f"u{np.dtype(kind).itemsize}"
    rows = rng.integers(-9, 9, (count, length)).astype(kind)
    nans = (rng.integers(0, 1 << 50, rows.shape).astype(word) | np.asarray(np.nan, kind).view(word)).view(kind)
    nans = np.copysign(nans, rng.choice(np.asarray([-1, 1], kind), rows.shape))
    shares = np.linspace(0, 1, count)[:, None]
    draw = rng.random(rows.shape)
    rows = np.where(draw < shares / 2, np.copysign(np.asarray(0, kind), nans), rows)
    return np.where(draw > 1 - shares / 2, nans, rows)


@pytest.mark.parametrize("cuts", [0, 2])
@pytest.mark.parametrize("comparator", [rising, falling])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_equal_keys_with_other_bits(kind, comparator, cuts):
    with compiling(knobs={"sort_plan.ranked_row": 0, "sort_quick.cuts": cuts}):
        # Networks alone sort short rows, whatever the cuts.
        for length in (*(SHORT if cuts else ()), 193, 257, 1000, 4099):
            rows = rows_with_equal_keys(kind, 9, length)
            expected = stable(rows, descending=comparator is falling)
            plan, program = make_sort(comparator, [rows], 1)
            assert plan.records[0].has_exceptions
            result = np.zeros_like(rows)
            program.run([rows, result], 2)
            same_bits(result, expected, plan.phases)
            inside = rows.copy()
            program.run([inside, inside])
            same_bits(inside, expected, "in place")
            if length in SHORT[:-1]:
                # Rows that are gathered from columns are then sorted as those above are.
                continue
            columns = np.ascontiguousarray(rows.T)
            plan, program = make_sort(comparator, [columns], 0)
            result = np.zeros_like(columns)
            program.run([columns, result])
            same_bits(result, expected.T, "columns")


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

    def method():
        return plan_rows((P.F32,), 1, 1000, 1, (key,)).method

    quick = SortQuickly.of(layout(key), key, exceptions=False)
    by_digits = SortByDigits(32, 32)
    if target.has_feature("avx512f"):
        assert method() is Method.QUICK
        assert "avx512.mask.compress" in common_families.text(common.symbol_of(quick))
    assert "avx512" not in common_families.text(common.symbol_of(by_digits))
    for options in ({"vector_bytes": 16}, {"sanitize": True}):
        with compiling(**options):
            assert method() is Method.RADIX


@pytest.mark.parametrize(("threads", "method"), [(2, Method.QUICK), (16, Method.PARALLEL_RADIX)])
def test_a_long_row_is_shared_where_there_are_threads_for_it(threads, method, monkeypatch, tmp_path):
    monkeypatch.delenv("XLAKIT_VECTOR_BYTES", raising=False)
    if not target.has_feature("avx512f"):
        method = Method.PARALLEL_RADIX
    (tmp_path / "machine").write_text(f'{{"threads": {threads}}}')
    monkeypatch.setenv(VARIABLE, str(tmp_path / "machine"))
    assert plan_rows((P.F32,), 1, 1 << 20, 1, (SortKey(0, P.F32),)).method is method
