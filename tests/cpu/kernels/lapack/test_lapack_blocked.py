"""LU, QR, eigenvalues and singular values of large matrices, which threads share.

Small knobs have small matrices take their way.
"""

from dataclasses import replace

import numpy as np
import pytest
from calling import KINDS, epsilon, normal
from evaluating import build, shape_of

import xlakit as xla
from xlakit import lib, machine
from xlakit.cpu.kernels.linalg import lapack, lapack_vectors  # they have the knobs
from xlakit.options import compiling

assert lapack
SMALL = {
    "lapack_blocked.block": 8,
    "lapack_blocked.strip": 24,
    "lapack_blocked.least_blocked": 24,
    "lapack_vectors.strip": 24,
    "lapack_vectors.least_vectors": 24,
}
WHOLE = {"lapack_blocked.least_blocked": 1e6, "lapack_vectors.least_vectors": 1e6}


@pytest.fixture(autouse=True)
def processors(monkeypatch):
    """A machine of one processor would have nothing to share."""
    here = machine.current()
    monkeypatch.setattr(machine, "current", lambda: replace(here, threads=max(2, here.threads)))


def compiled(function, x, blocked=True):
    with compiling(knobs=SMALL if blocked else WHOLE):
        return xla.compile(build(function, shape_of(x)), backend="cpu")


def everything(x):
    return [*lib.lu(x), *lib.qr(x), *lib.qr(x, full_matrices=False)]


@pytest.mark.parametrize(("prefix", "rows", "columns"), [("d", 100, 100), ("s", 57, 33), ("c", 33, 57), ("z", 25, 24)])
def test_factors_of_blocks(prefix, rows, columns):
    a = normal(prefix, rows, columns)
    program = compiled(everything, a)
    with xla.threads(1):
        results = program(a)
    with xla.threads(4):
        for one, other in zip(program(a), results, strict=True):
            np.testing.assert_array_equal(one, other)
    factors, pivots, order, *pairs = map(np.asarray, results)
    for one, other in zip(compiled(lib.lu, a, blocked=False)(a)[1:], (pivots, order), strict=True):
        np.testing.assert_array_equal(one, other)
    least = min(rows, columns)
    lower = np.tril(factors[:, :least], -1) + np.eye(rows, least)
    bound = 10 * max(rows, columns) * epsilon(prefix)
    np.testing.assert_allclose(lower @ np.triu(factors[:least]), a[order], rtol=0, atol=bound)
    for q, r in (pairs[:2], pairs[2:]):
        assert not np.tril(r, -1).any()
        np.testing.assert_allclose(q @ r, a, rtol=0, atol=bound)
        np.testing.assert_allclose(q.conj().T @ q, np.eye(q.shape[1]), rtol=0, atol=bound)


def info_of(x):
    shapes = [x.shape, xla.make_shape(xla.S32, [x.shape.dimensions[-1]]), xla.make_shape(xla.S32, [])]
    call = xla.custom_call(
        x.builder, "lapack_dgetrf_ffi", [x], xla.make_tuple_shape([s.without_layout() for s in shapes])
    )
    return [xla.get_tuple_element(call, i) for i in range(3)]


@pytest.mark.parametrize("column", [2, 20, 39])
def test_the_first_pivot_that_is_zero(column):
    a = normal("d", 40, 40)
    a[:, column:] = 0
    found, expected = compiled(info_of, a)(a), compiled(info_of, a, blocked=False)(a)
    assert found[2] == expected[2] == column + 1
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], atol=1e-12)


def test_elements_that_are_no_numbers():
    a = normal("d", 40, 40)
    a[30, 3] = np.nan
    for result in compiled(everything, a)(a)[3:]:
        assert np.isnan(result).any()


def hermitian(prefix, *sizes):
    a = normal(prefix, *sizes)
    return ((a + a.conj().swapaxes(-1, -2)) / 2).astype(a.dtype)


def eigen(a, lower=True, blocked=True):
    """Vectors and values of a triangle; of other elements than that triangle's nothing may depend."""
    given = np.where(
        np.tril(np.ones(a.shape, bool)) if lower else np.triu(np.ones(a.shape, bool)), a, a.dtype.type(7e30)
    )
    program = compiled(lambda x: list(lib.eigh(x, lower)), given, blocked)
    with xla.threads(1):
        results = [np.asarray(result) for result in program(given)]
    with xla.threads(4):
        for one, other in zip(program(given), results, strict=True):
            np.testing.assert_array_equal(one, other)
    return results


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(("prefix", "size"), [("s", 24), ("d", 49), ("c", 50), ("z", 72), ("d", 100)])
def test_eigenvectors_of_strips(prefix, size, lower):
    a = hermitian(prefix, size, size)
    vectors, values = eigen(a, lower)
    bound = 10 * size * epsilon(prefix)
    np.testing.assert_allclose(a @ vectors, vectors * values, rtol=0, atol=bound)
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(size), rtol=0, atol=bound)
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(values, eigen(a, lower, blocked=False)[1], rtol=0, atol=bound)


def test_strips_of_eigenvectors_are_tasks(monkeypatch):
    widths = []
    emit = lapack_vectors.Vectors._emit_strips
    monkeypatch.setattr(lapack_vectors.Vectors, "_emit_strips", lambda *args: widths.append(1) or emit(*args))
    eigen(hermitian("d", 60, 60) + np.eye(60))
    assert len(widths) == 1
    singular(normal("d", 60, 61))
    assert len(widths) == 3
    singular(normal("d", 60, 120))
    assert len(widths) == 3, "gesdd begins with a QR factorization"


def singular(a, mode="A", blocked=True):
    """Left vectors, values, right vectors and info of gesdd."""
    rows, columns = a.shape
    least, kind = min(rows, columns), a.dtype
    sizes = (rows, columns) if mode == "A" else (least, least)
    dims = [(kind, a.shape), (a.real.dtype, (least,)), (kind, (rows, sizes[0])), (kind, (sizes[1], columns))]
    shapes = [xla.make_shape(dtype, each) for dtype, each in [*dims, (np.int32, ())]]
    letter = {np.dtype(k): p for p, k in KINDS.items()}[kind]

    def program(x):
        call = f"lapack_{letter}gesdd_ffi", [x], xla.make_tuple_shape(shapes)
        result = xla.custom_call(x.builder, *call, opaque=f"{{mode = {ord(mode)} : ui8}}")
        return [xla.get_tuple_element(result, n) for n in (2, 1, 3, 4)]

    compiled_program = compiled(program, a, blocked)
    with xla.threads(1):
        results = [np.array(result) for result in compiled_program(a)]
    with xla.threads(4):
        for one, other in zip(compiled_program(a), results, strict=True):
            np.testing.assert_array_equal(one, other)
    return results


@pytest.mark.parametrize("mode", ["A", "S"])
@pytest.mark.parametrize(("prefix", "rows", "columns"), [("s", 24, 24), ("d", 49, 40), ("c", 40, 49), ("z", 72, 72)])
def test_singular_vectors_of_strips(prefix, rows, columns, mode):
    a = normal(prefix, rows, columns)
    u, d, vh, info = singular(a, mode)
    least, bound = min(rows, columns), 10 * max(rows, columns) * epsilon(prefix)
    assert not info
    np.testing.assert_allclose(u[:, :least] * d @ vh[:least], a, rtol=0, atol=bound)
    for q in (u, vh.conj().T):
        np.testing.assert_allclose(q.conj().T @ q, np.eye(q.shape[1]), rtol=0, atol=bound)
    assert (np.diff(d) <= 0).all() and d[-1] >= 0
    np.testing.assert_allclose(d, singular(a, mode, blocked=False)[1], rtol=0, atol=bound)


@pytest.mark.parametrize("prefix", ["s", "z"])
@pytest.mark.parametrize("power", [-1, 1])
def test_singular_values_of_numbers_near_the_bounds(prefix, power):
    info = np.finfo(KINDS[prefix])
    a = normal(prefix, 40, 40)
    scale = info.dtype.type(float(info.max if power > 0 else info.tiny) ** 0.9)
    u, d, vh, _ = singular(a * scale)
    np.testing.assert_allclose(d / scale, singular(a)[1], atol=400 * info.eps)
    np.testing.assert_allclose(u * (d / scale) @ vh, a, atol=400 * info.eps)


def some_zeros(a):
    a[:, 3:9] = a[7, :] = a[:, -1] = 0


def repeated(a):
    a[:, 1::2] = a[:, ::2]


def triangular(a):
    a[...] = np.triu(a)


def tiny(a):
    # Lengths of columns and rows whose squares underflow, some of them less than what LAPACK counts as 0.
    info = np.finfo(a.dtype)
    a[:, 5:] *= info.tiny ** info.dtype.type(0.6)
    a[11:, 17:] *= info.tiny ** info.dtype.type(0.5)
    a[20, :] = info.tiny / 8


@pytest.mark.parametrize("prefix", ["s", "d"])
@pytest.mark.parametrize("change", [some_zeros, repeated, triangular, tiny])
def test_singular_vectors_of_degenerate_matrices(prefix, change):
    for rows, columns in ((40, 40), (50, 40), (40, 50)):
        a = normal(prefix, rows, columns)
        change(a)
        u, d, vh, info = singular(a)
        bound = 10 * rows * epsilon(prefix)
        assert not info
        np.testing.assert_allclose(u[:, : len(d)] * d @ vh[: len(d)], a, rtol=0, atol=bound)
        for q in (u, vh.T):
            np.testing.assert_allclose(q.T @ q, np.eye(len(q)), rtol=0, atol=bound)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (39, 39), ...])
def test_singular_values_of_no_numbers_and_of_zeros(value, place):
    a = normal("d", 40, 40)
    a[place] = value
    found, expected = singular(a), singular(a, blocked=False)
    assert found[3] == expected[3]
    assert [np.isnan(r).all() for r in found[:3]] == [np.isnan(r).all() for r in expected[:3]]
    if value or place is ...:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("prefix", ["s", "z"])
@pytest.mark.parametrize("power", [-1, 1])
def test_eigenvalues_of_numbers_near_the_bounds(prefix, power):
    # syevd scales such matrices, or the squares of their numbers overflow.
    info = np.finfo(np.dtype(prefix.replace("s", "f4").replace("z", "c16")))
    a = hermitian(prefix, 40, 40)
    scale = info.dtype.type(float(info.max if power > 0 else info.tiny) ** 0.9)
    vectors, values = eigen(a * scale)
    expected = eigen(a)[1]
    np.testing.assert_allclose(values / scale, expected, atol=400 * info.eps)
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(40), rtol=0, atol=400 * info.eps)


def test_eigenvectors_of_few_matrices():
    few = hermitian("d", 1, 30, 30)
    vectors, values = compiled(lambda x: list(lib.eigh(x)), few)(few)
    np.testing.assert_allclose(few @ vectors, vectors * values[:, None], rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_eigenvalues_of_no_numbers_and_of_zeros(value):
    a = np.full((40, 40), value)
    for one, other in zip(eigen(a), eigen(a, blocked=False), strict=True):
        np.testing.assert_array_equal(one, other)
