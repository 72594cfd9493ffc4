"""Equations of waves and fluids, values that are no arrays, and distributions: Exponax, quax and distreqx."""

from __future__ import annotations

import equinox as eqx
import exponax as ex
import jax
import jax.numpy as jnp
import quax
from distreqx import bijectors, distributions
from quax.examples import lora

from fuzz.library_programs.registry import program


@program("exponax/waves")
def waves(key):
    stepper = ex.stepper.KortewegDeVries(1, 20.0, 64, 0.01)
    start = ex.ic.RandomTruncatedFourierSeries(1, cutoff=5)(64, key=key)

    def energy(start):
        return jnp.sum(ex.repeat(stepper, 5)(start) ** 2)

    return ex.rollout(stepper, 20, include_init=True)(start), jax.grad(energy)(start)


@program("exponax/vortices")
def vortices(key):
    stepper = ex.stepper.NavierStokesVorticity(2, 1.0, 24, 0.01, diffusivity=1e-3)
    start = ex.ic.DiffusedNoise(2, zero_mean=True)(24, key=key)
    return ex.rollout(stepper, 10)(start), ex.get_spectrum(start)


@program("quax/low_rank_updates")
def low_rank_updates(key):
    model = lora.loraify(eqx.nn.MLP(4, 3, 16, 2, key=key), rank=2, key=key)
    x = jnp.linspace(-1, 1, 20).reshape(5, 4)

    def loss(model):
        return jnp.sum(jax.vmap(quax.quaxify(model))(x) ** 2)

    return loss(model), eqx.filter_grad(loss)(model)


@program("distreqx/samples_and_densities")
def samples_and_densities(key):
    one = distributions.Normal(jnp.float32(0.2), jnp.float32(1.3))
    made = (
        distributions.Normal(jnp.zeros(3), jnp.ones(3)),
        distributions.Transformed(one, bijectors.Tanh()),
        distributions.MultivariateNormalTri(jnp.zeros(3), jnp.tril(jnp.ones((3, 3)))),
        distributions.Gamma(jnp.float32(2), jnp.float32(3)),
    )
    keys = jax.random.split(key, len(made))
    drawn = [each.sample_and_log_prob(k) for each, k in zip(made, keys, strict=True)]
    return drawn, distributions.Bernoulli(probs=jnp.array([0.1, 0.5])).entropy()
