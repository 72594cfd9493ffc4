"""Many collectives at once, and what many runs leave behind; ``python -m fuzz.stress`` does more of it."""

import gc
import os
import threading
from pathlib import Path

import evaluating
import numpy as np
import pytest
from evaluating import s32

import xlakit as xla
from fuzz import stress
from fuzz.support.stress_programs import KINDS, Kind, make_program
from xlakit.execution.channels import Channel, Message, PostedReceive
from xlakit.execution.device import Device
from xlakit.execution.run import Run


@pytest.fixture(params=["interpreter", "cpu"])
def tested(request, monkeypatch):
    monkeypatch.setattr(evaluating, "BACKEND", request.param)
    return request.param


def test_collectives_and_feeds_from_several_threads(tested, capsys):
    arguments = ["--backend", tested, "--replicas", "4", "--collectives", "40", "--callers", "2", "--largest", "64"]
    assert stress.main([*arguments, "--watchdog", "120"]) == 0, capsys.readouterr().out
    assert "0 faults" in capsys.readouterr().out


def test_a_difference_is_told(monkeypatch):
    wrong = {name: Kind(kind.emit, lambda rows: rows) for name, kind in KINDS.items()}
    monkeypatch.setattr("fuzz.support.stress_programs.KINDS", wrong)
    options = stress.Options(replicas=2, collectives=1, callers=1, backend="interpreter", largest=8)
    faults = stress.Stress(options).run().faults
    assert any("differ" in fault for fault in faults)


def test_leftovers_are_told():
    report = stress.Report()
    report.before = stress.Usage(1, 1, 5, 100.0)
    report.after = stress.Usage(2, 1, 6, 300.0)
    found = stress.leftovers(report, 64)
    assert found == [
        "threads: 1 before, 2 after",
        "files: 5 before, 6 after",
        "memory: 100 MB before, 300 MB after",
    ]


def test_the_same_seed_makes_the_same_program():
    first, second = (make_program(5, 8, 2, 64, is_fed=True) for _ in range(2))
    assert first == second
    assert first != make_program(6, 8, 2, 64, is_fed=True)


def remaining():
    """What should be gone when nothing runs."""
    gc.collect()
    counts = dict.fromkeys(("Run", "Device", "Channel", "Message", "PostedReceive"), 0)
    for value in gc.get_objects():
        if isinstance(value, (Run, Device, Channel, Message, PostedReceive)):
            counts[type(value).__name__] += 1
    files = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    return counts, threading.active_count(), files


def test_some_hundred_replicas_leave_nothing_behind(tested):
    def fails(x):
        if x < 0:
            raise ValueError("negative")
        return x

    def run(x):
        given = xla.custom_call(x.builder, "fails", [x], s32())
        xla.outfeed(given)
        ring = [(i, (i + 1) % 8) for i in range(8)]
        return xla.all_reduce(xla.collective_permute(given, ring) + xla.infeed(x.builder, s32()), xla.add)

    executable = evaluating.compiled(
        evaluating.build(run, s32()),
        num_replicas=8,
        custom_calls={"fails": fails},
        execution_context=xla.ExecutionContext(timeout=20),
    )

    def once(number):
        execution_context = executable.execution_context
        for device in range(8):
            execution_context.infeed(device, number)
        if number % 5 == 4:
            with pytest.raises(xla.ExecutionError, match="negative"):
                executable.execute_replicated([[np.int32(i - 3)] for i in range(8)])
            execution_context.clear()
            return
        assert [int(r) for r in executable(number)] == [16 * number] * 8
        assert [int(execution_context.outfeed(device)) for device in range(8)] == [number] * 8

    for number in range(5):
        once(number)
    before = remaining()
    for number in range(50):
        once(number)
    assert remaining() == before
