"""Rows of a few elements that are reduced, and divided by what comes of it: the last vector of a row overlaps others.

In a loop the rows are written where they were read, so what the overlap computes again comes of new elements.
"""

import numpy as np
import pytest

import xlakit as xla
from fuzz.modules import difference

SOFTMAX = """HloModule rows
  most {
    a = KIND[] parameter(0)
    b = KIND[] parameter(1)
    ROOT c = KIND[] maximum(a, b)
  }
  total {
    a = KIND[] parameter(0)
    b = KIND[] parameter(1)
    ROOT c = KIND[] add(a, b)
  }
  body {
    s = (s32[], KIND[37,SIZE]) parameter(0)
    n = s32[] get-tuple-element(s), index=0
    x = KIND[37,SIZE] get-tuple-element(s), index=1
    one = s32[] constant(1)
    next = s32[] add(n, one)
    low = KIND[] constant(-inf)
    zero = KIND[] constant(0)
    m = KIND[37] reduce(x, low), dimensions={1}, to_apply=most
    mb = KIND[37,SIZE] broadcast(m), dimensions={0}
    d = KIND[37,SIZE] subtract(x, mb)
    e = KIND[37,SIZE] exponential(d)
    t = KIND[37] reduce(e, zero), dimensions={1}, to_apply=total
    tb = KIND[37,SIZE] broadcast(t), dimensions={0}
    r = KIND[37,SIZE] divide(e, tb)
    ROOT o = (s32[], KIND[37,SIZE]) tuple(next, r)
  }
  more {
    s = (s32[], KIND[37,SIZE]) parameter(0)
    n = s32[] get-tuple-element(s), index=0
    three = s32[] constant(3)
    ROOT l = pred[] compare(n, three), direction=LT
  }
  ENTRY e {
    x = KIND[37,SIZE] parameter(0)
    zero = s32[] constant(0)
    s = (s32[], KIND[37,SIZE]) tuple(zero, x)
    w = (s32[], KIND[37,SIZE]) while(s), condition=more, body=body
    ROOT r = KIND[37,SIZE] get-tuple-element(w), index=1
  }"""


@pytest.mark.parametrize(
    ("kind", "size"), [("f32", n) for n in (4, 5, 7, 10, 13, 16, 21, 31)] + [("f64", 5), ("f64", 11)]
)
def test_softmax_of_short_rows_in_place(kind, size):
    module = xla.HloModule.from_text(SOFTMAX.replace("KIND", kind).replace("SIZE", str(size)))
    x = np.random.default_rng(size).standard_normal((37, size)).astype(np.float32 if kind == "f32" else np.float64)
    expected = xla.compile(module, backend="interpreter")(x)
    result = xla.compile(module, backend="cpu")(x)
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=2e-6)


@pytest.mark.parametrize("size", [19, 23, 31, 50, 1003])
def test_the_last_elements_of_all_types_are_stored(size):
    text = f"""HloModule last
      ENTRY e {{
        x = f32[{size}] parameter(0)
        c = c64[{size}] parameter(1)
        p = pred[{size}] parameter(2)
        h = bf16[{size}] parameter(3)
        a = f32[{size}] add(x, x)
        d = c64[{size}] add(c, c)
        n = pred[{size}] not(p)
        g = bf16[{size}] add(h, h)
        ROOT r = (f32[{size}], c64[{size}], pred[{size}], bf16[{size}]) tuple(a, d, n, g)
      }}"""
    module = xla.HloModule.from_text(text)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(size).astype(np.float32)
    values = x, (x + 1j * x[::-1]).astype(np.complex64), x > 0, x.astype(xla.BF16.dtype)
    expected = xla.compile(module, backend="interpreter")(*values)
    assert not difference(xla.compile(module, backend="cpu")(*values), expected)
