"""Rotations, harmonics, polynomials, interpolation and images: e3nn, jaxlie, s2fft, orthax, interpax and dm-pix."""

from __future__ import annotations

import dm_pix
import e3nn_jax
import interpax
import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import orthax
import s2fft

from fuzz.library_programs.registry import program


@program("e3nn/tensor_products")
def tensor_products(key):
    one, other = jax.random.split(key)
    x = e3nn_jax.normal("2x0e+1x1o+1x2e", one, (5,))
    directions = e3nn_jax.normal("1o", other, (5,))
    return e3nn_jax.tensor_product(x, e3nn_jax.spherical_harmonics("0e+1o+2e", directions, True)).array


@program("jaxlie/groups", tolerance=1e-4, why="logarithms of rotations, by differences of cosines from 1")
def groups(key):
    start = jaxlie.SE3.exp(jnp.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))

    def moved(tangent):
        return (jaxlie.SE3.exp(tangent) @ start).log()

    return (
        start.as_matrix(),
        start.inverse().log(),
        jaxlie.SO3.sample_uniform(key).as_matrix(),
        jax.jacfwd(moved)(jnp.full(6, 0.1)),
        jaxlie.manifold.rplus(start, jnp.full(6, 0.01)).as_matrix(),
    )


@program("s2fft/there_and_back", jit=False, x64=True)
def there_and_back(key):
    limit = 8
    coefficients = s2fft.utils.signal_generator.generate_flm(np.random.default_rng(0), limit)
    signal = s2fft.inverse_jax(jnp.asarray(coefficients), limit)
    return signal, s2fft.forward_jax(signal, limit)


@program("orthax/series", jit=False, tolerance=1e-3, why="roots of a polynomial and a fit of degree 5")
def series(key):
    x, coefficients = jnp.linspace(-1, 1, 30), jax.random.normal(key, (8,))
    return (
        orthax.chebyshev.chebval(x, coefficients),
        orthax.legendre.leggauss(9),
        orthax.hermite.hermroots(jnp.array([1.0, 2, 3, 0.5])),
        orthax.polynomial.polyfit(x, jnp.sin(x), 5),
    )


@program("interpax/methods")
def methods(key):
    x, at = jnp.linspace(0, 3, 20), jnp.sort(jax.random.uniform(key, (50,), minval=0.1, maxval=2.9))
    values, plane = jnp.sin(2 * x), jnp.outer(jnp.sin(x), jnp.cos(x))
    names = ("nearest", "linear", "cubic", "cubic2", "monotonic", "akima", "catmull-rom")
    found = [interpax.interp1d(at, x, values, method=name) for name in names]
    return found, interpax.interp2d(at, at[::-1], x, x, plane, method="cubic")


@program("dm_pix/augmentations")
def augmentations(key):
    images = jax.random.uniform(key, (3, 16, 18, 3))

    def changed(key, image):
        return (
            dm_pix.random_flip_left_right(key, image),
            dm_pix.random_crop(key, image, (8, 8, 3)),
            dm_pix.random_hue(key, image, 0.2),
            dm_pix.random_contrast(key, image, 0.5, 1.5),
            dm_pix.gaussian_blur(image, 1.0, 5),
            dm_pix.rotate(image, 0.3),
            dm_pix.elastic_deformation(key, image, 2.0, 2.0),
            dm_pix.solarize(image, 0.5),
            dm_pix.depth_to_space(image[:, :, :1].repeat(4, 2), 2),
        )

    likeness = dm_pix.ssim(images, 0.9 * images + 0.05), dm_pix.psnr(images, 0.9 * images)
    return jax.vmap(changed)(jax.random.split(key, 3), images), likeness
