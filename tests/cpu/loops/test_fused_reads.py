"""Reads inside of loops of elements that are made of parts of others, or stand where arrays of numbers say."""

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import agree, numbers

import xlakit as xla


@pytest.mark.parametrize(
    ("kind", "other", "sizes"),
    [
        (np.float32, xla.U8, (6, 4)),
        (np.uint8, xla.F32, (6, 4, 4)),
        (np.float64, xla.F16, (3,)),
        (ml_dtypes.bfloat16, xla.S64, (3, 4)),
        (np.complex128, xla.C64, (4,)),
        (np.complex64, xla.C128, (4, 2)),
        (np.uint8, xla.S4, (6,)),
        (ml_dtypes.int4, xla.U8, (6, 2)),
        (np.uint16, xla.U4, (3,)),
        (ml_dtypes.int4, xla.F32, (3, 8)),
    ],
)
def test_bits_of_narrower_and_wider_types(kind, other, sizes):
    x = np.abs(numbers(np.int8, *sizes)).astype(kind)

    def moved(x):
        return xla.rev(xla.bitcast_convert_type(x + x, other), [0])

    agree(moved, x)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_gather_with_batches(transposed):
    """Each member of a batch is read at its own indices, wherever their vector stands."""
    x = numbers(np.float32, 4, 50, 3, 6)
    indices = np.random.default_rng(0).integers(-3, 55, (7, 3, 1, 4)).astype(np.int32)
    order = [1, 3, 0, 2] if transposed else [0, 1, 2, 3]

    def taken(x, indices):
        return xla.gather(
            xla.neg(x),
            xla.transpose(indices, order),
            offset_dims=[3],
            collapsed_slice_dims=[1],
            start_index_map=[1],
            operand_batching_dims=[0, 2],
            start_indices_batching_dims=[order.index(3), order.index(1)],
            index_vector_dim=order.index(2),
            slice_sizes=[1, 1, 1, 6],
        )

    agree(taken, x, indices)
