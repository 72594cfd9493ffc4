"""What JAX makes of its operations on this platform, where that is not what it makes of them everywhere."""

from __future__ import annotations

from typing import Any, Final

# Of these JAX has rules for processors that end in calls of LAPACK; see lapack.py. What is not here ends in HLO.
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

    from xlakit.interpreter.custom_calls import register_custom_call
    from xlakit.jax.devices import PLATFORM
    from xlakit.jax.lapack import lapack_calls
    from xlakit.jax.lowerings.callbacks import register_callbacks
    from xlakit.jax.lowerings.platforms import register_platforms
    from xlakit.jax.lowerings.tridiagonal import tridiagonal_solve

    mlir: Any = interpreter
    if PLATFORM not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(PLATFORM)
    for name in _FROM_CPU:
        primitive: Any = getattr(linalg, name)
        entry = mlir._platform_specific_lowerings["cpu"][primitive]
        mlir.register_lowering(primitive, entry.rule, platform=PLATFORM, inline=entry.inline)
    for name, function in lapack_calls().items():
        register_custom_call(name, function, with_context=True)
    # It is there for what is computed for it, as all custom calls with effects are.
    register_custom_call("dce_sink", _sink)
    # JAX's own rule for all platforms takes the pivots as they come.
    solve = mlir.lower_fun(tridiagonal_solve, multiple_results=False)
    mlir.register_lowering(linalg.tridiagonal_solve_p, solve, platform=PLATFORM)
    register_callbacks()
    register_platforms()


def _sink(*_: Any) -> tuple[()]:
    return ()
