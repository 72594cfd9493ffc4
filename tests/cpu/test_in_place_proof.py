"""What kernels may do in place follows from what they state that they read and write, and when."""

import numpy as np
import pytest

from fuzz.programs.composed.modules import module as generated
from xlakit import compile
from xlakit.cpu.codegen import generate
from xlakit.cpu.entry.in_place import Refusals, in_place_pairs
from xlakit.cpu.loops.emit.accesses import Access, Accesses
from xlakit.cpu.loops.emit.kernel import Kernel, Phase
from xlakit.cpu.loops.ir.index import Variable, of
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule
from xlakit.memory.steps import CollectiveStep, KernelStep
from xlakit.memory.values import HloValue, ValueKind
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline

# The index of a row, and that of an element of a row of four.
ROW, ELEMENT = of(Variable(8, 0)), of(Variable(8, 0), 4) + of(Variable(4, 1))


def _module(body, parameters):
    declared = "\n".join(f"p{n} = {shape} parameter({n})" for n, shape in enumerate(parameters))
    given = "\n".join(f"a{n} = {shape} parameter({n})" for n, shape in enumerate(parameters))
    root = next(line for line in body.splitlines() if "ROOT" in line)
    shape = root.split("=")[1].rsplit("(", 1)[0].rsplit(" ", 1)[0]
    call = f"ROOT f = {shape} fusion({', '.join(f'a{n}' for n in range(len(parameters)))}), kind=kLoop, calls=fused"
    sums = "sum {\na = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT r = f32[] add(a, b)\n}"
    return HloModule.from_text(
        f"HloModule m\n{sums}\nfused {{\n{declared}\n{body}\n}}\nENTRY e {{\n{given}\n{call}\n}}\n"
    )


def _pairs(body, *parameters):
    """The pairs that the kernel of a fusion allows, each proved; the proof refuses all others."""
    module = _module(body, parameters or ("f32[8,4]",))
    with compiling(plain="rewrites", check_memory=True):
        plan = generate(module, Target(Grid(1, 1))).plan
    (step,) = (step for step in plan.steps if isinstance(step, KernelStep))
    every = [(r, o) for r, v in enumerate(step.results) for o, w in enumerate(step.operands) if v.bytes == w.bytes]
    assert step.in_place == {pair for pair in every if not Refusals().refusal(step, *pair)}
    return set(step.in_place)


def test_an_element_is_read_where_it_is_written():
    assert _pairs("ROOT r = f32[8,4] negate(p0)") == {(0, 0)}
    assert _pairs("n = f32[32] reshape(p0)\nm = f32[32] negate(n)\nROOT r = f32[8,4] reshape(m)") == {(0, 0)}
    assert _pairs("n = f32[8,4] negate(p0)\nROOT r = (f32[8,4], f32[8,4]) tuple(p0, n)") == {(0, 0), (1, 0)}


def test_results_without_elements_share_no_memory():
    module = HloModule.from_text(
        "HloModule m\nENTRY e { p = f32[9,5,0,2] parameter(0) ROOT n = f32[9,5,0,2] negate(p) }"
    )
    with compiling(plain="rewrites"):
        plan = generate(module, Target(Grid(1, 1))).plan
    assert not any(step.in_place for step in plan.steps if isinstance(step, KernelStep))


@pytest.mark.parametrize(
    "body",
    [
        "n = f32[8,4] negate(p0)\nm = f32[8,4] reverse(n), dimensions={0}\nROOT r = f32[8,4] add(n, m)",
        """n = f32[8,1] slice(p0), slice={[0:8],[0:1]}
m = f32[8] reshape(n)
ROOT r = f32[8,4] broadcast(m), dimensions={0}""",
        "n = f32[8,4] reverse(p0), dimensions={1}\nROOT r = (f32[8,4], f32[8,4]) tuple(p0, n)",
    ],
)
def test_an_element_is_read_elsewhere(body):
    assert not _pairs(body)


def test_elements_of_another_size_are_elsewhere():
    assert not _pairs("n = u8[8] slice(p0), slice={[0:8]}\nROOT r = f32[8] convert(n)", "u8[32]")


def test_rows_are_read_before_they_are_written_and_summed_after_those_of_others():
    rows = """z = f32[] constant(0)
s = f32[64] reduce(p0, z), dimensions={1}, to_apply=sum
b = f32[64,64] broadcast(s), dimensions={0}
d = f32[64,64] subtract(p0, b)
"""
    shapes = "f32[64,64]", "f32[64]"
    assert _pairs(f"{rows}ROOT r = f32[64,64] negate(d)", *shapes) == {(0, 0)}
    # The sums are stored when the rows are.
    body = f"{rows}t = f32[64] add(s, p1)\nROOT r = (f32[64,64], f32[64]) tuple(d, t)"
    assert _pairs(body, *shapes) == {(0, 0), (1, 1)}
    columns = rows.replace("dimensions={1}", "dimensions={0}").replace("dimensions={0}\nd", "dimensions={1}\nd")
    assert not _pairs(f"{columns}ROOT r = f32[64,64] negate(d)", *shapes)


def test_what_a_product_reads_is_read_anywhere():
    body = """d = f32[16,16] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
ROOT r = f32[16,16] add(d, p2)"""
    assert _pairs(body, *("f32[16,16]",) * 3) == {(0, 2)}


def test_results_of_two_products_are_stored_in_nests_of_their_own():
    body = """z = f32[] constant(0)
d = f32[64,64] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
n = f32[64,64] multiply(d, p3)
a = f32[64] reduce(n, z), dimensions={1}, to_apply=sum
b = f32[64,64] broadcast(a), dimensions={0}
w = f32[64,64] add(n, b)
s = f32[64,64] dot(w, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
t = f32[64,64] add(s, p2)
ROOT r = (f32[64,64], f32[64,64]) tuple(w, t)"""
    assert _pairs(body, *("f32[64,64]",) * 4) == {(0, 3), (1, 2)}


def test_an_operand_of_the_last_of_two_products_keeps_its_values():
    text = """HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  p = f32[27,27] parameter(0)
  q = f32[27,27] parameter(1)
  z = f32[] constant(0)
  m = f32[27,27] multiply(p, q)
  l = f32[27,27] multiply(p, m)
  d = f32[27,27] dot(l, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a = f32[27] reduce(d, z), dimensions={1}, to_apply=sum
  n = f32[27,27] broadcast(a), dimensions={0}
  s = f32[27,27] dot(n, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  t = f32[27,27] multiply(s, m)
  u = f32[27] reduce(n, z), dimensions={0}, to_apply=sum
  ROOT r = (f32[27,27], f32[27]) tuple(t, u)
}"""
    module = HloModule.from_text(text)
    arguments = [np.random.default_rng(n).standard_normal((27, 27)).astype(np.float32) for n in range(2)]
    expected = compile(module, backend="interpreter")(*arguments)
    for result, wanted in zip(compile(module, backend="cpu")(*arguments), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-2)


def test_rows_of_a_second_product_in_another_order_overwrite_none_that_the_first_one_still_reads():
    text = """HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  q = f32[16,16,8] parameter(0)
  k = f32[16,32,8] parameter(1)
  v = f32[16,32,32] parameter(2)
  p = f32[16,16,32] parameter(3)
  z = f32[] constant(0)
  b = f32[16,16,32] sort(p), dimensions={2}, to_apply=less
  s = f32[16,16,32] dot(q, k), BATCHES, rhs_contracting_dims={2}
  c = f32[16,16,32] multiply(s, b)
  i = s16[16,16,32] convert(c)
  t = f32[16,16] reduce(s, z), dimensions={2}, to_apply=sum
  u = f32[16,16,32] broadcast(t), dimensions={0,1}
  x = f32[16,16,32] subtract(s, u)
  o = f32[16,16,32] dot(x, v), BATCHES, rhs_contracting_dims={1}
  y = f32[16,16,32] transpose(o), dimensions={1,0,2}
  ROOT r = (s16[16,16,32], f32[16,16,32]) tuple(i, y)
}"""
    batches = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}"
    module = HloModule.from_text(text.replace("BATCHES", batches))
    shapes = [p.shape.dimensions for p in module.entry.parameters]
    arguments = [np.random.default_rng(n).integers(-2, 3, s).astype(np.float32) for n, s in enumerate(shapes)]
    expected = compile(module, backend="interpreter")(*arguments)
    for result, wanted in zip(compile(module, backend="cpu")(*arguments), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def _stated(*phases, updates=None):
    """Whether result 0 may be in the memory of operand 0, of one operand and one result."""
    text = "HloModule m\nENTRY e {\np = f32[8,4] parameter(0)\nROOT r = f32[8,4] negate(p)\n}\n"
    root = HloModule.from_text(text).entry.root
    operand, result = (HloValue(ValueKind.INSTRUCTION, 128, i) for i in (root.operands[0], root))
    made = [Phase("f", 1, 1.0, nests=nests) for nests in phases]
    kernel = Kernel(tuple(made), updates or {})
    step = KernelStep(root, made, (operand,), (result,), updates=kernel.updates)
    allowed = (0, 0) in in_place_pairs(kernel, step.operands, step.results)
    assert allowed is not bool(Refusals().refusal(step, 0, 0))
    return allowed


def _stage(read=None, written=None):
    reads, writes = ({Access(n, offset, 4)} if offset else () for n, offset in enumerate((read, written)))
    return Accesses(frozenset(reads), frozenset(writes))


def test_an_operand_is_overwritten_in_the_nest_that_reads_it_or_in_a_later_phase():
    here, read, write = _stage(ELEMENT, ELEMENT), _stage(ELEMENT), _stage(written=ELEMENT)
    assert _stated(((here,),))
    assert _stated(((read, write),))
    assert _stated(((here,), (here,)))
    assert _stated(((Accesses.anywhere([0]),),), ((write,),))
    assert not _stated(((write, read),))
    assert not _stated(((read,), (write,)))
    assert not _stated(((here,), (read,)))
    assert not _stated(((write,),), ((read,),))
    assert not _stated(((here,),), ((here,),))


def test_offsets_of_reads_and_writes_are_compared():
    assert not _stated(((_stage(ELEMENT + 1, ELEMENT),),))
    assert not _stated(((_stage(ROW, ELEMENT),),))
    assert not _stated(((_stage(ELEMENT, ELEMENT)._replace(writes=frozenset({Access(1, ELEMENT, 2)})),),))
    assert not _stated(((Accesses.anywhere([0], [1]),),))
    assert not _stated(((Accesses.anywhere([], [1]), _stage(ELEMENT, ELEMENT)),))


def test_kernels_that_state_nothing_keep_their_results_apart():
    here = ((_stage(ELEMENT, ELEMENT),),)
    assert not _stated()
    assert not _stated(None)
    assert not _stated(None, here)
    assert not _stated(((_stage(written=ELEMENT),),))
    assert not _stated(((_stage(ELEMENT),),))


def test_of_collectives_all_reduce_alone_works_in_place():
    text = """HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  p = f32[8] parameter(0)
  g = f32[8] all-reduce(p), to_apply=sum
  ROOT r = f32[8] collective-permute(g), source_target_pairs={{0,1}}
}"""
    root = HloModule.from_text(text).entry.root
    moved, reduced = CollectiveStep(root, None, (), ()), CollectiveStep(root.operands[0], None, (), ())
    assert Refusals().refusal(moved, 0, 0)
    assert Refusals().refusal(reduced, 1, 0)
    assert not Refusals().refusal(reduced, 0, 0)


UPDATED = {
    "scatter": """s = f32[8,8] scatter(n, i, u), to_apply=second, update_window_dims={0}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=0""",
    "cholesky": "s = f32[8,8] cholesky(n)",
    "triangular-solve": """s = f32[8,8] triangular-solve(p, n), left_side=true, lower=true, unit_diagonal=false,
        transpose_a=NO_TRANSPOSE""",
    "dynamic-update-slice": "s = f32[8,8] dynamic-update-slice(n, v, k, k)",
}


@pytest.mark.parametrize("opcode", UPDATED)
def test_kernels_that_change_an_operand_in_place_are_proved(opcode):
    text = f"""HloModule m
second {{ a = f32[] parameter(0)  ROOT b = f32[] parameter(1) }}
ENTRY e {{
  p = f32[8,8] parameter(0)
  i = s32[1] parameter(1)
  u = f32[8] parameter(2)
  v = f32[1,8] parameter(3)
  k = s32[] parameter(4)
  n = f32[8,8] exponential(p)
  {UPDATED[opcode]}
  ROOT r = f32[8,8] negate(s)
}}"""
    with compiling(check_memory=True):
        plan = generate(HloModule.from_text(text), Target(Grid(1, 1))).plan
    (step,) = (s for s in plan.steps if isinstance(s, KernelStep) and s.updates)
    assert step.instruction.opcode == opcode
    ((result, operand),) = step.updates.items()
    assert plan.slice_of(step.results[result]) is plan.slice_of(step.operands[operand])


@pytest.mark.parametrize("number", range(30))
def test_all_that_is_planned_is_proved(number):
    module = run_pipeline(HloModule.from_text(generated(77, number).text))
    with compiling(check_memory=True):
        generate(module, Target(Grid(1, 1)))
