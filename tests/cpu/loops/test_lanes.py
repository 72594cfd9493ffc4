"""Loops that are written in vectors: which are, and that rests, tails and folds come out as they should."""

import re

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from fuzz.modules import difference
from xlakit.options import compiling
from xlakit.target import has_feature

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


# -- every second or fourth element, of vectors of neighbors -----------------------------------------------------

PICKED = {**KINDS, "s8": np.int8, "pred": np.bool_, "f16": np.float16, "c64": np.complex64}


def slices(kind, rows, columns, first, stride, number=0):
    """Lines of a program that slice rows, the argument of this number and the result."""
    limit = columns - (columns - 1 - first) % stride
    shape = f"{kind}[{rows},{len(range(first, limit, stride))}]"
    text = f"""  x{number} = {kind}[{rows},{columns}] parameter({number})
  r{number} = {shape} slice(x{number}), slice={{[0:{rows}], [{first}:{limit}:{stride}]}}
"""
    rng = np.random.default_rng(columns)
    x = rng.integers(0, 2 if kind == "pred" else 100, (rows, columns)).astype(PICKED[kind])
    return text, x, x[:, first:limit:stride]


@pytest.mark.parametrize("kind", PICKED)
@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_elements_are_those_of_the_slice(kind, stride, vector_bytes):
    cases = [(3, 700, 0), (3, 701, 0), (2, 1030, 3), (1, 4 * stride + 1, 0), (5, 37, 1)]
    texts, arrays, wanted = zip(
        *(slices(kind, *case, stride, number) for number, case in enumerate(cases)), strict=True
    )
    kinds = ", ".join(f"{kind}[{','.join(map(str, w.shape))}]" for w in wanted)
    text = "".join(texts) + f"  ROOT r = ({kinds}) tuple({', '.join(f'r{n}' for n in range(len(cases)))})\n}}"
    # The sanitizer checks that each load lies in the array.
    with compiling(vector_bytes=vector_bytes, sanitize=True):
        results = xla.compile(xla.HloModule.from_text(f"HloModule m\nENTRY e {{\n{text}"))(*arrays)
    for case, result, expected in zip(cases, results, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(result), expected, err_msg=str(case))


def test_tasks_pick_elements_too():
    lines, x, wanted = slices("s8", 2048, 2048, 0, 2)
    text = f"HloModule m\nENTRY e {{\n{lines}}}"
    np.testing.assert_array_equal(np.asarray(xla.compile(xla.HloModule.from_text(text))(x)), wanted)


def test_elements_are_not_loaded_one_by_one():
    lines, _, _ = slices("s8", 2048, 2048, 0, 2)
    text = f"HloModule m\nENTRY e {{\n{lines}}}"
    code = xla.compile(xla.HloModule.from_text(text)).llvm_ir()
    assert "shufflevector" in code
    assert "insertelement" not in code


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_sums_and_conditions_over_picked_elements(vector_bytes):
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[7,301] parameter(0)
  zero = f32[] constant(0)
  even = f32[7,151] slice(x), slice={[0:7], [0:301:2]}
  odd = f32[7,150] slice(x), slice={[0:7], [1:301:2]}
  padded = f32[7,151] pad(odd, zero), padding=0_0x0_1
  product = f32[7,151] multiply(even, padded)
  sums = f32[7] reduce(product, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[7,151], f32[7]) tuple(product, sums)
}"""
    x = np.random.default_rng(0).integers(-8, 8, (7, 301)).astype(np.float32)
    with compiling(vector_bytes=vector_bytes, sanitize=True):
        product, sums = xla.compile(xla.HloModule.from_text(text))(x)
    wanted = x[:, ::2] * np.pad(x[:, 1::2], ((0, 0), (0, 1)))
    np.testing.assert_array_equal(np.asarray(product), wanted)
    np.testing.assert_array_equal(np.asarray(sums), wanted.sum(1))


def test_conditions_of_a_row_go_straight_to_masks():
    if not has_feature("avx512bw"):
        pytest.skip("this processor has no masks")
    text = """HloModule rows
      ENTRY e {
        x = f32[40,64] parameter(0)
        p = pred[40] parameter(1)
        q = pred[40,64] broadcast(p), dimensions={0}
        n = pred[40,64] not(q)
        zero = f32[] constant(0)
        y = f32[40,64] broadcast(zero), dimensions={}
        ROOT r = f32[40,64] select(n, x, y)
      }"""
    module = xla.HloModule.from_text(text)
    made = xla.compile(module, backend="cpu")
    assert re.search(r" = sext i1 \S+ to i16\n", made.llvm_ir(optimized=False))
    rng = np.random.default_rng(0)
    values = rng.standard_normal((40, 64)).astype(np.float32), rng.random(40) < 0.5
    assert np.array_equal(made(*values), np.where(values[1][:, None], np.float32(0), values[0]))
