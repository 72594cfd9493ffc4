"""The bits of nodes as integers: narrow floats that only move are not widened, so their NaNs keep their bits."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlakit.cpu.loops.ir.index import Node
from xlakit.cpu.loops.ir.nodes import Apply, Constant, Guarded, JoinBits, Load, SplitBits
from xlakit.data.primitive import PrimitiveType
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.elementwise.select import Select

_INTEGERS: Final = {8: PrimitiveType.U8, 16: PrimitiveType.U16}
_SIGNED: Final = {8: PrimitiveType.S8, 16: PrimitiveType.S16}


def bits_of(node: Node, kind: PrimitiveType) -> Node:
    """The bits of a node as another type of the same width."""
    if node.kind is kind:
        return node
    if node.kind.is_floating and kind.is_integral and kind.bit_width >= 8:
        return _bits(node, kind, {})
    # A narrow float that is converted directly to another float type would be widened.
    return Apply(kind, BitcastConvert(), [as_bits(node) if kind.is_floating else node])


def as_bits(node: Node) -> Node:
    """A narrow float as the integer of its bits; any other node itself."""
    kind = _INTEGERS.get(node.kind.bit_width) if node.kind.is_floating else None
    return node if kind is None else bits_of(node, kind)


def as_ordered(node: Node) -> Node:
    """The node to be compared in a total order: a narrow float with several NaNs as the integer of its bits."""
    kind = _SIGNED.get(node.kind.bit_width)
    return node if kind is None or node.kind.has_one_nan or not node.kind.is_floating else bits_of(node, kind)


def as_moved(node: Node) -> Node:
    """The node to be stored: the integer of its bits, if it is a narrow float that is only moved or selected."""
    return as_bits(node) if _moves(node) else node


def _moves(node: Node) -> bool:
    """Whether the node only moves elements, and does not compute with them."""
    pending, seen = [node], {node}
    while pending:
        one = pending.pop()
        if not (isinstance(one, (Load, Constant, SplitBits, JoinBits)) or _is_bitcast(one) or _choices(one)):
            return False
        pending += [choice for choice in _choices(one) if choice not in seen]
        seen.update(pending)
    return True


def _is_bitcast(node: Node) -> bool:
    return isinstance(node, Apply) and isinstance(node.op, BitcastConvert)


def _choices(node: Node) -> tuple[Node, ...]:
    """The nodes of which this node selects one; none for other nodes."""
    if isinstance(node, Guarded):
        return node.inside, node.outside
    return node.arguments[1:] if isinstance(node, Apply) and isinstance(node.op, Select) else ()


def _bits(node: Node, kind: PrimitiveType, known: dict[Node, Node]) -> Node:
    """As :func:`bits_of`; ``known`` has the results for nodes met before, which others may share."""
    if node not in known:
        known[node] = _made(node, kind, known)
    return known[node]


def _made(node: Node, kind: PrimitiveType, known: dict[Node, Node]) -> Node:
    if isinstance(node, Load):
        return Load(kind, node.array, node.offset, node.count)
    if isinstance(node, Constant):
        return Constant(kind, np.asarray(node.value, node.kind.dtype).view(kind.dtype)[()])
    if isinstance(node, SplitBits):
        return SplitBits(kind, node.source, node.number)
    if isinstance(node, JoinBits):
        return JoinBits(kind, node.pieces)
    if isinstance(node, Guarded):
        return Guarded(node.bounds, *(_bits(choice, kind, known) for choice in _choices(node)))
    if isinstance(node, Apply) and isinstance(node.op, Select):
        return Apply(kind, node.op, [node.arguments[0], *(_bits(choice, kind, known) for choice in _choices(node))])
    if isinstance(node, Apply) and isinstance(node.op, BitcastConvert) and node.arguments[0].kind.is_integral:
        (node,) = node.arguments
        return node if node.kind is kind else Apply(kind, BitcastConvert(), [node])
    return Apply(kind, BitcastConvert(), [node])
