"""Large results go round the caches; see loops/emit/non_temporal.py."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit import target
from xlakit.cpu.loops.emit.non_temporal import has_non_temporal_stores
from xlakit.options import compiling

# Which arrays are large depends on the caches.
pytestmark = pytest.mark.usefixtures("usual_machine")

ADD = """HloModule add
ENTRY e {{
  x = {kind}[{n}] parameter(0)
  ROOT r = {kind}[{n}] add(x, x)
}}"""
BIAS = """HloModule bias
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  bias = f32[{columns}] parameter(1)
  b = f32[{rows},{columns}] broadcast(bias), dimensions={{1}}
  s = f32[{rows},{columns}] add(x, b)
  half = f32[] constant(0.5)
  h = f32[{rows},{columns}] broadcast(half), dimensions={{}}
  m = f32[{rows},{columns}] multiply(x, h)
  ROOT t = (f32[{rows},{columns}], f32[{rows},{columns}]) tuple(s, m)
}}"""
CENTER = """HloModule center
plus {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  zero = f32[] constant(0)
  sums = f32[{rows}] reduce(x, zero), dimensions={{1}}, to_apply=plus
  b = f32[{rows},{columns}] broadcast(sums), dimensions={{0}}
  ROOT r = f32[{rows},{columns}] subtract(x, b)
}}"""


def compiled(text, *, streams=True, **options):
    made = xla.compile(xla.HloModule.from_text(text), backend="cpu", **options)
    assert ("nontemporal" in made.llvm_ir()) == (streams and has_non_temporal_stores())
    return made


def whole_numbers(*sizes, most=100):
    return np.random.default_rng(len(sizes)).integers(-most, most, sizes)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.complex64, ml_dtypes.bfloat16])
def test_whole_arrays(kind):
    name = next(p.hlo_name for p in xla.PrimitiveType if p.is_array and p.dtype == np.dtype(kind))
    # The last strip is no multiple of a vector.
    count = (17 << 20) // np.dtype(kind).itemsize + 5
    x = whole_numbers(count, most=60).astype(kind)
    np.testing.assert_array_equal(compiled(ADD.format(kind=name, n=count))(x), x + x)


@pytest.mark.parametrize(("columns", "streams"), [(2000, True), (512, True), (1003, False), (96, False)])
def test_rows(columns, streams):
    rows = (17 << 18) // columns
    x, bias = whole_numbers(rows, columns).astype(np.float32), whole_numbers(columns).astype(np.float32)
    plus, half = compiled(BIAS.format(rows=rows, columns=columns), streams=streams)(x, bias)
    np.testing.assert_array_equal(plus, x + bias)
    np.testing.assert_array_equal(half, x * np.float32(0.5))


@pytest.mark.parametrize("columns", [1000, 4096])
def test_rows_after_their_sum(columns):
    rows = (17 << 18) // columns
    x = whole_numbers(rows, columns).astype(np.float32)
    made = compiled(CENTER.format(rows=rows, columns=columns))
    expected = x - x.sum(axis=1, keepdims=True)
    for threads in (1, 3):
        with xla.threads(threads):
            np.testing.assert_array_equal(made(x), expected)


def test_small_and_slow_results_go_through_the_caches():
    compiled(ADD.format(kind="f32", n=4_000_000), streams=False)
    compiled(ADD.format(kind="f32", n=8_000_000).replace("add(x, x)", "power(x, x)"), streams=False)


@pytest.mark.parametrize("width", [w for w in (16, 32) if w <= target.vector_bytes()])
def test_pieces_of_one_result_written_in_one_loop(width):
    text = """HloModule pieces
ENTRY e {
  a = s8[4,33] parameter(0)
  b = s8[4,33] parameter(1)
  n = s8[4,33] negate(a)
  ROOT c = s8[8,33] concatenate(n, b), dimensions={0}
}"""
    knobs = {"pieces.short_row": 1000, "non_temporal.least_bytes": 64, "non_temporal.least_written": 0}
    a, b = whole_numbers(2, 4, 33).astype(np.int8)
    with compiling(vector_bytes=width, knobs=knobs):
        made = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    np.testing.assert_array_equal(made(a, b), np.concatenate([-a, b]))
