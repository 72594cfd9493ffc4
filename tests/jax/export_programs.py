"""Exported programs that two processes make and run: one on xlakit, and one on jaxlib.

Programs travel as the bytes of their modules, which replace the same program's own: that needs no
package for what JAX writes around them.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax


def factorizations(a):
    """Calls of LAPACK's handlers, whose results have no free signs."""
    q, r = jnp.linalg.qr(a)
    upper = jax.scipy.linalg.solve_triangular(jnp.tril(a), a[1], lower=True)
    values = jnp.linalg.eigh(a)[0], jnp.linalg.svd(a)[1]
    return *values, q @ r, jnp.linalg.solve(a, a[0]), upper


def batches(x):
    squares = x @ jnp.swapaxes(x, -1, -2) + 3 * jnp.eye(x.shape[-1])
    return jnp.linalg.cholesky(squares), x.sum(0), jnp.argsort(x, axis=0)


def by_platform(x):
    return lax.platform_dependent(x, cpu=lambda y: y + 1, tpu=lambda y: y - 1)


DRAWN = np.random.default_rng(0).standard_normal((5, 5)).astype(np.float32)
SQUARE = DRAWN @ DRAWN.T + np.eye(5, dtype=np.float32)
# The function, its argument, and the platforms; dimensions of the last program have no sizes.
PROGRAMS = {
    "factorizations": (factorizations, SQUARE, ("cpu",), ""),
    "several_platforms": (by_platform, DRAWN[0], ("cpu", "tpu"), ""),
    "symbolic": (batches, np.stack([DRAWN, SQUARE]), ("cpu", "cuda"), "b, n, n"),
}


def exported(name):
    function, argument, platforms, dimensions = PROGRAMS[name]
    shape = export.symbolic_shape(dimensions) if dimensions else argument.shape
    return export.export(jax.jit(function), platforms=platforms)(jax.ShapeDtypeStruct(shape, argument.dtype))


def make(folder, *, platform):
    """Write the modules, and what this process calculates, on that platform."""
    assert ("xlakit" in jax.devices()[0].client.platform_version) == (platform == "xlakit")
    for name, (function, argument, _, _) in PROGRAMS.items():
        (folder / name).write_bytes(exported(name).mlir_module_serialized)
        np.savez(folder / f"{name}.npz", *map(np.asarray, jax.tree.leaves(jax.jit(function)(argument))))


def run(folder):
    """Run the modules, and compare with what the process calculated that wrote them."""
    for name, (_, argument, _, _) in PROGRAMS.items():
        given = dataclasses.replace(exported(name), mlir_module_serialized=(folder / name).read_bytes())
        found, expected = jax.tree.leaves(given.call(argument)), np.load(folder / f"{name}.npz")
        assert len(found) == len(expected.files)
        for result, other in zip(found, expected.values(), strict=True):
            np.testing.assert_allclose(result, other, rtol=2e-5, atol=2e-5, err_msg=name)
