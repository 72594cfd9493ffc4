"""Elements from all over a large array are asked for before they are read; see loops/emit/gather_prefetch.py.

So are the next row and the results of rows that are reduced; see loops/nests/rows.py.
"""

import numpy as np
import pytest

import xlakit as xla
import xlakit.cpu.loops.emit.gather_prefetch
from xlakit import target
from xlakit.cpu.loops.emit.gather_prefetch import strip_length
from xlakit.options import compiling

# Which arrays are large depends on the caches.
pytestmark = pytest.mark.usefixtures("usual_machine")

P = xla.PrimitiveType

PROGRAM = """HloModule scattered
ENTRY e {{
  table = {kind}[{rows},{columns}] parameter(0)
  places = {index}[{count},2] parameter(1)
  ROOT r = {kind}[{count}] gather(table, places), offset_dims={{}}, collapsed_slice_dims={{0,1}},
    start_index_map={{0,1}}, index_vector_dim=1, slice_sizes={{1,1}}
}}"""


def always(text):
    """The program, compiled as if its loops computed much else, and for caches that the tables here exceed."""
    with compiling(knobs={"gather_prefetch.least_cycles": 0.0, "gather_prefetch.far_bytes": 1 << 20}):
        return xla.compile(xla.HloModule.from_text(text), backend="cpu")


@pytest.mark.parametrize("count", [1, 63, 64, 1000, 40_000, 65_536])
@pytest.mark.parametrize(("kind", "index"), [("f32", "s32"), ("c64", "u8"), ("bf16", "s64")])
def test_single_elements(count, kind, index):
    text = PROGRAM.format(rows=700, columns=1500, kind=kind, index=index, count=count)
    compiled = always(text)
    assert "llvm.prefetch" in compiled.llvm_ir() or count == 1
    rng = np.random.default_rng(count)
    type_of = {p.hlo_name: p.dtype for p in (P.F32, P.C64, P.BF16, P.S32, P.U8, P.S64)}
    places = rng.integers(-5 if index != "u8" else 0, 256, (count, 2)).astype(type_of[index])
    table = np.arange(700 * 1500).reshape(700, 1500).astype(type_of[kind])
    clamped = np.clip(places.astype(np.int64), 0, [699, 1499])
    np.testing.assert_array_equal(compiled(table, places), table[clamped[:, 0], clamped[:, 1]])


def test_small_tables_and_rows_are_read_as_they_come():
    small = PROGRAM.format(rows=70, columns=150, kind="f32", index="s32", count=1000)
    rows = """HloModule rows
    ENTRY e {
      table = f32[20000,512] parameter(0)
      places = s32[1000] parameter(1)
      ROOT r = f32[1000,512] gather(table, places), offset_dims={1}, collapsed_slice_dims={0},
        start_index_map={0}, index_vector_dim=1, slice_sizes={1,512}
    }"""
    # Each element is from one row, wherever that is.
    within = """HloModule within
    ENTRY e {
      table = f32[20000,512] parameter(0)
      places = s32[100] parameter(1)
      ROOT r = f32[20000,100] gather(table, places), offset_dims={0}, collapsed_slice_dims={1},
        start_index_map={1}, index_vector_dim=1, slice_sizes={20000,1}
    }"""
    for text in (small, rows, within):
        assert "llvm.prefetch" not in always(text).llvm_ir()


@pytest.mark.parametrize(("operation", "waits"), [("negate", False), ("cosine", True)])
def test_loops_that_compute_little_prefetch_nothing(operation, waits):
    gathered = PROGRAM.format(rows=700, columns=1500, kind="f32", index="s32", count=4000)
    text = gathered.replace("ROOT r =", "g =").rpartition("}")[0] + f"\n  ROOT r = f32[4000] {operation}(g)\n}}"
    # Without instructions that gather.
    with compiling(vector_bytes=16, knobs={"gather_prefetch.far_bytes": 1 << 20}):
        compiled = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    assert ("llvm.prefetch" in compiled.llvm_ir()) is waits


@pytest.mark.parametrize(("cycles", "waits"), [(1.0, False), (0.01, True)])
def test_loops_that_gather_whole_vectors_compute_more_before_they_prefetch(cycles, waits, monkeypatch):
    monkeypatch.delenv("XLAKIT_VECTOR_BYTES", raising=False)
    if not target.processor().gathers:
        pytest.skip("this processor reads elements one by one")
    gathered = PROGRAM.format(rows=700, columns=1500, kind="f32", index="s32", count=4000)
    text = gathered.replace("ROOT r =", "g =").rpartition("}")[0] + "\n  ROOT r = f32[4000] negate(g)\n}"
    with compiling(knobs={"gather_prefetch.least_cycles": cycles, "gather_prefetch.far_bytes": 1 << 20}):
        compiled = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    assert ("llvm.prefetch" in compiled.llvm_ir()) is waits


def test_a_few_elements_far_apart_at_each_place():
    text = """HloModule columns
    ENTRY e {
      table = c64[3,90001] parameter(0)
      places = s32[1000] parameter(1)
      ROOT r = c64[1000,3] gather(table, places), offset_dims={1}, collapsed_slice_dims={1},
        start_index_map={1}, index_vector_dim=1, slice_sizes={3,1}
    }"""
    table = np.arange(3 * 90001).reshape(3, 90001).astype(np.complex64)
    places = np.random.default_rng(0).integers(0, 90001, 1000).astype(np.int32)
    np.testing.assert_array_equal(always(text)(table, places), table[:, places].T)


@pytest.mark.parametrize(("reads", "iterations"), [(1, 256), (3, 64), (100, 8)])
def test_what_a_strip_prefetches_fills_half_of_the_first_level_cache(reads, iterations):
    assert strip_length(reads) == iterations


def test_short_rows_that_are_unrolled():
    """As the colors of pixels: one prefetch for each row."""
    text = """HloModule pixels
    ENTRY e {
      table = f32[200000,3] parameter(0)
      places = s32[5000] parameter(1)
      g = f32[5000,3] gather(table, places), offset_dims={1}, collapsed_slice_dims={0},
        start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}
      ROOT r = f32[5000,3] add(g, g)
    }"""
    compiled = always(text)
    assert compiled.llvm_ir().count("call void @llvm.prefetch") == 1
    table = np.arange(600000, dtype=np.float32).reshape(200000, 3)
    places = np.random.default_rng(0).integers(-9, 200009, 5000).astype(np.int32)
    np.testing.assert_array_equal(compiled(table, places), 2 * table[np.clip(places, 0, 199999)])


ROWS = """HloModule rows
plus {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] add(a, b)
}}
ENTRY e {{
  x = {kind}[{rows},{columns}] parameter(0)
  zero = {kind}[] constant(0)
  sums = {kind}[{rows}] reduce(x, zero), dimensions={{1}}, to_apply=plus
  b = {kind}[{rows},{columns}] broadcast(sums), dimensions={{0}}
  c = {kind}[{rows},{columns}] subtract(x, b)
  squares = {kind}[{rows},{columns}] multiply(c, c)
  more = {kind}[{rows}] reduce(squares, zero), dimensions={{1}}, to_apply=plus
  d = {kind}[{rows},{columns}] broadcast(more), dimensions={{0}}
  ROOT r = {kind}[{rows},{columns}] add(c, d)
}}"""


@pytest.mark.parametrize(("kind", "rows", "columns"), [(P.F32, 2100, 128), (P.S8, 300, 67), (P.F64, 20, 200)])
def test_the_next_row_comes_while_one_is_computed(kind, rows, columns):
    text = ROWS.format(kind=kind.hlo_name, rows=rows, columns=columns)
    with compiling(knobs={} if kind is P.F32 else {"rows.far_bytes": 0}):
        made = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    # Twice: what is read of the next row, and what is written of this one.
    assert made.llvm_ir().count("@llvm.prefetch") > 2
    x = np.random.default_rng(rows).integers(-2, 3, (rows, columns)).astype(kind.dtype)
    with np.errstate(over="ignore"):
        c = x - x.sum(axis=1, keepdims=True, dtype=x.dtype)
        expected = c + (c * c).sum(axis=1, keepdims=True, dtype=x.dtype)
    np.testing.assert_array_equal(made(x), expected)


def test_rows_in_the_caches_are_not_prefetched():
    made = xla.compile(xla.HloModule.from_text(ROWS.format(kind="f32", rows=500, columns=128)), backend="cpu")
    assert "llvm.prefetch" not in made.llvm_ir()
