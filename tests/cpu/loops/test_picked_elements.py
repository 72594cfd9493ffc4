"""Loops that read every second or fourth element load vectors of neighbors, and never behind the array's end."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling

KINDS = {"s8": np.int8, "pred": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
KINDS |= {"f64": np.float64, "s32": np.int32, "c64": np.complex64}


def slices(kind, rows, columns, first, stride):
    """A program that slices rows, its argument and its result."""
    limit = columns - (columns - 1 - first) % stride
    text = f"""HloModule m
ENTRY e {{
  x = {kind}[{rows},{columns}] parameter(0)
  ROOT r = {kind}[{rows},{len(range(first, limit, stride))}] slice(x), slice={{[0:{rows}], [{first}:{limit}:{stride}]}}
}}"""
    rng = np.random.default_rng(columns)
    x = rng.integers(0, 2 if kind == "pred" else 100, (rows, columns)).astype(KINDS[kind])
    return text, x, x[:, first:limit:stride]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_elements_are_those_of_the_slice(kind, stride, vector_bytes):
    for rows, columns, first in ((3, 700, 0), (3, 701, 0), (2, 1030, 3), (1, 4 * stride + 1, 0), (5, 37, 1)):
        text, x, wanted = slices(kind, rows, columns, first, stride)
        # The sanitizer checks that each load lies in the array.
        with compiling(vector_bytes=vector_bytes, sanitize=True):
            result = xla.compile(xla.HloModule.from_text(text))(x)
        np.testing.assert_array_equal(np.asarray(result), wanted)


def test_tasks_pick_elements_too():
    text, x, wanted = slices("s8", 2048, 2048, 0, 2)
    np.testing.assert_array_equal(np.asarray(xla.compile(xla.HloModule.from_text(text))(x)), wanted)


def test_elements_are_not_loaded_one_by_one():
    text, _, _ = slices("s8", 2048, 2048, 0, 2)
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
