"""Replay buffers and environments of puzzles, packing and pursuit with flashbax and jumanji."""

from __future__ import annotations

import flashbax
import jax
import jax.numpy as jnp
import jumanji
import optax

from fuzz.library_programs.registry import program


def _moved(seen, action, key):
    noise = 0.1 * jax.random.normal(key, seen.shape)
    after = jnp.tanh(seen + 0.3 * (action[:, None] - 1.0) + noise)
    done = jnp.abs(after).max(-1) > 0.9
    return jnp.where(done[:, None], 0.0, after), -jnp.sum(after**2, -1), done


@program("flashbax/prioritised_q_learning", tolerance=1e-3, why="what is sampled depends on errors of the steps before")
def prioritised_q_learning(key):
    buffer = flashbax.make_prioritised_flat_buffer(
        max_length=64, min_length=8, sample_batch_size=8, add_sequences=False, add_batch_size=4, priority_exponent=0.6
    )
    kept = buffer.init({"seen": jnp.zeros(4), "action": jnp.int32(0), "reward": jnp.zeros(()), "done": jnp.bool_(0)})
    one, two, three = jax.random.split(key, 3)
    weights = {"in": 0.3 * jax.random.normal(one, (4, 32)), "out": 0.3 * jax.random.normal(two, (32, 3))}
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.rmsprop(1e-2, momentum=0.9))

    def values(weights, seen):
        return jax.nn.relu(seen @ weights["in"]) @ weights["out"]

    def step(carry, key):
        kept, weights, state, seen, target = carry
        for_greed, for_action, for_move, for_sample = jax.random.split(key, 4)
        action = jax.random.randint(for_action, (4,), 0, 3)
        action = jnp.where(jax.random.uniform(for_greed, (4,)) < 0.2, action, values(weights, seen).argmax(-1))
        after, reward, done = _moved(seen, action, for_move)
        kept = buffer.add(kept, {"seen": seen, "action": action.astype(jnp.int32), "reward": reward, "done": done})

        def learn(kept, weights, state):
            batch = buffer.sample(kept, for_sample)
            first, second = batch.experience.first, batch.experience.second

            def loss(weights):
                best = values(target, second["seen"]).max(-1)
                taken = jnp.take_along_axis(values(weights, first["seen"]), first["action"][:, None], 1)[:, 0]
                error = taken - first["reward"] - 0.9 * (1 - first["done"]) * best
                rare = (1 / batch.probabilities) ** 0.4
                return (optax.huber_loss(error) * rare / rare.max()).mean(), error

            (value, error), gradient = jax.value_and_grad(loss, has_aux=True)(weights)
            update, state = optimizer.update(gradient, state, weights)
            kept = buffer.set_priorities(kept, batch.indices, jnp.abs(error) + 1e-3)
            return kept, optax.apply_updates(weights, update), state, value

        kept, weights, state, value = jax.lax.cond(
            buffer.can_sample(kept), learn, lambda *old: (*old, jnp.float32(0)), kept, weights, state
        )
        target = optax.incremental_update(weights, target, 0.05)
        return (kept, weights, state, after, target), (value, reward.mean())

    start = kept, weights, optimizer.init(weights), jax.random.normal(three, (4, 4)), weights
    return jax.lax.scan(step, start, jax.random.split(key, 40))[1]


@program("flashbax/trajectories")
def trajectories(key):
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=2,
        sample_batch_size=5,
        sample_sequence_length=4,
        period=2,
        min_length_time_axis=8,
        max_length_time_axis=32,
    )

    def add(kept, key):
        number = jax.random.randint(key, (2, 3), 0, 100)
        return buffer.add(kept, {"x": jax.random.normal(key, (2, 3, 3)), "number": number}), number

    kept = buffer.init({"x": jnp.zeros(3), "number": jnp.int32(0)})
    kept, _ = jax.lax.scan(add, kept, jax.random.split(key, 15))
    return kept, jax.vmap(lambda key: buffer.sample(kept, key).experience)(jax.random.split(key, 3))


def _play(name, key, games=4):
    environment = jumanji.make(name)
    actions = environment.action_spec.num_values

    @jax.jit
    @jax.vmap
    def play(key):
        def step(carry, key):
            state, _ = carry
            action = jax.random.randint(key, jnp.shape(actions), 0, jnp.asarray(actions))
            state, seen = environment.step(state, action)
            return (state, seen), (seen.reward, seen.step_type)

        for_start, for_steps = jax.random.split(key)
        return jax.lax.scan(step, environment.reset(for_start), jax.random.split(for_steps, 20))

    return play(jax.random.split(key, games))


@program("jumanji/snake_and_game_2048", jit=False)
def snake_and_game_2048(key):
    return _play("Snake-v1", key), _play("Game2048-v1", key)


@program("jumanji/cube_and_maze", jit=False)
def cube_and_maze(key):
    return _play("RubiksCube-v0", key), _play("Maze-v0", key)


@program("jumanji/packing", jit=False)
def packing(key):
    return _play("FlatPack-v0", key, games=2)
