"""Roots, fixed points, least squares and minima with optimistix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optimistix as optx

from fuzz.library_programs.registry import program

_STOPS = "a solver stops at its tolerance, within which the numbers before the last step may differ"


def _cubic(y, c):
    return y**3 - 2 * y - c


@program("optimistix/bisection", tolerance=1e-4, why=_STOPS)
def bisection(key):
    c = jax.random.uniform(key, (5,), minval=4, maxval=6)

    def solve(c):
        options = {"lower": 0.0, "upper": 4.0}
        return optx.root_find(_cubic, optx.Bisection(1e-5, 1e-5), jnp.float32(1), c, options=options).value

    return jax.vmap(solve)(c), jax.grad(solve)(c[0])


@program("optimistix/newton_chord_dogleg", tolerance=1e-3, why=_STOPS)
def newton_chord_dogleg(key):
    a = jax.random.normal(key, (3,)) / 4

    def f(y, a):
        return {"x": y["x"] + 0.3 * jnp.tanh(y["z"].sum()) - a[0], "z": y["z"] - 0.2 * jnp.sin(y["x"]) - a[1:]}

    y0 = {"x": jnp.float32(0), "z": jnp.zeros(2)}
    solvers = (
        optx.Newton(1e-5, 1e-5),
        optx.Chord(1e-5, 1e-5),
        optx.Dogleg(1e-5, 1e-5),
        optx.LevenbergMarquardt(1e-5, 1e-5),
    )
    return [optx.root_find(f, solver, y0, a).value for solver in solvers]


def _residuals(y, args):
    t, data = args
    return y["a"] * jnp.exp(-y["b"] * t) + y["c"] - data


@program("optimistix/least_squares", tolerance=1e-2, why=_STOPS)
def least_squares(key):
    t = jnp.linspace(0, 3, 30)
    data = 2 * jnp.exp(-1.3 * t) + 0.5 + 0.01 * jax.random.normal(key, (30,))
    y0 = {"a": jnp.float32(1), "b": jnp.float32(1), "c": jnp.float32(0)}
    solvers = (
        optx.LevenbergMarquardt(1e-4, 1e-4),
        optx.GaussNewton(1e-4, 1e-4),
        optx.Dogleg(1e-4, 1e-4),
        optx.IndirectLevenbergMarquardt(1e-4, 1e-4),
    )
    return [
        optx.least_squares(_residuals, solver, y0, (t, data), max_steps=200, throw=False).value for solver in solvers
    ]


@program("optimistix/least_squares_gradient_x64", x64=True, tolerance=1e-6, why=_STOPS)
def least_squares_gradient_x64(key):
    t = jnp.linspace(0, 3, 30)

    def fit(noise):
        data = 2 * jnp.exp(-1.3 * t) + 0.5 + 0.01 * noise
        y0 = {"a": jnp.float64(1), "b": jnp.float64(1), "c": jnp.float64(0)}
        return optx.least_squares(_residuals, optx.LevenbergMarquardt(1e-9, 1e-9), y0, (t, data)).value["b"]

    return jax.value_and_grad(fit)(jax.random.normal(key, (30,), jnp.float64))


def _bowl(y, a):
    return ((y - a) ** 2 * jnp.arange(1.0, 5)).sum() + 0.1 * jnp.cos(y).sum()


@program("optimistix/minimize", tolerance=1e-2, why=_STOPS)
def minimize(key):
    a = jax.random.normal(key, (4,))
    solvers = (
        optx.BFGS(1e-4, 1e-4),
        optx.NonlinearCG(1e-4, 1e-4),
        optx.GradientDescent(0.1, 1e-4, 1e-4),
        optx.LBFGS(1e-4, 1e-4),
        optx.DFP(1e-4, 1e-4),
    )
    return [optx.minimise(_bowl, solver, jnp.zeros(4), a, max_steps=1000).value for solver in solvers]


@program("optimistix/nelder_mead", tolerance=2e-2, why="a simplex takes other steps when two values are nearly equal")
def nelder_mead(key):
    return optx.minimise(
        _bowl, optx.NelderMead(1e-4, 1e-4), jnp.zeros(4), jax.random.normal(key, (4,)), max_steps=2000
    ).value


@program("optimistix/golden_section", tolerance=1e-3, why=_STOPS)
def golden_section(key):
    a = jax.random.normal(key)
    solver = optx.GoldenSearch(1e-4, 1e-4)
    return optx.minimise(
        lambda y, a: (y - a) ** 2, solver, jnp.float32(0), a, options={"lower": -5.0, "upper": 5.0}
    ).value


@program("optimistix/best_so_far_optax", tolerance=1e-3, why=_STOPS)
def best_so_far_optax(key):
    import optax

    solver = optx.BestSoFarMinimiser(optx.OptaxMinimiser(optax.adam(0.05), 1e-4, 1e-4))
    return optx.minimise(_bowl, solver, jnp.zeros(4), jax.random.normal(key, (4,)), max_steps=500, throw=False).value


@program("optimistix/fixed_point", tolerance=1e-4, why=_STOPS)
def fixed_point(key):
    w = jax.random.normal(key, (6, 6)) / 6

    def solve(w):
        return optx.fixed_point(
            lambda y, w: jnp.tanh(w @ y + 0.5), optx.FixedPointIteration(1e-5, 1e-5), jnp.zeros(6), w
        ).value.sum()

    return jax.value_and_grad(solve)(w)


@program("optimistix/solve_inside_loop", tolerance=1e-3, why=_STOPS)
def solve_inside_loop(key):
    """Implicit steps of a scan, each with a root find, differentiated."""

    def run(rate):
        def step(y, _):
            new = optx.root_find(
                lambda z, y: z - y + 0.1 * rate * z**3, optx.Newton(1e-6, 1e-6), y, y, throw=False
            ).value
            return new, new.sum()

        return jax.lax.scan(step, jnp.array([1.0, 2.0]), None, length=10)[1].sum()

    return jax.value_and_grad(run)(1 + jax.random.uniform(key))


@program("optimistix/vmapped_solvers", tolerance=1e-3, why=_STOPS)
def vmapped_solvers(key):
    a = jax.random.normal(key, (7, 4))
    return jax.vmap(lambda a: optx.minimise(_bowl, optx.BFGS(1e-4, 1e-4), jnp.zeros(4), a).value)(a)


@program("optimistix/parts_put_together", x64=True, tolerance=1e-6, why=_STOPS)
def parts_put_together(key):
    def rosenbrock(y, _):
        return 10 * (y[1:] - y[:-1] ** 2), 1 - y[:-1]

    y = jax.random.uniform(key, (4,), jnp.float64)

    def bowl(y, _):
        return ((y - jnp.arange(4)) ** 2 * jnp.arange(1, 5)).sum() + 0.1 * (y**4).sum()

    methods = (optx.polak_ribiere, optx.fletcher_reeves, optx.hestenes_stiefel, optx.dai_yuan)
    least = optx.least_squares(rosenbrock, optx.Dogleg(1e-9, 1e-9), y, max_steps=300, throw=False)
    solvers = [optx.NonlinearCG(1e-8, 1e-8, method=method) for method in methods]
    return least.value, [optx.minimise(bowl, solver, y, max_steps=900, throw=False).value for solver in solvers]
