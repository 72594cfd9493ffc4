"""Memory faults of the bank, put back one by one: the checker finds each in a small program, which is not run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import xlakit
from fuzz.bug_bank.bugs import BUGS
from xlakit.cpu.codegen import generate
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling

_SOURCES = Path(xlakit.__file__).parent
_COUNT = """
condition {
  p = (s32[], f32[100], f32[100]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
"""
_STATE = """
  p = (s32[], f32[100], f32[100]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[100] get-tuple-element(p), index=1
  b = f32[100] get-tuple-element(p), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
"""
_LOOP = """
ENTRY e {
  x = f32[100] parameter(0)
  zero = s32[] constant(0)
  y = f32[100] negate(x)
  z = f32[100] exponential(x)
  s = (s32[], f32[100], f32[100]) tuple(zero, y, GIVEN)
  w = (s32[], f32[100], f32[100]) while(s), condition=condition, body=body
  a = f32[100] get-tuple-element(w), index=1
  b = f32[100] get-tuple-element(w), index=2
  ROOT r = f32[100] add(a, b)
}
"""
# By the names of faults: a program of which the plan is wrong then.
PROGRAMS = {
    "begun-twice": f"""
body {{ {_STATE}
  c = f32[100] negate(a)
  d = f32[100] add(b, c)
  ROOT r = (s32[], f32[100], f32[100]) tuple(n, a, d)
}}
{_COUNT} {_LOOP.replace("GIVEN", "z").replace("add(a, b)", "negate(b)")}""",
    "shared-while-read": """
fused {
  p = f32[100] parameter(0)
  n = f32[100] negate(p)
  m = f32[100] reverse(n), dimensions={0}
  ROOT r = f32[100] add(n, m)
}
ENTRY e {
  x = f32[100] parameter(0)
  y = f32[100] exponential(x)
  f = f32[100] fusion(y), kind=kLoop, calls=fused
  ROOT r = f32[100] negate(f)
}""",
    "condition-writes-state": f"""
body {{ {_STATE}
  c = f32[100] add(a, b)
  ROOT r = (s32[], f32[100], f32[100]) tuple(n, c, b)
}}
condition {{
  p = (s32[], f32[100], f32[100]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[100] get-tuple-element(p), index=1
  one = f32[1] constant({{1}})
  d = f32[100] dynamic-update-slice(a, one, i)
  s = f32[1] slice(d), slice={{[2:3]}}
  t = f32[] reshape(s)
  u = f32[] constant(9)
  ROOT r = pred[] compare(t, u), direction=LT
}}
{_LOOP.replace("GIVEN", "z")}""",
    "other-name": f"""
same {{
  ROOT p = f32[100] parameter(0)
}}
body {{ {_STATE}
  c = f32[100] call(a), to_apply=same
  d = f32[100] negate(a)
  e = f32[100] multiply(c, b)
  ROOT r = (s32[], f32[100], f32[100]) tuple(n, d, e)
}}
{_COUNT} {_LOOP.replace("GIVEN", "z")}""",
    "given-twice": """
fused {
  p = f32[100] parameter(0)
  q = f32[100] parameter(1)
  m = f32[100] reverse(q), dimensions={0}
  ROOT r = f32[100] add(p, m)
}
ENTRY e {
  x = f32[100] parameter(0)
  y = f32[100] exponential(x)
  f = f32[100] fusion(y, y), kind=kLoop, calls=fused
  ROOT r = f32[100] negate(f)
}""",
    "branch-writes-arguments": """
negated {
  p = f32[100] parameter(0)
  n = f32[100] negate(p)
  ROOT r = f32[100] multiply(n, n)
}
same {
  ROOT p = f32[100] parameter(0)
}
ENTRY e {
  x = f32[100] parameter(0)
  q = pred[] parameter(1)
  y = f32[100] exponential(x)
  c = f32[100] conditional(q, y, y), true_computation=negated, false_computation=same
  ROOT r = f32[100] add(c, y)
}""",
    "second-half-forgotten": """
ENTRY e {
  x = f32[100] parameter(0)
  y = f32[100] exponential(x)
  s = (f32[100], f32[100]) collective-permute-start(y), channel_id=1, source_target_pairs={{0,1},{1,0}}
  n = f32[100] negate(y)
  d = f32[100] collective-permute-done(s)
  ROOT r = f32[100] add(n, d)
}""",
}
# These are faults of the proof of what kernels do in place, too: a run alone shows them.
FAULTS_OF_PROOFS = {"between-two-products", "rows-in-another-order"}
_SCRIPT = """
import sys
from xlakit.memory.checker.faults import MemoryPlanError
from xlakit.cpu.codegen import generate
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling

with compiling(check_memory=True):
    try:
        generate(HloModule.from_text(sys.stdin.read()), Target(Grid(1, 2)))
    except MemoryPlanError as error:
        print(error)
"""


def _text(name):
    return f"HloModule m, num_partitions=2\n{PROGRAMS[name]}"


def test_each_memory_fault_of_the_bank_has_a_program():
    planners = ("xlakit/memory/", "xlakit/cpu/entry/in_place.py")
    memory = {bug.name for bug in BUGS if any(edit.path.startswith(planners) for edit in bug.edits)}
    assert memory == PROGRAMS.keys() | FAULTS_OF_PROOFS


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plan_is_right_without_the_fault(name):
    with compiling(check_memory=True):
        generate(HloModule.from_text(_text(name)), Target(Grid(1, 2)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fault_is_found(name, tmp_path):
    (bug,) = (bug for bug in BUGS if bug.name == name)
    shutil.copytree(_SOURCES, tmp_path / "xlakit", ignore=shutil.ignore_patterns("__pycache__"))
    bug.put_back(tmp_path)
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, input=_text(name), capture_output=True, text=True, check=False)
    assert "the memory plan is wrong" in done.stdout, done.stderr[-2000:]
