"""What the code of a phase reads and writes and in which order, as its emitter states it.

A result may be in the memory of an operand only if these statements prove it (``entry/in_place.py``). An emitter that
states nothing keeps all results apart. The sanitizer runs each kernel in all ways that its statement allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from xlakit.cpu.loops.emit.levels import Output
from xlakit.cpu.loops.ir.index import Affine, Node
from xlakit.cpu.loops.ir.nodes import Load, walk


class Access(NamedTuple):
    """Elements of array number ``array`` of the kernel's table: at an offset, each of ``bytes``; or any of them."""

    array: int
    offset: Affine | None = None
    bytes: int = 0


class Accesses(NamedTuple):
    """Those of one stage of a nest. An element is read before it is written at the same offset."""

    reads: frozenset[Access] = frozenset()
    writes: frozenset[Access] = frozenset()

    @staticmethod
    def of(outputs: Sequence[Output], inputs: Iterable[Node] = ()) -> Accesses:
        """A stage that computes ``inputs``, and computes and stores ``outputs``."""
        loads = [n for n in walk([*inputs, *(n for o in outputs for n in o.nodes)]) if isinstance(n, Load)]
        return Accesses(
            frozenset(Access(n.array, n.offset, n.kind.byte_width) for n in loads),
            frozenset(Access(o.array, o.offset, o.kind.byte_width) for o in outputs),
        )

    @staticmethod
    def anywhere(reads: Iterable[int], writes: Iterable[int] = ()) -> Accesses:
        """A stage that reads and writes any elements of arrays."""
        return Accesses(frozenset(map(Access, reads)), frozenset(map(Access, writes)))

    @staticmethod
    def in_place(reads: Iterable[int], results: Sequence[int]) -> Accesses:
        """A stage that reads any elements of arrays, and changes results, which begin as copies of operands."""
        return Accesses.anywhere([*reads, *results], results)

    def renumbered(self, arrays: Mapping[int, int]) -> Accesses:
        """The same with other numbers for some of the arrays that it writes."""
        return Accesses(self.reads, frozenset(a._replace(array=arrays.get(a.array, a.array)) for a in self.writes))


# The stages of one nest of loops. Where two stages access an element at the same offset, the first one does so first;
# accesses at different offsets, and those of different nests of a phase, are in no order. Each element of a result has
# one nest that writes it, at one value of the variables of its offset.
Nest = tuple[Accesses, ...]
