"""Linear algebra through SciPy's LAPACK, under the names that JAX's programs for processors call.

A call runs one routine on each matrix of a batch. Each function here runs the routine on one matrix: its arguments are
the matrices, and the call's attributes as keywords; it gives the results in the order of the call.

Compiled programs call LAPACK without Python where they can (cpu/kernels/linalg/lapack.py). Such a call has another
name, ``lapack_dgetrf_transposed`` for ``lapack_dgetrf_ffi``: its matrices, which are all operands and results of the
highest rank, are transposed, so that the major to minor arrays have LAPACK's column-major order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from xlakit.errors import ExecutionError
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Array, Evaluation
from xlakit.ops.custom_call import CustomCall

Routine = Callable[..., tuple[Any, ...]]

_ATTRIBUTE: Final = r"(\w+) = (-?\d+|true|false)"
_WORDS: Final = {"false": 0, "true": 1}
# The suffixes of the names of JAX's calls, and of those on transposed matrices.
_PLAIN: Final = "_ffi"
_TRANSPOSED: Final = "_transposed"

# The attribute value, a letter's code, with which JAX requests no vectors.
_NO_VECTORS: Final = ord("N")


def lapack_calls() -> dict[str, Callable[..., Any]]:
    """The functions for custom calls by name; each gets the evaluation first."""
    names = [(prefix, name) for name, (prefixes, _) in _ROUTINES.items() for prefix in prefixes]
    return {
        target: _batched(_ROUTINES[name][1], prefix, transposed=suffix == _TRANSPOSED)
        for prefix, name in names
        for suffix in (_PLAIN, _TRANSPOSED)
        for target in (f"lapack_{prefix}{name}{suffix}",)
    }


def transposed_target(target: str) -> str | None:
    """The name under which a call of LAPACK takes and gives its matrices transposed; None for other calls."""
    prefix, name = split_target(target, _PLAIN) or ("", "")
    return f"lapack_{prefix}{name}{_TRANSPOSED}" if name else None


def split_target(target: str, suffix: str = _TRANSPOSED) -> tuple[str, str] | None:
    """The letter of the type and the routine of a call on transposed matrices; None for other calls."""
    name = target.removeprefix("lapack_").removesuffix(suffix)
    if target != f"lapack_{name}{suffix}" or name[1:] not in _ROUTINES or name[0] not in _ROUTINES[name[1:]][0]:
        return None
    return name[0], name[1:]


def call_attributes(instruction: Instruction) -> dict[str, int]:
    """The attributes of a call by name; letters are given by their codes."""
    pairs = re.findall(_ATTRIBUTE, instruction.annotations.backend_config)
    return {name: _WORDS[value] if value in _WORDS else int(value) for name, value in pairs}


def undefined_results(instruction: Instruction) -> frozenset[int]:
    """The results of a call that LAPACK leaves undefined: the matrix that it worked in, unless vectors are there."""
    target = instruction.op.custom_call_target if isinstance(instruction.op, CustomCall) else ""
    _, routine = split_target(target, _PLAIN) or split_target(target) or ("", "")
    has_no_vectors = call_attributes(instruction).get("mode") == _NO_VECTORS
    is_undefined = routine in ("gesdd", "gesvd") or (routine in ("syevd", "heevd") and has_no_vectors)
    return frozenset((0,) if is_undefined else ())


def batch_rank(ranks: Iterable[int]) -> int:
    """The number of leading batch dimensions of all operands and results, given the ranks of the operands."""
    return max(ranks) - 2


def _batched(routine: Routine, prefix: str, *, transposed: bool) -> Callable[..., Any]:
    """A routine for one matrix as a custom call for a batch of them."""

    def call(context: Evaluation, *operands: Array) -> Any:
        attributes = call_attributes(context.instruction)
        declared = [leaf for _, leaf in context.shape.leaves()]
        results = [np.zeros(leaf.dimensions, leaf.element_type.dtype) for leaf in declared]
        rank = batch_rank(map(np.ndim, operands)) + 2

        def as_written(array: Array) -> Array:
            return array.swapaxes(-1, -2) if transposed and array.ndim == rank else array

        operand_arrays, result_arrays = (
            [as_written(operand) for operand in operands],
            [as_written(result) for result in results],
        )
        # Operands of lower rank are vectors: diagonals, pivots, factors of reflections. The last matrix is the one that
        # the routine changes; it decides whether there is anything to do, as others may be empty.
        changed = next(matrix for matrix in reversed(operand_arrays) if matrix.ndim == rank)
        for index in np.ndindex(changed.shape[:-2]) if changed.size else ():
            values = routine(prefix, *(operand[index] for operand in operand_arrays), **attributes)
            for result, value in zip(result_arrays, values, strict=True):
                result[index] = value
        return tuple(results) if context.shape.is_tuple else results[0]

    return call


def _function(prefix: str, name: str) -> Callable[..., Any]:
    from scipy.linalg import lapack  # takes a while to load, and few programs need it

    return getattr(lapack, prefix + name)


def _is_complex(prefix: str) -> bool:
    return prefix in "cz"


def _work(query: Sequence[Any]) -> int:
    """The size of the work space that a routine asks for."""
    return int(np.real(query[0]))


def _checked(info: int, name: str) -> None:
    if info < 0:
        raise ExecutionError(f"LAPACK's {name} refuses its argument {-info}")


# -- solves ----------------------------------------------------------------------------------------


def _trsm(prefix: str, a: Array, b: Array, *, side: int, uplo: int, trans_x: int, diag: int) -> tuple[Any, ...]:
    from scipy.linalg import blas

    return (
        getattr(blas, f"{prefix}trsm")(
            1,
            a,
            b,
            side=side == ord("R"),
            lower=uplo == ord("L"),
            trans_a="NTC".index(chr(trans_x)),
            diag=diag == ord("U"),
        ),
    )


def _gtsv(prefix: str, lower: Array, diagonal: Array, upper: Array, b: Array) -> tuple[Any, ...]:
    # All diagonals have the length of the main one: the lower one's first and the upper one's last element are unused.
    if diagonal.size == 1:
        is_singular = int(diagonal[0] == 0)
        return lower, diagonal, upper, b if is_singular else b / diagonal, is_singular
    below, diagonal, above, solution, info = _function(prefix, "gtsv")(lower[1:], diagonal, upper[:-1], b)
    return np.concatenate((lower[:1], below)), diagonal, np.concatenate((above, upper[-1:])), solution, info


# -- factorizations --------------------------------------------------------------------------------


def _getrf(prefix: str, a: Array) -> tuple[Any, ...]:
    lu, pivots, info = _function(prefix, "getrf")(a)
    # LAPACK counts from one, SciPy from zero.
    return lu, pivots + 1, info


def _potrf(prefix: str, a: Array, *, uplo: int) -> tuple[Any, ...]:
    return _function(prefix, "potrf")(a, lower=uplo == ord("L"), clean=False)


def _geqrf(prefix: str, a: Array) -> tuple[Any, ...]:
    lwork = _work(_function(prefix, "geqrf_lwork")(*a.shape))
    qr, tau, _, info = _function(prefix, "geqrf")(a, lwork=lwork)
    _checked(info, "geqrf")
    return qr, tau


def _geqp3(prefix: str, a: Array, pivots: Array) -> tuple[Any, ...]:
    if pivots.any():
        raise ExecutionError("geqp3 with columns that stay in front", hint="SciPy's geqp3 has all columns free")
    qr, found, tau, _, info = _function(prefix, "geqp3")(a)
    _checked(info, "geqp3")
    return qr, found, tau


def _orgqr(prefix: str, a: Array, tau: Array) -> tuple[Any, ...]:
    function = _function(prefix, "ungqr" if _is_complex(prefix) else "orgqr")
    if not tau.size:
        return (np.eye(*a.shape, dtype=a.dtype),)
    q, _, info = function(a, tau, lwork=_work(function(a, tau, lwork=-1)[1]))
    _checked(info, "orgqr")
    return (q,)


def _ormqr(prefix: str, a: Array, tau: Array, c: Array, *, left: int, transpose: int) -> tuple[Any, ...]:
    function = _function(prefix, "unmqr" if _is_complex(prefix) else "ormqr")
    if not tau.size or not c.size:
        return (c,)
    transposed = "C" if _is_complex(prefix) else "T"
    sides = "L" if left else "R", transposed if transpose else "N"
    product, _, info = function(*sides, a, tau, c, lwork=_work(function(*sides, a, tau, c, lwork=-1)[1]))
    _checked(info, "ormqr")
    return (product,)


# -- values and vectors ----------------------------------------------------------------------------


def _svd(name: str) -> Routine:
    def routine(prefix: str, a: Array, *, mode: int) -> tuple[Any, ...]:
        full, vectors = mode == ord("A"), mode != _NO_VECTORS
        rows, columns = a.shape
        lwork = _function(prefix, f"{name}_lwork")(rows, columns, compute_uv=vectors, full_matrices=full)
        u, s, vt, info = _function(prefix, name)(a, compute_uv=vectors, full_matrices=full, lwork=_work(lwork))
        if not vectors:
            u = vt = 0
        return a, s, u, vt, info

    return routine


def _syevd(prefix: str, a: Array, *, mode: int, uplo: int) -> tuple[Any, ...]:
    function = _function(prefix, "heevd" if _is_complex(prefix) else "syevd")
    values, vectors, info = function(a, compute_v=mode != _NO_VECTORS, lower=uplo == ord("L"))
    return vectors, values, info


def _geev(prefix: str, a: Array, *, compute_left: int, compute_right: int) -> tuple[Any, ...]:
    left, right = compute_left != _NO_VECTORS, compute_right != _NO_VECTORS
    if not np.isfinite(a).all():
        # LAPACK may not terminate for matrices that are not finite.
        return (*[np.nan] * (1 if _is_complex(prefix) else 2), np.nan, np.nan, 1)
    *values, vl, vr, info = _function(prefix, "geev")(a, compute_vl=left, compute_vr=right)
    if not _is_complex(prefix):
        pairs = values[1]
        vl, vr = _unpacked(vl, pairs) if left else 0, _unpacked(vr, pairs) if right else 0
    return *values, vl if left else 0, vr if right else 0, info


def _unpacked(vectors: Array, imaginary: Array) -> Array:
    """Complex eigenvectors; LAPACK gives the real part of a conjugate pair in one column, the imaginary in the next."""
    complex_vectors = vectors.astype(np.result_type(vectors, np.complex64))
    for first in np.flatnonzero(imaginary > 0):
        complex_vectors[:, first] = vectors[:, first] + 1j * vectors[:, first + 1]
        complex_vectors[:, first + 1] = complex_vectors[:, first].conj()
    return complex_vectors


def _gees(prefix: str, a: Array, *, mode: int, sort: int) -> tuple[Any, ...]:
    if sort != _NO_VECTORS:
        raise ExecutionError("a Schur form with sorted eigenvalues", hint="sort them after the factorization")
    if not np.isfinite(a).all():
        # LAPACK would take minutes to fail.
        return (np.nan, np.nan, *[np.nan] * (1 if _is_complex(prefix) else 2), 0, 1)

    def never(*_: Any) -> int:
        return 0

    vectors = mode != _NO_VECTORS
    form, selected, *values, vs, _, info = _function(prefix, "gees")(never, a, compute_v=vectors, sort_t=0)
    return form, vs if vectors else 0, *values, selected, info


def _gehrd(prefix: str, a: Array, *, low: int, high: int) -> tuple[Any, ...]:
    lwork = _work(_function(prefix, "gehrd_lwork")(a.shape[0], lo=low - 1, hi=high - 1))
    return _function(prefix, "gehrd")(a, lo=low - 1, hi=high - 1, lwork=lwork)


def _sytrd(prefix: str, a: Array, *, uplo: int) -> tuple[Any, ...]:
    name = "hetrd" if _is_complex(prefix) else "sytrd"
    lower = uplo == ord("L")
    lwork = _work(_function(prefix, f"{name}_lwork")(a.shape[0], lower=lower))
    return _function(prefix, name)(a, lower=lower, lwork=lwork)


_REAL, _COMPLEX, _ALL = "sd", "cz", "sdcz"

_ROUTINES: Final[dict[str, tuple[str, Routine]]] = {
    "trsm": (_ALL, _trsm),
    "gtsv": (_ALL, _gtsv),
    "getrf": (_ALL, _getrf),
    "potrf": (_ALL, _potrf),
    "geqrf": (_ALL, _geqrf),
    "geqp3": (_ALL, _geqp3),
    "orgqr": (_REAL, _orgqr),
    "ungqr": (_COMPLEX, _orgqr),
    "ormqr": (_REAL, _ormqr),
    "unmqr": (_COMPLEX, _ormqr),
    "gesdd": (_ALL, _svd("gesdd")),
    "gesvd": (_ALL, _svd("gesvd")),
    "syevd": (_REAL, _syevd),
    "heevd": (_COMPLEX, _syevd),
    "geev": (_ALL, _geev),
    "gees": (_ALL, _gees),
    "gehrd": (_ALL, _gehrd),
    "sytrd": (_REAL, _sytrd),
    "hetrd": (_COMPLEX, _sytrd),
}
