from __future__ import annotations

import importlib.util
import math
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fuzz import libraries, library_tests
from fuzz.jax_tests import wait
from fuzz.library_programs.registry import program
from fuzz.support import jax_results
from fuzz.support.workers.libraries_worker import arrays_file, read, write

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")


def _options(folder: Path, *names: str) -> libraries.Options:
    return libraries.Options(Path(sys.executable), folder, names, 0, 1, 120, math.inf)


def _results(folder: Path, ours: np.ndarray, theirs: np.ndarray, **found: float) -> dict[str, dict[str, object]]:
    results: dict[str, dict[str, object]] = {}
    for platform, array in (("as-cpu", ours), ("cpu", theirs)):
        (folder / platform).mkdir()
        np.savez(arrays_file(folder / platform, "x/y"), a=array)
        results[platform] = {"outcome": "ran", "types": [str(array.dtype)], "tolerance": None, "compile": 0.0}
    results["as-cpu"].update(found)
    return results


@pytest.mark.parametrize(
    ("ours", "theirs", "wrong"),
    [
        (np.float32([1, 2]), np.float32([1, 2 + 1e-6]), ""),
        (np.float32([1, 2]), np.float32([1, 2.01]), "numbers"),
        (np.float32([1, np.nan]), np.float32([1, 2]), "numbers"),
        (np.float32([1, 2]), np.float32([1, np.nan]), "numbers"),
        (np.float32([1, np.inf]), np.float32([1, np.inf]), ""),
        (np.int32([1, 2]), np.int32([1, 3]), "numbers"),
        (np.int32([1, 2]), np.int64([1, 2]), "types"),
        (np.float64([1, 2]), np.float64([1, 2 + 1e-9]), "numbers"),
    ],
)
def test_numbers_that_are_apart_are_told(tmp_path: Path, ours: np.ndarray, theirs: np.ndarray, wrong: str):
    found, _ = libraries.verdict("x/y", _results(tmp_path, ours, theirs), _options(tmp_path))
    assert found.startswith(wrong)
    assert bool(found) == bool(wrong)


def test_a_compiler_that_takes_long_is_told(tmp_path: Path):
    same = np.float32([1])
    found, _ = libraries.verdict("x/y", _results(tmp_path, same, same, compile=100.0), _options(tmp_path))
    assert "compiling took 100.0 s" in found


def test_roundings_beside_large_numbers_are_no_numbers(tmp_path: Path):
    # A gradient that is 0 but for roundings.
    for folder, noise in (("a", 1e-8), ("b", -1e-8)):
        np.savez(tmp_path / f"{folder}.npz", large=np.float32([3]), none=np.float32([noise]))
    apart, _ = libraries.difference(tmp_path / "a.npz", tmp_path / "b.npz")
    assert 0 < apart < 1e-5


def test_a_tolerance_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        program("x/y", tolerance=1e-2)


@pytest.mark.parametrize(
    ("own", "failed", "said"),
    [
        (2.3, 0, "ILL-CONDITIONED"),
        (2.15, 0, "ILL-CONDITIONED"),
        (2.08, 1, "WRONG: numbers"),
        (2.01, 1, "WRONG: numbers"),
        (None, 1, "WRONG: numbers"),
    ],
)
def test_numbers_are_ill_conditioned_where_the_reference_is_half_as_far_from_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own: float | None,
    failed: int,
    said: str,
):
    def run(file: str, platform: str, options: libraries.Options) -> dict[str, dict[str, object]]:
        assert (file, options.names) == ("file", ("=x/y",))
        if own is None or platform != "cpu-older":
            return {"x/y": {"outcome": "failed", "error": "not here"}}
        (tmp_path / platform).mkdir()
        np.savez(arrays_file(tmp_path / platform, "x/y"), a=np.float32([1, own]))
        return {"x/y": {"outcome": "ran"}}

    monkeypatch.setattr(libraries, "run_file", run)
    found = _results(tmp_path, np.float32([1, 2.2]), np.float32([1, 2]))
    for each in found.values():
        each.update(first=0.0, steady=0.0)
    results = {platform: {"x/y": each} for platform, each in found.items()}
    assert libraries.report("file", results, _options(tmp_path)) == failed
    assert said in capsys.readouterr().out


@needs_jax
def test_the_reference_is_given_nudged_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(libraries, "ROUNDINGS", {"cpu-nudged": libraries.ROUNDINGS["cpu-nudged"]})
    options = _options(tmp_path, "control/rotating_carry")
    libraries.run_file("jax_alone.control", "cpu", options)
    assert 0 < libraries.spread("jax_alone.control", "control/rotating_carry", options) < 1e-5


@needs_jax
def test_a_program_runs_on_both_platforms_and_is_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = _options(tmp_path, "control/crosswise")
    results = {platform: libraries.run_file("jax_alone.control", platform, options) for platform in ("as-cpu", "cpu")}
    assert libraries.report("jax_alone.control", results, options) == 0
    assert "control/crosswise" in capsys.readouterr().out
    lines = (tmp_path / "cpu" / "jax_alone.control.jsonl").read_text()
    libraries.run_file("jax_alone.control", "cpu", options)
    assert (tmp_path / "cpu" / "jax_alone.control.jsonl").read_text() == lines


def test_a_crash_is_told_and_the_next_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    output = tmp_path / "cpu" / "jax_alone.control.jsonl"
    # What an interrupted run has left, and other programs are chosen now.
    output.parent.mkdir()
    write(output, "other", {"outcome": "begun"})
    worker = tmp_path / "fuzz" / "support" / "workers" / "libraries_worker.py"
    worker.parent.mkdir(parents=True)
    worker.write_text(
        "import json, os, pathlib, sys\n"
        "path = pathlib.Path(sys.argv[2]) / 'jax_alone.control.jsonl'\n"
        "def write(name, outcome):\n"
        "    with path.open('a') as file: file.write(json.dumps([name, {'outcome': outcome}]) + chr(10))\n"
        "if 'crashing' not in path.read_text():\n"
        "    write('crashing', 'begun'); os._exit(7)\n"
        "write('good', 'begun'); write('good', 'ran')\n"
    )
    monkeypatch.setattr(libraries, "_ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert libraries.run_file("jax_alone.control", "cpu", _options(tmp_path)) == {
        "crashing": {"outcome": "crashed", "error": "the process ended with 7"},
        "good": {"outcome": "ran"},
    }
    assert read(output)["other"] == {"outcome": "begun"}


def test_a_process_is_ended_when_one_test_takes_too_long(tmp_path: Path):
    output = tmp_path / "results"
    write(output, "slow", {"outcome": "begun"})
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    assert wait(process, 500, 0.1, output) == -signal.SIGKILL
    assert read(output) == {"slow": {"outcome": "begun"}}


@needs_jax
def test_a_checkout_is_tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    package = tmp_path / "chex"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "some_test.py").write_text("def test_good(): pass\ndef test_bad(): assert False\n")
    (package / "pmap_test.py").write_text("def test_left_out(): assert False\n")
    arguments = ["--checkout", str(tmp_path), "--only", "as-cpu", "--keep", str(tmp_path / "results")]
    assert library_tests.main(arguments) == 1
    said = capsys.readouterr().out
    assert "| chex | 1 of 1 | 0 | 1 | 1 | 0 |" in said
    assert "test_bad" in said
    assert "left_out" not in said
    theirs = tmp_path / "results" / "chex" / "chex" / "some_test.cpu.jsonl"
    theirs.write_text('["", "found", "1"]\n["test_bad", "failed", "as here"]\n')
    arguments = ["--checkout", str(tmp_path), "--after", "--keep", str(tmp_path / "results"), "--seconds-file", "0"]
    assert library_tests.main(arguments) == 0
    assert "| chex | 1 of 1 | 0 | 1 | 1 | 1 | 0 | 0 |" in capsys.readouterr().out


@needs_jax
def test_the_files_of_a_checkout_run_in_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for folder, text in (
        ("chex", "import os\nos.environ['SEEN'] = '1'\ndef test_one(): pass\ndef test_two(): pass\n"),
        ("chex/a", "import os\ndef test_one(): assert os.environ['SEEN']\ndef test_two(): assert os.environ['SEEN']\n"),
        ("chex/b", "import no_such_module\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "some_test.py").write_text(text)
    (tmp_path / "chex" / "__init__.py").write_text("")
    results = tmp_path / "results"
    arguments = ["--checkout", str(tmp_path), "--only", "as-cpu", "--keep", str(results), "--together", "--sample", "3"]
    assert library_tests.main(arguments) == 1
    said = capsys.readouterr().out
    assert "| chex | 3 of 3 | 0 | 3 | 1 | 0 |" in said
    assert "no_such_module" in said
    files = {test.partition("::")[0] for test in jax_results.read(results / "chex.as-cpu.jsonl")}
    assert files == {"", "chex/some_test.py", "chex/a/some_test.py", "chex/b/some_test.py"}


def test_files_are_taken_by_size_and_a_share_of_them_by_chance_until_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "chex"
    package.mkdir()
    for number in range(20):
        (package / f"part{number:02}_test.py").write_text("#" * (100 - number))
    library = next(library for library in library_tests.LIBRARIES if library.name == "chex")
    everything = library_tests.files_of(library, tmp_path)
    assert list(library_tests.Share().files(library, tmp_path)) == everything[::-1]
    shuffled = list(library_tests.Share(1000, 3).files(library, tmp_path))
    assert shuffled != everything
    assert sorted(shuffled) == everything
    clock = iter(range(100))
    monkeypatch.setattr(library_tests, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert list(library_tests.Share(5, 3).files(library, tmp_path)) == shuffled[:4]


def test_what_stands_beside_a_package_is_no_test_of_it(tmp_path: Path):
    package, tests = tmp_path / "src" / "tinygp", tmp_path / "tests" / "test_kernels"
    for folder in (package, tests):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "test_utils.py").write_text("")
    (tests / "test_distance.py").write_text("")
    library = library_tests.library_of(tmp_path)
    assert library is not None
    assert library_tests.files_of(library, tmp_path) == [tests / "test_distance.py"]
