"""The checker accepts right plans, and says of wrong ones which step reads what, and who has written there."""

import random
from unittest import mock

import pytest

from fuzz import memory_plans, plan_mutations
from fuzz.idioms import FAMILIES
from xlakit import compile as compile_program
from xlakit.cpu.checker import check as checker
from xlakit.cpu.checker.check import check_memory_plan
from xlakit.cpu.checker.faults import MemoryPlanError
from xlakit.cpu.compile import generate
from xlakit.cpu.entry.steps import CopyStep, KernelStep, WhileStep
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling, current

_SORT = "dimensions={0}, to_apply=less"
_LESS = "less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }"
SORTS = f"""
HloModule m

{_LESS}

ENTRY e {{
  p = f32[64] parameter(0)
  x = f32[64] sort(p), {_SORT}
  y = f32[64] negate(p)
  z = f32[64] sort(y), {_SORT}, metadata={{source_file="model.py" source_line=9}}
  w = f32[64] add(x, z)
  ROOT v = f32[64] sort(w), {_SORT}
}}
"""
SWAP = """
HloModule swap

body {
  p = (s32[], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[64] get-tuple-element(p), index=1
  b = f32[64] get-tuple-element(p), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = (s32[], f32[64], f32[64]) tuple(n, b, a)
}

condition {
  p = (s32[], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}

ENTRY e {
  i = s32[] parameter(0)
  a = f32[64] parameter(1)
  b = f32[64] parameter(2)
  s = (s32[], f32[64], f32[64]) tuple(i, a, b)
  ROOT w = (s32[], f32[64], f32[64]) while(s), condition=condition, body=body
}
"""
DONATED = """
HloModule donated, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY e {
  p = f32[64] parameter(0)
  n = f32[64] negate(p)
  m = f32[64] reverse(p), dimensions={0}
  ROOT r = (f32[64], f32[64]) tuple(n, m)
}
"""


def _broken(text, change):
    """What the checker says of a program whose steps were changed."""

    def check(module, lowered, *rest):
        change(lowered.steps)
        check_memory_plan(module, lowered, *rest)

    patch = mock.patch.object(checker, "check_memory_plan", check)
    with patch, compiling(check_memory=True, knobs={"emit.small_bytes": 0}), pytest.raises(MemoryPlanError) as caught:
        generate(HloModule.from_text(text), Target(Grid(1, 1)))
    return caught.value


def _kernels(steps):
    return {s.instruction.name: s for s in steps if isinstance(s, KernelStep)}


def test_the_fault_names_step_value_and_last_writer():
    def change(steps):
        kernels = _kernels(steps)
        kernels["y"].table[-1].resolved().offset = kernels["x"].table[1].resolved().offset

    error = _broken(SORTS, change)
    assert error.instruction is not None
    assert error.instruction.name == "w"
    assert (error.step, error.expected) == ("the kernel step of add %w", "%x")
    assert error.writer in ("the kernel step of negate %y", "the kernel step of sort %z")
    assert "reads %x in" in str(error)


def test_a_loop_is_wrong_in_its_second_iteration():
    def change(steps):
        (loop,) = (s for s in steps if isinstance(s, WhileStep))
        copies = [s for s in loop.body if isinstance(s, CopyStep)]
        # Two states change places over a third buffer; without it one value is lost.
        loop.body.remove(copies[0])

    assert _broken(SWAP, change).expected.startswith("the state of %w")


def test_steps_in_another_order_are_refused():
    def change(steps):
        steps[0], steps[1] = steps[1], steps[0]

    assert "which has no step" in _broken(SORTS, change).rule


def test_a_slice_beyond_the_arena_and_one_that_is_not_aligned_are_refused():
    def beyond(steps):
        _kernels(steps)["x"].table[1].resolved().offset += 1 << 20

    def shifted(steps):
        _kernels(steps)["x"].table[1].resolved().offset += 4

    assert "of the arena, which has" in str(_broken(SORTS, beyond))
    assert "not aligned" in str(_broken(SORTS, shifted))


def test_arguments_are_not_written():
    def change(steps):
        step = _kernels(steps)["y"]
        step.table = (step.table[0], step.table[0])

    assert "writes to" in str(_broken(SORTS, change))


def test_a_result_at_an_argument_must_not_be_written_while_that_is_read():
    with compiling(check_memory=False):
        code = generate(HloModule.from_text(DONATED), Target(Grid(1, 1)))
    check_memory_plan(code.module, code.lowered, code.arena_bytes, Grid(1, 1), ())
    with pytest.raises(MemoryPlanError, match=r"reverse %m reads %p in argument 0"):
        check_memory_plan(code.module, code.lowered, code.arena_bytes, Grid(1, 1), [(0, 0)])


def test_it_is_on_in_tests():
    assert current().check_memory


def test_with_it_on_a_wrong_plan_is_no_program():
    def check(module, lowered, *rest):
        lowered.steps.reverse()
        check_memory_plan(module, lowered, *rest)

    with mock.patch.object(checker, "check_memory_plan", check), pytest.raises(MemoryPlanError):
        compile_program(HloModule.from_text(SORTS), backend="cpu", cache=False)


@pytest.mark.parametrize("number", range(24))
def test_plans_of_generated_programs_are_right(number):
    if memory_plans.SOURCES[number % len(memory_plans.SOURCES)] is memory_plans.jax_program:
        pytest.importorskip("jax")
    assert not memory_plans.judge(memory_plans.program(11, number), 11, number)


@pytest.mark.parametrize("number", range(4))
def test_broken_plans_are_refused_where_a_run_would_differ(number):
    counts = plan_mutations.Counter()
    program = FAMILIES["carried"](7, number)
    assert not plan_mutations.judge(program, random.Random(number), counts)
    assert counts["refused"]
