"""Arguments that are made up: the same for the same seed, in their own type from the first."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from xlakit import PrimitiveType, make_shape
from xlakit.data.shape import ProgramShape
from xlakit.errors import ResourceError
from xlakit.execution.inputs import make_inputs


def made(kind: PrimitiveType, *dims: int, seed: int = 7) -> np.ndarray:
    (value,) = make_inputs(ProgramShape((make_shape(kind, dims),), make_shape(kind, dims)), seed)
    return value


def test_values_are_those_of_one_draw_and_are_rounded_once():
    count = 150_001
    np.testing.assert_array_equal(
        made(PrimitiveType.F32, count), np.random.default_rng(7).standard_normal(count).astype(np.float32)
    )
    rng = np.random.default_rng(7)
    expected = (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(np.complex64)
    np.testing.assert_array_equal(made(PrimitiveType.C64, count), expected)
    np.testing.assert_array_equal(
        made(PrimitiveType.S32, count), np.random.default_rng(7).integers(0, 8, count).astype(np.int32)
    )
    np.testing.assert_array_equal(
        made(PrimitiveType.PRED, count), np.random.default_rng(7).integers(0, 2, count).astype(np.bool_)
    )


@pytest.mark.parametrize("kind", ["F32", "BF16", "C64", "S8", "U16", "PRED"])
def test_large_arguments_take_no_more_memory_than_they_have(kind: str):
    tracemalloc.start()
    try:
        value = made(PrimitiveType[kind], 1000, 4000)
        assert tracemalloc.get_traced_memory()[1] < 1.1 * value.nbytes + (4 << 20)
    finally:
        tracemalloc.stop()
    assert value.shape == (1000, 4000)


def test_scalars_and_empty_arrays():
    assert made(PrimitiveType.F32).shape == ()
    assert made(PrimitiveType.F64, 0, 3).shape == (0, 3)
    assert set(np.log2(made(PrimitiveType.F8E8M0FNU, 100).astype(np.float32))) <= set(range(-5, 6))


def test_arguments_beyond_the_memory_limit_are_refused_before_they_are_drawn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLAKIT_MEMORY_LIMIT", "1000000")
    half = make_shape(PrimitiveType.F32, [150, 1000])
    assert make_inputs(ProgramShape((half,), half), 0)[0].shape == (150, 1000)
    with pytest.raises(ResourceError, match="the arguments need 1,200,000 bytes, the limit is 1,000,000"):
        make_inputs(ProgramShape((half, half), half), 0)
