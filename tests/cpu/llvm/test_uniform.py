"""Loops with long chains of values that do not change in them: they compile, and vectors stay where they pay."""

import subprocess
import sys

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.llvm.uniform import hints_for_body, is_slow_to_vectorize


def chain(length, start):
    """Each value is used twice by the next one."""
    lines, value = [], start
    for number in range(length):
        lines += [f"  %s{number} = shl i32 {value}, 1", f"  %v{number} = xor i32 {value}, %s{number}"]
        value = f"%v{number}"
    return lines


def test_chains_that_do_not_change_are_found():
    assert is_slow_to_vectorize(["  %x = load i32, ptr %p", *chain(30, "%x")], ["%i"])


def test_chains_that_change_become_vectors():
    lines = ["  %a = getelementptr i32, ptr %p, i64 %i", "  %x = load i32, ptr %a", *chain(300, "%x")]
    assert not is_slow_to_vectorize(lines, ["%i"])


def test_short_loops_are_left_to_llvm():
    assert not is_slow_to_vectorize(["  %x = load i32, ptr %p", *chain(10, "%x")], ["%i"])


def scalars(steps, kind):
    """A chain of scalars, as hashes of random keys are."""
    lines, value = [], "x"
    for number in range(steps):
        lines += [
            f"s{number} = {kind}[] shift-left({value}, c)",
            f"v{number} = {kind}[] xor({value}, s{number})",
        ]
        value = f"v{number}"
    return "\n".join(lines), value


FUSIONS = {
    "one loop": "b = u32[6] broadcast({value}), dimensions={{}}\nROOT r = u32[6] add(b, y)",
    "pieces": """b = u32[6] broadcast({value}), dimensions={{}}
                 t = u32[12] concatenate(b, y), dimensions={{0}}
                 ROOT r = u32[12] reverse(t), dimensions={{0}}""",
    "rows": """b = u32[6,5] broadcast({value}), dimensions={{}}
               t = u32[6,5] broadcast(y), dimensions={{0}}
               ROOT r = u32[6,5] multiply(b, t)""",
}


@pytest.mark.parametrize("name", FUSIONS)
def test_chains_of_scalars_in_loops_compile(name):
    lines, value = scalars(40, "u32")
    shape = {"one loop": "u32[6]", "pieces": "u32[12]", "rows": "u32[6,5]"}[name]
    parameters = "x = u32[] parameter(0)\ny = u32[6] parameter(1)\nc = u32[] parameter(2)"
    module = xla.HloModule.from_text(
        f"HloModule m\n\nfused {{\n{parameters}\n{lines}\n{FUSIONS[name].format(value=value)}\n}}\n\n"
        f"ENTRY main {{\n{parameters}\nROOT f = {shape} fusion(x, y, c), kind=kLoop, calls=fused\n}}\n"
    )
    arguments = np.uint32(3), np.arange(6, dtype=np.uint32), np.uint32(5)
    found, expected = (xla.compile(module, backend=backend)(*arguments) for backend in ("cpu", "interpreter"))
    np.testing.assert_array_equal(found, expected)


# The reduction of a row is the same for all columns. It is written out in the loop over these, which LLVM is left with
# since it divides; each step uses the sum before it four times.
FOLDED = """
HloModule folded
mix {
  a = u32[] parameter(0)
  b = u32[] parameter(1)
  k = u32[] constant(3)
  s = u32[] shift-left(a, k)
  x = u32[] xor(a, s)
  t = u32[] shift-right-logical(x, k)
  y = u32[] xor(x, t)
  ROOT r = u32[] add(y, b)
}
add { a = u32[] parameter(0)  b = u32[] parameter(1)  ROOT r = u32[] add(a, b) }
ENTRY folded {
  p = u32[3,12] parameter(0)
  z = u32[] constant(0)
  q = u32[3] reduce(p, z), dimensions={1}, to_apply=mix
  b = u32[3,12] broadcast(q), dimensions={0}
  s = u32[3,12] divide(p, b)
  ROOT r = u32[12] reduce(s, z), dimensions={0}, to_apply=add
}
"""
# What it gives hangs on the order in which a row is combined, which is not said for such a reducer.
COMPILE = """
import sys, numpy as np, xlakit
program = xlakit.compile(xlakit.HloModule.from_text(sys.stdin.read()), cache=False)
assert program(np.ones((3, 12), np.uint32)).shape == (12,)
"""


def test_reductions_that_do_not_change_in_a_loop_do_not_keep_llvm_busy():
    # A second; LLVM's vectorizer would go through the chain for longer than anyone waits.
    subprocess.run([sys.executable, "-c", COMPILE], input=FOLDED, text=True, check=True, timeout=120)


def test_loops_of_many_branches_are_not_interleaved():
    lines = [f"  br i1 %c{n}, label %then{n}, label %join{n}" for n in range(20)]
    assert hints_for_body(["interleave", "other"], lines, ["%i"]) == ["other"]
    assert hints_for_body(["interleave", "other"], lines[:4], ["%i"]) == ["interleave", "other"]


def test_loops_whose_branches_change_are_interleaved():
    compared = [f"  %c{n} = icmp ult i64 %i, {n}" for n in range(20)]
    lines = [*compared, *(f"  br i1 %c{n}, label %then{n}, label %join{n}" for n in range(20))]
    assert hints_for_body(["interleave", "other"], lines, ["%i"]) == ["interleave", "other"]
    assert hints_for_body(["interleave", "other"], lines, ["%j"]) == ["other"]


def test_long_loops_are_interleaved_where_their_operations_wait_for_each_other():
    sums = [f"  %s{n}.{k + 1} = fadd float %s{n}.{k}, %x" for n in range(40) for k in range(20)]
    assert hints_for_body(["interleave", "other"], sums, ["%i"]) == ["other"]
    one = [f"  %s{k + 1} = fadd float %s{k}, %x" for k in range(800)]
    assert hints_for_body(["interleave", "other"], one, ["%x"]) == ["interleave", "other"]


# A part of the gradient of a scan over 16 rows: rows are spread, among which others are spread already. Which rows are
# there is the same for all elements of a row.
SPREAD = """
HloModule spread
ENTRY spread {
  z = f32[] constant(0)
  p = f32[4,8,32] parameter(0)
  q = f32[8,8,32] parameter(1)
  w = f32[4,8,32] parameter(2)
  x = f32[16,8,32] parameter(3)
  y = f32[8,8,32] parameter(4)
  t = f32[16,32,8] parameter(5)
  q1 = f32[4,8,32] slice(q), slice={[1:8:2],[0:8],[0:32]}
  q0 = f32[4,8,32] slice(q), slice={[0:7:2],[0:8],[0:32]}
  odd = f32[4,8,32] multiply(q1, p)
  part = f32[4,8,32] multiply(q0, w)
  even = f32[4,8,32] add(p, part)
  a = f32[8,8,32] pad(odd, z), padding=0_1_1x0_0x0_0
  b = f32[8,8,32] pad(even, z), padding=1_0_1x0_0x0_0
  first = f32[1,8,32] slice(q), slice={[0:1],[0:8],[0:32]}
  c = f32[8,8,32] pad(first, z), padding=0_7x0_0x0_0
  ab = f32[8,8,32] add(a, b)
  inner = f32[8,8,32] add(ab, c)
  x1 = f32[8,8,32] slice(x), slice={[1:16:2],[0:8],[0:32]}
  x0 = f32[8,8,32] slice(x), slice={[0:15:2],[0:8],[0:32]}
  odds = f32[8,8,32] multiply(x1, inner)
  parts = f32[8,8,32] multiply(x0, y)
  evens = f32[8,8,32] add(inner, parts)
  d = f32[16,8,32] pad(odds, z), padding=0_1_1x0_0x0_0
  e = f32[16,8,32] pad(evens, z), padding=1_0_1x0_0x0_0
  start = f32[1,8,32] slice(x), slice={[0:1],[0:8],[0:32]}
  f = f32[16,8,32] pad(start, z), padding=0_15x0_0x0_0
  de = f32[16,8,32] add(d, e)
  outer = f32[16,8,32] add(de, f)
  turned = f32[16,8,32] transpose(t), dimensions={0,2,1}
  ROOT r = f32[16,8,32] multiply(outer, turned)
}
"""
COMPARE = """
import sys, numpy as np, xlakit
module = xlakit.HloModule.from_text(sys.stdin.read())
shapes = [(4, 8, 32), (8, 8, 32), (4, 8, 32), (16, 8, 32), (8, 8, 32), (16, 32, 8)]
arguments = [np.random.default_rng(n).normal(size=s).astype(np.float32) for n, s in enumerate(shapes)]
found, expected = (xlakit.compile(module, backend=b, cache=False)(*arguments) for b in ("cpu", "interpreter"))
np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
"""


def test_branches_that_do_not_change_in_a_loop_do_not_keep_llvm_busy():
    # A second; interleaving the loop took longer than anyone waits.
    subprocess.run([sys.executable, "-c", COMPARE], input=SPREAD, text=True, check=True, timeout=120)
