"""Sparse arrays, given by their stored elements and the positions of these: conversion to dense arrays."""

from __future__ import annotations

import numpy as np

from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import SparsitySide
from xlakit.ir.operation import Array
from xlakit.ops.shared.hints import below


def expand_sparse(values: Array, positions: Array, side: SparsitySide) -> Array:
    """A sparse array with its zeros: each element at its position in its block of ``side.block_size``."""
    if side.num_non_zero != 1 or side.stride != 1:
        raise UnsupportedError(
            f"sparsity of {side.num_non_zero} in {side.block_size} with stride {side.stride}",
            hint="the interpreter knows one element in each block, and blocks of neighbors",
        )
    if not 0 <= side.dimension < values.ndim:
        raise ShapeError(f"sparse dimension {side.dimension} is not one of {values.ndim}", hint=below(values.ndim))
    if positions.shape != values.shape or side.block_size < 1:
        raise ShapeError(
            f"an array of {values.shape} in blocks of {side.block_size} has positions of shape {positions.shape}",
            hint=f"give the positions the dimensions {list(values.shape)} and blocks of at least 1",
        )
    # An element with a position outside of its block is dropped.
    own = positions.astype(np.int64)[..., None] == np.arange(side.block_size)
    dense = np.where(own, values[..., None], values.dtype.type(0))
    dense = np.moveaxis(dense, -1, side.dimension + 1)
    sizes = [n * side.block_size if d == side.dimension else n for d, n in enumerate(values.shape)]
    return dense.reshape(sizes)
