"""Linear systems with lineax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import lineax as lx

from fuzz.library_programs.registry import program

_STOPS = "an iterative solver stops at its tolerance"


def _matrix(key, n=12):
    return jax.random.normal(key, (n, n)) / n + jnp.eye(n)


def _symmetric(key, n=12):
    a = jax.random.normal(key, (n, n))
    return a @ a.T / n + jnp.eye(n)


def _both(solver, matrix, tags=()):
    def run(a, b):
        return lx.linear_solve(lx.MatrixLinearOperator(a, tags), b, solver).value

    def loss(a, b):
        return (run(a, b) ** 3).sum()

    b = jnp.cos(jnp.arange(float(matrix.shape[0])))
    return run(matrix, b), jax.grad(loss, (0, 1))(matrix, b), jax.jvp(run, (matrix, b), (matrix, b))[1]


@program("lineax/direct", tolerance=1e-4, why="systems of condition up to 50, solved in float32")
def direct(key):
    a = _matrix(key)
    return [_both(solver, a) for solver in (lx.LU(), lx.QR(), lx.SVD(), lx.AutoLinearSolver(well_posed=True))]


@program("lineax/cholesky", tolerance=1e-4, why="systems of condition up to 50, solved in float32")
def cholesky(key):
    return _both(lx.Cholesky(), _symmetric(key), lx.positive_semidefinite_tag)


@program("lineax/iterative", tolerance=2e-2, why=_STOPS)
def iterative(key):
    # Of GMRES and BiCGStab values alone: in float32 they break down near a solution, which derivatives raise.
    operator, b = lx.MatrixLinearOperator(_matrix(key)), jnp.cos(jnp.arange(12.0))
    return (
        _both(lx.CG(1e-6, 1e-6), _symmetric(key), lx.positive_semidefinite_tag),
        lx.linear_solve(operator, b, lx.GMRES(1e-3, 1e-3), throw=False).value,
        lx.linear_solve(operator, b, lx.BiCGStab(1e-3, 1e-3), throw=False).value,
        _both(lx.Normal(lx.CG(1e-6, 1e-6)), _matrix(key)),
    )


@program("lineax/least_squares", tolerance=2e-4, why="systems of condition up to 50, solved in float32")
def least_squares(key):
    tall, wide = jax.random.normal(key, (14, 5)), jax.random.normal(key, (4, 9))
    return (
        _both(lx.QR(), tall),
        _both(lx.SVD(), tall),
        _both(lx.SVD(), wide),
        _both(lx.AutoLinearSolver(well_posed=None), tall),
    )


@program("lineax/lsmr", tolerance=1e-3, why=_STOPS)
def lsmr(key):
    tall = jax.random.normal(key, (14, 5))
    return lx.linear_solve(lx.MatrixLinearOperator(tall), jnp.ones(14), lx.LSMR(1e-5, 1e-5)).value


@program("lineax/tridiagonal")
def tridiagonal(key):
    lower, upper = jax.random.uniform(key, (2, 19))
    operator = lx.TridiagonalLinearOperator(4 + jnp.arange(20.0), lower, upper)

    def solve(b):
        return lx.linear_solve(operator, b, lx.Tridiagonal()).value

    b = jnp.sin(jnp.arange(20.0))
    return solve(b), jax.vmap(solve)(jnp.stack([b, b[::-1], b * 2])), jax.jacobian(solve)(b).sum(0)


@program("lineax/triangular_and_diagonal")
def triangular_and_diagonal(key):
    a = jnp.tril(jax.random.normal(key, (9, 9))) / 3 + 2 * jnp.eye(9)
    return (
        _both(lx.Triangular(), a, lx.lower_triangular_tag),
        _both(lx.Diagonal(), jnp.diag(jnp.arange(1.0, 8)), lx.diagonal_tag),
        lx.linear_solve(
            lx.DiagonalLinearOperator(jnp.array([1.0, 0.0, 3.0])), jnp.ones(3), lx.Diagonal(well_posed=False)
        ).value,
    )


@program("lineax/operators", tolerance=1e-4, why="systems of condition up to 50, solved in float32")
def operators(key):
    a, b = _matrix(key), _matrix(jax.random.fold_in(key, 1))
    one, other = lx.MatrixLinearOperator(a), lx.MatrixLinearOperator(b)
    combined = 2 * (one @ other) + lx.IdentityLinearOperator(jax.ShapeDtypeStruct((12,), jnp.float32))
    jacobian = lx.JacobianLinearOperator(lambda x, _: jnp.tanh(a @ x) + x, jnp.ones(12))
    function = lx.FunctionLinearOperator(lambda x: jnp.roll(x, 1) + 3 * x, jax.ShapeDtypeStruct((12,), jnp.float32))
    v = jnp.linspace(-1, 1, 12)
    return [(o.mv(v), o.T.mv(v), o.as_matrix(), lx.linear_solve(o, v).value) for o in (combined, jacobian, function)]


@program("lineax/pytrees_of_systems", tolerance=1e-4, why="systems of condition up to 50, solved in float32")
def pytrees_of_systems(key):
    k = jax.random.split(key, 4)
    blocks = {
        "x": {"x": _matrix(k[0], 4), "y": jax.random.normal(k[1], (4, 3)) / 5},
        "y": {"x": jax.random.normal(k[2], (3, 4)) / 5, "y": _matrix(k[3], 3)},
    }
    structure = {"x": jax.ShapeDtypeStruct((4,), jnp.float32), "y": jax.ShapeDtypeStruct((3,), jnp.float32)}
    return lx.linear_solve(lx.PyTreeLinearOperator(blocks, structure), {"x": jnp.ones(4), "y": jnp.arange(3.0)}).value


@program("lineax/complex_x64", x64=True)
def complex_x64(key):
    a = jax.random.normal(key, (7, 7), jnp.complex128) + 4 * jnp.eye(7)
    b = jnp.arange(7) + 1j
    return [lx.linear_solve(lx.MatrixLinearOperator(a), b, solver).value for solver in (lx.LU(), lx.QR(), lx.SVD())]


@program("lineax/batched", tolerance=1e-4, why="systems of condition up to 50, solved in float32")
def batched(key):
    a = jax.vmap(_symmetric)(jax.random.split(key, 5))

    def solve(a):
        operator = lx.MatrixLinearOperator(a, lx.positive_semidefinite_tag)
        return lx.linear_solve(operator, jnp.ones(12), lx.CG(1e-7, 1e-7)).value, lx.linear_solve(
            operator, jnp.ones(12), lx.Cholesky()
        ).value

    return jax.vmap(solve)(a)


@program("lineax/algebra_of_operators", x64=True, tolerance=1e-9, why="systems of condition up to 50")
def algebra_of_operators(key):
    a = jax.random.normal(key, (6, 6), jnp.float64) + 4 * jnp.eye(6)
    m = lx.MatrixLinearOperator(a)
    d = lx.DiagonalLinearOperator(jnp.arange(1.0, 7))
    t = lx.TridiagonalLinearOperator(4 * jnp.ones(6), jnp.ones(5), -jnp.ones(5))
    square = lx.TaggedLinearOperator(lx.MatrixLinearOperator(a @ a.T), lx.positive_semidefinite_tag)
    all_of_it = (m @ d + 2 * t - m.T / 3) @ square
    like = jax.ShapeDtypeStruct((6,), jnp.float64)
    f = lx.FunctionLinearOperator(lambda x: jnp.cumsum(x) + jnp.sin(a) @ x + 5 * x, like)
    jacobian = lx.JacobianLinearOperator(lambda y, _: jnp.tanh(a @ y) + y, jnp.ones(6))
    b = jnp.arange(6.0)

    def solve(b):
        return lx.linear_solve(lx.materialise(f), b, lx.AutoLinearSolver(well_posed=None)).value

    return (
        all_of_it.as_matrix(),
        lx.materialise(all_of_it).mv(b),
        lx.linear_solve(lx.materialise(jacobian), b, lx.QR()).value,
        lx.linear_solve(f, b, lx.GMRES(1e-11, 1e-11)).value,
        lx.linear_solve(lx.materialise(f), b, lx.NormalCG(1e-12, 1e-12)).value,
        jax.jvp(solve, (b,), (jnp.ones(6),)),
        jax.jacrev(solve)(b),
        lx.diagonal(all_of_it),
        lx.tridiagonal(m),
        lx.conj(m).transpose().mv(b),
    )
