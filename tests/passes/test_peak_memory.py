"""Peaks of memory, before there is a plan."""

import xlakit as xla
from xlakit.passes.scheduling.peak_memory import Memory, stays_below

# A loop that calls what makes two arrays of 400 bytes, beside one of 400 bytes.
PROGRAM = """HloModule m
body {
  s = f32[100] parameter(0)
  t = f32[100] negate(s)
  u = f32[100] sine(t)
  ROOT v = f32[100] add(t, u)
}
condition {
  s = f32[100] parameter(0)
  ROOT p = pred[] constant(false)
}
ENTRY main {
  x = f32[100] parameter(0)
  y = f32[100] cosine(x)
  w = f32[100] while(y), condition=condition, body=body
  ROOT r = f32[100] add(w, y)
}"""


def test_no_peak_is_larger_than_all_arrays_together():
    module = xla.HloModule.from_text(PROGRAM)
    total = sum(i.shape.byte_size for c in module.computations for i in c.instructions)
    assert not stays_below(module, total)
    assert stays_below(module, total + 1)
    assert not stays_below(module, 0)
    peaks = {}
    for computation in module.computations:
        peaks[computation] = Memory(computation, peaks).peak()
    assert 800 <= max(peaks.values()) <= total
