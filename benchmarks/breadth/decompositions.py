"""Linear algebra: decompositions and solvers of one matrix and of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import jax.scipy.linalg as jsl

from benchmarks.breadth.row import array, row
from benchmarks.program import Workload


def _definite(x: Any) -> Any:
    return x @ jnp.swapaxes(x, -1, -2) / x.shape[-1] + 2 * jnp.eye(x.shape[-1], dtype=x.dtype)


# Functions whose results have the same signs from XLA and from xlakit.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda x: jnp.linalg.cholesky(_definite(x)),
    "cholesky_solve": lambda x: jnp.linalg.solve(_definite(x), x),
    "solve_vector": lambda x: jnp.linalg.solve(_definite(x), x[..., :1]),
    "inv": lambda x: jnp.linalg.inv(_definite(x)),
    "det": lambda x: jnp.linalg.slogdet(_definite(x))[1],
    "qr": lambda x: jnp.abs(jnp.linalg.qr(_definite(x))[1]),
    "svd": lambda x: jnp.linalg.svd(x, compute_uv=False),
    "svd_vectors": lambda x: jnp.linalg.svd(_definite(x), full_matrices=False)[1],
    "eigh": lambda x: jnp.linalg.eigh(_definite(x))[0],
    "eigvalsh": lambda x: jnp.linalg.eigvalsh(_definite(x)),
    "triangular": lambda x: jsl.solve_triangular(jnp.tril(_definite(x)), x, lower=True),
    "expm": lambda x: jsl.expm(x / (3 * x.shape[-1])),
    "lu": lambda x: jsl.lu_factor(_definite(x))[0],
    "pinv": lambda x: jnp.linalg.pinv(_definite(x)),
    "matrix_power": lambda x: jnp.linalg.matrix_power(x / x.shape[-1], 5),
}


def rows() -> Iterator[Workload]:
    """Sides 3 to 256, alone and in batches."""
    for side, batch in ((3, 1), (8, 1), (32, 1), (100, 1), (256, 1), (3, 1000), (8, 1000), (16, 200), (32, 64)):
        shape = (side, side) if batch == 1 else (batch, side, side)
        for name, function in _FUNCTIONS.items():
            if name in ("expm", "pinv") and batch > 1:
                continue
            for kind in ("f32", "f64"):
                yield row(
                    "decompositions", f"{name} {kind} {batch}x{side}", function, array(kind, *shape), tolerance=1e4
                )
