"""Solvers of jaxopt."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxopt

from fuzz.library_programs.registry import program

_STOPS = "a solver stops at its tolerance, within which the numbers before the last step may differ"


@program("jaxopt/bisection", tolerance=1e-4, why=_STOPS)
def bisection(key):
    def solve(c):
        return (
            jaxopt.Bisection(lambda x, c: x**3 - 2 * x - c, 0.0, 4.0, maxiter=40, tol=1e-5, check_bracket=False)
            .run(None, c)
            .params
        )

    c = jax.random.uniform(key, (6,), minval=4, maxval=6)
    return jax.vmap(solve)(c), jax.grad(solve)(c[0])


def _problem(key):
    x = jax.random.normal(key, (40, 5))
    return x, x @ jnp.array([1.0, 0.0, -2.0, 0.0, 0.5]) + 0.05 * jax.random.normal(jax.random.fold_in(key, 1), (40,))


def _ridge(w, penalty, data):
    x, y = data
    return ((x @ w - y) ** 2).mean() + penalty * (w * w).sum()


@program("jaxopt/smooth", tolerance=5e-3, why=_STOPS)
def smooth(key):
    data = _problem(key)
    solvers = (
        jaxopt.GradientDescent(_ridge, maxiter=50),
        jaxopt.LBFGS(_ridge, maxiter=20),
        jaxopt.BFGS(_ridge, maxiter=20),
        jaxopt.NonlinearCG(_ridge, maxiter=20),
        jaxopt.LBFGS(_ridge, maxiter=20, linesearch="backtracking"),
    )
    return [solver.run(jnp.zeros(5), 0.1, data).params for solver in solvers]


@program("jaxopt/implicit_gradient", tolerance=5e-3, why=_STOPS)
def implicit_gradient(key):
    data = _problem(key)
    return jax.value_and_grad(
        lambda penalty: (jaxopt.LBFGS(_ridge, maxiter=30).run(jnp.zeros(5), penalty, data).params ** 2).sum()
    )(0.1)


@program("jaxopt/lasso", tolerance=2e-3, why=_STOPS)
def lasso(key):
    data = _problem(key)

    def least(w, data):
        x, y = data
        return ((x @ w - y) ** 2).mean()

    pg = jaxopt.ProximalGradient(least, jaxopt.prox.prox_lasso, maxiter=60).run(jnp.zeros(5), 0.1, data).params
    bcd = (
        jaxopt.BlockCoordinateDescent(jaxopt.objective.least_squares, jaxopt.prox.prox_lasso, maxiter=60)
        .run(jnp.zeros(5), 0.1, data)
        .params
    )
    return pg, bcd


@program("jaxopt/projected", tolerance=2e-3, why=_STOPS)
def projected(key):
    data = _problem(key)

    def least(w, data):
        return _ridge(w, 0.0, data)

    pg = jaxopt.ProjectedGradient(least, jaxopt.projection.projection_simplex, maxiter=50)
    box = jaxopt.LBFGSB(least, maxiter=20)
    return pg.run(jnp.ones(5) / 5, 1.0, data).params, box.run(
        jnp.zeros(5), (jnp.full(5, -0.5), jnp.full(5, 0.5)), data
    ).params


@program("jaxopt/quadratic_programs", tolerance=1e-2, why="OSQP stops at residuals of 1e-3 by default")
def quadratic_programs(key):
    q = jax.random.normal(key, (4, 4))
    q = q @ q.T + jnp.eye(4)
    c = jnp.arange(4.0) - 2
    a, b = jnp.ones((1, 4)), jnp.array([1.0])
    g, h = -jnp.eye(4), jnp.zeros(4)
    equality = jaxopt.EqualityConstrainedQP(tol=1e-5).run(params_obj=(q, c), params_eq=(a, b)).params.primal
    osqp = (
        jaxopt.OSQP(tol=1e-4, maxiter=2000).run(params_obj=(q, c), params_eq=(a, b), params_ineq=(g, h)).params.primal
    )
    box = (
        jaxopt.BoxOSQP(tol=1e-4, maxiter=2000)
        .run(params_obj=(q, c), params_eq=jnp.eye(4), params_ineq=(jnp.full(4, -0.3), jnp.full(4, 0.3)))
        .params.primal[0]
    )
    return equality, osqp, box


@program("jaxopt/fixed_points", tolerance=1e-4, why=_STOPS)
def fixed_points(key):
    w = jax.random.normal(key, (6, 6)) / 6

    def f(x, w):
        return jnp.tanh(w @ x + 0.5)

    plain = jaxopt.FixedPointIteration(f, maxiter=60, tol=1e-6, implicit_diff=True)
    anderson = jaxopt.AndersonAcceleration(f, history_size=3, maxiter=30, tol=1e-5)
    return (
        plain.run(jnp.zeros(6), w).params,
        anderson.run(jnp.zeros(6), w).params,
        jax.grad(lambda w: plain.run(jnp.zeros(6), w).params.sum())(w),
    )


@program("jaxopt/nonlinear_least_squares", tolerance=1e-3, why=_STOPS)
def nonlinear_least_squares(key):
    t = jnp.linspace(0, 3, 25)
    y = 2 * jnp.exp(-1.3 * t) + 0.01 * jax.random.normal(key, (25,))

    def residual(p):
        return p[0] * jnp.exp(-p[1] * t) - y

    lm, gn = jaxopt.LevenbergMarquardt(residual, maxiter=20), jaxopt.GaussNewton(residual, maxiter=20)
    return (
        lm.run(jnp.ones(2)).params,
        gn.run(jnp.ones(2)).params,
        jaxopt.Broyden(lambda p: residual(p)[:2], maxiter=20).run(jnp.array([1.8, 1.2])).params,
    )


@program("jaxopt/projections_and_proxes")
def projections_and_proxes(key):
    x = 2 * jax.random.normal(key, (12,))
    p, r = jaxopt.projection, jaxopt.prox
    return (
        p.projection_simplex(x),
        p.projection_l1_ball(x, 1.0),
        p.projection_l2_ball(x, 1.0),
        p.projection_box(x, (-1.0, 1.0)),
        jax.jacrev(p.projection_simplex)(x),
        p.projection_transport(x.reshape(3, 4), (jnp.ones(3) / 3, jnp.ones(4) / 4)),
        r.prox_lasso(x, 0.5),
        r.prox_elastic_net(x, (0.5, 0.1)),
        r.prox_group_lasso(x, 0.5),
        r.prox_ridge(x, 0.5),
        r.prox_non_negative_lasso(x, 0.5),
        jaxopt.isotonic.isotonic_l2_pav(x) if hasattr(jaxopt.isotonic, "isotonic_l2_pav") else x,
    )


@program("jaxopt/linear_solvers", tolerance=1e-3, why=_STOPS)
def linear_solvers(key):
    a = jax.random.normal(key, (8, 8))
    a = a @ a.T / 8 + jnp.eye(8)
    s, b = jaxopt.linear_solve, jnp.arange(8.0)
    return [
        f(lambda x: a @ x, b)
        for f in (s.solve_cg, s.solve_gmres, s.solve_bicgstab, s.solve_normal_cg, s.solve_lu, s.solve_cholesky)
    ]


@program("jaxopt/mirror_and_optax", tolerance=2e-3, why=_STOPS)
def mirror_and_optax(key):
    import optax

    data = _problem(key)

    def least(w, data):
        return _ridge(w, 0.0, data)

    mirror = jaxopt.MirrorDescent(
        least,
        jaxopt.MirrorDescent.make_projection_grad(lambda x, _: jax.nn.softmax(x), jnp.log),
        stepsize=0.1,
        maxiter=30,
    )
    adam = jaxopt.OptaxSolver(least, optax.adam(0.1), maxiter=50)
    armijo = jaxopt.ArmijoSGD(least, maxiter=20)
    return (
        mirror.run(jnp.ones(5) / 5, None, data).params,
        adam.run(jnp.zeros(5), data).params,
        armijo.run(jnp.zeros(5), data).params,
    )
