"""Generated modules of many operations: compiled code gives what the interpreter gives."""

import numpy as np
import pytest

from fuzz.modules import difference, epsilons, judge
from fuzz.programs.composed.modules import module
from xlakit.ir.instruction import HloModule

# Those that once showed a fault: buffers that two results shared, a branch that wrote into what its caller still
# needed, loop state that was overwritten too early, an empty piece of a concatenation, a
# result that was read at another place after it had taken an operand's memory.
ONCE_WRONG = [(7, 89), (7, 128), (7, 144), (7, 651), (42, 2268)]


@pytest.mark.parametrize(("seed", "number"), [*ONCE_WRONG, *((0, n) for n in range(40))])
def test_compiled_code_agrees_with_the_interpreter(seed, number):
    assert not judge(module(seed, number), np.random.default_rng([seed, number]))


@pytest.mark.parametrize("narrow", ["f32", "f64"])
def test_a_result_is_as_exact_as_the_narrowest_type_on_its_way(narrow):
    text = f"""HloModule m
ENTRY e {{
  x = f64[] parameter(0)
  y = {narrow}[] convert(x)
  z = f64[] convert(y)
  ROOT t = (f64[], f64[]) tuple(z, x)
}}"""
    through, given = epsilons(HloModule.from_text(text))
    assert through == np.finfo({"f32": np.float32, "f64": np.float64}[narrow]).eps
    assert given == 0
    assert bool(difference(np.float64(1 + 1e-8), np.float64(1), through)) is (narrow == "f64")


def test_parts_of_complex_numbers_are_as_exact_as_the_numbers():
    exact = np.array([3e4 + 1e8j, 5], np.complex64)
    assert not difference(exact + np.complex64(300), exact)
    for wrong in (exact * np.complex64(1.001), np.conj(exact), exact + np.complex64(np.nan), exact * np.complex64(1j)):
        assert difference(wrong, exact)
    for other in (complex(np.inf, np.nan), complex(np.inf, 1)):
        assert not difference(np.array([other]), np.array([complex(np.inf, np.nan)]))
    assert difference(np.array([1 + 1j]), np.array([complex(np.inf, np.nan)]))
