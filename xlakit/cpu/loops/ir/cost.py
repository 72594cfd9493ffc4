"""What a node costs, in nanoseconds for each element on one core: for choosing how to split work, not for promises."""

from __future__ import annotations

import math
from collections.abc import Iterable

from xlakit.cpu.loops.ir.index import Node, Variable
from xlakit.cpu.loops.ir.nodes import Apply, Divided, Fold, Load
from xlakit.cpu.loops.ir.walking import walk
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Op
from xlakit.ops.reduction import applied_op
from xlakit.passes.analysis.cost_model import (
    FOLD_ITERATION,
    ITERATION,
    LOADED_BYTE,
    QUOTIENT,
    operation_cost,
    widths_of,
)


def element_cost(nodes: Iterable[Node], variables: Iterable[Variable] | None = None) -> float:
    """What one iteration of a loop that computes the nodes costs, in nanoseconds.

    variables: those of the loop, where what depends on others alone is computed before it.
    """
    return _cost(nodes, None if variables is None else frozenset(variables), {})


def _cost(nodes: Iterable[Node], own: frozenset[Variable] | None, known: dict[Fold, float]) -> float:
    """The same; ``known`` has what one iteration of each fold costs, which is wanted again where folds share others."""
    every, total = list(nodes), 0.0
    for node in walk(every):
        if own is not None and not node.variables & own:
            continue
        if isinstance(node, Load):
            total += LOADED_BYTE * node.kind.byte_width
        elif isinstance(node, Apply):
            total += _operation(node.op, node.kind)
        elif isinstance(node, Divided):
            total += QUOTIENT
    # Folds inside of folds are a part of their iterations.
    for node in walk(every, lambda n: n.initial if isinstance(n, Fold) else n.operands):
        if isinstance(node, Fold) and (own is None or node.variables & own):
            if node not in known:
                known[node] = FOLD_ITERATION + _cost(node.inputs, None, known) + reducer_cost(node.computation)
            total += math.prod(v.extent for v in node.over) * known[node]
    return total + ITERATION


def reducer_cost(computation: Computation) -> float:
    """What one iteration of a reduction costs beyond a plain one of a single operation, in nanoseconds."""
    if applied_op(computation) is not None:
        return 0.0
    return sum(_operation(i.op, i.shape.element_type) for i in computation.instructions if i.shape.is_array)


def _operation(op: Op, kind: PrimitiveType) -> float:
    return operation_cost(op).alone * widths_of(kind)
