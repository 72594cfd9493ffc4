"""Functions of the math library whose results or arguments in jaxlib differ from those of ``xlakit.lib``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xlakit.compat.xla_client.errors import with_status
from xlakit.errors import ShapeError
from xlakit.lib import linear_algebra, special
from xlakit.lib.approx_topk import approx_top_k_reduction_output_size
from xlakit.lib.constants import full_like, zeros_like
from xlakit.ops import data, movement, sort
from xlakit.ops.elementwise.binary import or_
from xlakit.ops.elementwise.compare import le
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp


def igammac(a: Any, x: Any) -> Any:
    """The upper regularized incomplete gamma function; 1, as in jaxlib, where ``a`` or ``x`` are not positive."""
    inside, zero = special.igammac(a, x), zeros_like(x)
    return select(or_(le(x, zero), le(a, zero)), full_like(x, 1), inside)


def svd(a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """u, d and v of a = u diag(d) v^H.

    Raises ValueError for what is no matrix, as jaxlib does; a matrix without elements is an error of the builder.
    """
    if a.shape.rank < 2:
        raise ValueError(f"SVD takes matrices, got {a.shape}")
    if 0 in a.shape.dimensions[-2:]:
        raise ShapeError(f"takes matrices that have elements, got {a.shape}", hint="leave out what is empty")
    u, d, v = linear_algebra.svd(a)
    # Of the default layout, as jaxlib's is: of a transpose it would be another.
    flat = movement.reshape(v, [math.prod(v.shape.dimensions)])
    return u, d, movement.reshape(flat, v.shape.dimensions)


# -- approximate top k -----------------------------------------------------------------------------


def approx_top_k(
    builder: Any,
    operands: Any,
    init_values: Any,
    top_k: int,
    dimension: int,
    comparator: Any,
    recall_target: float,
    aggregate: bool,
    override: int,
    *,
    is_fallback: bool = False,
) -> Any:
    """The first elements along a dimension in the order of a comparator: exactly, whatever the recall asked for."""
    _check_operands(operands, init_values, dimension)
    kept, log2_reduction = _sizes(operands, top_k, dimension, recall_target, aggregate, override)
    if aggregate or is_fallback:
        return _top_k(operands, kept, dimension, comparator)
    # If the partial reduction would not make the arrays smaller, they are returned unchanged.
    return data.tuple_(builder, _first(operands, kept, dimension, comparator) if log2_reduction else list(operands))


def approx_top_k_fallback(*arguments: Any) -> Any:
    """The first elements along a dimension in the order of a comparator."""
    return approx_top_k(*arguments, is_fallback=True)


def _check_operands(operands: Sequence[Any], init_values: Sequence[Any], dimension: int) -> None:
    """Raise ShapeError for arrays, values or a dimension that jaxlib refuses, too."""
    if not operands:
        raise ShapeError("takes at least one array", hint="give the values, and what goes with them")
    if len(operands) != len(init_values):
        raise ShapeError(
            f"each array has an initial value: {len(operands)} arrays, {len(init_values)} values",
            hint="give one initial value for each array",
        )
    for array, init in zip(operands, init_values, strict=True):
        rank, kind = array.shape.rank, array.shape.element_type
        if not 0 <= dimension < rank:
            raise ShapeError(f"{array.shape} has no dimension {dimension}", hint="count dimensions from the first")
        if kind is not init.shape.element_type:
            raise ShapeError(
                f"an initial value has the array's type: {kind.hlo_name}, not {init.shape.element_type.hlo_name}",
                hint="give each array an initial value of its type",
            )


def _sizes(
    operands: Any, top_k: int, dimension: int, recall_target: float, aggregate: bool, override: int
) -> tuple[int, int]:
    """How many elements the result has, ``top_k`` or as many as a partial reduction leaves, and the reduction."""
    shape = operands[0].shape
    size = shape.dimensions[dimension]
    kept, log2_reduction = approx_top_k_reduction_output_size(
        size, shape.rank, top_k, recall_target, aggregate, override
    )
    return min(kept, size), log2_reduction


def _first(operands: Any, count: int, dimension: int, comparator: Any) -> list[Any]:
    sorted_ = sort.sort(list(operands), comparator, dimension, False)
    several = len(operands) > 1
    firsts: list[Any] = []
    for i in range(len(operands)):
        part = data.get_tuple_element(sorted_, i) if several else sorted_
        firsts.append(movement.slice_in_dim(part, 0, count, 1, dimension))
    return firsts


def _top_k(operands: Any, top_k: int, dimension: int, comparator: Any) -> Any:
    firsts = _first(operands, top_k, dimension, comparator)
    return data.tuple_(firsts[0].builder, firsts) if len(firsts) > 1 else firsts[0]


ApproxTopKReductionOutputSize = with_status(approx_top_k_reduction_output_size)
