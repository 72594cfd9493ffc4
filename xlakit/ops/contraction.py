"""Sums of products: the exact meaning that dot, ragged-dot, scaled-dot and convolution share.

Floats of 32 bits and fewer are multiplied and summed in float64 and rounded once; integers are exact modulo their
width; PRED is or-of-and.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import UnsupportedError
from xlakit.ir.operation import Array


def free_dimensions(rank: int, *taken: Sequence[int]) -> list[int]:
    """The dimensions of an operand that are in none of the lists, in order."""
    used = {d for dimensions in taken for d in dimensions}
    return [d for d in range(rank) if d not in used]


def contract(
    lhs: Array,
    rhs: Array,
    batch: tuple[Sequence[int], Sequence[int]],
    contracting: tuple[Sequence[int], Sequence[int]],
    result: PrimitiveType,
) -> Array:
    """The sum of products over the contracting dimensions.

    ``batch`` and ``contracting`` are (dimensions of lhs, dimensions of rhs). Gives the batch dimensions, then the
    free ones of ``lhs``, then those of ``rhs``, as an array of type ``result``.
    """
    lhs_free = free_dimensions(lhs.ndim, batch[0], contracting[0])
    rhs_free = free_dimensions(rhs.ndim, batch[1], contracting[1])
    batches = [lhs.shape[d] for d in batch[0]]
    rows, columns = [lhs.shape[d] for d in lhs_free], [rhs.shape[d] for d in rhs_free]
    depth = math.prod(lhs.shape[d] for d in contracting[0])
    left = lhs.transpose(*batch[0], *lhs_free, *contracting[0])
    right = rhs.transpose(*batch[1], *contracting[1], *rhs_free)
    product = multiply_matrices(
        left.reshape(math.prod(batches), math.prod(rows), depth),
        right.reshape(math.prod(batches), depth, math.prod(columns)),
        result,
    )
    return product.reshape(*batches, *rows, *columns)


def multiply_matrices(lhs: Array, rhs: Array, result: PrimitiveType) -> Array:
    """``lhs @ rhs`` in the arithmetic of ``result``; both operands are converted to it first."""
    with np.errstate(all="ignore"):
        if result is PrimitiveType.PRED:
            # A count of ones that is not zero: or-of-and.
            return np.matmul((lhs != 0).astype(np.float32), (rhs != 0).astype(np.float32)) > 0
        if result.is_integral:
            return _multiply_integers(lhs, rhs, result)
        wide = np.complex128 if result.is_complex else np.float64
        for operand in (lhs, rhs):
            if operand.dtype.kind == "c" and not result.is_complex:
                raise UnsupportedError(f"a product of complex operands in {result.hlo_name}")
        return np.matmul(lhs.astype(wide), rhs.astype(wide)).astype(result.dtype)


def _multiply_integers(lhs: Array, rhs: Array, result: PrimitiveType) -> Array:
    for operand in (lhs, rhs):
        kind = PrimitiveType.from_dtype(operand.dtype)
        if kind.is_floating or kind.is_complex:
            raise UnsupportedError(f"a product of {kind.hlo_name} operands in {result.hlo_name}")
    # Conversion to the result type commutes with sums and products modulo its width.
    left, right = lhs.astype(np.int64), rhs.astype(np.int64)
    bound = _magnitude(left) * _magnitude(right) * max(1, left.shape[-1])
    if bound < 2**53:
        # Every partial sum is an integer that float64 holds, so the fast product is exact.
        product = np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.int64)
    else:
        product = np.matmul(left, right)
    return wrap(product, result)


def _magnitude(array: Array) -> int:
    return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0


def wrap(array: Array, kind: PrimitiveType) -> Array:
    """Integers of NumPy's int64 or uint64 in an integer type, modulo its width."""
    if kind.bit_width >= 8:
        return array.astype(kind.dtype)
    low = array & ((1 << kind.bit_width) - 1)
    if kind.is_signed:
        half = 1 << (kind.bit_width - 1)
        low = (low ^ half) - half
    return low.astype(kind.dtype)
