"""Inference with numpyro: samplers, variational inference, distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.infer import HMC, MCMC, NUTS, SVI, Predictive, Trace_ELBO, autoguide, log_likelihood

from fuzz.library_programs.registry import program

_CHAOS = (
    "trajectories depend on roundings more with each step: means over a chain are compared, by their standard error"
)
_TRAINED = "steps of Adam divide by the root of gradients' squares, which enlarges the roundings of small gradients"


def _regression(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    with numpyro.plate("data", x.shape[0]):
        return numpyro.sample("y", dist.Normal(x @ w + b, s), obs=y)


def _data(key):
    x = jax.random.normal(key, (50, 3))
    return x, x @ jnp.array([1.0, -2.0, 0.5]) + 0.3


def _chain(kernel, key, warmup=200, samples=400, chains=1, method="sequential", model_arguments=None):
    mcmc = MCMC(
        kernel, num_warmup=warmup, num_samples=samples, num_chains=chains, chain_method=method, progress_bar=False
    )
    mcmc.run(key, *(model_arguments or _data(key)))
    return {name: value.mean(0) for name, value in mcmc.get_samples().items()}


@program("numpyro/nuts", jit=False, tolerance=2e-2, why=_CHAOS)
def nuts(key):
    return _chain(NUTS(_regression), key)


@program("numpyro/nuts_dense_mass", jit=False, tolerance=2e-2, why=_CHAOS)
def nuts_dense_mass(key):
    return _chain(NUTS(_regression, dense_mass=True, max_tree_depth=6), key)


@program("numpyro/nuts_vectorized_chains", jit=False, tolerance=2e-2, why=_CHAOS)
def nuts_vectorized_chains(key):
    return _chain(NUTS(_regression), key, chains=4, method="vectorized", samples=150)


@program("numpyro/hmc", jit=False, tolerance=3e-2, why=_CHAOS)
def hmc(key):
    return _chain(HMC(_regression, step_size=0.1, num_steps=10), key)


@program(
    "numpyro/nuts_first_steps",
    jit=False,
    tolerance=1e-3,
    why="ten steps without adaptation, before roundings have grown",
)
def nuts_first_steps(key):
    kernel = NUTS(_regression, step_size=0.01, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=3)
    return _chain(kernel, key, warmup=0, samples=5)


@program("numpyro/eight_schools_noncentered", jit=False, tolerance=2.5e-1, why=_CHAOS)
def eight_schools_noncentered(key):
    y = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    s = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def model():
        mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
        with (
            numpyro.plate("schools", 8),
            numpyro.handlers.reparam(config={"theta": numpyro.infer.reparam.LocScaleReparam(0)}),
        ):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, s), obs=y)

    mcmc = MCMC(NUTS(model), num_warmup=300, num_samples=600, progress_bar=False)
    mcmc.run(key)
    return mcmc.get_samples()["theta"].mean(0)


@program("numpyro/sample_adaptive", jit=False, tolerance=1e-1, why=_CHAOS)
def sample_adaptive(key):
    return _chain(numpyro.infer.SA(_regression), key, 1500, 1500)


@program("numpyro/barker_and_aies", jit=False, tolerance=1.5e-1, why=_CHAOS)
def barker_and_aies(key):
    ensemble = numpyro.infer.AIES(_regression)
    return _chain(numpyro.infer.BarkerMH(_regression), key, 500, 1500), _chain(
        ensemble, key, 500, 500, 10, "vectorized"
    )


@program("numpyro/discrete_gibbs", jit=False, tolerance=1e-1, why=_CHAOS)
def discrete_gibbs(key):
    def model(x):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
        means = numpyro.sample("means", dist.Normal(jnp.array([-2.0, 2.0]), 0.5).to_event(1))
        with numpyro.plate("data", len(x)):
            z = numpyro.sample("z", dist.Categorical(p))
            numpyro.sample("x", dist.Normal(means[z], 1.0), obs=x)

    x = jnp.concatenate([jax.random.normal(key, (12,)) - 2, jax.random.normal(key, (20,)) + 2])
    kernel = numpyro.infer.DiscreteHMCGibbs(NUTS(model), modified=True)
    found = _chain(kernel, key, 100, 300, model_arguments=(x,))
    return found["p"], found["means"]


@program("numpyro/marginal_mixture", jit=False, tolerance=5e-2, why=_CHAOS)
def marginal_mixture(key):
    def model(x):
        p = numpyro.sample("p", dist.Beta(1, 1))
        mean = numpyro.sample("mean", dist.Normal(2, 1))
        with numpyro.plate("data", len(x)):
            parts = dist.Normal(jnp.stack([mean, jnp.float32(-2)]), 1.0)
            numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(jnp.stack([p, 1 - p])), parts), obs=x)

    x = jnp.concatenate([jax.random.normal(key, (12,)) - 2, jax.random.normal(key, (20,)) + 2])
    return _chain(NUTS(model), key, 100, 300, model_arguments=(x,))


def _hidden_markov(y):
    drift = numpyro.sample("drift", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))

    def step(carry, y):
        x = numpyro.sample("x", dist.Normal(carry * 0.9 + drift, 0.5))
        numpyro.sample("y", dist.Normal(x, noise + 0.1), obs=y)
        return x, x

    scan(step, jnp.float32(0), y)


def _waves(key):
    return jnp.sin(jnp.arange(15.0)) + jax.random.normal(key, (15,)) * 0.1


@program("numpyro/hidden_markov_scan", jit=False, tolerance=5e-2, why=_CHAOS)
def hidden_markov_scan(key):
    found = _chain(NUTS(_hidden_markov), key, 100, 300, model_arguments=(_waves(key),))
    return found["drift"], found["noise"]


def _svi(guide, steps=300):
    def run(key):
        svi = SVI(_regression, guide(_regression), numpyro.optim.Adam(0.02), Trace_ELBO(num_particles=2))
        result = svi.run(key, steps, *_data(key), progress_bar=False)
        return jax.tree.map(lambda v: v, result.params), result.losses[-50:].mean()

    return run


for _name in (
    "AutoNormal",
    "AutoDiagonalNormal",
    "AutoMultivariateNormal",
    "AutoLowRankMultivariateNormal",
    "AutoDelta",
    "AutoIAFNormal",
    "AutoBNAFNormal",
):
    program(f"numpyro/svi_{_name.lower()}", jit=False, tolerance=5e-2, why=_TRAINED)(
        _svi(getattr(autoguide, _name), 100 if "AF" in _name else 300)
    )


@program("numpyro/laplace", jit=False, tolerance=2e-2, why=_TRAINED)
def laplace(key):
    guide = autoguide.AutoLaplaceApproximation(_regression)
    svi = SVI(_regression, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    x, y = _data(key)
    # Without noise the density has no maximum.
    result = svi.run(key, 500, x, y + 0.5 * jax.random.normal(jax.random.fold_in(key, 1), y.shape), progress_bar=False)
    return guide.get_transform(result.params).loc, guide.quantiles(result.params, [0.1, 0.9])


@program(
    "numpyro/predictive",
    jit=False,
    tolerance=1e-4,
    why="samples of normal and gamma numbers, by inverse functions and rejection",
)
def predictive(key):
    x, y = _data(key)
    prior = Predictive(_regression, num_samples=20)(key, x)
    return prior, log_likelihood(_regression, {k: prior[k] for k in ("w", "b", "s")}, x, y)


@program("numpyro/samples_of_distributions", tolerance=2e-4, why="inverse functions and rejection steep at their ends")
def samples_of_distributions(key):
    made = {
        "beta": dist.Beta(2.0, 3.0),
        "binomial": dist.Binomial(20, 0.3),
        "categorical": dist.Categorical(jnp.array([0.2, 0.5, 0.3])),
        "cauchy": dist.Cauchy(0.0, 1.0),
        "dirichlet": dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])),
        "exponential": dist.Exponential(2.0),
        "gamma": dist.Gamma(2.5, 1.0),
        "gumbel": dist.Gumbel(0.0, 1.0),
        "inverse_gamma": dist.InverseGamma(3.0, 1.0),
        "laplace": dist.Laplace(0.0, 1.0),
        "lkj": dist.LKJCholesky(4, 1.5),
        "logistic": dist.Logistic(0.0, 1.0),
        "mixture": dist.MixtureSameFamily(
            dist.Categorical(jnp.array([0.3, 0.7])), dist.Normal(jnp.array([-1.0, 1.0]), 0.5)
        ),
        "multinomial": dist.Multinomial(10, jnp.array([0.2, 0.8])),
        "mvn": dist.MultivariateNormal(jnp.zeros(3), 0.5 * jnp.ones((3, 3)) + jnp.eye(3)),
        "negative_binomial": dist.NegativeBinomial2(3.0, 2.0),
        "pareto": dist.Pareto(1.0, 3.0),
        "poisson": dist.Poisson(4.0),
        "student": dist.StudentT(4.0),
        "truncated": dist.TruncatedNormal(0.0, 1.0, low=-0.5, high=2.0),
        "uniform": dist.Uniform(-1, 2),
        "von_mises": dist.VonMises(0.0, 2.0),
        "weibull": dist.Weibull(1.0, 2.0),
        "wishart": dist.Wishart(5.0, jnp.eye(3)),
        "zip": dist.ZeroInflatedPoisson(0.3, 3.0),
        "half_cauchy": dist.HalfCauchy(1.0),
        "kumaraswamy": dist.Kumaraswamy(2.0, 3.0),
        "geometric": dist.GeometricProbs(0.3),
        "car": dist.GaussianRandomWalk(0.3, 6),
    }
    results = {}
    for n, (name, d) in enumerate(made.items()):
        x = d.sample(jax.random.fold_in(key, n), (7,))
        results[name] = x, d.log_prob(x)
    return results


@program("numpyro/gradients_of_densities", tolerance=1e-3, why="derivatives of special functions, by series")
def gradients_of_densities(key):
    x = jax.random.uniform(key, (9,), minval=0.1, maxval=0.9)

    def total(a, b):
        return sum(
            d.log_prob(x).sum()
            for d in (
                dist.Beta(a, b),
                dist.Gamma(a, b),
                dist.StudentT(a, b),
                dist.VonMises(a, b),
                dist.LogNormal(a, b),
                dist.InverseGamma(a, b),
            )
        )

    return jax.value_and_grad(total, (0, 1))(1.5, 2.5), jax.grad(lambda a: dist.Gamma(a, 1.0).sample(key, (5,)).sum())(
        1.7
    )


@program("numpyro/hidden_markov_first_steps", jit=False, tolerance=1e-3, why="five steps, before roundings have grown")
def hidden_markov_first_steps(key):
    kernel = NUTS(_hidden_markov, step_size=0.01, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=3)
    return _chain(kernel, key, warmup=0, samples=5, model_arguments=(_waves(key),))


@program("numpyro/bnaf_gradients", jit=False, tolerance=1e-3, why="a network's gradients, some of which cancel")
def bnaf_gradients(key):
    svi = SVI(_regression, autoguide.AutoBNAFNormal(_regression), numpyro.optim.SGD(1e-3), Trace_ELBO(num_particles=2))
    state = svi.init(key, *_data(key))
    update = jax.jit(svi.update)
    losses = []
    for _ in range(3):
        state, loss = update(state, *_data(key))
        losses.append(loss)
    return svi.get_params(state), losses


@program("numpyro/samples_of_more_distributions", tolerance=2e-4, why="inverse functions steep at their ends")
def samples_of_more_distributions(key):
    made = (
        dist.AsymmetricLaplace(0.0, 1.0, 0.5),
        dist.BetaBinomial(2.0, 3.0, 9),
        dist.DirichletMultinomial(jnp.array([1.0, 2.0, 3.0]), 7),
        dist.DiscreteUniform(2, 9),
        dist.Gompertz(1.0, 0.5),
        dist.InverseWishart(6.0, jnp.eye(3)),
        dist.LKJ(3, 2.0),
        dist.LogUniform(0.1, 9.0),
        dist.LowRankMultivariateNormal(jnp.zeros(4), jnp.ones((4, 2)) * 0.3, jnp.ones(4)),
        dist.MatrixNormal(jnp.zeros((2, 3)), jnp.eye(2), jnp.eye(3)),
        dist.MultivariateStudentT(5.0, jnp.zeros(2), jnp.eye(2)),
        dist.OrderedLogistic(0.3, jnp.array([-1.0, 0.0, 1.5])),
        dist.ProjectedNormal(jnp.array([1.0, 0.5])),
        dist.RelaxedBernoulli(jnp.float32(0.5), probs=jnp.float32(0.3)),
        dist.SineBivariateVonMises(0.0, 0.5, 1.0, 2.0, 0.3),
        dist.SoftLaplace(0.0, 1.0),
        dist.TruncatedCauchy(0.0, 1.0, low=-1.0, high=2.0),
        dist.TruncatedPolyaGamma(),
        dist.ZeroInflatedNegativeBinomial2(3.0, 2.0, gate=0.3),
        dist.ZeroSumNormal(1.0, event_shape=(4,)),
        dist.EulerMaruyama(jnp.linspace(0.0, 1, 5), lambda x, t: (-x * t, jnp.float32(0.3)), dist.Normal(0.0, 1.0)),
        dist.FoldedDistribution(dist.Normal(0.5, 1.0)),
        dist.CAR(0.0, 0.5, 2.0, jnp.ones((3, 3)) - jnp.eye(3)),
    )
    results = []
    for n, d in enumerate(made):
        x = d.sample(jax.random.fold_in(key, n), (5,))
        results.append((x, d.log_prob(x)))
    return results
