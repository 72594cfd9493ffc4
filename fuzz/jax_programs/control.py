"""Loops, branches, and JAX's transformations of whole functions, around operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.jax_programs.operations import KINDS, OPERATIONS, Source, Value, Values, alike, constant_bits, fit, number

_DEPTH = 3


def program(seed: str, depth: int = 0) -> Callable[..., tuple[Value, ...]]:
    """A function of any arrays that gives some arrays: operations, and control flow that holds programs in its turn."""

    def run(*values: Value) -> tuple[Value, ...]:
        r = Source(seed)
        known = list(values)
        for _ in range(r.randint(2, 9 - 2 * depth)):
            known.extend(_step(r, known, depth))
        chosen = [r.choice(known) for _ in range(r.randint(1, 4))]
        # What constants there are in the end tells whether they were lost on the way.
        told = [constant_bits(r, known)] if depth == 0 and r.random() < 0.5 else []
        # The newest value is what most of the others are for.
        return (known[-1], *chosen, *told)

    return run


def _step(r: Source, known: Values, depth: int) -> Sequence[Value]:
    if depth < _DEPTH and r.random() < (0.35, 0.3, 0.2)[depth]:
        return r.choice(_CONTROL)(r, known, depth)
    return [r.choice(OPERATIONS)(r, known)]


def _carry(r: Source, known: Values) -> list[Value]:
    """What a loop begins with: some values, maybe one of them twice."""
    carry = [r.choice(known) for _ in range(r.randint(1, 4))]
    return [*carry, r.choice(carry)] if r.random() < 0.3 else carry


def _next(r: Source, carry: Values, made: Values) -> tuple[Value, ...]:
    """What follows a carried tuple: each element new, kept, another one's, or one of two by a test."""
    following: list[Value] = []
    test = number(r, r.choice([*carry, *made]), 2) == 0
    for own in carry:
        like = [v for v in carry if v.shape == own.shape and v.dtype == own.dtype]
        new, other = alike(r, r.choice(made), own), r.choice(like)
        way = r.randrange(6)
        if way == 0:
            following.append(own)
        elif way == 1:
            following.append(other)
        elif way == 2:
            following.append(jnp.where(test, own, other))
        elif way == 3:
            following.append(jnp.where(test, new, own))
        else:
            following.append(new)
    return tuple(following)


def _fori(r: Source, known: Values, depth: int) -> Sequence[Value]:
    carry, outside, seed = _carry(r, known), r.choice(known), r.seed_of_part()
    count: Any = r.randrange(6) if r.random() < 0.7 else number(r, r.choice(known), 5)

    def body(i: Value, state: Sequence[Value]) -> tuple[Value, ...]:
        inner = Source(seed)
        made = program(seed, depth + 1)(*state, i, outside)
        return _next(inner, state, [*made, i])

    return lax.fori_loop(0, count, body, tuple(carry))


def _while(r: Source, known: Values, depth: int) -> Sequence[Value]:
    carry, outside, seed, most = _carry(r, known), r.choice(known), r.seed_of_part(), r.randint(1, 7)

    def condition(state: Sequence[Value]) -> Value:
        inner = Source(f"{seed} condition")
        made = [inner.choice(OPERATIONS)(inner, state[1:]) for _ in range(inner.randint(1, 3))]
        return (number(inner, made[-1], 5) != 1) & (state[0] < most)

    def body(state: Sequence[Value]) -> tuple[Value, ...]:
        inner = Source(seed)
        made = program(seed, depth + 1)(*state, outside)
        return (state[0] + 1, *_next(inner, state[1:], made))

    return lax.while_loop(condition, body, (jnp.int32(0), *carry))[r.randrange(2) :]


def _scan(r: Source, known: Values, depth: int) -> Sequence[Value]:
    carry, seed, length = _carry(r, known), r.seed_of_part(), r.choice([1, 3, 5])
    xs = [fit(r, r.choice(known), (length, *r.choice(r.rows))) for _ in range(r.randint(0, 2))]

    def body(state: Sequence[Value], row: Sequence[Value]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        inner = Source(seed)
        made = program(seed, depth + 1)(*state, *row)
        given = [v for v in made if v.size <= inner.most // 8] or [jnp.int32(1)]
        return _next(inner, state, made), (inner.choice(given), state[0])

    end, stacked = lax.scan(
        body, tuple(carry), tuple(xs), length, reverse=r.random() < 0.3, unroll=r.choice([1, 1, 1, 2])
    )
    return [*end, *stacked]


def _branches(r: Source, known: Values, depth: int) -> Sequence[Value]:
    arguments, seeds = _carry(r, known), [r.seed_of_part() for _ in range(r.randint(2, 3))]

    def branch(seed: str) -> Callable[..., tuple[Value, ...]]:
        def run(*values: Value) -> tuple[Value, ...]:
            inner = Source(seed)
            return _next(inner, values, program(seed, depth + 1)(*values))

        return run

    chosen = number(r, r.choice(known), len(seeds) + 1)
    if len(seeds) == 2 and r.random() < 0.7:
        return lax.cond(chosen == 0, branch(seeds[0]), branch(seeds[1]), *arguments)
    return lax.switch(chosen, [branch(s) for s in seeds], *arguments)


def _vmap(r: Source, known: Values, depth: int) -> Sequence[Value]:
    """A program over the rows of some values, while others are the same for each row."""
    seed, rows = r.seed_of_part(), r.choice([1, 3, 4])
    batched = [fit(r, r.choice(known), (rows, *r.choice(r.rows))) for _ in range(r.randint(1, 2))]
    same = r.choice(known)
    given = jax.vmap(program(seed, depth + 1), in_axes=(*(0 for _ in batched), None))(*batched, same)
    return [v for v in given if v.size <= r.most] or [same]


def _call(r: Source, known: Values, depth: int) -> Sequence[Value]:
    """A program behind a jit or a checkpoint of its own."""
    wrapped = r.choice([jax.jit, jax.checkpoint])(program(r.seed_of_part(), depth + 1))
    return [v for v in wrapped(*_carry(r, known)) if v.size <= r.most] or [known[0]]


_CONTROL = (_fori, _fori, _while, _while, _scan, _branches, _vmap, _call)


def arguments(seed: str) -> list[tuple[str, tuple[int, ...]]]:
    """The types and shapes of a program's arguments."""
    r = Source(f"{seed} arguments")
    kinds = [(r.choice(KINDS), r.choice(r.shapes)) for _ in range(r.randint(1, 5))]
    return [*kinds, r.choice(kinds)]
