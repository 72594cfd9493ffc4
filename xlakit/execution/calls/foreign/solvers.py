"""Linear algebra of JAX's programs for GPUs: calls of cuSOLVER, hipSOLVER, cuSPARSE and of kernels beside them.

Most have the operands and results of a routine of LAPACK, which computes them here. The results may differ from the
libraries' in rounding and in the signs of vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.lib.linear_algebra import lu_pivots_to_permutation, qr
from xlakit.lib.matrix import matrix_diagonal, transpose_in_minor_dims, upper_triangle
from xlakit.lib.products import batch_dot
from xlakit.ops.custom_call import custom_call
from xlakit.ops.data import constant, get_tuple_element, iota
from xlakit.ops.elementwise.binary import add, and_, complex, mul
from xlakit.ops.elementwise.compare import eq, ge, lt
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import conj, imag, neg, real
from xlakit.ops.handle import XlaOp
from xlakit.ops.linear_algebra import triangular_solve
from xlakit.ops.movement import broadcast, broadcast_in_dim, concatenate, reshape, slice as slice_part

_LETTERS: Final = {PrimitiveType.F32: "s", PrimitiveType.F64: "d", PrimitiveType.C64: "c", PrimitiveType.C128: "z"}
# LAPACK's names of routines for Hermitian and unitary matrices, where those for real ones have another.
_COMPLEX_OF: Final = {PrimitiveType.F32: PrimitiveType.C64, PrimitiveType.F64: PrimitiveType.C128}
_OF_COMPLEX: Final = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}


@dataclass(frozen=True, slots=True)
class _Matrices:
    """The first operand: matrices of ``rows`` and ``columns``, counted by the dimensions ``batch``."""

    foreign: Foreign
    kind: PrimitiveType
    batch: tuple[int, ...]
    rows: int
    columns: int

    @classmethod
    def of(cls, foreign: Foreign, *, square: bool = False) -> _Matrices:
        shape = foreign.operands[0].shape if foreign.operands else Shape(PrimitiveType.TOKEN)
        if not shape.is_array or shape.rank < 2 or shape.element_type not in _LETTERS:
            raise ShapeError(
                f"takes matrices of f32, f64, c64 or c128, got {shape}",
                hint="convert integers and 16-bit floats to f32, and reshape a vector to a matrix of one column",
            )
        *batch, rows, columns = shape.dimensions
        if square and rows != columns:
            raise ShapeError(f"takes square matrices, got {shape}", hint="its last two sizes must be equal")
        return cls(foreign, shape.element_type, tuple(batch), rows, columns)

    @property
    def smaller(self) -> int:
        return min(self.rows, self.columns)

    @property
    def itself(self) -> Shape:
        return self.of_kind(self.rows, self.columns)

    @property
    def info(self) -> Shape:
        """Of a number for each matrix, which is 0 where the routine succeeds."""
        return self.integers()

    def of_kind(self, *sizes: int) -> Shape:
        return make_shape(self.kind, (*self.batch, *sizes))

    def reals(self, *sizes: int) -> Shape:
        return make_shape(self.kind.real_part, (*self.batch, *sizes))

    def integers(self, *sizes: int) -> Shape:
        return make_shape(PrimitiveType.S32, (*self.batch, *sizes))

    def call(self, routine: str, operands: Sequence[XlaOp], shapes: Sequence[Shape], **attributes: int) -> list[XlaOp]:
        """The results of LAPACK's routine."""
        name = _OF_COMPLEX.get(routine, routine) if self.kind.is_complex else routine
        target = f"lapack_{_LETTERS[self.kind]}{name}_ffi"
        config = ", ".join(f"{key} = {value} : ui8" for key, value in attributes.items())
        result = shapes[0] if len(shapes) == 1 else make_tuple_shape(shapes)
        results = custom_call(self.foreign.builder, target, list(operands), result, f"{{{config}}}")
        return [results] if len(shapes) == 1 else [get_tuple_element(results, i) for i in range(len(shapes))]


# -- factorizations --------------------------------------------------------------------------------


def geqrf(foreign: Foreign) -> XlaOp:
    """R with the Householder vectors below its diagonal, and the factors of the reflections."""
    operands, m = foreign.need_operands(["a"]), _Matrices.of(foreign)
    return foreign.all_finished(m.call("geqrf", operands, [m.itself, m.of_kind(m.smaller)]))


def geqp3(foreign: Foreign) -> XlaOp:
    """As :func:`geqrf`, of the matrix with its columns permuted; and the permutation."""
    operands, m = foreign.need_operands(["a", "jpvt"]), _Matrices.of(foreign)
    shapes = [m.itself, m.integers(m.columns), m.of_kind(m.smaller)]
    return foreign.all_finished(m.call("geqp3", operands, shapes))


def orgqr(foreign: Foreign) -> XlaOp:
    """The first columns of the product of reflections."""
    operands, m = foreign.need_operands(["a", "taus"]), _Matrices.of(foreign)
    return foreign.finished(m.call("orgqr", operands, [m.itself])[0])


def ormqr(foreign: Foreign) -> XlaOp:
    """A matrix multiplied by a product of reflections from a side."""
    a, taus, c = foreign.need_operands(["a", "taus", "c"])
    m, config = _Matrices.of(foreign), foreign.config
    sides = {"left": int(config.flag("left")), "transpose": int(config.flag("transpose"))}
    return foreign.finished(m.call("ormqr", [a, taus, c], [c.shape], **sides)[0])


def getrf(foreign: Foreign) -> XlaOp:
    """Both triangular factors in one matrix, the rows that were exchanged, from one, and ``info``."""
    operands, m = foreign.need_operands(["a"]), _Matrices.of(foreign)
    return foreign.all_finished(m.call("getrf", operands, [m.itself, m.integers(m.smaller), m.info]))


def permutation(foreign: Foreign) -> XlaOp:
    """The permutation of rows that exchanges make, counted from zero."""
    (pivots,) = foreign.need_operands(["pivots"])
    rows = foreign.result.dimensions[-1] if foreign.result.rank else 0
    return foreign.finished(lu_pivots_to_permutation(pivots, rows))


def potrf(foreign: Foreign) -> XlaOp:
    """The Cholesky factor, beside which the other triangle stays as it was, and ``info``."""
    operands, m = foreign.need_operands(["a"]), _Matrices.of(foreign, square=True)
    return foreign.all_finished(m.call("potrf", operands, [m.itself, m.info], uplo=_triangle(foreign)))


def cholesky_update(foreign: Foreign) -> XlaOp:
    """The upper factor of R^T R + w w^T, whose diagonal is not negative, and a work space.

    It is the triangle of the QR factorization of R with w below it.
    """
    r, w = foreign.need_operands(["r", "w"])
    m = _Matrices.of(foreign, square=True)
    row = reshape(w, new_sizes=[*m.batch, 1, m.columns])
    stacked = concatenate([r, row], len(m.batch))
    packed, _ = m.call("geqrf", [stacked], [m.of_kind(m.rows + 1, m.columns), m.of_kind(m.columns)])
    sizes = m.itself.dimensions
    upper = upper_triangle(slice_part(packed, [0] * len(sizes), sizes))
    signs = matrix_diagonal(upper)
    is_negative = broadcast_in_dim(lt(signs, foreign.scalar(0, signs)), sizes, range(len(sizes) - 1))
    return foreign.all_finished([select(is_negative, neg(upper), upper), foreign.scalar(0, w)])


def sytrd(foreign: Foreign) -> XlaOp:
    """A tridiagonal form: reflections, the diagonal, that beside it, factors of the reflections, and ``info``."""
    operands, m = foreign.need_operands(["a"]), _Matrices.of(foreign, square=True)
    beside = max(m.rows - 1, 0)
    shapes = [m.itself, m.reals(m.rows), m.reals(beside), m.of_kind(beside), m.info]
    return foreign.all_finished(m.call("sytrd", operands, shapes, uplo=_triangle(foreign)))


# -- values and vectors ----------------------------------------------------------------------------


def syevd(foreign: Foreign) -> XlaOp:
    """Eigenvectors, eigenvalues in ascending order, and ``info``."""
    operands, m = foreign.need_operands(["a"]), _Matrices.of(foreign, square=True)
    shapes = [m.itself, m.reals(m.rows), m.info]
    return foreign.all_finished(m.call("syevd", operands, shapes, mode=ord("V"), uplo=_triangle(foreign)))


def svd(foreign: Foreign) -> XlaOp:
    """A work space, singular values, both matrices of vectors, and ``info``.

    Where the call says ``transposed``, the second matrix comes first: then the library works on the transposed matrix.
    A descriptor says so by its number of rows.
    """
    a, s, u, vh, info = _svd(foreign)
    rows = a.shape.dimensions[-2]
    is_transposed = foreign.config.flag("transposed") or foreign.config.integer("rows", rows) != rows
    sides = [vh, u] if is_transposed else [u, vh]
    if not foreign.config.flag("compute_uv"):
        sides = [foreign.zeros(shape) for shape in foreign.results[2:4]]
    return foreign.all_finished([a, s, *sides, info])


def svd_with_columns(foreign: Foreign) -> XlaOp:
    """The same with the vectors of both sides in columns."""
    a, s, u, vh, info = _svd(foreign)
    if vh.shape.rank < 2 or not foreign.config.flag("compute_uv"):
        return foreign.all_finished([a, s, *(foreign.zeros(shape) for shape in foreign.results[2:4]), info])
    v = transpose_in_minor_dims(vh)
    return foreign.all_finished([a, s, u, conj(v) if v.shape.element_type.is_complex else v, info])


def _svd(foreign: Foreign) -> list[XlaOp]:
    operands, m = foreign.need_operands(["a"]), _Matrices.of(foreign)
    if not foreign.config.flag("compute_uv"):
        shapes = [m.itself, m.reals(m.smaller), m.of_kind(), m.of_kind(), m.info]
        return m.call("gesdd", operands, shapes, mode=ord("N"))
    width, height = (m.rows, m.columns) if foreign.config.flag("full_matrices") else (m.smaller, m.smaller)
    shapes = [m.itself, m.reals(m.smaller), m.of_kind(m.rows, width), m.of_kind(height, m.columns), m.info]
    mode = ord("A") if foreign.config.flag("full_matrices") else ord("S")
    return m.call("gesdd", operands, shapes, mode=mode)


def eig(foreign: Foreign) -> XlaOp:
    """Eigenvalues (of real matrices in two arrays: real and imaginary parts), left and right eigenvectors, ``info``."""
    return foreign.all_finished(_geev(foreign))


def geev(foreign: Foreign) -> XlaOp:
    """A work space, eigenvalues, left and right eigenvectors, and ``info``.

    Of real matrices a pair of conjugate vectors is packed: its real part in a column, its imaginary part in the next.
    """
    (a,) = foreign.need_operands(["a"])
    results = _geev(foreign)
    if len(results) == 4:
        return foreign.all_finished([a, *results])
    real_values, imaginary, left, right, info = results
    return foreign.all_finished(
        [a, complex(real_values, imaginary), _packed(left, imaginary), _packed(right, imaginary), info]
    )


def _geev(foreign: Foreign) -> list[XlaOp]:
    operands, m = foreign.need_operands(["a"]), _Matrices.of(foreign, square=True)
    kind = m.kind if m.kind.is_complex else _COMPLEX_OF[m.kind]
    vectors = make_shape(kind, (*m.batch, m.rows, m.rows))
    values = [m.of_kind(m.rows)] * (1 if m.kind.is_complex else 2)
    sides = {f"compute_{side}": ord("V" if foreign.config.flag(side) else "N") for side in ("left", "right")}
    return m.call("geev", operands, [*values, vectors, vectors, m.info], **sides)


def _packed(vectors: XlaOp, imaginary: XlaOp) -> XlaOp:
    """Complex eigenvectors packed as real columns: real parts, and at the second of a conjugate pair the imaginary part
    of the first.
    """
    sizes = vectors.shape.dimensions
    columns = [*range(len(sizes) - 2), len(sizes) - 1]
    zero = broadcast(constant(imaginary.builder, 0, imaginary.shape.element_type), imaginary.shape.dimensions)
    is_second = broadcast_in_dim(lt(imaginary, zero), sizes, columns)
    return select(is_second, neg(imag(vectors)), real(vectors))


# -- solves and products ---------------------------------------------------------------------------


def gtsv2(foreign: Foreign) -> XlaOp:
    """Solutions of tridiagonal systems, whose three diagonals are equally long."""
    lower, main, upper, b = foreign.need_operands(["dl", "d", "du", "b"])
    kind = b.shape.element_type
    if kind not in _LETTERS or b.shape.rank < 2 or main.shape.dimensions != b.shape.dimensions[:-1]:
        raise ShapeError(f"takes diagonals [.., m] and [.., m, n], got {main.shape} and {b.shape}", hint="of one type")
    batch = b.shape.dimensions[:-2]
    shapes = [lower.shape, main.shape, upper.shape, b.shape, make_shape(PrimitiveType.S32, batch)]
    result = make_tuple_shape(shapes)
    results = custom_call(foreign.builder, f"lapack_{_LETTERS[kind]}gtsv_ffi", list(foreign.operands), result)
    return foreign.finished(get_tuple_element(results, 3))


def csrlsvqr(foreign: Foreign) -> XlaOp:
    """The solution of a sparse system with compressed rows, by the QR factorization of the whole matrix."""
    data, columns, starts, b = foreign.need_operands(["data", "indices", "indptr", "b"])
    sizes = b.shape.dimensions
    fits = b.shape.rank == 1 and starts.shape.dimensions == (sizes[0] + 1,) and data.shape.rank == 1
    if not fits or columns.shape.dimensions != data.shape.dimensions or b.shape.element_type not in _LETTERS:
        raise ShapeError(
            f"takes data and indices [k], indptr [n + 1] and b [n], got {data.shape}, {columns.shape}, {starts.shape} "
            f"and {b.shape}",
            hint="compare them with the text that XLA printed",
        )
    (count,), size = data.shape.dimensions, sizes[0]
    # Element k is in row i if starts[i] <= k < starts[i + 1]. The tables below are [elements, rows].
    number, column = (iota(foreign.builder, make_shape(PrimitiveType.S32, (count, size)), d) for d in (0, 1))
    first, end = (broadcast_in_dim(slice_part(starts, [k], [k + size], [1]), (count, size), [1]) for k in (0, 1))
    of_row = and_(ge(number, first), lt(number, end))
    row_values = broadcast_in_dim(data, (count, size), [0])
    values = select(of_row, row_values, foreign.scalar(0, row_values))
    places = convert_element_type(eq(column, broadcast_in_dim(columns, (count, size), [0])), b.shape.element_type)
    q, r = qr(batch_dot(values, places, transpose_x=True, precision="HIGHEST"), full_matrices=False)
    rotated_rhs = batch_dot(
        conj(q) if b.shape.element_type.is_complex else q, reshape(b, (size, 1)), transpose_x=True, precision="HIGHEST"
    )
    return foreign.finished(reshape(triangular_solve(r, rotated_rhs, True, False, False), (size,)))


def syrk(foreign: Foreign) -> XlaOp:
    """Alpha a a^T + beta c, or alpha a^T a + beta c."""
    a, c, alpha, beta = foreign.need_operands(["a", "c", "alpha", "beta"])
    is_transposed = foreign.config.flag("transpose")
    product = batch_dot(a, a, transpose_x=is_transposed, transpose_y=not is_transposed, precision="HIGHEST")
    if product.shape.dimensions != c.shape.dimensions or alpha.shape.rank or beta.shape.rank:
        raise ShapeError(
            f"takes a, c like the product of a and scalars, got {a.shape}, {c.shape}, {alpha.shape} and {beta.shape}",
            hint="compare them with the text that XLA printed",
        )
    sizes = c.shape.dimensions
    return foreign.finished(add(mul(broadcast(alpha, sizes), product), mul(broadcast(beta, sizes), c)))


def _triangle(foreign: Foreign) -> int:
    """LAPACK's letter for the triangle that is read."""
    return ord("L" if foreign.config.flag("lower") else "U")
