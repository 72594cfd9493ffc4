"""Loops that are written in vectors: which are, and that rests, tails and folds come out as they should."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from fuzz.modules import difference
from xlakit.options import compiling

REDUCED = """HloModule reduced
  f {
    a = KIND[] parameter(0)
    b = KIND[] parameter(1)
    ROOT c = KIND[] OPCODE(a, b)
  }
  ENTRY e {
    x = KIND[3,SIZE] parameter(0)
    i = KIND[] parameter(1)
    ROOT r = KIND[ROWS] reduce(x, i), dimensions={DIMENSION}, to_apply=f
  }"""
KINDS = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "bf16": ml_dtypes.bfloat16, "u8": np.uint8}


def compiled(text):
    return xla.compile(xla.HloModule.from_text(text), backend="cpu")


def reduction(kind, opcode, size, dimension=1):
    text = REDUCED.replace("KIND", kind).replace("OPCODE", opcode).replace("SIZE", str(size))
    return text.replace("DIMENSION", str(dimension)).replace("ROWS", str(3 if dimension else size))


@pytest.mark.parametrize("size", [8, 15, 37, 1000, 1031])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("opcode", "dimension"), [("add", 1), ("maximum", 1), ("add", 0)])
def test_rows_of_any_length_are_folded_to_the_last_element(kind, size, opcode, dimension):
    # Small integers, whose sums are exact in any order.
    x = (np.arange(3 * size).reshape(3, size) * 7 % 5).astype(KINDS[kind])
    first = KINDS[kind](3)
    result = compiled(reduction(kind, opcode, size, dimension))(x, first)
    wide = x.astype(np.int64)
    exact = wide.sum(dimension) + 3 if opcode == "add" else np.maximum(wide.max(dimension), 3)
    assert np.array_equal(np.asarray(result), exact.astype(KINDS[kind]))


@pytest.mark.parametrize("place", [0, 40, 98, 99])
def test_nan_wins_and_zeros_keep_their_order(place):
    x = np.full((3, 100), -0.0, np.float32)
    x[0, place], x[1, place] = np.nan, 0.0
    result = np.asarray(compiled(reduction("f32", "maximum", 100))(x, np.float32(-np.inf)))
    assert np.isnan(result[0])
    assert not np.signbit(result[1])
    assert np.signbit(result[2])


@pytest.mark.parametrize("size", [5, 8, 17, 100, 4096, 70_001])
def test_elements_of_several_types_share_their_lanes(size):
    text = f"""HloModule several
      ENTRY e {{
        x = f32[{size}] parameter(0)
        y = u8[{size}] parameter(1)
        s = f32[] parameter(2)
        w = f32[{size}] convert(y)
        b = f32[{size}] broadcast(s), dimensions={{}}
        n = s32[{size}] iota(), iota_dimension=0
        c = f32[{size}] convert(n)
        p = pred[{size}] compare(x, b), direction=LT
        m = f32[{size}] multiply(w, c)
        t = f32[{size}] tanh(x)
        v = f32[{size}] select(p, m, t)
        h = f16[{size}] convert(v)
        ROOT r = (f32[{size}], f16[{size}], pred[{size}]) tuple(v, h, p)
      }}"""
    module = xla.HloModule.from_text(text)
    rng = np.random.default_rng(0)
    values = rng.standard_normal(size).astype(np.float32), rng.integers(0, 3, size, np.uint8), np.float32(0.25)
    expected = xla.compile(module, backend="interpreter")(*values)
    assert not difference(xla.compile(module, backend="cpu")(*values), expected)


@pytest.mark.parametrize(
    ("opcode", "shape", "is_vector"),
    [("sine", "f32[64]", True), ("sine", "f32[3]", False), ("sine", "c64[64]", True), ("sine", "f64[64]", True)],
)
def test_only_what_fills_vectors_is_written_in_them(opcode, shape, is_vector):
    executable = compiled(f"HloModule one\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT r = {shape} {opcode}(x)\n}}")
    text = executable.llvm_ir(optimized=False)
    assert (" x float>" in text or " x double>" in text) == is_vector


def test_what_is_folded_inside_a_loop_is_a_vector_as_well():
    # 40 turns inside, and elements side by side outside.
    text = """HloModule inside
      f {
        a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b)
      }
      ENTRY e {
        x = f32[40,50] parameter(0)
        z = f32[] constant(0)
        r = f32[50] reduce(x, z), dimensions={0}, to_apply=f
        ROOT s = f32[50] negate(r)
      }"""
    x = np.arange(2000, dtype=np.float32).reshape(40, 50)
    assert np.array_equal(np.asarray(compiled(text)(x)), -x.sum(0))


@pytest.mark.parametrize("kind", [xla.F32, xla.F64, xla.F16, xla.BF16])
def test_an_operation_that_gives_a_constant_gives_it_to_each_lane(kind):
    builder = xla.XlaBuilder("imaginary")
    computation = builder.build(xla.imag(xla.parameter(builder, 0, xla.make_shape(kind, (96,)), "x")))
    # Otherwise a rewrite sees that it is 0.
    with compiling(plain="rewrites"):
        executable = xla.compile(computation)
    np.testing.assert_array_equal(executable(np.arange(1, 97).astype(kind.dtype)).astype(float), np.zeros(96))
