"""Factorizations that XLA's client library leaves to backends as custom calls (in programs for TPUs and of TensorFlow).

Also the Cholesky decomposition of cuSOLVER, which XLA's compiler for GPUs calls.
"""

from __future__ import annotations

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.lib import linear_algebra
from xlakit.ops.data import constant
from xlakit.ops.elementwise.binary import max
from xlakit.ops.elementwise.compare import ne
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp
from xlakit.ops.linear_algebra import cholesky as cholesky_of
from xlakit.ops.reduction import reduce

_NARROW = (PrimitiveType.F16, PrimitiveType.BF16)


def qr(foreign: Foreign) -> XlaOp:
    """R with the Householder vectors below its diagonal, and the factors of the reflections."""
    (a,) = foreign.need_operands(["a"])
    return foreign.all_finished(linear_algebra.qr_decomposition(_wide(a)))


def householder_product(foreign: Foreign) -> XlaOp:
    """The first columns of the product of the reflections."""
    a, taus = foreign.need_operands(["a", "taus"])
    product = linear_algebra.product_of_elementary_householder_reflectors(_wide(a), _wide(taus))
    return foreign.finished(product)


def eigh(foreign: Foreign) -> XlaOp:
    """Eigenvectors and eigenvalues, which come in ascending order even where ``sort_eigenvalues`` is 0."""
    (a,) = foreign.need_operands(["a"])
    lower = bool(foreign.config.integer("lower"))
    return foreign.all_finished(linear_algebra.eigh(_wide(a), lower=lower))


def lu(foreign: Foreign) -> XlaOp:
    """Both factors in one matrix, the row that each row was exchanged with, and the permutation of the rows."""
    (a,) = foreign.need_operands(["a"])
    return foreign.all_finished(linear_algebra.lu(_wide(a)))


def cholesky(foreign: Foreign) -> XlaOp:
    """The factor, a workspace, and for each matrix a number that is 0 where it is positive definite, else 1.

    cuSOLVER leaves what it got on the other side of the diagonal, and gives the order of the first minor that is not
    positive instead of 1; here the other side is zero.
    """
    (a,) = foreign.need_operands(["a"])
    factor = cholesky_of(a, lower=foreign.config.flag("lower"))
    if not foreign.declared.is_tuple:
        return foreign.finished(factor)
    if len(foreign.results) != 3 or foreign.results[2].dimensions != a.shape.dimensions[:-2]:
        raise ShapeError(
            f"the results must be the factor, a workspace and s32{list(a.shape.dimensions[:-2])}, "
            f"got {foreign.declared}",
            hint="compare it with the text that XLA printed",
        )
    failed = convert_element_type(ne(factor, factor), PrimitiveType.S32)
    zero = constant(foreign.builder, 0, PrimitiveType.S32)
    info = reduce(failed, zero, max, [a.shape.rank - 2, a.shape.rank - 1])
    return foreign.finished(factor, last=convert_element_type(info, foreign.results[2].element_type))


def _wide(a: XlaOp) -> XlaOp:
    """The operand in a type that LAPACK has."""
    return convert_element_type(a, PrimitiveType.F32) if a.shape.element_type in _NARROW else a
