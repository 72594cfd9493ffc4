"""The parts of which loop nests are written: loops, and the elements that they store."""

from __future__ import annotations

import math
from dataclasses import replace

from xlakit.cpu.llvm import Value
from xlakit.cpu.loops.ir.bits import as_moved
from xlakit.cpu.loops.ir.index import Affine, Node, Opaque
from xlakit.cpu.loops.ir.space import Group
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Output:
    """An element that a kernel stores: array number ``array`` of the table, at ``offset``."""

    kind: PrimitiveType
    array: int
    offset: Affine
    node: Node

    @property
    def nodes(self) -> list[Node]:
        """The nodes to be computed: the element, and computed terms of its index."""
        return [self.node, *(atom.node for atom, _ in self.offset.terms if isinstance(atom, Opaque))]


def output(array: int, offset: Affine, node: Node) -> Output:
    """The output that stores the elements of a node."""
    node = as_moved(node)
    return Output(node.kind, array, offset, node)


@dataclass(frozen=True, slots=True)
class Level:
    """One loop of a nest: its variables, and the part of their range over which it runs.

    count: the length of that part, if it is the same in all tasks, so that no second loop is needed for a rest. factor:
    a number that divides the length, if the length differs. least: a length that it has at least.
    """

    group: Group
    begin: Value | int
    end: Value | int
    count: int = 0
    factor: int = 1
    least: int = 0

    @staticmethod
    def block(group: Group, begin: Value, size: int) -> Level:
        """The loop over ``size`` iterations of a group from ``begin`` on, or over fewer if the group ends there."""
        even = group.extent % size == 0
        end = begin + size if even else (begin + size).umin(group.extent)
        return Level(group, begin, end, size * even, math.gcd(group.extent, size))

    @property
    def iterations(self) -> int:
        """The number of iterations; 0 if it is not known."""
        if isinstance(self.begin, int) and isinstance(self.end, int):
            return self.end - self.begin
        return self.count

    @property
    def divisor(self) -> int:
        """A number that divides the length of the loop."""
        return self.iterations or self.factor

    def strip(self, begin: Value, end: Value, iterations: int, *, even: bool) -> Level:
        """The loop over a strip of ``iterations`` iterations; the last strip may have fewer unless ``even``."""
        return replace(
            self, begin=begin, end=end, count=iterations * even, factor=math.gcd(self.divisor, iterations), least=0
        )
