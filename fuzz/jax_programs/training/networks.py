"""Whole networks: blocks in a row, around which values pass, that are computed again backward, or are scanned over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuzz.jax_programs.training import features, images, sequences
from fuzz.jax_programs.training.draft import SIZES, Apply, Block, Draft, Parameters, Shape, chained

_OF_FEATURES = (
    *(features.dense,) * 3,
    *(features.norm,) * 3,
    *(features.activation,) * 2,
    *(features.dropout,) * 2,
    features.gate,
    *(features.network,) * 2,
    features.experts,
    features.low_rank,
)
_OF_ROWS = (
    *(sequences.attention,) * 4,
    sequences.linear_attention,
    *(sequences.recurrence,) * 2,
    sequences.state_space,
    *(sequences.convolution,) * 2,
    sequences.rows_mixed,
    features.squeeze,
    *(features.network,) * 2,
    features.norm,
    features.gate,
    features.experts,
    features.dropout,
)
_OF_IMAGES = (
    *(images.convolution,) * 4,
    images.transposed,
    images.pooled,
    images.resized,
    features.norm,
    features.norm,
    features.activation,
    features.squeeze,
    features.dropout,
)
_BY_RANK: dict[int, tuple[Callable[[Draft, Shape], Block], ...]] = {2: _OF_FEATURES, 3: _OF_ROWS, 4: _OF_IMAGES}
_LARGEST = 40_000


@dataclass(frozen=True, slots=True)
class Network:
    """What is applied to values, with their shape and that of the results; of tokens there are so many."""

    apply: Apply
    given: Shape
    made: Shape
    tokens: int = 0


def network(d: Draft) -> Network:
    """A network on tokens, or on rows, sequences or images of numbers."""
    batch = d.rng.choice([1, 2, 3, 4, 5, 8, 13, 16])
    kind = d.rng.choice(["rows", "rows", "rows", "rows", "sequence", "sequence", "tokens", "images"])
    tokens, blocks = 0, list[Apply]()
    if kind == "rows":
        shape: Shape = (d.rng.choice([1, 3, 8, 16, 17, 32, 33, 64]), d.rng.choice(SIZES))
    elif kind == "images":
        shape = (min(batch, 5), d.rng.choice([6, 8, 9, 13]), d.rng.choice([6, 8, 11, 16]), d.rng.choice([1, 3, 4]))
    else:
        shape = (batch, d.rng.choice([4, 7, 12, 16, 17, 27, 33]), d.rng.choice(SIZES))
    given, table = shape, ""
    if kind == "tokens":
        tokens, given = d.rng.choice([11, 29, 50, 128]), shape[:2]
        table = d.weight((tokens, shape[-1]))
        places = d.weight((shape[1], shape[-1])) if d.chance(0.4) else ""

        def embed(p: Parameters, x: Any, key: Any) -> Any:
            found = d.cast(p[table])[x]
            return found + d.cast(p[places]) if places else found

        blocks.append(embed)
    for _ in range(d.rng.choice([1, 1, 2, 2, 3, 4])):
        block, shape = _placed(d, shape)
        blocks.append(block)
    if len(shape) == 4 and d.chance(0.8):
        block, shape = (images.flat if d.chance(0.6) else images.rows_of)(d, shape)
        blocks.append(block)
        if shape[-1] <= 300:
            block, shape = _placed(d, shape)
            blocks.append(block)
    if table and len(shape) == 3 and d.chance(0.7):
        block, shape = features.dense(d, shape, d.parameters[table].shape[-1])
        blocks += [block, lambda p, x, key: x @ d.cast(p[table]).T]
        shape = (*shape[:-1], tokens)
    return Network(chained(*blocks), given, shape, tokens)


def _placed(d: Draft, shape: Shape) -> Block:
    """A block, or two as one, by itself, around which values pass, or in another way."""
    if d.chance(0.12) and len(shape) < 4:
        return _scanned(d, shape)
    before = features.norm(d, shape)[0] if d.chance(0.5) else None
    block, made = d.rng.choice(_BY_RANK[len(shape)])(d, shape)
    if np.prod(made) > _LARGEST:
        return features.norm(d, shape)
    if d.chance(0.3):
        more, made = d.rng.choice([features.activation, features.norm, features.dropout])(d, made)
        block = chained(block, more)
    block = chained(before, block) if before else block
    if made == shape and d.chance(0.7):
        block = _passed(d, block)
    if d.chance(0.15):
        block = jax.checkpoint(block)
    if d.chance(0.1) and not before:
        block = _mapped(block)
    return block, made


def _passed(d: Draft, block: Apply) -> Apply:
    scaled = d.weight((), center=1.0) if d.chance(0.2) else ""

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        y = block(p, x, key)
        return x + (y * d.cast(p[scaled]) if scaled else y)

    return apply


def _mapped(block: Apply) -> Apply:
    """The block on each example by itself."""

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        return jax.vmap(lambda one: block(p, one[None], key)[0])(x)

    return apply


def _scanned(d: Draft, shape: Shape) -> Block:
    """Layers of the same kind, whose parameters are stacked."""
    inner = Draft(d.rng, d.numbers, d.stored, d.computed)
    kinds = (features.network, features.gate) if len(shape) == 2 else (features.network, sequences.attention)
    block = chained(features.norm(inner, shape)[0], d.rng.choice(kinds)(inner, shape)[0])
    layers, saved = d.rng.choice([2, 3, 5]), d.chance(0.5)
    names: dict[str, str] = {}
    for name, value in inner.parameters.items():
        names[name] = d.weight(())
        noise = d.numbers.standard_normal((layers, *value.shape)) * 0.05
        d.parameters[names[name]] = (value.astype(np.float64) + noise).astype(d.stored)

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        stacked = {name: p[outer] for name, outer in names.items()}
        keys = None if key is None else key + jnp.arange(layers, dtype=jnp.uint32)

        def layer(x: Any, given: tuple[Parameters, Any]) -> tuple[Any, None]:
            return x + block(given[0], x, given[1]), None

        return lax.scan(jax.checkpoint(layer) if saved else layer, x, (stacked, keys))[0]

    return apply, shape
