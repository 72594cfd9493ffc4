"""The simulation of the pool's schedule."""

import math

import numpy as np
import pytest

from benchmarks.program import Program
from benchmarks.scaling import Measured, SharedStep, measure, schedule


def test_schedule_of_equal_ranges():
    assert schedule(1, 100.0, 64, 10.0) == 100.0
    assert schedule(7, 700.0, 2, 0.0) == 400.0
    # The second thread and the third wake after one step of the tree, the fourth after two.
    assert schedule(4, 400.0, 4, 10.0) == 120.0
    # The caller has done all of it before another thread is awake.
    assert schedule(8, 8.0, 4, 1000.0) == 8.0


@pytest.mark.parametrize("processors", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("ranges", [1, 2, 63, 64, 1000])
def test_schedule_is_between_its_bounds(processors: int, ranges: int):
    busy = 1e6
    found = schedule(ranges, busy, processors, 0.0)
    assert found == pytest.approx(math.ceil(ranges / processors) * busy / ranges)
    assert found <= schedule(ranges, busy, processors, 50.0) <= busy + 50.0 * 7


def test_losses_are_what_a_call_takes_beyond_an_equal_share():
    measured = Measured(500.0, (SharedStep("a", 2, 10, 4000.0, 0.0), SharedStep("b", 1, 3, 900.0, 700.0)))
    for processors in (1, 2, 8):
        alone = measured.seconds(1, 0.0)
        excess = measured.seconds(processors, 20.0) - alone / processors
        assert sum(measured.losses(processors, 20.0).values()) == pytest.approx(excess)
    assert measured.seconds_here(8, 0.0) == measured.serial + 2 * 400.0 + 700.0


def test_a_program_is_measured_step_by_step():
    import jax

    x = np.ones((512, 512), np.float32)
    exported = jax.jit(lambda x: jax.numpy.tanh(x) @ x).lower(x).compiler_ir("hlo")
    proto = exported.as_serialized_hlo_module_proto()  # pyright: ignore[reportOptionalMemberAccess]
    found = measure(proto, Program((x,), jax.numpy.tanh), 16)
    assert found.steps
    assert all(step.ranges >= step.count == 1 and step.busy > 0 for step in found.steps)
    assert found.seconds(16, 0.0) < found.seconds(1, 0.0)
