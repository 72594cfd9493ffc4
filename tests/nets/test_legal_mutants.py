"""Changed programs that stay legal: the net makes them, and notices what is wrong with their code."""

import numpy as np
import pytest

from fuzz import legal_mutants
from fuzz.legal_mutants import judge, mutant
from fuzz.support.legal_mutators import mutate_legally
from fuzz.support.unspecified import unspecified
from fuzz.support.unusual_seeds import UNUSUAL
from xlakit import HloModule
from xlakit.ops.registry import OPERATIONS

_LOOP = """HloModule m
more {
  s = (s32[], f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(LIMIT)
  ROOT c = pred[] compare(i, n), direction=LT
}
next {
  s = (s32[], f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2,3] get-tuple-element(s), index=1
  one = s32[] constant(STEP)
  j = s32[] add(i, one)
  y = f32[2,3] negate(x)
  ROOT t = (s32[], f32[2,3]) tuple(j, y)
}
ENTRY e {
  x = f32[2,3]{0,1} parameter(0)
  i = s32[] constant(0)
  t = (s32[], f32[2,3]) tuple(i, x)
  ROOT w = (s32[], f32[2,3]) while(t), condition=more, body=next
}
"""
_SORT = """HloModule m
order {
  a = KIND[] parameter(0)
  b = KIND[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=WAY
}
ENTRY e {
  x = KIND[9] parameter(0)
  ROOT s = KIND[9] sort(x), dimensions={0}, is_stable=STABLE, to_apply=order
}
"""


def _loop(limit, step):
    return _LOOP.replace("LIMIT", str(limit)).replace("STEP", str(step))


def test_mutants_are_the_same_for_a_seed_and_most_agree_on_all_backends():
    texts = [mutant(3, number) for number in range(3)]
    assert texts == [mutant(3, number) for number in range(3)]
    assert sum(map(bool, texts)) >= 2
    for number, text in enumerate(filter(None, texts)):
        for backend in ("interpreter", "cpu"):
            fault = judge(text, number, backend)
            assert not fault or fault.startswith("left out")
            if fault:
                break


@pytest.mark.parametrize("number", range(len(UNUSUAL)))
def test_seeds_are_legal_in_each_format(number):
    module = HloModule.from_text(UNUSUAL[number])
    module.verify()
    assert HloModule.from_proto(module.to_proto()) == module == HloModule.from_text(module.to_text())


def test_programs_are_changed_in_many_ways():
    rng = np.random.default_rng(1)
    text = HloModule.from_text(_loop(3, 1)).to_text()
    made = {mutate_legally(text, rng) for _ in range(60)}
    assert len(made) > 40


def test_a_loop_that_goes_on_is_left_out(monkeypatch):
    monkeypatch.setattr(legal_mutants, "_SECONDS_OF_INTERPRETER", 0.05)
    assert judge(_loop(1, 0), 0, "interpreter") == "left out: too slow"
    assert judge(_loop(3, 1), 0, "interpreter") == judge(_loop(3, 1), 0, "cpu") == ""


def test_another_result_is_noticed(monkeypatch):
    monkeypatch.setattr(OPERATIONS["negate"], "evaluate", lambda self, context, x: x)
    assert not judge(_loop(3, 1), 0, "interpreter")
    assert "6 of 6 elements differ" in judge(_loop(3, 1), 0, "cpu")


@pytest.mark.parametrize(
    ("kind", "way", "stable", "said"),
    [
        ("s32", "LT", "true", ""),
        ("s32", "LT", "false", "sorts that are not stable"),
        ("s32", "NE", "true", "comparators that may be no orders"),
        ("f32", "GT", "true", "comparators that may be no orders"),
        ("f32", "GT, type=TOTALORDER", "true", ""),
    ],
)
def test_what_is_left_open_is_told(kind, way, stable, said):
    text = _SORT.replace("KIND", kind).replace("WAY", way).replace("STABLE", stable)
    assert unspecified(HloModule.from_text(text)) == said


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("f32[4] power(x, x)", "bits of numbers that may be NaN"),
        ("f32[4] reverse(x), dimensions={0}", ""),
        ("s32[4] popcnt(n)", ""),
    ],
)
def test_bits_of_what_is_computed_are_left_open(made, said):
    result = "f32[4]" if made[0] == "s" else "s32[4]"
    lines = [
        "x = f32[4] parameter(0)",
        "n = s32[4] parameter(1)",
        f"y = {made}",
        f"ROOT r = {result} bitcast-convert(y)",
    ]
    assert unspecified(HloModule.from_text("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}")) == said
