"""Root finding, minimizing and searching, written by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.library_programs.registry import program

_ROOT = "stops where float32 cannot tell the sign any longer: a few units in the last place of the root's neighborhood"


def _cubic(x, c):
    return x**3 - 2 * x - c


@program("searching/bisection_fori")
def bisection_fori(key):
    c = jax.random.uniform(key, (16,), minval=4, maxval=6)

    def solve(c):
        def body(_, ends):
            low, high = ends
            middle = (low + high) / 2
            left = _cubic(middle, c) > 0
            return jnp.where(left, low, middle), jnp.where(left, middle, high)

        return lax.fori_loop(0, 40, body, (jnp.float32(0), jnp.float32(4)))

    return jax.vmap(solve)(c), solve(c[0])


@program("searching/bisection_while")
def bisection_while(key):
    c = jax.random.uniform(key, minval=4, maxval=6)

    def body(s):
        low, high, f_low, n = s
        middle = 0.5 * (low + high)
        f = _cubic(middle, c)
        same = jnp.sign(f) == jnp.sign(f_low)
        return jnp.where(same, middle, low), jnp.where(same, high, middle), jnp.where(same, f, f_low), n + 1

    start = (jnp.float32(0), jnp.float32(4), _cubic(jnp.float32(0), c), 0)
    low, high, _, n = lax.while_loop(lambda s: (s[1] - s[0] > 1e-4) & (s[3] < 60), body, start)
    return low, high, n


@program("searching/regula_falsi_crosswise")
def regula_falsi_crosswise(key):
    """The better end is always the first: both are swapped when their values are."""
    c = jax.random.uniform(key, minval=4, maxval=6)

    def body(_, s):
        a, b, fa, fb = s
        x = (a + b) / 2
        fx = _cubic(x, c)
        opposite = fa * fx < 0
        b, fb = jnp.where(opposite, a, b), jnp.where(opposite, fa, fb)
        a, fa = x, fx
        swap = jnp.abs(fa) > jnp.abs(fb)
        return jnp.where(swap, b, a), jnp.where(swap, a, b), jnp.where(swap, fb, fa), jnp.where(swap, fa, fb)

    s = lax.fori_loop(0, 15, body, (jnp.float32(0), jnp.float32(4), _cubic(0.0, c), _cubic(4.0, c)))
    return s[0], s[1]


@program("searching/secant", tolerance=1e-3, why=_ROOT)
def secant(key):
    c = jax.random.uniform(key, (8,), minval=4, maxval=6)

    def body(s):
        x0, x1, f0, f1, n = s
        x = x1 - f1 * (x1 - x0) / jnp.where(f1 == f0, 1, f1 - f0)
        return x1, x, f1, _cubic(x, c), n + 1

    start = (jnp.full(8, 2.0), jnp.full(8, 3.0), _cubic(2.0, c), _cubic(3.0, c), 0)
    return lax.while_loop(lambda s: (jnp.abs(s[3]).max() > 1e-3) & (s[4] < 50), body, start)[1]


@program("searching/newton_implicit_gradient")
def newton_implicit_gradient(key):
    @jax.custom_vjp
    def root(c):
        return lax.fori_loop(0, 20, lambda _, x: x - _cubic(x, c) / jax.grad(_cubic)(x, c), jnp.float32(2))

    def forward(c):
        x = root(c)
        return x, (x, c)

    def backward(saved, g):
        x, c = saved
        fx, fc = jax.grad(_cubic, (0, 1))(x, c)
        return (-g * fc / fx,)

    root.defvjp(forward, backward)
    c = jax.random.uniform(key, (9,), minval=4, maxval=6)
    return jax.vmap(jax.value_and_grad(root))(c)


@program("searching/golden_section")
def golden_section(key):
    shift = jax.random.uniform(key)
    ratio = (jnp.sqrt(5.0) - 1) / 2

    def f(x):
        return jnp.abs(x - shift) + 0.1 * x

    def body(_, s):
        a, b = s
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        smaller = f(c) < f(d)
        return jnp.where(smaller, a, c), jnp.where(smaller, d, b)

    return lax.fori_loop(0, 20, body, (jnp.float32(-3), jnp.float32(3)))


@program("searching/binary_search")
def binary_search(key):
    table = jnp.sort(jax.random.uniform(key, (1000,)))
    wanted = jax.random.uniform(jax.random.fold_in(key, 1), (50,))

    def find(x):
        def body(s):
            low, high = s
            middle = (low + high) // 2
            return jnp.where(table[middle] < x, middle + 1, low), jnp.where(table[middle] < x, high, middle)

        return lax.while_loop(lambda s: s[0] < s[1], body, (0, 1000))[0]

    found = jax.vmap(find)(wanted)
    return found, jnp.searchsorted(table, wanted), found == jnp.searchsorted(table, wanted)


@program(
    "searching/nelder_mead",
    tolerance=5e-2,
    why="a simplex takes other steps when two values are nearly equal; the minimum is flat",
)
def nelder_mead(key):
    def f(x):
        return ((x - jnp.array([1.0, -2.0, 0.5])) ** 2).sum()

    simplex = jax.random.normal(key, (4, 3))

    def body(_, s):
        values = jax.vmap(f)(s)
        order = jnp.argsort(values)
        s, values = s[order], values[order]
        center = s[:-1].mean(0)
        reflected = 2 * center - s[-1]
        contracted = 0.5 * (center + s[-1])
        new = jnp.where(f(reflected) < values[-2], reflected, contracted)
        return jnp.where(f(new) < values[-1], s.at[-1].set(new), s[0] + 0.5 * (s - s[0]))

    return lax.fori_loop(0, 120, body, simplex).mean(0)


@program("searching/conjugate_gradient", tolerance=1e-3, why="solutions of a system of condition 100 in float32")
def conjugate_gradient(key):
    a = jax.random.normal(key, (30, 30))
    a = a @ a.T / 30 + jnp.eye(30) * 0.2
    b = jax.random.normal(jax.random.fold_in(key, 1), (30,))

    def body(s):
        x, r, p, rs, n = s
        ap = a @ p
        alpha = rs / (p @ ap)
        r = r - alpha * ap
        new = r @ r
        return x + alpha * p, r, r + new / rs * p, new, n + 1

    return lax.while_loop(lambda s: (s[3] > 1e-8) & (s[4] < 100), body, (jnp.zeros(30), b, b, b @ b, 0))[0]


@program(
    "searching/armijo_descent",
    tolerance=1e-2,
    why="the line search may halve once more where two values are nearly equal",
)
def armijo_descent(key):
    def f(x):
        return 0.25 * (x**4).sum() + 0.5 * (x * x).sum() + jnp.sin(x).sum()

    def step(x, _):
        g = jax.grad(f)(x)
        t = lax.while_loop(
            lambda t: (f(x - t * g) > f(x) - 0.3 * t * g @ g) & (t > 1e-6), lambda t: t * 0.5, jnp.float32(1)
        )
        return x - t * g, f(x)

    return lax.scan(step, jax.random.normal(key, (12,)), None, length=25)[0]


@program("searching/kmeans")
def kmeans(key):
    centers = jnp.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    points = (centers[:, None] + jax.random.normal(key, (3, 40, 2))).reshape(-1, 2)

    def body(_, centers):
        nearest = ((points[:, None] - centers) ** 2).sum(-1).argmin(1)
        counts = jax.ops.segment_sum(jnp.ones(120), nearest, 3)
        return jax.ops.segment_sum(points, nearest, 3) / jnp.maximum(counts, 1)[:, None]

    return lax.fori_loop(0, 10, body, points[jnp.array([0, 50, 100])])


@program(
    "searching/simulated_annealing",
    tolerance=1e-3,
    why="accepts by comparing a random number with a rounded exponential, far from equal almost always",
)
def simulated_annealing(key):
    def step(state, k):
        x, fx, best, f_best = state
        k1, k2 = jax.random.split(k)
        y = x + 0.3 * jax.random.normal(k1, (2,))
        fy = (y * y).sum() + jnp.cos(5 * y).sum()
        accept = jax.random.uniform(k2) < jnp.exp((fx - fy) * 3)
        x, fx = jnp.where(accept, y, x), jnp.where(accept, fy, fx)
        better = fx < f_best
        return (x, fx, jnp.where(better, x, best), jnp.where(better, fx, f_best)), accept

    x = jnp.array([2.0, -2.0])
    fx = (x * x).sum() + jnp.cos(5 * x).sum()
    return lax.scan(step, (x, fx, x, fx), jax.random.split(key, 300))


@program(
    "searching/scipy_minimize",
    tolerance=1e-3,
    why="BFGS stops when a gradient is small; the minimum is known to the root of the precision",
)
def scipy_minimize(key):
    from jax.scipy.optimize import minimize

    def rosenbrock(x):
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    return minimize(rosenbrock, 0.9 + 0.1 * jax.random.uniform(key, (3,)), method="BFGS", tol=1e-3).x


@program("searching/newton_x64_system", x64=True, tolerance=1e-9, why="Newton's iterations stop at a residual of 1e-12")
def newton_x64_system(key):
    def f(x):
        return jnp.array([x[0] * x[1] - 1, x[0] ** 2 + x[1] ** 2 - 4])

    def body(s):
        x, n = s
        return x - jnp.linalg.solve(jax.jacfwd(f)(x), f(x)), n + 1

    start = jnp.array([0.4, 2.2]) + 0.01 * jax.random.normal(key, (2,), jnp.float64)
    return lax.while_loop(lambda s: (jnp.abs(f(s[0])).max() > 1e-12) & (s[1] < 50), body, (start, 0))[0]
