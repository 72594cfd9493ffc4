"""Fusions with reductions: what kind of loops they need.

Where the minor dimension is reduced, each row is reduced in vector registers, and what depends on the result (the rest
of a softmax or a layer norm) follows while the row is in the cache: :mod:`rows`. Where it remains, a strip of results
is accumulated in the cache while the loops over the reduced dimensions run: :mod:`columns`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.kernel import Kernel
from xlakit.cpu.loops.ir.tracer import Source
from xlakit.cpu.loops.nests.arg_min_max import emit_arg_min_max
from xlakit.cpu.loops.nests.columns import emit_columns
from xlakit.cpu.loops.nests.reduced import Reduced, Root
from xlakit.cpu.loops.nests.rows import emit_rows
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.reduction import Reduce
from xlakit.passes.fusion.fusible import is_large_reduction, is_short_row


def emit_reduction(
    module: Module,
    name: str,
    sources: dict[Instruction, Source],
    computation: Computation,
    roots: Sequence[Root],
) -> Kernel | None:
    """A kernel for a fusion whose reductions all go over the same dimensions; None where there is none."""
    # Smaller reductions are written out inside of the loop over their results.
    reduces = [i for i in computation.instructions if is_large_reduction(i)]
    if not reduces:
        return _emit_short_rows(module, name, sources, computation, roots)
    sizes = reduces[0].operands[0].shape.dimensions
    over = frozenset(reduces[0].op_as(Reduce).dimensions)
    for reduce in reduces[1:]:
        if reduce.operands[0].shape.dimensions != sizes or frozenset(reduce.op_as(Reduce).dimensions) != over:
            return None
    if 0 in sizes:
        return None
    reduced = Reduced(tuple(reduces), sizes, over, tuple(roots), len(sources))
    major = max((d for d in range(len(sizes)) if sizes[d] > 1), default=0)
    if major in over:
        arg_min_max = emit_arg_min_max(module, name, sources, reduced)
        if arg_min_max is not None:
            return arg_min_max
        return emit_rows(module, name, sources, reduced)
    return emit_columns(module, name, sources, reduced)


def _emit_short_rows(
    module: Module,
    name: str,
    sources: dict[Instruction, Source],
    computation: Computation,
    roots: Sequence[Root],
) -> Kernel | None:
    """A kernel for a fusion that gives elements of short rows that it reduces, too; None where it is another one.

    Each row is a vector or two. Inside of a loop over the elements the reduction would be done one after the other.
    """
    reduces = [i for i in computation.instructions if isinstance(i.op, Reduce)]
    if not reduces or not all(is_short_row(i) for i in reduces):
        return None
    sizes, over = reduces[0].operands[0].shape.dimensions, frozenset(reduces[0].op_as(Reduce).dimensions)
    same = all(
        i.operands[0].shape.dimensions == sizes and frozenset(i.op_as(Reduce).dimensions) == over for i in reduces
    )
    if not same or not any(shape.num_elements == math.prod(sizes) for _, _, shape in roots):
        return None
    return emit_rows(module, name, sources, Reduced(tuple(reduces), sizes, over, tuple(roots), len(sources)))
