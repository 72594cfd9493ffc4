"""Distributions, flows and bijectors of distrax."""

from __future__ import annotations

import distrax
import jax
import jax.numpy as jnp

from fuzz.library_programs.registry import program


@program("distrax/samples_and_densities", tolerance=1e-4, why="inverse functions and rejection steep at their ends")
def samples_and_densities(key):
    made = (
        distrax.Normal(0.0, 2.0),
        distrax.Beta(2.0, 3.0),
        distrax.Gamma(2.0, 1.0),
        distrax.Laplace(0.0, 1.0),
        distrax.Logistic(0.0, 1.0),
        distrax.Gumbel(0.0, 1.0),
        distrax.LogStddevNormal(0.0, 0.3),
        distrax.Categorical(jnp.arange(4.0)),
        distrax.Bernoulli(0.3),
        distrax.Dirichlet(jnp.array([1.0, 2.0, 0.5])),
        distrax.Multinomial(8, jnp.arange(3.0)),
        distrax.Uniform(-1.0, 2.0),
        distrax.VonMises(0.0, 2.0),
        distrax.MultivariateNormalDiag(jnp.zeros(3), jnp.ones(3)),
        distrax.MultivariateNormalTri(jnp.zeros(2), jnp.array([[1.0, 0], [0.5, 2]])),
        distrax.MultivariateNormalFullCovariance(jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1.0]])),
        distrax.OneHotCategorical(jnp.arange(3.0)),
        distrax.MixtureSameFamily(distrax.Categorical(jnp.zeros(2)), distrax.Normal(jnp.array([-1.0, 1.0]), 0.5)),
        distrax.Quantized(distrax.Normal(0.0, 3.0), -5, 5),
        distrax.ClippedNormal(0.0, 1.0, -1.0, 1.0),
        distrax.EpsilonGreedy(jnp.arange(4.0), 0.1),
        distrax.Softmax(jnp.arange(4.0), 0.5),
        distrax.Greedy(jnp.arange(4.0)),
    )
    return [d.sample_and_log_prob(seed=jax.random.fold_in(key, n), sample_shape=(5,)) for n, d in enumerate(made)]


@program("distrax/normalizing_flow", tolerance=1e-3, why="gradients of splines, divided by widths of bins")
def normalizing_flow(key):
    w = 0.3 * jax.random.normal(key, (3, 2, 2 * (3 * 6 + 1)))

    def flow(w):
        layers = []
        mask = jnp.array([True, False, True, False])
        for i in range(3):

            def bijector(p):
                return distrax.RationalQuadraticSpline(p, -3.0, 3.0)

            def conditioner(x, i=i):
                h = jnp.tanh(x[..., :2] + x[..., 2:]) @ w[i]
                return jnp.concatenate([h, -h], -1).reshape(*x.shape[:-1], 4, 19)

            layers.append(distrax.MaskedCoupling(mask, conditioner, bijector))
            mask = ~mask
        return distrax.Transformed(
            distrax.MultivariateNormalDiag(jnp.zeros(4), jnp.ones(4)), distrax.Inverse(distrax.Chain(layers))
        )

    x = jax.random.normal(key, (10, 4))
    return jax.value_and_grad(lambda w: -flow(w).log_prob(x).mean())(w), flow(w).sample_and_log_prob(
        seed=key, sample_shape=(3,)
    )


@program("distrax/bijectors", tolerance=1e-4, why="inverses of functions that are flat where they saturate")
def bijectors(key):
    x = jax.random.uniform(key, (6, 4), minval=0.1, maxval=0.9)
    made = (
        distrax.Tanh(),
        distrax.Sigmoid(),
        distrax.ScalarAffine(0.5, 2.0),
        distrax.GumbelCDF(),
        distrax.Lambda(jnp.exp),
        distrax.Block(distrax.Tanh(), 1),
        distrax.TriangularLinear(jnp.tril(jnp.ones((4, 4)))),
        distrax.DiagLinear(jnp.arange(1.0, 5)),
        distrax.LowerUpperTriangularAffine(jnp.eye(4) + 0.1, jnp.ones(4)),
        distrax.Chain([distrax.Tanh(), distrax.ScalarAffine(0.0, 0.5)]),
    )
    return [(b.forward_and_log_det(x), b.inverse_and_log_det(b.forward(x))) for b in made]


@program("distrax/divergences")
def divergences(key):
    a, b = distrax.Normal(jax.random.normal(key, (5,)), 1.5), distrax.Normal(0.2, 2.0)
    c, d = distrax.Categorical(jax.random.normal(key, (5,))), distrax.Categorical(jnp.zeros(5))
    return a.kl_divergence(b), c.kl_divergence(d), c.cross_entropy(d), a.entropy(), b.cdf(0.3), c.mode()


@program("distrax/hidden_markov_model", tolerance=1e-4, why="a smoothing of forty steps in probabilities")
def hidden_markov_model(key):
    model = distrax.HMM(
        distrax.Categorical(jnp.zeros(3)),
        distrax.Categorical(2 * jnp.eye(3)),
        distrax.Normal(jnp.array([-1.0, 0.0, 1.0]), 0.7),
    )
    states, seen = model.sample(seed=key, seq_len=40)
    return states, seen, model.forward(seen), model.forward_backward(seen), model.viterbi(seen)
