"""Decides whether values under conditions are computed in branches, or all computed and then selected.

At its end a branch forgets the values computed in it, and another branch that needs the same values computes them
again. In a chain of concatenations, each branch of one contains all branches of the one before it:

    y(i) = i < k ? x(i + a) : x(i - b)    z(i) = i < k ? y(i + a) : y(i - b)    z: x(i + 2a), x(i), x(i), x(i - 2b)

If this makes much more code than there are nodes, both sides are computed, each node once, and loads are clamped to
their arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from xlakit.cpu.loops.ir.index import Node
from xlakit.cpu.loops.ir.nodes import Constant, Given, Guarded, Load, Reduction
from xlakit.options import knob

# Reductions of at most so many iterations are written out, so that the loop around them can be vectorized.
UNROLLED = knob("guards.unrolled", 16, 0, 2)
# Code of so many nodes is not too much, and of so many times those that there are.
_LITTLE = knob("guards.little", 200, 0)
_OFTEN = knob("guards.often", 2.0, 0.0)


def reads(node: Node) -> bool:
    """Whether a node reads memory, or has loops."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        found = stack.pop()
        if isinstance(found, (Load, Reduction)):
            return True
        if found not in seen:
            seen.add(found)
            stack.extend(found.operands)
    return False


def prefers_selects(node: Guarded, width: int) -> bool:
    """Whether all that a node is made of should be computed, its conditions only choosing.

    width: how many elements a load may read.
    """
    nodes = _made_of(node)
    if any(n.count is None or n.count < width for n in nodes if isinstance(n, Load)):
        return False
    counting = _Counting(max(_LITTLE.value, _OFTEN.value * len(nodes)))
    counting.visit(node)
    return counting.is_too_much


def _made_of(node: Node) -> set[Node]:
    found = {node}
    stack = [node]
    while stack:
        fresh = [n for n in stack.pop().operands if n not in found]
        found.update(fresh)
        stack += fresh
    return found


class _Counting:
    """Counts how many nodes are written where conditions are branches, until that is too much."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._written = 0
        self._scopes: list[set[Node]] = [set()]

    @property
    def is_too_much(self) -> bool:
        """Whether more was counted than the most."""
        return self._written > self._most

    def visit(self, node: Node) -> None:
        """Count a node, and what is written for it."""
        if self.is_too_much or any(node in scope for scope in self._scopes) or isinstance(node, (Constant, Given)):
            return
        self._scopes[-1].add(node)
        self._written += 1
        if isinstance(node, Guarded) and (reads(node.inside) or reads(node.outside)):
            self._visit_all(n for n in node.operands if n is not node.inside and n is not node.outside)
            for side in (node.inside, node.outside):
                self._visit_apart([side], 1)
        elif isinstance(node, Reduction):
            self._visit_all(node.initial)
            iterations = math.prod(v.extent for v in node.over)
            self._visit_apart(node.inputs, iterations if iterations <= UNROLLED.value else 1)
        else:
            self._visit_all(node.operands)

    def _visit_all(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.visit(node)

    def _visit_apart(self, nodes: Iterable[Node], times: int) -> None:
        self._scopes.append(set())
        before = self._written
        self._visit_all(nodes)
        self._written += (times - 1) * (self._written - before)
        self._scopes.pop()
