"""The net of training steps: one program agrees, roundings are none of its business, and it sees what is wrong."""

import numpy as np
import pytest

pytest.importorskip("jax")

from fuzz.jax_programs.training import __main__ as command, judging
from fuzz.jax_programs.training.steps import step
from xlakit.options import Options


def test_a_program_agrees(capfd):
    assert command.main(["--seed", "1", "--number", "0"]) == 0
    assert "1 programs, 0 failures" in capfd.readouterr().out


def test_all_kinds_of_programs_are_drawn():
    made = [step(1, number) for number in range(150)]
    assert {"train", "gradients", "inference", "examples", "curvature", "batches", "twice"} == {s.what for s in made}
    assert {"float16", "float32", "float64", "bfloat16"} == {s.computed.name for s in made}


def test_differences_are_of_whole_arrays():
    large, zero = np.float32([1000.0, -1000.0]), np.float32([1e-4, -1e-4])
    assert judging.difference([large, -zero], [large, zero])[0] < 1e-4
    off, which = judging.difference([large, zero + 30], [large, zero])
    assert off > 1
    assert which.startswith("result 1, float32[2], is off by")
    many = np.ones(10_000, np.float32)
    assert judging.difference([np.where(np.arange(10_000) == 77, -1, many)], [many])[0] > 0.1
    assert judging.difference([many * 1.02], [many])[0] < 0.1
    assert judging.difference([np.float32([np.nan])], [np.float32([1.0])])[0] == float("inf")
    assert judging.difference([np.float32([np.nan])], [np.float32([np.nan])])[0] == 0


@pytest.mark.parametrize(("plain", "is_fault"), [(1.0, True), (2.0, True), (1.5, False)])
def test_a_result_is_wrong_where_plain_code_is_nearer_to_it_or_to_what_is_meant(monkeypatch, plain, is_fault):
    def results(proto, arguments, options, backend="cpu"):
        value = 1.0 if backend == "interpreter" else plain if options.plain else 2.0
        return [np.float32([value, 1.0])]

    monkeypatch.setattr(judging, "results", results)
    fault = judging.judge(step(1, 0), Options(vector_bytes=16))
    assert bool(fault) == is_fault
    assert not is_fault or "float32[2], is off by 0.71 of its norm" in fault
