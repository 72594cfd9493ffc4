"""The computation of one element of a result: a graph of loads and operations on scalars.

Nodes are made by the tracer and written as code by the emitter. A node knows the loop variables on which it depends, so
that the emitter can compute it in the outermost loop in which it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from xlakit.cpu.loops.ir.index import Affine, Node, Opaque, Variable
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Op


class Constant(Node):
    """A number known at compile time (a NumPy scalar)."""

    __slots__ = ("value",)

    def __init__(self, kind: PrimitiveType, value: Any) -> None:
        super().__init__(kind)
        self.value = value


class Load(Node):
    """Element ``offset`` of an array of the kernel.

    count: the number of elements of the array, if it is known.
    """

    __slots__ = ("array", "count", "offset")

    def __init__(self, kind: PrimitiveType, array: int, offset: Affine, count: int | None = None) -> None:
        super().__init__(kind, (), [offset])
        self.array = array
        self.offset = offset
        self.count = count


class Position(Node):
    """An index as a number, as iota gives it."""

    __slots__ = ("index",)

    def __init__(self, kind: PrimitiveType, index: Affine) -> None:
        super().__init__(kind, (), [index])
        self.index = index


class Apply(Node):
    """An element-wise operation."""

    __slots__ = ("arguments", "op")

    def __init__(self, kind: PrimitiveType, op: Op, arguments: Sequence[Node]) -> None:
        super().__init__(kind, arguments)
        self.op = op
        self.arguments = tuple(arguments)


class SplitBits(Node):
    """Piece ``number`` of the bits of a node."""

    __slots__ = ("number", "source")

    def __init__(self, kind: PrimitiveType, source: Node, number: Affine) -> None:
        super().__init__(kind, [source], [number])
        self.source = source
        self.number = number


class JoinBits(Node):
    """The bits of several nodes, lowest first."""

    __slots__ = ("pieces",)

    def __init__(self, kind: PrimitiveType, pieces: Sequence[Node]) -> None:
        super().__init__(kind, pieces)
        self.pieces = tuple(pieces)


class ClampedIndex(Node):
    """A start index read from memory, as an I64 clamped to 0..``limit``."""

    __slots__ = ("limit", "source")

    def __init__(self, source: Node, limit: int) -> None:
        super().__init__(PrimitiveType.S64, [source])
        self.source = source
        self.limit = limit


class Divided(Node):
    """The quotient or the remainder of an index that has to be computed at run time."""

    __slots__ = ("index", "is_remainder", "size")

    def __init__(self, index: Affine, size: int, *, is_remainder: bool) -> None:
        super().__init__(PrimitiveType.S64, (), [index])
        self.index = index
        self.size = size
        self.is_remainder = is_remainder


# The index is from low to high (inclusive), and differs from low by a multiple of the step.
Bound = tuple[Affine, int, int, int]


class Guarded(Node):
    """``inside`` if an index is within all bounds, else ``outside``. ``inside`` is computed only within the bounds."""

    __slots__ = ("bounds", "inside", "outside")

    def __init__(self, bounds: Sequence[Bound], inside: Node, outside: Node) -> None:
        super().__init__(inside.kind, [inside, outside], [b[0] for b in bounds])
        self.bounds = tuple(bounds)
        self.inside = inside
        self.outside = outside


class Reduction(Node):
    """A reduction: over all values of ``over``, ``inputs`` are combined with ``initial`` by a computation.

    It has as many results as the computation; a :class:`Part` is one of them.
    """

    __slots__ = ("computation", "initial", "inputs", "over")

    def __init__(
        self, computation: Computation, over: Sequence[Variable], inputs: Sequence[Node], initial: Sequence[Node]
    ) -> None:
        super().__init__(inputs[0].kind, [*inputs, *initial])
        self.variables = self.variables - frozenset(over)
        self.computation = computation
        self.over = tuple(over)
        self.inputs = tuple(inputs)
        self.initial = tuple(initial)


class GuardedReduction(Reduction):
    """A reduction over a window: only the positions within the bounds take part."""

    __slots__ = ("bounds",)

    def __init__(self, computation: Any, over: Any, inputs: Any, initial: Any, bounds: Sequence[Bound]) -> None:
        super().__init__(computation, over, inputs, initial)
        self.bounds = tuple(bounds)
        positions = [Position(PrimitiveType.S64, b[0]) for b in bounds]
        for node in positions:
            self.variables |= node.variables
        self.variables -= frozenset(over)


class Part(Node):
    """One of the results of a reduction."""

    __slots__ = ("number", "reduction")

    def __init__(self, kind: PrimitiveType, reduction: Reduction, number: int) -> None:
        super().__init__(kind, [reduction])
        self.reduction = reduction
        self.number = number


class Given(Node):
    """A value that the emitter already has: an argument of a computation, a result of an earlier stage."""

    __slots__ = ("key",)

    def __init__(self, kind: PrimitiveType, key: Any, variables: frozenset[Variable] = frozenset()) -> None:
        super().__init__(kind)
        self.key = key
        self.variables = variables


def indices_of(nodes: Iterable[Node], also: Iterable[Affine] = ()) -> list[Affine]:
    """Every index that occurs in the nodes, and in the nodes on which they depend."""
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
    """The given nodes and all on which they depend, each once; ``operands`` gives the nodes on which a node depends."""
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
    """The nodes that are computed whenever the node is."""
    if isinstance(node, Guarded):
        return [n for n in node.operands if n is not node.inside and n is not node.outside]
    if isinstance(node, GuardedReduction):
        return node.initial
    return node.operands
