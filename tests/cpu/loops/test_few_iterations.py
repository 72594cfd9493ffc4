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


# What is masked along each of its dimensions, up to a number that is given: four elements are written out in each
# iteration of a loop that is to be interleaved, and whose last vectors LLVM would mask.
MASKED = """HloModule masked

ENTRY main {{
  x = s64[4,{n},{m}] parameter(0)
  a = s32[] parameter(1)
  b = s32[] parameter(2)
  c = s32[] parameter(3)
  i = s32[4,{n},{m}] iota(), iota_dimension=0
  j = s32[4,{n},{m}] iota(), iota_dimension=1
  k = s32[4,{n},{m}] iota(), iota_dimension=2
  as = s32[4,{n},{m}] broadcast(a), dimensions={{}}
  bs = s32[4,{n},{m}] broadcast(b), dimensions={{}}
  cs = s32[4,{n},{m}] broadcast(c), dimensions={{}}
  ia = pred[4,{n},{m}] compare(i, as), direction=LT
  jb = pred[4,{n},{m}] compare(j, bs), direction=LT
  kc = pred[4,{n},{m}] compare(k, cs), direction=LT
  z = s64[] constant(0)
  zs = s64[4,{n},{m}] broadcast(z), dimensions={{}}
  p = s64[4,{n},{m}] select(ia, x, zs)
  q = s64[4,{n},{m}] select(jb, p, zs)
  ROOT y = s64[4,{n},{m}] select(kc, q, zs)
}}
"""


@pytest.mark.parametrize("size", [5, 6, 7, 12, 15, 16, 17])
@pytest.mark.parametrize("minor", [2, 3, 4])
def test_short_loops_are_not_interleaved_where_vectors_are_masked(size: int, minor: int):
    executable = xla.compile(xla.HloModule.from_text(MASKED.format(n=size, m=minor)))
    x = np.arange(4 * size * minor).reshape(4, size, minor) + 1
    i, j, k = np.indices(x.shape)
    ends = [np.int32(n) for n in (3, size - 1, minor - 1)]
    np.testing.assert_array_equal(executable(x, *ends), x * (i < ends[0]) * (j < ends[1]) * (k < ends[2]))


# The state of a loop over particles, of which some have stopped: the mask does not change along the coordinates, so
# that they are not merged with the particles, and the next state lies in the memory of the last one.
PARTICLES = """HloModule particles

step {{
  s = (s32[], f32[n,{width}], pred[n]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x0 = f32[n,{width}] get-tuple-element(s), index=1
  goes = pred[n] get-tuple-element(s), index=2
  mask = pred[n,{width}] broadcast(goes), dimensions={{0}}
  half = f32[] constant(0.5)
  halves = f32[n,{width}] broadcast(half), dimensions={{}}
{chain}
  y = f32[n,{width}] select(mask, x{last}, x0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[n,{width}], pred[n]) tuple(next, y, goes)
}}

more {{
  s = (s32[], f32[n,{width}], pred[n]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(3)
  ROOT go = pred[] compare(i, end), direction=LT
}}

ENTRY main {{
  x = f32[n,{width}] parameter(0)
  goes = pred[n] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[n,{width}], pred[n]) tuple(zero, x, goes)
  done = (s32[], f32[n,{width}], pred[n]) while(start), condition=more, body=step
  ROOT y = f32[n,{width}] get-tuple-element(done), index=1
}}
"""


@pytest.mark.parametrize(("width", "long"), [(3, 40), (3, 60), (2, 60), (5, 40)])
def test_particles_are_moved_in_vectors_where_they_are(width, long):
    row = f"f32[n,{width}]"
    chain = "\n".join(
        f"  p{k} = {row} multiply(x{k}, halves)\n  x{k + 1} = {row} add(p{k}, x{max(k - 1, 0)})" for k in range(long)
    )
    text = PARTICLES.format(width=width, chain=chain, last=long).replace("[n", "[203")
    executable = xla.compile(xla.HloModule.from_text(text))
    rng = np.random.default_rng(width)
    x, goes = rng.uniform(-1, 1, (203, width)).astype(np.float32), rng.random(203) < 0.5
    expected = x
    for _ in range(3):
        steps = [expected]
        for k in range(long):
            steps.append(steps[k] * np.float32(0.5) + steps[max(k - 1, 0)])
        expected = np.where(goes[:, None], steps[-1], expected)
    np.testing.assert_allclose(executable(x, goes), expected, rtol=1e-5)
    # LLVM's own vector loop begins with tests whether arrays overlap, and is left for a scalar one where they do.
    assert "icmp ult ptr" not in executable.llvm_ir()
