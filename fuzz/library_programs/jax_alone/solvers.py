"""Solvers by hand: Krylov's methods, eigenvalues, elimination, and optimizers, with state in buffers and rings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuzz.library_programs.registry import program


def _system(key, n, kind=jnp.float64):
    a = jax.random.normal(key, (n, n), kind)
    return a + n * jnp.eye(n, dtype=kind), jnp.arange(1, n + 1).astype(kind)


@program("solvers/gmres_by_rotations", x64=True, tolerance=1e-9, why="iterations that stop at a residual")
def gmres_by_rotations(key):
    """Arnoldi's vectors in a buffer, Givens rotations in loops of variable length."""
    n, m = 17, 12
    a, b = _system(key, n)
    norm = jnp.linalg.norm(b)

    def iteration(k, s):
        basis, h, cosines, sines, g = s
        w = a @ basis[k]

        def orthogonal(i, wc):
            w, column = wc
            c = jnp.where(i <= k, basis[i] @ w, 0)
            return w - c * basis[i], column.at[i].set(c)

        w, column = lax.fori_loop(0, m, orthogonal, (w, jnp.zeros(m + 1)))
        length = jnp.linalg.norm(w)
        column = column.at[k + 1].set(length)

        def rotate(i, c):
            one, two = cosines[i] * c[i] + sines[i] * c[i + 1], -sines[i] * c[i] + cosines[i] * c[i + 1]
            return c.at[i].set(one).at[i + 1].set(two)

        column = lax.fori_loop(0, k, rotate, column)
        r = jnp.hypot(column[k], column[k + 1])
        c, d = column[k] / r, column[k + 1] / r
        column = column.at[k].set(r).at[k + 1].set(0)
        g = g.at[k + 1].set(-d * g[k]).at[k].set(c * g[k])
        return basis.at[k + 1].set(w / length), h.at[:, k].set(column), cosines.at[k].set(c), sines.at[k].set(d), g

    basis = jnp.zeros((m + 1, n)).at[0].set(b / norm)
    start = (basis, jnp.zeros((m + 1, m)), jnp.zeros(m), jnp.zeros(m), jnp.zeros(m + 1).at[0].set(norm))
    basis, h, _, _, g = lax.fori_loop(0, m, iteration, start)
    y = jax.scipy.linalg.solve_triangular(h[:m], g[:m])
    return basis[:m].T @ y, g


@program("solvers/lanczos_and_bicgstab", tolerance=1e-3, why="iterations in float32 that stop at a residual")
def lanczos_and_bicgstab(key):
    """Two Krylov methods, one of which stops by itself."""
    n = 15
    a, b = _system(key, n, jnp.float32)
    symmetric = (a + a.T) / 2

    def lanczos(s, _):
        v, before, beta = s
        w = symmetric @ v - beta * before
        alpha = w @ v
        w = w - alpha * v
        beta = jnp.linalg.norm(w)
        return (w / beta, v, beta), (alpha, beta)

    v = jnp.ones(n) / jnp.sqrt(n)
    _, (alpha, beta) = lax.scan(lanczos, (v, jnp.zeros(n), jnp.float32(0)), None, length=4)

    def stable(s):
        x, r, p, rho, k = s
        v = a @ p
        alpha = rho / (b @ v)
        h = r - alpha * v
        t = a @ h
        omega = (t @ h) / (t @ t)
        r2 = h - omega * t
        rho2 = b @ r2
        beta = rho2 / rho * alpha / omega
        return x + alpha * p + omega * h, r2, r2 + beta * (p - omega * v), rho2, k + 1

    begin = (jnp.zeros(n), b, b, b @ b, 0)
    x = lax.while_loop(lambda s: (jnp.linalg.norm(s[1]) > 1e-4) & (s[4] < 60), stable, begin)[0]
    return alpha, beta, x


@program("solvers/jacobi_eigenvalues", x64=True, tolerance=1e-10, why="sweeps that stop at an off-diagonal of 1e-12")
def jacobi_eigenvalues(key):
    """Rotations at places that are computed, in sweeps until what is off the diagonal is gone; for three matrices."""
    n = 5
    rows, columns = np.triu_indices(n, 1)
    pairs = jnp.array(np.stack([rows, columns], 1))

    def rotation(s, pair):
        a, v = s
        p, q = pair
        theta = 0.5 * jnp.arctan2(2 * a[p, q], a[q, q] - a[p, p])
        c, d = jnp.cos(theta), jnp.sin(theta)
        j = jnp.eye(n).at[p, p].set(c).at[q, q].set(c).at[p, q].set(d).at[q, p].set(-d)
        return (j.T @ a @ j, v @ j), None

    def solve(a):
        off = lambda a: jnp.sum(jnp.square(a - jnp.diag(jnp.diag(a))))  # noqa: E731
        sweep = lambda s: (*lax.scan(rotation, s[:2], pairs)[0], s[2] + 1)  # noqa: E731
        a, v, _ = lax.while_loop(lambda s: (off(s[0]) > 1e-24) & (s[2] < 12), sweep, (a, jnp.eye(n), 0))
        return jnp.sort(jnp.diag(a)), jnp.max(jnp.abs(v.T @ v - jnp.eye(n))) < 1e-10

    a = jax.random.normal(key, (3, n, n))
    return jax.vmap(solve)(a + jnp.swapaxes(a, 1, 2))


@program("solvers/elimination_with_pivots")
def elimination_with_pivots(key):
    """Rows are exchanged at computed places; with its determinant, its inverse, and gradients of both."""

    def factors(a):
        n = a.shape[0]

        def step(k, s):
            a, order, sign = s
            pivot = jnp.argmax(jnp.where(jnp.arange(n) >= k, jnp.abs(a[:, k]), -1))
            swapped = jnp.arange(n).at[k].set(pivot).at[pivot].set(k)
            a, order = a[swapped], order[swapped]
            sign = jnp.where(pivot == k, sign, -sign)
            below = jnp.where(jnp.arange(n) > k, a[:, k] / a[k, k], 0)
            a = a - jnp.outer(below, jnp.where(jnp.arange(n) >= k, a[k], 0))
            return a.at[:, k].set(jnp.where(jnp.arange(n) > k, below, a[:, k])), order, sign

        return lax.fori_loop(0, n, step, (a, jnp.arange(n), jnp.float32(1)))

    def determinant(a):
        lu, _, sign = factors(a)
        return sign * jnp.prod(jnp.diag(lu))

    a = jax.random.normal(key, (6, 6))
    lu, order, _ = factors(a)
    return lu, order, determinant(a), jax.jacfwd(determinant)(a), jax.vmap(determinant)(jnp.stack([a, a.T, a + 1]))


@program("solvers/householder_and_shifts", x64=True, tolerance=1e-9, why="shifted iterations")
def householder_and_shifts(key):
    """A Hessenberg form by reflections, then QR iterations with shifts and deflation."""
    n = 6
    a = jax.random.normal(key, (n, n))
    a = a + a.T

    def reflect(k, a):
        x = jnp.where(jnp.arange(n) > k, a[:, k], 0)
        v = x.at[k + 1].add(jnp.where(x[k + 1] >= 0, 1, -1) * jnp.linalg.norm(x))
        v = v / jnp.linalg.norm(v)
        a = a - 2 * jnp.outer(v, v @ a)
        return a - 2 * jnp.outer(a @ v, v)

    h = lax.fori_loop(0, n - 2, reflect, a)

    def iterate(s):
        h, end, k = s
        mask = jnp.arange(n) < end
        shift = h[end - 1, end - 1]
        active = jnp.where(mask[:, None] & mask[None], h, jnp.eye(n)) - jnp.where(jnp.diag(mask), shift, 0.0)
        q, r = jnp.linalg.qr(active)
        new = r @ q + jnp.where(jnp.diag(mask), shift, 0.0)
        h = jnp.where(mask[:, None] & mask[None], new, h)
        return h, jnp.where(jnp.abs(h[end - 1, end - 2]) < 1e-11, end - 1, end), k + 1

    h, _, _ = lax.while_loop(lambda s: (s[1] > 1) & (s[2] < 200), iterate, (h, n, 0))
    return jnp.sort(jnp.diag(h)), jnp.trace(a)


# -- optimizers ------------------------------------------------------------------------------------


def _rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@program("solvers/quasi_newton_with_history", x64=True, tolerance=1e-5, why="stops at a gradient of 1e-8")
def quasi_newton_with_history(key):
    """Two loops over a ring of differences, and a line search in a loop."""
    m, n = 4, 6
    value_and_grad = jax.value_and_grad(_rosenbrock)

    def direction(g, ss, ys, rho, count):
        def first(i, s):
            q, alpha = s
            j = (count - 1 - i) % m
            a = jnp.where(i < count, rho[j] * (ss[j] @ q), 0)
            return q - a * ys[j], alpha.at[j].set(a)

        q, alpha = lax.fori_loop(0, m, first, (g, jnp.zeros(m)))
        j = (count - 1) % m
        q = q * jnp.where(count > 0, (ss[j] @ ys[j]) / jnp.maximum(ys[j] @ ys[j], 1e-30), 1.0)

        def second(i, q):
            j = (count - jnp.minimum(m, count) + i) % m
            return q + jnp.where(i < count, alpha[j] - rho[j] * (ys[j] @ q), 0) * ss[j]

        return -lax.fori_loop(0, m, second, q)

    def body(s):
        x, v, g, ss, ys, rho, count = s
        d = direction(g, ss, ys, rho, count)
        d = jnp.where(d @ g < 0, d, -g)
        slope = d @ g
        shrink = lambda t: t / 2  # noqa: E731
        t = lax.while_loop(
            lambda t: (_rosenbrock(x + t * d) > v + 1e-4 * t * slope) & (t > 1e-12), shrink, jnp.float64(1)
        )
        x2 = x + t * d
        v2, g2 = value_and_grad(x2)
        j, step, change = count % m, x2 - x, g2 - g
        ss, ys, rho = ss.at[j].set(step), ys.at[j].set(change), rho.at[j].set(1 / (step @ change))
        return x2, v2, g2, ss, ys, rho, count + 1

    x = jnp.linspace(-1, 1, n)
    start = (x, *value_and_grad(x), jnp.zeros((m, n)), jnp.zeros((m, n)), jnp.zeros(m), 0)
    end = lax.while_loop(lambda s: (jnp.linalg.norm(s[2]) > 1e-8) & (s[6] < 300), body, start)
    return end[0], end[1] < 1e-12


@program("solvers/simplex_of_points", x64=True)
def simplex_of_points(key):
    """Nelder and Mead: points are sorted, and one of four things is done with the worst."""

    def body(k, points):
        values = jax.vmap(_rosenbrock)(points)
        order = jnp.argsort(values, stable=True)
        points, values = points[order], values[order]
        middle = jnp.mean(points[:-1], 0)
        worst = points[-1]
        reflected = 2 * middle - worst
        at = _rosenbrock(reflected)
        expanded, contracted = 3 * middle - 2 * worst, (middle + worst) / 2
        shrunk = (points[0] + points) / 2
        kind = jnp.where(
            at < values[0], 0, jnp.where(at < values[-2], 1, jnp.where(_rosenbrock(contracted) < values[-1], 2, 3))
        )
        return lax.switch(
            kind,
            [
                lambda: points.at[-1].set(jnp.where(_rosenbrock(expanded) < at, expanded, reflected)),
                lambda: points.at[-1].set(reflected),
                lambda: points.at[-1].set(contracted),
                lambda: shrunk,
            ],
        )

    return lax.fori_loop(0, 60, body, jnp.concatenate([jnp.zeros((1, 2)), jnp.eye(2)]) - 0.5)


@program("solvers/linear_program", x64=True)
def linear_program(key):
    """The simplex tableau: a column and a row are chosen until none improves."""
    a = jnp.array([[2.0, 1, 1, 3], [1, 3, 2, 1], [3, 1, 4, 2]])
    b, c = jnp.array([10.0, 15, 20]), jnp.array([4.0, 3, 5, 6])
    m, n = a.shape
    tableau = jnp.block([[a, jnp.eye(m), b[:, None]], [-c[None], jnp.zeros((1, m + 1))]])

    def body(s):
        t, basis, k = s
        column = jnp.argmin(t[-1, :-1])
        ratio = jnp.where(t[:-1, column] > 1e-12, t[:-1, -1] / t[:-1, column], jnp.inf)
        row = jnp.argmin(ratio)
        line = t[row] / t[row, column]
        return (t - jnp.outer(t[:, column], line)).at[row].set(line), basis.at[row].set(column), k + 1

    start = (tableau, jnp.arange(n, n + m), 0)
    t, basis, k = lax.while_loop(lambda s: (jnp.min(s[0][-1, :-1]) < -1e-12) & (s[2] < 50), body, start)
    return t[-1, -1], basis, k


@program("solvers/levenberg_marquardt", x64=True, tolerance=1e-7, why="stops at a step of 1e-10")
def levenberg_marquardt(key):
    """Damped least squares of a sum of exponentials, for a batch of data."""
    t = jnp.linspace(0, 4, 25)
    model = lambda p: p[0] * jnp.exp(-p[1] * t) + p[2] * jnp.cos(p[3] * t)  # noqa: E731

    def fit(data):
        def body(s):
            p, damping, cost, _, k = s
            r, j = model(p) - data, jax.jacfwd(model)(p)
            h = j.T @ j
            step = jnp.linalg.solve(h + damping * jnp.diag(jnp.diag(h)), -j.T @ r)
            new = jnp.sum(jnp.square(model(p + step) - data))
            better = new < cost
            size = jnp.where(better, jnp.linalg.norm(step), 1.0)
            damping = jnp.where(better, damping / 3, damping * 2)
            return jnp.where(better, p + step, p), damping, jnp.where(better, new, cost), size, k + 1

        p = jnp.array([1.0, 1, 1, 2])
        start = (p, jnp.float64(1e-2), jnp.sum(jnp.square(model(p) - data)), jnp.float64(1), 0)
        return lax.while_loop(lambda s: (s[3] > 1e-9) & (s[4] < 60), body, start)[0]

    truth = jnp.array([[2.0, 0.5, 0.7, 2.1], [1.2, 1.4, 1.1, 1.9]])
    return jax.vmap(lambda p: fit(model(p)))(truth)
