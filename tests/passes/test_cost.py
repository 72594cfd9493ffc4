"""What programs cost, counted by hand."""

import pytest

import xlakit as xla
from xlakit.passes.analysis.cost import cost_of

SUM = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
ROWS = """rows {
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  i = s32[] parameter(2)
  s = f32[1,8] dynamic-slice(p, i, i), dynamic_slice_sizes={1,8}
  t = f32[1,8] tanh(s)
  ROOT u = f32[8,8] dynamic-update-slice(q, t, i, i)
}
"""
HALF = "fused { p = f32[8,8] parameter(0)\n e = f32[8,8] exponential(p)\n ROOT m = f32[8,8] multiply(e, p) }\n"
LESS = "less { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = pred[] compare(a, b), direction=LT }\n"
TWICE = """twice {
  a = f32[8,8] parameter(0)
  b = f32[8,8] parameter(1)
  ROOT c = f32[8,8] add(a, b)
}
"""
CONVOLUTION = """y = f32[1,8,8,1] reshape(x)
  one = f32[] constant(1)
  k = f32[3,3,1,5] broadcast(one), dimensions={}
  ROOT r = f32[1,8,8,5] convolution(y, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"""


def counted(body, extra=""):
    text = f"HloModule m\n{extra}ENTRY main {{\n  x = f32[8,8] parameter(0)\n  i = s32[] parameter(1)\n  {body}\n}}"
    cost = cost_of(xla.HloModule.from_text(text))
    return cost.flops, cost.transcendentals, cost.bytes_accessed


@pytest.mark.parametrize(
    ("body", "extra", "expected"),
    [
        ("ROOT r = f32[8,8] add(x, x)", "", (64, 0, 512)),
        ("y = f32[8,8] copy(x)\n ROOT r = f32[8,8] add(x, y)", "", (64, 0, 512 + 768)),
        ("ROOT r = f32[8,8] tanh(x)", "", (0, 64, 512)),
        ("ROOT r = f32[8,8] copy(x)", "", (0, 0, 512)),
        ("ROOT r = f32[8,8] fusion(x), kind=kLoop, calls=fused", HALF, (64, 64, 512)),
        ("ROOT r = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "", (1024, 0, 768)),
        ("z = f32[] constant(0)\n ROOT r = f32[8] reduce(x, z), dimensions={1}, to_apply=sum", SUM, (56, 0, 292)),
        # One row is read and one written, whatever the arrays' sizes.
        ("ROOT r = f32[8,8] fusion(x, x, i), kind=kLoop, calls=rows", ROWS, (0, 8, 68)),
        # Running sums go on from their neighbors; of a window of three each takes two additions.
        ("z = f32[] constant(0)\n ROOT r = f32[8,8] reduce-window(x, z), window={size=1x8 pad=0_0x7_0}, to_apply=sum",
         SUM, (8 * 7, 0, 516)),
        ("z = f32[] constant(0)\n ROOT r = f32[8,8] reduce-window(x, z), window={size=1x3 pad=0_0x1_1}, to_apply=sum",
         SUM, (64 * 2, 0, 516)),
        ("y = c64[8,8] convert(x)\n ROOT r = c64[8,8] fft(y), fft_type=FFT, fft_length={8}", "",
         (64 + 8 * 64 * 3, 0, 256 + 512 + 1024)),
        ("ROOT r = f32[8,8] sort(x), dimensions={1}, to_apply=less", LESS, (384, 0, 512)),
        ("ROOT r = f32[8,8] call(x, x), to_apply=twice", TWICE, (64, 0, 768)),
        ("ROOT r = f32[2,8] dynamic-slice(x, i, i), dynamic_slice_sizes={2,8}", "", (0, 0, 136)),
        ("u = f32[1,8] slice(x), slice={[0:1], [0:8]}\n ROOT r = f32[8,8] dynamic-update-slice(x, u, i, i)", "",
         (0, 0, 64 + 72)),
        ("ROOT r = (f32[8,8], s32[]) tuple(x, i)", "", (0, 0, 0)),
        # Six of the eight places of a padded window of three are whole, two lack a product, in both dimensions.
        (CONVOLUTION, "", (2 * 22 * 22 * 5, 0, None)),
    ],
)  # fmt: skip
def test_operations(body, extra, expected):
    flops, transcendentals, accessed = counted(body, extra)
    assert (flops, transcendentals) == expected[:2]
    assert expected[2] is None or accessed == expected[2]


LOOP = """
step {
  s = (s32[], f32[8,8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  y = f32[8,8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  z = f32[8,8] tanh(y)
  ROOT t = (s32[], f32[8,8]) tuple(next, z)
}
test {
  s = (s32[], f32[8,8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  end = s32[] constant(10)
  ROOT p = pred[] compare(n, end), direction=LT
}
"""


@pytest.mark.parametrize(("start", "turns"), [("constant(0)", 10), ("constant(7)", 3), ("copy(i)", 1)])
def test_loops(start, turns):
    body = f"""n = s32[] {start}
  t = (s32[], f32[8,8]) tuple(n, x)
  w = (s32[], f32[8,8]) while(t), condition=test, body=step
  ROOT r = f32[8,8] get-tuple-element(w), index=1"""
    flops, transcendentals, _ = counted(body, LOOP)
    assert transcendentals == 64 * turns
    assert flops == turns + (turns + 1)


def test_the_dearer_branch_counts():
    branches = """
cheap { a = f32[8,8] parameter(0)
 ROOT r = f32[8,8] negate(a) }
dear { a = f32[8,8] parameter(0)
 ROOT r = f32[8,8] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""
    body = "ROOT r = f32[8,8] conditional(i, x, x), branch_computations={dear, cheap}"
    assert counted(body, branches)[0] == 1024


def test_branches_that_are_dear_in_different_ways():
    branches = """
plain { a = f32[8,8] parameter(0)
 ROOT r = f32[8,8] add(a, a) }
curved { a = f32[8,8] parameter(0)
 ROOT r = f32[8,8] tanh(a) }
"""
    body = "ROOT r = f32[8,8] conditional(i, x, x), branch_computations={plain, curved}"
    assert counted(body, branches)[:2] == (64, 64)
