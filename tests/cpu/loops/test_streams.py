"""Long rows are read in several parts side by side."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling

COUNT = 1 << 17
SUM = """  zero = f32[] constant(0)
  ROOT s = f32[] reduce(x0, zero), dimensions={0}, to_apply=add"""


def module(body, sizes, result="f32[]"):
    operands = ", ".join(f"x{n}: f32[{size}]" for n, size in enumerate(sizes))
    parameters = "".join(f"  x{n} = f32[{size}]{{0}} parameter({n})\n" for n, size in enumerate(sizes))
    return xla.HloModule.from_text(f"""HloModule streams

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

larger {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}}

ENTRY main ({operands}) -> {result} {{
{parameters}{body}
}}
""")


def whole_numbers(size, seed):
    return np.random.default_rng(seed).integers(-3, 4, size).astype(np.float32)


@pytest.mark.parametrize("vector", [16, 32, 64])
@pytest.mark.parametrize("size", [COUNT, COUNT + 64, COUNT + 77, 40_961, 3])
@pytest.mark.parametrize("bytes", [64, 4096, 1 << 40])
def test_sums_of_long_rows(vector, size, bytes):
    made = module(SUM, [size])
    x = whole_numbers(size, size)
    with compiling(vector_bytes=vector, knobs={"rows.stream_bytes": bytes}):
        assert float(xla.compile(made)(x)) == x.astype(np.float64).sum()


@pytest.mark.parametrize("size", [COUNT, COUNT + 77])
def test_several_reductions_and_operands(size):
    body = f"""  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  product = f32[{size}]{{0}} multiply(x0, x1)
  s = f32[] reduce(product, zero), dimensions={{0}}, to_apply=add
  m = f32[] reduce(x0, least), dimensions={{0}}, to_apply=larger
  ROOT t = (f32[], f32[]) tuple(s, m)"""
    made = module(body, [size, size], result="(f32[], f32[])")
    x, y = whole_numbers(size, 1), whole_numbers(size, 2)
    with compiling(knobs={"rows.stream_bytes": 64}):
        total, most = xla.compile(made)(x, y)
    assert float(total) == (x * y).astype(np.float64).sum()
    assert float(most) == x.max()


@pytest.mark.parametrize(("size", "streams"), [(1 << 22, 4), (1 << 12, 1)])
def test_parts_of_long_rows_are_read_side_by_side(size, streams):
    with compiling(vector_bytes=32):
        text = xla.compile(module(SUM, [size]), cache=False).llvm_ir()
    # Each part has registers of its own; one part's are one vector, which LLVM divides.
    assert text.count("load <8 x float>") == (4 if streams == 4 else 0)
    assert text.count("load <32 x float>") == (1 if streams == 1 else 0)
