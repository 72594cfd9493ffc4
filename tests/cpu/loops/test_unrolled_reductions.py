import re

import numpy as np
import pytest

import xlakit as xla

# How many running sums are positive says at which place the running sums are read: each element of the result is a
# reduction whose bounds depend on another reduction, which is made of reductions.
COUNTED = """HloModule counted

add_f { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }

add_i { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b) }

ENTRY main {
  x = f32[12] parameter(0)
  zero = f32[] constant(0)
  none = s32[] constant(0)
  zeros = f32[12] broadcast(zero), dimensions={}
  sums = f32[12] reduce-window(x, zero), window={size=12 pad=11_0}, to_apply=add_f
  positive = pred[12] compare(sums, zeros), direction=GT
  ones = s32[12] convert(positive)
  count = s32[] reduce(ones, none), dimensions={0}, to_apply=add_i
  one = s32[] constant(1)
  last = s32[] subtract(count, one)
  read = f32[1] dynamic-slice(sums, last), dynamic_slice_sizes={1}
  scalar = f32[] reshape(read)
  all = f32[12] broadcast(scalar), dimensions={}
  ROOT y = f32[12] subtract(x, all)
}
"""


def test_bounds_of_unrolled_reductions_are_computed_once():
    executable = xla.compile(xla.HloModule.from_text(COUNTED))
    x = np.array([3, -1, 2, -9, 1, 1, 5, -8, 2, 7, -20, 4], np.float32)
    sums = np.cumsum(x)
    np.testing.assert_array_equal(executable(x), x - sums[(sums > 0).sum() - 1])
    written = executable.llvm_ir(optimized=False)
    # 78 sums for the count, and 12 that are guarded; not the count again in each of the 12.
    assert written.count("fadd") < 130
    assert written.count("icmp") < 100


# The scores of an attention with a causal mask, less the largest of their row: the mask does not change along the
# batch, so that rows are not merged with it, and the loop over the batch is the one over the tasks of the kernel.
MASKED = """HloModule masked

max {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }}

ENTRY main {{
  mask = pred[16,16] parameter(0)
  scores = f32[{batch},16,16] parameter(1)
  least = f32[] constant(-1e30)
  masks = pred[{batch},16,16] broadcast(mask), dimensions={{1,2}}
  leasts = f32[{batch},16,16] broadcast(least), dimensions={{}}
  masked = f32[{batch},16,16] select(masks, scores, leasts)
  none = f32[] constant(-inf)
  largest = f32[{batch},16] reduce(masked, none), dimensions={{2}}, to_apply=max
  spread = f32[{batch},16,16] broadcast(largest), dimensions={{0,1}}
  ROOT y = f32[{batch},16,16] subtract(masked, spread)
}}
"""


@pytest.mark.parametrize("batch", [3, 20, 500])
def test_unrolled_rows_are_reduced_once(batch: int):
    executable = xla.compile(xla.HloModule.from_text(MASKED.format(batch=batch)))
    mask = np.tri(16, dtype=bool)
    scores = np.random.default_rng(0).normal(size=(batch, 16, 16)).astype(np.float32)
    masked = np.where(mask, scores, np.float32(-1e30))
    np.testing.assert_array_equal(executable(mask, scores), masked - masked.max(2, keepdims=True))
    blocks = re.split(r"^(?=\S+:$)", executable.llvm_ir(optimized=False), flags=re.MULTILINE)
    storing = [block for block in blocks if "fsub" in block and "store" in block]
    assert storing
    assert not any("maximum" in block for block in storing)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("kind", ["f32", "s32"])
def test_columns_too_few_for_a_vector_are_reduced_in_vectors_of_rows(columns, kind):
    text = f"""HloModule few
add {{ a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] add(a, b) }}
ENTRY main {{
  x = {kind}[16,500,{columns}] parameter(0)
  zero = {kind}[] constant(0)
  ROOT y = {kind}[16,{columns}] reduce(x, zero), dimensions={{1}}, to_apply=add
}}
"""
    executable = xla.compile(xla.HloModule.from_text(text))
    dtype = np.float32 if kind == "f32" else np.int32
    x = (np.arange(16 * 500 * columns) % 7 - 3).astype(dtype).reshape(16, 500, columns)
    np.testing.assert_array_equal(executable(x), x.sum(axis=1))
    # LLVM makes the vectors: its additions are of several rows at once.
    assert re.search(r"= f?add .*<\d+ x (float|i32)>", executable.llvm_ir(optimized=True))
