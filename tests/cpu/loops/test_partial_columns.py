"""Reductions over leading or middle dimensions, cut into parts, and rows whose values do not fit on the stack."""

import numpy as np
import pytest
from cpu.agreeing import agree, numbers

import xlakit as xla
import xlakit.cpu.loops.nests.columns
import xlakit.cpu.loops.nests.rows
from xlakit.options import compiling


@pytest.mark.parametrize(
    ("sizes", "over"), [((3, 400, 20), [1]), ((2, 3, 100, 3, 20), [2, 3]), ((30, 5, 40, 20), [0, 2])]
)
@pytest.mark.parametrize("strip", [1, 1024])
def test_columns_of_several_arrays_are_added_in_parts(sizes, over, strip):
    x = numbers(np.float32, *sizes)
    with compiling(knobs={"columns.strip_bytes": strip, "kernel.task_nanoseconds": 1.0}):
        agree(lambda x: xla.reduce(x + x, np.float32(1), xla.add, over), x)


def test_a_row_keeps_its_values_beside_the_stack():
    def scaled(x):
        rooted = xla.sqrt(x)
        total = xla.reduce(rooted, np.float32(0), xla.add, [1])
        return xla.sub(rooted, total, broadcast_dimensions=[0])

    x = numbers(np.float32, 5, 200) ** 2
    with compiling(knobs={"rows.stack_bytes": 0}):
        agree(scaled, x)
