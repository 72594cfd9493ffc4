"""Lowering rules for operations of JAX modules that a program may import later, or never.

Before the import a primitive is known by its name only. JAX looks rules up in the table of a platform; the table here
creates a deferred rule when JAX first looks it up. It ignores rules that JAX's modules register for the platform if
there is a deferred rule for the primitive, or if JAX's rule for all platforms is to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set as AbstractSet
from typing import Any, Final

from xlakit.jax.identity import CPU
from xlakit.jax.lowerings.narrow import wide_rule
from xlakit.jax.lowerings.sparse import solve_rule

Makers = Mapping[str, Callable[[Any], Any]]


def _rule_for_processors(primitive: Any) -> Any:
    """JAX's rule for its own CPU platform. It emits a callback, which becomes a callback of this platform."""
    from jax._src.interpreters import mlir as interpreter

    mlir: Any = interpreter
    return mlir._platform_specific_lowerings[CPU][primitive].rule


def _buffer_rule(primitive: Any) -> Any:
    # The module is slow to import, and few programs need it.
    from xlakit.jax.lowerings.buffers import buffer_rule

    return buffer_rule(primitive)


# The functions that make the deferred rules, by name of the primitive: for functions that write into buffers, for
# functions whose rules for all platforms lack types, and for primitives without a rule for this platform (checkify's
# checks, sparse solves).
OURS: Final[Makers] = {
    "buffer_callback": _buffer_rule,
    "bessel_i1e": wide_rule,
    "erf": wide_rule,
    "erfc": wide_rule,
}
WITHOUT_JAX: Final[Makers] = {"check": _rule_for_processors, "spsolve": solve_rule}


class _Rules(dict[Any, Any]):
    """The table of the rules of a platform."""

    def __init__(self, rules: Mapping[Any, Any], makers: Makers, common: AbstractSet[str]) -> None:
        super().__init__()
        self._makers, self._common = makers, common
        for primitive, rule in rules.items():
            self[primitive] = rule

    def __contains__(self, primitive: object) -> bool:
        if super().__contains__(primitive):
            return True
        make = self._makers.get(_name(primitive))
        if make is None:
            return False
        from jax._src.interpreters import mlir as interpreter

        mlir: Any = interpreter
        super().__setitem__(primitive, mlir.LoweringRuleEntry(make(primitive), inline=True))
        return True

    def __setitem__(self, primitive: Any, rule: Any) -> None:
        if _name(primitive) not in self._common and _name(primitive) not in self._makers:
            super().__setitem__(primitive, rule)


def _name(primitive: object) -> str:
    return getattr(primitive, "name", "")


def register_rules(platform: str, makers: Makers, common: AbstractSet[str]) -> None:
    """Replace JAX's table of rules for a platform.

    makers: the rules that it makes. common: primitives that are left to JAX's rules for all platforms.
    """
    from jax._src.interpreters import mlir as interpreter

    mlir: Any = interpreter
    tables = mlir._platform_specific_lowerings
    tables[platform] = _Rules(tables[platform], makers, common)
