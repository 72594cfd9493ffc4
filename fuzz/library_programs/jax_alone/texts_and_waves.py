"""Texts, checksums and sorting networks in integers; waves of complex numbers under real operators."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jax import lax

from fuzz.library_programs.registry import program


@program("texts/numbers_read")
def numbers_read(key):
    """Numbers are written with commas between them, and read again by a machine of states."""
    count = 60
    values = jax.random.randint(key, (count,), -9999, 9999)

    def written(value):
        digits = (jnp.abs(value) // jnp.asarray([1000, 100, 10, 1])) % 10
        begun = (jnp.cumsum(digits != 0) > 0).at[-1].set(True)
        sign = jnp.where(value < 0, ord("-"), 0)
        return jnp.concatenate([sign[None], jnp.where(begun, digits + ord("0"), 0), jnp.asarray([ord(",")])])

    places = jax.vmap(written)(values).reshape(-1).astype(jnp.uint8)
    text = places[jnp.argsort(places == 0, stable=True)]

    def step(state, c):
        number, sign = state
        ends = c == ord(",")
        digit = (c >= ord("0")) & (c <= ord("9"))
        further = jnp.where(digit, number * 10 + (c.astype(jnp.int32) - ord("0")), number)
        negative = jnp.where(c == ord("-"), -1, sign)
        return (jnp.where(ends, 0, further), jnp.where(ends, 1, negative)), (sign * number, ends)

    _, (found, ends) = lax.scan(step, (0, 1), text)
    return text, found[jnp.nonzero(ends, size=count)[0]] - values


@program("texts/checksums")
def checksums(key):
    data = jax.random.bits(key, (300,), jnp.uint8)
    entries = jnp.arange(256, dtype=jnp.uint32)
    polynomial = jnp.uint32(0xEDB88320)
    table = lax.fori_loop(0, 8, lambda _, c: jnp.where(c & 1 == 1, (c >> 1) ^ polynomial, c >> 1), entries)

    def cyclic(c, byte):
        return table[(c ^ byte.astype(jnp.uint32)) & 0xFF] ^ (c >> 8), None

    def sums(state, byte):
        low = (state[0] + byte) % 65521
        return (low, (state[1] + low) % 65521), state[0] * state[1]

    (low, high), products = lax.scan(sums, (jnp.uint32(1), jnp.uint32(0)), data.astype(jnp.uint32))
    return ~lax.scan(cyclic, jnp.uint32(0xFFFFFFFF), data)[0], high << 16 | low, products


@program("texts/local_alignments")
def local_alignments(key):
    """Gaps cost more to begin than to go on; in integers and floats of several widths."""
    left = jax.random.randint(key, (30,), 0, 4)
    right = jax.random.randint(jax.random.fold_in(key, 1), (40,), 0, 4)

    def align(kind):
        def row(state, letter):
            above, gaps = state
            gaps = jnp.maximum(above[1:] - kind(5), gaps - kind(1))
            matched = above[:-1] + jnp.where(right == letter, kind(3), kind(-2))

            def cell(before, given):
                best, gap = before
                gap = jnp.maximum(best - kind(5), gap - kind(1))
                best = jnp.maximum(jnp.maximum(*given), jnp.maximum(gap, kind(0)))
                return (best, gap), best

            _, scores = lax.scan(cell, (kind(0), kind(-100)), (gaps, matched))
            return (jnp.concatenate([jnp.zeros(1, kind), scores]), gaps), scores

        table = lax.scan(row, (jnp.zeros(41, kind), jnp.full(40, -100, kind)), left)[1]
        return table, jnp.unravel_index(jnp.argmax(table), table.shape)

    return [align(kind) for kind in (jnp.int8, jnp.int16, jnp.float32, jnp.bfloat16)]


@program("texts/sorting_network")
def sorting_network(key):
    x = jax.random.normal(key, (5, 32))
    places = jnp.arange(32)
    stages = [(2 << a, 1 << b) for a in range(5) for b in range(a, -1, -1)]

    def exchanged(x, stage):
        size, distance = stage
        other = x[places ^ distance]
        smaller = ((places & distance) == 0) == ((places & size) == 0)
        return jnp.where(smaller, jnp.minimum(x, other), jnp.maximum(x, other))

    def written_out(x):
        return functools.reduce(exchanged, stages, x)

    rolled = jax.vmap(lambda x: lax.scan(lambda x, s: (exchanged(x, s), None), x, jnp.asarray(stages))[0])(x)
    slopes = jax.vmap(jax.grad(lambda x: written_out(x) @ jnp.arange(32.0)))(x)
    return jax.vmap(written_out)(x), rolled, slopes


@program("waves/real_operators")
def real_operators(key):
    """Crank and Nicolson's steps, and powers: a real matrix times one complex vector, and times a few."""
    n = 48
    x = jnp.linspace(-5, 5, n)
    step = x[1] - x[0]
    energy = (2 * jnp.eye(n) - jnp.eye(n, k=1) - jnp.eye(n, k=-1)) / (2 * step**2) + jnp.diag(0.5 * x**2)
    factors = jax.scipy.linalg.lu_factor(jnp.eye(n) + 0.02j * energy)
    wave = (jnp.exp(-((x - 1) ** 2)) * jnp.exp(2j * x)).astype(jnp.complex64)

    def forward(wave, _):
        wave = jax.scipy.linalg.lu_solve(factors, wave - 0.02j * (energy @ wave))
        return wave, jnp.vdot(wave, x * wave).real

    noise = jax.random.normal(key, (n, 3), jnp.complex64)
    powers = lax.fori_loop(0, 10, lambda _, v: (energy @ v) / jnp.max(jnp.abs(v)), noise)
    return lax.scan(forward, wave, None, length=20), powers / jnp.max(jnp.abs(powers)), noise.T @ energy


@program("waves/many_sines")
def many_sines(key):
    """Code with dozens of elementary functions one after another, and side by side."""
    x = jax.random.uniform(key, (21,), maxval=2.0)
    nested = functools.reduce(lambda a, i: jnp.sin(a) * 1.001 + 1e-3 * i, range(50), x)
    series = sum(jnp.sin(x * i) / i + jnp.exp(-i * x) for i in range(1, 30))
    return nested, series, jax.grad(lambda x: functools.reduce(lambda a, _: jnp.tanh(a) * 1.2, range(20), x).sum())(x)
