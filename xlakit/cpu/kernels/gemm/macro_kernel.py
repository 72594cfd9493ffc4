"""The macro-kernel: the loops over the micro-tiles of packed blocks, as functions that all programs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from xlakit.cpu.kernels.gemm.amx import WriteSums, configured, write_sums, write_sums_of_bf16
from xlakit.cpu.kernels.gemm.engine import Engine, acc_vector, takes_pairs_of_bf16, to_packed, vectors_of
from xlakit.cpu.kernels.gemm.micro_kernel import Columns, Prefetches, Rows, Sums, multiply, without_bias, zeros
from xlakit.cpu.kernels.gemm.operands import rounded_up
from xlakit.cpu.kernels.gemm.slivers import apart, bias_terms
from xlakit.cpu.kernels.gemm.store import first_lanes
from xlakit.cpu.kernels.shared.masked import first_lanes_mask, has_masks, masked_load, masked_store
from xlakit.cpu.llvm import I8, I64, PTR, Effort, Function, Type, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass

# The bytes of a cache line; if lines are longer, some are prefetched twice.
_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class MacroKernel:
    """The sums of all micro-tiles of some rows and slivers; ``engine.mr`` rows and one sliver at a time.

    width: the number of stored columns; None if it is an argument, whose last column is in the last register, and no
    column beyond it is read. computed: the number of computed columns, including those that only fill a register.
    left_step, right_step: the distances between steps of k, in elements; None if they are arguments. unpacked: the type
    of the right operand if it is not packed; result: the type of the result if unpacked elements are converted for it.
    kc: the steps of k in a run, if they are so few that the loop is unrolled. adds: whether sums may be added to those
    of earlier blocks of k. ahead: whether the slivers of all blocks of k are packed before, one behind the other, and
    probably are not in the second-level cache. panels: whether the left operand is packed in panels (``panels.py``).

    ``(i64 tiles, i64 slivers, i64 right_advance, i64 advance, ptr rows, ptr right, ptr runs, i64 count, i64 kc, i64
    left_step, i64 right_step, ptr targets, i64 offset, i64 adds, i64 flushes, i64 width)``: ``rows`` has a pointer to
    each row; ``runs`` has for each of ``count`` runs of k its distance from there, in elements of the left and of the
    right operand. ``targets`` has for each row the address of its sums, to which ``offset`` elements are added; if
    ``adds`` is not 0 the sums are added to the values there. ``flushes`` is not 0 if the sums of BF16 have the same
    bits when subnormal numbers are taken for zero (``bf16_range.py``). From sliver to sliver the right operand is
    ``right_advance`` bytes and the target ``advance`` elements further on.
    """

    engine: Engine
    width: int | None
    computed: int
    left_step: int | None
    right_step: int | None
    unpacked: PrimitiveType | None
    result: PrimitiveType | None
    kc: int | None
    adds: bool
    ahead: bool = False
    panels: bool = False

    family: ClassVar[str] = "gemm_macro_kernel"
    parameters: ClassVar[Sequence[Type]] = (*[I64] * 4, *[PTR] * 3, *[I64] * 4, PTR, *[I64] * 4)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        if not takes_pairs_of_bf16(self.engine) or self.engine.flushes:
            self._by_instructions(fn)
            return
        is_exact = fn.parameters[-2].ne(0)
        with fn.if_(is_exact):
            replace(self, engine=replace(self.engine, flushes=True))._by_instructions(fn)
        with fn.if_(~is_exact):
            if self.engine.amx:
                self._all(fn, write_sums_of_bf16)
            else:
                self._all(fn)

    def _by_instructions(self, fn: Function) -> None:
        if not self.engine.amx:
            self._all(fn)
            return
        with configured(fn):
            self._all(fn, write_sums)

    def _all(self, fn: Function, write: WriteSums | None = None) -> None:
        """Write all tiles; ``write``, if given, writes the sums of a tile to memory instead of vector registers."""
        tiles, slivers, right_advance, advance, rows, right, *middle, targets, offset, adds, _, width = fn.parameters
        engine = self.engine
        mask = None
        if self.width is None:
            start, lanes = vectors_of(engine, self.computed)[-1]
            mask = first_lanes_mask(fn, lanes, width - start)
        # With the whole of both operands packed, there is one run of k; its tiles have registers left for a pointer.
        is_streamed = self.panels and self.unpacked is None and self.kc is None
        per_row, per_step = self._shares(fn, right_advance, tiles, middle[2])
        buffer = fn.null() if write is None else fn.alloca(acc_vector(engine), engine.mr * engine.vectors, align=64)
        with fn.loop(0, slivers, hints=AS_WRITTEN) as sliver:
            start = fn.at(right, I8, sliver.index * right_advance)
            into = offset + sliver.index * advance
            with fn.loop(0, tiles * engine.mr, engine.mr, hints=AS_WRITTEN) as row:
                row_pointers, target = fn.at(rows, PTR, row.index), fn.at(targets, PTR, row.index)
                # The tiles of a sliver together prefetch the whole next sliver, while they read their own.
                following = fn.at(start, I8, right_advance + row.index * per_row) if self.ahead else None
                if following is not None and not is_streamed:
                    with fn.loop(0, per_row * engine.mr, _LINE_BYTES, hints=AS_WRITTEN) as line:
                        fn.prefetch(fn.at(following, I8, line.index), level=2)
                    following = None
                prefetch = self._prefetch_target(fn, target, into)
                prefetches = None
                if self.kc is None and write is None:
                    prefetches = Prefetches(engine.mr, prefetch, following, per_step)
                elif self.kc is None:
                    for r in range(engine.mr):
                        prefetch(fn.i64(r))
                if write is None:
                    sums = self._sums(fn, row_pointers, start, right_advance, middle, mask, prefetches)
                    self._store(fn, sums, target, into, adds, mask)
                else:
                    write(fn, engine, row_pointers, start, middle[2] if self.kc is None else fn.i64(self.kc), buffer)
                    self._store_from(fn, buffer, target, into, adds)

    def _sums(
        self,
        fn: Function,
        rows: Value,
        right: Value,
        advance: Value,
        extents: Sequence[Value],
        mask: Value | None,
        prefetches: Prefetches | None,
    ) -> Sums:
        engine = self.engine
        runs, count, kc, left_step, right_step = extents
        if self.panels:
            panel = fn.load(PTR, rows)
            pointers = [fn.at(panel, engine.packed, r) for r in range(engine.mr)]
        else:
            pointers = [fn.load(PTR, fn.at(rows, PTR, r)) for r in range(engine.mr)]

        def shift(side: int) -> Callable[[Value], Value]:
            return lambda run: fn.load(I64, fn.at(runs, I64, run * 2 + side))

        if engine.is_biased:
            first = without_bias(
                fn, engine, engine.mr, self.computed, bias_terms(fn, engine, fn.at(right, I8, advance))
            )
        else:
            first = zeros(fn, engine, engine.mr, self.computed)
        columns = Columns(right, right_step if self.right_step is None else self.right_step, shift(1), engine.nr)
        if self.unpacked is not None:
            kind, result = self.unpacked, self.result
            columns.stored = memory_type(kind)
            columns.mask = mask
            if result is not None:
                columns.convert = lambda stored: to_packed(fn, engine, kind, result, stored)
        return multiply(
            fn,
            engine,
            Rows(pointers, left_step if self.left_step is None else self.left_step, shift(0)),
            columns,
            first,
            count,
            kc if self.kc is None else self.kc,
            prefetches,
        )

    def _prefetch_target(self, fn: Function, targets: Value, offset: Value) -> Callable[[Value], None]:
        """Prefetches the cache lines of the sums of a row.

        Out-of-order execution does not look ahead over all steps of k, so that storing the sums would wait for memory.
        """
        elements = (self.width or self.computed) * self.engine.parts
        line = max(1, _LINE_BYTES // self.engine.acc.bytes)

        def prefetch(row: Value) -> None:
            start = fn.at(fn.load(PTR, fn.at(targets, PTR, row)), self.engine.acc, offset)
            for element in range(0, elements, line):
                fn.prefetch(fn.at(start, self.engine.acc, element))

        return prefetch

    def _shares(self, fn: Function, advance: Value, tiles: Value, kc: Value) -> tuple[Value, Value]:
        """The bytes of the next sliver that each row of tiles, and each step of k of a tile, prefetches."""
        rows = tiles * self.engine.mr
        per_row = (advance + (rows - 1)).integer("udiv", rows.smax(1))
        part = per_row * self.engine.mr
        return per_row, (part + (kc - 1)).integer("udiv", kc.smax(1))

    def _store(
        self, fn: Function, sums: Sums, targets: Value, offset: Value, adds: Value, mask: Value | None = None
    ) -> None:
        """Store the sums of a tile; ``mask`` selects the lanes of the last register of a row."""
        engine = self.engine
        if engine.interleaved > 1:
            sums = [[(apart(fn, engine, register[0]),) for register in row] for row in sums]
        pieces = vectors_of(engine, self.width or self.computed)
        ends = [
            mask if n == len(pieces) - 1 else None
            for _ in sums
            for n in range(len(pieces))
            for _ in range(engine.parts)
        ]
        flat: list[Value] = []
        addresses: list[Value] = []
        for r, row in enumerate(sums):
            start = fn.at(fn.load(PTR, fn.at(targets, PTR, r)), engine.acc, offset)
            for n, (register, (_, lanes)) in enumerate(zip(row, pieces, strict=True)):
                for part, value in enumerate(register):
                    addresses.append(fn.at(start, acc_vector(engine), n * engine.parts + part))
                    flat.append(first_lanes(fn, value, lanes))
        if self.adds:
            # Sums of blocks are added up, which loses less precision than one long sum.
            def added() -> list[Value]:
                before = [
                    fn.load(v.type, address, align=engine.acc.bytes)
                    if end is None
                    else masked_load(fn, v.type, address, end)
                    for v, address, end in zip(flat, addresses, ends, strict=True)
                ]
                return [a + b for a, b in zip(before, flat, strict=True)]

            flat = list(fn.if_else(adds.ne(0), added, lambda: flat))
        for value, target, end in zip(flat, addresses, ends, strict=True):
            if end is None:
                fn.store(value, target, align=engine.acc.bytes)
            else:
                masked_store(fn, value, target, end)

    def _store_from(self, fn: Function, buffer: Value, targets: Value, offset: Value, adds: Value) -> None:
        """Store the sums of a tile that are in memory, one row at a time."""
        engine = self.engine
        with fn.loop(0, engine.mr, hints=AS_WRITTEN) as row:
            start = fn.at(buffer, acc_vector(engine), row.index * engine.vectors)
            sums = [
                (fn.load(acc_vector(engine), fn.at(start, acc_vector(engine), n), align=engine.acc.bytes),)
                for n in range(len(vectors_of(engine, self.width or self.computed)))
            ]
            self._store(fn, [sums], fn.at(targets, PTR, row.index), offset, adds)


def computed_columns(engine: Engine, width: int, *, packed: bool, direct: bool) -> tuple[int, bool]:
    """The number of columns that tiles of a width compute, and whether they mask the last register.

    Packed slivers are padded, so registers are full. Sums that are stored as results (``direct``), and columns that are
    read in place, end with the last column: with a mask, one function serves tiles of many widths.
    """
    wide = full = rounded_up(width, engine.lanes)
    if not packed and width < full:
        # A wider load than needed would straddle two cache lines more often.
        whole = full - engine.lanes
        wide = whole + (1 << (width - whole - 1).bit_length())
    masks = engine.parts == 1 and not engine.amx and has_masks()
    if width < wide and masks and (direct or not packed):
        return wide, True
    return (full if packed else width), False
