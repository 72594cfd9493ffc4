"""Computations that operations apply to elements come down, too, with the arrays that they are applied to."""

from concurrent.futures import Future
from pathlib import Path

import pytest

import xlakit as xla
from xlakit.ir.instruction import HloModule
from xlakit.tools.oracles.oracle import Verdict
from xlakit.tools.oracles.pool import OraclePool
from xlakit.tools.reduce.search import Search

FAULTY = str(Path(__file__).parents[3] / "fuzz" / "workbench" / "faulty.py")

APPLIED = """HloModule applied

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] add(a, b)
  ROOT d = f32[] multiply(c, c)
}

largest {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT
  v = f32[] select(g, a, b)
  w = s32[] select(g, i, j)
  ROOT t = (f32[], s32[]) tuple(v, w)
}

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT
}

at_least {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT d = pred[] compare(a, b), direction=GE
}

condition {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT p = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8] tanh(x)
  ROOT t = (s32[], f32[8]) tuple(j, y)
}

ENTRY main {
  p = f32[8,8] parameter(0)
  q = f32[4,4] parameter(1)
  v = f32[8] parameter(2)
  x = f32[8,8] negate(p)
  zero = f32[] constant(0)
  number = s32[] constant(0)
  numbers = s32[8,8] iota(), iota_dimension=1
  start = (s32[], f32[8]) tuple(number, v)
  reduced = (f32[8], s32[8]) reduce(x, numbers, zero, number), dimensions={1}, to_apply=largest
  sorted = (f32[8,8], s32[8,8]) sort(x, numbers), dimensions={1}, to_apply=less
  chosen = f32[8,8] select-and-scatter(x, q, zero), window={size=2x2 stride=2x2}, select=at_least, scatter=sum
  windows = f32[7,8] reduce-window(x, zero), window={size=2x1}, to_apply=sum
  index = s32[1] constant({3})
  row = f32[8] tanh(v)
  scattered = f32[8,8] scatter(x, index, row), update_window_dims={0}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=sum
  loop = (s32[], f32[8]) while(start), condition=condition, body=body
  ROOT t = tuple(reduced, sorted, chosen, windows, scattered, loop)
}
"""


@pytest.mark.parametrize("opcode", ["reduce", "sort", "select-and-scatter", "reduce-window", "scatter", "while"])
def test_what_operations_apply_counts_too(opcode):
    reduction = xla.reduce_module(HloModule.from_text(APPLIED), lambda m: opcode in opcodes(m))
    assert reduction.instructions <= 5, str(reduction.module)
    assert "stride" not in str(reduction.module)
    reduction.module.verify()


PLAIN = """HloModule plain

ENTRY main {
  x = f32[8] parameter(0)
  ROOT y = f32[8] tanh(x)
}
"""


def opcodes(module):
    return [i.opcode for c in module.computations for i in c.instructions]


class Slow:
    """Answers two at a time, of which the first holds."""

    claim, jobs = "", 2

    def __init__(self):
        self.asked = []

    def submit(self, module):
        self.asked.append(module.entry.root.opcode)
        answer = Future()
        if self.asked[-1] != "sine" or self.asked.count("sine") > 1:
            answer.set_result(Verdict(True, ""))
        return answer


def test_a_candidate_whose_answer_nobody_heard_is_tried_again():
    modules = [HloModule.from_text(PLAIN.replace("tanh", opcode)) for opcode in ("tanh", "sine", "cosine")]
    first, second, third = modules
    search = Search(Slow(), third)
    assert search.first([lambda: first, lambda: second]) == 0
    assert search.try_one(lambda: second)
    assert not search.try_one(lambda: first)
    assert search.oracle.asked == ["tanh", "sine", "sine"]


@pytest.mark.parametrize("opcode", ["multiply", "select", "compare"])
def test_what_is_called_becomes_the_program(opcode):
    reduction = xla.reduce_module(HloModule.from_text(APPLIED), lambda m: opcode in opcodes(m))
    assert opcodes(reduction.module)[-1] == opcode
    assert len(reduction.module.computations) == 1
    assert reduction.instructions <= 4, str(reduction.module)


SUMMED = """HloModule summed

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[2,4] parameter(0)
  zero = f32[] constant(0)
  y = f32[2,4] exponential(x)
  ROOT s = f32[SIZE] reduce(y, zero), dimensions={D}, to_apply=add
}
"""


@pytest.mark.usefixtures("observed_here")
def test_no_reduction_is_left_whose_result_depends_on_its_order(monkeypatch):
    # Backends may give any of the elements then: a difference between them is no fault.
    monkeypatch.setenv("FAULT", "opcode")
    given, other = (SUMMED.replace("SIZE", size).replace("D}", f"{d}}}") for size, d in (("2", "1"), ("4", "0")))
    first = given.replace("  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)", "  ROOT b = f32[] parameter(1)")
    one = first.replace("f32[2,4]", "f32[2,1]")
    with OraclePool(xla.Disagreement(("faulty", "interpreter")), files=[FAULTY]) as pool:
        assert pool.begin(HloModule.from_text(given)).holds
        asked = [pool.submit(HloModule.from_text(text)).result().holds for text in (other, first, one)]
    assert asked == [True, False, True]
