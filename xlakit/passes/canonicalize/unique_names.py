"""Makes the names of instructions unique in a program that spans processes."""

from __future__ import annotations

from xlakit.formats.unique_names import unique_names
from xlakit.ir.instruction import HloModule
from xlakit.ir.rebuilding import rebuilt
from xlakit.passes.core.framework import Pass, PassContext


class UniqueNames(Pass):
    """Rename instructions that have the name of one in another computation, as the compile cache does.

    Processes identify collectives by their names, so a process that compiled a program must use the same names as one
    that loaded it from the cache.
    """

    name = "unique-names"
    is_needed = True
    left_out_by = ""

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """The module with unique names; the same object if they are unique already."""
        names = unique_names(i for i in module.instructions)
        if all(i.name == name for i, name in names.items()):
            return module
        return rebuilt(module, lambda old, new: new.replace(name=names[old]))
