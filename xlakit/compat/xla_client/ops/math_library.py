"""Factorizations of matrices and special functions, on ``xlakit.lib``."""

from __future__ import annotations

import math
from typing import Any

from xlakit.compat.xla_client.errors import with_status
from xlakit.compat.xla_client.ops.elementwise import unary_operation
from xlakit.compat.xla_client.ops.operations import Builder, Computation, Op, Ops, operation
from xlakit.errors import ShapeError
from xlakit.lib import linear_algebra, special
from xlakit.lib.approx_topk import approx_top_k_reduction_output_size
from xlakit.lib.constants import full_like, zeros_like
from xlakit.ops import data, movement, sort
from xlakit.ops.elementwise.binary import or_
from xlakit.ops.elementwise.compare import le
from xlakit.ops.elementwise.select import select

BesselI0e = unary_operation("BesselI0e", special.bessel_i0e)
BesselI1e = unary_operation("BesselI1e", special.bessel_i1e)
Digamma = unary_operation("Digamma", special.digamma)
ErfInv = unary_operation("ErfInv", special.erf_inv)
Erfc = unary_operation("Erfc", special.erfc)
Lgamma = unary_operation("Lgamma", special.lgamma)


@operation
def Igamma(a: Op, x: Op) -> Op:
    """The lower regularized incomplete gamma function."""
    return special.igamma(a, x)


@operation
def Igammac(a: Op, x: Op) -> Op:
    """The upper regularized incomplete gamma function; 1, as in jaxlib, where ``a`` or ``x`` are not positive."""
    inside, zero = special.igammac(a, x), zeros_like(x)
    return select(or_(le(x, zero), le(a, zero)), full_like(x, 1), inside)


@operation
def IgammaGradA(a: Op, x: Op) -> Op:
    """The derivative of Igamma by ``a``."""
    return special.igamma_grad_a(a, x)


@operation
def RandomGammaGrad(a: Op, x: Op) -> Op:
    """The derivative by ``a`` of a sample x of the gamma distribution."""
    return special.random_gamma_grad(a, x)


@operation
def RegularizedIncompleteBeta(a: Op, b: Op, x: Op) -> Op:
    """The regularized incomplete beta function."""
    return special.regularized_incomplete_beta(a, b, x)


@operation
def Zeta(x: Op, q: Op) -> Op:
    """The Hurwitz zeta function."""
    return special.zeta(x, q)


def _next_after(from_: Op, to: Op) -> Op:
    return special.next_after(from_, to)


_next_after_operation = operation(_next_after)


def NextAfter(*args: Any, **kwargs: Any) -> Any:
    """The number next to ``from`` in the direction of ``to``; both may be given by these names."""
    if "from" in kwargs:
        kwargs["from_"] = kwargs.pop("from")
    return _next_after_operation(*args, **kwargs)


@operation
def QR(operand: Op, full_matrices: bool) -> tuple[Op, Op]:
    """Q and R of matrices."""
    return linear_algebra.qr(operand, full_matrices)


@operation
def QrDecomposition(operand: Op) -> tuple[Op, Op]:
    """The QR factorization in LAPACK's form: R with the Householder vectors below it, and their factors."""
    return linear_algebra.qr_decomposition(operand)


@operation
def ProductOfElementaryHouseholderReflectors(a: Op, taus: Op) -> Op:
    """The first columns of the product of Householder reflections."""
    return linear_algebra.product_of_elementary_householder_reflectors(a, taus)


@operation
def LU(operand: Op) -> tuple[Op, Op, Op]:
    """The LU factorization, the pivots and the permutation of the rows."""
    return linear_algebra.lu(operand)


@operation
def Eigh(
    a: Op, lower: bool = True, max_iter: int = 15, epsilon: float = 1e-5, sort_eigenvalues: bool = True
) -> tuple[Op, Op]:
    """Eigenvectors and eigenvalues. LAPACK computes them: ``max_iter`` and ``epsilon`` have no effect."""
    return linear_algebra.eigh(a, lower, sort_eigenvalues)


@operation
def SVD(a: Op, max_iter: int = 100, epsilon: float = 1e-6) -> tuple[Op, Op, Op]:
    """u, d and v of a = u diag(d) v^H. LAPACK computes them: ``max_iter`` and ``epsilon`` have no effect.

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


@operation
def ApproxTopK(
    builder: Builder,
    operands: Ops,
    init_values: Ops,
    top_k: int,
    reduction_dim: int,
    comparator: Computation,
    recall_target: float = 0.9,
    aggregate_to_topk: bool = True,
    reduction_input_size_override: int = -1,
) -> Op:
    """The first elements along a dimension in the order of a comparator: exactly, whatever the recall asked for."""
    kept, log2_reduction = _sizes(
        operands, top_k, reduction_dim, recall_target, aggregate_to_topk, reduction_input_size_override
    )
    if aggregate_to_topk:
        return _top_k(operands, kept, reduction_dim, comparator)
    # What a partial reduction does not make smaller stays as it is.
    parts = list(operands) if not log2_reduction else _first(operands, kept, reduction_dim, comparator)
    return data.tuple_(builder, parts)


@operation
def ApproxTopKFallback(
    builder: Builder,
    operands: Ops,
    init_values: Ops,
    top_k: int,
    reduction_dim: int,
    comparator: Computation,
    recall_target: float = 0.9,
    aggregate_to_topk: bool = True,
    reduction_input_size_override: int = -1,
) -> Op:
    """The first elements along a dimension in the order of a comparator."""
    kept, _ = _sizes(operands, top_k, reduction_dim, recall_target, aggregate_to_topk, reduction_input_size_override)
    return _top_k(operands, kept, reduction_dim, comparator)


def _sizes(
    operands: Any, top_k: int, dimension: int, recall_target: float, aggregate: bool, override: int
) -> tuple[int, int]:
    """How many elements the result has, ``top_k`` or as many as a partial reduction leaves, and the reduction."""
    shape = operands[0].shape
    size = shape.dimensions[dimension % shape.rank]
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
        firsts.append(movement.slice_in_dim(part, 0, count, 1, dimension % part.shape.rank))
    return firsts


def _top_k(operands: Any, top_k: int, dimension: int, comparator: Any) -> Any:
    firsts = _first(operands, top_k, dimension, comparator)
    return data.tuple_(firsts[0].builder, firsts) if len(firsts) > 1 else firsts[0]


@with_status
def ApproxTopKReductionOutputSize(
    input_size: int,
    rank: int,
    top_k: int,
    recall_target: float,
    aggregate_to_topk: bool = True,
    input_size_override: int = -1,
) -> tuple[int, int]:
    """How many candidates a partial reduction on XLA's accelerators leaves, and the logarithm of its factor.

    Raises XlaRuntimeError where ``input_size_override`` is less than the size of the input.
    """
    return approx_top_k_reduction_output_size(
        input_size, rank, top_k, recall_target, aggregate_to_topk, input_size_override
    )
