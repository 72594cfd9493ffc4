"""Numerical recipes: quadrature, roots and differential equations, in loops of one's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.library_programs.registry import program

# -- quadrature and roots --------------------------------------------------------------------------


@program("recipes/adaptive_simpson", x64=True)
def adaptive_simpson(key):
    """Intervals on a stack: those whose error is too large are cut in two."""
    f = lambda x: jnp.sin(30 * x * x) / (0.1 + x)  # noqa: E731
    simpson = lambda a, b: (b - a) / 6 * (f(a) + 4 * f((a + b) / 2) + f(b))  # noqa: E731

    def body(s):
        stack, top, total, count = s
        a, b = stack[top - 1, 0], stack[top - 1, 1]
        middle = (a + b) / 2
        whole, left, right = simpson(a, b), simpson(a, middle), simpson(middle, b)
        done = jnp.abs(left + right - whole) < 1e-8 * (b - a)
        split = stack.at[top - 1].set(jnp.stack([a, middle])).at[top].set(jnp.stack([middle, b]))
        return (
            jnp.where(done, stack, split),
            jnp.where(done, top - 1, top + 1),
            total + done * (left + right),
            count + 1,
        )

    stack = jnp.zeros((64, 2)).at[0, 1].set(1.0)
    _, _, total, count = lax.while_loop(lambda s: s[1] > 0, body, (stack, 1, jnp.float64(0), 0))
    return total, count


@program("recipes/romberg_and_gauss", x64=True)
def romberg_and_gauss(key):
    """A triangle of extrapolations in place, and nodes of Legendre's polynomials by Newton's method."""
    f = lambda x: jnp.exp(-x * x) * jnp.cos(3 * x)  # noqa: E731
    n = 7

    def row(k, table):
        x = (jnp.arange(1 << n) + 0.5) / (1 << n)
        every = (1 << n) >> k
        pick = jnp.arange(1 << n) % every == 0
        trapezoid = jnp.sum(jnp.where(pick, f(x), 0)) * every / (1 << n)
        table = table.at[k, 0].set(trapezoid)

        def column(j, t):
            better = t[k, j - 1] + (t[k, j - 1] - t[k - 1, j - 1]) / (4.0**j - 1)
            return t.at[k, j].set(jnp.where(j <= k, better, 0))

        return lax.fori_loop(1, n, column, table)

    table = lax.fori_loop(0, n, row, jnp.zeros((n, n)))
    m = 9
    guess = jnp.cos(jnp.pi * (jnp.arange(m) + 0.75) / (m + 0.5))

    def legendre(x):
        step = lambda j, pq: (((2 * j - 1) * x * pq[0] - (j - 1) * pq[1]) / j, pq[0])  # noqa: E731
        return lax.fori_loop(1, m + 1, step, (jnp.ones_like(x), jnp.zeros_like(x)))

    def newton(s):
        x, _, _ = s
        p, q = legendre(x)
        slope = m * (x * p - q) / (x * x - 1)
        return x - p / slope, jnp.max(jnp.abs(p / slope)), slope

    x, _, slope = lax.while_loop(lambda s: s[1] > 1e-14, newton, (guess, jnp.float64(1), guess))
    weights = 2 / ((1 - x * x) * slope * slope)
    return table, x, weights, jnp.sum(weights * f(x))


@program("recipes/brent", x64=True)
def brent(key):
    """Roots by Brent's method, for many functions at once: each stops at another iteration."""

    def solve(c):
        f = lambda x: jnp.exp(x) - c - jnp.sin(5 * x) * 0.1  # noqa: E731

        def body(s):
            a, b, e, fa, fb, fe, d, bisected, n = s
            quadratic = a * fb * fe / ((fa - fb) * (fa - fe)) + b * fa * fe / ((fb - fa) * (fb - fe))
            quadratic += e * fa * fb / ((fe - fa) * (fe - fb))
            x = jnp.where((fa != fe) & (fb != fe), quadratic, b - fb * (b - a) / (fb - fa))
            low, high = jnp.minimum((3 * a + b) / 4, b), jnp.maximum((3 * a + b) / 4, b)
            slow = jnp.where(bisected, jnp.abs(x - b) >= jnp.abs(b - e) / 2, jnp.abs(x - b) >= jnp.abs(e - d) / 2)
            half = (x < low) | (x > high) | slow | ~jnp.isfinite(x)
            x = jnp.where(half, (a + b) / 2, x)
            fx = f(x)
            left = fa * fx < 0
            a2, fa2, b2, fb2 = (
                jnp.where(left, a, x),
                jnp.where(left, fa, fx),
                jnp.where(left, x, b),
                jnp.where(left, fx, fb),
            )
            swap = jnp.abs(fa2) < jnp.abs(fb2)
            a2, b2 = jnp.where(swap, b2, a2), jnp.where(swap, a2, b2)
            fa2, fb2 = jnp.where(swap, fb2, fa2), jnp.where(swap, fa2, fb2)
            return a2, b2, b, fa2, fb2, fb, e, half, n + 1

        a, b = jnp.float64(-6), jnp.float64(6)
        start = (a, b, a, f(a), f(b), f(a), a, jnp.bool_(True), 0)
        end = lax.while_loop(
            lambda s: (jnp.abs(s[4]) > 1e-13) & (jnp.abs(s[1] - s[0]) > 1e-14) & (s[8] < 99), body, start
        )
        return end[1]

    return jax.vmap(solve)(jnp.linspace(0.1, 40, 17))


@program("recipes/roots_of_polynomials", x64=True, tolerance=1e-9, why="iterations that stop at a step of 1e-10")
def roots_of_polynomials(key):
    """All complex roots at once (Durand and Kerner), and one after the other (Laguerre)."""
    coefficients = jnp.array([1.0, -3.5, 2.25, 7.0, -1.5, 0.75])
    n = 5

    def together(s):
        z, _, k = s
        others = z[:, None] - z[None, :] + jnp.eye(n)
        step = jnp.polyval(coefficients, z) / jnp.prod(others, axis=1)
        return z - step, jnp.max(jnp.abs(step)), k + 1

    start = (0.4 + 0.9j) ** jnp.arange(n)
    z, *_ = lax.while_loop(lambda s: (s[1] > 1e-12) & (s[2] < 200), together, (start, jnp.float64(1), 0))

    def one(p, k):
        derivative = p[:-1] * jnp.arange(n, 0, -1)
        second = derivative[:-1] * jnp.arange(n - 1, 0, -1)
        degree = n - k

        def laguerre(s):
            x, _, m = s
            at = jnp.polyval(p, x)
            g = jnp.polyval(derivative, x) / at
            h = g * g - jnp.polyval(second, x) / at
            root = jnp.sqrt((degree - 1) * (degree * h - g * g))
            plus, minus = g + root, g - root
            step = degree / jnp.where(jnp.abs(plus) > jnp.abs(minus), plus, minus)
            step = jnp.where(jnp.abs(at) < 1e-12, 0, step)
            return x - step, jnp.abs(step), m + 1

        x, *_ = lax.while_loop(lambda s: (s[1] > 1e-10) & (s[2] < 99), laguerre, (0.1 + 0.2j, jnp.float64(1), 0))
        quotient, _ = lax.scan(lambda r, c: (r * x + c, r), jnp.zeros_like(x), p)[::-1]
        return jnp.concatenate([jnp.zeros_like(quotient[:1]), quotient[:-1]]), x

    _, found = lax.scan(one, coefficients.astype(complex), jnp.arange(3))
    order = lambda v: v[jnp.lexsort((jnp.round(v.imag, 6), jnp.round(v.real, 6)))]  # noqa: E731
    return order(z), jnp.abs(jnp.polyval(coefficients, found[:1])) < 1e-8


# -- differential equations ------------------------------------------------------------------------


@program("recipes/runge_kutta_fehlberg", x64=True, tolerance=1e-9, why="steps are chosen by differences of roundings")
def runge_kutta_fehlberg(key):
    """Steps that are tried, kept or tried again, with a table of coefficients and a buffer of what was kept."""
    a = jnp.array(
        [
            [0, 0, 0, 0, 0],
            [1 / 4, 0, 0, 0, 0],
            [3 / 32, 9 / 32, 0, 0, 0],
            [1932 / 2197, -7200 / 2197, 7296 / 2197, 0, 0],
            [439 / 216, -8, 3680 / 513, -845 / 4104, 0],
            [-8 / 27, 2, -3544 / 2565, 1859 / 4104, -11 / 40],
        ]
    )
    fourth = jnp.array([25 / 216, 0, 1408 / 2565, 2197 / 4104, -1 / 5, 0])
    fifth = jnp.array([16 / 135, 0, 6656 / 12825, 28561 / 56430, -9 / 50, 2 / 55])

    def f(y):
        return jnp.stack([y[1], 1.5 * (1 - y[0] ** 2) * y[1] - y[0]])

    def body(s):
        t, y, h, kept, count = s

        def stage(i, ks):
            weights = jnp.concatenate([a[i], jnp.zeros(1)])
            return ks.at[i].set(f(y + h * weights @ ks))

        ks = lax.fori_loop(0, 6, stage, jnp.zeros((6, 2)))
        error = h * jnp.linalg.norm((fifth - fourth) @ ks)
        good = error < 1e-6

        def keep():
            new = y + h * fifth @ ks
            return t + h, new, kept.at[count].set(new), count + 1

        t2, y2, kept2, count2 = lax.cond(good, keep, lambda: (t, y, kept, count))
        factor = jnp.clip(0.9 * (1e-6 / (error + 1e-16)) ** 0.2, 0.2, 4.0)
        return t2, y2, jnp.minimum(h * factor, 10.0 - t2), kept2, count2

    start = (jnp.float64(0), jnp.array([2.0, 0.0]), jnp.float64(0.1), jnp.zeros((400, 2)), 0)
    t, y, _, kept, _ = lax.while_loop(lambda s: (s[0] < 10 - 1e-12) & (s[4] < 400), body, start)
    return t, y, kept[:40]


@program("recipes/backward_differences", x64=True)
def backward_differences(key):
    """A stiff system by an implicit method: Newton's iterations, with a Jacobian and a solve, in each step."""

    def f(y):
        a, b = 0.04 * y[0], 1e4 * y[1] * y[2]
        c = 3e7 * y[1] ** 2
        return jnp.stack([-a + b, a - b - c, c])

    def step(y, h):
        def newton(s):
            x, _, k = s
            residual = x - y - h * f(x)
            delta = jnp.linalg.solve(jnp.eye(3) - h * jax.jacfwd(f)(x), residual)
            return x - delta, jnp.max(jnp.abs(delta)), k + 1

        x, _, _ = lax.while_loop(lambda s: (s[1] > 1e-13) & (s[2] < 20), newton, (y, jnp.float64(1), 0))
        return x, x

    return lax.scan(step, jnp.array([1.0, 0, 0]), jnp.logspace(-5, 1, 30))


@program("recipes/heat_in_two_directions")
def heat_in_two_directions(key):
    """Alternating directions: tridiagonal systems along rows, then along columns."""
    n, r = 11, 0.6
    lower = jnp.full((n,), -r).at[0].set(0)
    upper = jnp.full((n,), -r).at[-1].set(0)
    middle = jnp.full((n,), 1 + 2 * r)

    def along(u):
        return lax.linalg.tridiagonal_solve(lower, middle, upper, u)

    def explicit(u):
        p = jnp.pad(u, ((0, 0), (1, 1)))
        return u + r * (p[:, 2:] - 2 * u + p[:, :-2])

    def step(u, _):
        u = along(explicit(u))
        u = along(explicit(u.T)).T
        return u, jnp.sum(u)

    return lax.scan(step, jax.random.uniform(key, (n, n)), None, length=6)


@program("recipes/multigrid")
def multigrid(key):
    """V-cycles on grids of 33, 17, 9 and 5 points until the residual is small."""

    def residual(u, f, h):
        return f + (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)).at[jnp.array([0, -1])].set(0) / h**2

    def smooth(u, f, h):
        def sweep(k, u):
            new = 0.5 * (jnp.roll(u, 1) + jnp.roll(u, -1) + h * h * f)
            inner = jnp.arange(u.size) % 2 == k % 2
            return jnp.where(inner & (jnp.arange(u.size) > 0) & (jnp.arange(u.size) < u.size - 1), new, u)

        return lax.fori_loop(0, 4, sweep, u)

    def cycle(u, f, h):
        u = smooth(u, f, h)
        if u.size > 5:
            r = residual(u, f, h).at[jnp.array([0, -1])].set(0)
            coarse = jnp.pad(0.25 * r[1:-3:2] + 0.5 * r[2:-2:2] + 0.25 * r[3:-1:2], 1)
            e = cycle(jnp.zeros_like(coarse), coarse, 2 * h)
            fine = jnp.zeros_like(u).at[::2].set(e)
            fine = fine.at[1::2].set(0.5 * (e[:-1] + e[1:]))
            u = u + fine
        return smooth(u, f, h)

    f = jnp.sin(jnp.linspace(0, 7, 33)).at[jnp.array([0, -1])].set(0)
    norm = lambda u: jnp.max(jnp.abs(residual(u, f, 1 / 32)[1:-1]))  # noqa: E731
    step = lambda s: (cycle(s[0], f, 1 / 32), s[1] + 1)  # noqa: E731
    u, _ = lax.while_loop(lambda s: (norm(s[0]) > 1e-2) & (s[1] < 20), step, (jnp.zeros(33), 0))
    return u


@program("recipes/waves_with_limiters")
def waves_with_limiters(key):
    """Burgers' equation by finite volumes: slopes are limited, and the step follows the largest speed."""
    minmod = lambda a, b: jnp.where(a * b > 0, jnp.where(jnp.abs(a) < jnp.abs(b), a, b), 0)  # noqa: E731

    def body(s):
        t, u, n = s
        slope = minmod(u - jnp.roll(u, 1), jnp.roll(u, -1) - u)
        left, right = u + slope / 2, jnp.roll(u - slope / 2, -1)
        speed = jnp.maximum(jnp.abs(left), jnp.abs(right))
        flux = 0.25 * (left**2 + right**2) - 0.5 * speed * (right - left)
        h = jnp.minimum(0.4 / 64 / jnp.max(jnp.abs(u)), 0.25 - t)
        return t + h, u - h * 64 * (flux - jnp.roll(flux, 1)), n + 1

    u = 1.5 + jnp.sin(2 * jnp.pi * jnp.arange(64) / 64)
    return lax.while_loop(lambda s: (s[0] < 0.25) & (s[2] < 500), body, (jnp.float32(0), u, 0))[1]


@program("recipes/split_step_waves", x64=True, tolerance=1e-10, why="two hundred transforms there and back")
def split_step_waves(key):
    """Schroedinger's equation by transforms there and back, in complex128 and on 90 points."""
    n = 90
    x = jnp.linspace(-8, 8, n, endpoint=False)
    k = 2 * jnp.pi * jnp.fft.fftfreq(n, 16 / n)
    wave = jnp.exp(-((x + 2) ** 2) + 3j * x)
    half = jnp.exp(-0.5j * 0.01 * x * x / 2)
    step = lambda w, _: (half * jnp.fft.ifft(jnp.exp(-0.5j * 0.01 * k * k) * jnp.fft.fft(half * w)), jnp.abs(w[::9]))  # noqa: E731
    return lax.scan(step, wave, None, length=100)


@program("recipes/lyapunov_exponents", x64=True, tolerance=1e-6, why="a chaotic system")
def lyapunov_exponents(key):
    """The Jacobian of a chaotic map is carried, and made orthogonal in each step."""

    def f(y):
        return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])

    flow = lambda y: y + 0.01 * f(y + 0.005 * f(y))  # noqa: E731

    def step(s, _):
        y, q = s
        q, r = jnp.linalg.qr(jax.jacfwd(flow)(y) @ q)
        return (flow(y), q), jnp.log(jnp.abs(jnp.diag(r)))

    _, logs = lax.scan(step, (jnp.array([1.0, 1, 20]), jnp.eye(3)), None, length=200)
    return jnp.mean(logs, 0) / 0.01
