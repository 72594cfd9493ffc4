"""Generated programs on large arrays: compiled code gives what the interpreter gives, on any number of threads."""

import re

import numpy as np
import pytest

from fuzz import large
from fuzz.programs.draft import Program
from fuzz.programs.large.drafts import KINDS, LargeDraft, large_program
from fuzz.support.tolerances import EXACT


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "stream"])
def test_compiled_code_agrees_with_the_interpreter(kind):
    assert not large.judge(large_program(kind, 0, 0))


def test_the_command_counts_what_differs(capsys, monkeypatch):
    assert large.main(["--only", "top-k", "--count", "2", "--seed", "4"]) == 0
    assert capsys.readouterr().out == "2 programs, 0 failures\n"
    given = large.compile_program

    def wrong(module, backend, **options):
        run = given(module, backend=backend, **options)
        return run if backend == "interpreter" else lambda *arguments: np.negative(run(*arguments))

    monkeypatch.setattr(large, "compile_program", wrong)
    assert large.main(["--only", "scan", "--seed", "0", "--number", "1"]) == 1
    said = capsys.readouterr().out
    assert "FAILED python -m fuzz.large --only scan --seed 0 --number 1: (" in said
    assert re.search(r"on 1 threads: leaf 0 differs in \d+ of \d+ elements", said)


def test_results_that_depend_on_threads_are_told(monkeypatch):
    program = Program("add", "HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }", ((np.ones(2, "f4"),),), EXACT)
    nans = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    results = {1: [nans[:1]], 2: [nans[1:]], 3: [nans[:1]]}
    monkeypatch.setattr(large, "_on_threads", lambda run, arguments, count: results[count])
    monkeypatch.setattr(large, "flat", lambda found: [nans[:1]])
    assert large.judge(program) == "the bits depend on the number of threads"


def test_rough_values_are_near_the_given_ones():
    rng = np.random.default_rng(1)
    given = [rng.standard_normal((3, 5)).astype(np.float32), np.arange(4), np.array([1 - 2j], np.complex64)]
    made = large.rough(given)
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(made, given, strict=True))
    assert (made[0] != given[0]).all()
    assert (made[1] == given[1]).all()
    np.testing.assert_allclose(made[2], given[2], rtol=0.34)


@pytest.mark.parametrize("terms", [100, 100_000])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "f8e5m2"])
def test_sums_of_whole_numbers_are_exact(kind, terms):
    draft = LargeDraft(np.random.default_rng(0))
    values = draft.whole(kind, [terms], terms)
    exact = np.cumsum(values.astype(np.float64))
    np.testing.assert_array_equal(exact.astype(values.dtype).astype(np.float64), exact)
