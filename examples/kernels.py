"""Small programs in plain JAX, each about one family of operations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from registry import c128, f32, f64, program, s8, s32, u32, u64


@program(f32(6, 10), s32(6, 10))
def sort(values, keys):
    """Sorting by one key and by two, argsort, top-k, median, and the gradient through a sort."""
    by_two_keys = lax.sort((keys, values, lax.broadcasted_iota(jnp.int32, keys.shape, 1)), num_keys=2)
    return (
        jnp.sort(values, axis=0),
        jnp.argsort(keys, axis=1, stable=True),
        jnp.argsort(-values, axis=1),
        by_two_keys,
        lax.top_k(values, 3),
        jnp.median(values, axis=1),
        jax.grad(lambda v: jnp.sum(jnp.sort(v, axis=1) * jnp.arange(10.0)))(values),
    )


@program(f32(20, 8), s32(4, 6), f32(30, 5), s32(30), s32(7, 2))
def scatter_gather(table, tokens, data, segments, points):
    """An embedding and its gradient, a segment sum, points of a matrix, and updates in place."""
    loss, gradient = jax.value_and_grad(lambda t: jnp.sum(jnp.tanh(t[tokens]) ** 2))(table)
    return (
        loss,
        gradient,
        jax.ops.segment_sum(data, segments, num_segments=8),
        jax.ops.segment_max(data, segments, num_segments=8),
        table[points[:, 0], points[:, 1]],
        jnp.take_along_axis(data, tokens[:, :5] % 30, axis=0),
        table.at[points[:, 0]].set(1.0),
        table.at[points[:, 0], points[:, 1]].multiply(2.0),
        jax.vmap(lambda row, i: row[i])(table[:4], tokens),
    )


@program(u32(2), u32(4))
def random(key_bits, generator_state):
    """Threefry keys split and used, and the bit generators of XLA itself."""
    keys = jax.random.split(jax.random.wrap_key_data(key_bits), 6)
    return (
        jax.random.normal(keys[0], (16,)),
        jax.random.uniform(keys[1], (4, 5), minval=-1.0, maxval=1.0),
        jax.random.bernoulli(keys[2], 0.3, (20,)),
        jax.random.randint(keys[3], (10,), 0, 100),
        jax.random.permutation(keys[4], 12),
        jax.random.categorical(keys[5], jnp.log(jnp.arange(1.0, 5.0)), shape=(9,)),
        lax.rng_bit_generator(generator_state, (7,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY),
        lax.rng_bit_generator(generator_state, (7,), algorithm=lax.RandomAlgorithm.RNG_PHILOX),
    )


@program(f32(4, 15), f32(3, 8, 8))
def fft(signals, images):
    """Real and complex transforms, a convolution by FFT, and a gradient through one."""
    spectrum = jnp.fft.rfft(signals)
    kernel = jnp.exp(-jnp.square(jnp.arange(15.0)))
    return (
        spectrum,
        jnp.fft.irfft(spectrum, n=15),
        jnp.fft.irfft(spectrum * jnp.fft.rfft(kernel), n=15),
        jnp.fft.fft2(images),
        jnp.fft.ifft2(jnp.fft.fft2(images)).real,
        jnp.fft.rfft2(images),
        jax.grad(lambda s: jnp.sum(jnp.abs(jnp.fft.rfft(s)) ** 2))(signals),
    )


# On CPUs JAX lowers these to calls of LAPACK; for TPUs it leaves HLO's own operations.
@program(f32(3, 6, 6), f32(3, 6, 2), platform="tpu")
def linear_algebra(a, b):
    """Cholesky, triangular solves of every kind, a positive definite solve and a log-determinant's gradient."""
    spd = a @ jnp.swapaxes(a, -1, -2) + 6 * jnp.eye(6)
    factor = lax.linalg.cholesky(spd)
    solved = lax.linalg.triangular_solve(
        factor,
        lax.linalg.triangular_solve(factor, b, left_side=True, lower=True),
        left_side=True,
        lower=True,
        transpose_a=True,
    )

    def log_determinant(m):
        return 2 * jnp.sum(jnp.log(jnp.diagonal(lax.linalg.cholesky(m), axis1=-2, axis2=-1)))

    right = lax.linalg.triangular_solve(factor, jnp.swapaxes(b, -1, -2), left_side=False, lower=True)
    unit = lax.linalg.triangular_solve(factor, b, left_side=True, lower=True, unit_diagonal=True)
    return factor, solved, right, unit, jax.grad(log_determinant)(spd)


@program(s32(), f32(5), f32(8, 5))
def conditional(branch, x, rows):
    """cond, switch, a cond that is differentiated, and one under vmap (which becomes a select)."""
    branches = [jnp.sin, lambda v: v**2, lambda v: -v]
    return (
        lax.cond(branch > 3, lambda v: v + 1, lambda v: v * 2, x),
        lax.switch(branch % 3, branches, x),
        jax.grad(lambda v: jnp.sum(lax.cond(v[0] > 0, jnp.exp, jnp.cos, v)))(x),
        jax.vmap(lambda v: lax.cond(v[0] > 0, jnp.exp, jnp.cos, v))(rows),
    )


@program(name="while")
def while_():
    """Mandelbrot's set: for each point, how many steps it takes to leave."""
    y, x = jnp.mgrid[-1.25:1.25:24j, -2.0:0.75:36j]
    c = lax.complex(x, y)

    def step(state):
        i, z, counts = state
        z = jnp.where(jnp.abs(z) <= 2, z * z + c, z)
        return i + 1, z, counts + (jnp.abs(z) <= 2)

    def go_on(state):
        i, z, _ = state
        return (i < 60) & jnp.any(jnp.abs(z) <= 2)

    # The points themselves are left out of the result: where they end is chaotic.
    steps, _, counts = lax.while_loop(go_on, step, (0, jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))
    return steps, counts


@program(f32(2, 9, 9, 3), f32(4, 11))
def reduce_window(images, rows):
    """Pooling with its gradient, dilated windows, and running sums, products and maxima."""

    def max_pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    return (
        max_pool(images),
        jax.grad(lambda x: jnp.sum(max_pool(x) ** 2))(images),
        lax.reduce_window(images, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID") / 4,
        lax.reduce_window(images, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 3, 1)),
        lax.reduce_window(images, jnp.inf, lax.min, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", base_dilation=(1, 2, 1, 1)),
        lax.cumsum(rows, axis=1),
        lax.cumprod(rows, axis=0, reverse=True),
        lax.cummax(rows, axis=1),
        lax.cumlogsumexp(rows, axis=1),
    )


@program(c128(4, 4), c128(4), f64(6), x64=True, name="complex")
def complex_(matrix, vector, angles):
    """Double precision: complex products, elementary functions, roots of unity, a Newton iteration."""
    unit = jnp.exp(1j * angles)
    root = lax.fori_loop(0, 20, lambda _, z: z - (z**3 - 1) / (3 * z**2), vector)
    return (
        matrix @ vector,
        jnp.conj(matrix).T @ matrix,
        jnp.angle(unit),
        root,
        jnp.sqrt(vector),
        jnp.log(vector),
        jnp.tanh(vector),
        jnp.sin(angles) ** 2 + jnp.cos(angles) ** 2,
        lax.expm1(angles) - lax.log1p(jnp.abs(angles)),
        jax.grad(lambda a: jnp.sum(jnp.abs(jnp.exp(1j * a) + a)))(angles),
    )


@program(u32(16), u64(8), s8(9), s32(10), x64=True)
def int_ops(words, longs, bytes_, numbers):
    """Hashes, bit counts, shifts, division by zero, saturating casts and narrow integers."""

    def murmur_finish(h):
        h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
        return h ^ (h >> 16)

    def xorshift(h):
        h = h ^ (h << 13)
        h = h ^ (h >> 7)
        return h ^ (h << 17)

    rotated = (words << 5) | (words >> 27)
    return (
        murmur_finish(words),
        xorshift(longs),
        rotated,
        lax.population_count(longs),
        lax.clz(words),
        lax.shift_right_arithmetic(lax.bitcast_convert_type(words, jnp.int32), jnp.int32(3)),
        lax.bitcast_convert_type(words, jnp.float32) == lax.bitcast_convert_type(rotated, jnp.float32),
        numbers // 3 - numbers % 3 + lax.rem(-numbers, jnp.int32(4)),
        lax.div(numbers, numbers - 4),
        jnp.bitwise_xor(bytes_, jnp.int8(-1)) * bytes_,
        lax.dot_general(bytes_, bytes_, (((0,), (0,)), ((), ())), preferred_element_type=jnp.int32),
        lax.convert_element_type(lax.bitcast_convert_type(words, jnp.int32), jnp.int16),
        jnp.float32(1e10) * numbers.astype(jnp.float32),
        (jnp.float32(1e10) * numbers.astype(jnp.float32)).astype(jnp.int32),
    )


@program(f32(12, 7), s32(), s32(), f32(3, 2))
def dynamic_slices(operand, row, column, update):
    """Slices at computed places (clamped at the edges), updates, rolls, and a loop that fills an array."""

    def fill(i, rows):
        return lax.dynamic_update_index_in_dim(rows, operand[i] * i, i + 2, axis=0)

    return (
        lax.dynamic_slice(operand, (row, column), (4, 3)),
        lax.dynamic_update_slice(operand, update, (row, column)),
        lax.dynamic_index_in_dim(operand, row, axis=0, keepdims=False),
        jnp.roll(operand, row, axis=0),
        lax.fori_loop(0, 5, fill, jnp.zeros((12, 7))),
        jax.grad(lambda x: jnp.sum(lax.dynamic_slice(x, (row, column), (4, 3)) ** 2))(operand),
        operand[::2, 1:6:3],
        lax.pad(update, 9.0, ((1, -1, 2), (0, 3, 0))),
    )
