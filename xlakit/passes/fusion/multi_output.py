"""Multi-output fusion: merges clusters that read the same arrays over the same domain.

    mean = f32[] fusion(x), calls=sum            one pass over x each;
    square = f32[] fusion(x), calls=sum_squares  merged they are one fusion of two results, which reads x once

Neither cluster may depend on the other through a third node, since one kernel computes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xlakit.ir.instruction import Instruction
from xlakit.options import knob
from xlakit.passes.fusion.cluster import Cluster

_MOST_MEMBERS = 100
_MOST_ROOTS = knob("multi_output.most_roots", 8, 2)
# Readers of an array are only merged if it has at most so many of them.
_MOST_READERS = knob("multi_output.most_readers", 12, 1)
# A reader of an array is compared with so many of the next readers.
_NEIGHBORS = knob("multi_output.neighbors", 4, 50)
# How many instructions the search for a path between two clusters may visit.
_MOST_VISITED = 64


# A cluster, or an instruction outside of clusters.
Node = Cluster | Instruction


class Merging:
    """Merges the clusters of one computation.

    clusters: maps each root to its cluster; updated in place. others: the instructions that are in no cluster, each
    with those that must stay before it beside its operands.
    order: the position of each instruction. result: the root of the computation.
    """

    def __init__(
        self,
        clusters: dict[Instruction, Cluster],
        others: Iterable[tuple[Instruction, Sequence[Instruction]]],
        order: Mapping[Instruction, int],
        result: Instruction,
    ) -> None:
        self._clusters = clusters
        self._result = result
        self._order = order
        # What comes after each result, as it was at first: its readers, and what it must stay before.
        # _became maps a merged cluster to the one that absorbed it.
        self._readers: dict[Instruction, list[Node]] = {}
        self._became: dict[Cluster, Cluster] = {}
        # By node, what reads it after the merges so far, as far as it has been asked for.
        self._readers_now: dict[Node, set[Node]] = {}
        # Clusters from which searches were too long: to what is no reader of theirs each search is, or finds a path.
        self._far: set[Cluster] = set()
        for node, before in (*((cluster, ()) for cluster in clusters.values()), *others):
            for operand in dict.fromkeys((*node.operands, *before)):
                self._readers.setdefault(operand, []).append(node)

    def run(self) -> None:
        """Merge the clusters."""
        for operand in sorted(self._readers, key=self._order.__getitem__):
            if not operand.shape.is_array or operand.shape.num_elements == 1:
                continue
            readers = dict.fromkeys(self._now(r) for r in self._readers[operand])
            members = [c for c in readers if isinstance(c, Cluster)]
            if operand in self._clusters:
                members.append(self._clusters[operand])
            if len(members) <= _MOST_READERS.value:
                self._merge_all(members)

    def _now(self, node: Node) -> Node:
        became = self._became
        while isinstance(node, Cluster) and (after := became.get(node)) is not None:
            # The next search takes half as many steps.
            became[node] = node = became.get(after, after)
        return node

    def _merge_all(self, members: Sequence[Cluster]) -> None:
        for position, first in enumerate(members):
            for second in members[position + 1 : position + 1 + _NEIGHBORS.value]:
                a, b = self._now(first), self._now(second)
                if a is b or not isinstance(a, Cluster) or not isinstance(b, Cluster):
                    continue
                if _are_mergeable(a, b) and not self._reaches(a, b) and not self._reaches(b, a):
                    b.absorb(a)
                    self._became[a] = b
                    for root in a.roots:
                        self._clusters[root] = b
                    self._drop_inner_roots(b)
                    self._readers_now.clear()
                    self._far.clear()

    def _drop_inner_roots(self, cluster: Cluster) -> None:
        """Remove results that only the cluster itself reads, which need not be stored."""
        for root in list(cluster.roots):
            readers = [self._now(r) for r in self._readers.get(root, ())]
            if len(cluster.roots) > 1 and readers and all(r is cluster for r in readers) and root is not self._result:
                cluster.roots.remove(root)
                del self._clusters[root]

    def _reaches(self, source: Cluster, target: Cluster) -> bool:
        """Whether there is a path from one cluster to the other through a third node, or the search is too long."""
        readers = self._readers_of(source)
        if source in self._far and target not in readers:
            return True
        seen = readers - {target}
        stack = list(seen)
        while stack and len(seen) <= _MOST_VISITED:
            readers = self._readers_of(stack.pop())
            if target in readers:
                return True
            fresh = readers - seen
            seen |= fresh
            stack.extend(fresh)
        if len(seen) <= _MOST_VISITED:
            return False
        self._far.add(source)
        return True

    def _readers_of(self, node: Node) -> set[Node]:
        found = self._readers_now.get(node)
        if found is None:
            roots = node.roots if isinstance(node, Cluster) else [node]
            found = {self._now(reader) for root in roots for reader in self._readers.get(root, ())}
            self._readers_now[node] = found
        return found


def _are_mergeable(a: Cluster, b: Cluster) -> bool:
    """Whether one nest of loops can compute both clusters, with results of one size."""
    if a.updates_in_place or b.updates_in_place or a.sizes != b.sizes or a.reduced != b.reduced:
        return False
    if any(r.shape.is_tuple for r in (*a.roots, *b.roots)):
        return False
    if len(a.members) + len(b.members) > _MOST_MEMBERS or len(a.roots) + len(b.roots) > _MOST_ROOTS.value:
        return False
    if any(root in a.members and root in b.members for root in (*a.roots, *b.roots)):
        return False
    sizes = {r.shape.num_elements for r in (*a.roots, *b.roots)}
    if len(sizes) > 1 or not a.may_absorb(b):
        return False
    # Reductions of which one needs the other's result cannot share a pass over the rows.
    return not a.reduced or not (set(a.roots) & b.operands or set(b.roots) & a.operands)
