"""Functions of floats of 8 and 4 bits, which jaxlib's conversion of StableHLO supports for wider floats only."""

from __future__ import annotations

from typing import Any

_WIDE = ("bfloat16", "float16", "float32", "float64")


def wide_rule(primitive: Any) -> Any:
    """JAX's rule for all platforms, with narrow floats converted to F32 before and back afterwards."""
    import jax.numpy as jnp
    from jax._src.interpreters import mlir as interpreter

    mlir: Any = interpreter
    usual = mlir._lowerings[primitive].rule

    def in_f32(x: Any, **parameters: Any) -> Any:
        return primitive.bind(x.astype(jnp.float32), **parameters).astype(x.dtype)

    narrow = mlir.lower_fun(in_f32, multiple_results=False)

    def rule(context: Any, x: Any, **parameters: Any) -> Any:
        own = usual if context.avals_in[0].dtype.name in _WIDE else narrow
        return own(context, x, **parameters)

    return rule
