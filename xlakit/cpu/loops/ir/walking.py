"""Going through nodes: what they are made of, and which indices occur in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from xlakit.cpu.loops.ir.index import Affine, Node, Opaque
from xlakit.cpu.loops.ir.nodes import Divided, Guarded, Load, Position, SplitBits
from xlakit.cpu.loops.ir.tracer import GuardedReduction


def indices_of(nodes: Iterable[Node], also: Iterable[Affine] = ()) -> list[Affine]:
    """Every index that occurs in nodes and in what they are made of."""
    found: dict[Affine, None] = dict.fromkeys(also)
    for node in walk(nodes):
        if isinstance(node, Load):
            found[node.offset] = None
        elif isinstance(node, (Position, Divided)):
            found[node.index] = None
        elif isinstance(node, SplitBits):
            found[node.number] = None
        elif isinstance(node, (Guarded, GuardedReduction)):
            found.update((b[0], None) for b in node.bounds)
    return list(found)


def walk(nodes: Iterable[Node], operands: Callable[[Node], Iterable[Node]] = lambda n: n.operands) -> Iterator[Node]:
    """Each node that the given ones are made of, and themselves; ``operands`` says what a node is made of."""
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack.extend(operands(node))
        if isinstance(node, GuardedReduction):
            for affine, *_ in node.bounds:
                stack.extend(atom.node for atom, _ in affine.terms if isinstance(atom, Opaque))


def unconditional(node: Node) -> Sequence[Node]:
    """What is computed whenever the node is."""
    if isinstance(node, Guarded):
        return [n for n in node.operands if n is not node.inside and n is not node.outside]
    if isinstance(node, GuardedReduction):
        return node.initial
    return node.operands
