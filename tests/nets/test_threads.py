"""Programs that several threads compile at once: what differs from one thread's results, fails or hangs is told."""

import random
import re
from pathlib import Path

import pytest

import xlakit
from fuzz import threads
from fuzz.support.workers import batches, threads_worker
from fuzz.support.workers.threads_worker import Case
from xlakit.dataclass import dataclass

pytest.importorskip("jax")

_ROOT = Path(xlakit.__file__).parents[1]


def test_a_batch_has_no_fault(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    # The fourth one goes through JAX, and takes a fifth of the time of those before it.
    assert threads.judge(3, 3) == ""


def test_every_fourth_batch_goes_through_jax():
    names = [case.name for case in threads_worker.cases(1, 7, random.Random(0))]
    assert names == ["JAX program 7"]


def test_a_program_is_fed_while_it_starts():
    fed = threads_worker.cases(1, 2, random.Random(0))[-1]
    assert fed.name.startswith("fed 2 on ")
    results = fed.run()
    # Each start gives back what each device was fed, in order.
    starts = [results[str(n)] for n in range(len(results))]
    once = len(starts) // threads_worker._STARTS
    assert starts == starts[:once] * threads_worker._STARTS


def test_threads_have_all_programs_to_run():
    cases = [Case(name, lambda name=name: {"0": name.encode()}) for name in "abc"]
    found = threads_worker.at_once([cases, cases[::-1]])
    assert found == [{name: {"0": name.encode()} for name in "abc"}] * 2


def test_a_thread_that_waits_meets_what_another_replaces_meanwhile():
    def used_at_once(waits):
        found = []
        for _ in range(20):

            @dataclass(frozen=True)
            class Point:
                x: int

            # The last generic call and the first compiled one are those of different threads.
            case = Case("point", lambda made=Point: {"0": b"".join(str(made(n).x).encode() for n in range(12))})
            found += threads_worker.at_once([[case]] * 2, waits)
        return found

    assert used_at_once([random.Random(n) for n in range(2)]) == used_at_once(())


def _counting(results):
    """A program that gives the first of some results to its first run, and so on, or raises it."""
    left = list(results)

    def run():
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return {"0": result}

    return [Case("counting", run)]


@pytest.mark.parametrize(
    "results, told",
    [
        ([b"1", b"1", b"1"], []),
        ([b"1", b"2", b"1"], ["0: other bits than one thread alone gives"]),
        ([b"1", KeyError("x"), b"1"], ["KeyError: 'x', where one thread alone gives results"]),
    ],
)
def test_what_differs_is_told(monkeypatch, results, told):
    cases = _counting(results)
    monkeypatch.setattr(threads_worker, "cases", lambda *_: cases)
    # A seed for which there are two threads.
    number = next(n for n in range(100) if random.Random(f"0 {n} threads").randint(2, 5) == 2)
    found = [re.sub(r" [(]\S+[)]", "", fault.split(": ", 1)[1]) for fault in threads_worker.faults(0, number)]
    assert found == told


def test_a_process_that_ends_early_or_hangs_is_told(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    monkeypatch.setattr(batches.sys, "executable", "false")
    assert threads.judge(0, 0) == "ended with 1: "
    monkeypatch.setattr(threads, "_LONGEST_SECONDS", 0.0)
    assert threads.judge(0, 0) == "not done in 0 s"


def test_options_of_this_process_are_not_those_of_a_worker(monkeypatch, tmp_path):
    """A script in place of Python prints the options that the process has."""
    (tmp_path / "says").write_text("#!/bin/sh\nenv | grep -oE '^XLAKIT_(VERIFY|SANITIZE|TUNE)=.*'\n")
    (tmp_path / "says").chmod(0o755)
    monkeypatch.setattr(batches.sys, "executable", str(tmp_path / "says"))
    monkeypatch.setenv("XLAKIT_VERIFY", "plain")
    monkeypatch.setenv("XLAKIT_SANITIZE", "1")
    assert batches.fault_of_worker("threads_worker", [], {"XLAKIT_TUNE": "1"}, 60.0) == "XLAKIT_TUNE=1"
