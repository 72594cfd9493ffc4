"""Programs as people write them: generated ones agree, and what judges them notices what is wrong."""

import os
import signal

import numpy as np
import pytest

import xlakit as xla
from fuzz.idioms import FAMILIES, REFERENCES, judge, request, same
from fuzz.programs.composed.known import ALGORITHMS
from fuzz.support.children import Child
from fuzz.support.shrink import shrink


@pytest.mark.parametrize(
    ("family", "number"), [*(("carried", n) for n in range(16)), *(("known", n) for n in range(16))]
)
def test_compiled_code_agrees_with_the_interpreter(family, number):
    assert not judge(*request(FAMILIES[family](0, number)), REFERENCES)


def test_the_same_seed_makes_the_same_programs():
    for make in FAMILIES.values():
        assert make(3, 1).module.to_text() == make(3, 1).module.to_text() != make(4, 1).module.to_text()
    assert len(ALGORITHMS) == 16


def test_bits_are_compared():
    assert same(np.float32(np.nan), np.float32(np.nan))
    assert not same(np.float32(0.0), np.float32(-0.0))
    assert not same(np.int32(1), np.int64(1))


def _judged(what):
    if what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    while what == "stays":
        signal.pause()
    return f"{what} {os.environ.get('XLAKIT_OF_A_TEST')}"


def test_a_process_that_dies_or_stays_is_told():
    child = Child(_judged, {"XLAKIT_OF_A_TEST": "yes"})
    assert child.ask("first") == "first yes"
    assert child.ask("dies") == "died of SIGKILL"
    assert child.ask("stays", seconds=0.2).startswith("took more than")
    assert child.ask("next") == "next yes"
    child.close()


def test_a_program_that_fails_is_made_smaller():
    program = next(p for p in (FAMILIES["carried"](0, n) for n in range(99)) if "remainder" in p.module.to_text())

    def fails(module):
        return any(i.opcode == "remainder" for c in module.computations for i in c.instructions)

    small = shrink(program.module, fails, seconds=5)
    assert fails(small)
    assert small.instruction_count() < program.module.instruction_count()
    xla.HloModule.from_text(small.to_text()).verify()
