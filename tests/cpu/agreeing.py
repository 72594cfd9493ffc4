"""What tests of loops and kernels share: the same program in machine code and on the interpreter."""

import ml_dtypes
import numpy as np
from evaluating import build, shape_of

import xlakit as xla
from fuzz.modules import difference
from fuzz.programs.values import SMALL, make_values

KINDS = [np.bool_, np.int8, ml_dtypes.bfloat16, np.float16, np.float32, np.int64, np.complex64, np.complex128]

# Before its second piece the index of that one is negative: divided, it is far beyond the array.
PIECES = """
HloModule pieces
ENTRY pieces {
  a = f32[6] parameter(0)
  p = f32[64,4] parameter(1)
  s = f32[60,3] slice(p), slice={[0:60], [0:3]}
  r = f32[180] reshape(s)
  b = f32[5] parameter(2)
  ROOT c = f32[191] concatenate(a, r, b), dimensions={0}, metadata={source_file="model.py" source_line=7}
}
"""


def numbers(kind, *sizes, seed=0):
    """Small whole numbers, so that any order of adding them up gives the same."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 2 if kind is np.bool_ else 9, sizes) - (0 if kind is np.bool_ else 4)
    if np.issubdtype(kind, np.complexfloating):
        return (found + 1j * rng.integers(0, 9, sizes)).astype(kind)
    return found.astype(kind)


def agree(function, *values):
    """Run ``function`` on both backends and compare; nothing may be left to the interpreter."""
    computation = build(function, *(shape_of(v) for v in values))
    compiled = xla.compile(computation, backend="cpu")
    assert not compiled.host_instructions
    actual, expected = compiled(*values), xla.compile(computation, backend="interpreter")(*values)
    for a, e in zip(*((r if isinstance(r, tuple) else (r,)) for r in (actual, expected)), strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        wrong = ~((a == e) | ((a != a) & (e != e)))
        assert not wrong.any(), f"{wrong.sum()} elements differ, the first at {np.argwhere(wrong)[0]}"


def agree_on_small_values(module, seed, **options):
    """Run a module on both backends, on small values that are drawn, and compare within roundings."""
    rng = np.random.default_rng(seed)
    shapes = [p.shape for p in module.entry.parameters]
    arguments = [make_values(rng, s.element_type.hlo_name, s.dimensions, SMALL) for s in shapes]
    actual = xla.compile(module, backend="cpu", **options)(*arguments)
    expected = xla.compile(module, backend="interpreter")(*arguments)
    parts = [(actual, expected)]
    if actual.dtype.kind == "c":
        parts = [(actual.real, expected.real), (actual.imag, expected.imag)]
    assert not any(difference(x, y) for x, y in parts)
