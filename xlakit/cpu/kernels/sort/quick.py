"""Quicksort in vectors, of records that have the order of integers.

    partition: compare vectors of records with the pivot, compress the lanes of each side, and store them
    networks:  a range of few records is sorted by a bitonic network in registers, filled up with last records

The larger part of a range waits on a stack while the smaller one is sorted. A range that comes from many partitions and
is still large is sorted by digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from xlakit.cpu.kernels.shared.masked import first_lanes_mask, masked_load, masked_store
from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Type, Value, integer, vector
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.dataclass import dataclass
from xlakit.options import current, knob
from xlakit.target import has_feature, vector_bytes

# The vectors of the largest network: half of the registers, as an exchange takes as many again.
_VECTORS: Final = 16
# The most partitions of a range, for each bit of the number of records; with pivots in the middle, each bit takes one.
_CUTS = knob("sort_quick.cuts", 2, 0)
# The words of a waiting range: its begin and end, and how often it may be partitioned. The smaller part of each range
# is sorted first, so that as many ranges wait as a number can be halved, and one more.
_WORDS: Final = 3
_WAITING: Final = 66


def has_compress(bits: int) -> bool:
    """Whether instructions compress records of this size in vectors long enough to pay off."""
    if current().sanitize:
        # The sanitizer has no bounds checks for masked accesses.
        return False
    return bits in (32, 64) and vector_bytes() == 64 and has_feature("avx512f")


@dataclass(frozen=True, slots=True)
class Order:
    """The order of records of ``bits`` bits: that of integers, from the last to the first one if descending."""

    bits: int
    signed: bool
    descending: bool

    @property
    def type(self) -> Type:
        """The type of a record."""
        return integer(self.bits)

    @property
    def lanes(self) -> int:
        """The number of records in a vector."""
        return vector_bytes() * 8 // self.bits

    @property
    def end(self) -> int:
        """A record behind which there is no other."""
        most = -1 if not self.signed else (1 << (self.bits - 1)) - 1
        return ~most if self.descending else most

    def before(self, a: Value, b: Value) -> Value:
        """Whether records come before others."""
        return a.compare(("s" if self.signed else "u") + ("gt" if self.descending else "lt"), b)

    def first(self, a: Value, b: Value) -> Value:
        """The one of two records that comes first."""
        return self._min_or_max(a, b, largest=self.descending)

    def last(self, a: Value, b: Value) -> Value:
        """The one of two records that comes last."""
        return self._min_or_max(a, b, largest=not self.descending)

    def _min_or_max(self, a: Value, b: Value, *, largest: bool) -> Value:
        if self.signed:
            return a.smax(b) if largest else a.smin(b)
        return a.umax(b) if largest else a.umin(b)


def sort_quickly(
    fn: Function,
    order: Order,
    records: Value,
    spare: Value,
    count: Value,
    network: Value,
    by_digits: Callable[[Value, Value], None],
) -> None:
    """Write a sort of records in place; ``spare`` is as much memory.

    network: the address of a function that :func:`write_networks` wrote. ``by_digits(begin, end)`` sorts a range in
    another way.
    """
    less = _write_partition(fn, order, "less", strict=True)
    at_most = _write_partition(fn, order, "at_most", strict=False)
    waiting = fn.alloca(I64, _WORDS * _WAITING, align=64)

    def push(depth: Value, *words: Value) -> Value:
        for number, word in enumerate(words):
            fn.store(word, fn.at(waiting, I64, depth * _WORDS + number))
        return depth + 1

    def cut(depth: Value, begin: Value, end: Value, cuts: Value) -> list[Value]:
        pivot = _pivot(fn, order, records, begin, end)
        middle = fn.call(less, I64, records, spare, begin, end, pivot)

        def without_equal() -> list[Value]:
            # No record is before the pivot: those that are equal to it move to the front, which is where they belong.
            return [push(depth, fn.call(at_most, I64, records, spare, begin, end, pivot), end, cuts)]

        def both() -> list[Value]:
            larger = (middle - begin) > (end - middle)
            parts = [fn.select(larger, a, b) for a, b in ((begin, middle), (middle, end))]
            then = push(depth, *parts, cuts)
            others = [fn.select(larger, a, b) for a, b in ((middle, begin), (end, middle))]
            return [push(then, *others, cuts)]

        return list(fn.if_else(middle.eq(begin), without_equal, both, likely=False))

    bits = 64 - fn.intrinsic("llvm.ctlz", I64, count, fn.constant(I1, 0))
    first = push(fn.i64(0), fn.i64(0), count, bits * _CUTS.value)
    with fn.while_([first], lambda loop: loop.carried[0] > 0) as loop:
        depth = loop.carried[0] - 1
        begin, end, cuts = (fn.load(I64, fn.at(waiting, I64, depth * _WORDS + n)) for n in range(_WORDS))

        def few() -> list[Value]:
            fn.call_pointer(network, VOID, fn.at(records, order.type, begin), end - begin)
            return [depth]

        def many() -> list[Value]:
            def in_vain() -> list[Value]:
                by_digits(begin, end)
                return [depth]

            return list(fn.if_else(cuts.eq(0), in_vain, lambda: cut(depth, begin, end, cuts - 1), likely=False))

        loop.next(*fn.if_else(end - begin <= network_sizes(order.bits)[-1], few, many))


def _pivot(fn: Function, order: Order, records: Value, begin: Value, end: Value) -> Value:
    """The median of the medians of three records each, which are spread over a range."""
    step = (end - begin) // 9
    samples = [fn.load(order.type, fn.at(records, order.type, begin + step * n)) for n in range(9)]
    return _median(order, *(_median(order, *samples[n::3]) for n in range(3)))


def _median(order: Order, a: Value, b: Value, c: Value) -> Value:
    return order.last(order.first(a, b), order.first(order.last(a, b), c))


def _write_partition(fn: Function, order: Order, name: str, *, strict: bool) -> Function:
    """``i64(ptr records, ptr spare, i64 begin, i64 end, record pivot)``: partition a range.

    The records before the pivot, and unless ``strict`` those equal to it, move to the front; gives where the rest
    begins. They are stored over records that have been read, and the rest to spare memory, from which it is copied
    behind them.
    """
    partition = fn.module.function(f"partition_{name}", I64, [PTR, PTR, I64, I64, order.type], attributes=[NO_INLINE])
    records, spare, begin, end, pivot = partition.parameters
    type, lanes = order.type, order.lanes
    wide, spread = vector(type, lanes), partition.splat(pivot, lanes)

    def goes_left(x: Value, pivot: Value) -> Value:
        return order.before(x, pivot) if strict else ~order.before(pivot, x)

    whole = begin + (end - begin) // lanes * lanes
    with partition.loop(begin, whole, lanes, carried=[begin, begin], hints=NO_UNROLL) as loop:
        left, right = loop.carried
        x = partition.load(wide, partition.at(records, type, loop.index), align=type.bytes)
        chosen = goes_left(x, spread)
        # A whole vector is stored, which ends no further than the vector just read.
        partition.store(compressed(partition, x, chosen), partition.at(records, type, left), align=type.bytes)
        partition.store(compressed(partition, x, ~chosen), partition.at(spare, type, right), align=type.bytes)
        number = chosen_lanes(partition, chosen)
        loop.next(left + number, right + (lanes - number))
    left, right = loop.results
    last = first_lanes_mask(partition, lanes, end - whole)
    x = masked_load(partition, wide, partition.at(records, type, whole), last)
    small = goes_left(x, spread)
    numbers: list[Value] = []
    for chosen, target in (
        (small & last, partition.at(records, type, left)),
        (~small & last, partition.at(spare, type, right)),
    ):
        numbers.append(chosen_lanes(partition, chosen))
        masked_store(
            partition, compressed(partition, x, chosen), target, first_lanes_mask(partition, lanes, numbers[-1])
        )
    left = left + numbers[0]
    with partition.loop(left, end, lanes, hints=NO_UNROLL) as back:
        some = first_lanes_mask(partition, lanes, end - back.index)
        x = masked_load(partition, wide, partition.at(spare, type, begin + (back.index - left)), some)
        masked_store(partition, x, partition.at(records, type, back.index), some)
    partition.ret(left)
    return partition


def chosen_lanes(fn: Function, chosen: Value) -> Value:
    """The number of chosen lanes."""
    mask = integer(chosen.type.lanes)
    return fn.intrinsic("llvm.ctpop", mask, chosen.bits_as(mask)).cast("zext", I64)


def compressed(fn: Function, x: Value, chosen: Value) -> Value:
    """The chosen lanes of a vector, moved together to its begin."""
    name = f"llvm.x86.avx512.mask.compress.{x.type.mangled}"
    fn.module.declare(name, x.type, [x.type, x.type, chosen.type])
    return fn.call(name, x.type, x, fn.constant(x.type, 0), chosen)


def network_sizes(bits: int) -> list[int]:
    """The numbers of records of ``bits`` bits that networks sort, the smallest first."""
    return [vector_bytes() * 8 // bits * vectors for vectors in (2, 4, 8, _VECTORS)]


def write_networks(fn: Function, order: Order, records: Value, number: Value) -> None:
    """Write a sort of at most as many records as the largest network takes, in place."""
    networks: list[tuple[int, Function]] = []
    for size in network_sizes(order.bits):
        networks.append((size, _write_network(fn, order, size, networks)))
    _call_network(fn, networks, records, number)


def _call_network(fn: Function, networks: Sequence[tuple[int, Function]], records: Value, number: Value) -> None:
    """Write a sort of ``number`` records, at most those of the last network, by the first one that has as many."""
    (size, network), *larger = networks
    if not larger:
        fn.call(network, VOID, records, number)
        return

    def fits() -> None:
        fn.call(network, VOID, records, number)

    fn.if_else(number <= size, fits, lambda: _call_network(fn, larger, records, number))


def _write_network(fn: Function, order: Order, size: int, smaller: Sequence[tuple[int, Function]]) -> Function:
    """``void(ptr records, i64 number)``: sort ``number`` records, at most ``size`` and more than ``smaller`` ones take.

    Smaller networks sort both halves, which pass through memory. With all exchanges in one function, networks have
    four times as many instructions, and take most of the time of a program's compilation.
    """
    network, records, number = fn.module.begin(f"sort_{size}", VOID, [PTR, I64], attributes=[NO_INLINE])
    type, lanes = order.type, order.lanes
    wide = vector(type, lanes)
    run = 2
    if smaller:
        run = size
        half, sort_half = smaller[-1]
        network.call(sort_half, VOID, records, network.i64(half))
        _call_network(network, smaller, network.at(records, type, half), number - half)
    places = [network.at(records, wide, n) for n in range(size // lanes)]
    masks = [first_lanes_mask(network, lanes, number.smax(n * lanes) - n * lanes) for n in range(size // lanes)]
    last = network.constant(wide, order.end)
    x = [
        network.select(mask, masked_load(network, wide, place, mask), last)
        for mask, place in zip(masks, places, strict=True)
    ]
    while run <= size:
        # Merges two sorted runs: the first step compares records at the same distance from the begin of the first run
        # and the end of the second one; the next steps sort each half.
        x = _exchanged(network, order, x, run - 1)
        distance = run // 4
        while distance:
            x = _exchanged(network, order, x, distance)
            distance //= 2
        run *= 2
    for value, place, mask in zip(x, places, masks, strict=True):
        masked_store(network, value, place, mask)
    network.ret()
    return network


def _exchanged(fn: Function, order: Order, x: Sequence[Value], other: int) -> list[Value]:
    """Compare and exchange each record with the one whose number differs in the bits of ``other``."""
    lanes = order.lanes
    within, across = other % lanes, other // lanes
    swap = [lane ^ within for lane in range(lanes)]

    def swapped(value: Value) -> Value:
        return fn.shuffle(value, value, swap) if within else value

    exchanged = list(x)
    for number, value in enumerate(x):
        partner = number ^ across
        if across:
            if number < partner:
                partners = swapped(x[partner])
                exchanged[number], exchanged[partner] = (
                    order.first(value, partners),
                    swapped(order.last(value, partners)),
                )
            continue
        partners = swapped(value)
        top = 1 << (within.bit_length() - 1)
        take = [lane + lanes if lane & top else lane for lane in range(lanes)]
        exchanged[number] = fn.shuffle(order.first(value, partners), order.last(value, partners), take)
    return exchanged
