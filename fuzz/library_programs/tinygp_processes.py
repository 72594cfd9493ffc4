"""Gaussian processes with tinygp."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tinygp import GaussianProcess, kernels, noise, transforms
from tinygp.kernels import quasisep

from fuzz.library_programs.registry import program

_SOLVED = "triangular systems of kernels, of condition up to some thousands"


def _data(key, n=40):
    x = jnp.sort(jax.random.uniform(key, (n,), minval=0, maxval=10))
    return x, jnp.sin(x) + 0.1 * jax.random.normal(key, (n,))


@program("tinygp/likelihood_gradients", tolerance=2e-3, why=_SOLVED)
def likelihood_gradients(key):
    x, y = _data(key)
    made = (kernels.ExpSquared, kernels.Matern32, kernels.Matern52, kernels.RationalQuadratic, kernels.Exp)
    results = []
    for make in made:
        more = {"alpha": 1.5} if make is kernels.RationalQuadratic else {}

        def loss(p, make=make, more=more):
            return -GaussianProcess(jnp.exp(p[0]) * make(jnp.exp(p[1]), **more), x, diag=jnp.exp(p[2])).log_probability(
                y
            )

        results.append(jax.value_and_grad(loss)(jnp.array([0.1, 0.2, -2.0])))
    return results


@program("tinygp/conditioning", tolerance=2e-3, why=_SOLVED)
def conditioning(key):
    x, y = _data(key)
    kernel = 1.5 * kernels.ExpSquared(1.3) + 0.3 * kernels.ExpSineSquared(scale=2.0, gamma=0.5) * kernels.Matern32(3.0)
    gp = GaussianProcess(kernel, x, diag=0.05, mean=0.1)
    at = jnp.linspace(0, 10, 15)
    log, conditioned = gp.condition(y, at)
    return log, conditioned.loc, conditioned.variance, gp.predict(y, at, return_cov=True)[1]


@program("tinygp/quasiseparable", tolerance=2e-3, why=_SOLVED)
def quasiseparable(key):
    x, y = _data(key, 60)

    def loss(p):
        kernel = quasisep.SHO(omega=jnp.exp(p[0]), quality=jnp.exp(p[1])) + quasisep.Matern32(jnp.exp(p[2]))
        return -GaussianProcess(kernel, x, diag=0.1).log_probability(y)

    return jax.value_and_grad(loss)(jnp.array([0.1, 0.3, 0.2]))


@program("tinygp/quasiseparable_predict", tolerance=2e-3, why=_SOLVED)
def quasiseparable_predict(key):
    x, y = _data(key, 30)
    gp = GaussianProcess(quasisep.Matern52(1.2) + quasisep.Celerite(1.0, 0.1, 0.5, 0.2), x, diag=0.1)
    return gp.condition(y, jnp.linspace(0, 10, 12)).gp.loc, gp.sample(key)


@program("tinygp/transforms_and_samples", tolerance=5e-3, why=_SOLVED)
def transforms_and_samples(key):
    x = jax.random.normal(key, (20, 3))
    kernel = transforms.Linear(jnp.array([1.0, 0.5, 2.0]), kernels.Matern52()) + transforms.Subspace(
        1, kernels.ExpSquared()
    )
    custom = kernels.Custom(lambda a, b: jnp.exp(-jnp.abs(a - b).sum()))
    dot = transforms.Cholesky.from_parameters(jnp.ones(3), jnp.zeros(3), kernels.DotProduct())
    return [GaussianProcess(k, x, diag=0.5).sample(key, (2,)) for k in (kernel, custom, dot)]


@program(
    "tinygp/fit_with_optax_x64", x64=True, tolerance=1e-7, why="ten steps of Adam over a Cholesky factor in float64"
)
def fit_with_optax_x64(key):
    import optax

    x, y = _data(key)
    optimizer = optax.adam(0.05)

    def loss(p):
        return -GaussianProcess(
            jnp.exp(p["amp"]) * kernels.Matern52(jnp.exp(p["scale"])), x, diag=jnp.exp(p["noise"])
        ).log_probability(y)

    def step(c, _):
        p, state = c
        value, g = jax.value_and_grad(loss)(p)
        updates, state = optimizer.update(g, state)
        return (optax.apply_updates(p, updates), state), value

    p = {"amp": jnp.float64(0.0), "scale": jnp.float64(0.0), "noise": jnp.float64(-2.0)}
    return jax.lax.scan(step, (p, optimizer.init(p)), None, length=10)


@program("tinygp/kernels_and_noises", tolerance=2e-3, why=_SOLVED)
def kernels_and_noises(key):
    x = jnp.sort(jax.random.uniform(key, (30,))) * 4
    y = jnp.sin(2 * x)
    k = kernels
    made = (
        k.Cosine(2.0) * k.ExpSquared(1.5) + 0.1 * k.Constant(1.0),
        k.Polynomial(order=2.0, sigma=1.0) + k.Matern32(0.5, distance=k.distance.L1Distance()),
    )

    def likelihood(scale, kernel, errors):
        return GaussianProcess(scale * kernel, x[:, None], noise=errors).log_probability(y)

    banded = noise.Banded(diag=0.3 * jnp.ones(30), off_diags=0.05 * jnp.ones((30, 2)))
    dense = noise.Dense(0.2 * jnp.eye(30) + 0.01)
    quasi = quasisep.Matern32(1.0)
    found = [jax.value_and_grad(likelihood)(1.2, kernel, errors) for kernel in made for errors in (banded, dense)]
    return found, GaussianProcess(quasi, x, noise=banded).log_probability(y)
