"""Prepared collectives: those of one small array between processes that have one device of the group each.

Programs call such a collective again and again, and what it costs is Python. So all that does not change from call to
call is computed once: members, shapes in packed form, the location in the program, and where each block of an operand
goes. The messages are those of :class:`xlakit.distributed.session.NetworkSession` for the same collective, so that one
process may use this form and another the general one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from xlakit.distributed.packing import Bytes, pack
from xlakit.errors import RankError, XlakitError
from xlakit.execution.groups import check_pairs
from xlakit.execution.rendezvous import SMALL_REDUCTION
from xlakit.execution.session import RendezvousKey
from xlakit.ops.communication.collective import Collective, exact_function
from xlakit.ops.communication.collective_moves import AllToAll, CollectivePermute
from xlakit.ops.communication.collectives import AllGather, AllReduce, ReduceScatter

if TYPE_CHECKING:
    from xlakit.data.shape import Shape
    from xlakit.execution.program import Program
    from xlakit.ir.instruction import Instruction

# Up to so many bytes of an operand, Python costs more than copies.
MOST_BYTES: Final = 1 << 18
_WORD = 8


class Messages(Protocol):
    """What a session does for prepared collectives."""

    def new_body(self, size: int) -> Bytes:
        """Memory for the body of a value."""
        ...

    def send_and_receive(
        self, rendezvous: RendezvousKey, kind: str, parcels: Mapping[int, Bytes], sources: Sequence[int]
    ) -> dict[int, Bytes]:
        """What the processes ``sources`` send to this one, given what it sends to others."""
        ...

    def send_bytes(self, key: tuple[RendezvousKey, int], target: int, body: Bytes) -> None:
        """Send a packed value to a device in another process."""
        ...

    def receive_bytes(self, key: tuple[RendezvousKey, int], source: int, receiver: int) -> Bytes:
        """Wait for a packed value that a device in another process sends."""
        ...


class Exchange:
    """A prepared collective on one device; calls of one object are made one at a time in a run."""

    def __init__(self, here: _Here, members: tuple[int, ...]) -> None:
        self.site = here.site
        self.members = members
        self._first = RendezvousKey(here.instruction, here.site, members, 1)

    def run(self, session: Messages, number: int, operand: int, result: int) -> None:
        """Exchange the array at the address ``operand``, and write what comes of it to the address ``result``."""
        key = self._first if number == 1 else self._first.at(number)
        self.exchange(session, key, operand, result)

    def exchange(self, session: Messages, key: RendezvousKey, operand: int, result: int) -> None:
        """See :meth:`run`; ``key`` is that of this call."""
        raise NotImplementedError


class _Packed:
    """The packed form of an array, or of a tuple of one, whose elements are in memory."""

    def __init__(self, shape: Shape, dimensions: Sequence[int], *, in_tuple: bool) -> None:
        dtype = shape.element_type.dtype
        self.bytes = math.prod(dimensions) * dtype.itemsize
        empty = np.broadcast_to(np.zeros((), dtype), dimensions)
        whole: Any = pack([(empty,) if in_tuple else empty])
        self._begin = _WORD * (2 + len(dimensions) + 2 * in_tuple)
        self._prefix: Bytes = whole[: self._begin].copy()
        self._size = len(whole)

    def of(self, session: Messages, address: int) -> Bytes:
        """The packed form of what is at an address."""
        body = session.new_body(self._size)
        body[: self._begin] = self._prefix
        ctypes.memmove(_address(body) + self._begin, address, self.bytes)
        return body

    def elements(self, body: Bytes) -> int:
        """The address of the elements in a packed form that arrived; raises RankError for that of other arrays."""
        if len(body) != self._size:
            raise RankError(
                f"another process sent {len(body)} bytes where {self._size} are due",
                hint="run one version of xlakit in all processes",
            )
        return _address(body) + self._begin


def _address(array: Bytes) -> int:
    return array.__array_interface__["data"][0]


class _Gathering(Exchange):
    """All-gather along the outermost dimension, and all-reduce: everything to all."""

    def __init__(self, here: _Here, members: tuple[int, ...], function: np.ufunc | None) -> None:
        super().__init__(here, members)
        shape = here.instruction.operands[0].shape
        self._packed = _Packed(shape, shape.dimensions, in_tuple=True)
        self._finish = _Reduced(shape, shape.dimensions, function) if function else _Joined(self._packed.bytes)
        self._ranks = [here.ranks[member] for member in members]
        self._own = here.ranks[here.device]
        self._others = sorted(rank for rank in self._ranks if rank != self._own)

    def exchange(self, session: Messages, key: RendezvousKey, operand: int, result: int) -> None:
        body = self._packed.of(session, operand)
        arrived = session.send_and_receive(key, "all_gather", dict.fromkeys(self._others, body), self._others)
        elements = self._packed.elements
        self._finish([operand if rank == self._own else elements(arrived[rank]) for rank in self._ranks], result)


class _Dealing(Exchange):
    """All-to-all and reduce-scatter along the outermost dimension: block i to member i."""

    def __init__(self, here: _Here, members: tuple[int, ...], dimension: int, function: np.ufunc | None) -> None:
        super().__init__(here, members)
        shape = here.instruction.operands[0].shape
        dimensions = list(shape.dimensions)
        dimensions[dimension] //= len(members)
        self._packed = _Packed(shape, dimensions, in_tuple=function is not None)
        self._finish = _Reduced(shape, dimensions, function) if function else _Joined(self._packed.bytes)
        self._ranks = [here.ranks[member] for member in members]
        self._own = here.ranks[here.device]
        self._others = sorted(rank for rank in self._ranks if rank != self._own)
        self._offsets = {rank: index * self._packed.bytes for index, rank in enumerate(self._ranks)}

    def exchange(self, session: Messages, key: RendezvousKey, operand: int, result: int) -> None:
        parcels = {rank: self._packed.of(session, operand + self._offsets[rank]) for rank in self._others}
        arrived = session.send_and_receive(key, "all_to_all", parcels, self._others)
        elements, own = self._packed.elements, operand + self._offsets[self._own]
        self._finish([own if rank == self._own else elements(arrived[rank]) for rank in self._ranks], result)


class _Permute(Exchange):
    """Collective-permute: the operand to one device, and what another one sends; zeros where none does.

    target, source: the number of the pair, and the other device.
    """

    def __init__(
        self,
        here: _Here,
        members: tuple[int, ...],
        target: tuple[int, int] | None,
        source: tuple[int, int] | None,
    ) -> None:
        super().__init__(here, members)
        shape = here.instruction.operands[0].shape
        self._packed = _Packed(shape, shape.dimensions, in_tuple=True)
        self._target, self._source, self._receiver = target, source, here.device

    def exchange(self, session: Messages, key: RendezvousKey, operand: int, result: int) -> None:
        if self._target is not None:
            number, member = self._target
            session.send_bytes((key, number), member, self._packed.of(session, operand))
        if self._source is None:
            ctypes.memset(result, 0, self._packed.bytes)
            return
        number, member = self._source
        arrived = session.receive_bytes((key, number), member, self._receiver)
        ctypes.memmove(result, self._packed.elements(arrived), self._packed.bytes)


class _Joined:
    """Writes blocks one after the other."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, blocks: Sequence[int], result: int) -> None:
        for block in blocks:
            ctypes.memmove(result, block, self._size)
            result += self._size


class _Reduced:
    """Combines blocks in their order, as :func:`xlakit.ops.communication.collective.reduce_members` does."""

    def __init__(self, shape: Shape, dimensions: Sequence[int], function: np.ufunc) -> None:
        self._dtype = shape.element_type.dtype
        self._count = math.prod(dimensions)
        self._memory: Any = ctypes.c_char * (self._count * self._dtype.itemsize)
        self._function = function

    def __call__(self, blocks: Sequence[int], result: int) -> None:
        total = self._array(result)
        first, second, *others = map(self._array, blocks)
        # The operand may be a donated argument, in whose memory the result is.
        others = [
            block.copy() if address == result else block for block, address in zip(others, blocks[2:], strict=True)
        ]
        with np.errstate(all="ignore"):
            self._function(first, second, out=total)
            for block in others:
                self._function(total, block, out=total)

    def _array(self, address: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(self._memory.from_address(address), self._dtype)


class _Here:
    """An instruction as one device of a program runs it. ranks: the process of each device of the program."""

    def __init__(self, instruction: Instruction, program: Program, device: int, ranks: tuple[int, ...]) -> None:
        self.instruction = instruction
        self.device = device
        self.ranks = ranks
        self.grid = program.grid
        self.site = program.site_of(instruction)


def prepared(
    instruction: Instruction, program: Program, device: int, ranks: tuple[int, ...], direct: int
) -> Exchange | None:
    """A collective prepared for one device; None for one that only the general form can do.

    ranks: the process of each device of the program. direct: up to how many processes all gather from all directly.
    """
    op, shapes = instruction.op, [o.shape for o in instruction.operands]
    if len(shapes) != 1 or not isinstance(op, (AllGather, AllReduce, ReduceScatter, AllToAll, CollectivePermute)):
        return None
    arrays = (shapes[0], instruction.shape)
    if not all(s.is_array and not s.is_dynamic and 0 < s.byte_size <= MOST_BYTES for s in arrays):
        return None
    same = AllReduce, AllToAll, CollectivePermute
    if shapes[0].element_type is not instruction.shape.element_type:
        return None
    if isinstance(op, same) and shapes[0].dimensions != instruction.shape.dimensions:
        return None
    here = _Here(instruction, program, device, ranks)
    try:
        return _permute(here, op) if isinstance(op, CollectivePermute) else _grouped(here, op, direct)
    except XlakitError:
        # The general form raises it, at the instruction.
        return None


def _grouped(here: _Here, op: Collective, direct: int) -> Exchange | None:
    members = tuple(here.grid.members(here.device, op.groups))
    count = len(members)
    if count < 2 or len({here.ranks[member] for member in members}) != count:
        return None
    shape = here.instruction.operands[0].shape
    if isinstance(op, AllReduce):
        # As Rendezvous.reduce chooses.
        is_gathered = count == 2 or (count <= direct and shape.byte_size * count <= SMALL_REDUCTION)
        function = exact_function(op.to_apply, shape.element_type)
        return _Gathering(here, members, function) if is_gathered and function is not None else None
    result = list(here.instruction.shape.dimensions)
    if isinstance(op, AllGather):
        dimension, function = op.all_gather_dimension, None
        grown = [size * count if d == dimension else size for d, size in enumerate(shape.dimensions)]
        is_plain = count <= direct and grown == result and _is_outermost(shape, dimension)
        return _Gathering(here, members, None) if is_plain else None
    if isinstance(op, ReduceScatter):
        dimension, function = op.scatter_dimension, exact_function(op.to_apply, shape.element_type)
        if function is None or result[dimension] * count != shape.dimensions[dimension]:
            return None
    elif isinstance(op, AllToAll) and op.split_dimension is not None:
        dimension, function = op.split_dimension, None
    else:
        return None
    is_plain = shape.dimensions[dimension] % count == 0 and _is_outermost(shape, dimension)
    return _Dealing(here, members, dimension, function) if is_plain else None


def _is_outermost(shape: Shape, dimension: int) -> bool:
    """Whether blocks along a dimension are contiguous."""
    return math.prod(shape.dimensions[:dimension]) == 1


def _permute(here: _Here, op: CollectivePermute) -> Exchange | None:
    if op.slice_sizes:
        return None
    members, position = here.grid.peers(here.device, by_partition=op.channel_id is not None)
    check_pairs(op.source_target_pairs, len(members))
    if [here.ranks[member] for member in members].count(here.ranks[here.device]) != 1:
        return None
    target: tuple[int, int] | None = None
    source: tuple[int, int] | None = None
    for number, (start, end) in enumerate(op.source_target_pairs):
        if start == end == position:
            return None
        if start == position:
            target = number, members[end]
        if end == position:
            source = number, members[start]
    return _Permute(here, tuple(members), target, source)
