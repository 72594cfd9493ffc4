"""Passes whose modules are loaded when a program has what they change.

A process imports each module that it needs, which takes longer than compiling a small program does. So a pass for
loops, collectives or products is known by its name until a program has any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module

from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import Op
from xlakit.passes.core.framework import Pass, PassContext

# Whether a program may have what a pass changes.
Condition = Callable[[HloModule], bool]


def has(*operations: type[Op]) -> Condition:
    """Whether a program has instructions of these operations."""

    def found(module: HloModule) -> bool:
        return any(
            isinstance(i.op, operations) for computation in module.computations for i in computation.instructions
        )

    return found


def calls(*operations: type[Op]) -> Condition:
    """Whether a program has instructions of these operations, all of which call computations."""

    def found(module: HloModule) -> bool:
        return any(isinstance(i.op, operations) for c in module.computations for i in c.callers)

    return found


class Deferred(Pass):
    """A pass of another module."""

    def __init__(
        self,
        name: str,
        module: str,
        class_name: str,
        condition: Condition | None = None,
        *,
        left_out_by: str = Pass.left_out_by,
        is_needed: bool = False,
    ) -> None:
        """The pass of a class; ``name``, ``left_out_by`` and ``is_needed`` are the class's own.

        condition: without it the pass has nothing to do, and is not loaded; None where it always runs.
        """
        self.name, self.left_out_by, self.is_needed = name, left_out_by, is_needed
        self._module, self._class_name, self._condition = module, class_name, condition

    @cached_property
    def loaded(self) -> Pass:
        """The pass itself."""
        return getattr(import_module(self._module), self._class_name)()

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """What the pass makes of a module that has what it changes."""
        if self._condition is not None and not self._condition(module):
            return module
        return self.loaded.run(module, context)

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return self.loaded.summary

    @property
    def parts(self) -> dict[str, str]:
        """Its rewrites that can be left out one by one."""
        return self.loaded.parts
