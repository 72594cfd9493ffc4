"""Processes that fail, or do something else than the others: how each of them ends, and that the rest goes on."""

import time

import pytest
from launching import HERE, launch, needs_mpi

from fuzz import faults
from fuzz.support.rank_faults import RANK_CASES

pytestmark = needs_mpi

FINE = "fine [2.0, 2.0, 2.0]"


def reports(fault, timeout, ranks=2):
    """What each process says of its programs, by their names, and how mpiexec ended."""
    done = launch(ranks, HERE / "fault_worker.py", fault, timeout, timeout=60)
    said = [{} for _ in range(ranks)]
    for line in done.stdout.splitlines():
        if line.startswith("rank "):
            rank, name, report = line[5:].split(": ", 2)
            said[int(rank)].setdefault(name, []).append(report)
    return said, done


@pytest.fixture(scope="module")
def survived():
    """What two processes say that do one wrong thing after the other, none of which ends them."""
    said, done = reports("none", 1.0)
    assert done.returncode == 0, done.stderr
    return said


def test_after_each_fault_the_next_program_runs(survived):
    for said in survived:
        after = {name: lines for name, lines in said.items() if name.startswith("after")}
        assert len(after) == 6
        assert all(lines == [FINE] for lines in after.values()), after


def test_different_programs_are_found_out(survived):
    for said in survived:
        (report,) = said["different"]
        assert report.startswith("RankError")
        assert "rank 0 (device 0): run 2 is total (x: f32[3]) -> f32[3]" in report
        assert "rank 1 (device 1): run 2 is product (x: f32[3]) -> f32[3]" in report


def test_an_error_in_one_process_is_told_in_the_others(survived):
    assert survived[1]["raises"][0].startswith("ExecutionError custom-call")
    report = survived[0]["raises"][0]
    assert report.startswith("RankError rank 1 (device 1) failed: ExecutionError: custom-call")
    assert "the pump is broken" in report


def test_a_process_that_computes_is_waited_for_longer_than_the_timeout(survived):
    assert [said["slow"] for said in survived] == [[FINE]] * 2


def test_different_orders_of_collectives_are_an_error_that_tells_both(survived):
    for said in survived:
        (report,) = said["crossed"]
        assert "the processes of a group are at different collectives" in report
        assert "rank 0 (device 0): all-gather 'all-gather" in report
        assert "rank 1 (device 1): all-reduce 'all-reduce" in report
        assert "fault_worker.py:" in report


@pytest.mark.parametrize("fault", ["longer", "unsent"])
def test_a_process_that_has_ended_the_program_is_not_waited_for(survived, fault):
    errors = [said[fault][0] for said in survived if "fine" not in said[fault][0]]
    assert errors
    for report in errors:
        assert report.startswith("RankError")
        assert "rank 1 (device 1) has ended the program, after 0." in report
        assert "fault_worker.py:" in report


def test_a_process_that_does_not_come_is_named():
    said, _ = reports("absent", 0.5)
    assert said[0][""][1].startswith("RankError all-reduce 'all-reduce")
    assert "rank 1 (device 1) has not begun the program (it runs no program), after 0." in said[0][""][1]
    assert "fault_worker.py:" in said[0][""][1]
    assert "XLAKIT_TIMEOUT" in said[0][""][1]


def test_a_process_that_has_left_is_not_waited_for():
    said, _ = reports("leaves", 30)
    assert "rank 1 (device 1) has ended" in said[0][""][1]


def test_an_uncaught_error_ends_all_processes():
    said, done = reports("dies", 30)
    assert done.returncode != 0
    assert "RuntimeError: rank one is ill" in done.stderr
    report = said[0][""][1]
    assert report.startswith("RankError all-reduce 'all-reduce")
    assert "rank 1 (device 1) has ended with an error: RuntimeError: rank one is ill, after 0." in report


@pytest.mark.parametrize("fault", ["killed", "exits"])
def test_a_killed_process_ends_all(fault):
    start = time.monotonic()
    said, done = reports(fault, 30)
    assert done.returncode != 0
    assert time.monotonic() - start < 25
    assert said[0] == {"": [FINE]}


def test_the_watchdog_finds_a_process_that_does_not_answer():
    said, _ = reports("hangs", 0.6, ranks=3)
    assert "rank 1 (device 1) does not answer" in said[0][""][1]


@pytest.mark.parametrize(
    "case", [c for c in RANK_CASES.listed if "mpiexec" in c.name], ids=lambda case: case.name.replace(" ", "-")
)
def test_signals_for_the_launcher_end_all(case):
    assert faults.inject(case, "interpreter", 1.0).faults == ()
