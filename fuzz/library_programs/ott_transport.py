"""Optimal transport with ott."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from ott.geometry import costs, geometry, grid, pointcloud
from ott.problems.linear import linear_problem
from ott.problems.quadratic import quadratic_problem
from ott.solvers.linear import sinkhorn, sinkhorn_lr
from ott.solvers.quadratic import gromov_wasserstein
from ott.tools import sinkhorn_divergence, soft_sort

from fuzz.library_programs.registry import program

_STOPS = "iterations of a convex problem that stop at a threshold, checked every ten iterations"


def _clouds(key):
    x, y = jax.random.normal(key, (2, 24, 3))
    return x, y[:18] + 1


@program("ott/sinkhorn", tolerance=1e-3, why=_STOPS)
def sinkhorn_of_clouds(key):
    x, y = _clouds(key)
    found = sinkhorn.Sinkhorn()(linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=0.5)))
    return found.reg_ot_cost, found.f, found.matrix, found.converged


@program("ott/sinkhorn_gradient", tolerance=2e-3, why=_STOPS)
def sinkhorn_gradient(key):
    x, y = _clouds(key)

    def cost(x, implicit):
        from ott.solvers.linear import implicit_differentiation as imp

        solver = sinkhorn.Sinkhorn(implicit_diff=imp.ImplicitDiff() if implicit else None, max_iterations=50)
        return solver(
            linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=1.0, cost_fn=costs.SqPNorm(1.5)))
        ).reg_ot_cost

    return jax.grad(lambda x: cost(x, True))(x), jax.grad(lambda x: cost(x, False))(x)


@program("ott/scaling_momentum_unbalanced", tolerance=1e-3, why=_STOPS)
def scaling_momentum_unbalanced(key):
    from ott.solvers.linear import acceleration

    x, y = _clouds(key)
    problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=1.0), tau_a=0.9, tau_b=0.95)
    lse = sinkhorn.Sinkhorn(lse_mode=True, momentum=acceleration.Momentum(value=1.0))(problem)
    kernel = sinkhorn.Sinkhorn(lse_mode=False, threshold=1e-2)(problem)
    return lse.matrix, kernel.matrix


@program("ott/grid", tolerance=1e-3, why=_STOPS)
def on_a_grid(key):
    a, b = jax.random.uniform(key, (2, 64)) + 0.1
    geom = grid.Grid(grid_size=(8, 8), epsilon=0.1)
    found = sinkhorn.Sinkhorn()(linear_problem.LinearProblem(geom, a / a.sum(), b / b.sum()))
    return found.reg_ot_cost, found.f


@program("ott/low_rank", tolerance=2e-2, why="mirror descent on a problem that is not convex, from k-means' start")
def low_rank(key):
    x, y = _clouds(key)
    solver = sinkhorn_lr.LRSinkhorn(rank=3, epsilon=0.05, min_iterations=20, max_iterations=40)
    return solver(linear_problem.LinearProblem(pointcloud.PointCloud(x, y)), rng=key).primal_cost


@program("ott/gromov_wasserstein", tolerance=1e-2, why=_STOPS)
def gromov(key):
    x, y = jax.random.normal(key, (2, 12, 2))
    problem = quadratic_problem.QuadraticProblem(pointcloud.PointCloud(x), pointcloud.PointCloud(y * 1.5))
    return gromov_wasserstein.GromovWasserstein(sinkhorn.Sinkhorn(), epsilon=5.0)(problem).reg_gw_cost


@program("ott/soft_sorting", tolerance=2e-3, why=_STOPS)
def soft_sorting(key):
    x = jax.random.normal(key, (20,))
    return (
        soft_sort.sort(x),
        soft_sort.ranks(x),
        soft_sort.sort(x, topk=3),
        soft_sort.quantile(x, jnp.array([0.3])),
    )


@program("ott/divergence", tolerance=2e-3, why=_STOPS)
def divergence(key):
    x, y = _clouds(key)
    geom = geometry.Geometry(cost_matrix=jnp.abs(x[:, :1] - y[:, 0]), epsilon=0.3)
    found = sinkhorn.Sinkhorn()(linear_problem.LinearProblem(geom))
    return jax.value_and_grad(lambda x: sinkhorn_divergence.sinkdiv(x, y, epsilon=1.0)[0])(x), found.reg_ot_cost
