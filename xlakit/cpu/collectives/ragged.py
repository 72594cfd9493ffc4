"""The kernel of ragged-all-to-all: rows of any number, from where and to where the senders say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.collectives.tiles import Members, tile_kernel
from xlakit.cpu.llvm import I8, I64, Module, Value
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.cpu.scalars import load
from xlakit.cpu.scalars.memory import as_real
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.passes.analysis.cost_model import cost_model

# The numbers of the operands and of the result.
_INPUT, _OUTPUT, _STARTS, _SIZES, _TARGETS, _RECEIVED, _RESULT = range(7)


def ragged_all_to_all(module: Module, name: str, shapes: Sequence[Shape], count: int) -> Phase:
    """Each task is what one member receives: its output, with the rows of the others in it, sender by sender.

    Where offsets or sizes are wrong nothing is copied, and the rendezvous is marked as faulty.
    """
    source, target, table = shapes[_INPUT], shapes[_OUTPUT], shapes[_STARTS]
    row = math.prod(source.dimensions[1:]) * source.element_type.byte_width
    pieces = table.num_elements // count
    kinds = [shape.element_type for shape in shapes]

    def body(members: Members, receiver: Value) -> None:
        fn = members.fn
        result = members.array(receiver, _RESULT)
        whole = target.num_elements * target.element_type.byte_width
        fn.copy(result, members.array(receiver, _OUTPUT), whole)
        with fn.loop(0, count) as senders:
            sender = senders.index
            origin = members.array(sender, _INPUT)
            with fn.loop(0, pieces) as each:

                def number(member: Value, table: int, other: Value, piece: Value = each.index) -> Value:
                    return _integer(members, kinds[table], members.array(member, table), other * pieces + piece)

                start, size, offset = (number(sender, t, receiver) for t in (_STARTS, _SIZES, _TARGETS))
                expected = number(receiver, _RECEIVED, sender)
                inside = _within(start, size, source.dimensions[0]) & _within(offset, size, target.dimensions[0])
                fits = inside & size.eq(expected)
                with fn.if_(fits):
                    fn.copy(fn.at(result, I8, offset * row), fn.at(origin, I8, start * row), size * row)
                with fn.if_(~fits):
                    members.fail()

    cost = 3.0 * count * (source.num_elements + target.num_elements) * source.element_type.byte_width
    return tile_kernel(module, name, count, cost * cost_model().moved_byte(), count, body)


def _integer(members: Members, kind: PrimitiveType, array: Value, index: Value) -> Value:
    value = as_real(load(members.fn, kind, array, index))
    return value.cast("sext" if kind.is_signed else "zext", I64) if value.type is not I64 else value


def _within(begin: Value, size: Value, limit: int) -> Value:
    """Whether 0 <= begin <= begin + size <= limit; unsigned 64-bit numbers that are negative here are too large."""
    return (begin >= 0) & (size >= 0) & (begin <= limit) & (size <= limit) & ((begin + size) <= limit)
