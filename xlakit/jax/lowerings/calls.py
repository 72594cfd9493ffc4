"""The custom calls that JAX's programs make on this platform."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def register_calls() -> None:
    """Register them before the first program is compiled. Their functions are loaded when they are first called."""
    from xlakit.execution.calls.custom_calls import register_custom_call
    from xlakit.jax.lowerings import callbacks, sparse

    for target in (callbacks.TARGET, callbacks.TARGET_ON_PARTS):
        register_custom_call(target, callbacks.answer, with_context=True)
    register_custom_call(sparse.TARGET, sparse.sparse_solve)
    # It is kept for its operands, as every custom call with side effects is.
    register_custom_call("dce_sink", _sink)


def _sink(*_: Any) -> tuple[()]:
    return ()
