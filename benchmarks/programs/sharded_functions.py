"""JAX programs over several devices: functions of libraries, grids, and elements at places, as people write them."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, split, words

_ROWS, _COLUMNS = P("x"), P(None, "x")
_TURNED = (5, 2, 7, 0, 3, 6, 1, 4)
_KEY = jax.random.key_data(jax.random.key(7))


# -- linear algebra --------------------------------------------------------------------------------------


def _spd(x: Any) -> Any:
    return x @ jnp.swapaxes(x, -1, -2) + x.shape[-1] * jnp.eye(x.shape[-1])


def _whitened(x: Any) -> Any:
    centered = x - x.mean(0)
    factor = jnp.linalg.cholesky(centered.T @ centered / x.shape[0] + 0.1 * jnp.eye(x.shape[1]))
    return jax.scipy.linalg.solve_triangular(factor, centered.T, lower=True).T


def _gaussian_process(x: Any, y: Any) -> Any:
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    factor = jnp.linalg.cholesky(jnp.exp(-distances) + 0.5 * jnp.eye(x.shape[0]))
    weights = jax.scipy.linalg.cho_solve((factor, True), y)
    return weights, 2 * jnp.log(jnp.diagonal(factor)).sum()


def _projected(x: Any) -> Any:
    q, r = jnp.linalg.qr(x)
    return jnp.abs(jnp.einsum("bij,bkj->bik", q, q)), jnp.abs(r)


def _determinants(x: Any) -> Any:
    sign, log = jnp.linalg.slogdet(_spd(x))
    return sign, log, jnp.linalg.inv(_spd(x))


def _power(x: Any) -> Any:
    def step(v: Any, _: Any) -> Any:
        v = x @ v
        return v / jnp.linalg.norm(v), None

    v, _ = lax.scan(step, jnp.ones(x.shape[1]), None, length=10)
    return v @ (x @ v)


# -- grids -----------------------------------------------------------------------------------------------


def _life(u: Any) -> Any:
    alive = sum(jnp.roll(u, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) - u
    return ((alive == 3) | ((alive == 2) & (u == 1))).astype(u.dtype)


def _lattice(f: Any) -> Any:
    """A step of a lattice Boltzmann method in nine directions."""
    moves = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    f = jnp.stack([jnp.roll(f[n], move, (0, 1)) for n, move in enumerate(moves)])
    rho = f.sum(0)
    u = jnp.stack([sum(m[d] * f[n] for n, m in enumerate(moves)) / (1 + rho**2) for d in range(2)])
    even = jnp.stack([rho / 9 * (1 + 3 * (m[0] * u[0] + m[1] * u[1])) for m in moves])
    return f + 0.6 * (even - f)


def _multigrid(u: Any) -> Any:
    """Smoothed, taken to half as many points, smoothed there, and brought back."""

    def smooth(a: Any) -> Any:
        return (jnp.pad(a, ((1, 1), (0, 0)))[2:] + jnp.pad(a, ((1, 1), (0, 0)))[:-2]) / 2

    coarse = smooth((u[::2] + u[1::2]) / 2)
    return smooth(u) + jnp.repeat(coarse, 2, 0)


def _red_black(u: Any) -> Any:
    red = (jnp.roll(u, 1, 0)[::2] + jnp.roll(u, -1, 0)[::2]) / 2
    u = u.at[::2].set(red)
    return u.at[1::2].set((u[::2] + jnp.roll(u, -2, 0)[::2]) / 2)


def _tridiagonal(a: Any, b: Any, c: Any, d: Any) -> Any:
    def forward(carry: Any, row: Any) -> Any:
        a, b, c, d = row
        m = b - a * carry[0]
        new = c / m, (d - a * carry[1]) / m
        return new, new

    _, (cs, ds) = lax.scan(forward, (jnp.zeros_like(a[0]),) * 2, (a, b, c, d))
    return lax.scan(lambda x, row: (row[1] - row[0] * x,) * 2, jnp.zeros_like(a[0]), (cs, ds), reverse=True)[1]


def _enlarged(x: Any, kernel: Any) -> Any:
    return lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _volume(x: Any, kernel: Any) -> Any:
    return lax.conv_general_dilated(x, kernel, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))


def _separable(x: Any, deep: Any, wide: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    h = lax.conv_general_dilated(x, deep, (2, 2), "SAME", dimension_numbers=dims, feature_group_count=x.shape[-1])
    return (lax.conv_general_dilated(jax.nn.relu(h), wide, (1, 1), "SAME", dimension_numbers=dims) ** 2).mean((1, 2))


# -- orders, sums, places --------------------------------------------------------------------------------


def _cumulative(x: Any) -> Any:
    return jnp.cumprod(1 + 0.01 * x, 0), lax.cummax(x, 0, reverse=True), lax.cumlogsumexp(x, 1), jnp.cumsum(x[::-1], 0)


def _sorted_pairs(x: Any) -> Any:
    keys, values = lax.sort((jnp.round(x), x), dimension=1, num_keys=2)
    return keys, values, jnp.argsort(x, 1), lax.top_k(x, 3)[1]


def _moved_blocks(x: Any, at: Any) -> Any:
    block = lax.dynamic_slice(x, (at, 0), (12, x.shape[1]))
    return block, lax.dynamic_update_slice(x, 2 * block, (at + 5, 0))


def _cache(keys: Any, new: Any, at: Any) -> Any:
    """A key written to its place, and scores with all keys."""
    keys = lax.dynamic_update_slice(keys, new[:, None], (0, at, 0))
    scores = jnp.where(jnp.arange(keys.shape[1]) <= at, jnp.einsum("bd,bsd->bs", new, keys), -jnp.inf)
    return keys, jax.nn.softmax(scores)


def _scattered_extremes(x: Any, ids: Any) -> Any:
    base = jnp.zeros((64, x.shape[1]))
    return base.at[ids].min(x), base.at[ids].max(x), jax.ops.segment_sum(x, ids, 64), (base + 1).at[ids].multiply(x)


def _along_places(x: Any, ids: Any) -> Any:
    return jnp.take_along_axis(x, ids, 0), jnp.take(x, ids[:, 0], 0), x[ids[:, 0], ids[:, 1] % x.shape[1]]


def _draws(key: Any) -> Any:
    keys = jax.random.split(jax.random.wrap_key_data(key), 3)
    return (
        jax.random.normal(keys[0], (128, 16)),
        jax.random.bits(keys[1], (256,)),
        jax.random.uniform(keys[2], (64, 8), minval=-1),
    )


def _spectrum(x: Any) -> Any:
    return jnp.abs(jnp.fft.rfft(x)), jnp.fft.irfft(jnp.fft.rfft(x, axis=0), axis=0)


def _convolved_by_spectrum(x: Any, kernel: Any) -> Any:
    return jnp.fft.irfft2(jnp.fft.rfft2(x) * jnp.fft.rfft2(kernel, s=x.shape[-2:]), s=x.shape[-2:])


def _constrained_scan(x: Any, w: Any) -> Any:
    def step(h: Any, w: Any) -> Any:
        h = split(jnp.tanh(h @ w), "x", "y")
        return split(h, "x"), h.sum()

    return lax.scan(step, x, w)


FUNCTIONS: dict[str, Program] = {
    "whitened": Program(_whitened, (floats(512, 16),), (_ROWS,)),
    "Gaussian process": Program(_gaussian_process, (floats(64, 3), floats(64)), (_ROWS, _ROWS)),
    "QR of a split batch": Program(_projected, (floats(16, 8, 4),), (_ROWS,)),
    "determinants and inverses of a split batch": Program(_determinants, (floats(16, 6, 6),), (_ROWS,)),
    "Cholesky, split rows": Program(lambda x: jnp.linalg.cholesky(_spd(x)), (floats(32, 32),), (_ROWS,)),
    "triangular systems, split right sides": Program(
        lambda a, b: lax.linalg.triangular_solve(jnp.linalg.cholesky(_spd(a)), b, left_side=True, lower=True),
        (floats(32, 32), floats(32, 64)),
        (P(), _COLUMNS),
    ),
    "largest eigenvalue by powers": Program(_power, (floats(64, 64) / 8,), (_ROWS,)),
    "life": Program(_life, (words(32, 32, below=2),), (P("x", "y"),), GRID),
    "lattice Boltzmann": Program(_lattice, (abs(floats(9, 32, 16)),), (P(None, "x", "y"),), GRID, devices=_TURNED),
    "two grids": Program(_multigrid, (floats(64, 8),), (_ROWS,)),
    "red and black": Program(_red_black, (floats(64, 8),), (_ROWS,)),
    "tridiagonal systems, split columns": Program(
        _tridiagonal,
        (floats(16, 64), 4 + abs(floats(16, 64)), floats(16, 64, seed=1), floats(16, 64, seed=2)),
        (_COLUMNS,) * 4,
    ),
    "transposed convolution, rows": Program(_enlarged, (floats(2, 16, 8, 4), floats(4, 4, 4, 4)), (_COLUMNS, P())),
    "convolution of a volume, two axes": Program(
        _volume, (floats(1, 16, 8, 8, 2), floats(3, 3, 3, 2, 4)), (P(None, "x", "y"), P()), GRID
    ),
    "separable convolution, rows": Program(
        _separable, (floats(2, 32, 16, 8), floats(3, 3, 1, 8), floats(1, 1, 8, 16)), (_COLUMNS, P(), P())
    ),
    "cumulative products, maxima, sums": Program(_cumulative, (floats(64, 16),), (_ROWS,)),
    "cumulative, split both ways": Program(_cumulative, (floats(64, 16),), (P("x", "y"),), GRID),
    "pairs sorted in split rows": Program(_sorted_pairs, (floats(32, 16),), (_ROWS,)),
    "blocks at a traced place": Program(_moved_blocks, (floats(64, 16), words(below=9)), (_ROWS, P())),
    "keys at a traced place, split sequence": Program(
        _cache, (floats(4, 64, 8), floats(4, 8), words(below=60)), (_COLUMNS, P(), P())
    ),
    "least, largest, sums and products of segments": Program(
        _scattered_extremes, (floats(128, 8), words(128, below=64)), (_ROWS, _ROWS)
    ),
    "elements along split places": Program(_along_places, (floats(64, 16), words(32, 16, below=64)), (_ROWS, P())),
    "random numbers of split shapes": Program(_draws, (_KEY,), (P(),), results=(_ROWS, _ROWS, P("x"))),
    "real transforms, split rows": Program(_spectrum, (floats(64, 32),), (_ROWS,)),
    "convolution by transforms, split batch": Program(
        _convolved_by_spectrum, (floats(8, 16, 16), floats(4, 4)), (_ROWS, P())
    ),
    "constraints in a loop": Program(
        _constrained_scan, (floats(32, 16), floats(5, 16, 16) / 4), (P("x"), P(None, None, "y")), GRID
    ),
    "uneven grids": Program(_lattice, (abs(floats(9, 30, 14)),), (P(None, "x"),), (5,)),
}
