"""The nets: their shares of the time, what is noticed of a net, and that all faults of the bank can be put back."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import xlakit
from fuzz import levels, nets
from fuzz.aarch64 import spread
from fuzz.bug_bank.__main__ import Trial, look_for, main as bug_bank, table, trials
from fuzz.bug_bank.bug import Bug, Edit
from fuzz.bug_bank.bugs import BUGS
from fuzz.nets import NETS, Found, Net, chosen, rotated, run, shares
from fuzz.support.children import imported

_MADE = Net("made", ("made",), 1, "")
_SOURCES = Path(xlakit.__file__).parents[1]


def test_shares_add_up_and_names_choose():
    assert math.isclose(sum(shares(NETS, 240).values()), 240)
    assert [net.name for net in chosen(["plain", "idioms"])] == ["idioms", "plain"]


def test_what_a_net_takes_beyond_its_share_is_taken_from_those_behind_it(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(nets, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    first, second, third, fourth = (
        Net(name, (name,), share, "") for name, share in zip("abcd", (1, 1, 2, 2), strict=True)
    )
    turns = nets.in_turn([first, second, third, fourth], 60.0)
    assert next(turns) == (first, 10.0)
    clock[0] += 15.0
    assert next(turns) == (second, 9.0)
    clock[0] += 9.0
    assert next(turns) == (third, 18.0)
    clock[0] += 100.0
    # Where there is none left it has a second: some nets have no limit where they are given 0.
    assert next(turns) == (fourth, 1.0)
    assert not list(turns)


def test_no_net_is_always_the_last_one():
    assert sorted(rotated(NETS, 1), key=str) == sorted(NETS, key=str)
    assert {rotated(NETS, seed)[-1] for seed in range(len(NETS))} == set(NETS)
    assert not rotated([], 3)


def test_nets_that_run_at_once_take_about_as_long():
    two = nets.parts(rotated(NETS, 5), 2)
    assert sorted([*two[0], *two[1]], key=str) == sorted(NETS, key=str)
    assert abs(sum(net.share for net in two[0]) - sum(net.share for net in two[1])) <= 6
    assert nets.parts([], 2) == []
    assert nets.parts([_MADE], 2) == [[_MADE]]


def test_nets_that_run_at_once_are_all_counted(tmp_path):
    # Forked processes of one that has no threads.
    (tmp_path / "good.py").write_text("def main(arguments):\n    print('7 programs')\n")
    (tmp_path / "wrong.py").write_text("def main(arguments):\n    print('FAILED it', flush=True)\n    return 1\n")
    made = [Net(name, (name,), 1, "") for name in ("good", "wrong", "wrong")]
    program = f"from fuzz import nets; Net = nets.Net; print(nets._at_once(nets.parts({made!r}, 2), 3, 0.0))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(_SOURCES)])}
    said = subprocess.run([sys.executable, "-c", program], check=True, env=environment, capture_output=True, text=True)
    *lines, count = said.stdout.splitlines()
    assert (count, sorted(line.split()[0] for line in lines)) == ("2", ["FAILED", "FAILED", "good", "wrong", "wrong"])


def test_levels_that_are_alike_share_a_sample_and_take_turns():
    everything = sorted(levels.sample("x86-64-v3", 1))
    for seed in (1, 2):
        first, second = (levels.sample(level, seed) for level in ("x86-64", "x86-64-v2"))
        assert sorted([*first, *second]) == everything
    assert levels.sample("x86-64", 1) == levels.sample("x86-64-v2", 2)


def test_a_sample_of_tests_with_parameters_has_all_values_of_each():
    tests = [(kind, lower, size) for kind in "sdcz" for lower in (False, True) for size in (1, 5, 17)]
    sample = spread(tests, 4)
    assert [len(set(values)) for values in zip(*sample, strict=True)] == [4, 2, 3]
    assert spread(tests, 24) == spread(tests, 30) == tests
    assert spread(tests, 1) == tests[:1]


def _net(tmp_path, code):
    (tmp_path / "made.py").write_text(f"import os, signal, sys\n{code}\n")
    return run(_MADE, 3, 5, str(tmp_path))


def test_a_net_that_finds_nothing(tmp_path):
    assert not _net(tmp_path, f"assert sys.argv[1:] == {_MADE.arguments(3, 5)[2:]}").fault


def test_each_net_has_a_seed_of_its_own():
    seeds = [net.arguments(seed, 5)[-3] for net in NETS for seed in (1, 2)]
    assert len(set(seeds)) == len(seeds)


def test_a_net_that_finds_something_tells_its_first_line(tmp_path):
    found = _net(tmp_path, "print('FAILED one')\nprint('FAILED two')\nprint('2 programs, 2 failures')\nsys.exit(1)")
    assert (found.fault, found.last) == ("FAILED one", "2 programs, 2 failures")


def test_a_net_that_dies_has_found_something(tmp_path):
    assert _net(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)").fault.startswith("died of SIGSEGV")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("print(os.environ['XLAKIT_OF_A_TEST'])", ""),
        ("print('FAILED one', flush=True)\n    return 1", "FAILED one"),
        ("return 2", "ended with status 2"),
        ("raise ValueError", "ended with status 1"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "died of SIGSEGV"),
        ("time.sleep(60)", "died of SIGKILL"),
    ],
)
def test_a_net_may_be_a_fork(tmp_path, monkeypatch, body, fault):
    (tmp_path / "forked_net.py").write_text(f"import os, signal, time\ndef main(arguments):\n    {body}\n")
    # The process that forks has no threads, which this one may have.
    made = Net("made", ("forked_net",), 1, "", (("XLAKIT_OF_A_TEST", "yes"),))
    program = (
        "import fuzz.nets as nets, sys; nets._PATIENCE_SECONDS = 0.5; nets.os.getloadavg = lambda: (0, 0, 0)\n"
        f"found = nets.run(nets.{made!r}, 3, 0.1, forks=True); print(found.fault or found.last)"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(_SOURCES)]))
    said = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert said.startswith(fault or "yes")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_fault_of_the_bank_can_be_put_back(bug, tmp_path):
    for edit in bug.edits:
        (tmp_path / edit.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_SOURCES / edit.path, tmp_path / edit.path)
    bug.put_back(tmp_path)
    for path in {edit.path for edit in bug.edits}:
        changed = (tmp_path / path).read_text()
        assert changed != (_SOURCES / path).read_text()
        compile(changed, path, "exec")


def test_a_net_is_ended_later_where_processors_are_shared(tmp_path, monkeypatch):
    (tmp_path / "made.py").write_text("import time\ntime.sleep(0.6)\nprint('1 programs, 0 failures')\n")
    made = Net("made", ("made",), 1, "")
    monkeypatch.setattr(nets, "_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(nets.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert run(made, 3, 0, str(tmp_path)).fault.startswith("died of SIGKILL")
    monkeypatch.setattr(nets.os, "getloadavg", lambda: (1e5, 0.0, 0.0))
    assert run(made, 3, 0, str(tmp_path)).fault == ""


def test_a_fault_that_cannot_be_put_back_says_so(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="0 times, not once"):
        Bug("b", "", "", "", (Edit("a.py", "y = 1", "y = 2"),)).put_back(tmp_path)


def test_the_table_tells_what_was_not_found_from_what_was_not_tried():
    found = {"one": {"idioms": Found("x", 3.4, ""), "plain": None}}
    assert table(found).splitlines()[-1] == "| one | 1 | idioms 3 | plain |"


def test_a_net_makes_as_many_programs_as_another_run_tells():
    told = "12:00:00 nets: idioms   36 programs  no fault\ncompile-time   1 programs  no fault\n"
    given = trials(chosen(["idioms", "plain"]), 50.0, told)
    assert [trial.programs for trial in given.values()] == [36, None]
    assert chosen(["idioms"])[0].arguments(3, 5.0, 36)[-4:-2] == ["--count", "36"]
    # What it measures is a part of what it makes.
    assert [trial.programs for trial in trials(chosen(["compile-time"]), 50.0, told).values()] == [None]


def test_what_a_file_tells_of_a_fault_is_not_run_again(tmp_path, capsys):
    found: dict[str, Found | None] = {"made": None}
    assert list(look_for(BUGS[0], {_MADE: Trial(5)}, 3, 1, found)) == []
    (tmp_path / "kept").write_text(f'{{"{BUGS[0].name}": {{"plain": {{"fault": "x", "seconds": 7.0, "last": ""}}}}}}')
    assert bug_bank(["--keep", str(tmp_path / "kept"), "--enough", "1", "--bug", BUGS[0].name]) == 0
    assert f"| {BUGS[0].name} | 1 | plain 7 |  |" in capsys.readouterr().out


def test_each_net_of_the_bank_is_one_and_has_a_main():
    assert {name for bug in BUGS for name in bug.nets} <= {net.name for net in NETS}
    assert imported("fuzz.jax_programs").__name__ == "fuzz.jax_programs.__main__"
