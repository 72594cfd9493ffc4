"""What ``compile`` gives, on each backend: an Executable with all its methods."""

import copy
import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.api import BACKENDS
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels import makers
from xlakit.execution.analysis import MemoryAnalysis
from xlakit.tools.cli import main
from xlakit.tools.listing import support_page

LOOP = """HloModule loop

body {
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[256] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[256] sine(x)
  z = f32[256] multiply(y, x)
  ROOT r = (s32[], f32[256]) tuple(next, z)
}

condition {
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT more = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[256] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[256]) tuple(zero, x)
  end = (s32[], f32[256]) while(start), condition=condition, body=body
  ROOT y = f32[256] get-tuple-element(end), index=1
}
"""

CALLING = """HloModule calling

ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] custom-call(x), custom_call_target="twice", metadata={source_file="model.py" source_line=7}
  ROOT z = f32[4] negate(y)
}
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gives_the_protocol(backend):
    module = xla.HloModule.from_text(LOOP)
    executable = xla.compile(module, backend=backend)
    assert isinstance(executable, xla.Executable)
    assert executable.module is module
    assert "sine(" in executable.as_text(short=True)
    assert "%" not in executable.as_text(short=True)
    cost = executable.cost_analysis()
    assert cost["transcendentals"] == 3 * 256
    memory = executable.memory_analysis()
    assert isinstance(memory, MemoryAnalysis)
    assert memory.argument_size_in_bytes == memory.output_size_in_bytes == 1024
    total = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert memory.peak_memory_in_bytes == total
    assert executable.fallbacks == ()


def test_the_interpreter_has_no_machine_code_to_show():
    executable = xla.compile(xla.HloModule.from_text(LOOP), backend="interpreter")
    with pytest.raises(xla.UnsupportedError, match="no LLVM IR of a program that the interpreter runs"):
        executable.llvm_ir()
    with pytest.raises(xla.UnsupportedError, match="backend='cpu'"):
        executable.assembly()


def test_the_interpreters_memory_is_what_is_held_at_once():
    text = """
ENTRY e {
  x = f32[256] parameter(0)
  a = f32[256] sine(x)
  b = f32[256] cosine(x)
  c = f32[256] add(a, b)
  d = f32[2,256] broadcast(c), dimensions={1}
  ROOT r = f32[2,256] negate(d)
}
"""
    executable = xla.compile(xla.HloModule.from_text(text), backend="interpreter")
    memory = executable.memory_analysis()
    # a, b and c, or c and d.
    assert memory.temp_size_in_bytes == 3 * 1024
    assert sorted(holder.name for holder in memory.holders) in (["a", "b", "c"], ["c", "d"])
    assert memory.output_size_in_bytes == 2048


def test_what_is_not_machine_code_is_told(tmp_path, capsys):
    module = xla.HloModule.from_text(CALLING)
    executable = xla.compile(module, custom_calls={"twice": lambda x: x * 2})
    (fallback,) = executable.fallbacks
    assert (fallback.name, fallback.opcode, fallback.by) == ("y", "custom-call", "python")
    assert fallback.location == xla.Location("model.py", 7)
    assert "a call of 'twice'" in str(fallback)
    assert np.array_equal(executable(np.ones(4, np.float32)), np.full(4, -2, np.float32))
    path = tmp_path / "calling.hlo"
    path.write_text(CALLING)
    assert main(["inspect", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("// not machine code: custom-call 'y' at model.py:7: by python")
    assert xla.HloModule.from_text(printed).entry.root.opcode
    assert main(["inspect", str(path), "--as", "fallbacks"]) == 0
    assert "a call of 'twice'" in capsys.readouterr().out


def test_a_program_that_falls_back_as_a_whole_says_so():
    executable = xla.compile(xla.HloModule.from_text("ENTRY e { x = f32[?] parameter(0) ROOT y = f32[?] negate(x) }"))
    (fallback,) = executable.fallbacks
    assert (fallback.opcode, fallback.by) == ("module", "interpreter")
    assert "without a bound" in fallback.why
    assert executable(np.float32([1, 2])).tolist() == [-1, -2]
    assert copy.copy(executable).fallbacks == pickle.loads(pickle.dumps(executable)).fallbacks == (fallback,)


def test_an_instruction_that_no_kernel_does_is_told(monkeypatch):
    def declines(module, instruction):
        raise DeclinedError("not today")

    monkeypatch.setitem(makers.MAKERS, "cholesky", declines)
    text = "ENTRY e { x = f32[2,2] parameter(0) ROOT y = f32[2,2] cholesky(x), lower=true }"
    executable = xla.compile(xla.HloModule.from_text(text), cache=False)
    (fallback,) = executable.fallbacks
    assert (fallback.name, fallback.by) == ("y", "interpreter")
    assert np.array_equal(executable(np.float32([[4, 0], [0, 9]])), [[2, 0], [0, 3]])


def test_kernels_that_are_imported_when_they_are_made_exist():
    for path in re.findall(r'_imported\("(.+?)"', inspect.getsource(makers)):
        module, _, name = path.partition(":")
        source = Path(makers.__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text()
        assert f"def {name}(module: Module, " in source, path


def test_a_strategy_that_does_not_apply_is_no_limit_that_a_person_meets():
    page = support_page()
    assert "xlakit/ops/" in page
    assert not [room for room in ("kernels", "loops", "scalars", "collectives") if f"xlakit/cpu/{room}/" in page]


def test_backends_of_ones_own(monkeypatch):
    monkeypatch.setattr("xlakit.api._REGISTERED", {})
    seen = {}

    def compile_module(module, **options):
        seen.update(options)
        return xla.compile(module, backend="interpreter", **options)

    module = xla.HloModule.from_text(LOOP)
    with pytest.raises(xla.UnsupportedError, match=r"there is no backend 'mine'\n.*known: cpu, interpreter"):
        xla.compile(module, backend="mine")
    xla.register_backend("mine", compile_module)
    assert isinstance(xla.compile(module, backend="mine", seed=3), xla.Executable)
    assert seen["seed"] == 3
    with pytest.raises(xla.ArgumentError, match="xlakit's own"):
        xla.register_backend("cpu", compile_module)
