"""The pass that replaces dynamic dimensions by static ones; the rewrite is in ``padding.py``, loaded when needed."""

from __future__ import annotations

from xlakit.ir.instruction import HloModule
from xlakit.passes.core.framework import Pass, PassContext


class PadDynamic(Pass):
    """Give every array static dimensions: a dynamic one gets its bound, and an S32 scalar with its size.

    Raises UnsupportedError for dimensions without a bound, and async pairs whose results have dynamic dimensions.
    """

    name = "pad-dynamic"
    left_out_by = ""
    is_needed = True

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change all computations in one rewrite, since sizes are passed between them."""
        stale = sum(1 for i in module.instructions if i.shape.is_dynamic)
        if not stale or not context.spend("dynamic", stale):
            return module
        # Imported here, because few programs have dynamic dimensions and the rules take a while to load.
        from xlakit.passes.dynamic.padding import padded

        return padded(module, context)
