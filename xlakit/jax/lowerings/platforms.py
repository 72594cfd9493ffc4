"""Selects the branch of ``lax.platform_dependent``: that for ``xlakit`` or, if there is none, that for ``cpu``.

A branch for ``cpu`` is suitable, as this compiler compiles for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlakit.jax.identity import CPU, OWN

# For each branch the platforms that it is for; None for the default.
Platforms = tuple[tuple[str, ...] | None, ...]


def with_ours(platforms: Platforms) -> Platforms:
    """The same branches, with this platform added to a branch for ``cpu``."""
    if any(branch is not None and OWN in branch for branch in platforms):
        return platforms
    return tuple((*branch, OWN) if branch is not None and CPU in branch else branch for branch in platforms)


def register_platforms() -> None:
    """Patch two of JAX's rules: the one for the number of the branch, and the one that drops the other branches."""
    from jax._src.interpreters import mlir as interpreter
    from jax._src.lax.control_flow import conditionals

    mlir: Any = interpreter
    for primitive, name in ((conditionals.platform_index_p, "platforms"), (conditionals.cond_p, "branches_platforms")):
        rule = mlir._lowerings[primitive].rule
        mlir.register_lowering(primitive, _changing(rule, name), platform=OWN)


def _changing(rule: Callable[..., Any], name: str) -> Callable[..., Any]:
    def lower(ctx: Any, *arguments: Any, **parameters: Any) -> Any:
        if parameters.get(name) is not None:
            parameters[name] = with_ours(parameters[name])
        return rule(ctx, *arguments, **parameters)

    return lower
