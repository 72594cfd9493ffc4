"""Descriptions of LAPACK calls: for each custom call the routine, its arguments, and the arrays that it updates.

Matrices are stored column by column, so a matrix of m rows and n columns is an array ``[n, m]``. This module writes no
code: ``lapack.py`` does, and ``lapack_workspaces.py`` queries LAPACK for workspace sizes with the same arguments.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from xlakit.cpu.declined import DeclinedError
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass

# The element type and the dimensions of one matrix or vector, without batch dimensions.
ArrayType = tuple[PrimitiveType, tuple[int, ...]]

_F32, _F64, _C64, _C128 = PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.C64, PrimitiveType.C128
_KINDS: Final = {"s": _F32, "d": _F64, "c": _C64, "z": _C128}
_REAL: Final = {"s": _F32, "d": _F64, "c": _F32, "z": _F64}
_COMPLEX: Final = {"s": _C64, "d": _C128, "c": _C64, "z": _C128}
S32: Final = PrimitiveType.S32
# The array of an integer such as info.
_INTEGER: Final[ArrayType] = (S32, ())


# -- arguments -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Letter:
    """A character option such as ``N`` or ``T``."""

    text: str


@dataclass(frozen=True, slots=True)
class Integer:
    """A known integer."""

    number: int


@dataclass(frozen=True, slots=True)
class Data:
    """Constant bytes, such as those of a scalar factor."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of the custom call, which the routine only reads."""

    number: int


@dataclass(frozen=True, slots=True)
class Result:
    """A result of the custom call, from its element ``start`` on."""

    number: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Workspace of a task.

    count: the number of elements; if LAPACK is queried, the least number. copy_of: the operand that it begins as a copy
    of, because the routine changes it and it is not a result.
    """

    name: str
    kind: PrimitiveType
    count: int
    is_asked: bool = False
    copy_of: int | None = None


@dataclass(frozen=True, slots=True)
class WorkSize:
    """The number of elements of a workspace; -1 in a workspace query, in which the routine writes the best size."""

    work: str


@dataclass(frozen=True, slots=True)
class Null:
    """A null pointer, for a function that is not called."""


Argument = Letter | Integer | Data | Operand | Result | Work | WorkSize | Null


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a routine for one matrix.

    updates: results that are operands updated in place, by number; all other results begin as zeros.
    products: the estimated number of real multiplications.
    unpacked: results that are made from vectors in a workspace, by the workspace's name (see ``geev``).
    is_finite_only: the routine may not end, or only after minutes, if operand 0 has infinities or NaN. Then it is not
      called: the results are NaN, and ``info``, the last of them, is 1.
    """

    routine: str
    arguments: tuple[Argument, ...]
    products: float
    updates: Mapping[int, int]
    unpacked: Mapping[str, int]
    is_finite_only: bool = False

    @property
    def works(self) -> tuple[Work, ...]:
        """The distinct workspaces of the call."""
        return tuple(dict.fromkeys(a for a in self.arguments if isinstance(a, Work)))


# The workspace for the info of a routine if no result takes it.
_INFO: Final = Work("info", S32, 1)


@dataclass(frozen=True, slots=True)
class Problem:
    """A custom call of LAPACK: the letter of its type, the arrays of one matrix, and its attributes."""

    prefix: str
    operands: Sequence[ArrayType]
    results: Sequence[ArrayType]
    attributes: Mapping[str, int]

    @property
    def kind(self) -> PrimitiveType:
        """The element type of the matrices."""
        return _KINDS[self.prefix]

    @property
    def real(self) -> PrimitiveType:
        """The type of the real and imaginary parts of elements."""
        return _REAL[self.prefix]

    @property
    def complex(self) -> PrimitiveType:
        """The complex type with such parts."""
        return _COMPLEX[self.prefix]

    @property
    def is_complex(self) -> bool:
        """Whether elements are complex."""
        return self.kind.is_complex

    # -- properties -----------------------------------------------------------------------------

    def sizes(self, operand: int = 0) -> tuple[int, int]:
        """The rows and columns of an operand that is a matrix."""
        dims = self.operands[operand][1]
        if len(dims) != 2:
            raise DeclinedError(f"operand {operand} is no matrix")
        return dims[1], dims[0]

    def square(self) -> tuple[int, ArrayType]:
        """The order of the first operand, and the array that it must be."""
        order = self.sizes()[0]
        return order, self.matrix(order, order)

    def length(self, operand: int) -> int:
        """The length of an operand that is a vector."""
        dims = self.operands[operand][1]
        if len(dims) != 1:
            raise DeclinedError(f"operand {operand} is no vector")
        return dims[0]

    def letter(self, attribute: str, allowed: str) -> Letter:
        """The character option whose code is an attribute."""
        text = chr(self.attributes[attribute])
        if text not in allowed:
            raise DeclinedError(f"{attribute} is {text!r}")
        return Letter(text)

    def require(self, operands: Sequence[ArrayType], results: Sequence[ArrayType]) -> None:
        """Raise DeclinedError unless the arrays are these: LAPACK writes as much as the size arguments say."""
        if (tuple(operands), tuple(results)) != (tuple(self.operands), tuple(self.results)):
            raise DeclinedError(f"{self.results} of {self.operands} are not the arrays of a routine")

    # -- arrays and arguments ----------------------------------------------------------------------

    def matrix(self, rows: int, columns: int) -> ArrayType:
        """A matrix of the problem's type."""
        return self.kind, (columns, rows)

    def vector(self, length: int) -> ArrayType:
        """A vector of the problem's type."""
        return self.kind, (max(0, length),)

    def asked(self, least: int, name: str = "work", kind: PrimitiveType | None = None) -> tuple[Work, WorkSize]:
        """A workspace whose size LAPACK is queried for, and the argument with its size."""
        return Work(name, kind or self.kind, max(1, least), is_asked=True), WorkSize(name)

    def work(self, name: str, kind: PrimitiveType, count: int) -> Work:
        """A workspace of known size."""
        return Work(name, kind, max(1, count))

    def call(
        self,
        name: str,
        *arguments: Argument | int,
        products: float,
        updates: Mapping[int, int] | None = None,
        unpacked: Mapping[str, int] | None = None,
        is_finite_only: bool = False,
    ) -> Call:
        """A call of a routine; integers are passed as arguments of this value."""
        passed = tuple(Integer(a) if isinstance(a, int) else a for a in arguments)
        each = 4.0 if self.is_complex else 1.0
        return Call(self.prefix + name, passed, each * products, updates or {}, unpacked or {}, is_finite_only)


# -- solves ----------------------------------------------------------------------------------------


def _trsm(p: Problem) -> Call:
    (rows, columns), (order, _) = p.sizes(1), p.sizes(0)
    side = p.letter("side", "LR")
    b = p.matrix(rows, columns)
    p.require([p.matrix(*[rows if side.text == "L" else columns] * 2), b], [b])
    one = struct.pack({"s": "=f", "d": "=d", "c": "=ff", "z": "=dd"}[p.prefix], *(1, 0)[: 1 + p.is_complex])
    options = side, p.letter("uplo", "UL"), p.letter("trans_x", "NTC"), p.letter("diag", "UN")
    updated = Operand(0), _leading(order), Result(0), _leading(rows)
    products = 0.5 * rows * columns * order
    return p.call("trsm", *options, rows, columns, Data(one), *updated, products=products, updates={0: 1})


def _gtsv(p: Problem) -> Call:
    rows, sides = p.sizes(3)
    arrays = [*[p.vector(rows)] * 3, p.matrix(rows, sides)]
    p.require(arrays, [*arrays, _INTEGER])
    # All diagonals have the length of the main one; the first element of the lower diagonal is unused.
    diagonals = Result(0, 1), Result(1), Result(2)
    updates = {0: 0, 1: 1, 2: 2, 3: 3}
    end = Result(3), _leading(rows), Result(4)
    return p.call("gtsv", rows, sides, *diagonals, *end, products=5.0 * rows * (1 + sides), updates=updates)


# -- factorizations --------------------------------------------------------------------------------


def _getrf(p: Problem) -> Call:
    rows, columns = p.sizes()
    a = p.matrix(rows, columns)
    p.require([a], [a, (S32, (min(rows, columns),)), _INTEGER])
    arguments = rows, columns, Result(0), _leading(rows), Result(1), Result(2)
    return p.call("getrf", *arguments, products=_cube(rows, columns) * 0.7, updates={0: 0})


def _potrf(p: Problem) -> Call:
    order, a = p.square()
    p.require([a], [a, _INTEGER])
    arguments = p.letter("uplo", "UL"), order, Result(0), _leading(order), Result(1)
    return p.call("potrf", *arguments, products=0.2 * order**3, updates={0: 0})


def _geqrf(p: Problem) -> Call:
    rows, columns = p.sizes()
    a = p.matrix(rows, columns)
    p.require([a], [a, p.vector(min(rows, columns))])
    arguments = rows, columns, Result(0), _leading(rows), Result(1), *p.asked(columns), _INFO
    return p.call("geqrf", *arguments, products=1.5 * _cube(rows, columns), updates={0: 0})


def _geqp3(p: Problem) -> Call:
    rows, columns = p.sizes()
    a, pivots = p.matrix(rows, columns), (S32, (columns,))
    p.require([a, pivots], [a, pivots, p.vector(min(rows, columns))])
    work = p.asked(columns + 1 if p.is_complex else 3 * columns + 1)
    real = (p.work("rwork", p.real, 2 * columns),) if p.is_complex else ()
    arguments = rows, columns, Result(0), _leading(rows), Result(1), Result(2), *work, *real, _INFO
    return p.call("geqp3", *arguments, products=2.0 * _cube(rows, columns), updates={0: 0, 1: 1})


def _orgqr(p: Problem) -> Call:
    rows, columns = p.sizes()
    a, count = p.matrix(rows, columns), p.length(1)
    p.require([a, p.vector(count)], [a])
    if not count <= columns <= rows:
        raise DeclinedError(f"{count} reflections for a matrix of {rows} rows and {columns} columns")
    arguments = rows, columns, count, Result(0), _leading(rows), Operand(1), *p.asked(columns), _INFO
    name = "ungqr" if p.is_complex else "orgqr"
    return p.call(name, *arguments, products=1.5 * _cube(rows, columns), updates={0: 0})


def _ormqr(p: Problem) -> Call:
    (rows, columns), count, is_left = p.sizes(2), p.length(1), bool(p.attributes["left"])
    length, c = rows if is_left else columns, p.matrix(rows, columns)
    p.require([p.matrix(length, p.sizes(0)[1]), p.vector(count), c], [c])
    if not count <= min(length, p.sizes(0)[1]):
        raise DeclinedError(f"{count} reflections of a matrix of shape {p.sizes(0)}")
    forms = (
        Letter("L" if is_left else "R"),
        Letter(("C" if p.is_complex else "T") if p.attributes["transpose"] else "N"),
    )
    # LAPACK changes the reflections temporarily.
    reflections = Work("a", p.kind, max(1, math.prod(p.operands[0][1])), copy_of=0)
    work = p.asked(columns if is_left else rows)
    matrices = reflections, _leading(length), Operand(1), Result(0), _leading(rows)
    name = "unmqr" if p.is_complex else "ormqr"
    products = 2.0 * rows * columns * count
    return p.call(name, *forms, rows, columns, count, *matrices, *work, _INFO, products=products, updates={0: 2})


# -- values and vectors ----------------------------------------------------------------------------


def _gesdd(p: Problem) -> Call:
    rows, columns = p.sizes()
    least, most = min(rows, columns), max(rows, columns)
    mode, arrays = _svd(p)
    needed = 3 * least + max(most, 7 * least) if mode == "N" else 4 * least * least + 7 * least + most
    with_vectors = max(5 * least * least + 7 * least, 2 * most * least + 2 * least * least + least)
    real = p.work("rwork", p.real, 7 * least if mode == "N" else with_vectors)
    works = *p.asked(needed), *([real] if p.is_complex else []), p.work("iwork", S32, 8 * least)
    arguments = Letter(mode), *arrays, *works, Result(4)
    return p.call("gesdd", *arguments, products=_svd_products(p, mode), updates={0: 0})


def _gesvd(p: Problem) -> Call:
    rows, columns = p.sizes()
    least, most = min(rows, columns), max(rows, columns)
    mode, arrays = _svd(p)
    real = p.work("rwork", p.real, 5 * least)
    works = *p.asked(max(3 * least + most, 5 * least)), *([real] if p.is_complex else [])
    arguments = Letter(mode), Letter(mode), *arrays, *works, Result(4)
    return p.call("gesvd", *arguments, products=2 * _svd_products(p, mode), updates={0: 0})


def _svd(p: Problem) -> tuple[str, tuple[Argument, ...]]:
    """The job (which vectors to compute), sizes and arrays. Vectors that are not computed are zeros."""
    rows, columns = p.sizes()
    least, mode = min(rows, columns), p.letter("mode", "ASN").text
    a, values = p.matrix(rows, columns), (p.real, (least,))
    full = p.matrix(rows, rows), p.matrix(columns, columns)
    vectors = full if mode == "A" else (p.matrix(rows, least), p.matrix(least, columns))
    if mode == "N" and tuple(p.results[2:4]) == full:
        vectors = full
    p.require([a], [a, values, *vectors, _INTEGER])
    sizes = Integer(rows), Integer(columns)
    rows_of_vt = least if mode == "S" else columns
    return mode, (
        *sizes,
        Result(0),
        _leading(rows),
        Result(1),
        Result(2),
        _leading(rows),
        Result(3),
        _leading(rows_of_vt),
    )


def _svd_products(p: Problem, mode: str) -> float:
    return (2.0 if mode == "N" else 9.0) * _cube(*p.sizes())


def _syevd(p: Problem) -> Call:
    order, a = p.square()
    p.require([a], [a, (p.real, (order,)), _INTEGER])
    mode = p.letter("mode", "NV")
    square = order * order if mode.text == "V" else 0
    if p.is_complex:
        works = *p.asked(square + 2 * order), *p.asked(2 * square + 5 * order + 1, "rwork", p.real)
    else:
        works = p.asked(2 * square + 6 * order + 1)
    integers = p.asked(5 * order + 3, "iwork", S32)
    arguments = mode, p.letter("uplo", "UL"), order, Result(0), _leading(order), Result(1), *works, *integers, Result(2)
    products = (4.5 if square else 1.5) * order**3
    return p.call("heevd" if p.is_complex else "syevd", *arguments, products=products, updates={0: 0})


def _geev(p: Problem) -> Call:
    order, a = p.square()
    left, right = p.letter("compute_left", "NV"), p.letter("compute_right", "NV")
    vectors, values = (p.complex, (order, order)), p.vector(order)
    p.require([a], [*[values] * (1 if p.is_complex else 2), vectors, vectors, _INTEGER])
    matrix = order, Work("a", p.kind, max(1, order * order), copy_of=0), _leading(order)
    products = (25.0 if "V" in (left.text, right.text) else 10.0) * order**3
    if p.is_complex:
        vector_arguments = Result(1), _leading(order), Result(2), _leading(order)
        works = *p.asked(2 * order), p.work("rwork", p.real, 2 * order)
        arguments = left, right, *matrix, Result(0), *vector_arguments, *works, Result(3)
        return p.call("geev", *arguments, products=products, is_finite_only=True)
    packed = {name: 2 + n for n, name in enumerate(("vl", "vr")) if (left, right)[n].text == "V"}
    works = [p.work(name, p.kind, order * order if name in packed else 1) for name in ("vl", "vr")]
    vector_arguments = works[0], _leading(order), works[1], _leading(order)
    arguments = left, right, *matrix, Result(0), Result(1), *vector_arguments, *p.asked(4 * order), Result(4)
    return p.call("geev", *arguments, products=products, unpacked=packed, is_finite_only=True)


def _gees(p: Problem) -> Call:
    order, a = p.square()
    mode = p.letter("mode", "NV")
    p.letter("sort", "N")
    count = 1 if p.is_complex else 2
    p.require([a], [a, a, *[p.vector(order)] * count, _INTEGER, _INTEGER])
    values = [Result(2 + n) for n in range(count)]
    selected, info = Result(2 + count), Result(3 + count)
    real = (p.work("rwork", p.real, order),) if p.is_complex else ()
    works = *p.asked(3 * order), *real, p.work("bwork", S32, order)
    matrix = order, Result(0), _leading(order), selected
    arguments = mode, Letter("N"), Null(), *matrix, *values, Result(1), _leading(order), *works, info
    return p.call("gees", *arguments, products=20.0 * order**3, updates={0: 0}, is_finite_only=True)


def _gehrd(p: Problem) -> Call:
    order, a = p.square()
    p.require([a], [a, p.vector(order - 1), _INTEGER])
    low, high = p.attributes["low"], p.attributes["high"]
    if not 1 <= low <= high <= order:
        raise DeclinedError(f"rows {low} to {high} of {order}")
    arguments = order, low, high, Result(0), _leading(order), Result(1), *p.asked(order), Result(2)
    return p.call("gehrd", *arguments, products=3.0 * order**3, updates={0: 0})


def _sytrd(p: Problem) -> Call:
    order, a = p.square()
    p.require([a], [a, (p.real, (order,)), (p.real, (order - 1,)), p.vector(order - 1), _INTEGER])
    parts = Result(0), _leading(order), Result(1), Result(2), Result(3)
    name = "hetrd" if p.is_complex else "sytrd"
    arguments = p.letter("uplo", "UL"), order, *parts, *p.asked(1), Result(4)
    return p.call(name, *arguments, products=1.5 * order**3, updates={0: 0})


def _leading(rows: int) -> Integer:
    """The leading dimension of a matrix."""
    return Integer(max(1, rows))


def _cube(rows: int, columns: int) -> float:
    return float(rows) * columns * min(rows, columns)


CALLS: Final[Mapping[str, Callable[[Problem], Call]]] = {
    "trsm": _trsm,
    "gtsv": _gtsv,
    "getrf": _getrf,
    "potrf": _potrf,
    "geqrf": _geqrf,
    "geqp3": _geqp3,
    "orgqr": _orgqr,
    "ungqr": _orgqr,
    "ormqr": _ormqr,
    "unmqr": _ormqr,
    "gesdd": _gesdd,
    "gesvd": _gesvd,
    "syevd": _syevd,
    "heevd": _syevd,
    "geev": _geev,
    "gees": _gees,
    "gehrd": _gehrd,
    "sytrd": _sytrd,
    "hetrd": _sytrd,
}
