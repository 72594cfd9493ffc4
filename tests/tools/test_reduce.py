"""``xlakit reduce``: seeded faults come down to a few lines, whatever the candidates do to their processes."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.data.layout import Layout
from xlakit.ir.instruction import HloModule
from xlakit.passes.pipeline import run_pipeline
from xlakit.tools import cli
from xlakit.tools.oracles.server import load_file

EXAMPLES = Path(__file__).parents[2] / "examples" / "hlo"
FAULTY = str(Path(__file__).parents[2] / "fuzz" / "workbench" / "faulty.py")
# The example that each fault of faulty.py is seeded into.
SEEDED = {
    "opcode": "cnn",
    "size": "mixed_precision",
    "type": "mixed_precision",
    "permutation": "linear_algebra",
    "layout": "batch_norm",
    "attribute": "mixed_precision",
    "value": "cnn",
    "operands": "scatter_gather",
    "body": "while",
    "branch": "conditional",
    "fusion": "batch_norm",
    "sort": "sort",
}

CHAIN = """HloModule chain

ENTRY main {
  x = f32[4,6] parameter(0)
  y = f32[4,6] parameter(1)
  a = f32[4,6] add(x, y)
  b = f32[4,6] tanh(a)
  c = f32[4,6] multiply(b, y), metadata={op_name="c"}
  d = f32[6,4] transpose(c), dimensions={1,0}
  ROOT t = (f32[6,4], f32[4,6]) tuple(d, a)
}
"""


def module_of(fault):
    module = HloModule.from_text((EXAMPLES / f"{SEEDED[fault]}.hlo").read_text())
    if fault == "fusion":
        return run_pipeline(module)
    return transposed(module, "subtract") if fault == "layout" else module


def transposed(module, opcode):
    """The module with the results of an operation laid out minor to major."""

    def change(i, operands):
        op = i.op.map_computations(lambda c: made[c]) if i.op.can_call else i.op
        shape = i.shape.with_layout(Layout(range(i.shape.rank))) if i.opcode == opcode else i.shape
        return i.replace(op=op, operands=operands, shape=shape)

    made = {}
    for computation in module.computations:
        made[computation] = computation.rebuild(change)
    return module.replace(entry=made[module.entry], computations=())


def opcodes(module):
    return [i.opcode for c in module.computations for i in c.instructions]


def differs(module):
    """Whether the faulty backend gives other results. In this process, as a child for each candidate takes longer."""
    try:
        return not all(leaf.agrees for leaf in xla.Disagreement(("faulty", "interpreter")).observe(module))
    except xla.XlakitError:
        return False


@pytest.mark.parametrize("fault", SEEDED)
def test_a_seeded_fault_comes_down_to_five_instructions(fault, monkeypatch):
    monkeypatch.setenv("FAULT", fault)
    load_file(FAULTY)
    module = module_of(fault)
    assert 30 <= module.instruction_count() <= 300
    reduction = xla.reduce_module(module, differs)
    assert reduction.instructions <= 5, str(reduction.module)
    assert reduction.is_minimal
    reduction.module.verify()


@pytest.mark.usefixtures("observed_here")
def test_what_is_left_has_the_fault_and_none_where_the_fault_is_not(monkeypatch):
    monkeypatch.setenv("FAULT", "value")
    chain = HloModule.from_text(CHAIN.replace("tanh", "exponential"))
    reduction = xla.reduce_module(chain, xla.Disagreement(("faulty", "interpreter")), load=[FAULTY])
    again = xla.reduce_module(reduction.module, xla.Disagreement(("faulty", "interpreter")), load=[FAULTY])
    assert again.instructions == reduction.instructions
    monkeypatch.setenv("FAULT", "none")
    with pytest.raises(xla.ArgumentError, match="does not give different results"):
        xla.reduce_module(reduction.module, xla.Disagreement(("faulty", "interpreter")), load=[FAULTY])


def has(*wanted):
    return lambda module: set(wanted) <= set(opcodes(module))


def test_a_function_is_asked_in_this_process():
    reduction = xla.reduce_module(HloModule.from_text(CHAIN), has("tanh"))
    assert opcodes(reduction.module) == ["parameter", "tanh"]
    assert reduction.module.entry.root.shape.dimensions == (1, 1)
    assert (reduction.instructions_before, reduction.instructions) == (7, 2)
    assert "metadata" not in str(reduction.module)


def test_one_of_many_instructions_is_found_by_halving():
    lines = [f"  i{n} = f32[4] {'tanh' if n == 60 else 'sine'}(i{n - 1})" for n in range(1, 200)]
    text = "\n".join(["HloModule long", "ENTRY main {", "  i0 = f32[4] parameter(0)", *lines, "}"])
    reduction = xla.reduce_module(HloModule.from_text(text), has("tanh"))
    assert opcodes(reduction.module) == ["parameter", "tanh"]
    assert reduction.tries < 40


@pytest.mark.parametrize("wanted", [("tanh", "transpose"), ("add", "multiply"), ("tuple",), ("add", "tuple")])
def test_what_is_needed_together_stays(wanted):
    reduction = xla.reduce_module(HloModule.from_text(CHAIN), has(*wanted))
    assert set(wanted) <= set(opcodes(reduction.module))
    assert reduction.instructions <= 4


LOOP = """HloModule loop

body {
  p = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  y = f32[8] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  s = f32[8] sine(x)
  z = f32[8] multiply(s, y)
  ROOT t = (s32[], f32[8], f32[8]) tuple(next, z, y)
}

condition {
  p = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(100)
  ROOT less = pred[] compare(i, n), direction=LT
}

ENTRY main {
  zero = s32[] constant(0)
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  init = (s32[], f32[8], f32[8]) tuple(zero, a, b)
  w = (s32[], f32[8], f32[8]) while(init), condition=condition, body=body
  ROOT r = f32[8] get-tuple-element(w), index=1
}
"""


def test_a_loop_that_is_needed_loses_its_state_and_trips():
    def looks(module):
        bodies = [i.op.body for c in module.computations for i in c.instructions if i.opcode == "while"]
        return any(i.opcode == "sine" for b in bodies for i in b.instructions)

    module = HloModule.from_text(LOOP)
    reduction = xla.reduce_module(module, looks)
    (loop,) = [i for c in reduction.module.computations for i in c.instructions if i.opcode == "while"]
    assert len(loop.shape.tuple_shapes) <= 2
    assert reduction.instructions < module.instruction_count() // 2
    assert "100" not in str(reduction.module)


def test_dimensions_shrink_together():
    text = """HloModule dims
    ENTRY main {
      x = f32[12,8] parameter(0)
      w = f32[8,20] parameter(1)
      d = f32[12,20] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      r = f32[240] reshape(d)
      s = f32[120] slice(r), slice={[0:240:2]}
      ROOT b = f32[3,120] broadcast(s), dimensions={1}
    }"""
    reduction = xla.reduce_module(HloModule.from_text(text), has("dot", "reshape", "slice", "broadcast"))
    assert all(size <= 3 for i in reduction.module.entry.instructions for size in i.shape.dimensions)


def test_a_size_that_is_needed_does_not_hold_what_divides_it():
    text = """HloModule dims
    ENTRY main {
      x = f32[40] parameter(0)
      y = f32[4,10] parameter(1)
      z = f32[4,10] tanh(y)
      ROOT t = (f32[40], f32[4,10]) tuple(x, z)
    }"""

    def is_wanted(module):
        sizes = [p.shape.dimensions for p in module.entry.parameters]
        return len(sizes) == 2 and 40 in sizes[0] and "tanh" in opcodes(module)

    reduction = xla.reduce_module(HloModule.from_text(text), is_wanted)
    assert [[*p.shape.dimensions] for p in reduction.module.entry.parameters] == [[40], [1, 1]]


def test_only_well_formed_modules_are_asked():
    asked = []

    def test(module):
        module.verify()
        asked.append(module)
        return has("dot")(module)

    module = HloModule.from_text((EXAMPLES / "while.hlo").read_text())
    xla.reduce_module(HloModule.from_text((EXAMPLES / "cnn.hlo").read_text()), test)
    with pytest.raises(xla.ArgumentError, match="does not pass the test"):
        xla.reduce_module(module, lambda _: False)
    # None is asked twice.
    assert len({str(m) for m in asked}) == len(asked) > 5


def test_time_that_is_over_gives_the_best_so_far():
    def slow(module):
        time.sleep(0.05)
        return has("tanh")(module)

    reduction = xla.reduce_module(HloModule.from_text(CHAIN), slow, max_seconds=0.12)
    assert not reduction.is_minimal
    assert "limit of time" in str(reduction)
    assert "tanh" in opcodes(reduction.module)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.hlo"
    path.write_text(CHAIN)
    return path


def test_a_command_decides_by_its_status(chain, capsys):
    assert cli.main(["reduce", str(chain), "--test", "grep -q tanh", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    reduced = HloModule.from_text((chain.parent / "chain.reduced.hlo").read_text())
    assert opcodes(reduced) == ["parameter", "tanh"]
    assert "7 -> 2 instructions" in out
    assert "it does make 'grep -q tanh' end with status 0" in out


@pytest.mark.usefixtures("observed_here")
def test_json_and_several_files(chain, capsys):
    # A name with dots keeps them.
    other = chain.parent / "module_0001.other.hlo"
    other.write_text(CHAIN.replace("tanh", "sine"))
    assert cli.main(["reduce", str(chain), str(other), "--test", "grep -q transpose", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["instructions"] for line in lines] == [2, 2]
    assert lines[1]["output"].endswith("module_0001.other.reduced.hlo")
    with pytest.raises(SystemExit) as exit:
        cli.main(["reduce", str(chain), str(other), "--test", "true", "-o", "x.hlo"])
    assert exit.value.code == 2


CRASHING = """
import os, time
import xlakit as xla

def make(module, **_):
    found = {i.opcode for c in module.computations for i in c.instructions}
    if "tanh" in found:
        HOW
    return xla.compile(module, backend="interpreter")

xla.register_backend("crashing", make)
"""


@pytest.mark.parametrize(
    ("how", "seen"),
    [
        ("os.abort()", "the process died of SIGABRT"),
        ("raise KeyError('lost')", "lost"),
        ("time.sleep(1000)", "the process timed out"),
        ("x = bytearray(1 << 29); x[::4096] = bytes(1 << 17); time.sleep(1000)", "the process out of memory"),
    ],
)
def test_candidates_that_crash_hang_or_grow_are_what_is_looked_for(chain, capsys, how, seen):
    # Each candidate with the fault takes until the timeout: there are to be few.
    chain.write_text("ENTRY main {\n  x = f32[1] parameter(0)\n  b = f32[1] tanh(x)\n  ROOT n = f32[1] negate(b)\n}\n")
    load = chain.parent / "crashing.py"
    load.write_text(CRASHING.replace("HOW", how))
    options = ["--crash", "--backend", "crashing", "--load", str(load), "--timeout", "2", "--memory", "400M"]
    assert cli.main(["reduce", str(chain), *options, "--max-seconds", "40"]) == 0
    out = capsys.readouterr().out
    assert seen in out
    reduced = HloModule.from_text((chain.parent / "chain.reduced.hlo").read_text())
    assert opcodes(reduced) == ["parameter", "tanh"]


SLOW = """
import time
import xlakit as xla

def make(module, **_):
    run = xla.compile(module, backend="interpreter")
    seconds = 0.05 * any(i.opcode == "tanh" for c in module.computations for i in c.instructions)

    def slow(*arguments):
        if seconds:  # a busy machine makes milliseconds of no time
            time.sleep(seconds)
        return run(*arguments)

    return slow

xla.register_backend("slow", make)
"""


@pytest.mark.usefixtures("observed_here")
def test_what_is_slow_on_one_backend_comes_down_to_what_makes_it_so(chain, capsys):
    load = chain.parent / "slow.py"
    load.write_text(SLOW)
    options = ["--slow", "5x", "--compare", "slow,cpu", "--load", str(load), "--jobs", "1"]
    assert cli.main(["reduce", str(chain), *options]) == 0
    assert "it does take 5 times as long on slow as on cpu, and at least 500 us: slow takes" in capsys.readouterr().out
    assert opcodes(HloModule.from_text((chain.parent / "chain.reduced.hlo").read_text())) == ["parameter", "tanh"]


def test_backends_that_agree_are_told(chain, capsys):
    # In a process that is forked from one that has loaded jaxlib.
    assert cli.main(["reduce", str(chain), "--compare", "cpu,jaxlib", "--jobs", "1"]) == 1
    assert "all outputs agree" in capsys.readouterr().err


SHORT = "ENTRY main {\n  x = f32[32] parameter(0)\n  b = f32[32] tanh(x)\n  ROOT n = f32[32] negate(b)\n}\n"


@pytest.mark.usefixtures("observed_here")
@pytest.mark.parametrize(("backends", "text", "left"), [("cpu,jaxlib", SHORT, 2), ("plain,interpreter", CHAIN, 4)])
def test_all_backends_are_compared(chain, capsys, backends, text, left):
    chain.write_text(text)
    # A tolerance of nothing finds the roundings of tanh.
    assert cli.main(["reduce", str(chain), "--compare", backends, "--rtol", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instructions"] <= left


@pytest.mark.usefixtures("observed_here")
def test_a_search_goes_on_where_it_was(chain, capsys):
    work = chain.parent / "work"
    options = ["reduce", str(chain), "--test", "grep -q tanh", "--work", str(work), "--json"]
    assert cli.main(options) == 0
    first = json.loads(capsys.readouterr().out)
    assert opcodes(HloModule.from_text((work / "chain.reduced" / "best.hlo").read_text())) == ["parameter", "tanh"]
    assert cli.main(options) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["instructions_before"], second["instructions"]) == (7, 2)
    assert second["tries"] < first["tries"]


def test_given_arguments_follow_their_parameters(chain, tmp_path, monkeypatch):
    # The fault is in exponentials of negative numbers, of which there is one.
    monkeypatch.setenv("FAULT", "value")
    chain.write_text(CHAIN.replace("tanh", "exponential"))
    x, y = np.ones((4, 6), np.float32), np.ones((4, 6), np.float32)
    x[0, 0] = -3
    np.savez(tmp_path / "x.npz", x=x, y=y)
    options = ["--compare", "faulty,interpreter", "--load", FAULTY, "--input", str(tmp_path / "x.npz")]
    assert cli.main(["reduce", str(chain), *options]) == 0
    reduced = chain.parent / "chain.reduced.hlo"
    module = HloModule.from_text(reduced.read_text())
    assert "exponential" in opcodes(module)
    saved = np.load(chain.parent / "chain.reduced.npz")
    assert set(saved) == {p.name for p in module.entry.parameters}
    options = ["--compare", "faulty,interpreter", "--load", FAULTY, "--input", str(reduced.with_suffix(".npz"))]
    assert cli.main(["reduce", str(reduced), *options]) == 0


@pytest.mark.usefixtures("observed_here")
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--test", "false"], 1, "the module as given does not make 'false' end with status 0"),
        (["--test", "no-such-command"], 2, "there is no command 'no-such-command'"),
        (["--test", "'"], 1, "cannot be read"),
        (["--compare", "cpu,interpreter"], 1, "does not give different results on cpu and interpreter: all outputs"),
        (["--compare", "cpu,other"], 2, "there is no backend 'other'"),
        (["--crash"], 1, "does not crash on cpu: the program runs"),
        (["--crash", "--load", "missing.py"], 1, "missing.py cannot be loaded"),
        (["--crash", "--input", "missing.npz"], 1, "No such file"),
        (["--compare", "cpu"], 2, "is not two backends"),
        (["--slow", "0.5x"], 2, "is not a factor"),
        (["--rtol", "-1", "--compare", "cpu,plain"], 2, "is not an error"),
        (["--crash", "--test", "true"], 2, "one of --test"),
        ([], 2, "say what is looked for"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(chain, capsys, options, status, said):
    try:
        found = cli.main(["reduce", str(chain), *options])
    except SystemExit as exit:
        found = exit.code
    error = capsys.readouterr().err
    assert (found, said in error) == (status, True), error
    assert "Traceback" not in error


def test_files_that_are_no_modules_are_told(chain, capsys):
    assert cli.main(["reduce", str(chain.parent / "none.hlo"), "--crash"]) == 1
    assert "No such file" in capsys.readouterr().err
    chain.write_text(CHAIN.replace("tanh(a)", "tanh(q)"))
    assert cli.main(["reduce", str(chain), "--crash"]) == 1
    assert "chain.hlo:7:" in capsys.readouterr().err


def test_a_missing_jaxlib_is_told(chain, capsys, monkeypatch):
    folder = chain.parent / "without"
    (folder / "jaxlib").mkdir(parents=True)
    (folder / "jaxlib" / "__init__.py").write_text("raise ImportError('not here')")
    # The processes find this one first.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.chdir(folder)
    assert cli.main(["reduce", str(chain), "--compare", "cpu,jaxlib"]) == 1
    assert "jaxlib cannot be imported" in capsys.readouterr().err


def test_layouts_that_a_fault_depends_on_stay_without_the_other_annotations():
    module = xla.HloModule.from_text("""HloModule m, entry_computation_layout={(f32[4,8]{1,0:T(8,128)})->f32[4,8]{1,0}}

FileNames
1 "model.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  x = f32[4,8]{1,0:T(8,128)} parameter(0), sharding={replicated}
  y = f32[4,8]{1,0:T(8,128)} tanh(x), metadata={op_name="jit(f)/tanh" stack_frame_id=1}
  ROOT z = f32[4,8]{1,0} negate(y), metadata={op_name="jit(f)/neg" stack_frame_id=1}
}""")
    left = str(xla.reduce_module(module, lambda m: "T(8,128)} tanh" in str(m)).module)
    assert "T(8,128)} tanh" in left
    assert not any(word in left for word in ("negate", "metadata", "sharding", "model.py"))
