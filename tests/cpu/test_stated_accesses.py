"""What kernels state of their accesses is true: the sanitizer runs them in all ways that it allows, and finds a lie."""

import numpy as np
import pytest

from fuzz.forced import least
from xlakit.cpu.compiler import compile_module
from xlakit.cpu.debugging.sanitizer import SanitizedExecutable
from xlakit.cpu.entry import lowering
from xlakit.cpu.entry.in_place import Refusals, in_place_pairs
from xlakit.errors import InternalError
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling

SUM = "dimensions={1}, to_apply=sum"
# By the kind of kernel: a fusion of p0, p1 and p3 (S: f32[144,144]) and of p2 and p4 (f32[144]), what it gives, and a
# result and an operand that is read elsewhere than the result is written, or later.
KINDS = {
    "loops": ("v = S reverse(p0), dimensions={0}\nROOT r = S add(v, p1)", "S", (0, 0)),
    "tiles": ("v = S transpose(p0), dimensions={1,0}\nROOT r = S add(v, p1)", "S", (0, 0)),
    "regions": (
        """a = f32[1,144] slice(p0), slice={[143:144],[0:144]}
b = f32[143,144] slice(p0), slice={[0:143],[0:144]}
c = S concatenate(a, b), dimensions={0}
ROOT r = S add(c, p1)""",
        "S",
        (0, 0),
    ),
    "rows": (
        f"""v = S reverse(p0), dimensions={{0}}
s = f32[144] reduce(v, z), {SUM}
b = S broadcast(s), dimensions={{0}}
d = S subtract(p1, b)
ROOT r = S multiply(d, d)""",
        "S",
        (0, 0),
    ),
    "columns": (
        """s = f32[144] reduce(p1, z), dimensions={0}, to_apply=sum
v = f32[144] reverse(p2), dimensions={0}
w = f32[144] add(s, v)
ROOT r = f32[144] add(w, p4)""",
        "f32[144]",
        (0, 2),
    ),
    "arg-max": (
        """i = s32[144,144] iota(), iota_dimension=1
k = s32[] constant(0)
l = f32[] constant(-inf)
m = (f32[144], s32[144]) reduce(p1, i, l, k), dimensions={1}, to_apply=first
j = s32[144] get-tuple-element(m), index=1
n = f32[144] convert(j)
v = f32[144] reverse(p2), dimensions={0}
w = f32[144] add(n, v)
ROOT r = f32[144] add(w, p4)""",
        "f32[144]",
        (0, 2),
    ),
    "product": (
        """d = S dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
a = S add(d, p1)
ROOT r = S add(a, p3)""",
        "S",
        (0, 0),
    ),
    "two-products": (
        f"""d = S dot(p3, p0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
s = f32[144] reduce(d, z), {SUM}
b = S broadcast(s), dimensions={{0}}
w = S subtract(d, b)
e = S dot(w, p0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
t = S add(e, p1)
ROOT r = (S, S) tuple(w, t)""",
        "(S, S)",
        (0, 1),
    ),
}
# One tile, or one block of a product's rows, would be read before it is written.
SMALL = {
    n: k
    for n, k in least().knobs.items()
    if n.startswith("product_cut.") or n in ("tiling.most_run", "tiling.run_bytes")
}
PROGRAM = """HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
first {
  a = f32[] parameter(0)  i = s32[] parameter(1)  b = f32[] parameter(2)  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT  e = pred[] compare(a, b), direction=EQ
  l = pred[] compare(i, j), direction=LT  s = pred[] and(e, l)  t = pred[] or(g, s)
  v = f32[] select(t, a, b)  w = s32[] select(t, i, j)  ROOT r = (f32[], s32[]) tuple(v, w)
}
fused {
  p0 = S parameter(0)  p1 = S parameter(1)
  p2 = f32[144] parameter(2)  p3 = S parameter(3)  p4 = f32[144] parameter(4)  z = f32[] constant(0)
  BODY
}
ENTRY e {
  a0 = S parameter(0)  a1 = S parameter(1)
  a2 = f32[144] parameter(2)  a3 = S parameter(3)  a4 = f32[144] parameter(4)
  ROOT f = SHAPE fusion(a0, a1, a2, a3, a4), kind=kLoop, calls=fused
}"""


def _run(kind):
    body, shape, _ = KINDS[kind]
    text = (
        PROGRAM.replace("SHAPE", shape).replace("BODY", body).replace("S, S", "S , S ").replace("S ", "f32[144,144] ")
    )
    module = HloModule.from_text(text)
    draws = np.random.default_rng(0)
    arguments = [draws.integers(-2, 3, p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    # The sanitizer's own code has no vectors and no tiles.
    with compiling(plain="rewrites,inline", check_memory=True, knobs=SMALL):
        return SanitizedExecutable(compile_module(module, cache=False))(*arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_what_kernels_state_holds(kind, monkeypatch):
    pairs = []
    monkeypatch.setattr(lowering, "in_place_pairs", lambda *given: pairs.append(in_place_pairs(*given)) or pairs[-1])
    _run(kind)
    assert any(pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lie_is_found(kind, monkeypatch):
    monkeypatch.setattr(lowering, "in_place_pairs", lambda *_: frozenset({KINDS[kind][2]}))
    with pytest.raises(InternalError, match="the memory plan is wrong: the step of fusion %f allows"):
        _run(kind)
    monkeypatch.setattr(Refusals, "refusal", lambda *_: "")
    with pytest.raises(InternalError, match="it overwrites what it still reads"):
        _run(kind)
