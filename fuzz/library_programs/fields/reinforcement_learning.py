"""Games, environments, tree search and returns with pgx, gymnax, mctx and rlax."""

from __future__ import annotations

import gymnax
import jax
import jax.numpy as jnp
import mctx
import pgx
import rlax

from fuzz.library_programs.registry import program


def _game(name):
    """A game in which any legal move is made, for a batch of keys."""
    game = pgx.make(name)

    def play(key):
        def move(state, key):
            action = jax.random.categorical(key, jnp.where(state.legal_action_mask, 0.0, -1e9))
            after = game.step(state, action, key)
            return after, (after.rewards, after.terminated, action)

        state, moves = jax.lax.scan(move, game.init(key), jax.random.split(key, 40))
        return state.observation, moves

    return jax.vmap(play)


@program("pgx/board_games")
def board_games(key):
    keys = jax.random.split(key, 3)
    return [_game(name)(keys) for name in ("tic_tac_toe", "connect_four", "othello", "2048", "kuhn_poker")]


@program("pgx/go")
def go(key):
    return _game("go_9x9")(jax.random.split(key, 2))


def _episode(name):
    environment, parameters = gymnax.make(name)

    def play(key):
        key, start = jax.random.split(key)
        _, state = environment.reset(start, parameters)

        def step(carry, _):
            key, state = carry
            key, for_action, for_step = jax.random.split(key, 3)
            action = environment.action_space(parameters).sample(for_action)
            seen, state, reward, done, *_ = environment.step(for_step, state, action, parameters)
            return (key, state), (seen, reward, done)

        return jax.lax.scan(step, (key, state), None, length=100)[1]

    return jax.vmap(play)


@program("gymnax/classic_control", tolerance=1e-3, why="a hundred steps of pendulums, which amplify roundings")
def classic_control(key):
    names = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Catch-bsuite")
    return [_episode(name)(jax.random.split(key, 4)) for name in names]


@program("gymnax/small_arcades")
def small_arcades(key):
    names = ("Breakout", "Asterix", "SpaceInvaders", "Freeway")
    return [_episode(f"{name}-MinAtar")(jax.random.split(key, 4)) for name in names]


@program("mctx/searches")
def searches(key):
    batch, actions = 4, 5
    for_gumbel, for_puct = jax.random.split(key)

    def recurrent(_, key, action, embedding):
        made = embedding * 0.7 + action
        return mctx.RecurrentFnOutput(
            reward=jnp.sin(embedding + action),
            discount=jnp.full(batch, 0.9),
            prior_logits=jnp.stack([jnp.cos(made * i) for i in range(actions)], 1),
            value=jnp.tanh(made),
        ), made

    root = mctx.RootFnOutput(
        prior_logits=jnp.zeros((batch, actions)), value=jnp.zeros(batch), embedding=jnp.arange(batch) * 1.0
    )
    gumbel = mctx.gumbel_muzero_policy((), for_gumbel, root, recurrent, num_simulations=32)
    puct = mctx.muzero_policy((), for_puct, root, recurrent, num_simulations=20)
    return [(found.action, found.action_weights, found.search_tree.node_values) for found in (gumbel, puct)]


@program("rlax/returns_and_losses")
def returns_and_losses(key):
    length = 40
    keys = jax.random.split(key, 5)
    rewards, discounts = jax.random.normal(keys[0], (length,)), jnp.full(length, 0.97)
    values = jax.random.normal(keys[1], (length + 1,))
    ratios = jnp.exp(0.3 * jax.random.normal(keys[2], (length,)))
    logits = jax.random.normal(keys[3], (10, 4))
    actions, advantages = jnp.arange(10) % 4, jnp.linspace(-1, 1, 10)

    def loss(logits):
        return rlax.policy_gradient_loss(logits, actions, advantages, jnp.ones(10))

    return (
        rlax.vtrace(values[:-1], values[1:], rewards, discounts, ratios),
        rlax.truncated_generalized_advantage_estimation(rewards, discounts, 0.95, values),
        rlax.lambda_returns(rewards, discounts, values[1:], 0.9),
        rlax.categorical_l2_project(jnp.linspace(-3, 3, 11), jax.nn.softmax(values[:11]), jnp.linspace(-2, 2, 11)),
        rlax.quantile_regression_loss(values[:8], jnp.linspace(0.05, 0.95, 8), rewards[:8], huber_param=1.0),
        jax.value_and_grad(loss)(logits),
    )
