import numpy as np

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
