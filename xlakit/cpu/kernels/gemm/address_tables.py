"""Tables of addresses along a direction of an operand, from which packing and the macro-kernel read rows and runs of k.

With these tables, common functions serve operands of any strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xlakit.cpu.kernels.gemm.operands import Direction
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.llvm import I8, I64, PTR, Effort, Function, Module, Type, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses along a direction: ``pointer`` plus ``base`` bytes; without a pointer they are distances.

    scale: the bytes of one element of the direction.
    """

    pointer: Value | None = None
    scale: int = 1
    base: Value | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table in memory to be filled with addresses.

    apart: the stride of its entries, in entries. padded: the number of its entries, if it is larger than the number of
    addresses; the additional entries are ``pad``, or the last address.
    """

    entries: Value
    apart: int = 1
    padded: Value | None = None
    pad: Value | None = None


def fill_table(
    fn: Function, direction: Direction, first: Value, count: Value, source: Addresses, target: Table
) -> None:
    """Fill a table with the addresses of ``count`` elements along a direction, from element ``first`` on."""
    name, rank = _constant_direction(fn.module, direction)
    start = fn.null() if source.pointer is None else source.pointer
    common.call(
        fn,
        FillTable(),
        fn.address(name),
        fn.i64(rank),
        first,
        count,
        count if target.padded is None else target.padded,
        start if source.base is None else fn.at(start, I8, source.base),
        fn.i64(source.scale),
        target.entries,
        fn.i64(target.apart),
        fn.null() if target.pad is None else target.pad,
    )


def _constant_direction(module: Module, direction: Direction) -> tuple[str, int]:
    """Sizes and strides of a direction as a constant of the module: its name, and the number of dimensions."""
    dims = direction.dims or ((1, 0),)
    name = "_".join(["direction", *(f"{size}x{stride}" for size, stride in dims)]).replace("-", "m")
    return module.shared_data(name, np.array(dims, dtype=np.int64).tobytes(), align=8), len(dims)


@dataclass(frozen=True, slots=True)
class FillTable:
    """Writes addresses, or distances, along a direction through an array.

    ``(ptr dims, i64 rank, i64 first, i64 count, i64 padded, ptr base, i64 scale, ptr out, i64 apart, ptr pad)``: writes
    base + scale * (the offset of element n) for ``count`` elements from the first on, ``apart`` words apart. ``dims``
    has size and stride of each dimension, the last running fastest. Then entries up to ``padded`` are filled with
    ``pad``, or with the last address if ``pad`` is null. Distances are addresses relative to null.
    """

    family: ClassVar[str] = "gemm_addresses"
    parameters: ClassVar[Sequence[Type]] = (PTR, *[I64] * 4, PTR, I64, PTR, I64, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        dims, rank, first, count, padded, base, scale, table, table_step, pad = fn.parameters
        last = (rank - 1) * 2
        size, stride = fn.load(I64, fn.at(dims, I64, last)), fn.load(I64, fn.at(dims, I64, last + 1))
        step = stride * scale
        end = first + count
        with fn.while_([first], lambda loop: loop.carried[0] < end) as loop:
            number = loop.carried[0]
            inner, rest = number.integer("urem", size), number.integer("udiv", size)
            with fn.loop(0, rank - 1, carried=[rest, inner * stride], hints=AS_WRITTEN) as outer:
                entry = (rank - 2 - outer.index) * 2
                extent = fn.load(I64, fn.at(dims, I64, entry))
                offset = outer.carried[0].integer("urem", extent) * fn.load(I64, fn.at(dims, I64, entry + 1))
                outer.next(outer.carried[0].integer("udiv", extent), outer.carried[1] + offset)
            start = fn.at(base, I8, outer.results[1] * scale)
            in_run = (size - inner).smin(end - number)
            with fn.loop(0, in_run, hints=AS_WRITTEN) as each:
                fn.store(
                    fn.at(start, I8, each.index * step), fn.at(table, I64, (number - first + each.index) * table_step)
                )
            loop.next(number + in_run)
        with fn.loop(count, padded, hints=AS_WRITTEN) as more:
            before = fn.load(PTR, fn.at(table, I64, (count - 1) * table_step))
            fn.store(fn.select(pad.ne(fn.null()), pad, before), fn.at(table, I64, more.index * table_step))
