"""The factorizations that XLA's own library calls by name, for backends to expand: those of TPUs and of TensorFlow."""

from __future__ import annotations

from xlakit.data.primitive import PrimitiveType
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.lib import linear_algebra
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp

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


def _wide(a: XlaOp) -> XlaOp:
    """The operand in a type that LAPACK has."""
    return convert_element_type(a, PrimitiveType.F32) if a.shape.element_type in _NARROW else a
