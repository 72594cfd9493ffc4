"""Programs of JAX's arrays: segments, transforms, sparse arrays, images, strings of bits, types."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import sparse

from fuzz.library_programs.registry import program


@program("arrays/segments_and_graphs")
def segments_and_graphs(key):
    x = jax.random.normal(key, (60, 4))
    edges = jax.random.randint(key, (2, 150), 0, 60)

    def layer(x, w):
        messages = jnp.tanh(x[edges[0]] @ w)
        weights = jax.ops.segment_max(messages[:, 0], edges[1], 60)
        e = jnp.exp(messages[:, 0] - weights[edges[1]])
        attention = e / jax.ops.segment_sum(e, edges[1], 60)[edges[1]]
        return x + jax.ops.segment_sum(attention[:, None] * messages, edges[1], 60)

    w = jax.random.normal(key, (4, 4))
    return (
        jax.value_and_grad(lambda w: (layer(layer(x, w), w) ** 2).sum())(w),
        jax.ops.segment_min(x, edges[0, :60], 60),
        jax.ops.segment_prod(x, jnp.sort(edges[0, :60]), 60, indices_are_sorted=True),
        jnp.bincount(edges[0], length=60),
        jnp.unique(edges[0], size=30, fill_value=-1),
        jnp.histogram(x, 10)[0],
    )


@program("arrays/poisson_by_fft", tolerance=1e-4, why="division by small eigenvalues of the Laplacian")
def poisson_by_fft(key):
    f = jax.random.normal(key, (48, 30))
    f = f - f.mean()
    k = jnp.fft.fftfreq(48)[:, None] ** 2 + jnp.fft.rfftfreq(30)[None] ** 2
    u = jnp.fft.irfft2(jnp.where(k > 0, jnp.fft.rfft2(f) / jnp.where(k > 0, k, 1), 0), s=(48, 30))
    return (
        u,
        jax.grad(lambda f: (jnp.abs(jnp.fft.fftn(f)) ** 1.5).sum())(f),
        jnp.fft.fftshift(jnp.fft.ifft(f, axis=0)).real,
    )


@program("arrays/spectral_burgers", tolerance=1e-4, why="a hundred steps of transforms and products")
def spectral_burgers(key):
    k = 2j * jnp.pi * jnp.fft.rfftfreq(64, 1 / 64)
    u = jnp.sin(2 * jnp.pi * jnp.arange(64) / 64 + jax.random.uniform(key))

    def step(u, _):
        v = jnp.fft.rfft(u)
        change = -u * jnp.fft.irfft(k * v, 64) + 0.02 * jnp.fft.irfft(k * k * v, 64)
        return u + 1e-3 * change, jnp.abs(v[:4])

    return lax.scan(step, u, None, length=100)


@program("arrays/sparse")
def sparse_arrays(key):
    dense = jnp.where(jax.random.bernoulli(key, 0.2, (20, 30)), jax.random.normal(key, (20, 30)), 0)
    bcoo = sparse.BCOO.fromdense(dense, nse=200)
    bcsr = sparse.BCSR.from_bcoo(sparse.BCOO.fromdense(dense, nse=200))
    x = jax.random.normal(key, (30, 3))
    return (
        bcoo @ x,
        bcsr @ x,
        bcoo.T @ jnp.ones(20),
        jax.grad(lambda d: (sparse.BCOO((d, bcoo.indices), shape=(20, 30)) @ x).sum())(bcoo.data),
        (bcoo * 2).todense(),
    )


@program("arrays/images")
def images(key):
    x = jax.random.uniform(key, (2, 15, 17, 3))
    grid = jnp.meshgrid(jnp.linspace(0, 14, 9), jnp.linspace(0, 16, 11), indexing="ij")
    return (
        jax.image.resize(x, (2, 30, 9, 3), "bicubic"),
        jax.image.resize(x, (2, 7, 20, 3), "lanczos3"),
        jax.scipy.ndimage.map_coordinates(x[0, ..., 0], grid, 1),
        lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        jax.scipy.signal.convolve2d(x[0, ..., 0], x[1, :3, :4, 1]),
        jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID").sum())(x),
    )


@program("arrays/rotating_bits")
def rotating_bits(key):
    x = jax.random.bits(key, (100,), jnp.uint32)

    def mix(i, x):
        x = x ^ (x << 13)
        x = x ^ (x >> 17)
        return (x ^ (x << 5)) + jnp.uint32(i)

    y = lax.fori_loop(0, 20, mix, x)
    return (
        y,
        lax.population_count(y),
        lax.clz(y),
        jnp.packbits(y % 2 == 0),
        jnp.unpackbits(y.astype(jnp.uint8)),
        # No number is subnormal: XLA takes those for zero, and xlakit does not.
        lax.bitcast_convert_type(y | jnp.uint32(1 << 23), jnp.float32) > 0,
    )


@program("arrays/sorting")
def sorting(key):
    x = jax.random.normal(key, (12, 50))
    i = jax.random.randint(key, (12, 50), 0, 9)
    return (
        jnp.sort(x, 0),
        jnp.argsort(i, 1, stable=True),
        lax.top_k(x, 5),
        lax.sort((i, x), num_keys=2),
        jnp.lexsort((x[0], i[0])),
        jnp.median(x, 1),
        jnp.percentile(x, jnp.array([10.0, 90.0]), axis=1),
        jnp.searchsorted(jnp.sort(x[0]), x[1]),
        jax.grad(lambda x: jnp.sort(x)[:10].sum())(x[0]),
        jnp.partition(x, 5)[:, 5],
        lax.approx_max_k(x, 4)[0],
        jnp.nanmedian(jnp.where(x > 1, jnp.nan, x)),
        jnp.take_along_axis(x, i, 1),
        jax.random.permutation(key, 30),
    )


@program("arrays/mixed_precision", tolerance=5e-2, why="float8 and bfloat16, whose neighbors are so far apart")
def mixed_precision(key):
    x = jax.random.normal(key, (16, 32))
    results = []
    for kind in (jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2):
        y = x.astype(kind).astype(jnp.float32)
        results.append((y, jnp.matmul(x.astype(kind), x.T.astype(kind), preferred_element_type=jnp.float32)))
    h = x.astype(jnp.bfloat16)
    return results, jax.nn.softmax(h), (h * h).sum(1), jnp.cumsum(h, 1)[:, :4], jax.nn.gelu(h)


@program("arrays/quantized_product")
def quantized_product(key):
    x = jax.random.randint(key, (9, 40), -128, 128).astype(jnp.int8)
    y = jax.random.randint(key, (40, 7), -128, 128).astype(jnp.int8)
    z = lax.dot(x, y, preferred_element_type=jnp.int32)
    return z, jnp.clip(jnp.round(z / 200), -128, 127).astype(jnp.int8)


@program("arrays/einsums")
def einsums(key):
    a, b, c = jax.random.normal(key, (4, 5, 6)), jax.random.normal(key, (6, 5, 3)), jax.random.normal(key, (4, 3))
    return (
        jnp.einsum("ijk,kjl->il", a, b),
        jnp.einsum("ijk,kjl,il->", a, b, c),
        jnp.einsum("ijk,ijk->kj", a, a),
        jnp.einsum("...k,kjl->...jl", a, b),
        jnp.einsum("iik->k", a[:4, :4]),
        jnp.tensordot(a, b, ((1, 2), (1, 0))),
        jnp.kron(c, c),
        jnp.vander(c[0]),
        jax.hessian(lambda c: jnp.einsum("ij,kj,ik", c, c, c @ c.T))(c[:2]),
    )


@program("arrays/scatters_and_updates")
def scatters_and_updates(key):
    x = jax.random.normal(key, (10, 6))
    i = jax.random.randint(key, (15,), -3, 13)
    v = jax.random.normal(key, (15, 6))
    return (
        x.at[i].add(v),
        x.at[i].min(v, mode="drop"),
        x.at[i].max(v),
        x.at[i, i % 6].mul(2.0),
        x.at[::2, 1:4].set(0),
        x.at[i].get(mode="fill", fill_value=7),
        jax.grad(lambda x: (x.at[i].add(v) ** 2).sum())(x),
        lax.dynamic_update_slice(x, v[:3, :2], (i[0], i[1])),
        x[i],
        x[i[:, None], jnp.array([0, 5])],
        jax.vmap(lambda x, j: lax.dynamic_slice(x, (j,), (3,)))(x, i[:10]),
        jnp.where(x > 0, x, 0)[..., None, :].repeat(3, 1),
    )


@program("arrays/random_numbers", tolerance=2e-4, why="inverse functions and rejection steep at their ends")
def random_numbers(key):
    r = jax.random
    k = r.split(key, 24)
    return (
        r.normal(k[0], (20,)),
        r.gamma(k[1], 2.5, (20,)),
        r.beta(k[2], 2.0, 3.0, (20,)),
        r.poisson(k[3], 4.0, (20,)),
        r.categorical(k[4], jnp.arange(5.0), shape=(20,)),
        r.choice(k[5], 50, (10,), replace=False),
        r.dirichlet(k[6], jnp.ones(4), (3,)),
        r.gumbel(k[7], (20,)),
        r.laplace(k[8], (20,)),
        r.multivariate_normal(k[9], jnp.zeros(3), jnp.eye(3) + 0.5, (4,)),
        r.truncated_normal(k[10], -1.0, 2.0, (20,)),
        r.t(k[11], 4.0, (20,)),
        r.orthogonal(k[12], 4),
        r.ball(k[13], 3, shape=(4,)),
        r.binomial(k[14], 20, 0.3, (20,)),
        r.rademacher(k[15], (9,)),
        r.normal(r.key(3, impl="rbg"), (9,)),
        r.cauchy(k[16], (20,)),
        r.maxwell(k[17], (5,)),
        r.permutation(k[18], 12),
        r.bits(k[19], (5,), jnp.uint8),
        r.geometric(k[20], 0.3, (9,)),
        r.triangular(k[21], 0.0, 0.5, 1.0, (9,)),
    )


@program(
    "arrays/special_functions", tolerance=2e-4, why="series and continued fractions of some dozen terms in float32"
)
def special_functions(key):
    x = jax.random.uniform(key, (50,), minval=0.1, maxval=5)
    s = jax.scipy.special
    return (
        s.gammaln(x),
        s.digamma(x),
        s.erf(x),
        s.erfinv(x / 6),
        s.betainc(x, 2.0, x / 6),
        s.gammainc(x, 2.0),
        s.gammaincc(x, 2.0),
        s.i0e(x),
        s.i1(x),
        s.zeta(x + 1, 2.0),
        s.polygamma(1, x),
        s.ndtri(x / 6),
        s.logsumexp(x),
        s.expit(x),
        s.logit(x / 6),
        s.xlogy(x, x),
        s.entr(x),
        s.bessel_jn(x + 5, v=3),
        s.expi(x),
        s.exp1(x),
        s.rel_entr(x, 2.0),
        jax.vmap(jax.grad(s.gammaln))(x),
        jax.vmap(jax.grad(lambda a: s.gammainc(a, 2.0)))(x),
    )
