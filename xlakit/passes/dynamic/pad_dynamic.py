"""The pass that gives arrays static dimensions, where a program has others; ``padding.py`` has how."""

from __future__ import annotations

from xlakit.ir.instruction import HloModule
from xlakit.passes.core.framework import Pass, PassContext


class PadDynamic(Pass):
    """Give every array static dimensions: those that were dynamic at their bounds, their sizes as numbers beside them.

    Raises UnsupportedError for dimensions without a bound, and async pairs that give dynamic ones.
    """

    name = "pad-dynamic"
    left_out_by = ""
    is_needed = True

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """All computations at once: a program has dynamic dimensions or not."""
        stale = sum(1 for c in module.computations for i in c.instructions if i.shape.is_dynamic)
        if not stale or not context.spend("dynamic", stale):
            return module
        # Few programs have any, and the rules take a while to load.
        from xlakit.passes.dynamic.padding import padded

        return padded(module, context)
