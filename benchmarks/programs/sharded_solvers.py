"""JAX programs over eight devices: solvers, sparse systems, signals, and simulations by transforms."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, split, words

_ROWS, _COLUMNS, _BOTH = P("x"), P(None, "x"), P("x", "y")
_CUBE = (2, 2, 2)
_KEY = np.array([7, 41], np.uint32)


# -- solvers ----------------------------------------------------------------------------------------------------


def _blocked_cholesky(matrix: Any) -> Any:
    """A factor by blocks of columns in a loop; the trailing part is updated at traced places."""
    size, block = matrix.shape[0], 8

    def step(number: Any, a: Any) -> Any:
        at = number * block
        corner = lax.dynamic_slice(a, (at, at), (block, block))
        factor = jnp.linalg.cholesky(corner)
        panel = lax.dynamic_slice(a, (0, at), (size, block))
        below = jax.scipy.linalg.solve_triangular(factor, panel.T, lower=True).T
        rows = jnp.arange(size)[:, None]
        below = jnp.where(rows >= at + block, below, 0)
        whole = lax.dynamic_update_slice(below, factor, (at, 0))
        keeps = jnp.arange(size) < at + block
        a = jnp.where(keeps[None, :], a, a - below @ below.T)
        return lax.dynamic_update_slice(a, whole, (0, at))

    return jnp.tril(lax.fori_loop(0, size // block, step, matrix))


def _substituted(matrix: Any, right: Any) -> Any:
    """A triangular system row by row."""

    def step(number: Any, x: Any) -> Any:
        row = matrix[number]
        return x.at[number].set((right[number] - row @ x) / row[number])

    return lax.fori_loop(0, right.shape[0], step, jnp.zeros_like(right))


def _householder(matrix: Any) -> Any:
    """Reflections one after the other."""
    rows = jnp.arange(matrix.shape[0])

    def step(number: Any, a: Any) -> Any:
        x = jnp.where(rows >= number, a[:, number], 0)
        v = x.at[number].add(jnp.where(x[number] >= 0, 1.0, -1.0) * jnp.linalg.norm(x))
        return a - 2 * jnp.outer(v, v @ a) / (v @ v)

    return jnp.triu(lax.fori_loop(0, matrix.shape[1], step, matrix))[: matrix.shape[1]]


def _cyclic_reduction(low: Any, middle: Any, high: Any, right: Any) -> Any:
    """Tridiagonal systems by reductions in parallel, with shifts of 1, 2, 4 and so on."""

    def moved(x: Any, by: int, value: float) -> Any:
        if by > 0:
            return jnp.pad(x[by:], (0, by), constant_values=value)
        return jnp.pad(x[:by], (-by, 0), constant_values=value)

    for n in range(int(math.log2(middle.shape[0]))):
        by = 1 << n
        up, down = -low / moved(middle, -by, 1.0), -high / moved(middle, by, 1.0)
        middle, right, low, high = (
            middle + up * moved(high, -by, 0.0) + down * moved(low, by, 0.0),
            right + up * moved(right, -by, 0.0) + down * moved(right, by, 0.0),
            up * moved(low, -by, 0.0),
            down * moved(high, by, 0.0),
        )
    return right / middle


def _thomas(low: Any, middle: Any, high: Any, right: Any) -> Any:
    """Tridiagonal systems by elimination along a split dimension, forth and back."""

    def down(state: Any, row: Any) -> Any:
        c, d = state
        a, b, c_here, d_here = row
        by = b - a * c
        found = c_here / by, (d_here - a * d) / by
        return found, found

    zero = jnp.zeros_like(right[0])
    _, (c, d) = lax.scan(down, (zero, zero), (low, middle, high, right))
    _, x = lax.scan(lambda after, row: (row[1] - row[0] * after,) * 2, zero, (c, d), reverse=True)
    return x


def _cycle(right: Any) -> Any:
    """A cycle of three grids of a volume: smoothing, means of pairs, and repetition."""

    def smooth(u: Any, f: Any) -> Any:
        around = sum(jnp.roll(u, s, a) for a in range(3) for s in (1, -1))
        return u + 0.1 * (f - (6 * u - around))

    def rest(u: Any, f: Any) -> Any:
        return f - (6 * u - sum(jnp.roll(u, s, a) for a in range(3) for s in (1, -1)))

    def solve(f: Any, depth: int) -> Any:
        u = smooth(jnp.zeros_like(f), f)
        if depth:
            r = rest(u, f)
            a, b, c = r.shape
            coarse = r.reshape(a // 2, 2, b // 2, 2, c // 2, 2).mean((1, 3, 5))
            fine = solve(coarse, depth - 1)
            for axis in range(3):
                fine = jnp.repeat(fine, 2, axis)
            u = u + fine
        return smooth(u, f)

    return solve(right, 2)


def _filtered_states(noise: Any, seen: Any) -> Any:
    """Means of a Kalman filter by an associative scan over a split time."""

    def join(a: Any, b: Any) -> Any:
        return jnp.einsum("tij,tjk->tik", b[0], a[0]), jnp.einsum("tij,tj->ti", b[0], a[1]) + b[1]

    gain = 0.5 / (1 + noise**2)
    turn = jnp.array([[0.9, 0.2], [-0.2, 0.9]])
    keep = jnp.eye(2) - gain[:, None, None] * jnp.array([[1.0, 0], [0, 0]])
    return lax.associative_scan(join, (keep @ turn, gain[:, None] * seen))[1]


def _pulled(places: Any, masses: Any) -> Any:
    """Forces between all pairs, whose other halves go round a ring."""

    def part(x: Any, m: Any) -> Any:
        count = lax.axis_size("x")

        def turn(state: Any, _: Any) -> Any:
            force, other, weight = state
            apart = other[None] - x[:, None]
            by = weight[None] / ((apart**2).sum(-1) + 0.1) ** 1.5
            force = force + (by[..., None] * apart).sum(1)
            ring = [(i, (i + 1) % count) for i in range(count)]
            return (force, lax.ppermute(other, "x", ring), lax.ppermute(weight, "x", ring)), None

        start = lax.pcast(jnp.zeros_like(x), (), to="varying") + 0 * x
        return lax.scan(turn, (start, x, m), length=count)[0][0]

    return jax.shard_map(part, in_specs=(_ROWS, _ROWS), out_specs=_ROWS)(places, masses)


def _sketched(matrix: Any, sketch: Any) -> Any:
    """Singular values from a random sketch with two iterations of powers."""
    y = matrix @ sketch
    for _ in range(2):
        y, _ = jnp.linalg.qr(matrix @ (matrix.T @ y))
    return jnp.linalg.svd(y.T @ matrix, compute_uv=False)


def _exponential(matrix: Any) -> Any:
    """The exponential of a split matrix."""
    term, total = jnp.eye(matrix.shape[0]), jnp.eye(matrix.shape[0])
    for n in range(1, 7):
        term = term @ matrix / (4 * n)
        total = total + term
    return total @ total @ total @ total


def _contracted(t: Any, v: Any) -> Any:
    """Contractions of tensors of four dimensions, as in coupled clusters."""
    ladder = jnp.einsum("abcd,ijcd->ijab", v, t)
    rings = jnp.einsum("kbcj,ikac->ijab", v.transpose(0, 2, 1, 3), t)
    return t + 0.1 * (ladder + rings - rings.transpose(1, 0, 3, 2))


# -- tables and signals -------------------------------------------------------------------------------------------


def _sparse_product(rows: Any, columns: Any, values: Any, x: Any) -> Any:
    """Three products of a sparse matrix, whose entries are split, and a split vector."""

    def step(_: Any, x: Any) -> Any:
        y = jnp.zeros_like(x).at[rows].add(values * x[columns])
        return y / jnp.linalg.norm(y)

    return lax.fori_loop(0, 3, step, x)


def _plane_counts(x: Any, y: Any, weights: Any) -> Any:
    """A histogram of two variables, and the marginal ones."""
    i = jnp.clip(jnp.floor((x + 3) * 2), 0, 11).astype(jnp.int32)
    j = jnp.clip(jnp.floor((y + 3) * 2), 0, 11).astype(jnp.int32)
    counts = jnp.zeros((12, 12)).at[i, j].add(weights)
    return counts, counts.sum(0), jnp.bincount(i, length=12)


def _messages(nodes: Any, sources: Any, targets: Any, weights: Any) -> Any:
    """Two layers of messages along split edges to the largest and the mean, and their gradients."""

    def loss(w: Any) -> Any:
        h = nodes
        for layer in w:
            sent = jax.nn.relu(h[sources] @ layer)
            top = jax.ops.segment_max(sent, targets, nodes.shape[0])
            count = jax.ops.segment_sum(jnp.ones(sources.shape), targets, nodes.shape[0])
            mean = jax.ops.segment_sum(sent, targets, nodes.shape[0]) / jnp.maximum(count, 1)[:, None]
            h = h + jnp.where(jnp.isfinite(top), top, 0) + mean
        return (h**2).mean()

    return jax.grad(loss)(weights)


def _between(x: Any, places: Any, values: Any) -> Any:
    """Interpolation in a table, places of numbers between split borders, and slopes."""
    return jnp.interp(x, places, values), jnp.searchsorted(places, x, side="right"), jnp.gradient(values, 0.5)


def _filtered(x: Any, taps: Any) -> Any:
    """A signal split in time: a filter, its envelope, running means, and every second sample."""
    smooth = jnp.convolve(x, taps, mode="same")
    envelope = jnp.abs(smooth).reshape(-1, 4).max(1)
    sums = jnp.cumsum(jnp.pad(smooth, (8, 0)))
    return envelope, (sums[8:] - sums[:-8]) / 8, smooth[::2] - smooth[1::2]


def _short_spectra(x: Any) -> Any:
    """Spectra of overlapping windows of a split signal."""
    parts = jnp.stack([x[i : i + x.shape[0] - 32 + 1 : 16] for i in range(32)], 1)
    return jnp.abs(jnp.fft.rfft(parts * jnp.hanning(32), axis=1))


def _plane_spectrum(x: Any) -> Any:
    """A low pass of real images that are split along their last dimension."""
    found = jnp.fft.rfft2(x)
    low = (jnp.fft.fftfreq(x.shape[1])[:, None] ** 2 + jnp.fft.rfftfreq(x.shape[2]) ** 2) < 0.05
    return jnp.fft.irfft2(found * low, s=x.shape[1:])


def _uneven_plates(heat: Any) -> Any:
    """Stencils with corners on a grid that neither axis divides, in a loop that ends by itself."""
    heat = split(heat, "x", "y")

    def step(state: Any) -> Any:
        now, _, count = state
        wide = jnp.pad(now, 1)
        n, m = now.shape
        near = sum(wide[i : i + n, j : j + m] for i in range(3) for j in range(3)) / 9
        return near, jnp.abs(near - now).max(), count + 1

    return lax.while_loop(lambda s: (s[1] > 1e-3) & (s[2] < 12), step, (heat, jnp.float32(1), 0))


def _drawn(scores: Any) -> Any:
    """Draws from split distributions, an order of all rows, and normal numbers on both axes."""
    key = jax.random.wrap_key_data(jnp.array(_KEY))
    a, b, c = jax.random.split(key, 3)
    noise = split(jax.random.normal(c, scores.shape), "x", "y")
    return jax.random.categorical(a, scores), jax.random.permutation(b, scores.shape[0]), (noise * scores).sum(1)


def _over_time(x: Any, weights: Any) -> Any:
    """A recurrence over a split time: each step reads a row of what is split."""

    def step(h: Any, row: Any) -> Any:
        h = jnp.tanh(row + h @ weights)
        return h, h.sum(-1)

    return lax.scan(step, jnp.zeros_like(x[0]), x)


def _advected(density: Any, across: Any, down: Any) -> Any:
    """Semi-Lagrangian steps: what is at a cell comes from between four others."""

    def step(_: Any, now: Any) -> Any:
        rows, columns = jnp.meshgrid(*(jnp.arange(n, dtype=jnp.float32) for n in now.shape), indexing="ij")
        return jax.scipy.ndimage.map_coordinates(now, [rows - down, columns - across], order=1, mode="wrap")

    return lax.fori_loop(0, 2, step, density)


def _spectral_step(field: Any) -> Any:
    """The vorticity of a flow: velocities by transforms, two thirds of the waves, one step."""
    k = jnp.fft.fftfreq(field.shape[0]) * field.shape[0]
    kx, ky = k[:, None], k[None, :]
    waves = jnp.fft.fft2(field)
    stream = waves / jnp.where((kx == 0) & (ky == 0), 1, kx**2 + ky**2)

    def real(x: Any) -> Any:
        return jnp.fft.ifft2(x).real

    turned = real(1j * ky * stream) * real(1j * kx * waves) - real(1j * kx * stream) * real(1j * ky * waves)
    keep = (jnp.abs(kx) < field.shape[0] / 3) & (jnp.abs(ky) < field.shape[1] / 3)
    return field - 0.01 * real(jnp.fft.fft2(turned) * keep)


def _definite(size: int) -> np.ndarray[Any, Any]:
    a = floats(size, size)
    return (a @ a.T / size + 4 * np.eye(size)).astype(np.float32)


def _lower(size: int) -> np.ndarray[Any, Any]:
    return (np.tril(floats(size, size)) / 8 + 2 * np.eye(size)).astype(np.float32)


def _bands(*dims: int) -> tuple[Any, ...]:
    return floats(*dims) / 4, floats(*dims, seed=1) / 8 + 2, floats(*dims, seed=2) / 4, floats(*dims, seed=3)


_EDGES = words(256, below=48), words(2, 256, below=48)[1]

SOLVERS: dict[str, Program] = {
    "Cholesky by blocks, split rows": Program(_blocked_cholesky, (_definite(64),), (_ROWS,)),
    "Cholesky by blocks, split columns": Program(_blocked_cholesky, (_definite(64),), (_COLUMNS,)),
    "substitution, split columns": Program(_substituted, (_lower(64), floats(64)), (_COLUMNS, P())),
    "substitution, split rows": Program(_substituted, (_lower(64), floats(64)), (_ROWS, _ROWS)),
    "reflections, split rows": Program(_householder, (floats(64, 16),), (_ROWS,)),
    "reflections, split columns": Program(_householder, (floats(64, 16),), (_COLUMNS,)),
    "reductions of tridiagonal systems, split rows": Program(_cyclic_reduction, _bands(128), (_ROWS,) * 4),
    "eliminations of tridiagonal systems, split rows": Program(_thomas, _bands(64, 8), (_ROWS,) * 4),
    "three grids of a volume": Program(_cycle, (floats(16, 16, 16),), (P("x", "y", "z"),), _CUBE),
    "filter of states, split time": Program(_filtered_states, (floats(128), floats(128, 2)), (_ROWS, _ROWS)),
    "forces round a ring, by hand": Program(_pulled, (floats(64, 3), np.abs(floats(64))), (_ROWS, _ROWS)),
    "sketched singular values, both ways": Program(_sketched, (floats(64, 48), floats(48, 8)), (_BOTH, P("y")), GRID),
    "exponential, both ways": Program(_exponential, (floats(32, 32) / 6,), (_BOTH,), GRID),
    "coupled clusters": Program(
        _contracted,
        (floats(8, 8, 8, 8) / 9, floats(8, 8, 8, 8, seed=1) / 9),
        (P("x", "y"), P(None, None, "x", "y")),
        GRID,
    ),
    "sparse products, split entries": Program(
        _sparse_product, (*_EDGES, np.abs(floats(256)), np.abs(floats(48))), (_ROWS, _ROWS, _ROWS, P())
    ),
    "sparse products, all split": Program(
        _sparse_product, (*_EDGES, np.abs(floats(256)), np.abs(floats(48))), (_ROWS,) * 4
    ),
    "counts in the plane": Program(
        _plane_counts, (floats(512), floats(512, seed=1), np.abs(floats(512))), (_ROWS,) * 3
    ),
    "messages to the largest and the mean, training": Program(
        _messages,
        (floats(48, 12), *_EDGES, [floats(12, 12) / 4, floats(12, 12, seed=1) / 4]),
        (_ROWS, _ROWS, _ROWS, P()),
    ),
    "between the entries of a split table": Program(
        _between, (floats(64), np.sort(floats(128)), floats(128, seed=1)), (_ROWS, _ROWS, _ROWS)
    ),
    "a filtered signal, split time": Program(_filtered, (floats(512), floats(9)), (_ROWS, P())),
    "spectra of windows, split time": Program(_short_spectra, (floats(512),), (_ROWS,)),
    "low pass of images, split columns": Program(_plane_spectrum, (floats(4, 32, 32),), (P(None, None, "x"),)),
    "heat on uneven plates": Program(_uneven_plates, (floats(45, 31),), (P(),), GRID),
    "draws from split distributions": Program(_drawn, (floats(32, 16),), (_BOTH,), GRID),
    "recurrence over a split time": Program(_over_time, (floats(64, 4, 16), floats(16, 16) / 4), (_ROWS, P())),
    "advected, split rows": Program(
        _advected, (floats(32, 24), floats(32, 24, seed=1), floats(32, 24, seed=2)), (_ROWS,) * 3
    ),
    "a flow by transforms": Program(_spectral_step, (floats(32, 32),), (_ROWS,)),
}
