"""Effects in compiled programs: never reordered, left out or done twice, wherever they stand."""

import pytest
from effects import Effects, trace


@pytest.mark.parametrize("seed", range(12))
def test_effects_happen_as_the_program_says(seed):
    program = Effects(seed).program()
    for argument in (0, 3):
        expected = trace(program, "interpreter", argument)
        assert trace(program, "cpu", argument) == expected
