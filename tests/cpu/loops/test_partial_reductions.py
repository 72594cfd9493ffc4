"""A reduction to few results is cut into parts, which threads fold apart; see loops/nests/partial.py."""

import numpy as np
import pytest

import xlakit as xla

PROGRAM = """HloModule reduction
step {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] {operation}(a, b)
}}
ENTRY e {{
  x = {kind}[{n}] parameter(0)
  start = {kind}[] {start}
  ROOT r = {kind}[] reduce(x, start), dimensions={{0}}, to_apply=step
}}"""


@pytest.mark.parametrize(
    ("kind", "operation", "start", "expected"),
    [
        ("f64", "add", "constant(0)", np.sum),
        ("s32", "maximum", "constant(-2147483648)", np.max),
        ("f32", "minimum", "constant(inf)", np.min),
    ],
)
def test_alone_with_its_constant(kind, operation, start, expected):
    text = PROGRAM.format(kind=kind, operation=operation, start=start, n=3_000_001)
    executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    assert "r.parts" in executable.llvm_ir()
    dtype = executable.module.entry.root.shape.element_type.dtype
    x = np.random.default_rng(0).integers(-1000, 1000, 3_000_001).astype(dtype)
    with xla.threads(1):
        once = executable(x)
    assert once == executable(x) == expected(x)


def test_a_start_that_counts_is_counted_once():
    for start in ("constant(7)", "parameter(1)"):
        text = PROGRAM.format(kind="s64", operation="add", start=start, n=1_000_000)
        executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
        arguments = [np.arange(1_000_000), np.int64(7)][: 1 + (start != "constant(7)")]
        assert executable(*arguments) == 499_999_500_007


def test_constants_tell_kernels_apart():
    text = """HloModule two
    step {
      a = f64[] parameter(0)
      b = f64[] parameter(1)
      ROOT s = f64[] add(a, b)
    }
    ENTRY e {
      x = f64[1000] parameter(0)
      y = f64[1000] parameter(1)
      one = f64[] constant(1)
      two = f64[] constant(2)
      r = f64[] reduce(x, one), dimensions={0}, to_apply=step
      s = f64[] reduce(y, two), dimensions={0}, to_apply=step
      ROOT t = (f64[], f64[]) tuple(r, s)
    }"""
    x = np.ones(1000)
    assert xla.compile(xla.HloModule.from_text(text), backend="cpu")(x, x) == (1001, 1002)
