"""The wait-for graph of devices: which of them can still go on, and which wait in a deadlock.

Nodes are devices and sources (the host, a device queue, another process). A node that waits has edges to the nodes that
could end its wait. There are two kinds of waits:

    all of    a rendezvous: every absent member must arrive, so one member that cannot go on blocks the wait
    any of    a channel or a feed: any one of the nodes could bring the value

A node can go on if it does not wait and has not ended, or if those that it waits for can go on: all of them, or any.
What is left is the deadlock: a cycle of waits, or waits for nodes that have ended::

    replica 0 --all-reduce--> replica 1 --all-gather--> replica 0        a cycle
    replica 0 --all-reduce--> replica 2 (ended)                          a wait for an ended node
    replica 0 --infeed------> host                                       no deadlock while the host runs
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)


class WaitGraph(Generic[Node]):
    """Waits between nodes at one moment. ``running`` are the nodes that go on by themselves."""

    def __init__(self, running: Iterable[Node]) -> None:
        self._running = set(running)
        self._waits: dict[Node, tuple[Node, ...]] = {}
        self._needs_all: set[Node] = set()

    def add(self, node: Node, awaited: Iterable[Node], *, needs_all: bool = False) -> None:
        """Add a node that waits: until all of ``awaited`` have done their part, or any of them."""
        self._waits[node] = tuple(dict.fromkeys(awaited))
        self._running.discard(node)
        if needs_all:
            self._needs_all.add(node)

    def live(self) -> set[Node]:
        """The nodes that can go on, now or after others have; in time proportional to the number of edges."""
        waiters: defaultdict[Node, list[Node]] = defaultdict(list)
        missing: Counter[Node] = Counter()
        for node, awaited in self._waits.items():
            missing[node] = len(awaited) if node in self._needs_all else 1
            for other in awaited:
                waiters[other].append(node)
        live_nodes = set(self._running)
        reached = list(live_nodes)
        while reached:
            for waiter in waiters[reached.pop()]:
                missing[waiter] -= 1
                if missing[waiter] == 0:
                    live_nodes.add(waiter)
                    reached.append(waiter)
        return live_nodes

    def deadlocked(self) -> list[Node]:
        """The nodes whose waits cannot end, in the order in which they were added."""
        live = self.live()
        return [node for node in self._waits if node not in live]

    def cycle(self) -> list[Node]:
        """A cycle of deadlocked nodes, each of which waits for the next and the last for the first.

        Empty if there is none: then every deadlocked node waits, directly or through others, for nodes that have ended.
        """
        dead = self.deadlocked()
        blocked = {node: [other for other in self._waits[node] if other in set(dead)] for node in dead}
        # Nodes that reach no cycle are taken away, those without successors first.
        waiters: defaultdict[Node, list[Node]] = defaultdict(list)
        for node, others in blocked.items():
            for other in others:
                waiters[other].append(node)
        count = {node: len(others) for node, others in blocked.items()}
        leaves = [node for node in dead if not count[node]]
        while leaves:
            for waiter in waiters[leaves.pop()]:
                count[waiter] -= 1
                if not count[waiter]:
                    leaves.append(waiter)
        node = next((node for node in dead if count[node]), None)
        path: list[Node] = []
        while node is not None and node not in path:
            path.append(node)
            node = next(other for other in blocked[node] if count[other])
        return path[path.index(node) :] if node is not None else []
