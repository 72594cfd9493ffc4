"""Faults in running programs, each injected quickly; ``python -m fuzz.faults`` prints them as a table."""

import threading

import pytest

from fuzz import faults
from fuzz.support.fault_bench import Case, idle_thread
from fuzz.support.fault_cases import CASES
from xlakit.errors import DeadlockError

TIMEOUT = 0.2


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("case", CASES.listed, ids=lambda case: case.name.replace(" ", "-"))
def test_a_fault_ends_as_it_should(case, backend):
    outcome = faults.inject(case, backend, TIMEOUT)
    assert outcome.faults == ()


def test_what_does_not_end_as_it_should_is_told():
    def inject(bench):
        executable = bench.compile(lambda b: b and __import__("xlakit").constant(b, 1))
        return executable, lambda: int(executable()) == 2

    outcome = faults.inject(Case("nothing", inject, DeadlockError, waits=True), "interpreter", TIMEOUT)
    assert outcome.faults == ("did not fail", "gave up before 0.2 s", "gives wrong results afterwards")
    assert "FAULT: did not fail" in faults.table([outcome], 50)


def test_a_thread_that_is_left_is_told():
    idle = idle_thread()

    def inject(bench):
        return idle.__enter__, lambda: True

    before = faults._PATIENCE_SECONDS
    faults._PATIENCE_SECONDS = 0.1
    try:
        outcome = faults.inject(Case("left", inject, DeadlockError), "interpreter", TIMEOUT)
    finally:
        faults._PATIENCE_SECONDS = before
        idle.__exit__(None, None, None)
    assert "left a thread: idle" in outcome.faults


def test_the_command(capsys):
    assert faults.main(["--only", "unknown name"]) == 0
    out = capsys.readouterr().out
    assert "a custom call of an unknown name" in out
    assert "2 faults, 0 did not end as they should" in out
