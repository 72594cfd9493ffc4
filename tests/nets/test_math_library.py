"""The net of the math library."""

import numpy as np

from fuzz import math_library


def test_programs_follow_from_their_numbers():
    for number, family in enumerate(math_library.FAMILIES):
        first, second = (family(math_library.Draw(1, number)).arguments for _ in range(2))
        for one, other in zip(first, second, strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_a_program_agrees_and_a_fault_of_its_is_found(monkeypatch):
    number = 0
    assert not math_library.judge(1, number)
    right = math_library.xla.compile

    def wrong(program, *, backend):
        executable = right(program, backend=backend)
        return lambda *a: [r + np.ones((), r.dtype) if backend == "cpu" else r for r in executable(*a)]

    monkeypatch.setattr(math_library.xla, "compile", wrong)
    assert "of machine code: " in math_library.judge(1, number)
