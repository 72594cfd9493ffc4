"""Distributions, special functions and samplers of TensorFlow Probability on JAX, which distrax installs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from fuzz.library_programs.registry import program

tfd, tfb, tfm = tfp.distributions, tfp.bijectors, tfp.math


@program("tfp/special_functions", tolerance=1e-3, why="derivatives by differences that cancel")
def special_functions(key):
    x = jax.random.uniform(key, (50,), minval=0.05, maxval=6.0)
    functions = (
        tfm.erfcx,
        tfm.logerfcx,
        tfm.log1mexp,
        tfm.lambertw,
        tfm.log_cosh,
        lambda x: tfm.owens_t(x, 0.3 * x),
        lambda x: tfm.bessel_kve(1.2, x),
        lambda x: tfm.log_bessel_ive(2.5, x),
        lambda x: tfm.log_gamma_difference(x, 3 * x),
        lambda x: tfm.betainc(2.3, 0.7, x / 7),
        lambda x: tfm.igammainv(2.3, x / 7),
    )
    return [(f(x), jax.vmap(jax.grad(f))(x)) for f in functions]


@program("tfp/samples_and_densities", tolerance=1e-3, why="rejection and inverse functions, steep at their ends")
def samples_and_densities(key):
    x = jnp.linspace(0.3, 4.0, 12)
    made = (
        tfd.InverseGaussian(1.0, x),
        tfd.StudentT(x + 1, 0.0, 2.0),
        tfd.TruncatedNormal(0.0, x, -1.0, 2.0),
        tfd.VonMises(0.0, x),
        tfd.JohnsonSU(0.1, 1.1, 0.0, x),
        tfd.GeneralizedPareto(0.0, x, 0.2),
        tfd.Zipf(x + 1.5),
        tfd.Skellam(x, 2.0),
        tfd.BetaBinomial(10.0, x, 2.0),
        tfd.NegativeBinomial(x + 1, probs=0.4),
        tfd.WishartTriL(6.0, jnp.eye(3)),
        tfd.CholeskyLKJ(4, 1.5),
        tfd.DirichletMultinomial(10.0, jnp.stack([x, 2 * x, 0.5 * x], -1)),
    )
    keys = jax.random.split(key, len(made))
    return [(s := d.sample(3, seed=k), d.log_prob(s)) for d, k in zip(made, keys, strict=True)]


@program("tfp/bijectors", tolerance=1e-4, why="there and back through functions that are steep at their ends")
def bijectors(key):
    x = jax.random.uniform(key, (5, 6), minval=0.1, maxval=0.9)
    made = (
        tfb.Ascending(),
        tfb.CorrelationCholesky(),
        tfb.FillTriangular(),
        tfb.IteratedSigmoidCentered(),
        tfb.KumaraswamyCDF(2.0, 3.0),
        tfb.LambertWTail(0.0, 1.0, 0.1),
        tfb.MoyalCDF(0.0, 1.0),
        tfb.SinhArcsinh(0.1, 1.2),
        tfb.SoftmaxCentered(),
        tfb.Chain([tfb.Tanh(), tfb.Scale(2.0), tfb.Shift(0.3)]),
    )
    return [
        (y := b.forward(x), b.inverse(y + 0), b.forward_log_det_jacobian(x, event_ndims=b.forward_min_event_ndims))
        for b in made
    ]


@program("tfp/chains", tolerance=1e-3, why="chains of samplers, six steps long")
def chains(key):
    def density(x):
        return -0.5 * jnp.sum(x**2 * jnp.array([1.0, 2.0])) - 0.1 * jnp.sum(x**4)

    mcmc = tfp.mcmc
    kernels = (
        mcmc.HamiltonianMonteCarlo(density, 0.1, 3),
        mcmc.NoUTurnSampler(density, 0.2, max_tree_depth=3),
        mcmc.MetropolisAdjustedLangevinAlgorithm(density, 0.05),
        mcmc.SliceSampler(density, 0.5, 4),
        mcmc.DualAveragingStepSizeAdaptation(mcmc.HamiltonianMonteCarlo(density, 0.1, 3), 5),
    )
    keys = jax.random.split(key, len(kernels))
    return [
        mcmc.sample_chain(6, jnp.ones(2), kernel=kernel, seed=k, trace_fn=None)
        for kernel, k in zip(kernels, keys, strict=True)
    ]


@program("tfp/sequences", tolerance=1e-4, why="filters through eight steps")
def sequences(key):
    y = jnp.sin(jnp.linspace(0.0, 6.0, 8)) + 0.1 * jax.random.normal(key, (8,))
    diagonal = tfd.MultivariateNormalDiag
    filtered = tfd.LinearGaussianStateSpaceModel(
        8,
        jnp.array([[1.0, 0.1], [0.0, 0.9]]),
        diagonal(scale_diag=jnp.array([0.1, 0.2])),
        jnp.array([[1.0, 0.0]]),
        diagonal(scale_diag=jnp.array([0.3])),
        diagonal(scale_diag=jnp.ones(2)),
    )
    hidden = tfd.HiddenMarkovModel(
        tfd.Categorical(probs=jnp.array([0.3, 0.7])),
        tfd.Categorical(probs=jnp.array([[0.8, 0.2], [0.3, 0.7]])),
        tfd.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 0.5])),
        8,
    )
    kernel = tfm.psd_kernels.MaternFiveHalves()
    x = jnp.linspace(0.0, 2.0, 8)[:, None]
    return (
        filtered.log_prob(y[:, None]),
        filtered.posterior_marginals(y[:, None]),
        hidden.log_prob(y),
        hidden.posterior_mode(y),
        hidden.posterior_marginals(y).logits_parameter(),
        tfd.GaussianProcess(kernel, x, observation_noise_variance=jnp.float32(0.3)).log_prob(y),
    )
