"""The custom calls that JAX's programs make on this platform."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def register_calls() -> None:
    """Have them known before the first program is compiled. What they do is Python's, which takes a while to load."""
    from xlakit.execution.calls.custom_calls import register_custom_call
    from xlakit.jax.lowerings import callbacks, sparse

    for target in (callbacks.TARGET, callbacks.TARGET_ON_PARTS):
        register_custom_call(target, callbacks.answer, with_context=True)
    register_custom_call(sparse.TARGET, sparse.sparse_solve)
    # It is there for what is computed for it, as all custom calls with effects are.
    register_custom_call("dce_sink", _sink)


def _sink(*_: Any) -> tuple[()]:
    return ()
