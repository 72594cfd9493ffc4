"""Sums of products: the exact meaning that dot, ragged-dot, scaled-dot and convolution share.

Floats of 32 bits and fewer are multiplied and summed in float64 and rounded once; integers are exact modulo their
width; PRED is or-of-and.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.operation import Array
from xlakit.ops.shared.complex_functions import multiply
from xlakit.ops.shared.numerics import convert, element_type, from_double, to_double, to_integer, wrap

# The longest sums that are taken in order.
_SHORT_SUM = 8


def free_dimensions(rank: int, *taken: Sequence[int]) -> list[int]:
    """The dimensions of an operand that are in none of the lists, in order."""
    used = {d for dimensions in taken for d in dimensions}
    return [d for d in range(rank) if d not in used]


def common_part(
    lhs: Array, rhs: Array, lhs_dimensions: Sequence[int], rhs_dimensions: Sequence[int]
) -> tuple[Array, Array]:
    """The operands cut to equal sizes along pairs of dimensions, of which one may be dynamic and below its bound."""
    pairs = list(zip(lhs_dimensions, rhs_dimensions, strict=True))
    if all(lhs.shape[a] == rhs.shape[b] for a, b in pairs):
        return lhs, rhs
    left, right = [slice(None)] * lhs.ndim, [slice(None)] * rhs.ndim
    for a, b in pairs:
        left[a] = right[b] = slice(min(lhs.shape[a], rhs.shape[b]))
    return lhs[tuple(left)], rhs[tuple(right)]


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
    return product.reshape([*batches, *rows, *columns])


def multiply_matrices(lhs: Array, rhs: Array, result: PrimitiveType) -> Array:
    """``lhs @ rhs`` in the arithmetic of ``result``."""
    with np.errstate(all="ignore"):
        if result is PrimitiveType.PRED:
            # Or-of-and, as a count of pairs of ones that is not zero.
            return np.matmul((lhs != 0).astype(np.float32), (rhs != 0).astype(np.float32)) > 0
        if result.is_integral and not any(element_type(x).is_floating for x in (lhs, rhs)):
            return _multiply_integers(convert(lhs, result), convert(rhs, result), result)
        if result.is_complex:
            return convert(_multiply_wide(lhs.astype(np.complex128), rhs.astype(np.complex128)), result)
        left, right = (to_double(convert(x, element_type(x).real_part)) for x in (lhs, rhs))
        product = _multiply_wide(left, right)
        # If the result is an integer, the sum is truncated once, at the end.
        return convert(product, result) if result.is_integral else from_double(product, result.dtype)


def _multiply_wide(lhs: Array, rhs: Array) -> Array:
    """``lhs @ rhs`` in float64 or complex128.

    Short sums are computed in order, with every product and sum rounded: BLAS's order and fused operations differ from
    machine to machine, which is visible when products cancel.
    """
    depth = lhs.shape[-1]
    if depth > _SHORT_SUM:
        # A sum that begins with 0 is never -0; that of BLAS may be.
        return np.matmul(lhs, rhs) + 0.0
    product = multiply if np.iscomplexobj(lhs) else np.multiply
    total = np.zeros((*lhs.shape[:-1], rhs.shape[-1]), dtype=lhs.dtype)
    for k in range(depth):
        total += product(lhs[..., k : k + 1], rhs[..., k : k + 1, :])
    return total


def _multiply_integers(lhs: Array, rhs: Array, result: PrimitiveType) -> Array:
    left, right = to_integer(lhs), to_integer(rhs)
    bound = _magnitude(left) * _magnitude(right) * max(1, left.shape[-1])
    if bound < 2**53:
        # Every partial sum is an integer that float64 holds, so the fast product is exact.
        return wrap(np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.int64), result.dtype)
    return wrap(np.matmul(left, right), result.dtype)


def _magnitude(array: Array) -> int:
    return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0
