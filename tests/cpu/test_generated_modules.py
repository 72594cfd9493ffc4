"""Generated modules of many operations: compiled code gives what the interpreter gives."""

import pytest

from proofs.modules import judge
from proofs.programs.modules import module

# Those that once showed a fault: buffers that two results shared, a branch that wrote into what its caller still
# needed, loop state that was overwritten too early, an empty piece of a concatenation, a
# result that was read at another place after it had taken an operand's memory.
ONCE_WRONG = [(7, 89), (7, 128), (7, 144), (7, 651), (42, 2268)]


@pytest.mark.parametrize(("seed", "number"), [*ONCE_WRONG, *((0, n) for n in range(40))])
def test_compiled_code_agrees_with_the_interpreter(seed, number):
    assert not judge(module(seed, number))
