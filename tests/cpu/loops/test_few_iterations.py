import numpy as np
import pytest

import xlakit as xla

SCAN = """HloModule scan

step {
  s = (s32[], f64[N,N], f64[7,N,N]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f64[N,N] get-tuple-element(s), index=1
  all = f64[7,N,N] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  cut = f64[1,N,N] dynamic-slice(all, i, zero, zero), dynamic_slice_sizes={1,N,N}
  m = f64[N,N] reshape(cut)
  y = f64[N,N] dot(m, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  next = s32[] add(i, one)
  ROOT t = (s32[], f64[N,N], f64[7,N,N]) tuple(next, y, all)
}

more {
  s = (s32[], f64[N,N], f64[7,N,N]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(7)
  ROOT go = pred[] compare(i, end), direction=LT
}

ENTRY main {
  x = f64[N,N] parameter(0)
  all = f64[7,N,N] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f64[N,N], f64[7,N,N]) tuple(zero, x, all)
  done = (s32[], f64[N,N], f64[7,N,N]) while(start), condition=more, body=step
  ROOT y = f64[N,N] get-tuple-element(done), index=1
}
"""


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_small_matrices_that_a_loop_carries(size):
    rng = np.random.default_rng(size)
    x, matrices = rng.standard_normal((size, size)), rng.standard_normal((7, size, size))
    executable = xla.compile(xla.HloModule.from_text(SCAN.replace("N,N", f"{size},{size}")))
    expected = x
    for matrix in matrices:
        expected = matrix @ expected
    np.testing.assert_allclose(executable(x, matrices), expected, rtol=1e-12)
    # Nothing of three elements is worth a mask.
    assert size != 3 or "vmaskmov" not in executable.assembly()
