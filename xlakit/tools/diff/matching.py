"""Matches the instructions of one computation with those of another.

Instructions are paired by fingerprints, the most reliable ones first:

1. the hash of operation, shape and all transitive operands ("up"), and the hash of all transitive users ("down"),
2. the hash "up",
3. the hash "down", for an operation of the same kind,
4. the name, for an operation of the same kind,
5. the source location, for an operation of the same kind,
6. operation and shape, if an operand or a user of the first is paired with one of the second,
7. shape and paired operands, for different operations.

Among equal fingerprints, instructions of the same name are paired first, then in order. No function here recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from xlakit.ir.def_use import users_of
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.structure import attributes_of
from xlakit.ops.data import Constant, Parameter

_Fingerprint = Callable[[Instruction], Hashable]
# Pairs of instructions, from the one to the other computation.
Pairs = dict[Instruction, Instruction]


def matched(first: Computation, second: Computation, numbers: Mapping[Computation, int]) -> Pairs:
    """The pairs of corresponding instructions.

    numbers: equal for computations that are known to correspond; -1 for all others.
    """
    left, right = _Fingerprints(first, numbers), _Fingerprints(second, numbers)
    pairs = _Pairing(first, second)
    pairs.add_equal(
        lambda i: (left.by_operands[i], left.by_users[i]), lambda i: (right.by_operands[i], right.by_users[i])
    )
    pairs.add_equal(left.by_operands.__getitem__, right.by_operands.__getitem__)
    pairs.add_equal(lambda i: (left.by_users[i], i.opcode), lambda i: (right.by_users[i], i.opcode))
    pairs.add_equal(lambda i: (i.name, i.opcode), lambda i: (i.name, i.opcode))
    pairs.add_equal(_source, _source)
    pairs.add_neighbors()
    pairs.add_replaced()
    return pairs.found


class _Fingerprints:
    """Hashes of the instructions of a computation: by what their operands compute, and by what their users do."""

    def __init__(self, computation: Computation, numbers: Mapping[Computation, int]) -> None:
        self.by_operands: dict[Instruction, int] = {}
        self.by_users: dict[Instruction, int] = {}
        operation_hashes = {
            i: hash((operation(i, numbers), i.shape.without_layout())) for i in computation.instructions
        }
        for i in computation.instructions:
            self.by_operands[i] = hash((operation_hashes[i], tuple(self.by_operands[o] for o in i.operands)))
        readers: dict[Instruction, list[int]] = {i: [] for i in computation.instructions}
        for i in reversed(computation.instructions):
            mine = tuple(sorted(readers[i]))
            # The hash of the users does not include the instruction itself: a replacement has the same users.
            self.by_users[i] = hash((i is computation.root, mine))
            for place, operand in enumerate(i.operands):
                readers[operand].append(hash((operation_hashes[i], place, self.by_users[i])))


def operation(i: Instruction, numbers: Mapping[Computation, int]) -> Hashable:
    """What an instruction does: opcode and attributes; computations stand for their number."""
    if isinstance(i.op, Parameter):
        return i.opcode, i.op.number
    if isinstance(i.op, Constant):
        return i.opcode, i.op.literal
    return i.opcode, attributes_of(i.op, numbers)


def _source(i: Instruction) -> Hashable:
    metadata = i.annotations.metadata
    return None if metadata is None or not metadata.op_name else (metadata.op_name, metadata.source_line, i.opcode)


class _Pairing:
    """Pairs under construction."""

    def __init__(self, first: Computation, second: Computation) -> None:
        self._first, self._second = first, second
        self.found: Pairs = {}
        self._taken: set[Instruction] = set()

    def add_equal(self, left: _Fingerprint, right: _Fingerprint) -> None:
        """Pair what is left of instructions with equal fingerprints; None equals nothing."""
        groups: dict[Hashable, list[Instruction]] = {}
        for i in self._second.instructions:
            if i not in self._taken and (key := right(i)) is not None:
                groups.setdefault(key, []).append(i)
        late: list[Instruction] = []
        for i in self._first.instructions:
            if i not in self.found and (group := groups.get(left(i))):
                same = next((other for other in group if other.name == i.name), None)
                if same is None:
                    late.append(i)
                else:
                    group.remove(same)
                    self._add(i, same)
        for i in late:
            group = groups[left(i)]
            if group:
                self._add(i, group.pop(0))

    def add_neighbors(self) -> None:
        """Pair what is left where operands or users are paired."""
        users = users_of(self._second.instructions)
        rest = [i for i in self._first.instructions if i not in self.found]
        own_users = users_of(self._first.instructions)
        for i in rest:
            near = [u for o in i.operands if o in self.found for u in users.get(self.found[o], ())]
            near += [o for u in own_users.get(i, ()) if u in self.found for o in self.found[u].operands]
            for other in near:
                alike = other.opcode == i.opcode and other.shape.without_layout() == i.shape.without_layout()
                if alike and other not in self._taken:
                    self._add(i, other)
                    break

    def add_replaced(self) -> None:
        """Pair what is left where another operation has the same operands and gives the same shape."""
        left = {
            (i.operands, i.shape.without_layout()): i
            for i in self._second.instructions
            if i not in self._taken and i.operands
        }
        for i in self._first.instructions:
            if i in self.found or not i.operands or any(o not in self.found for o in i.operands):
                continue
            other = left.pop((tuple(self.found[o] for o in i.operands), i.shape.without_layout()), None)
            if other is not None:
                self._add(i, other)

    def _add(self, i: Instruction, other: Instruction) -> None:
        self.found[i] = other
        self._taken.add(other)


def in_order(positions: Sequence[int]) -> set[int]:
    """The indices of a longest increasing subsequence of positions: instructions with the same order in both."""
    import bisect

    ends: list[int] = []
    ends_at: list[int] = []
    before: list[int] = []
    for place, position in enumerate(positions):
        at = bisect.bisect_left(ends, position)
        before.append(ends_at[at - 1] if at else -1)
        ends[at : at + 1] = [position]
        ends_at[at : at + 1] = [place]
    increasing: set[int] = set()
    place = ends_at[-1] if ends_at else -1
    while place >= 0:
        increasing.add(place)
        place = before[place]
    return increasing
