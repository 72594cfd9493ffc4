"""cholesky and triangular-solve in machine code, against the interpreter."""

import itertools

import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla
from xlakit.options import compiling
from xlakit.target import vector_bytes

KINDS = [np.float32, np.float64, np.complex64, np.complex128]
FORMS = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
# Left, lower, a diagonal of ones, the form: each at least once either way.
CASES = [
    (True, True, False, FORMS[0]),
    (True, False, True, FORMS[0]),
    (False, True, False, FORMS[1]),
    (False, False, True, FORMS[0]),
]


def normal(kind, *sizes):
    rng = np.random.default_rng(sum(sizes))
    x = rng.standard_normal(sizes)
    return (x + 1j * rng.standard_normal(sizes) if np.dtype(kind).kind == "c" else x).astype(kind)


def agree(function, *values):
    computation = build(function, *(shape_of(v) for v in values))
    executable = xla.compile(computation, backend="cpu")
    assert not executable.host_instructions
    actual = np.asarray(executable(*values))
    expected = np.asarray(xla.compile(computation, backend="interpreter")(*values))
    assert actual.dtype == expected.dtype
    assert (np.isnan(actual) == np.isnan(expected)).all()
    with np.errstate(invalid="ignore"):
        size = np.nanmax(np.abs(expected).astype(np.float64))
        wrong = np.abs(actual - expected).astype(np.float64) > 64 * epsilon(actual.dtype) * size
    assert not wrong.any()


def epsilon(dtype):
    return {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}[np.empty((), dtype).real.dtype.itemsize]


def definite(kind, *batch_and_size):
    x = normal(kind, *batch_and_size, batch_and_size[-1])
    size = batch_and_size[-1]
    return (x @ x.conj().swapaxes(-1, -2) + size * np.eye(size, dtype=kind)).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("size", [1, 5, 16, 17, 70])
def test_cholesky(kind, lower, size):
    a = definite(kind, 3, size)
    a[1, size - 1, size - 1] = -1
    agree(lambda x: xla.cholesky(x, lower), a)


def test_cholesky_reads_one_triangle():
    for size in (6, 40):
        a = definite(np.complex64, size)
        spoiled = np.tril(a) + np.triu(np.full_like(a, np.nan), 1)
        agree(lambda x: xla.cholesky(x, lower=True), spoiled)
        agree(lambda x: xla.cholesky(x, lower=False), spoiled.T.conj())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "sides"), [(1, 1), (5, 40), (17, 3), (40, 70)])
def test_triangular_solve(kind, size, sides):
    a = (normal(kind, 2, size, size) / size + 2 * np.eye(size)).astype(kind)
    for left, lower, unit, form in itertools.product((True, False), (True, False), (True, False), FORMS):
        b = normal(kind, 2, size, sides) if left else normal(kind, 2, sides, size)
        given = b.copy()
        agree(lambda x, y, o=(left, lower, unit, form): xla.triangular_solve(x, y, *o), a, b)
        np.testing.assert_array_equal(b, given)


def test_narrow_types_are_computed_in_f32():
    a = definite(np.float32, 4).astype(np.float16)
    agree(lambda x: xla.cholesky(x, lower=True), a)
    agree(lambda x: xla.triangular_solve(x, x, True, True, False), a)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 5, 40, 300])
def test_a_matrix_with_a_nan_has_no_factor(kind, size):
    spoiled = np.stack([definite(kind, size), definite(kind, size)])
    spoiled[1, size - 1, 0] = spoiled[1, 0, size - 1] = np.nan
    for lower in (True, False):
        computation = build(lambda x, lower=lower: xla.cholesky(x, lower=lower), shape_of(spoiled))
        for backend in ("cpu", "interpreter"):
            found = np.asarray(xla.compile(computation, backend=backend)(spoiled))
            assert np.isfinite(found[0]).all()
            assert np.isnan(found[1]).all()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.complex128])
def test_large_factors_do_not_depend_on_threads(kind, lower):
    size, rng = 781, np.random.default_rng(0)
    x = rng.standard_normal((size, size)) + (1j * rng.standard_normal((size, size)) if kind is np.complex128 else 0)
    matrix = (x @ x.conj().T / size + np.eye(size)).astype(kind)
    # The other triangle is not read.
    other = np.triu(np.ones_like(matrix), 1) if lower else np.tril(np.ones_like(matrix), -1)
    given = np.where(other == 1, np.nan, matrix)
    program = xla.compile(build(lambda a: xla.cholesky(a, lower=lower), shape_of(given)), backend="cpu")
    with xla.threads(1):
        factor = program(given)
    with xla.threads(4):
        np.testing.assert_array_equal(program(given), factor)
    assert not factor[other == 1].any()
    product = factor @ factor.conj().T if lower else factor.conj().T @ factor
    np.testing.assert_allclose(product, matrix, rtol=0, atol=1e-5 if kind is np.float32 else 1e-13)
    given[size - 2, size - 2] = -1
    assert np.isnan(program(given)).all()


@pytest.mark.parametrize(("kind", "width"), [(np.float32, 16), (np.float64, 32), (np.float32, 64)])
def test_systems_by_strips_read_one_triangle(kind, width):
    """Sizes of no whole blocks and strips; bits do not depend on how right-hand sides are divided into tasks."""
    if width > vector_bytes():
        pytest.skip("the processor has no such vectors")
    size, sides = 31, 75
    a = (normal(kind, size, size) / size + 2 * np.eye(size)).astype(kind)
    for left, lower, unit, form in CASES:
        b = normal(kind, size, sides) if left else normal(kind, sides, size)
        triangle = np.tril(a, -1) if lower else np.triu(a, 1)
        given = np.where(triangle == 0, np.nan, triangle)
        if not unit:
            np.fill_diagonal(given, a.diagonal())
        triangle += np.eye(size, dtype=kind) if unit else np.diag(a.diagonal())
        operation = build(
            lambda x, y, o=(left, lower, unit, form): xla.triangular_solve(x, y, *o), shape_of(a), shape_of(b)
        )
        found = []
        for bytes in (1 << 30, size * 64 * a.itemsize):
            with compiling(vector_bytes=width, knobs={"strips.task_bytes": bytes, "strips.least_sides": 1}):
                found.append(np.asarray(xla.compile(operation, backend="cpu")(given, b)))
        np.testing.assert_array_equal(*found)
        turned = triangle.T if form == "TRANSPOSE" else triangle
        product = turned @ found[0] if left else found[0] @ turned
        np.testing.assert_allclose(product, b, rtol=0, atol=1e-5 if kind is np.float32 else 1e-13)
