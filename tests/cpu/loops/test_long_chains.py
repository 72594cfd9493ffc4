"""Chains of small arrays: the code that is made of them is as long as they are, and gives what the interpreter does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cpu.agreeing import PIECES

import xlakit as xla
from xlakit.cpu.codegen import generate
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule
from xlakit.ops.handle import XlaOp
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline

# A step has not more lines of code than this, and not more for being one of many.
LINES = 600


def transposed(x: XlaOp) -> XlaOp:
    return xla.transpose(x, [1, 0])


def newton_schulz(x: XlaOp, given: XlaOp, number: int) -> XlaOp:
    return 1.5 * x - 0.5 * (x @ transposed(x) @ x)


def muon(x: XlaOp, given: XlaOp, number: int) -> XlaOp:
    a = x @ transposed(x)
    return 0.8 * x + (0.1 * a + 0.1 * (a @ a)) @ x


def squares(x: XlaOp, given: XlaOp, number: int) -> XlaOp:
    return xla.tanh(x @ x)


def kinematics(x: XlaOp, given: XlaOp, number: int) -> XlaOp:
    """A rotation by an angle that is a parameter, put together from numbers, as a joint of a robot is."""
    n = x.shape.dimensions[0]
    angle = xla.reshape(xla.slice(given, [0, number % n], [1, number % n + 1]), [])
    sine, cosine, one, zero = xla.sin(angle), xla.cos(angle), angle * 0.0 + 1.0, angle * 0.0
    cells = [[zero + (one if i == j else zero) for j in range(n)] for i in range(n)]
    cells[0][0], cells[0][1], cells[1][0], cells[1][1] = cosine, -sine, sine, cosine
    rows = [xla.concatenate([xla.reshape(c, [1]) for c in row], 0) for row in cells]
    return x @ xla.concatenate([xla.reshape(row, [1, n]) for row in rows], 0)


def turned(x: XlaOp, given: XlaOp, number: int) -> XlaOp:
    first, rest = xla.slice_in_dim(x, 0, 1, 1, 1), xla.slice_in_dim(x, 1, x.shape.dimensions[1], 1, 1)
    return xla.concatenate([rest, first], 1) * given + given


def shifted(x: XlaOp, given: XlaOp, number: int) -> XlaOp:
    down, right = xla.pad(x, 0.0, [(1, -1, 0), (0, 0, 0)]), xla.pad(x, 0.0, [(0, 0, 0), (-1, 1, 0)])
    return (down + right) * given * 0.4 + given


def stacked(x: XlaOp, given: XlaOp, number: int) -> XlaOp:
    n = x.shape.dimensions[0]
    rows = [xla.reshape(xla.slice_in_dim(x, k, k + 1, 1, number % 2), [1, n]) for k in range(n)]
    return xla.concatenate([row * (0.5 + 0.1 * k) for k, row in enumerate(rows)], 0) + given


def summed(x: XlaOp, given: XlaOp, number: int) -> XlaOp:
    total = xla.reduce(x, 0.0, xla.add, [number % 2])
    return x * given + xla.broadcast_in_dim(total, x.shape.dimensions, [1 - number % 2]) * 0.1


Step = Callable[[XlaOp, XlaOp, int], XlaOp]
STEPS: list[Step] = [newton_schulz, muon, squares, kinematics, turned, shifted, stacked, summed]


def chain(step: Step, length: int, size: int) -> HloModule:
    builder = xla.XlaBuilder(step.__name__)
    x, given = (xla.parameter(builder, k, xla.make_shape(xla.F32, [size, size])) for k in (0, 1))
    for number in range(length):
        x = step(x, given, number)
    return builder.build(x).to_module()


def lines(module: HloModule) -> int:
    return generate(run_pipeline(module), Target(Grid(1, 1))).text.count("\n")


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("step", STEPS)
def test_code_is_as_long_as_the_chain(step: Step, size: int):
    # The shorter one first, since code that doubles with each step would never be done for the longer one.
    for length in (5, 24):
        assert lines(chain(step, length, size)) < LINES * (length + 4)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("step", STEPS)
def test_numbers_are_those_of_the_interpreter(step: Step, size: int):
    if size == 1 and step is kinematics:
        pytest.skip("a rotation has two dimensions")
    rng = np.random.default_rng(size)
    given = [rng.uniform(-0.6, 0.6, (size, size)).astype(np.float32) for _ in range(2)]
    for length in (3, 12):
        module = chain(step, length, size)
        expected = xla.compile(module, backend="interpreter")(*given)
        np.testing.assert_allclose(xla.compile(module)(*given), expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("step", [turned, shifted, stacked, kinematics])
def test_conditions_that_only_choose_give_the_same(step: Step):
    # Both sides are computed: a load beyond its array must stay within it, and must not be taken.
    rng = np.random.default_rng(3)
    given = [rng.uniform(-0.6, 0.6, (3, 3)).astype(np.float32) for _ in range(2)]
    module = chain(step, 3, 3)
    expected = xla.compile(module, cache=False)(*given)
    with compiling(knobs={"guards.little": 0, "guards.often": 0.0}):
        np.testing.assert_array_equal(xla.compile(module, cache=False)(*given), expected)


@pytest.mark.parametrize("left_out", [(), ("llvm",)])
def test_an_index_that_is_divided_stays_within_its_array_where_it_is_not_chosen(left_out: tuple[str, ...]):
    module = xla.HloModule.from_text(PIECES)
    a, p, b = (np.arange(n, dtype=np.float32) for n in (6, 256, 5))
    p = p.reshape(64, 4)
    with compiling(plain=left_out, knobs={"guards.little": 0, "guards.often": 0.0}):
        found = xla.compile(module, cache=False)(a, p, b)
    np.testing.assert_array_equal(found, np.concatenate([a, p[:60, :3].ravel(), b]))


@pytest.mark.parametrize(("function", "size"), [(xla.sin, 64), (xla.exp, 19), (xla.tanh, 1000)])
def test_many_elementary_functions_are_called_and_give_the_same_bits(function: Callable[[XlaOp], XlaOp], size: int):
    builder = xla.XlaBuilder("functions")
    x = given = xla.parameter(builder, 0, xla.make_shape(xla.F32, [size]))
    for _ in range(12):
        x = function(x * -0.5) + given
    module = builder.build(x).to_module()
    numbers = np.linspace(-3, 3, size, dtype=np.float32)
    found, called = [], []
    for most in (4, 4096):
        with compiling(knobs={"math.most_written": most}):
            called.append(".called(" in generate(run_pipeline(module), Target(Grid(1, 1))).text)
            found.append(xla.compile(module, cache=False)(numbers))
    assert called == [True, False]
    np.testing.assert_array_equal(*found)
