"""Custom calls of LAPACK in machine code, against what defines the results and against the interpreter."""

from functools import partial

import numpy as np
import pytest
import scipy.linalg
from calling import (
    KINDS,
    Calls,
    adjoint,
    close,
    complex_of,
    is_hessenberg,
    is_lu,
    is_qr,
    is_tridiagonal,
    like,
    no_failure,
    normal,
    real_of,
)

import xlakit as xla

SIZES = (0, 1, 2, 5, 33, 130)


pytestmark = pytest.mark.usefixtures("no_python")


def matrices(prefix, size):
    """Square, wide and tall matrices, three of each; of large ones a tall one has to do."""
    shapes = ((size, size), (size, size + 3), (size + 3, size))
    return [normal(prefix, 3, *sizes) for sizes in (shapes if size < 100 else shapes[2:])]


@pytest.mark.parametrize("prefix", "sdcz")
def test_factorizations(prefix):
    calls = Calls()
    for size in SIZES:
        x = normal(prefix, 3, size, size)
        definite = (x @ adjoint(x) + size * np.eye(size)).astype(KINDS[prefix])
        for uplo in "LU":

            def is_factor(factor, info, uplo=uplo, definite=definite):
                no_failure(info)
                factor = np.tril(factor) if uplo == "L" else adjoint(np.triu(factor))
                close(factor @ adjoint(factor), definite, prefix)

            calls.add(prefix, "potrf", [definite], [like(x), (np.int32, (3,))], is_factor, uplo=ord(uplo))
        for a in matrices(prefix, size):
            least = min(a.shape[1:])
            results = [like(a), (np.int32, (3, least)), (np.int32, (3,))]
            calls.add(prefix, "getrf", [a], results, partial(is_lu, a, prefix))
            calls.add(prefix, "geqrf", [a], [like(a), (a.dtype, (3, least))], partial(is_qr, a, prefix))
            pivots = np.zeros((3, a.shape[-1]), np.int32)
            results = [like(a), like(pivots), (a.dtype, (3, least))]
            calls.add(prefix, "geqp3", [a, pivots], results, partial(is_qr, a, prefix))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_products_of_reflections(prefix):
    calls, name = Calls(), "un" if prefix in "cz" else "or"
    for size in SIZES:
        for a in matrices(prefix, size):
            (rows, columns), least = a.shape[1:], min(a.shape[1:])
            reflections, tau = np.tril(a[..., :least], -1) / max(1, size), normal(prefix, 3, least) / 2
            if rows >= columns:
                calls.add(prefix, f"{name}gqr", [reflections, tau], [like(a)])
            for left, transpose in ((1, 0), (1, 1), (0, 0), (0, 1)):
                c = normal(prefix, 3, *((rows, 4) if left else (4, rows)))
                calls.add(prefix, f"{name}mqr", [reflections, tau, c], [like(c)], left=left, transpose=transpose)
    # No reflections change nothing.
    c, nothing, tau = normal(prefix, 2, 4, 3), normal(prefix, 2, 4, 0), normal(prefix, 2, 0)
    calls.add(prefix, f"{name}mqr", [nothing, tau, c], [like(c)], lambda q: close(q, c, prefix, 0), left=1, transpose=0)
    identity = np.broadcast_to(np.eye(4, 3), c.shape).astype(c.dtype)
    calls.add(prefix, f"{name}gqr", [c, tau], [like(c)], lambda q: close(q, identity, prefix, 0))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
@pytest.mark.parametrize("name", ["gesdd", "gesvd"])
def test_singular_values(prefix, name):
    calls = Calls()
    for size in SIZES:
        for a in matrices(prefix, size):
            (rows, columns), least = a.shape[1:], min(a.shape[1:])
            for mode in "ASN":

                def is_decomposition(kept, s, u, vt, info, a=a, least=least, mode=mode):
                    no_failure(info)
                    close(s, np.linalg.svd(a, compute_uv=False), prefix)
                    if mode == "N" or not a.size:
                        assert not u.any()
                        assert not vt.any()
                    else:
                        close((u[..., :least] * s[..., None, :]) @ vt[..., :least, :], a, prefix)

                u, vt = ((rows, rows), (columns, columns)) if mode == "A" else ((rows, least), (least, columns))
                vectors = [(a.dtype, (3, *dims)) for dims in (u, vt)]
                results = [like(a), (real_of(prefix), (3, least)), *vectors, (np.int32, (3,))]
                calls.add(prefix, name, [a], results, is_decomposition, mode=ord(mode))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_symmetric(prefix):
    calls, kind = Calls(), "he" if prefix in "cz" else "sy"
    for size in SIZES:
        x = normal(prefix, 3, size, size)
        a, real, info = x + adjoint(x), real_of(prefix), (np.int32, (3,))
        for uplo in "LU":
            # The other triangle is not read.
            given = np.where(np.tri(size, k=-1 if uplo == "U" else 0) == (uplo == "L"), a, np.nan).astype(a.dtype)
            for mode in "VN":

                def is_decomposition(vectors, values, info, a=a, mode=mode):
                    no_failure(info)
                    close(values, np.linalg.eigvalsh(a), prefix)
                    if mode == "V" and a.size:
                        close(a @ vectors, vectors * values[..., None, :], prefix)

                results = [like(a), (real, (3, size)), info]
                calls.add(prefix, f"{kind}evd", [given], results, is_decomposition, mode=ord(mode), uplo=ord(uplo))
            if size:
                vectors = [(real, (3, size)), (real, (3, size - 1)), (a.dtype, (3, size - 1))]
                check = partial(is_tridiagonal, a, prefix, uplo)
                calls.add(prefix, f"{kind}trd", [a], [like(a), *vectors, info], check, uplo=ord(uplo))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_eigenvalues(prefix):
    calls = Calls()
    for size in SIZES:
        a = normal(prefix, 3, size, size)
        values = [(a.dtype, (3, size))] * (1 if prefix in "cz" else 2)
        vectors = [(complex_of(prefix), a.shape)] * 2
        for left, right in ("VV", "NV", "VN", "NN"):

            def is_decomposition(*found, a=a, left=left, right=right):
                *parts, vl, vr, info = found
                no_failure(info)
                w = parts[0] if prefix in "cz" else parts[0] + 1j * parts[1]
                close(np.sort_complex(w), np.sort_complex(np.linalg.eigvals(a)).astype(w.dtype), prefix)
                if right == "V":
                    close(a @ vr, vr * w[..., None, :], prefix)
                if left == "V":
                    close(adjoint(vl) @ a, w[..., :, None] * adjoint(vl), prefix)
                assert left == "V" or not vl.any()
                assert right == "V" or not vr.any()

            asked = {"compute_left": ord(left), "compute_right": ord(right)}
            calls.add(prefix, "geev", [a], [*values, *vectors, (np.int32, (3,))], is_decomposition, **asked)
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_schur_and_hessenberg(prefix):
    calls = Calls()
    for size in SIZES:
        a, info = normal(prefix, 3, size, size), (np.int32, (3,))
        if size:
            results, check = [like(a), (a.dtype, (3, size - 1)), info], partial(is_hessenberg, a, prefix)
            calls.add(prefix, "gehrd", [a], results, check, low=1, high=size)
        values = [(a.dtype, (3, size))] * (1 if prefix in "cz" else 2)
        for mode in "VN":

            def is_schur_form(form, vectors, *rest, a=a, mode=mode):
                no_failure(rest[-1])
                if mode == "V":
                    close(vectors @ form @ adjoint(vectors), a, prefix)
                else:
                    assert not vectors.any()

            results = [like(a), like(a), *values, info, info]
            calls.add(prefix, "gees", [a], results, is_schur_form, mode=ord(mode), sort=ord("N"))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_solves(prefix):
    calls = Calls()
    for size in SIZES:
        a = (normal(prefix, 3, size, size) / max(1, size) + 2 * np.eye(size)).astype(KINDS[prefix])
        for side, uplo, form, diag in ("LLNN", "RLNU", "LUTN", "RUCU", "LLCN"):
            b = normal(prefix, 3, *((size, 4) if side == "L" else (4, size)))
            letters = {"side": side, "uplo": uplo, "trans_x": form, "diag": diag}
            calls.add(prefix, "trsm", [a, b], [like(b)], **{k: ord(v) for k, v in letters.items()})
        if size:
            diagonals = [normal(prefix, 3, size), 4 + normal(prefix, 3, size), normal(prefix, 3, size + 1)[:, :size]]
            operands = [*diagonals, normal(prefix, 3, size, 2)]
            calls.add(prefix, "gtsv", operands, [*map(like, operands), (np.int32, (3,))])
    calls.run()


@pytest.mark.parametrize("batch", [(), (1,), (0,), (2, 2)])
def test_batches(batch):
    calls, size = Calls(), 5
    x = normal("d", *batch, size, size)
    definite, info, vector = x @ adjoint(x) + np.eye(size), (np.int32, batch), (x.dtype, (*batch, size))
    vectors = np.dtype(np.complex128), x.shape
    calls.add("d", "potrf", [definite], [like(x), info], uplo=ord("L"))
    calls.add("d", "getrf", [x], [like(x), (np.int32, (*batch, size)), info])
    calls.add("d", "geqrf", [x], [like(x), vector])
    calls.add("d", "orgqr", [x, x[..., 0]], [like(x)])
    calls.add("d", "ormqr", [x, x[..., 0], x], [like(x)], left=1, transpose=0)
    calls.add("d", "syevd", [definite], [like(x), vector, info], mode=ord("N"), uplo=ord("L"))
    calls.add("d", "gesdd", [x], [like(x), vector, like(x), like(x), info], lambda *r: no_failure(r[-1]), mode=ord("A"))
    asked = {"compute_left": ord("V"), "compute_right": ord("V")}
    calls.add("d", "geev", [x], [vector, vector, vectors, vectors, info], lambda *r: no_failure(r[-1]), **asked)
    calls.add("d", "trsm", [definite, x], [like(x)], side=ord("L"), uplo=ord("L"), trans_x=ord("N"), diag=ord("N"))
    calls.run()


def test_columns_of_a_pivoted_qr_that_stay_in_front():
    calls, a = Calls(), normal("d", 6, 4)
    calls.add("d", "geqp3", [a, np.array([0, 0, 1, 0], np.int32)], [like(a), (np.int32, (4,)), (a.dtype, (4,))])
    computation, values = calls.build()
    qr, found, _ = xla.compile(computation, backend="cpu")(*values)
    assert found[0] == 3
    r = np.triu(qr[:4])
    close(r.T @ r, a[:, found - 1].T @ a[:, found - 1], "d")


# -- inputs that have no result ------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", "sdcz")
def test_info_of_singular_and_indefinite_matrices(prefix):
    calls = Calls()

    def infos(*expected):
        return lambda *results: np.testing.assert_array_equal(results[-1], expected)

    for size in (1, 2, 5, 33):
        a = normal(prefix, 3, size, size)
        a = (a @ adjoint(a) + np.eye(size)).astype(KINDS[prefix])
        a[1] = 0
        a[2] -= 3 * np.eye(size) * abs(a[2]).max()
        calls.add(prefix, "potrf", [a], [like(a), (np.int32, (3,))], infos(0, 1, 1), uplo=ord("L"))
        calls.add(prefix, "getrf", [a], [like(a), (np.int32, (3, size)), (np.int32, (3,))], infos(0, 1, 0))
        singular = [np.zeros((3, size), a.dtype)] * 3
        results = [*map(like, (*singular, a)), (np.int32, (3,))]
        calls.add(prefix, "gtsv", [*singular, a], results, infos(1, 1, 1))
    calls.run()


@pytest.mark.parametrize("prefix", "sd")
@pytest.mark.parametrize("size", [2, 7, 31])
def test_pivots_of_small_matrices(prefix, size):
    """The first of the largest elements is the pivot; a column of zeros has none, and the columns after it go on."""
    calls = Calls()
    a = normal(prefix, 4, size + 1, size).astype(KINDS[prefix])
    a[1] = 1
    a[2, size // 2] = 0
    a[3, :, 0] = 0

    def are_lapacks(factors, pivots, info):
        for number, matrix in enumerate(a):
            expected, rows, of_zero = getattr(scipy.linalg.lapack, f"{prefix}getrf")(matrix)
            np.testing.assert_array_equal(pivots[number], rows + 1)
            assert info[number] == of_zero
            close(factors[number], expected, prefix)

    calls.add(prefix, "getrf", [a], [like(a), (np.int32, (4, size)), (np.int32, (4,))], are_lapacks)
    calls.run()


@pytest.mark.parametrize("prefix", "sd")
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_factors_of_small_positive_matrices(prefix, uplo, size):
    """The first column that has no positive pivot is the last one that changes; NaN spreads."""
    calls = Calls()
    a = normal(prefix, 5, size, size)
    a = (a @ adjoint(a) + np.eye(size)).astype(KINDS[prefix])
    middle = size // 2
    a[1, middle, middle] = -1
    a[2, middle, middle] = np.nan
    a[3, 0, 0] = 0
    a[4, middle, middle] = np.inf

    def are_lapacks(factors, info):
        for number, matrix in enumerate(a):
            options = {"lower": uplo == "L", "clean": 0}
            expected, failed = getattr(scipy.linalg.lapack, f"{prefix}potrf")(matrix, **options)
            assert info[number] == failed
            finite = np.isfinite(expected)
            np.testing.assert_array_equal(np.isfinite(factors[number]), finite)
            close(np.where(finite, factors[number], 0), np.where(finite, expected, 0), prefix)

    calls.add(prefix, "potrf", [a], [like(a), (np.int32, (5,))], are_lapacks, uplo=ord(uplo))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
@pytest.mark.parametrize("size", [2, 33, 70])
def test_calls_end_with_what_is_not_finite(prefix, size):
    calls = Calls()
    for bad in (np.nan, np.inf):
        a = normal(prefix, 3, size, size)
        a[1, size // 2, size // 3] = bad
        a[2] = bad
        info, real = (np.int32, (3,)), (real_of(prefix), (3, size))
        vectors, values = (complex_of(prefix), a.shape), [(a.dtype, (3, size))] * (1 if prefix in "cz" else 2)

        def is_nan(*found):
            """Routines that would not end are not called."""
            assert found[-1].tolist() == [0, 1, 1]
            floats = [f for f in found if f.dtype != np.int32]
            assert all(np.isnan(f[1:]).all() and np.isfinite(f[:1]).all() for f in floats)

        asked = {"compute_left": ord("V"), "compute_right": ord("V")}
        calls.add(prefix, "geev", [a], [*values, vectors, vectors, info], is_nan, **asked)
        asked = {"mode": ord("V"), "sort": ord("N")}
        calls.add(prefix, "gees", [a], [like(a), like(a), *values, info, info], is_nan, **asked)

        def of_first(*found):
            """The first matrix knows nothing of the others."""
            assert all(np.isfinite(f[:1]).all() for f in found)

        sy = "he" if prefix in "cz" else "sy"
        short = (a.dtype, (3, size - 1))
        for name, results, attributes in (
            ("getrf", [like(a), (np.int32, (3, size)), info], {}),
            ("potrf", [like(a), info], {"uplo": ord("L")}),
            ("geqrf", [like(a), (a.dtype, (3, size))], {}),
            ("gesdd", [like(a), real, like(a), like(a), info], {"mode": ord("A")}),
            ("gesvd", [like(a), real, like(a), like(a), info], {"mode": ord("A")}),
            (f"{sy}evd", [like(a), real, info], {"mode": ord("V"), "uplo": ord("L")}),
            (f"{sy}trd", [like(a), real, (real[0], (3, size - 1)), short, info], {"uplo": ord("L")}),
            ("gehrd", [like(a), short, info], {"low": 1, "high": size}),
        ):
            calls.add(prefix, name, [a], results, of_first, **attributes)
    computation, operands = calls.build()
    executable = xla.compile(computation, backend="cpu")
    for one, other in zip(executable(*operands), executable(*operands), strict=True):
        np.testing.assert_array_equal(one, other)
    calls.run()
