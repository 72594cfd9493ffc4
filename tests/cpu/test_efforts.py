"""Kernels that run once and cost next to nothing are compiled quickly; they give the same bits."""

import numpy as np
import pytest
from evaluating import build, f32

import xlakit as xla
from xlakit import options, target
from xlakit.cpu.codegen import generate
from xlakit.cpu.llvm import Effort, engine
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.passes.pipeline import run_pipeline

FEW = "effort.quick_nanoseconds", "effort.quick_together"


def code_of(program):
    """The code of a module or a computation."""
    module = program if isinstance(program, xla.HloModule) else program.to_module()
    return generate(run_pipeline(module), Target(Grid(1, 1))).llvm


def efforts(program):
    """The efforts of a program's parts."""
    return {effort for effort, _ in code_of(program).parts()}


def in_a_loop(*sizes):
    """A program that does the same to an array ten times over."""
    state = f"(s32[], f32[{','.join(map(str, sizes))}])"
    array = state[:-1].partition(", ")[2]
    return xla.HloModule.from_text(f"""HloModule loop
    body {{
      s = {state} parameter(0)
      i = s32[] get-tuple-element(s), index=0
      x = {array} get-tuple-element(s), index=1
      one = s32[] constant(1)
      next = s32[] add(i, one)
      y = {array} multiply(x, x)
      ROOT t = {state} tuple(next, y)
    }}
    condition {{
      s = {state} parameter(0)
      i = s32[] get-tuple-element(s), index=0
      ten = s32[] constant(10)
      ROOT less = pred[] compare(i, ten), direction=LT
    }}
    ENTRY e {{ s = {state} parameter(0) ROOT w = {state} while(s), condition=condition, body=body }}
    """)


def test_a_few_elements_once_are_compiled_quickly():
    assert efforts(build(lambda x, y: x * y + 1.0, f32(3), f32(3))) == {Effort.LITTLE}


def test_more_elements_get_good_code():
    assert Effort.CODE in efforts(build(lambda x, y: x * y + xla.sin(x), f32(30, 7), f32(30, 7)))


@pytest.mark.parametrize("size", [1, 3, 4, 12, 31])
def test_a_kernel_in_a_loop_is_inlined(size):
    with options.compiling(vector_bytes=64):
        code = code_of(in_a_loop(size))
    assert {effort for effort, _ in code.parts()} == {Effort.TIDY}  # it has no loop that LLVM could improve
    assert "alwaysinline" in code.functions["hlo.y"].attributes


def test_scalars_that_a_loop_carries_are_in_registers():
    program = xla.HloModule.from_text("""HloModule steps
    body {
      s = (s64[], s64[]) parameter(0)
      n = s64[] get-tuple-element(s), index=0
      steps = s64[] get-tuple-element(s), index=1
      one = s64[] constant(1)
      three = s64[] constant(3)
      odd = s64[] and(n, one)
      is_odd = pred[] compare(odd, one), direction=EQ
      half = s64[] shift-right-arithmetic(n, one)
      triple = s64[] multiply(n, three)
      more = s64[] add(triple, one)
      next = s64[] select(is_odd, more, half)
      count = s64[] add(steps, one)
      ROOT t = (s64[], s64[]) tuple(next, count)
    }
    condition {
      s = (s64[], s64[]) parameter(0)
      n = s64[] get-tuple-element(s), index=0
      one = s64[] constant(1)
      ROOT goes_on = pred[] compare(n, one), direction=NE
    }
    ENTRY e {
      n = s64[] parameter(0)
      zero = s64[] constant(0)
      s = (s64[], s64[]) tuple(n, zero)
      w = (s64[], s64[]) while(s), condition=condition, body=body
      ROOT steps = s64[] get-tuple-element(w), index=1
    }""")
    made = xla.compile(program, backend="cpu")
    assert " alloca " not in made.llvm_ir()
    assert made(np.int64(27)) == 111


_CARRIED = "(s32[], s32[], s32[500], s32[500], s32[500], s32[500], s32[])"
# One row of an alignment of two strings.
_ALIGNMENT = f"""HloModule row
  body {{
    s = {_CARRIED} parameter(0)
    i = s32[] get-tuple-element(s), index=0
    left = s32[] get-tuple-element(s), index=1
    row = s32[500] get-tuple-element(s), index=2
    corners = s32[500] get-tuple-element(s), index=3
    letters = s32[500] get-tuple-element(s), index=4
    scores = s32[500] get-tuple-element(s), index=5
    wanted = s32[] get-tuple-element(s), index=6
    row_i = s32[1] dynamic-slice(row, i), dynamic_slice_sizes={{1}}
    above = s32[] reshape(row_i)
    corners_i = s32[1] dynamic-slice(corners, i), dynamic_slice_sizes={{1}}
    corner = s32[] reshape(corners_i)
    letters_i = s32[1] dynamic-slice(letters, i), dynamic_slice_sizes={{1}}
    letter = s32[] reshape(letters_i)
    is_same = pred[] compare(letter, wanted), direction=EQ
    three = s32[] constant(3)
    loss = s32[] constant(-3)
    change = s32[] select(is_same, three, loss)
    matched = s32[] add(corner, change)
    near = s32[] maximum(above, left)
    gap = s32[] constant(2)
    moved = s32[] subtract(near, gap)
    best = s32[] maximum(matched, moved)
    zero = s32[] constant(0)
    score = s32[] maximum(best, zero)
    score_1 = s32[1] reshape(score)
    all = s32[500] dynamic-update-slice(scores, score_1, i)
    one = s32[] constant(1)
    j = s32[] add(i, one)
    ROOT t = {_CARRIED} tuple(j, score, row, corners, letters, all, wanted)
  }}
  condition {{
    s = {_CARRIED} parameter(0)
    i = s32[] get-tuple-element(s), index=0
    n = s32[] constant(500)
    ROOT goes_on = pred[] compare(i, n), direction=LT
  }}
  ENTRY e {{
    row = s32[500] parameter(0)
    corners = s32[500] parameter(1)
    letters = s32[500] parameter(2)
    wanted = s32[] parameter(3)
    zero = s32[] constant(0)
    scores = s32[500] broadcast(zero), dimensions={{}}
    s = {_CARRIED} tuple(zero, zero, row, corners, letters, scores, wanted)
    w = {_CARRIED} while(s), condition=condition, body=body
    ROOT found = s32[500] get-tuple-element(w), index=5
  }}"""


@pytest.mark.skipif(not target.is_x86(), reason="conditional moves of x86")
def test_a_loop_waits_for_conditional_moves_and_not_for_branches():
    """Which of the maxima of an alignment wins cannot be predicted."""
    program = xla.HloModule.from_text(_ALIGNMENT)
    made = xla.compile(program, backend="cpu", cache=False)
    # The element's number, the change, and two maxima; the maximum with zero is a mask.
    assert made.assembly().partition("xlakit_entry:")[2].count("\tcmov") >= 4
    rng = np.random.default_rng(5)
    row, corners = rng.integers(0, 20, (2, 500), dtype=np.int32)
    letters = rng.integers(0, 4, 500, dtype=np.int32)
    expected, left = [], 0
    for above, corner, letter in zip(row, corners, letters, strict=True):
        left = max(corner + (3 if letter == 1 else -3), max(above, left) - 2, 0)
        expected.append(left)
    np.testing.assert_array_equal(made(row, corners, letters, np.int32(1)), expected)


@pytest.mark.parametrize("size", [4, 7, 12, 15, 30])
def test_arrays_that_fill_no_register_are_computed_in_narrower_vectors(size):
    with options.compiling(knobs=dict.fromkeys(FEW, 0.0), vector_bytes=64):
        code = code_of(build(lambda x: x * x, f32(size)))
    texts = [fn.text() for name, fn in code.functions.items() if name.startswith("hlo.")]
    width = max(lanes for lanes in (4, 8, 16) if lanes <= size)
    assert any(f"fmul <{width} x float>" in text for text in texts)
    assert not any("llvm.access.group" in text for text in texts)


def test_many_small_kernels_share_what_they_may_cost():
    module = build(lambda x, y: x * y + 1.0, f32(3), f32(3))
    with options.compiling(knobs={"effort.quick_together": 0.0}):
        assert efforts(module) != {Effort.LITTLE}


def test_sums_that_llvm_may_reorder_are_left_to_it():
    module = build(lambda x: xla.reduce(x, 0.0, xla.add, [0]), f32(5, 3))
    with options.compiling(knobs={"effort.quick_nanoseconds": 1e6, "effort.quick_together": 1e6}):
        code = code_of(module)
    sums = [fn for fn in code.functions.values() if " reassoc " in fn.text()]
    assert all(fn.effort is not Effort.LITTLE for fn in sums)


@pytest.mark.parametrize("few", [0.0, 1e6])
def test_the_results_are_the_same_bits(few):
    def program(x, y):
        z = xla.exp(x * y) / (1.5 + xla.abs(y))
        return xla.tuple_([z, xla.select(z > 1.0, x - y, z), xla.dot(x, xla.transpose(y, [1, 0]))])

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(4, 5)).astype(np.float32) for _ in range(2)]
    module = build(program, f32(4, 5), f32(4, 5))
    expected = xla.compile(module, cache=False)(*arrays)
    names = (*FEW, "effort.scalar_nanoseconds", "effort.rolled_nanoseconds")
    with options.compiling(knobs=dict.fromkeys(names, few)):
        found = xla.compile(module, cache=False)(*arrays)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(a).view(np.uint32), np.asarray(b).view(np.uint32))


STORED_FROM_ITS_END = """define void @f(ptr noalias %p, ptr noalias %q) {
  %table = alloca ptr
  %a = alloca [20 x i8], align 16
  store ptr %a, ptr %table
  %b = load ptr, ptr %table
  %p16 = getelementptr i8, ptr %p, i64 16
  %b16 = getelementptr i8, ptr %b, i64 16
  %tail = load <4 x i8>, ptr %p16, align 1
  store <4 x i8> %tail, ptr %b16, align 1
  %head = load <16 x i8>, ptr %p, align 1
  store <16 x i8> %head, ptr %b, align 1
  %all = load <20 x i8>, ptr %b, align 1
  store <20 x i8> %all, ptr %q, align 1
  ret void
}"""


@pytest.mark.parametrize("tidies", [False, True])
def test_arrays_that_are_stored_from_their_ends(tidies):
    """LLVM's scalar replacement joins their vectors before some are computed; its code generator would abort."""
    with engine.optimized_module(STORED_FROM_ITS_END, tidies=tidies) as module:
        assert module.is_valid
        assert engine.emit_object(module)
