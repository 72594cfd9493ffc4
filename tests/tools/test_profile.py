"""Profiles of compiled programs: ``xlakit.profile``, ``xlakit run --profile`` and ``XLAKIT_PROFILE``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.compiler import compile_module
from xlakit.cpu.profiling.process import profile_of
from xlakit.cpu.profiling.recorder import Event
from xlakit.cpu.profiling.threads import thread_times
from xlakit.options import compiling
from xlakit.tools.cli import main

_LOOP = """
HloModule loop

body {
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={source_file="model.py" source_line=7}
  z = f32[64,64] tanh(y), metadata={source_file="model.py" source_line=8}
  ROOT t = (s32[], f32[64,64]) tuple(j, z)
}

condition {
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT p = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[64,64] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[64,64]) tuple(zero, x)
  w = (s32[], f32[64,64]) while(s), condition=condition, body=body, metadata={source_file="model.py" source_line=9}
  ROOT r = f32[64,64] get-tuple-element(w), index=1
}
"""
_X = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)


@pytest.fixture(name="loop")
def _loop() -> xla.HloModule:
    return xla.HloModule.from_text(_LOOP)


@pytest.fixture(name="loop_file")
def _loop_file(tmp_path: Path) -> Path:
    path = tmp_path / "loop.hlo"
    path.write_text(_LOOP)
    return path


def _nested(events: list[dict[str, Any]]) -> bool:
    """Whether the events of each thread lie in each other or apart, as a timeline can draw them."""
    rows: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        rows[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        stack: list[float] = []
        # Microseconds of floats: a nanosecond is about what they can tell apart.
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= begin + 1e-3:
                stack.pop()
            if stack and end > stack[-1] + 1e-3:
                return False
            stack.append(end)
    return True


def test_steps_are_counted_by_execution_and_loops_are_folded(loop: xla.HloModule):
    found = xla.profile(loop, _X, iterations=3)
    assert found.runs == 3
    (while_step,) = [s for s in found.steps if s.row.kind == "loop"]
    inside = [s for s in found.steps if s.row.depth == 1]
    assert while_step.executions == 3
    assert {s.executions for s in inside} <= {15, 18}
    (dot,) = [s for s in inside if s.flops >= 15 * 2 * 64**3]
    # tanh may be in the same kernel, but no second product.
    assert dot.flops < 15 * 2.1 * 64**3
    assert dot.executions == 15
    assert dot.bytes >= 15 * 2 * 64 * 64 * 4
    assert dot.roofline is not None
    assert 0 < dot.roofline < 10
    assert dot.least <= dot.total / 15 <= dot.most
    assert while_step.total >= dot.total
    assert while_step.own == pytest.approx(while_step.total - sum(s.total for s in inside), abs=1)


def test_times_of_instructions_and_lines_add_up_to_that_of_the_steps(loop: xla.HloModule):
    found = xla.profile(loop, _X, iterations=3)
    own = sum(s.own for s in found.steps)
    assert 0 < own <= found.nanoseconds
    assert own + found.between == pytest.approx(found.nanoseconds, rel=1e-6)
    assert sum(i.nanoseconds for i in found.instructions) == pytest.approx(own, rel=1e-6)
    assert sum(line.nanoseconds for line in found.lines) == pytest.approx(own, rel=1e-6)
    assert {(line.file, line.line) for line in found.lines} >= {("model.py", 7), ("model.py", 9)}
    names = {i.instruction.opcode for i in found.instructions}
    assert {"dot", "while"} <= names
    assert "model.py:7" in str(found)


def test_a_timeline_is_in_the_trace_event_format(loop: xla.HloModule):
    found = xla.profile(loop, _X, iterations=2)
    made = json.loads(found.as_trace())
    events = [e for e in made["traceEvents"] if e["ph"] == "X"]
    names = [e for e in made["traceEvents"] if e["ph"] == "M"]
    assert len(events) + len(names) == len(made["traceEvents"])
    assert {e["name"] for e in names} == {"process_name", "thread_name"}
    assert {(type(e["pid"]), type(e["tid"]), type(e["ts"]), type(e["dur"])) for e in events} == {
        (int, int, float, float)
    }
    assert {e["tid"] for e in events} <= {e["tid"] for e in names}
    assert all(e["dur"] >= 0 for e in events)
    assert _nested(events)
    calls = [e for e in events if e["cat"] == "call"]
    assert [e["name"] for e in calls] == ["loop", "loop"]
    assert len([e for e in events if e["cat"] == "loop"]) == 2
    assert sum(s.executions for s in found.steps) + 2 == len([e for e in events if e["cat"] != "range"])


def test_nesting_is_seen():
    assert _nested([{"tid": 1, "ts": 0.0, "dur": 9.0}, {"tid": 1, "ts": 1.0, "dur": 2.0}])
    assert not _nested([{"tid": 1, "ts": 0.0, "dur": 9.0}, {"tid": 1, "ts": 5.0, "dur": 9.0}])


def test_usual_programs_have_no_code_for_it_and_another_key(loop: xla.HloModule):
    usual = compile_module(loop)
    with compiling(profile=True):
        profiled = compile_module(loop)
        again = compile_module(loop)
    assert "xlakit_profile" not in usual.llvm_ir(optimized=False)
    assert "xlakit_profile_note" in profiled.llvm_ir(optimized=False)
    assert usual.recorder is None
    assert profiled.recorder is not None
    assert usual.cache_key is not None
    assert usual.cache_key != profiled.cache_key == again.cache_key
    np.testing.assert_array_equal(usual(_X), profiled(_X))
    # One from the cache has times of its own.
    again(_X)
    again(_X)
    assert again.recorder is not None
    assert [r.totals()[0].count for r in (profiled.recorder, again.recorder)] == [1, 2]
    assert profile_of(again, again.recorder).steps[0].executions == 2


def test_threads_that_share_a_step_are_seen():
    module = xla.HloModule.from_text(
        "HloModule m\nENTRY main {\n x = f32[1000000] parameter(0)\n ROOT y = f32[1000000] sine(x)\n}"
    )
    with compiling(knobs={"parallel.parallel_nanoseconds": 0.0}), xla.threads(2):
        found = xla.profile(module, np.ones(1_000_000, np.float32), iterations=5)
    (step,) = [s for s in found.steps if s.row.shared]
    assert step.threads is not None
    assert 0.5 < step.threads <= 2.01
    assert found.threads[0].calls
    assert found.threads[0].waiting is not None
    assert all(t.ranges > 0 and t.shared <= 5 for t in found.threads)
    assert sum(t.ranges for t in found.threads) > 5


def test_waiting_is_the_time_of_a_shared_step_without_a_range():
    events = [
        Event(1, True, 10, 40, 100),
        Event(1, True, 25, 45, 200),
        Event(1, True, 46, 50, 200),
        Event(1, False, 5, 55, 100),
        Event(2, False, 55, 60, 100),
        Event(0, False, 5, 60, 100),
    ]
    caller, worker = thread_times(events, {1}, {0})
    assert (caller.calls, caller.busy, caller.waiting, caller.waking) == (True, 35, 20, 5)
    assert (worker.calls, worker.busy, worker.ranges, worker.waiting, worker.waking) == (False, 24, 2, 26, 20)


def test_devices_are_counted_together():
    module = xla.HloModule.from_text(
        "HloModule sums, replica_count=2\n"
        "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
        "ENTRY main { p = f32[2] parameter(0)\n"
        " ROOT s = f32[2] all-reduce(p), replica_groups={}, to_apply=add }"
    )
    found = xla.profile(module, np.float32([1, 2]), iterations=3)
    assert found.runs == 6
    assert [(s.row.kind, s.executions) for s in found.steps] == [("collective", 6)]
    assert sum(t.calls for t in found.threads) >= 1
    assert "all-reduce" in str(found) or "%s" in str(found)


def test_a_program_with_side_effects_runs_no_more_often_than_it_is_timed():
    calls: list[int] = []

    def note(x: Any) -> Any:
        calls.append(1)
        return x

    text = (
        "HloModule m\nENTRY main {\n x = f32[2] parameter(0)\n"
        ' ROOT y = f32[2] custom-call(x), custom_call_target="note", custom_call_has_side_effect=true\n}'
    )
    found = xla.profile(xla.HloModule.from_text(text), np.float32([1, 2]), iterations=3, custom_calls={"note": note})
    assert len(calls) == 3
    assert found.overhead is None
    assert [(s.row.kind, s.executions) for s in found.steps if s.row.kind == "python"] == [("python", 3)]


def test_events_beyond_the_room_for_them_are_counted_but_not_kept(loop: xla.HloModule, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("xlakit.cpu.profiling.recorder.EVENTS", 4)
    found = xla.profile(loop, _X, iterations=2)
    assert len(found.events) == 4
    assert found.runs == 2
    total = sum(s.executions for s in found.steps) + found.runs
    assert found.dropped >= total - 4


def test_what_cannot_be_profiled_is_an_error(loop: xla.HloModule, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with pytest.raises(xla.ArgumentError, match="iterations is 0"):
        xla.profile(loop, _X, iterations=0)
    monkeypatch.setenv("XLAKIT_PROFILE", str(tmp_path / "p"))
    monkeypatch.setenv("XLAKIT_SANITIZE", "1")
    with pytest.raises(xla.ArgumentError, match="XLAKIT_PROFILE does not go with XLAKIT_SANITIZE"):
        xla.compile(loop)


def test_the_command_prints_tables_and_writes_a_timeline(
    loop_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["run", str(loop_file), "--profile", "--profile-output", str(tmp_path / "t.json")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("loop: 10 runs, ")
    assert "taking the times: " in out
    assert "model.py:7" in out
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert main(["run", str(loop_file), "--profile", "--iterations", "2", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["runs"] == 2
    assert {line["line"] for line in made["lines"] if line["file"] == "model.py"} >= {7, 9}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--profile-output", "x.json"], "--profile-output is for --profile"),
        (["--profile", "--backend", "interpreter"], "does not go with --backend"),
        (["--profile", "--compare", "interpreter"], "--compare does not go with a report"),
    ],
)
def test_options_that_do_not_go_together(
    loop_file: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
):
    with pytest.raises(SystemExit) as exit:
        main(["run", str(loop_file), *options])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


def test_a_process_writes_the_times_of_its_programs(loop_file: Path, tmp_path: Path):
    code = (
        "import sys, numpy as np, xlakit as xla\n"
        "module = xla.HloModule.from_text(open(sys.argv[1]).read())\n"
        "run, unused = xla.compile(module), xla.compile(module.replace(name='unused'))\n"
        "for _ in range(4): run(np.ones((64, 64), np.float32))\n"
    )
    folder = tmp_path / "profiles"
    for _ in range(2):  # the second one from the compile cache
        subprocess.run(
            [sys.executable, "-c", code, str(loop_file)],
            env={**os.environ, "XLAKIT_PROFILE": str(folder)},
            check=True,
            timeout=100,
        )
    stems = {path.name.partition(".")[0] for path in folder.iterdir()}
    assert len(stems) == 2
    for stem in stems:
        (made,) = json.loads((folder / f"{stem}.json").read_text())
        assert (made["module"], made["runs"]) == ("loop", 4)
        assert "model.py:7" in (folder / f"{stem}.txt").read_text()
        events = json.loads((folder / f"{stem}.trace.json").read_text())["traceEvents"]
        assert len([e for e in events if e.get("cat") == "call"]) == 4
