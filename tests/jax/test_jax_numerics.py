"""What JAX's own tests have found: operations on xlakit against jaxlib's CPU and NumPy."""

import math
import os

import numpy as np
from test_jax_programs import both


def check_tridiagonal_systems():
    import jax
    from jax import lax

    @jax.jit
    def solve(*system):
        return [lax.linalg.tridiagonal_solve(*system, perturb_singular=perturb) for perturb in (False, True)]

    random = np.random.default_rng(0)
    for size, dtype in ((1, np.float32), (10, np.complex64)):
        # Small pivots, which have to be exchanged, and rubbish beside the corners.
        below, diagonal, above = random.standard_normal((3, 4, size)).astype(dtype)
        diagonal[:2] *= dtype(1e-3)
        right = random.standard_normal((4, size, 3)).astype(dtype)
        for x in map(np.asarray, solve(below, diagonal, above, right)):
            product = diagonal[..., None] * x
            product[:, 1:] += below[:, 1:, None] * x[:, :-1]
            product[:, :-1] += above[:, :-1, None] * x[:, 1:]
            np.testing.assert_allclose(product, right, atol=2e-3)


def check_singular_tridiagonal_systems():
    from jax import lax

    # The first of three is.
    diagonal = np.array([[0, 0, 0], [1, 2, 3], [1, 4, 1]], np.float32)
    beside = np.array([[0, 0, 0], [0, 0, 0], [2, 2, 0]], np.float32)
    right = np.ones((3, 3, 1), np.float32)

    def solve(perturb):
        return lambda *system: lax.linalg.tridiagonal_solve(*system, perturb_singular=perturb)

    below = beside[:, ::-1]
    x = both(solve(False), below, diagonal, beside, right)
    assert np.isfinite(x).all((1, 2)).tolist() == [False, True, True]
    x = np.asarray(solve(True)(below, diagonal, beside, right))
    assert np.isfinite(x).all()
    assert (abs(x[0]) > 1e6).all()
    np.testing.assert_allclose(x[1, :, 0], [1, 1 / 2, 1 / 3], rtol=1e-6)


def check_neighbors_are_one_function():
    import jax
    import jax.numpy as jnp

    def two_further(x):
        return jnp.nextafter(jnp.nextafter(x, jnp.inf), jnp.inf)

    ends = np.finfo(np.float32)
    x = np.array([0, -0.0, 1, -1, ends.max, ends.smallest_subnormal, -ends.smallest_subnormal, np.inf, np.nan], "f4")
    np.testing.assert_array_equal(both(two_further, x), np.nextafter(np.nextafter(x, np.inf), np.inf))
    text = jax.jit(two_further).lower(x).as_text()
    assert (text.count("chlo.next_after"), text.count("call @nextafter")) == (1, 2), text


def check_subnormal_numbers_are_as_on_xla_unless_options_say_otherwise():
    import jax

    tiny, x = np.float32(1e-40), np.arange(5, dtype=np.float32)
    # XLA's CPU backend takes them for zero, where it computes with them.
    np.testing.assert_array_equal(jax.jit(lambda x: x * tiny)(x), x * 0)
    np.testing.assert_array_equal(jax.jit(lambda x: x[::-1])(x * tiny), x[::-1] * tiny)
    # jaxlib has a thread for compilation, which no context of this one reaches, and which flushes constants.
    os.environ["XLAKIT_FLUSH_SUBNORMALS"] = "0"
    np.testing.assert_array_equal(jax.jit(lambda x: x * tiny)(x + 1), (x + 1) * tiny)
    in_parts = jax.jit(lambda x: x * np.float64(1e-310).astype(x.dtype) + tiny)
    np.testing.assert_array_equal(in_parts(x), x * 0 + tiny)
    np.testing.assert_array_equal(jax.jit(lambda: jax.numpy.asarray(x) * tiny)(), x * tiny)


def check_functions_of_narrow_floats():
    import jax
    import jax.numpy as jnp
    from jax import lax

    every = np.arange(256, dtype=np.uint8)
    for kind in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3b11fnuz, jnp.float8_e3m4):
        x = every.view(kind)
        # Of all numbers at once, and in a batch; NaN has several forms.
        given, expected = (np.asarray(f(x)).astype(np.float32) for f in (jax.jit(lax.erf), _erf))
        np.testing.assert_array_equal(given, expected)
        np.testing.assert_array_equal(np.asarray(jax.vmap(lax.erf)(x)).astype(np.float32), expected)
    # These not even jaxlib's CPU has.
    one = jnp.ones(3, jnp.float8_e5m2)
    np.testing.assert_array_equal(jax.nn.gelu(one, approximate=False), jnp.float8_e5m2(0.875))
    np.testing.assert_array_equal(jax.jit(lax.bessel_i1e)(one), jnp.float8_e5m2(0.2079))


def _erf(x):
    return np.vectorize(math.erf)(x.astype(np.float64)).astype(x.dtype)


def test_on_xlakit(check, on_xlakit):
    on_xlakit(check)
