"""Faults that need a loop, a branch or a call around an instruction, or values that only a run has."""

from pathlib import Path

import pytest

import xlakit as xla
from xlakit.ir.instruction import HloModule

FAULTY = str(Path(__file__).parents[3] / "fuzz" / "workbench" / "faulty.py")

NESTED = """HloModule nested

small {
  s = (f32[6,6], s32[]) parameter(0)
  x = f32[6,6] get-tuple-element(s), index=0
  j = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  k = s32[] add(j, one)
  y = f32[6,6] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[6,6] tanh(y)
  ROOT t = (f32[6,6], s32[]) tuple(z, k)
}

small_test {
  s = (f32[6,6], s32[]) parameter(0)
  j = s32[] get-tuple-element(s), index=1
  n = s32[] constant(3)
  ROOT p = pred[] compare(j, n), direction=LT
}

first {
  x = f32[6,6] parameter(0)
  ROOT y = f32[6,6] sine(x)
}

second {
  x = f32[6,6] parameter(0)
  y = f32[6,6] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  z = f32[6,6] sine(y)
  ROOT w = f32[6,6] add(z, x)
}

large {
  s = (s32[], f32[6,6], s32[5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[6,6] get-tuple-element(s), index=1
  counts = s32[5] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  start = (f32[6,6], s32[]) tuple(x, zero)
  inner = (f32[6,6], s32[]) while(start), condition=small_test, body=small
  y = f32[6,6] get-tuple-element(inner), index=0
  two = s32[] constant(2)
  rest = s32[] remainder(i, two)
  z = f32[6,6] conditional(rest, y, y), branch_computations={first, second}
  three = s32[5] constant({3, 3, 3, 3, 3})
  tripled = s32[5] multiply(counts, three)
  ROOT t = (s32[], f32[6,6], s32[5]) tuple(j, z, tripled)
}

large_test {
  s = (s32[], f32[6,6], s32[5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT p = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[6,6] parameter(0)
  counts = s32[5] constant({1, 2, 1, 2, 1})
  zero = s32[] constant(0)
  start = (s32[], f32[6,6], s32[5]) tuple(zero, x, counts)
  w = (s32[], f32[6,6], s32[5]) while(start), condition=large_test, body=large
  y = f32[6,6] get-tuple-element(w), index=1
  c = s32[5] get-tuple-element(w), index=2
  ROOT t = (f32[6,6], s32[5]) tuple(y, c)
}
"""
# A loop runs until its value changes: two instructions of the entry, of the condition the parameter, a constant and the
# comparison, of arrays the element, and of the body the parameter and what fails.
LEAST = {"late": 3, "large": 3, "loop": 7, "nested": 10, "chosen": 5, "compared": 5}

SORTED = """HloModule sorted

less {
  k = s32[] parameter(0)
  l = s32[] parameter(1)
  a = f32[] parameter(2)
  b = f32[] parameter(3)
  e = pred[] compare(a, b), direction=EQ
  m = pred[] compare(k, l), direction=GT
  f = pred[] and(e, m)
  p = pred[] compare(a, b), direction=LT
  ROOT r = pred[] or(p, f)
}

ENTRY main {
  k = s32[4,9] iota(), iota_dimension=1
  x = f32[4,9] parameter(0)
  y = f32[4,9] tanh(x)
  ROOT s = (s32[4,9], f32[4,9]) sort(k, y), dimensions={1}, to_apply=less
}
"""

CHAIN = """HloModule chain

ENTRY main {
  x = f32[5] parameter(0)
  a = f32[5] abs(x)
  two = f32[] constant(2)
  b = f32[5] broadcast(two), dimensions={}
  c = f32[5] add(a, b)
  d = f32[5] multiply(c, c)
  e = f32[5] exponential(d)
  ROOT r = f32[5] negate(e)
}
"""


@pytest.mark.parametrize("fault", LEAST)
def test_what_is_around_a_fault_comes_down_to_what_it_needs(fault, monkeypatch, request):
    monkeypatch.setenv("FAULT", fault)
    text = {"compared": SORTED, "large": CHAIN, "loop": NESTED.replace("tanh", "abs")}.get(fault, NESTED)
    if "while(" not in text:  # candidates with loops may not end
        request.getfixturevalue("observed_here")
    module = HloModule.from_text(text)
    reduction = xla.reduce_module(module, xla.Disagreement(("faulty", "interpreter")), load=[FAULTY])
    assert reduction.instructions <= LEAST[fault], str(reduction.module)
    reduction.module.verify()


def test_candidates_whose_loops_do_not_end_are_not_run(monkeypatch):
    # Each of them would take its limit, of a second and more.
    monkeypatch.setenv("FAULT", "looped")
    reduction = xla.reduce_module(
        HloModule.from_text(NESTED), xla.Disagreement(("faulty", "interpreter")), load=[FAULTY]
    )
    assert reduction.seconds / reduction.tries < 0.4
    assert reduction.instructions == 8
