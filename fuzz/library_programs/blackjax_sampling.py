"""Samplers of blackjax."""

from __future__ import annotations

import blackjax
import jax
import jax.numpy as jnp
import optax
from jax import lax

from fuzz.library_programs.registry import program

_CHAOS = (
    "trajectories depend on roundings more with each step: means over a chain are compared, by their standard error"
)
_SHORT = "some steps of a chain, before roundings have grown"


def _density(x):
    return -0.5 * ((x["a"] - 1) ** 2).sum() - 0.5 * (x["b"] / 2) ** 2 - 0.1 * x["b"] ** 4


def _start(key):
    return {"a": jax.random.normal(key, (3,)), "b": jnp.float32(0.5)}


def _chain(algorithm, key, steps):
    def step(state, key):
        state, _ = algorithm.step(key, state)
        return state, state.position

    _, positions = jax.lax.scan(step, algorithm.init(_start(key)), jax.random.split(key, steps))
    return positions


_INVERSE_MASS = jnp.ones(4)
_KERNELS = {
    "nuts": lambda: blackjax.nuts(_density, 0.3, _INVERSE_MASS, max_num_doublings=5),
    "hmc": lambda: blackjax.hmc(_density, 0.2, _INVERSE_MASS, 8),
    "mala": lambda: blackjax.mala(_density, 0.1),
    "rmh": lambda: blackjax.additive_step_random_walk(_density, blackjax.mcmc.random_walk.normal(jnp.eye(4) * 0.3)),
    "barker": lambda: blackjax.barker_proposal(_density, 0.3),
    "mclmc": lambda: blackjax.mclmc(_density, L=1.0, step_size=0.2),
    "dynamic_hmc": lambda: blackjax.dynamic_hmc(_density, 0.2, _INVERSE_MASS),
    "ghmc": lambda: blackjax.ghmc(_density, 0.2, {"a": jnp.ones(3), "b": jnp.ones(())}, 0.1, 0.2),
    "multinomial_hmc": lambda: blackjax.multinomial_hmc(_density, 0.2, _INVERSE_MASS, 8),
}


def _short(make):
    def run(key):
        algorithm = make()
        if make in (_KERNELS["dynamic_hmc"], _KERNELS["ghmc"], _KERNELS["mclmc"]):
            state = algorithm.init(_start(key), key)
            step = jax.tree_util.Partial(lambda state, key: (algorithm.step(key, state)[0],) * 2)
            return jax.lax.scan(lambda s, k: (step(s, k)[0], s.position), state, jax.random.split(key, 8))[1]
        return _chain(algorithm, key, 8)

    return run


for _name, _make in _KERNELS.items():
    program(f"blackjax/{_name}", tolerance=2e-3, why=_SHORT)(_short(_make))


@program("blackjax/window_adaptation", tolerance=1e-1, why=_CHAOS)
def window_adaptation(key):
    adapt = blackjax.window_adaptation(blackjax.nuts, _density)
    (_, parameters), _ = adapt.run(key, _start(key), 200)
    positions = _chain(blackjax.nuts(_density, **parameters), key, 600)
    return jnp.concatenate([positions["a"].mean(0), jnp.abs(positions["b"]).mean()[None] + 1])


@program("blackjax/elliptical_slice", tolerance=2e-3, why=_SHORT)
def elliptical_slice(key):
    algorithm = blackjax.elliptical_slice(lambda x: -((x - 0.5) ** 2).sum(), mean=jnp.zeros(3), cov=jnp.eye(3))

    def step(state, key):
        state, _ = algorithm.step(key, state)
        return state, state.position

    return jax.lax.scan(step, algorithm.init(jnp.ones(3)), jax.random.split(key, 8))[1]


@program("blackjax/tempered_smc", tolerance=5e-2, why=_CHAOS)
def tempered_smc(key):
    hmc = {
        "step_size": jnp.full((1,), 0.2),
        "inverse_mass_matrix": jnp.eye(2)[None],
        "num_integration_steps": jnp.full((1,), 5),
    }
    smc = blackjax.adaptive_tempered_smc(
        lambda x: -0.5 * (x**2).sum() / 9,
        lambda x: -2 * ((x - 1.5) ** 2).sum(),
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        hmc,
        blackjax.smc.resampling.systematic,
        0.5,
        num_mcmc_steps=3,
    )
    state = smc.init(3 * jax.random.normal(key, (300, 2)))

    def body(c):
        n, key, state = c
        key, k = jax.random.split(key)
        return n + 1, key, smc.step(k, state)[0]

    n, _, state = jax.lax.while_loop(lambda c: (c[2].tempering_param < 1) & (c[0] < 20), body, (0, key, state))
    return state.particles.mean(0), n


@program("blackjax/resampling")
def resampling(key):
    w = jax.nn.softmax(jax.random.normal(key, (40,)))
    r = blackjax.smc.resampling
    return [f(key, w, 40) for f in (r.systematic, r.stratified, r.multinomial, r.residual)]


@program(
    "blackjax/pathfinder",
    tolerance=1e-1,
    why="L-BFGS with a line search, then an estimate by samples; which step is best may change",
)
def pathfinder(key):
    state, _ = blackjax.vi.pathfinder.approximate(
        key, lambda x: -0.5 * ((x - 1) ** 2 * jnp.arange(1.0, 4)).sum(), jnp.zeros(3), maxiter=8
    )
    return state.position


@program("blackjax/meanfield_vi", tolerance=1e-2, why="steps of Adam enlarge roundings of small gradients")
def meanfield_vi(key):
    import optax

    vi = blackjax.meanfield_vi(_density, optax.adam(0.05), 10)
    state = vi.init(_start(key))
    return jax.lax.scan(lambda s, k: (vi.step(k, s)[0], None), state, jax.random.split(key, 60))[0].mu


@program("blackjax/sgld", tolerance=1e-3, why=_SHORT)
def sgld(key):
    data = jax.random.normal(key, (100, 2)) + 1
    algorithm = blackjax.sgld(
        blackjax.sgmcmc.gradients.grad_estimator(
            lambda x: -0.5 * (x**2).sum(), lambda x, d: -0.5 * ((d - x) ** 2).sum(), 100
        )
    )

    def step(x, key):
        batch = jax.random.choice(key, data, (10,))
        x = algorithm.step(key, x, batch, 1e-3)
        return x, x

    return jax.lax.scan(step, jnp.zeros(2), jax.random.split(key, 30))[1]


@program("blackjax/diagnostics")
def diagnostics(key):
    chains = jnp.cumsum(jax.random.normal(key, (4, 100, 2)), 1) * 0.1 + jax.random.normal(key, (4, 100, 2))
    return blackjax.diagnostics.potential_scale_reduction(chains), blackjax.diagnostics.effective_sample_size(chains)


@program("blackjax/stein_and_stochastic_gradients", tolerance=2e-3, why=_SHORT)
def stein_and_stochastic_gradients(key):
    def density(x, batch):
        return -0.5 * jnp.sum((x - batch.mean(0)) ** 2)

    particles, batch = jax.random.normal(key, (12, 2)), jax.random.normal(key, (30, 2)) + 2
    svgd = blackjax.svgd(jax.grad(lambda x: density(x, batch)), optax.adam(0.1))
    state = lax.fori_loop(0, 8, lambda _, s: svgd.step(s), svgd.init(particles))
    sghmc = blackjax.sghmc(jax.grad(density), 4)

    def one(x, k):
        x = sghmc.step(k, x, lax.dynamic_slice(batch, (jax.random.randint(k, (), 0, 20), 0), (10, 2)), 0.01)
        return x, x

    return state.particles, lax.scan(one, particles[0], jax.random.split(key, 7))
