"""The command that runs JAX's own tests: what it makes of what its plugin has written down."""

import json
import signal
import subprocess
from types import SimpleNamespace

import pytest

from fuzz import jax_tests
from fuzz.jax_tests import Choice, Results, _cause, _results, report, run, run_platforms
from fuzz.support import jax_accepted, jax_results
from fuzz.support.jax_results import read


def lines(path, *entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_a_test_that_ends_the_process_has_failed_and_one_without_time_has_not_run(tmp_path):
    entries = [("", "found", "2"), ("A::a", "begun", ""), ("A::a", "passed", ""), ("A::b", "begun", "")]
    late = _results(lines(tmp_path / "x", *entries))
    assert late == Results({"A::a": ("passed", "")}, has_ended=False)
    crashed = _results(tmp_path / "x", crashed="the process ended")
    assert crashed == Results({"A::a": ("passed", ""), "A::b": ("failed", "the process ended")}, has_ended=True)
    assert _results(tmp_path / "x") == crashed


@pytest.fixture
def crashing(monkeypatch, tmp_path):
    """A file of three tests, the second of which ends the process, without JAX; gives how often processes began."""
    (tmp_path / "three_test.py").write_text(
        "import os\n"
        "open('begun', 'a').write('.')\n"
        "def test_a(): pass\n"
        "def test_b(): os._exit(7)\n"
        "def test_c(): assert os.environ['FAILS'] == ''\n"
    )
    # What is for JAX's sake would load it in each process, as pytest loads each plugin that is installed.
    hooks = "pytest_configure, pytest_runtest_setup"
    (tmp_path / "recorder.py").write_text(f"from fuzz.support.jax_results import *\ndel {hooks}\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(jax_tests, "_has_xdist", lambda: False)
    begun = []
    original = jax_tests.subprocess.Popen

    def popen(command, **options):
        begun.append(options["env"].setdefault("PYTHONPATH", ""))
        options["env"]["PYTHONPATH"] += f":{tmp_path}"
        command = [part.replace("fuzz.support.jax_results", "recorder") for part in command]
        return original(command, **options)

    monkeypatch.setattr(jax_tests.subprocess, "Popen", popen)
    return begun


def test_a_run_goes_on_after_a_crash_and_where_the_last_one_ended(crashing, monkeypatch, tmp_path):
    monkeypatch.setenv("FAILS", "x")
    choice = Choice(seconds=600, keep=tmp_path / "kept")
    found = run(tmp_path / "three_test.py", "cpu", choice)
    assert {test: outcome for test, (outcome, _) in found.tests.items()} == {
        "test_a": "passed", "test_b": "failed", "test_c": "failed"
    }  # fmt: skip
    assert found.has_ended
    assert len(crashing) == 2
    assert run(tmp_path / "three_test.py", "cpu", Choice(seconds=0, keep=tmp_path / "kept")) == found
    assert len(crashing) == 2
    monkeypatch.setenv("FAILS", "")
    again = Choice(seconds=600, keep=tmp_path / "kept", again=True, tests="test_c")
    assert run(tmp_path / "three_test.py", "cpu", again).of("passed") == ["test_a", "test_c"]
    assert "test_b" not in read(tmp_path / "kept" / "three.cpu.jsonl")


def test_subtests_count_as_the_test_that_they_are_of(crashing, tmp_path):
    file = tmp_path / "parts_test.py"
    file.write_text(
        "import unittest\n"
        "class T(unittest.TestCase):\n"
        "    def parts(self, wrong):\n"
        "        for i in range(3):\n"
        "            with self.subTest(i=i):\n"
        "                self.assertNotEqual(i, wrong)\n"
        "    def test_right(self): self.parts(7)\n"
        "    def test_wrong(self): self.parts(1)\n"
    )
    found = run(file, "cpu", Choice(seconds=600)).tests
    assert {test: outcome for test, (outcome, _) in found.items()} == {
        "T::test_right": "passed",
        "T::test_wrong": "failed",
    }
    assert "1 == 1" in found["T::test_wrong"][1]


class Collecting:
    """A process that finds its tests after so many seconds of a clock that it moves itself, and then hangs."""

    def __init__(self, output, seconds):
        self.now = 0.0
        self.output, self.seconds = output, seconds

    def monotonic(self):
        return self.now

    def wait(self, timeout=None):
        self.now += timeout or 0
        if self.now >= self.seconds and not self.output.exists():
            lines(self.output, ("", "found", "1"))
        if timeout is not None:
            raise subprocess.TimeoutExpired("pytest", timeout)

    def kill(self):
        self.killed_at = self.now


@pytest.mark.parametrize(("found_at", "killed_at"), [(3, 9), (30, 36), (1000, 52)])
def test_the_time_of_a_test_begins_when_tests_are_found(monkeypatch, tmp_path, found_at, killed_at):
    process = Collecting(tmp_path / "x", found_at)
    monkeypatch.setattr(jax_tests, "time", process)
    assert jax_tests.wait(process, 10_000, 5, tmp_path / "x") == -signal.SIGKILL
    assert process.killed_at == killed_at


def test_a_file_whose_process_ends_before_its_first_test_is_not_passed_over(crashing, tmp_path):
    file = tmp_path / "dying_test.py"
    file.write_text("import os\nos._exit(7)\n")
    with pytest.raises(jax_tests.DoesNotRunError, match="the process ended with 7 before its first test"):
        run(file, "cpu", Choice(seconds=600))


def test_after_one_platform_the_other_runs_only_what_did_not_pass(crashing, monkeypatch, tmp_path):
    monkeypatch.setenv("FAILS", "")
    file = tmp_path / "skipping_test.py"
    file.write_text("import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('no')\ndef test_c(): assert False\n")
    found = run_platforms(file, ["as-cpu", "cpu"], Choice(seconds=600, keep=tmp_path / "kept"), after=True)
    assert found["as-cpu"].of("passed") == ["test_a"]
    assert found["cpu"].has_ended
    assert {test: outcome for test, (outcome, _) in found["cpu"].tests.items()} == {
        "test_b": "skipped", "test_c": "failed"
    }  # fmt: skip
    file.write_text("def test_a(): pass\n")
    found = run_platforms(file, ["as-cpu", "cpu"], Choice(seconds=600, keep=tmp_path / "other"), after=True)
    assert list(found) == ["as-cpu"]
    assert len(crashing) == 3


def test_after_one_platform_the_other_runs_what_was_slow_too(crashing, tmp_path):
    file = tmp_path / "slow_test.py"
    file.write_text("def test_a(): pass\ndef test_b(): pass\n")
    (tmp_path / "kept").mkdir()
    lines(tmp_path / "kept" / "slow.as-cpu.jsonl", ("test_a", "passed", "9.5"), ("test_b", "passed", "10.5"))
    found = run_platforms(file, ["as-cpu", "cpu"], Choice(seconds=600, keep=tmp_path / "kept"), after=True)
    assert found["as-cpu"].of("passed") == ["test_a", "test_b"]
    assert found["cpu"].of("passed") == ["test_b"]
    assert float(found["cpu"].tests["test_b"][1]) >= 0


def test_what_takes_much_longer_here_is_named(capsys):
    ours = {"T::a": ("passed", "12.5"), "T::b": ("passed", "12.5"), "T::c": ("passed", "4"), "T::d": ("passed", "99")}
    theirs = {"T::a": ("passed", "2.1"), "T::b": ("passed", "2.9"), "T::c": ("passed", "0.1"), "T::d": ("failed", "")}
    assert report("lax", {"as-cpu": Results(ours), "cpu": Results(theirs)}) == 0
    said = capsys.readouterr().out
    assert "slower: 12.5 s of processor time, 2.1 s on jaxlib's CPU" in said
    assert said.count("slower") == 1


def test_what_fails_here_alone_is_told_by_cause(capsys, monkeypatch):
    ours = Results(
        {f"T::{n}": ("failed", f"ValueError: {n} is not 7") for n in range(3)} | {"T::9": ("failed", "both")}
    )
    theirs = Results({f"T::{n}": ("passed", "") for n in range(3)} | {"T::9": ("failed", "both")})
    assert report("lax", {"xlakit": ours, "cpu": theirs}) == 3
    said = capsys.readouterr().out
    assert "3  ValueError: # is not #" in said
    assert "both" not in said
    monkeypatch.setattr(jax_accepted, "ACCEPTED", (("lax", "T::[01]", "there is none"), ("api", "*", "another file's")))
    assert report("lax", {"xlakit": ours, "cpu": theirs}) == 1
    said = capsys.readouterr().out
    assert "2  accepted: there is none" in said
    assert "1  ValueError: # is not #" in said


def test_what_is_skipped_here_alone_counts(capsys):
    ours = Results({f"T::{n}": ("skipped", "not for plugins") for n in range(3)})
    theirs = Results({"T::0": ("passed", ""), "T::1": ("failed", ""), "T::2": ("skipped", "")})
    assert report("lax", {"as-cpu": ours, "cpu": theirs}) == 1
    assert "1  skipped: not for plugins" in capsys.readouterr().out


def test_numbers_do_not_make_causes_different():
    assert _cause("AssertionError:\nMismatch 1.5e-3 at 12") == _cause("AssertionError:\nMismatch 2 at 3")


def test_each_seed_samples_other_tests(monkeypatch, tmp_path):
    def sampled(seed):
        monkeypatch.setenv("JAX_SEED", seed)
        items = [SimpleNamespace(nodeid=f"file::T::{number}") for number in range(50)]
        jax_results.pytest_collection_modifyitems(items)
        return [item.nodeid for item in items]

    monkeypatch.setattr(jax_results, "_PATH", tmp_path / "results")
    monkeypatch.setenv("JAX_SAMPLE", "10")
    assert len(sampled("1")) == 10
    assert sampled("1") == sampled("1") != sampled("2")


def test_a_file_that_does_not_run_is_named_and_the_others_run(monkeypatch, capsys, tmp_path):
    def platforms(path, platforms, choice, *, after):
        if path.stem == "broken_test":
            raise jax_tests.DoesNotRunError(f"{path.name} does not run")
        return dict.fromkeys(platforms, Results({"A::a": ("passed", "")}, has_ended=True))

    monkeypatch.setattr(jax_tests, "run_platforms", platforms)
    (tmp_path / "tests").mkdir()
    for name in ("broken", "sound"):
        (tmp_path / "tests" / f"{name}_test.py").touch()
    assert jax_tests.main(["--jax", str(tmp_path), "broken", "sound"]) == 1
    printed = capsys.readouterr().out
    assert printed.index("broken_test.py does not run") < printed.index("\nsound ")
    assert jax_tests.main(["--jax", str(tmp_path), "sound"]) == 0
