"""Updates in a row of one element, which are combined in registers, against the interpreter."""

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import agree, numbers

import xlakit as xla
from xlakit.options import compiling

# Strips of 32, with groups of eight that are equal, that are not, that lie outside, and a rest.
RUNS = [(3, 40), (4, 5), (-1, 30), (9, 64), (2, 1), (7, 33), (10, 40), (0, 8), (5, 24), (1, 7)]
SORTED = np.concatenate([np.full(count, value) for value, count in RUNS])


def elements(combine):
    """Combines updates into single elements."""

    def function(x, i, u):
        dimensions = list(range(len(x.shape.dimensions)))
        return xla.scatter(
            x,
            i,
            u,
            combine,
            index_vector_dim=1,
            inserted_window_dims=dimensions,
            scatter_dims_to_operand_dims=dimensions,
        )

    return function


@pytest.mark.parametrize(
    "kind", [np.int8, np.uint32, np.int64, np.float32, np.float64, ml_dtypes.bfloat16, np.float16, np.complex64]
)
@pytest.mark.parametrize("combine", [xla.add, xla.max, lambda a, b: b, lambda a, b: b - a], ids=range(4))
@pytest.mark.parametrize("index", [np.int32, np.uint8])
def test_runs(kind, combine, index):
    if kind is np.complex64 and combine is xla.max:
        pytest.skip("complex numbers have no order")
    values = numbers(kind, 10), SORTED.astype(index), numbers(kind, len(SORTED), seed=1)
    agree(elements(combine), *values)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_sums_of_runs_are_in_order(vector_bytes):
    updates = np.random.default_rng(3).standard_normal(len(SORTED)).astype(np.float32)
    expected = np.zeros(10, np.float32)
    for at, value in zip(SORTED.tolist(), updates, strict=True):
        if 0 <= at < 10:
            expected[at] += value
    text = f"""HloModule runs
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[10] parameter(0)
  i = s32[{len(SORTED)}] parameter(1)
  u = f32[{len(SORTED)}] parameter(2)
  ROOT r = f32[10] scatter(x, i, u), to_apply=add, update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1
}}"""
    with compiling(vector_bytes=vector_bytes):
        executable = xla.compile(xla.HloModule.from_text(text))
    result = np.asarray(executable(np.zeros(10, np.float32), SORTED.astype(np.int32), updates))
    assert result.tobytes() == expected.tobytes()


def test_runs_of_two_components():
    """Only the first component is the same in some groups, only the second in others."""
    pairs = np.stack([np.repeat(np.arange(20) // 2, 32), np.repeat(np.arange(20) // 3, 32)], 1)
    pairs[64:96, 1] = np.arange(32) % 2
    pairs[96:128, 0] = np.arange(32) % 3
    pairs[130, 1] = 6
    values = numbers(np.float32, 10, 7), pairs.astype(np.int32), numbers(np.float32, len(pairs), seed=1)
    agree(elements(xla.add), *values)


def test_runs_in_private_results():
    index = np.sort(np.random.default_rng(2).integers(-1, 12, 40_000)).astype(np.int32)
    agree(elements(xla.max), numbers(np.float32, 11), index, numbers(np.float32, 40_000, seed=1))


def test_a_group_with_equal_ends_is_no_run():
    index = np.tile([3, 4, 3, 3, 5, 3, 3, 3], 12).astype(np.int32)
    agree(elements(lambda a, b: a * b - a), numbers(np.int32, 8), index, numbers(np.int32, 96, seed=1))
