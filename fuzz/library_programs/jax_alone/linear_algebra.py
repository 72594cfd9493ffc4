"""Decompositions, matrix functions and what is made of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fuzz.library_programs.registry import program

_CONDITION = "systems of condition up to some hundreds in float32"


def _symmetric(key, n):
    a = jax.random.normal(key, (n, n))
    return a @ a.T / n + jnp.eye(n)


@program("linear_algebra/solves", tolerance=1e-3, why=_CONDITION)
def solves(key):
    a, s = jax.random.normal(key, (3, 7, 7)) + 3 * jnp.eye(7), _symmetric(key, 9)
    b = jnp.arange(7.0)
    loss = jax.grad(lambda a: jnp.linalg.solve(a, b[:, None]).sum() + jnp.linalg.slogdet(a)[1].sum())
    factor = jax.scipy.linalg.cho_factor(s)
    return (
        jnp.linalg.solve(a, b[:, None]),
        jnp.linalg.inv(a),
        jnp.linalg.det(a),
        loss(a),
        jax.scipy.linalg.cho_solve(factor, jnp.ones(9)),
        jnp.linalg.lstsq(a[0][:, :4], b)[0],
        jnp.linalg.pinv(a[0][:, :4]),
        jax.scipy.linalg.solve_triangular(jnp.tril(s), jnp.ones(9), lower=True),
        jax.grad(lambda s: jnp.linalg.cholesky(s).sum())(s),
        jnp.linalg.matrix_power(s, 5),
    )


@program("linear_algebra/decompositions_up_to_signs", tolerance=1e-3, why=_CONDITION)
def decompositions_up_to_signs(key):
    a, s = jax.random.normal(key, (8, 5)), _symmetric(key, 8)
    q, r = jnp.linalg.qr(a)
    u, d, v = jnp.linalg.svd(a, full_matrices=False)
    w, x = jnp.linalg.eigh(s)
    general = jnp.sort(jnp.abs(jnp.linalg.eigvals(a[:5])))
    return (
        q @ r,
        jnp.abs(r),
        (u * d) @ v,
        d,
        w,
        (x * w) @ x.T,
        general,
        jax.grad(lambda s: (jnp.linalg.eigh(s)[0] * jnp.arange(8)).sum())(s),
        jax.grad(lambda a: jnp.linalg.svd(a, compute_uv=False).sum())(a),
    )


@program("linear_algebra/matrix_functions", tolerance=1e-3, why=_CONDITION)
def matrix_functions(key):
    a = jax.random.normal(key, (6, 6)) / 3
    return (
        jax.scipy.linalg.expm(a),
        jax.scipy.linalg.expm_frechet(a, a.T),
        jnp.linalg.norm(a, 2),
        jnp.linalg.cond(a + 2 * jnp.eye(6)),
        jax.grad(lambda a: jax.scipy.linalg.expm(a).sum())(a),
    )


@program(
    "linear_algebra/batched_small_x64",
    x64=True,
    tolerance=1e-10,
    why="systems of condition up to some hundreds in float64",
)
def batched_small_x64(key):
    a = jax.random.normal(key, (40, 3, 3), jnp.float64)
    s = a @ a.mT + jnp.eye(3)
    return (
        jnp.linalg.inv(s),
        jnp.linalg.det(a),
        jnp.linalg.eigh(s)[0],
        jnp.linalg.cholesky(s),
        jnp.linalg.solve(s, a),
        jnp.linalg.svd(a)[1],
    )


@program(
    "linear_algebra/power_and_lanczos",
    tolerance=5e-3,
    why="vectors of iterations that converge as the ratio of eigenvalues says",
)
def power_and_lanczos(key):
    s = _symmetric(key, 20) + 5 * jnp.outer(jnp.ones(20), jnp.ones(20)) / 20

    def body(c):
        v, _, n = c
        w = s @ v
        value = v @ w
        return w / jnp.linalg.norm(w), value, n + 1

    v, value, _ = jax.lax.while_loop(lambda c: c[2] < 60, body, (jnp.ones(20), jnp.float32(0), 0))
    return (
        jnp.abs(v),
        value,
        jax.scipy.sparse.linalg.cg(s, jnp.ones(20), tol=1e-5)[0],
        jax.scipy.sparse.linalg.gmres(s, jnp.ones(20), tol=1e-5)[0],
    )


@program("linear_algebra/robot_arm")
def robot_arm(key):
    """Products of four 4x4 transforms and their derivatives: a chain of small products."""

    def transform(q, a):
        c, s = jnp.cos(q), jnp.sin(q)
        return jnp.array([[c, -s, 0, a], [s, c, 0, 0], [0, 0, 1, 0.1], [0, 0, 0, 1]])

    def end(q):
        t = jnp.eye(4)
        for i in range(4):
            t = t @ transform(q[i], 0.5 + 0.1 * i)
        return t[:3, 3]

    q = jax.random.normal(key, (4,))
    return end(q), jax.jacfwd(end)(q)


@program("linear_algebra/ridge_paths", tolerance=1e-3, why=_CONDITION)
def ridge_paths(key):
    x, y = jax.random.normal(key, (30, 6)), jax.random.normal(key, (30,))

    def fit(penalty):
        return jnp.linalg.solve(x.T @ x + penalty * jnp.eye(6), x.T @ y)

    penalties = jnp.logspace(-1, 2, 9)
    return jax.vmap(fit)(penalties), jax.vmap(jax.jacfwd(fit))(penalties)
