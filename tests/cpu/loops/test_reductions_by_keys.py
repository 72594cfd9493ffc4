"""Maxima and minima of floats, which are computed of integer keys: to the bit, at all special values."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
import xlakit.cpu.loops.emit.kernel
from xlakit.options import compiling

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}
NAN, INF = np.nan, np.inf
# Rows of what may be reduced together: the rest of a row has other numbers below (for a minimum, above) these.
SPECIAL = ([NAN], [-NAN], [-NAN, -INF], [-INF], [INF], [0.0, -0.0], [-0.0], [1e-7, -1e-7], [-INF, INF], [INF, -NAN])


def program(kind, operand, sizes, dimensions, op, start):
    left = ",".join(str(n) for d, n in enumerate(sizes) if d not in dimensions)
    return xla.HloModule.from_text(f"""HloModule reduced
        combine {{
          a = {kind}[] parameter(0)
          b = {kind}[] parameter(1)
          ROOT c = {kind}[] {op}(a, b)
        }}
        ENTRY e {{
          x = {kind}[{",".join(map(str, sizes))}] parameter(0)
          y = {kind}[{",".join(map(str, sizes))}] {operand}(x)
          first = {kind}[] constant({start})
          ROOT r = {kind}[{left}] reduce(y, first), dimensions={{{",".join(map(str, dimensions))}}}, to_apply=combine
        }}""")


def arrays(kind, sizes, op):
    """Arrays in which each special row lies somewhere along all dimensions, among numbers that it wins against."""
    rng = np.random.default_rng(3)
    for special in SPECIAL:
        x = rng.standard_normal(sizes)
        if not np.isnan(special).any() and max(map(abs, special)) < 1:
            x = -np.abs(x) if op == "maximum" else np.abs(x)
        where = rng.random(sizes)
        for n, value in enumerate(special):
            x = np.where((where > n / 40) & (where < (n + 1) / 40), value, x)
        yield x.astype(TYPES[kind])


def bits(array):
    array = np.atleast_1d(array)
    unsigned = array.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[array.itemsize])
    return np.where(np.isnan(array.astype(np.float64)), 0, unsigned)


def agree(module, kind, sizes, op):
    compiled, interpreted = xla.compile(module), xla.compile(module, backend="interpreter")
    for x in arrays(kind, sizes, op):
        np.testing.assert_array_equal(bits(compiled(x)), bits(interpreted(x)))


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize(("op", "start"), [("maximum", "-inf"), ("minimum", "0")])
@pytest.mark.parametrize("kind", TYPES)
def test_a_maximum_or_minimum_is_that_of_the_interpreter_to_the_bit(kind, op, start, width):
    places = [("copy", (5, 67), (1,)), ("negate", (67, 5), (0,)), ("copy", (4, 9, 3), (0, 2))]
    with compiling(vector_bytes=width):
        for operand, sizes, dimensions in places:
            agree(program(kind, operand, sizes, dimensions, op, start), kind, sizes, op)


@pytest.mark.parametrize("kind", TYPES)
def test_parts_that_tasks_reduce_are_put_together(kind):
    module = program(kind, "copy", (4096, 9), (0,), "maximum", "-inf")
    with compiling(knobs={"kernel.task_nanoseconds": 10.0}):
        agree(module, kind, (4096, 9), "maximum")


def test_bits_of_a_narrow_nan_stay():
    module = xla.HloModule.from_text("""HloModule bits
        ENTRY e {
          x = bf16[65536] parameter(0)
          y = s16[65536] bitcast-convert(x)
          one = s16[] constant(1)
          ones = s16[65536] broadcast(one), dimensions={}
          ROOT z = s16[65536] xor(y, ones)
        }""")
    x = np.arange(65536, dtype=np.uint16)
    np.testing.assert_array_equal(xla.compile(module)(x.view(ml_dtypes.bfloat16)).view(np.uint16), x ^ 1)
