"""Keys that are equal and have other bits, -0 and 0 and all NaNs: sorted as one value, then put back in their order.

A sort that may exchange equal records, as one in vectors does, is stable for records that are keys alone as long as
equal keys have the same bits. So such keys become one of them before the sort. After it, the keys as they were, which
are kept, are written in their order to the places that all of them together have.
"""

from __future__ import annotations

from xlakit.cpu.kernels.shared.masked import first_lanes_mask, masked_load, masked_store
from xlakit.cpu.kernels.sort.keys import is_stored_nan, is_stored_zero, nans_are_last, ordered_bits
from xlakit.cpu.kernels.sort.quick import Order, chosen_lanes, compressed
from xlakit.cpu.llvm import Function, Value, vector
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.passes.analysis.sort_order import NanOrder, SortKey


class EqualKeys:
    """The keys of ``count`` records, which are nothing else, as they are stored in ``source``."""

    def __init__(self, fn: Function, key: SortKey, order: Order, source: Value, count: Value) -> None:
        self.fn, self.key, self.order, self.source, self.count = fn, key, order, source, count
        self.wide = vector(order.type, order.lanes)

    def merge(self, records: Value) -> list[Value]:
        """Write the keys with equal bits to ``records``; gives where zeros begin once these are sorted, and NaNs."""
        fn, order = self.fn, self.order
        zero = 1 << (order.bits - 1)
        with fn.loop(0, self.count, order.lanes, carried=[fn.i64(0), fn.i64(0)], hints=NO_UNROLL) as loop:
            negative, nans = loop.carried
            some, stored = self._load(loop.index)
            merged = ordered_bits(fn, self.key, stored)
            masked_store(fn, merged, fn.at(records, order.type, loop.index), some)
            before = merged.compare("ult", zero) & some
            loop.next(
                negative + chosen_lanes(fn, before), nans + chosen_lanes(fn, is_stored_nan(self.key, stored) & some)
            )
        before_zeros, nans = loop.results
        return [before_zeros, self.count - nans if nans_are_last(self.key) else fn.i64(0)]

    def restore(self, records: Value, places: list[Value]) -> None:
        """Write the keys that were merged to their places among the sorted ``records``, in the order of ``source``."""
        fn, order, key = self.fn, self.order, self.key
        with fn.loop(0, self.count, order.lanes, carried=places, hints=NO_UNROLL) as loop:
            some, stored = self._load(loop.index)
            merged = (
                (key.zeros_equal, is_stored_zero(stored)),
                (key.nan is not NanOrder.BITS, is_stored_nan(key, stored)),
            )
            following = list(loop.carried)
            for number, (are_equal, found) in enumerate(merged):
                if are_equal:
                    chosen, place = found & some, loop.carried[number]
                    lanes = chosen_lanes(fn, chosen)
                    together = compressed(fn, stored, chosen)
                    mask = first_lanes_mask(fn, order.lanes, lanes)
                    masked_store(fn, together, fn.at(records, order.type, place), mask)
                    following[number] = place + lanes
            loop.next(*following)

    def _load(self, index: Value) -> tuple[Value, Value]:
        some = first_lanes_mask(self.fn, self.order.lanes, self.count - index)
        return some, masked_load(self.fn, self.wide, self.fn.at(self.source, self.order.type, index), some)
