"""Memory plans of small programs: which values share memory, which copies there are, and how plans are printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.execution.executable import CpuExecutable
from xlakit.memory.assignment import Space
from xlakit.memory.plan import MemoryPlan
from xlakit.memory.steps import ConditionalStep, KernelStep, WhileStep, walk
from xlakit.options import compiling

LESS = "{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }"
# What a pass neither computes at compile time nor fuses.
SORT = f"dimensions={{0}}, to_apply={LESS}"
COUNT = """
below_nine {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(9)
  ROOT r = pred[] compare(i, n), direction=LT
}}
"""
VALUES = np.random.default_rng(0).standard_normal(64).astype(np.float32)


def compiled(text: str, plain: str = "") -> CpuExecutable:
    with compiling(plain=plain):
        made = xla.compile(xla.HloModule.from_text(text), backend="cpu", cache=False)
    assert isinstance(made, CpuExecutable)
    return made


def plan_of(text: str, *arguments: object, plain: str = "") -> MemoryPlan:
    """The plan of a program, which gives what the interpreter gives."""
    executable = compiled(text, plain)
    if arguments:
        expected = xla.compile(xla.HloModule.from_text(text), backend="interpreter")(*arguments)
        actual = executable(*arguments)
        pairs = zip(expected, actual, strict=True) if isinstance(expected, tuple) else [(expected, actual)]
        for e, a in pairs:
            np.testing.assert_array_equal(a, e)
    return executable.memory_plan()


def copied(plan: MemoryPlan) -> list[tuple[str, str]]:
    return [(str(step.source), str(step.target)) for step in plan.copies]


def loop(state: str, body: str, first: str, rest: str) -> str:
    return f"""
HloModule m
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
{body}
}}
{COUNT.format(state=state)}
ENTRY e {{
  x = f32[64] parameter(0)
  k = f32[64] sort(x), {SORT}
  zero = s32[] constant(0)
{first}
  w = {state} while(first), condition=below_nine, body=body
{rest}
}}
"""


def test_state_that_is_updated_in_place_is_never_copied():
    text = loop(
        "(s32[], f32[64])",
        """  a = f32[64] get-tuple-element(p), index=1
  v = f32[1] constant({7})
  u = f32[64] dynamic-update-slice(a, v, i)
  ROOT r = (s32[], f32[64]) tuple(next, u)""",
        "  first = (s32[], f32[64]) tuple(zero, k)",
        "  ROOT r = f32[64] get-tuple-element(w), index=1",
    )
    plan = plan_of(text, VALUES)
    # The counter is read after the next one is made.
    assert [source for source, _ in copied(plan)] == ["%zero", "%next"]
    assert plan.arena_bytes <= 3 * 64 * 4  # what the sort needs


# A loop in a loop: both carry an element that a conditional and the inner loop pass on as it is.
INNER_AND_OUTER = """
HloModule m
inner {
  p = (s32[], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[64] get-tuple-element(p), index=1
  b = f32[64] get-tuple-element(p), index=2
  c = f32[64] subtract(a, b)
  ROOT r = (s32[], f32[64], f32[64]) tuple(next, c, b)
}
same {
  p = f32[64] parameter(0)
  ROOT q = f32[64] opt-barrier(p)
}
same_again {
  p = f32[64] parameter(0)
  ROOT q = f32[64] opt-barrier(p)
}
outer {
  p = (s32[], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[64] get-tuple-element(p), index=1
  b = f32[64] get-tuple-element(p), index=2
  three = s32[] constant(3)
  test = pred[] compare(i, three), direction=LT
  d = f32[64] conditional(test, b, b), true_computation=same, false_computation=same_again
  t = (s32[], f32[64], f32[64]) tuple(one, a, d)
  w = (s32[], f32[64], f32[64]) while(t), condition=below_nine, body=inner
  c = f32[64] get-tuple-element(w), index=1
  e = f32[64] get-tuple-element(w), index=2
  ROOT r = (s32[], f32[64], f32[64]) tuple(next, c, e)
}
"""


def test_an_element_that_stays_is_one_value_through_inner_loops_and_branches():
    text = (
        INNER_AND_OUTER
        + COUNT.format(state="(s32[], f32[64], f32[64])")
        + f"""
ENTRY e {{
  x = f32[64] parameter(0)
  k = f32[64] sort(x), {SORT}
  l = f32[64] reverse(k), dimensions={{0}}
  zero = s32[] constant(0)
  first = (s32[], f32[64], f32[64]) tuple(zero, k, l)
  w = (s32[], f32[64], f32[64]) while(first), condition=below_nine, body=outer
  a = f32[64] get-tuple-element(w), index=1
  b = f32[64] get-tuple-element(w), index=2
  ROOT r = f32[64] add(a, b)
}}
"""
    )
    with_passes = plan_of(text, VALUES)
    assert all(len(step.carried) == 2 for step in walk(with_passes.steps) if isinstance(step, WhileStep))
    # Plain code keeps all phis, and no pass has looked at the conditional.
    plain = plan_of(text, VALUES, plain="all")
    assert all(len(step.carried) == 3 for step in walk(plain.steps) if isinstance(step, WhileStep))
    assert any(step.results for step in walk(plain.steps) if isinstance(step, ConditionalStep))
    no_passes = plan_of(text, VALUES, plain="rewrites,fusion")
    assert not any(step.results for step in walk(no_passes.steps) if isinstance(step, ConditionalStep))
    assert all(len(step.carried) == 2 for step in walk(no_passes.steps) if isinstance(step, WhileStep))


@pytest.mark.parametrize(
    ("order", "copies"), [((1, 2, 3), 0), ((2, 1, 3), 3), ((2, 3, 1), 4), ((1, 1, 1), 2), ((3, 3, 1), 4)]
)
def test_elements_that_change_places_are_copied_as_if_at_once(order: Sequence[int], copies: int):
    state = "(s32[], f32[64], f32[64], f32[64])"
    names = ", ".join(f"a{n}" for n in order)
    text = loop(
        state,
        "\n".join(f"  a{n} = f32[64] get-tuple-element(p), index={n}" for n in (1, 2, 3))
        + f"\n  ROOT r = {state} tuple(next, {names})",
        f"  l = f32[64] reverse(k), dimensions={{0}}\n  m = f32[64] sort(l), {SORT}\n"
        f"  first = {state} tuple(zero, k, l, m)",
        "\n".join(f"  b{n} = f32[64] get-tuple-element(w), index={n}" for n in (1, 2, 3))
        + "\n  ROOT r = (f32[64], f32[64], f32[64]) tuple(b1, b2, b3)",
    )
    plan = plan_of(text, VALUES, plain="rewrites")
    body = next(step for step in plan.steps if isinstance(step, WhileStep)).body
    assert sum(not isinstance(step, KernelStep) for step in body) == copies


def test_a_kernel_writes_over_an_operand_that_has_no_other_reader():
    text = f"""
HloModule m
ENTRY e {{
  x = f32[64] parameter(0)
  k = f32[64] sort(x), {SORT}
  l = f32[64] abs(k)
  s = f32[64] sort(l), {SORT}
  t = f32[64] add(s, l)
  ROOT r = f32[64] sort(t), {SORT}
}}
"""
    plan = plan_of(text, VALUES)
    by_name = {v.name: plan.slice_of(v) for own in plan.slices for v in own.values}
    assert by_name["k"] is by_name["l"]
    assert by_name["l"] is not by_name["s"]
    assert by_name["r"].space is Space.RESULT
    plain = plan_of(text, VALUES, plain="memory")
    assert all(len(own.values) == 1 for own in plain.slices)
    assert plain.arena_bytes > plan.arena_bytes


def test_results_that_are_arguments_constants_or_twice_the_same_are_copied():
    text = f"""
HloModule m
ENTRY e {{
  x = f32[64] parameter(0)
  c = f32[2] constant({{1, 2}})
  k = f32[64] sort(x), {SORT}
  ROOT r = (f32[64], f32[64], f32[64], f32[2]) tuple(k, x, k, c)
}}
"""
    plan = plan_of(text, VALUES)
    assert [str(own) for own in plan.result_slices] == ["result 0", "result 1", "result 2", "result 3"]
    assert ("%x", "%x.result") in copied(plan)
    assert ("%k", "%k.result") in copied(plan)
    assert ("%c", "%c.result") in copied(plan)


def test_values_that_live_together_never_share():
    """What the assignment says of live ranges, for every pair of slices of the arena."""
    for number in range(6):
        plan = generated_plan(number)
        slices = [own for own in plan.slices if own.space is Space.ARENA]
        for i, a in enumerate(slices):
            for b in slices[:i]:
                together = a.first <= b.last and b.first <= a.last
                assert not (together and a.offset < b.offset + b.size and b.offset < a.offset + a.size)


def generated_plan(number: int) -> MemoryPlan:
    from fuzz.programs.composed.modules import module

    return compiled(module(5, number).text).memory_plan()


def test_the_printed_form():
    text = loop(
        "(s32[], f32[64], f32[64])",
        """  a = f32[64] get-tuple-element(p), index=1
  b = f32[64] get-tuple-element(p), index=2
  ROOT r = (s32[], f32[64], f32[64]) tuple(next, b, a)""",
        '  l = f32[64] abs(k), metadata={source_file="model.py" source_line=5}\n'
        "  first = (s32[], f32[64], f32[64]) tuple(zero, k, l)",
        "  ROOT r = f32[64] get-tuple-element(w), index=1",
    )
    printed = plan_of(text, VALUES, plain="rewrites").as_text()
    lines = [line.split("  ") for line in printed.splitlines()]
    assert "copy %w{1} -> %w{1}.held" in printed
    assert "   3   while w: test 5, back 7, end 8" in printed
    assert "%l (model.py:5), %w{2}" in printed
    assert any(line[-1].strip() == "apart" for line in lines)
    assert "loop-init %k -> %w{1} at 3" in printed


def test_the_plan_does_not_depend_on_what_else_was_compiled():
    texts: Callable[[], str] = lambda: generated_plan(3).as_text()  # noqa: E731
    first = texts()
    generated_plan(4)
    assert texts() == first
