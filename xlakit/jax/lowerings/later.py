"""Rules for operations of modules of JAX that a program may import after JAX has begun, or never.

Their primitives are known by name alone before. JAX looks a rule up in the table of its platform, so the table makes
these rules when it is first asked for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from xlakit.jax.devices import PLATFORM
from xlakit.jax.lowerings.sparse import solve_rule


def _rule_for_processors(primitive: Any) -> Any:
    """The rule that JAX has for its own CPU platform; it ends in a callback, which is ours here."""
    from jax._src.interpreters import mlir as interpreter

    mlir: Any = interpreter
    return mlir._platform_specific_lowerings["cpu"][primitive].rule


def _buffer_rule(primitive: Any) -> Any:
    # Its module takes a while to load, and few programs need it.
    from xlakit.jax.lowerings.buffers import buffer_rule

    return buffer_rule(primitive)


# Names of primitives, and what makes the rule of each: checkify's checks, systems of sparse matrices, and functions
# that write into buffers.
_LATER: Final[dict[str, Callable[[Any], Any]]] = {
    "check": _rule_for_processors,
    "spsolve": solve_rule,
    "buffer_callback": _buffer_rule,
}


class _Rules(dict[Any, Any]):
    """The table of the rules of a platform."""

    def __contains__(self, primitive: object) -> bool:
        if super().__contains__(primitive):
            return True
        make = _LATER.get(getattr(primitive, "name", ""))
        if make is None:
            return False
        from jax._src.interpreters import mlir as interpreter

        mlir: Any = interpreter
        mlir.register_lowering(primitive, make(primitive), platform=PLATFORM)
        return True


def register_later() -> None:
    """Put the table in the place of JAX's."""
    from jax._src.interpreters import mlir as interpreter

    mlir: Any = interpreter
    tables = mlir._platform_specific_lowerings
    tables[PLATFORM] = _Rules(tables[PLATFORM])
