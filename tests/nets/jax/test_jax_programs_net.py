"""The command that compares generated JAX programs: it agrees on some, and sees what is wrong."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fuzz.jax_programs import __main__ as command

pytest.importorskip("jax")


def test_some_programs_agree(capfd):
    assert command.main(["--seed", "test", "--count", "2"]) == 0
    assert "2 programs: 2 agreed" in capfd.readouterr().out


def test_results_of_some_sharded_programs_are_split_alike(capfd):
    assert command.main(["--sharded", "--seed", "test", "--count", "2"]) == 0
    assert "2 programs: 2 agreed" in capfd.readouterr().out


def test_a_result_that_is_split_otherwise_is_a_fault(monkeypatch):
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from fuzz.jax_programs import sharded, worker

    device = jax.devices()[0]
    one = NamedSharding(Mesh(np.asarray([device]), ("x",)), PartitionSpec("x"))
    given = jax.device_put(np.arange(3, dtype=np.uint32), one)
    whole, rows = (
        SimpleNamespace(
            shape=(2,),
            sharding=SimpleNamespace(
                spec=spec,
                mesh=SimpleNamespace(devices=np.arange(2)),
                devices_indices_map=lambda shape, parts=parts: dict(enumerate(parts)),
            ),
        )
        for spec, parts in (("P()", [slice(None), slice(None)]), ("P('x')", [slice(0, 1), slice(1, 2)]))
    )
    found = iter([given, given, given, given + 1, rows, whole])
    monkeypatch.setattr(sharded, "mesh_of", lambda platform: None)
    monkeypatch.setattr(sharded, "result", lambda seed, mesh: [next(found)])
    assert "fault" not in worker.judge("sharded.0")
    assert "[1 2 3] instead of [0 1 2]" in worker.judge("sharded.1")["fault"]
    assert "(2,) is split P(), not P('x')" in worker.judge("sharded.2")["fault"]


def test_a_wrong_result_is_a_fault(monkeypatch):
    from fuzz.jax_programs import worker

    def run(seed, platform, given):
        return [np.float32([1, 2 if platform == "cpu" else 3])], 0.0

    monkeypatch.setattr(worker, "_run", run)
    said = "result 0, float32[2]: from element 1 on [3.] instead of [2.]"
    assert worker.judge("test.0")["fault"] == said
    for alone, kind in ((3.0, "jaxlib"), (2.0, "fault")):
        # What jaxlib's CPU gives where it compiles each operation by itself.
        monkeypatch.setattr(worker, "program", lambda seed, alone=alone: lambda *given: [np.float32([1, alone])])
        found = worker.judge("test.0")
        assert found.pop(kind) == said
        assert not {"fault", "jaxlib"} & found.keys()


def test_what_is_wrong_on_jaxlib_alone_is_no_fault(monkeypatch, capfd):
    reports = [{"seed": "s.0", "jaxlib": "result 0 differs"}, {"seed": "s.1"}]
    monkeypatch.setattr(command, "reports", lambda prefix, first, count: iter(reports))
    assert command.main(["--seed", "s", "--count", "2"]) == 0
    said = capfd.readouterr().out
    assert "wrong on jaxlib's CPU, not here: python -m fuzz.jax_programs --seed s --first 0 --count 1" in said
    assert "2 programs: 1 agreed, 1 wrong on jaxlib's CPU" in said
    assert "FAILED" not in said


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """The file that is run in the place of the worker."""
    file, popen = tmp_path / "worker.py", command.subprocess.Popen
    monkeypatch.setattr(
        command.subprocess,
        "Popen",
        lambda given, **options: popen([sys.executable, str(file), *given[3:]], **options),
    )
    return file


def test_a_program_that_ends_its_process_is_a_fault_and_the_next_one_runs(worker):
    worker.write_text(
        "import json, os, sys\n"
        "for number in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):\n"
        "    print(json.dumps({'begin': number}), flush=True)\n"
        "    if number == 1: os._exit(9)\n"
        "    print(json.dumps({'seed': f'x.{number}'}), flush=True)\n"
    )
    found = {report["seed"]: report.get("fault", "") for report in command.reports("x", 0, 3)}
    assert list(found) == ["x.0", "x.1", "x.2"]
    assert found["x.1"].startswith("the process ended with 9")
    assert not found["x.0"] + found["x.2"]
    assert os.environ.get("JAX_PLATFORMS", "") != "xlakit,cpu"


@pytest.mark.parametrize("alone", [True, False])
def test_a_process_that_dies_on_jaxlib_is_a_fault_only_where_it_had_run_others(worker, alone):
    worker.write_text(
        "import json, os, sys\n"
        "first = int(sys.argv[2])\n"
        "for number in range(first, first + int(sys.argv[3])):\n"
        "    print(json.dumps({'begin': number}), flush=True)\n"
        "    print(json.dumps({'on': 'cpu'}), flush=True)\n"
        f"    if number == 1 and ({alone} or first != 1): os._exit(9)\n"
        "    print(json.dumps({'on': 'xlakit'}), flush=True)\n"
        "    print(json.dumps({'seed': f'x.{number}'}), flush=True)\n"
    )
    found = [(r["seed"], r.get("jaxlib", "")[:26], r.get("fault", "")[:14]) for r in command.reports("x", 0, 3)]
    if alone:
        assert found == [("x.0", "", ""), ("x.1", "the process ended with 9 (", ""), ("x.2", "", "")]
    else:
        assert found == [("x.0", "", ""), ("x.1", "", ""), ("x.2", "", ""), ("x.1", "", "a process died")]
