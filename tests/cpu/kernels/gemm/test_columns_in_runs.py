"""Columns that lie in runs, as those of a dot whose right operand is summed along a dimension in its middle."""

import pytest
from cpu.agreeing import agree_on_small_values

import xlakit as xla
from xlakit.cpu.kernels.gemm.operands import ACROSS, SINGLE, Direction, Matrix, pieces_of
from xlakit.data.primitive import PrimitiveType as P

# Longer than a sliver, dividing one, with a common divisor, and without any.
RUNS = [96, 16, 12, 7]


def program(kind, run, order):
    shapes = {"whbc": (20, 6, 3, run), "bhwc": (3, 6, 20, run)}
    made = f"{kind}[{','.join(map(str, shapes[order]))}]"
    dimensions = ",".join(str("whbc".index(d)) for d in order)
    return xla.HloModule.from_text(f"""
    HloModule runs
    ENTRY e {{
      a = {kind}[33,20] parameter(0)
      b = {kind}[6,3,33,{run}] parameter(1)
      d = {kind}[20,6,3,{run}] dot(a, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{2}}
      ROOT r = {made} transpose(d), dimensions={{{dimensions}}}
    }}""")


@pytest.mark.parametrize("kind", ["f32", "bf16", "s8", "c64"])
@pytest.mark.parametrize("order", ["whbc", "bhwc"])
@pytest.mark.parametrize("run", RUNS)
def test_results_are_those_of_the_interpreter(kind, run, order):
    agree_on_small_values(program(kind, run, order), run)


@pytest.mark.parametrize(
    ("run", "form", "piece"),
    [(96, ACROSS, 32), (32, ACROSS, 32), (16, ACROSS, 16), (24, ACROSS, 8), (12, ACROSS, 4), (2, SINGLE, 32)],
)
def test_a_sliver_is_packed_by_what_are_neighbors(run, form, piece):
    columns = Direction(((18, 33 * run), (run, 1)))
    assert pieces_of(Matrix(P.F32, columns, Direction(((33, run),))), 32) == (form, piece)
