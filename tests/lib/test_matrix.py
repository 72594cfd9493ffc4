"""Parts and products of matrices against NumPy."""

import numpy as np
import pytest
from both_backends import run

import xlakit as xla
from xlakit.lib import matrix, products

ODD = np.array([[-0.0, np.nan, np.inf, 1], [2, -3, np.nan, 4], [5, 6, -0.0, np.nan]], np.float32)
BATCH = np.arange(24, dtype=np.int16).reshape(2, 4, 3)


def compiled(function, array, k):
    builder = xla.XlaBuilder("matrix")
    a = xla.parameter(builder, 0, xla.make_shape(array.dtype, array.shape), "a")
    return xla.compile(builder.build(function(a, k)))(array)


@pytest.mark.parametrize("array", [ODD, BATCH], ids=["odd", "batch"])
@pytest.mark.parametrize("k", [-2, -1, 0, 1, 2])
def test_diagonals_and_triangles_are_those_of_numpy(array, k):
    expected = np.diagonal(array, k, -2, -1)
    found = compiled(matrix.matrix_diagonal, array, k)
    assert np.ascontiguousarray(expected).tobytes() == np.ascontiguousarray(found).tobytes()
    for function, model in ((matrix.lower_triangle, np.tril), (matrix.upper_triangle, np.triu)):
        assert np.array_equal(compiled(function, array, k), model(array, k), equal_nan=array.dtype.kind == "f")


def test_what_has_no_diagonal_is_an_error():
    builder = xla.XlaBuilder("none")
    a = xla.parameter(builder, 0, xla.make_shape(xla.F32, (2, 3)), "a")
    with pytest.raises(xla.ShapeError, match="no diagonal 3"):
        matrix.matrix_diagonal(a, 3)
    with pytest.raises(xla.ShapeError, match="takes matrices"):
        matrix.upper_triangle(xla.reshape(a, new_sizes=[6]))


def test_masks_identities_and_what_is_set():
    def program(a, d):
        return [
            matrix.triangle_mask(a, -1),
            matrix.diagonal_mask(a, 1),
            matrix.set_matrix_diagonal(a, d, -1),
            matrix.identity_matrix(a.builder, xla.C64, 2, 3),
            matrix.transpose_in_minor_dims(a),
            matrix.maybe_transpose_in_minor_dims(a, False),
            matrix.triangle(a, True),
        ]

    diagonal = np.array([[-1, -2, -3], [-4, -5, -6]], np.int16)
    found = run(program, BATCH, diagonal)
    expected = BATCH.copy()
    expected[:, [1, 2, 3], [0, 1, 2]] = diagonal
    ones = np.ones((2, 4, 3), bool)
    turned = BATCH.swapaxes(1, 2)
    others = [
        np.tril(ones, -1),
        np.triu(ones, 1) & np.tril(ones, 1),
        expected,
        np.eye(2, 3),
        turned,
        BATCH,
        np.tril(BATCH),
    ]
    for a, b in zip(found, others, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(xla.ShapeError, match="not the diagonal"):
        run(matrix.set_matrix_diagonal, BATCH, diagonal[:, :2])


@pytest.mark.parametrize("lower", [True, False])
def test_symmetric_matrices(lower):
    a = np.random.default_rng(1).normal(size=(2, 3, 3, 2)).view(np.complex128)[..., 0]
    part = (np.tril if lower else np.triu)(a, -1 if lower else 1)
    hermitian = part + part.conj().swapaxes(1, 2) + np.eye(3) * np.einsum("bii->bi", a.real)[:, None]
    np.testing.assert_array_equal(run(lambda m: matrix.symmetrize(m, lower), a), hermitian)
    np.testing.assert_array_equal(run(lambda m: matrix.symmetrize(m, lower), a.real), hermitian.real)
    with pytest.raises(xla.ShapeError, match="square"):
        run(lambda m: matrix.symmetrize(m, lower), BATCH)


@pytest.mark.parametrize(
    ("config", "x", "y"),
    [
        ("ab,cb->ac", (2, 3), (4, 3)),
        ("ba,bc", (2, 3), (2, 4)),
        ("...ab,...bc->...ac", (5, 2, 3), (5, 3, 2)),
        ("...ab,...bcd->b...d", (2, 6, 3), (2, 3, 4, 5)),
        ("ab...,b->...a", (2, 3, 4), (3,)),
        ("aab,bcc->ca", (2, 2, 3), (3, 4, 4)),
        ("ab,cd->", (2, 3), (2, 0)),
        (",a->a", (), (3,)),
        ("...,...", (4,), (2, 4)),
        ("a b c, b -> a b", (2, 3, 4), (3,)),
        ("aa->a", (0, 0), None),
        ("...ii->...", (2, 3, 3), None),
        ("cab", (2, 3, 4), None),
    ],
)
def test_sums_of_products(config, x, y):
    rng = np.random.default_rng(2)
    arrays = [rng.integers(-4, 4, shape).astype(np.float32) for shape in (x, y) if shape is not None]
    found = run(lambda *a: products.einsum(a[0], a[1] if len(a) > 1 else None, config), *arrays)
    np.testing.assert_array_equal(found, np.einsum(config, *arrays))


def test_products_of_matrices():
    rng = np.random.default_rng(3)
    x, y = rng.integers(-4, 4, (2, 5, 3, 4)).astype(np.int8), rng.integers(-4, 4, (5, 6, 3)).astype(np.int8)
    found = run(lambda a, b: products.batch_dot(a, b, True, True, preferred_element_type=xla.S32), x, y)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, x.swapaxes(2, 3).astype(int) @ y.swapaxes(1, 2).astype(int))


@pytest.mark.parametrize(
    "config", ["ab->ab", "ab,bc->ad", "ab,bc->aa", "abc,bc->a", "a.b,bc->a", "a1,bc->a", "aa,bc->a"]
)
def test_sums_that_are_none(config):
    with pytest.raises(xla.ShapeError):
        run(lambda a, b: products.einsum(a, b, config), np.zeros((2, 3)), np.zeros((3, 2)))
