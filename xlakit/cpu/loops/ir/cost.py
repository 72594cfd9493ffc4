"""The estimated cost of nodes, in nanoseconds for each element on one core, for decisions about dividing work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from xlakit.cpu.loops.ir.index import Node, Variable
from xlakit.cpu.loops.ir.nodes import Apply, Divided, Load, Reduction, walk
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Op
from xlakit.ops.reduction import applied_op
from xlakit.passes.analysis.cost_model import CostModel, cost_model, widths_of

# Cycles for a quotient of indices, and for an iteration of a loop and of a reduction, beside the operations in it.
_QUOTIENT: Final = 4.0
_ITERATION: Final = 0.2
_REDUCTION_ITERATION: Final = 1.2


def element_cost(
    nodes: Iterable[Node], variables: Iterable[Variable] | None = None, *, array_bytes: float = 0.0
) -> float:
    """The cost of one iteration of a loop that computes the nodes, in nanoseconds.

    variables: the loop's variables, if nodes that do not depend on them are computed before the loop. array_bytes: the
    bytes that all iterations read and write (:func:`bytes_of`), which come from the cache that has room for them.
    """
    own, model = None if variables is None else frozenset(variables), cost_model()
    return _cost(nodes, own, {}, model, model.loaded_byte(array_bytes))


def bytes_of(nodes: Iterable[Node]) -> float:
    """The bytes of the arrays that nodes read: each array counts once."""
    arrays: dict[int, int] = {}
    for node in walk(list(nodes)):
        if isinstance(node, Load):
            count = math.prod(v.extent for v in node.variables) if node.count is None else node.count
            arrays[node.array] = max(arrays.get(node.array, 0), count * node.kind.byte_width)
    return float(sum(arrays.values()))


def _cost(
    nodes: Iterable[Node],
    own: frozenset[Variable] | None,
    known: dict[Reduction, float],
    model: CostModel,
    loaded_byte: float,
) -> float:
    """As :func:`element_cost`; ``known`` has the cost of an iteration of each reduction met so far."""
    every, total, has_reductions = list(nodes), 0.0, False
    for node in walk(every):
        has_reductions = has_reductions or isinstance(node, Reduction)
        if own is not None and node.variables.isdisjoint(own):
            continue
        if isinstance(node, Load):
            total += loaded_byte * node.kind.byte_width
        elif isinstance(node, Apply):
            total += _operation(model, node.op, node.kind)
        elif isinstance(node, Divided):
            total += model.cycles(_QUOTIENT)
    if not has_reductions:
        return total + model.cycles(_ITERATION)
    # Reductions inside of reductions are counted in the iterations of those.
    for node in walk(every, lambda n: n.initial if isinstance(n, Reduction) else n.operands):
        if isinstance(node, Reduction) and (own is None or not node.variables.isdisjoint(own)):
            if node not in known:
                inner = _cost(node.inputs, None, known, model, loaded_byte) + reducer_cost(node.computation)
                known[node] = model.cycles(_REDUCTION_ITERATION) + inner
            total += math.prod(v.extent for v in node.over) * known[node]
    return total + model.cycles(_ITERATION)


def reducer_cost(computation: Computation) -> float:
    """The cost of one iteration of a reduction beyond that of a single operation, in nanoseconds."""
    if applied_op(computation) is not None:
        return 0.0
    model = cost_model()
    return sum(_operation(model, i.op, i.shape.element_type) for i in computation.instructions if i.shape.is_array)


def _operation(model: CostModel, op: Op, kind: PrimitiveType) -> float:
    return model.operation(op).alone * widths_of(kind)
