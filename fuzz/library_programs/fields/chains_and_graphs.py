"""State space models, evolution strategies and graph networks with dynamax, evosax and jraph."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jraph
from dynamax.hidden_markov_model import GaussianHMM
from dynamax.linear_gaussian_ssm import LinearGaussianSSM
from evosax.algorithms import CMA_ES, SNES, Open_ES

from fuzz.library_programs.registry import program


@program("dynamax/hidden_markov_model", tolerance=1e-3, why="expectation maximization repeats roundings")
def hidden_markov_model(key):
    for_model, for_sample = jax.random.split(key)
    model = GaussianHMM(3, 2)
    parameters, properties = model.initialize(for_model)
    states, seen = model.sample(parameters, for_sample, 50)
    posterior, path = model.smoother(parameters, seen), model.most_likely_states(parameters, seen)
    _, likelihoods = model.fit_em(parameters, properties, seen[None], num_iters=5, verbose=False)
    return states, seen, posterior.smoothed_probs, path, likelihoods


@program("dynamax/kalman_smoother", tolerance=1e-3, why="forty covariances, each from the one before")
def kalman_smoother(key):
    for_model, for_sample = jax.random.split(key)
    model = LinearGaussianSSM(4, 2)
    parameters, _ = model.initialize(for_model)
    _, seen = model.sample(parameters, for_sample, 40)
    found = model.smoother(parameters, seen)
    return seen, found.smoothed_means, found.smoothed_covariances, model.marginal_log_prob(parameters, seen)


@program("evosax/strategies", tolerance=1e-2, why="thirty generations, in which those that are chosen are the parents")
def strategies(key):
    found = []
    for make in (CMA_ES, SNES, Open_ES):
        strategy = make(population_size=16, solution=jnp.zeros(6))
        parameters = strategy.default_params

        def generation(state, key, strategy=strategy, parameters=parameters):
            for_ask, for_tell = jax.random.split(key)
            x, state = strategy.ask(for_ask, state, parameters)
            fitness = jnp.sum((x - 0.3) ** 2, 1) + jnp.sum(jnp.cos(5 * x), 1)
            state, _ = strategy.tell(for_tell, x, fitness, state, parameters)
            return state, fitness.min()

        state = strategy.init(key, jnp.ones(6), parameters)
        found.append(jax.lax.scan(generation, state, jax.random.split(key, 30))[1])
    return found


def _graph(key):
    keys = jax.random.split(key, 4)
    return jraph.GraphsTuple(
        nodes=jax.random.normal(keys[0], (12, 8)),
        edges=jax.random.normal(keys[1], (30, 4)),
        senders=jax.random.randint(keys[2], (30,), 0, 12),
        receivers=jax.random.randint(keys[3], (30,), 0, 12),
        n_node=jnp.array([5, 7]),
        n_edge=jnp.array([12, 18]),
        globals=jnp.ones((2, 3)),
    )


@program("jraph/networks", jit=False)
def networks(key):
    graph, weights = _graph(key), 0.2 * jax.random.normal(key, (23, 4))

    def apply(weights, graph):
        network = jraph.GraphNetwork(
            update_edge_fn=lambda e, s, r, g: jnp.tanh(jnp.concatenate([e, s, r, g], 1) @ weights),
            update_node_fn=lambda n, s, r, g: n + jnp.pad(r, ((0, 0), (0, 4))),
            update_global_fn=lambda n, e, g: g + n[:, :3],
        )
        return network(graph)

    attention = jraph.GAT(lambda x: 0.1 * x @ jnp.ones((8, 8)), lambda s, r, e: (s * r).sum(-1, keepdims=True))
    padded = jraph.pad_with_graphs(jraph.batch([graph, graph]), 40, 80, 6)
    return (
        jax.jit(apply)(weights, graph),
        jax.jit(jax.grad(lambda w: apply(w, graph).nodes.sum()))(weights),
        jax.jit(attention)(graph).nodes,
        padded,
        jax.jit(lambda x: jraph.segment_softmax(x, jnp.arange(23) % 4, 4))(weights[:, 0]),
    )
