"""Sorts short rows: the position of an element is the number of elements before it, counted without a branch."""

from __future__ import annotations

from typing import Final, NamedTuple

from xlakit.cpu.kernels.sort.keys import (
    load_bits,
    load_raw,
    ordered_bits,
    part_of,
    raw_type,
    store_raw,
    stored_bits,
)
from xlakit.cpu.kernels.sort.plan import SortPlan
from xlakit.cpu.kernels.sort.rows import Rows, for_tiles
from xlakit.cpu.llvm import I64, Function, Module, Type, Value, integer, vector
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function
from xlakit.errors import InternalError
from xlakit.passes.analysis.sort_order import KeyOrder, SortKey
from xlakit.target import vector_bytes

# The loop that compares is short.
_UNROLL: Final = ('"llvm.loop.unroll.count", i32 4',)


def emit_rows(module: Module, plan: SortPlan) -> list[Phase]:
    """Sort rows of at most RANKED_ROW elements, each in one task."""
    fn, table, *_ = kernel_function(module, "sort_short_rows")
    rows = Rows(fn, plan, table)
    ranks = _Ranks(fn, plan)
    elements = [fn.alloca(raw_type(k), ranks.padded, align=64) for k in plan.kinds]

    def tile(base: Value, columns: Value) -> None:
        with fn.loop(0, columns) as loop:
            _sort_row(rows, ranks, elements, base + loop.index)

    for_tiles(fn, plan, tile)
    return [Phase(fn.name, plan.tasks, plan.cost)]


def _sort_row(rows: Rows, ranks: _Ranks, elements: list[Value], base: Value) -> None:
    """Copy a row to ``elements`` and count ranks, then store each element at its rank."""
    fn, plan = rows.fn, rows.plan
    with fn.loop(0, plan.length, independent=True, hints=NO_UNROLL) as loop:
        bits = [rows.load(k, base, loop.index) for k in range(len(plan.kinds))]
        for value, buffer in zip(bits, elements, strict=True):
            store_raw(fn, value, buffer, loop.index)
        ranks.put(loop.index, bits)
    ranks.count()
    with fn.loop(0, plan.length, hints=NO_UNROLL) as loop:
        position = ranks.of(loop.index)
        for operand, (kind, buffer) in enumerate(zip(plan.kinds, elements, strict=True)):
            rows.store(operand, load_raw(fn, kind, buffer, loop.index), base, position)


class _Group(NamedTuple):
    """Keys that are compared as one signed integer."""

    keys: KeyOrder
    buffer: Value


class _Ranks:
    """The keys of one row, and the position of each of its elements."""

    def __init__(self, fn: Function, plan: SortPlan) -> None:
        if plan.order is None:
            raise InternalError("a sort that counts ranks has no keys, only a comparator")
        self.fn = fn
        self.length = plan.length
        groups = _groups(plan.order)
        # If it fits, the index is below the keys, so that no two are equal.
        self.index_bits = (plan.length - 1).bit_length()
        width = sum(8 * k.kind.byte_width for k in groups[0]) + self.index_bits
        self.is_unique = len(groups) == 1 and width <= 64
        bits = max(8, 1 << (width - 1).bit_length()) if self.is_unique else 64
        self.type: Type = integer(bits)
        self.lanes = vector_bytes() // self.type.bytes
        self.padded = -(-plan.length // self.lanes) * self.lanes
        self.groups = [_Group(g, fn.alloca(self.type, self.padded, align=64)) for g in groups]
        self.ranks = fn.alloca(self.type, self.padded, align=64)

    def put(self, index: Value, elements: list[Value]) -> None:
        """Set the keys of an element from its bits."""
        fn = self.fn
        for group in self.groups:
            key = fn.constant(self.type, 0)
            for sort_key in group.keys:
                ordered = self._ordered(sort_key, elements[sort_key.operand])
                room = ordered.type.bits
                key = (
                    ordered.resized(self.type) if room == self.type.bits else (key << room) | ordered.resized(self.type)
                )
            if self.is_unique:
                key = (key << self.index_bits) | index.resized(self.type)
            top = self.type.bits - 1
            store_raw(fn, key ^ (-1 << top), group.buffer, index)

    def _ordered(self, key: SortKey, element: Value) -> Value:
        stored = stored_bits(key, part_of(key.part, element))
        return ordered_bits(self.fn, key, stored)

    def count(self) -> None:
        """Count, for each element, the elements before it. The contents of the padding do not matter."""
        fn, lanes = self.fn, self.lanes
        block = vector(self.type, lanes)
        steps = fn.constant(block, 0)
        for lane in range(lanes):
            steps = fn.with_lane(steps, lane, fn.constant(self.type, lane))
        with fn.loop(0, self.padded, lanes, hints=NO_UNROLL) as blocks:
            own_keys = [fn.load(block, fn.at(g.buffer, self.type, blocks.index), align=16) for g in self.groups]
            positions = None if self.is_unique else fn.splat(blocks.index, lanes) + steps
            with fn.loop(0, self.length, carried=[fn.constant(block, 0)], hints=_UNROLL) as loop:
                other_keys = [
                    fn.splat(fn.load(self.type, fn.at(g.buffer, self.type, loop.index)), lanes) for g in self.groups
                ]
                if positions is None:
                    before = other_keys[0] < own_keys[0]
                else:
                    before = fn.splat(loop.index, lanes) < positions
                    for a, b in zip(reversed(other_keys), reversed(own_keys), strict=True):
                        before = (a < b) | (a.eq(b) & before)
                loop.next(loop.carried[0] - before.cast("sext", block))
            fn.store(loop.results[0], fn.at(self.ranks, self.type, blocks.index), align=16)

    def of(self, index: Value) -> Value:
        """The position of an element."""
        return load_bits(self.fn, self.type, self.ranks, index).resized(I64)


def _groups(order: KeyOrder) -> list[KeyOrder]:
    """The keys in groups of at most 64 bits, the most significant first."""
    groups: list[list[SortKey]] = [[]]
    for key in order:
        if groups[-1] and sum(8 * k.kind.byte_width for k in (*groups[-1], key)) > 64:
            groups.append([])
        groups[-1].append(key)
    return [tuple(group) for group in groups]
