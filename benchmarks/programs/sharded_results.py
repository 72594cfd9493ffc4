"""Small JAX programs over eight devices whose results are split as propagation finds, and operations that want the same
axes for two dimensions.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, words

_A, _B = floats(16, 32), floats(32, 64, seed=1)
_SQUARE = floats(16, 64)
_BOTH = (P("x", "y"),)


def _convolved(x: Any, kernel: Any) -> Any:
    labels = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=labels, feature_group_count=8)


def _products(x: Any, weights: Any) -> Any:
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum(0)), x, weights)


def _either(which: Any, x: Any, y: Any) -> Any:
    return lax.cond(which > 0, lambda x, y: (x @ y, x), lambda x, y: (x - 1, x * 2), x, y)


def _until(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5 + s[1].mean(0)), (0, x))


RESULTS: dict[str, Program] = {
    "rows over both axes, columns over one": Program(jnp.matmul, (_A, _B), (P(("x", "y")), P(None, "y")), GRID),
    "rows and columns over one axis": Program(jnp.matmul, (_A, _B), (P("x"), P(None, "x")), GRID),
    "rows and columns over both axes": Program(jnp.matmul, (_A, _B), (P(("x", "y")), P(None, ("x", "y"))), GRID),
    "operands split in both dimensions": Program(jnp.matmul, (_A, _B), (P("x", "y"), P("y", "x")), GRID),
    "sum of two splits": Program(lambda x, y: jnp.tanh(x) + y, (_A, floats(16, 32, seed=2)), (P("x"), P(None, "x"))),
    "outer product": Program(lambda x, y: x[:, :1] * y[:1], (_A, _B), (P("x"), P(None, "y")), GRID),
    "sorted both ways": Program(lambda x: (jnp.sort(x, 0), jnp.sort(x, 1)), (_SQUARE,), _BOTH, GRID),
    "transformed both ways": Program(
        lambda x: (jnp.abs(jnp.fft.fft(x, axis=0)), jnp.abs(jnp.fft.rfft(x))), (_SQUARE,), _BOTH, GRID
    ),
    "concatenated both ways": Program(
        lambda x, y: (jnp.concatenate([x, y]), jnp.concatenate([x, y], 1), jnp.stack([x, y])),
        (_SQUARE, floats(16, 64, seed=1)),
        _BOTH * 2,
        GRID,
    ),
    "concatenated, otherwise split": Program(
        lambda x, y: jnp.concatenate([x, y], 1), (_SQUARE, floats(16, 64, seed=1)), (P("x"), P(None, "y")), GRID
    ),
    "slices": Program(lambda x: (x[:8], x[:, 8:24], x[::2], x[3]), (_SQUARE,), _BOTH, GRID),
    "an updated slice": Program(
        lambda x, i: lax.dynamic_update_slice_in_dim(x, x[:4], i, 0), (_SQUARE, np.int32(5)), (*_BOTH, P()), GRID
    ),
    "depthwise convolution": Program(
        _convolved,
        (floats(8, 16, 16, 8), floats(3, 3, 1, 8)),
        (P("x", None, None, "y"), P(None, None, None, "y")),
        GRID,
    ),
    "depthwise convolution, gradient": Program(
        jax.grad(lambda x, k: (_convolved(x, k) ** 2).sum(), (0, 1)),
        (floats(8, 16, 16, 8), floats(3, 3, 1, 8)),
        (P("x", None, None, "y"), P(None, None, None, "y")),
        GRID,
    ),
    "products in a loop": Program(_products, (_A, floats(4, 32, 32) / 6), (P("x"), P(None, None, "y")), GRID),
    "products in a branch": Program(
        _either, (np.int32(1), floats(32, 32), floats(32, 32, seed=1)), (P(), P("x"), P(None, "y")), GRID
    ),
    "means in a loop": Program(_until, (_A,), _BOTH, GRID),
    "reshapes": Program(lambda x: (x.reshape(4, 32, 64), x.reshape(128, 8, 8)), (floats(128, 64),), _BOTH, GRID),
    "repeats": Program(lambda x: (jnp.tile(x, (2, 1)), jnp.repeat(x, 2, 0)), (_A,), _BOTH, GRID),
    "one-hot words": Program(
        lambda i, t: jax.nn.one_hot(i, 64) @ t, (words(16, 8, below=64), floats(64, 32)), (P("x"), P("y")), GRID
    ),
}
