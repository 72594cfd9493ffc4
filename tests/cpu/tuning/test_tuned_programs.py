"""Programs that are tuned: what is chosen, kept, found by other processes, and computes the same."""

import io
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit import compile_cache
from xlakit.cpu import compiler
from xlakit.cpu.kernels.shared.fingerprint import kernel_digest
from xlakit.cpu.tuning import record, tune
from xlakit.cpu.tuning.progress import progress_bar
from xlakit.cpu.tuning.record import Gain, Tuning, TuningReport
from xlakit.cpu.tuning.search import CLOCK
from xlakit.execution.inputs import make_inputs
from xlakit.options import KNOBS, Tune, compiling, current, noting_knobs
from xlakit.tools import cli

PRODUCTS = """HloModule products
ENTRY e {
  a = f32[120,130] parameter(0)
  b = f32[130,140] parameter(1)
  first = f32[120,140] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  turned = f32[140,120] transpose(first), dimensions={1,0}
  ROOT second = f32[140,130] dot(turned, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
TILES = "gemm.tile_rows"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("XLAKIT_CACHE", raising=False)
    monkeypatch.delenv("XLAKIT_TUNE", raising=False)
    # The compiler's files may be edited while its tests run.
    for module in (compiler, sys.modules["xlakit.cpu.cache.cache_key"]):
        monkeypatch.setattr(module, "compiler_has_changed", lambda: False)
    sys.modules["xlakit.cpu.cache.cache_key"]._of_compiler.cache_clear()


class Imagined:
    """A clock on which a program takes a millisecond, or less where knobs have numbers that the test says."""

    def __init__(self, gains):
        self.now, self.gains = 0.0, gains

    def __call__(self):
        return self.now

    def install(self, monkeypatch):
        finish = compiler._Compiler.finish

        def timed(compiler, module, code):
            run, knobs, kernels = finish(compiler, module, code), dict(current().knobs), current().kernels
            for chosen in kernels.values():
                knobs.update(chosen)
            time = 1e6 * math.prod(self.gains.get(item, 1.0) for item in knobs.items())

            def call(*arguments):
                self.now += time
                return run(*arguments)

            return call

        monkeypatch.setattr(compiler._Compiler, "finish", timed)
        real = tune.tune
        monkeypatch.setattr(tune, "tune", lambda *a, **k: real(*a, **{**k, "clock": self, "seconds": 1e9}))


def module():
    return xla.HloModule.from_text(PRODUCTS)


def test_what_is_faster_is_chosen_kept_and_compiled_to_from_then_on(monkeypatch):
    plain = xla.compile(module(), backend="cpu", cache=False)
    Imagined({(TILES, 10): 0.5, ("fusion_cost.kernel", 0.0): 0.5}).install(monkeypatch)
    tuned = xla.compile(module(), backend="cpu", tune=True)
    report = tuned.tuning_report
    products = [kernel for kernel in report.kernels if kernel.opcode == "dot"]
    assert len(products) == 2
    assert all(kernel.choice == {TILES: 10} and kernel.after == kernel.before / 2 for kernel in products)
    assert report.program is not None
    assert report.program.after < report.program.before
    assert report.failed == ()
    assert tuned.llvm_ir(optimized=False) != plain.llvm_ir(optimized=False)
    arguments = make_inputs(module().entry.program_shape, 3)
    np.testing.assert_allclose(tuned(*arguments), plain(*arguments), rtol=1e-4, atol=1e-2)
    # Another compilation finds it, and times nothing.
    monkeypatch.setattr(tune, "tune", lambda *a, **k: pytest.fail("it was tuned before"))
    for how in ({"tune": True}, {}):
        again = xla.compile(module(), backend="cpu", **how)
        assert again.tuning_report == report
        assert _kernels(again) == _kernels(tuned)
        np.testing.assert_array_equal(again(*arguments), tuned(*arguments))
    # Code that is gone is made again as it was chosen.
    compile_cache._remove(compile_cache.directory() / (tuned.cache_key + ".xlakit"))
    again = xla.compile(module(), backend="cpu")
    assert _kernels(again) == _kernels(tuned)
    np.testing.assert_array_equal(again(*arguments), tuned(*arguments))


def _kernels(program):
    return program.llvm_ir(optimized=False).replace("define internal", "define")


def test_nothing_is_chosen_where_all_takes_the_same_time(monkeypatch):
    plain = xla.compile(module(), backend="cpu", cache=False)
    Imagined({}).install(monkeypatch)
    tuned = xla.compile(module(), backend="cpu", tune=True)
    assert tuned.tuning_report.compared > 10
    assert all(not kernel.choice for kernel in tuned.tuning_report.kernels)
    assert _kernels(tuned) == _kernels(plain)


def test_a_program_that_is_not_tuned_says_nothing():
    assert xla.compile(module(), backend="cpu").tuning_report is None


def test_code_that_was_kept_untuned_is_tuned_when_asked(monkeypatch):
    xla.compile(module(), backend="cpu")
    Imagined({(TILES, 10): 0.5}).install(monkeypatch)
    tuned = xla.compile(module(), backend="cpu", tune=True)
    assert any(kernel.choice for kernel in tuned.tuning_report.kernels)
    with compiling(tune=Tune(again=True)):
        monkeypatch.setattr(tune, "tune", lambda *a, **k: Tuning(report=TuningReport(compared=77)))
        assert xla.compile(module(), backend="cpu").tuning_report.compared == 77


def test_what_makes_the_whole_program_slower_is_dropped(monkeypatch):
    imagined = Imagined({(TILES, 10): 0.5})
    imagined.install(monkeypatch)
    finish = compiler._Compiler.finish

    def slower(compiler, module, code):
        run, chosen = finish(compiler, module, code), bool(current().kernels)

        def call(*arguments):
            imagined.now += 5e6 * chosen
            return run(*arguments)

        return call

    monkeypatch.setattr(compiler._Compiler, "finish", slower)
    report = xla.compile(module(), backend="cpu", tune=True).tuning_report
    assert all(not kernel.choice for kernel in report.kernels)
    assert "the whole program became slower" in report.failed[-1]


def test_time_that_is_over_leaves_kernels(monkeypatch):
    real = tune.tune
    monkeypatch.setattr(tune, "tune", lambda *a, **k: real(*a, **{**k, "seconds": 0.0}))
    report = xla.compile(module(), backend="cpu", tune=True).tuning_report
    assert report.left == 2
    assert "2 kernels were left for want of time" in str(report)


def test_a_record_that_is_damaged_is_not_used(monkeypatch):
    Imagined({(TILES, 10): 0.5}).install(monkeypatch)
    key = xla.compile(module(), backend="cpu", tune=True).cache_key
    assert record.load(key) is not None
    compile_cache.save(f"tuning-{key}", compile_cache.Entry({"knobs": 3}, {}))
    with pytest.warns(compile_cache.CacheWarning, match="it holds no choices"):
        assert record.load(key) is None


def test_programs_with_effects_and_endless_loops_are_not_run_to_be_timed(monkeypatch):
    text = """HloModule endless
condition { x = f32[200000] parameter(0)  ROOT c = pred[] constant(true) }
body { x = f32[200000] parameter(0)  ROOT y = f32[200000] tanh(x) }
ENTRY e {
  x = f32[200000] parameter(0)
  ROOT w = f32[200000] while(x), condition=condition, body=body
}"""
    monkeypatch.setattr(tune, "_PROGRAM_KNOBS", ())
    report = xla.compile(xla.HloModule.from_text(text), backend="cpu", tune=True).tuning_report
    assert report.program is None
    assert len(report.kernels) == 1


def test_other_processes_find_what_was_chosen(tmp_path):
    code = f"""
import json, xlakit
program = xlakit.compile(xlakit.HloModule.from_text({PRODUCTS!r}), backend="cpu", tune=True)
print(program.tuning_report.as_json())
"""
    path = Path(xla.__file__).parents[1]
    environment = {"PYTHONPATH": str(path), "XLAKIT_CACHE_DIR": str(tmp_path / "cache")}
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, timeout=300)
        for _ in range(2)
    )
    # Times are those of the first process: nothing was timed again.
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert first.stderr == b""


def test_only_machine_code_is_tuned():
    with pytest.raises(xla.ArgumentError, match="'interpreter' cannot be tuned"):
        xla.compile(module(), backend="interpreter", tune=True)


# -- knobs of single kernels -----------------------------------------------------------------------

TWICE = {
    "product": PRODUCTS,
    "convolution": """HloModule convolution
ENTRY e {
  a = f32[2,14,15,9] parameter(0)
  b = f32[3,3,9,20] parameter(1)
  c = f32[3,3,20,9] parameter(2)
  x = f32[2,14,15,20] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  ROOT r = f32[2,14,15,9] convolution(x, c), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}""",
    "sort": """HloModule sorts
less { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT l = pred[] compare(x, y), direction=LT }
ENTRY e {
  a = f32[400,7] parameter(0)
  x = f32[400,7] sort(a), dimensions={0}, to_apply=less
  ROOT r = f32[400,7] sort(x), dimensions={1}, to_apply=less
}""",
    "columns": """HloModule columns
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
ENTRY e {
  a = f32[300,500] parameter(0)
  zero = f32[] constant(0)
  x = f32[500] reduce(a, zero), dimensions={0}, to_apply=add
  y = f32[300] reduce(a, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[500], f32[300]) tuple(x, y)
}""",
    "prefix sums": """HloModule sums
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
ENTRY e {
  a = f32[6,3000] parameter(0)
  zero = f32[] constant(0)
  x = f32[6,3000] reduce-window(a, zero), window={size=1x3000 pad=0_0x2999_0}, to_apply=add
  ROOT r = f32[6,3000] reduce-window(x, zero), window={size=6x1 pad=5_0x0_0}, to_apply=add
}""",
}


@pytest.mark.parametrize("name", TWICE)
def test_kernels_with_knobs_of_their_own_stand_beside_others(name):
    """What is chosen for one kernel changes none beside it, in whichever order they are made."""
    program = xla.HloModule.from_text(TWICE[name])
    with noting_knobs() as names:
        usual = xla.compile(program, backend="cpu", cache=False)
    arguments = make_inputs(program.entry.program_shape, 5)
    expected = usual(*arguments)
    steps = usual.memory_plan().program.steps
    digests = [kernel_digest(step.instruction) for step in steps if hasattr(step, "phases")]
    tried = 0
    for knob in (KNOBS[name] for name in sorted(names)):
        for number in (*knob.tries, *(knob.others if knob.tries else ())):
            for digest in digests:
                with compiling(replace(current(), kernels={digest: {knob.name: number}})):
                    other = xla.compile(program, backend="cpu", cache=False)
                _agree(other(*arguments), expected)
                tried += 1
    assert tried > 10


def _agree(actual, expected):
    if isinstance(expected, tuple):
        for a, e in zip(actual, expected, strict=True):
            _agree(a, e)
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "program.hlo"
    path.write_text(PRODUCTS)
    return str(path)


def test_the_command_prints_the_report(file, monkeypatch, capsys):
    imagined = Imagined({(TILES, 10): 0.5})
    imagined.install(monkeypatch)
    assert cli.main(["tune", file, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [kernel["choice"] for kernel in told["kernels"] if kernel["opcode"] == "dot"] == [{TILES: 10}] * 2
    # It is the report of what is kept.
    assert cli.main(["tune", file]) == 0
    text = capsys.readouterr().out
    assert "dot 'second': gemm.tile_rows=10" in text
    assert "0.50" in text
    assert cli.main(["run", file]) == 0
    capsys.readouterr()
    imagined.gains = {}
    assert cli.main(["tune", file, "--again", "--json"]) == 0
    assert not any(kernel["choice"] for kernel in json.loads(capsys.readouterr().out)["kernels"])


def test_the_command_needs_the_cache(file, monkeypatch, capsys):
    monkeypatch.setenv("XLAKIT_CACHE", "off")
    assert cli.main(["tune", file]) == 1
    assert "the compile cache is off" in capsys.readouterr().err


def test_a_report_says_what_was_gained():
    gains = [
        Gain("d", "dot", "model.py:3", 2e6, 1e6, {"gemm.tile_rows": 8, "gemm.tile_vectors": 2}, same_bits=False),
        Gain("f", "fusion", "", 800.0, 800.0),
    ]
    text = str(TuningReport(gains[0], tuple(gains), 12, ("f: the results differ",), 3))
    assert "12 alternatives timed; 1 of 2 kernels became faster" in text
    assert "2 ms ->       1 ms   0.50  dot 'd' (model.py:3)".replace(" ", "") in text.replace(" ", "")
    assert "sums in another order" in text
    assert "800 ns" in text
    assert "not taken: f: the results differ" in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_progress_is_shown_on_a_terminal_alone(stream, shown):
    with progress_bar("a program", stream) as progress:
        progress(3, 4, "dot.7")
    text = stream.getvalue()
    assert ("3/4 dot.7" in text) is shown
    assert text.endswith("\r\x1b[K") or not shown


def test_the_usual_clock_goes_on():
    assert CLOCK() <= CLOCK()
