"""What JAX makes of its operations on this platform, where that is not what it makes of them everywhere."""

from __future__ import annotations

from typing import Any, Final

# Of these JAX has rules for processors that end in calls of LAPACK; see interpreter/lapack.py. What is not here ends in
# HLO.
_FROM_CPU: Final = (
    "eig_p",
    "eigh_p",
    "geqp3_p",
    "geqrf_p",
    "hessenberg_p",
    "householder_product_p",
    "lu_p",
    "ormqr_p",
    "schur_p",
    "svd_p",
    "tridiagonal_p",
)


def register_lowerings() -> None:
    """Tell JAX, once the platform is registered."""
    from jax._src.interpreters import mlir as interpreter
    from jax._src.lax import linalg

    from xlakit.jax.devices import PLATFORM
    from xlakit.jax.lowerings.callbacks import register_callbacks
    from xlakit.jax.lowerings.later import register_later
    from xlakit.jax.lowerings.platforms import register_platforms
    from xlakit.jax.lowerings.tridiagonal import tridiagonal_solve

    mlir: Any = interpreter
    if PLATFORM not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(PLATFORM)
    for name in _FROM_CPU:
        primitive: Any = getattr(linalg, name)
        entry = mlir._platform_specific_lowerings["cpu"][primitive]
        mlir.register_lowering(primitive, entry.rule, platform=PLATFORM, inline=entry.inline)
    # JAX's own rule for all platforms takes the pivots as they come.
    solve = mlir.lower_fun(tridiagonal_solve, multiple_results=False)
    mlir.register_lowering(linalg.tridiagonal_solve_p, solve, platform=PLATFORM)
    register_callbacks()
    register_platforms()
    register_later()
