"""The checker accepts right plans, and names for wrong ones the step that reads, the value, and the last writer."""

import random
from collections import Counter
from dataclasses import replace
from unittest import mock

import pytest

from fuzz import memory_plans, plan_mutations
from fuzz.idioms import FAMILIES
from fuzz.plan_mutations import rows_of, with_row, with_slice
from xlakit import compile as compile_program
from xlakit.cpu import codegen
from xlakit.cpu.codegen import generate
from xlakit.cpu.entry.plan_proof import prove_memory_plan
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule
from xlakit.memory.assignment import SMALL_BYTES, BufferSlice, Space
from xlakit.memory.checker.faults import MemoryPlanError
from xlakit.memory.plan import plan_memory
from xlakit.memory.steps import (
    CollectiveStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    RandomStep,
    WhileStep,
    walk,
)
from xlakit.memory.values import HloValue, ValueKind
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
# Between start and done the other device may read %x and write %s at any time.
ASYNC = f"""
HloModule asynchronous, replica_count=2

{_LESS}

sum {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }}

ENTRY e {{
  p = f32[64] parameter(0)
  x = f32[64] sine(p)
  s = f32[64] all-reduce-start(x), replica_groups={{{{0,1}}}}, to_apply=sum
  y = f32[64] cosine(p)
  z = f32[64] sort(y), {_SORT}
  d = f32[64] all-reduce-done(s)
  ROOT r = f32[64] add(d, z)
}}
"""
# The same with %y there before the start, so that between start and done it is only read.
ASYNC_BEHIND = ASYNC.replace("  y = f32[64] cosine(p)\n", "").replace(
    "  s = f32[64] all-reduce-start", "  y = f32[64] cosine(p)\n  s = f32[64] all-reduce-start"
)
TWO_ASYNC = (
    ASYNC.replace("  d = f32", "  t = f32[64] all-reduce-start(z), replica_groups={{0,1}}, to_apply=sum\n  d = f32")
    .replace("add(d, z)", "add(d, e)")
    .replace("  ROOT r = f32[64] add(d", "  e = f32[64] all-reduce-done(t)\n  ROOT r = f32[64] add(d")
)
WHOLE = """
HloModule whole, replica_count=2

sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }

ENTRY e {
  p = f32[64] parameter(0)
  x = f32[64] sine(p)
  s = f32[64] all-reduce(x), replica_groups={{0,1}}, to_apply=sum
  ROOT m = f32[64] collective-permute(s), source_target_pairs={{0,1},{1,0}}
}
"""
# %n is still read when %u has changed it, so that is done to a copy.
CHANGED = f"""
HloModule changed

ENTRY e {{
  p = f32[64] parameter(0)
  v = f32[2] parameter(1)
  k = s32[] parameter(2)
  c = f32[64] constant({{{", ".join(map(str, range(64)))}}})
  n = f32[64] exponential(p)
  u = f32[64] dynamic-update-slice(n, v, k)
  d = f32[64] multiply(n, u)
  q = f32[64] reverse(d), dimensions={{0}}
  ROOT r = f32[64] add(q, c)
}}
"""
DRAWN = """
HloModule drawn

ENTRY e {
  low = f32[] parameter(0)
  high = f32[] parameter(1)
  ROOT r = f32[64] rng(low, high), distribution=rng_uniform
}
"""
ASKED = """
HloModule asked

ENTRY e {
  p = f32[64] parameter(0)
  x = f32[64] sine(p)
  ROOT c = f32[64] custom-call(x), custom_call_target="asked"
}
"""
TWO_SORTED = f"""
HloModule two

less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}}

ENTRY e {{
  p = f32[64] parameter(0)
  q = f32[64] parameter(1)
  s = (f32[64], f32[64]) sort(p, q), {_SORT}
  a = f32[64] get-tuple-element(s), index=0
  b = f32[64] get-tuple-element(s), index=1
  ROOT r = f32[64] subtract(a, b)
}}
"""
BRANCHES = f"""
HloModule branches

{_LESS}

up {{ p = f32[64] parameter(0)  ROOT r = f32[64] sort(p), {_SORT} }}

down {{ p = f32[64] parameter(0)  ROOT r = f32[64] reverse(p), dimensions={{0}} }}

ENTRY e {{
  i = s32[] parameter(0)
  p = f32[64] parameter(1)
  ROOT c = f32[64] conditional(i, p, p, p), branch_computations={{up, down, up}}
}}
"""


def _broken(text, change):
    """What the checker says of a program whose plan was changed."""
    patch = mock.patch.object(codegen, "plan_memory", lambda *given: change(plan_memory(*given)))
    with patch, compiling(check_memory=True, knobs={SMALL_BYTES.name: 0}), pytest.raises(MemoryPlanError) as caught:
        module = HloModule.from_text(text)
        generate(module, Target(Grid(module.replica_count, 1)))
    return caught.value


def _kernels(plan):
    return {s.instruction.name: s for s in plan.steps if isinstance(s, KernelStep)}


def _result_slice(plan, name):
    return plan.slice_of(_kernels(plan)[name].results[0])


def test_the_fault_names_step_value_and_last_writer():
    def change(plan):
        moved = _result_slice(plan, "y")
        return with_slice(plan, moved.values, replace(moved, offset=_result_slice(plan, "x").offset))

    error = _broken(SORTS, change)
    assert error.instruction is not None
    assert error.instruction.name == "w"
    assert (error.step, error.expected) == ("the kernel step of add %w", "%x")
    assert error.writer in ("the kernel step of negate %y", "the kernel step of sort %z")
    assert "reads %x in" in str(error)


def test_a_loop_is_wrong_in_its_second_iteration():
    def change(plan):
        (loop,) = (s for s in plan.steps if isinstance(s, WhileStep))
        # Two states change places over a third slice; without it one value is lost.
        first = next(s for s in loop.body if isinstance(s, CopyStep))
        return replace(plan, steps=with_row(plan.steps, loop.body, [s for s in loop.body if s is not first]))

    assert _broken(SWAP, change).expected.startswith("the state of %w")


def test_steps_in_another_order_are_refused():
    error = _broken(SORTS, lambda plan: replace(plan, steps=[plan.steps[1], plan.steps[0], *plan.steps[2:]]))
    assert "which has no step" in error.rule


@pytest.mark.parametrize(("bytes", "said"), [(1 << 20, "which has"), (4, "not aligned")])
def test_a_slice_beyond_the_arena_and_one_that_is_not_aligned_are_refused(bytes, said):
    def change(plan):
        own = _result_slice(plan, "x")
        moved = with_slice(plan, own.values, replace(own, offset=own.offset + bytes))
        return replace(moved, arena_bytes=plan.arena_bytes + 64) if bytes < 64 else moved

    assert said in str(_broken(SORTS, change))


@pytest.mark.parametrize(("other", "verb"), [("x", "reads"), ("s", "writes")])
def test_memory_of_an_open_collective_is_not_written(other, verb):
    def change(plan):
        (start,) = (s for s in plan.steps if isinstance(s, CollectiveStep) and s.part == "start")
        busy = start.operands[0] if other == "x" else start.results[0]
        return with_slice(plan, _kernels(plan)["y"].results, plan.slice_of(busy))

    error = _broken(ASYNC, change)
    assert error.step == "the kernel step of cosine %y"
    assert f"still {verb} that" in error.rule


def _with_step(kind, number, **changes):
    """A change of the plan: fields of one step of a kind."""

    def change(plan):
        old = [s for s in plan.steps if isinstance(s, kind)][number]
        made = {name: value(old) for name, value in changes.items()}
        return replace(plan, steps=[replace(s, **made) if s is old else s for s in plan.steps])

    return change


def _overlapping(plan, value, other):
    """A plan in which a value overlaps another one's slice."""
    own = plan.slice_of(other)
    moved = with_slice(plan, [value], replace(own, offset=own.offset + 64))
    return replace(moved, arena_bytes=plan.arena_bytes + 64)


def _with_overlapping_results(plan):
    return _overlapping(plan, *_kernels(plan)["s"].results)


def _with_overlapping_copy(plan):
    copies = [s for s in walk(plan.steps) if isinstance(s, CopyStep) and s.source.bytes > 64]
    copy = next(s for s in copies if plan.slice_of(s.source).space is Space.ARENA)
    return _overlapping(plan, copy.target, copy.source)


@pytest.mark.parametrize(
    ("text", "change", "said"),
    [
        (ASYNC, _with_step(CollectiveStep, 1, operands=lambda step: step.results), "was started on other memory"),
        (ASYNC, lambda plan: replace(plan, steps=[*plan.steps, plan.steps[0]]), "no instruction of HLO asks for it"),
        (TWO_SORTED, _with_overlapping_results, "which overlap"),
        (SWAP, _with_overlapping_copy, "which overlap"),
        (SORTS, _with_step(KernelStep, 0, operands=lambda step: ()), "other arrays than 1 operands and 1 results"),
        (SORTS, _with_step(KernelStep, 0, phases=lambda step: ()), "no code that writes its results"),
        (BRANCHES, _with_step(ConditionalStep, 0, branches=lambda step: step.branches[1:]), "2 branches instead of 3"),
    ],
)
def test_steps_that_do_not_fit_the_program_are_refused(text, change, said):
    assert said in _broken(text, change).rule


def _moved(name, to):
    """A change of the plan: the result of a kernel in another slice, given its own and the plan."""

    def change(plan):
        own = _result_slice(plan, name)
        made = to(plan, own)
        return replace(with_slice(plan, own.values, made), arena_bytes=plan.arena_bytes + 4096)

    return change


def _steps_without(kind, number):
    def change(plan):
        old = [s for s in walk(plan.steps) if isinstance(s, kind)][number]
        row = next(row for row in rows_of(plan.steps) if old in row)
        return replace(plan, steps=with_row(plan.steps, row, [s for s in row if s is not old]))

    return change


def _results(plan, *names):
    return [_kernels(plan)[name].results[0] for name in names]


def _with_open_permute(plan):
    """The last collective is begun only; its arrival is noted in memory that nothing else has."""
    arrival = HloValue(ValueKind.SCRATCH, 8, None)
    far = BufferSlice(Space.ARENA, -1, -(-plan.arena_bytes // 64) * 64, 64, (arrival,), 0, 0)
    change = _with_step(CollectiveStep, 1, part=lambda _: "start", arrival=lambda _: (arrival,))
    return replace(with_slice(change(plan), [arrival], far), arena_bytes=far.offset + 64)


def _with_function_in_place(plan):
    """Python would take a copy of the operand; a function gets pointers to one memory."""
    step = next(s for s in plan.steps if isinstance(s, HostStep))
    changed = with_slice(plan, step.results, plan.slice_of(step.operands[0]))
    return _with_step(HostStep, 0, function=lambda _: "asked")(changed)


def _with_copy_of_sum(plan):
    """A copy out of the memory that the open collective writes."""
    start = next(n for n, s in enumerate(plan.steps) if isinstance(s, CollectiveStep))
    copy = CopyStep(plan.steps[start].results[0], _kernels(plan)["z"].results[0])
    return replace(plan, steps=[*plan.steps[: start + 1], copy, *plan.steps[start + 1 :]])


def _with_moved_branch(number):
    """What a branch gives is not where the result of the conditional is."""

    def change(plan):
        (step,) = (s for s in plan.steps if isinstance(s, ConditionalStep))
        value = step.branches[number][-1].results[0]
        far = replace(plan.slice_of(value), space=Space.ARENA, offset=-(-plan.arena_bytes // 64) * 64)
        return replace(with_slice(plan, [value], far), arena_bytes=far.offset + 4096)

    return change


@pytest.mark.parametrize(
    ("text", "change", "said"),
    [
        # Slices that are not there, or too small.
        (SORTS, _moved("x", lambda plan, own: replace(own, offset=-64)), "is given arena[-64"),
        (SORTS, _moved("x", lambda plan, own: replace(own, size=own.size - 64)), "which has 192"),
        (SORTS, _moved("x", lambda plan, own: replace(own, space=Space.RESULT, number=1)), "there is no such one"),
        (CHANGED, _moved("n", lambda plan, own: replace(own, space=Space.ARGUMENT, number=1)), "it has 8"),
        (CHANGED, _moved("d", lambda plan, own: plan.slice_of(_constant(plan))), "writes to constant"),
        # Results over operands, where the kernel allows it elsewhere or not at all.
        (CHANGED, _moved("q", lambda plan, own: _result_slice(plan, "d")), "element -1*i0 + 63"),
        (CHANGED, lambda plan: _overlapping(plan, *_results(plan, "d", "u")), "they are not the same slice"),
        (WHOLE, lambda plan: _over_its_operand(plan, 1), "collective-permute moves elements"),
        (SORTS, _with_step(KernelStep, 0, in_place=lambda step: frozenset({(0, 0)})), "allows result 0 in the memory"),
        (CHANGED, _steps_without(CopyStep, 0), "changes a part of"),
        # Loops and branches.
        (SWAP, _with_step(WhileStep, 0, predicate=lambda step: step.carried[0]), "reads"),
        (BRANCHES, _with_step(ConditionalStep, 0, index=lambda step: step.results[0]), "reads %i"),
        *((BRANCHES, _with_moved_branch(number), "reads %c in result 0") for number in range(3)),
        # Collectives, and what other devices do to memory until they are done.
        (ASYNC, _with_step(CollectiveStep, 0, operands=lambda step: ()), "slices for 0 arrays instead of 1"),
        (ASYNC, _with_step(CollectiveStep, 0, part=lambda step: ""), "that no step has started"),
        (ASYNC, _with_copy_of_sum, "reads"),
        (ASYNC_BEHIND, lambda plan: _sum_at(plan, 0, _kernels(plan)["y"].results[0]), "still writes that"),
        (TWO_ASYNC, lambda plan: _sum_at(plan, 1, _starts(plan)[0].results[0]), "still writes that"),
        (TWO_ASYNC, lambda plan: _sum_at(plan, 1, _starts(plan)[0].operands[0]), "still reads that"),
        (WHOLE, _with_open_permute, "is not awaited where its computation ends"),
        # Python, and numbers that are drawn.
        (ASKED, _with_step(HostStep, 0, operands=lambda step: step.results), "reads %x"),
        (ASKED, _with_step(HostStep, 0, results=lambda step: ()), "slices for 0 arrays instead of 1"),
        (ASKED, _with_function_in_place, "may read when it has written"),
        (DRAWN, _steps_without(RandomStep, 0), "without a state"),
        (DRAWN, _with_step(KernelStep, 0, scratch=lambda step: step.operands[:1]), "reads the state for %r"),
    ],
)
def test_each_thing_that_a_plan_may_get_wrong_is_refused(text, change, said):
    assert said in _broken(text, change).rule


def _constant(plan):
    return next(v for own in plan.slices if own.space is Space.CONSTANT for v in own.values if v.bytes == 256)


def _starts(plan):
    return [s for s in plan.steps if isinstance(s, CollectiveStep) and s.part == "start"]


def _sum_at(plan, number, value):
    """The result of an asynchronous sum in the slice of another value."""
    return with_slice(plan, _starts(plan)[number].results, plan.slice_of(value))


def _over_its_operand(plan, number):
    step = [s for s in plan.steps if isinstance(s, CollectiveStep)][number]
    return with_slice(plan, step.results, plan.slice_of(step.operands[0]))


def test_arguments_are_not_written():
    def change(plan):
        return with_slice(plan, _kernels(plan)["y"].results, plan.slice_of(plan.arguments[0]))

    assert "writes to" in str(_broken(SORTS, change))


def test_a_result_at_an_argument_must_not_be_written_while_that_is_read():
    with compiling(check_memory=False):
        plan = generate(HloModule.from_text(DONATED), Target(Grid(1, 1))).plan
    prove_memory_plan(plan, Grid(1, 1))
    with pytest.raises(MemoryPlanError, match=r"reverse %m reads %p in argument 0"):
        prove_memory_plan(replace(plan, donations=((0, 0),)), Grid(1, 1))


@pytest.mark.parametrize("size", [3, 40])
def test_factors_may_lie_in_the_memory_of_their_matrices(size):
    array = f"f32[{size},{size}]"
    text = f"""HloModule m
ENTRY e {{
  p = {array} parameter(0)
  x = {array} add(p, p)
  f = {array} cholesky(x), lower=true
  ROOT s = {array} triangular-solve(f, p), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
}}
"""
    compile_program(HloModule.from_text(text))


def test_it_is_on_in_tests():
    assert current().check_memory


def test_with_it_on_a_wrong_plan_is_no_program():
    def plan(*given):
        made = plan_memory(*given)
        return replace(made, steps=made.steps[::-1])

    with mock.patch.object(codegen, "plan_memory", plan), pytest.raises(MemoryPlanError):
        compile_program(HloModule.from_text(SORTS), backend="cpu", cache=False)


@pytest.mark.parametrize("number", range(24))
def test_plans_of_generated_programs_are_right(number):
    if memory_plans.SOURCES[number % len(memory_plans.SOURCES)] is memory_plans.jax_program:
        pytest.importorskip("jax")
    assert not memory_plans.judge(memory_plans.program(11, number), 11, number)


@pytest.mark.parametrize("number", range(4))
def test_broken_plans_are_refused_where_a_run_would_differ(number):
    counts = Counter()
    program = FAMILIES["carried"](7, number)
    assert not plan_mutations.judge(program, random.Random(number), counts)
    assert counts["refused"]
