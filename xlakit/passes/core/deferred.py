"""Passes whose modules are imported only when a program contains the operations that they change.

Importing all passes takes longer than compiling a small program. So a pass for loops, collectives or products is
represented by its name and a condition until a program meets that condition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module

from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import Op
from xlakit.passes.core.framework import Pass, PassContext

# Whether a program may contain something that a pass changes.
Condition = Callable[[HloModule], bool]


def has(*operations: type[Op]) -> Condition:
    """The condition that a program has instructions of these operations."""

    def found(module: HloModule) -> bool:
        return any(isinstance(i.op, operations) for i in module.instructions)

    return found


def calls(*operations: type[Op]) -> Condition:
    """The condition that a program has instructions of these operations.

    All of these must be operations that call computations; the test is then cheaper than :func:`has`.
    """

    def found(module: HloModule) -> bool:
        return any(isinstance(i.op, operations) for c in module.computations for i in c.calling_instructions)

    return found


class Deferred(Pass):
    """Stands for a pass of a module that is not imported yet."""

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
        """Stands for the pass of a class; ``name``, ``left_out_by`` and ``is_needed`` must be those of the class.

        condition: where it is false the pass has nothing to do and is not loaded; None if the pass always runs.
        """
        self.name, self.left_out_by, self.is_needed = name, left_out_by, is_needed
        self._module, self._class_name, self._condition = module, class_name, condition

    @cached_property
    def loaded(self) -> Pass:
        """The pass itself; imports its module."""
        return getattr(import_module(self._module), self._class_name)()

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Run the pass if the module meets the condition; otherwise give the module unchanged."""
        if self._condition is not None and not self._condition(module):
            return module
        return self.loaded.run(module, context)

    @property
    def summary(self) -> str:
        """What the pass does, in one line."""
        return self.loaded.summary

    @property
    def parts(self) -> dict[str, str]:
        """The rewrites of the pass that can be disabled one by one."""
        return self.loaded.parts
