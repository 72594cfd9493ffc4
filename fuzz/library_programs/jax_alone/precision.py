"""Types beside float32: 64 bits, 16 bits, 8 and 4 bits, complex numbers, and conversions between all of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.library_programs.registry import program

_NARROW = "results of 16 bits, whose neighbors are so far apart"


@program("precision/float64_pipeline", x64=True, tolerance=1e-11, why="eigenvalues and gradients of a few products")
def float64_pipeline(key):
    a = jax.random.normal(key, (12, 12), jnp.float64)
    s = a @ a.T + jnp.eye(12)
    values, vectors = jnp.linalg.eigh(s)
    signs = jnp.sign(vectors[0])
    n = jnp.arange(40, dtype=jnp.int64) ** 11
    return (
        values,
        vectors * signs,
        jnp.cumsum(n) % 1_000_000_007,
        jnp.bitwise_count(n.astype(jnp.uint64)),
        lax.fori_loop(0, 70, lambda i, x: x * jnp.int64(6364136223846793005) + i, jnp.int64(1)),
        jax.grad(lambda a: jnp.linalg.slogdet(a @ a.T)[1])(a),
        (a.astype(jnp.float32) @ a.astype(jnp.float32)).astype(jnp.float64).mean() > 0,
        jnp.nextafter(a[0], jnp.inf),
    )


def _network(x, w, v):
    h = jax.nn.silu(x @ w)
    h = h / jnp.sqrt((h.astype(jnp.float32) ** 2).mean(-1, keepdims=True) + 1e-6).astype(h.dtype)
    return jax.nn.softmax(h @ v, axis=-1)


@program("precision/bfloat16_network", tolerance=3e-2, why=_NARROW)
def bfloat16_network(key):
    x, w, v = (jax.random.normal(k, (16, 16), jnp.bfloat16) / 4 for k in jax.random.split(key, 3))

    def loss(w, v):
        return -jnp.log(_network(x, w, v).astype(jnp.float32)[:, 0]).mean()

    return _network(x, w, v), jax.value_and_grad(loss, (0, 1))(w, v), lax.reduce_precision(x, 5, 4)


@program("precision/float16_scan", tolerance=1e-2, why=_NARROW)
def float16_scan(key):
    x = jax.random.normal(key, (20, 9), jnp.float16)
    w = jax.random.normal(key, (9, 9), jnp.float16) / 4

    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, (h.max(), jnp.argmax(x), jnp.isfinite(h * 60000).sum())

    return lax.scan(step, jnp.zeros(9, jnp.float16), x), jnp.sort(x, axis=0), jnp.cumsum(x[:, 0]) / 8, jnp.frexp(x[0])


@program("precision/integers_of_8_bits")
def integers_of_8_bits(key):
    a = jax.random.randint(key, (24, 40), -128, 128, jnp.int8)
    b = jax.random.randint(key, (40, 17), -128, 128, jnp.int8)
    wide = lax.dot(a, b, preferred_element_type=jnp.int32)
    u = lax.bitcast_convert_type(a, jnp.uint8)
    images = a.reshape(1, 4, 6, 40).astype(jnp.int8)
    kernel = b[:4, :9].reshape(3, 3, 4, 1)[:, :, :, :]
    convolved = lax.conv_general_dilated(
        images.transpose(0, 2, 3, 1), kernel, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=jnp.int32,
    )  # fmt: skip
    return (
        wide,
        jnp.clip(lax.shift_right_arithmetic(wide, 7), -128, 127).astype(jnp.int8),
        a * a,
        u // jnp.uint8(7) + (u % jnp.uint8(5)),
        lax.shift_right_logical(a, jnp.int8(3)),
        lax.clz(u),
        jnp.cumsum(a, axis=1, dtype=jnp.int8),
        jnp.sort(a, axis=0),
        jnp.maximum(a, -a),
        a.sum(dtype=jnp.int8),
        jnp.packbits(u > 100, axis=1),
        jnp.unpackbits(u[:2], axis=1),
        lax.reduce_window(a, jnp.int8(-128), lax.max, (3, 3), (2, 2), "VALID"),
        lax.bitcast_convert_type(a.reshape(24, 10, 4), jnp.int32),
        jnp.take(a, u[0] % 24, axis=0)[:5],
        convolved,
    )


@program("precision/four_bits_and_float8", tolerance=2e-2, why="sums of products in 16 bits")
def four_bits_and_float8(key):
    x = jax.random.normal(key, (16, 32))
    scale = jnp.abs(x).max(1, keepdims=True) / 7
    q = jnp.round(x / scale).astype(jnp.int4)
    e4, e5 = x.astype(jnp.float8_e4m3fn), (x * 100).astype(jnp.float8_e5m2)
    return (
        (q.astype(jnp.float32) * scale) @ x.T,
        q.astype(jnp.int8)[::-1],
        e4.astype(jnp.float32),
        e5.astype(jnp.bfloat16),
        jnp.where(q > 3, q, -q).astype(jnp.int8),
        lax.dot(e4, e4.T, preferred_element_type=jnp.float32),
        (x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16)),
    )


@program("precision/functions_of_float8", tolerance=0.13, why="so far apart are neighbors in float8")
def functions_of_float8(key):
    every = jnp.arange(256, dtype=jnp.uint8)
    functions = (lax.erf, lax.tanh, lax.exp, lax.log1p, lax.rsqrt, lax.logistic, lax.floor, jnp.sort)

    def of(kind):
        x = lax.bitcast_convert_type(every, kind)
        numbers = jnp.where(jnp.isfinite(x) & (jnp.abs(x) < 4), x, jnp.ones_like(x))
        made = [f(numbers) for f in functions] + [numbers + numbers[::-1], jnp.maximum(numbers, numbers[::-1])]
        return [m.astype(jnp.float32) for m in made]

    return of(jnp.float8_e4m3fn), of(jnp.float8_e5m2)


@program("precision/complex_signals", tolerance=1e-4, why="logarithms and powers of complex numbers near 1")
def complex_signals(key):
    a, b = jax.random.normal(key, (2, 6, 6), jnp.complex64)
    h = a + a.conj().T
    values, vectors = jnp.linalg.eigh(h)
    z = a.ravel()

    def energy(z):
        return (jnp.abs(jnp.fft.fft(z)) ** 2).sum() + jnp.real(jnp.vdot(z, z**2))

    return (
        jnp.linalg.solve(a, b),
        values,
        jnp.abs(vectors),
        [f(z) for f in (jnp.exp, jnp.log, jnp.sqrt, jnp.sin, jnp.tanh, jnp.arctan, jnp.arccosh, jnp.sign, jnp.expm1)],
        z ** (0.5 + 0.25j),
        jnp.angle(z),
        jax.grad(energy)(z),
        jax.jacfwd(jnp.conj, holomorphic=False)(a[0].real),
        jax.grad(lambda z: (z**3).sum(), holomorphic=True)(z),
        lax.scan(lambda c, x: (c * x / jnp.abs(x), c), 1 + 0j, z),
        jnp.sort(z),
        jnp.cumprod(z / jnp.abs(z)),
        jnp.einsum("ij,jk,ki->i", a, b.conj(), a),
        jnp.linalg.det(a),
        jnp.prod(a, axis=0),
        z.reshape(2, 18).max(1),
        lax.while_loop(lambda c: jnp.abs(c[1]) < 4, lambda c: (c[0] + 1, c[1] ** 2 + 0.9 + 0.5j), (0, 0j)),
    )


@program("precision/conversions")
def conversions(key):
    edge = jnp.array([0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.99, 127.6, -128.9, 254.5, 1e4, -1e4, 65519.0, 3e38])
    x = jnp.concatenate([edge, jax.random.normal(key, (50,)) * 50])
    small = jnp.clip(x, -100, 100)
    floats = [jnp.float16, jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3b11fnuz]
    integers = [jnp.int8, jnp.int16, jnp.int32, jnp.int4]
    return (
        [x.astype(t).astype(jnp.float32) for t in floats],
        [jnp.clip(small, -7, 7).astype(t).astype(jnp.int32) for t in integers],
        [jnp.abs(small).astype(t) for t in (jnp.uint8, jnp.uint16, jnp.uint32)], x.astype(bool), jnp.round(x[:9]),
        jnp.rint(x), jnp.floor(x), jnp.trunc(small).astype(jnp.int16), edge.view(jnp.int32), edge.view(jnp.uint16),
        edge.astype(jnp.bfloat16).view(jnp.uint16), jnp.arange(-5, 60).astype(jnp.uint8),
        (x > 0).astype(jnp.bfloat16).sum(),
    )  # fmt: skip
