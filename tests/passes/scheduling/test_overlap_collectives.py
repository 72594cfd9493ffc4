"""Collectives that go on beside independent work: where starts and dones stand, and what stays as it is."""

import re

import pytest

import xlakit as xla
from xlakit.options import compiling
from xlakit.passes.core.framework import PassContext
from xlakit.passes.pipeline import run_pipeline
from xlakit.passes.scheduling.overlap_collectives import overlaps_of
from xlakit.tools.inspect import inspect

ADD = """
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
"""
PRODUCT = "f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SUM = "f32[512,512] all-reduce(x), to_apply=add"


def program(lines, header=""):
    parameter = "x = f32[512,512] parameter(0)\n"
    return xla.HloModule.from_text(f"HloModule m, replica_count=2{header}\n{ADD}ENTRY e {{\n{parameter}{lines}\n}}\n")


def overlapped(module):
    """The module after the pass, for a machine that computes a product in some milliseconds."""
    return run_pipeline(module, ["overlap-collectives"], context=PassContext(check=True))


def order(module):
    """The names of the entry's instructions; those of pairs with the name of their collective."""
    found = []
    for i in module.entry.instructions:
        start = i.operands[0] if i.opcode == "async-done" else i
        name = start.op.calls.root.name if start.opcode == "async-start" else i.name
        found.append(f"{i.opcode.removeprefix('async-')} {name}" if i is not start or name != i.name else name)
    return found


@pytest.fixture(autouse=True)
def _slow_link():
    with compiling(knobs={"overlap_collectives.alpha_nanoseconds": 1e6, "overlap_collectives.least_nanoseconds": 1e4}):
        yield


def test_a_product_stands_between_start_and_done():
    module = program(f"s = {SUM}\np = {PRODUCT}\nROOT t = (f32[512,512], f32[512,512]) tuple(s, p)")
    assert order(overlapped(module)) == ["x", "start s", "p", "done s", "t"]


@pytest.mark.parametrize(
    "collective",
    [
        "f32[256,512] reduce-scatter(x), dimensions={0}, to_apply=add",
        "f32[1024,512] all-gather(x), dimensions={0}",
        "f32[512,512] all-to-all(x), dimensions={0}",
        "f32[512,512] collective-permute(x), source_target_pairs={{0,1},{1,0}}",
        "f32[512,512] collective-broadcast(x), replica_groups={{0,1}}",
    ],
)
def test_all_kinds(collective):
    shape = collective.partition(" ")[0]
    module = program(f"p = {PRODUCT}\ns = {collective}\nROOT t = ({shape}, f32[512,512]) tuple(s, p)")
    assert order(overlapped(module)) == ["x", "start s", "p", "done s", "t"]


def test_starts_keep_the_order_of_the_program():
    # The second one could start before the first.
    module = program(
        f"p = {PRODUCT}\na = f32[512,512] all-reduce(p), to_apply=add\nb = {SUM}\n"
        "q = f32[512,512] dot(p, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "ROOT t = (f32[512,512], f32[512,512], f32[512,512]) tuple(a, b, q)"
    )
    assert order(overlapped(module)) == ["x", "p", "start a", "start b", "q", "done a", "done b", "t"]


def test_what_a_sum_of_gradients_is_for_waits_and_the_next_gradient_does_not():
    module = program(
        f"p = {PRODUCT}\na = f32[512,512] all-reduce(p), to_apply=add\nu = f32[512,512] add(a, x)\n"
        "q = f32[512,512] dot(p, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "b = f32[512,512] all-reduce(q), to_apply=add\nv = f32[512,512] add(b, x)\n"
        "ROOT t = (f32[512,512], f32[512,512]) tuple(u, v)"
    )
    found = order(overlapped(module))
    assert found.index("start a") < found.index("q") < found.index("done a") < found.index("u")


def test_little_work_is_not_worth_it():
    module = program(f"s = {SUM}\nn = f32[512,512] negate(x)\nROOT t = (f32[512,512], f32[512,512]) tuple(s, n)")
    with compiling(knobs={"overlap_collectives.least_nanoseconds": 1e9}):
        assert overlapped(module) is module
        assert overlaps_of(module) == []


def test_other_effects_stay_between_the_collectives_that_they_were_between():
    module = program(
        f"s = {SUM}\nk = token[] after-all()\no = token[] outfeed(x, k), outfeed_shape=f32[512,512]\n"
        f"p = {PRODUCT}\nb = f32[512,512] all-reduce(x), to_apply=add\n"
        "ROOT t = (f32[512,512], f32[512,512], f32[512,512]) tuple(s, p, b)"
    )
    found = order(overlapped(module))
    assert found.index("done s") < found.index("o") < found.index("b")


def test_bodies_of_loops():
    module = xla.HloModule.from_text(f"""
HloModule m, replica_count=2
{ADD}
body {{ p = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[512,512] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  s = {SUM}
  d = {PRODUCT}
  y = f32[512,512] add(s, d)
  ROOT t = (s32[], f32[512,512]) tuple(j, y) }}
condition {{ p = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT q = pred[] compare(i, n), direction=LT }}
ENTRY e {{ x = (s32[], f32[512,512]) parameter(0)
  ROOT l = (s32[], f32[512,512]) while(x), condition=condition, body=body }}
""")
    (start,) = [i for c in overlapped(module).computations for i in c.instructions if i.opcode == "async-start"]
    assert start.op.calls.root.name == "s"


def test_a_program_whose_order_is_given_keeps_it():
    module = program(
        f"s = {SUM}\np = {PRODUCT}\nROOT t = (f32[512,512], f32[512,512]) tuple(s, p)", ", is_scheduled=true"
    )
    assert overlapped(module) is module


def test_an_order_that_takes_more_memory_is_left():
    # Each product is added up at once; all of them would wait for the sum.
    lines = [f"s0 = {SUM}"]
    for n in range(8):
        lines += [f"p{n} = {PRODUCT}", f"s{n + 1} = f32[512,512] add(s{n}, p{n})"]
    module = program("\n".join([*lines, "ROOT t = (f32[512,512]) tuple(s8)"]))
    with compiling(knobs={"overlap_collectives.alpha_nanoseconds": 1e9}):
        assert overlapped(module) is module


def test_the_view_of_collectives_says_what_goes_on_beside_them():
    module = program(f"s = {SUM}\nw = f32[512,512] tanh(x)\nROOT t = (f32[512,512], f32[512,512]) tuple(s, w)")
    with compiling(knobs={"overlap_collectives.alpha_nanoseconds": 2e4, "overlap_collectives.beta_nanoseconds": 0.0}):
        text = inspect(module, "collectives", {})
    assert re.search(
        r"between processes 1 of them go on beside [\d.]+ ms of other work, which hides 0.0 of 0.0 ms", text
    )
