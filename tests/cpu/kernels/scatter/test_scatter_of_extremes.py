"""Scatters of maxima and minima of single elements: their scalar code has no branches, and rules for zeros and NaN."""

import importlib

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling

# Declares the knob that the test sets.
importlib.import_module("xlakit.cpu.kernels.scatter.scatter")
TEXT = """HloModule m
  f {{
    a = {kind}[] parameter(0)
    b = {kind}[] parameter(1)
    ROOT c = {kind}[] {opcode}(a, b)
  }}
  ENTRY e {{
    t = {kind}[{n}] parameter(0)
    i = s32[{n},1] parameter(1)
    u = {kind}[{n}] parameter(2)
    ROOT r = {kind}[{n}] scatter(t, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
      scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
  }}"""


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_all_pairs_of_special_values(opcode, kind):
    dtype = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[kind]
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.0**-14, np.inf, -np.inf, np.nan, -np.nan], dtype)
    table, updates = (part.reshape(-1) for part in np.meshgrid(special, special))
    order = np.random.default_rng(0).permutation(table.size).astype(np.int32)
    text = TEXT.format(kind=kind, opcode=opcode, n=table.size)
    module = xla.HloModule.from_text(text)
    with compiling(knobs={"scatter.code_nanoseconds": 0}):
        executable = xla.compile(module, backend="cpu")
    given = table[order], order[:, None].argsort(axis=0).astype(np.int32), updates
    actual = np.asarray(executable(*given)).astype(np.float64)
    expected = np.asarray(xla.compile(module, backend="interpreter")(*given)).astype(np.float64)
    assert np.array_equal(np.isnan(actual), np.isnan(expected))
    assert np.isnan(expected).sum() == 2 * 9 * 2 - 4
    number = ~np.isnan(expected)
    assert np.array_equal(actual[number], expected[number])
    assert np.array_equal(np.signbit(actual[number]), np.signbit(expected[number]))
