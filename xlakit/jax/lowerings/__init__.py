"""Lowering rules of JAX's operations for this platform, where JAX's rules for all platforms are not used."""

from __future__ import annotations

from typing import Any, Final

from xlakit.jax.identity import CPU
from xlakit.jax.versions import of_jax

# Operations for which JAX's rules for its platform cpu are used: they make calls of LAPACK; see
# execution/calls/lapack.py. The rules of all others make HLO.
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

# Operations for which JAX's rules for its platform cpu work around missing or slow parts of XLA's CPU compiler. Here
# JAX's rules for all platforms are used instead, which make HLO, or fewer operations.
_COMMON: Final = frozenset(
    {"bcsr_dot_general", "cholesky", "select_and_scatter_add", "threefry2x32", "triangular_solve"}
)

# Operations that are lowered to functions, which are converted once for each program: each has some twenty
# instructions, and solvers of differential equations use it a hundred times.
_AS_FUNCTIONS: Final = ("nextafter_p",)


def register_lowerings(platform: str) -> None:
    """Register the rules with JAX, after the platform has been registered."""
    from jax._src.interpreters import mlir as interpreter
    from jax._src.lax import lax, linalg

    from xlakit.jax.lowerings.callbacks import register_callbacks
    from xlakit.jax.lowerings.deferred import OURS, WITHOUT_JAX, register_rules
    from xlakit.jax.lowerings.partitioning import register_functions
    from xlakit.jax.lowerings.platforms import register_platforms
    from xlakit.jax.lowerings.tridiagonal import tridiagonal_solve

    mlir: Any = interpreter
    primitive: Any
    if platform == CPU:
        register_rules(platform, OURS, _COMMON)
    else:
        mlir._platforms_with_donation.append(platform)
        missing = of_jax().missing_primitives()
        for name in (name for name in _FROM_CPU if name not in missing):
            primitive = getattr(linalg, name)
            entry = mlir._platform_specific_lowerings[CPU][primitive]
            mlir.register_lowering(primitive, entry.rule, platform=platform, inline=entry.inline)
        register_platforms()
        register_rules(platform, {**OURS, **WITHOUT_JAX}, frozenset())
    for name in _AS_FUNCTIONS:
        primitive = getattr(lax, name)
        mlir.register_lowering(primitive, mlir._lowerings[primitive].rule, platform=platform, inline=False)
    # JAX's own rule for all platforms takes the pivots as they come.
    solve = mlir.lower_fun(tridiagonal_solve, multiple_results=False)
    mlir.register_lowering(linalg.tridiagonal_solve_p, solve, platform=platform)
    register_callbacks(platform)
    register_functions()
