"""Loops and branches of JAX alone: what is carried is permuted, selected crosswise, grown, counted."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.library_programs.registry import program


@program("control/crosswise")
def crosswise(key):
    a, b = jax.random.normal(key, (2,))

    def body(i, c):
        x, y = c
        swap = i % 3 == 0
        return jnp.where(swap, x, y), jnp.where(swap, y, x)

    return lax.fori_loop(0, 10, body, (a, b))


@program("control/rotating_carry")
def rotating_carry(key):
    a, b, c, d = (jax.random.normal(k, (5,)) for k in jax.random.split(key, 4))

    def body(i, t):
        a, b, c, d = t
        a, b = lax.cond(i % 2 == 0, lambda: (b, a), lambda: (a, b))
        return b, c + 0.1 * a, d, jnp.where(i < 7, a, d)

    return lax.fori_loop(0, 13, body, (a, b, c, d))


@program("control/collatz")
def collatz(key):
    starts = jax.random.randint(key, (200,), 1, 10_000)

    def steps(n):
        def body(c):
            n, count, top = c
            n = jnp.where(n % 2 == 0, n // 2, 3 * n + 1)
            return n, count + 1, jnp.maximum(top, n)

        return lax.while_loop(lambda c: c[0] != 1, body, (n, 0, n))

    return jax.vmap(steps)(starts)


@program("control/gcd_table")
def gcd_table(key):
    a = jax.random.randint(key, (30, 1), 1, 500)
    b = jnp.arange(1, 41)[None]

    def gcd(a, b):
        return lax.while_loop(lambda c: c[1] != 0, lambda c: (c[1], c[0] % c[1]), (a, b))[0]

    return jax.vmap(jax.vmap(gcd, (None, 0)), (0, None))(a[:, 0], b[0])


@program("control/mandelbrot")
def mandelbrot(key):
    x = jnp.linspace(-2, 0.6, 60) + 1e-3 * jax.random.uniform(key)
    c = x[None] + 1j * jnp.linspace(-1.2, 1.2, 50)[:, None]

    def body(_, s):
        z, n = s
        z = jnp.where(jnp.abs(z) < 2, z * z + c, z)
        return z, n + (jnp.abs(z) < 2)

    return lax.fori_loop(0, 20, body, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))[1].sum() // 50


@program("control/game_of_life")
def game_of_life(key):
    board = jax.random.bernoulli(key, 0.3, (64, 48))

    def step(board, _):
        near = sum(jnp.roll(board.astype(jnp.int32), (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - board
        board = (near == 3) | (board & (near == 2))
        return board, board.sum()

    return lax.scan(step, board, None, length=50)


@program("control/nested_loops")
def nested_loops(key):
    x = jax.random.normal(key, (6, 4))

    def outer(i, c):
        x, total = c

        def inner(j, y):
            return y.at[i % 6, j].set(jnp.sin(y[i % 6, j]) + total)

        x = lax.fori_loop(0, 4, inner, x)
        total = lax.while_loop(lambda t: jnp.abs(t) > 1, lambda t: t / 2, total + x[i % 6].sum())
        return x[::-1], total

    return lax.fori_loop(0, 12, outer, (x, jnp.float32(0)))


@program("control/switch_machine")
def switch_machine(key):
    code = jax.random.randint(key, (100,), 0, 5)

    def step(stack, instruction):
        top, second, third = stack
        branches = (
            lambda: (second, top, third),
            lambda: (third, top, second),
            lambda: (top + second, third, jnp.float32(1)),
            lambda: (top * 0.5, second, third),
            lambda: (jnp.sin(top), jnp.cos(top), second),
        )
        stack = lax.switch(instruction, branches)
        return stack, stack[0]

    return lax.scan(step, (jnp.float32(1), jnp.float32(2), jnp.float32(3)), code)


@program("control/gradient_of_loops")
def gradient_of_loops(key):
    w = jax.random.normal(key, (8, 8)) / 3

    @partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    def block(h, i):
        return lax.cond(i % 2 == 0, lambda h: jnp.tanh(h @ w), lambda h: h + 0.1 * jnp.sin(h), h)

    def loss(w, h):
        h, norms = lax.scan(lambda h, i: (block(h @ w, i), (h * h).sum()), h, jnp.arange(9))
        return (h * h).mean() + 0.01 * norms.mean()

    return jax.value_and_grad(loss, (0, 1))(w, jnp.ones((3, 8)))


@program("control/associative_scans")
def associative_scans(key):
    a, b = jax.random.uniform(key, (2, 300, 3))

    def affine(x, y):
        return x[0] * y[0], x[1] * y[0] + y[1]

    matrices = jnp.eye(3) + 0.1 * jax.random.normal(key, (37, 3, 3))
    return (
        lax.associative_scan(affine, (a, b)),
        lax.associative_scan(affine, (a, b), reverse=True),
        lax.associative_scan(jnp.maximum, a - 0.5, axis=1),
        lax.associative_scan(jnp.matmul, matrices),
    )


@program("control/edit_distance")
def edit_distance(key):
    s, t = jax.random.randint(key, (2, 40), 0, 4)

    def row(before, letter):
        def cell(left, above):
            diagonal, up, other = above
            here = jnp.minimum(jnp.minimum(left + 1, up + 1), diagonal + (letter != other))
            return here, here

        _, cells = lax.scan(cell, before[0] + 1, (before[:-1], before[1:], t))
        return jnp.concatenate([before[:1] + 1, cells]), cells[-1]

    return lax.scan(row, jnp.arange(41), s)


@program("control/viterbi")
def viterbi(key):
    transition = jax.nn.log_softmax(jax.random.normal(key, (6, 6)))
    emission = jax.nn.log_softmax(jax.random.normal(jax.random.fold_in(key, 1), (50, 6)))

    def forward(score, e):
        every = score[:, None] + transition
        return every.max(0) + e, every.argmax(0)

    score, back = lax.scan(forward, emission[0], emission[1:])
    last = score.argmax()
    _, path = lax.scan(lambda s, b: (b[s], s), last, back, reverse=True)
    return score, path


@program("control/hidden_markov_gradient")
def hidden_markov_gradient(key):
    def likelihood(transition, emission):
        def step(alpha, e):
            alpha = jax.nn.logsumexp(alpha[:, None] + jax.nn.log_softmax(transition), 0) + e
            return alpha, None

        return jax.nn.logsumexp(lax.scan(step, emission[0], emission[1:])[0])

    return jax.value_and_grad(likelihood, (0, 1))(jax.random.normal(key, (5, 5)), jax.random.normal(key, (40, 5)))


@program("control/kalman_filter")
def kalman_filter(key):
    f = jnp.array([[1.0, 0.1], [0.0, 1.0]])
    h = jnp.array([[1.0, 0.0]])

    def step(state, z):
        x, p = f @ state[0], f @ state[1] @ f.T + 0.01 * jnp.eye(2)
        s = h @ p @ h.T + 0.1
        gain = jnp.linalg.solve(s, h @ p).T
        x = x + gain @ (z - h @ x)
        return (x, (jnp.eye(2) - gain @ h) @ p), x

    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), jax.random.normal(key, (60, 1)))


@program("control/queue_in_arrays")
def queue_in_arrays(key):
    """A breadth-first search over a random graph, with a queue in an array."""
    edges = jax.random.bernoulli(key, 0.08, (40, 40))

    def body(c):
        queue, head, tail, distance = c
        node = queue[head]

        def visit(i, c):
            queue, tail, distance = c
            new = edges[node, i] & (distance[i] < 0)
            queue = queue.at[tail].set(jnp.where(new, i, queue[tail]))
            return queue, tail + new, distance.at[i].set(jnp.where(new, distance[node] + 1, distance[i]))

        queue, tail, distance = lax.fori_loop(0, 40, visit, (queue, tail, distance))
        return queue, head + 1, tail, distance

    start = (jnp.zeros(41, jnp.int32), 0, 1, jnp.full(40, -1).at[0].set(0))
    return lax.while_loop(lambda c: c[1] < c[2], body, start)


@program("control/bubble_sort")
def bubble_sort(key):
    def inner(i, x):
        a, b = x[i], x[i + 1]
        return x.at[i].set(jnp.minimum(a, b)).at[i + 1].set(jnp.maximum(a, b))

    x = jax.random.permutation(key, 25)
    return lax.fori_loop(0, 24, lambda n, x: lax.fori_loop(0, 24, inner, x), x)


@program("control/random_walk_until")
def random_walk_until(key):
    def walk(key):
        def body(c):
            key, at, n = c
            key, k = jax.random.split(key)
            return key, at + jnp.where(jax.random.bernoulli(k), 1, -1), n + 1

        return lax.while_loop(lambda c: (jnp.abs(c[1]) < 5) & (c[2] < 200), body, (key, 0, 0))[1:]

    return jax.vmap(walk)(jax.random.split(key, 32))


@program("control/early_exit_pair")
def early_exit_pair(key):
    """Two loops in one program, in which the second goes on with what the first gives, and both have several flags."""
    x = jax.random.uniform(key, (20,))

    def body(c):
        i, done, found, best = c
        hit = x[i] > 0.9
        return i + 1, done | hit, jnp.where(hit & ~done, i, found), jnp.maximum(best, x[i])

    first = lax.while_loop(lambda c: (c[0] < 20) & ~c[1], body, (0, False, -1, -jnp.inf))
    second = lax.while_loop(lambda c: c[0] < 20, body, (first[0], False, first[2], first[3]))
    return first, second


@program("control/while_in_cond_in_scan")
def while_in_cond_in_scan(key):
    def halve(x):
        return lax.while_loop(lambda v: v > 1, lambda v: v / 2, x)

    def step(c, x):
        low, high = c
        low, high = lax.cond(x > 0, lambda: (halve(jnp.abs(high) + x), low), lambda: (high - x, halve(low + 3)))
        return (low, high), (high, low)

    return lax.scan(step, (jnp.float32(0), jnp.float32(5)), jax.random.normal(key, (40,)))


@program("control/donated_state")
def donated_state(key):
    step = jax.jit(lambda s, i: (s[1], s[0].at[i % 8].add(i), s[2] + s[0].sum()), donate_argnums=0)
    state = (jnp.zeros(8), jnp.ones(8), jax.random.normal(key))
    for i in range(10):
        state = step(state, i)
    return state


@program("control/integers_of_all_kinds")
def integers_of_all_kinds(key):
    results = []
    for kind in (jnp.int8, jnp.uint8, jnp.int16, jnp.uint16, jnp.int32, jnp.uint32):
        x = jax.random.bits(key, (50,), jnp.uint32).astype(kind)

        def body(i, c):
            a, b = c
            a, b = jnp.where(i % 2 == 0, b, a), jnp.where(i % 2 == 0, a * 3 + 1, b ^ a)
            return a, (b >> 1) + (b << 2)

        results.append(lax.fori_loop(0, 9, body, (x, x[::-1])))
    return results


@program("control/x64_pendulum", x64=True)
def x64_pendulum(key):
    def step(state, _):
        q, p = state
        p = p - 0.01 * jnp.sin(q)
        q = q + 0.01 * p
        return (q, p), p * p / 2 - jnp.cos(q)

    q = jax.random.normal(key, (10,), jnp.float64)
    return lax.scan(step, (q, jnp.zeros(10)), None, length=500)


@program("control/map_and_batches")
def map_and_batches(key):
    x = jax.random.normal(key, (23, 6))
    return lax.map(lambda r: jnp.sort(r) @ r, x), lax.map(jnp.cumsum, x, batch_size=5)
