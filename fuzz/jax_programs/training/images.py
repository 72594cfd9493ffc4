"""Blocks on images: convolutions in two dimensions, pooling, other sizes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuzz.jax_programs.training.draft import Block, Draft, Parameters, Shape

_FEATURES = (3, 7, 8, 16, 17, 24)


def convolution(d: Draft, shape: Shape) -> Block:
    """A convolution: strided, dilated, in groups or of each feature alone."""
    _, height, width, features = shape
    window, dilation = d.rng.choice([1, 2, 3, 3, 5]), d.rng.choice([1, 1, 1, 2])
    stride = d.rng.choice([1, 1, 2]) if min(height, width) > 4 else 1
    groups = d.rng.choice([1, 1, features, next((g for g in (2, 3) if features % g == 0), 1)])
    made = groups * d.rng.choice([1, 2]) if groups > 1 else d.rng.choice([features, *_FEATURES])
    w = d.weight((window, window, features // groups, made), window * window * features // groups)
    b = d.weight((made,)) if d.chance(0.5) else ""
    order = d.rng.choice(["NHWC", "NHWC", "NCHW"])

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        x = jnp.moveaxis(x, -1, 1) if order == "NCHW" else x
        y = lax.conv_general_dilated(
            x,
            d.cast(p[w]),
            (stride, stride),
            "SAME",
            rhs_dilation=(dilation, dilation),
            dimension_numbers=(order, "HWIO", order),
            feature_group_count=groups,
        )
        y = jnp.moveaxis(y, 1, -1) if order == "NCHW" else y
        return y + d.cast(p[b]) if b else y

    return apply, (shape[0], -(-height // stride), -(-width // stride), made)


def transposed(d: Draft, shape: Shape) -> Block:
    """A convolution that makes images of twice the size."""
    made = d.rng.choice(_FEATURES)
    w = d.weight((3, 3, shape[-1], made), 3 * shape[-1])

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        return lax.conv_transpose(x, d.cast(p[w]), (2, 2), "SAME")

    return apply, (shape[0], 2 * shape[1], 2 * shape[2], made)


def pooled(d: Draft, shape: Shape) -> Block:
    """The greatest or the mean of each window, or of each square."""
    how, window = d.rng.choice(["max", "mean", "square"]), d.rng.choice([2, 3])
    if min(shape[1:3]) < 4:
        return (lambda p, x, key: x), shape
    sizes = tuple(size // 2 for size in shape[1:3]) if how == "square" else tuple(-(-s // 2) for s in shape[1:3])

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        windows, strides = (1, window, window, 1), (1, 2, 2, 1)
        if how == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, windows, strides, "SAME")
        if how == "mean":
            sums = lax.reduce_window(x, 0.0, lax.add, windows, strides, "SAME")
            return sums / lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, windows, strides, "SAME")
        cut = x[:, : 2 * sizes[0], : 2 * sizes[1]]
        return cut.reshape(x.shape[0], sizes[0], 2, sizes[1], 2, x.shape[-1]).mean((2, 4))

    return apply, (shape[0], *sizes, shape[-1])


def resized(d: Draft, shape: Shape) -> Block:
    """Images of another size by interpolation."""
    how = d.rng.choice(["nearest", "bilinear"])
    made = (shape[0], shape[1] + d.rng.choice([-2, 1, 3]), shape[2] * 2 if shape[2] < 9 else shape[2] - 3, shape[-1])
    made = (made[0], max(made[1], 3), *made[2:])
    return (lambda p, x, key: jax.image.resize(x, (x.shape[0], *made[1:]), how)), made


def rows_of(d: Draft, shape: Shape) -> Block:
    """A sequence of patches, or of the places."""
    patch = 2 if shape[1] % 2 == shape[2] % 2 == 0 and d.chance(0.6) else 1
    rows, columns = shape[1] // patch, shape[2] // patch
    made = (shape[0], rows * columns, patch * patch * shape[-1])

    def apply(p: Parameters, x: Any, key: Any) -> Any:
        x = x.reshape(x.shape[0], rows, patch, columns, patch, x.shape[-1])
        return jnp.swapaxes(x, 2, 3).reshape(x.shape[0], *made[1:])

    return apply, made


def flat(d: Draft, shape: Shape) -> Block:
    """One row of each image: all of it, or means."""
    whole = d.chance(0.4) and int(np.prod(shape[1:])) < 2000
    made = (shape[0], int(np.prod(shape[1:]))) if whole else (shape[0], shape[-1])
    return (lambda p, x, key: x.reshape(x.shape[0], -1) if whole else x.mean((1, 2))), made
