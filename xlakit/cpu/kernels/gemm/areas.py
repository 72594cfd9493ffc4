"""The areas of a product's scratch memory: packed operands, sums, and tables of addresses."""

from __future__ import annotations

from dataclasses import fields

from xlakit.cpu.kernels.gemm.bf16_range import ranges_bytes
from xlakit.cpu.kernels.gemm.blocking import Blocking
from xlakit.cpu.kernels.gemm.operands import element_bytes, rounded_up
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.llvm import I8, Function, Value
from xlakit.cpu.llvm.bounds import within
from xlakit.dataclass import dataclass

_LINE = 64
# Areas are two cache lines apart; the sanitizer checks that nothing is written between them.
_GAP = 2 * _LINE


@dataclass(frozen=True, slots=True)
class Areas:
    """The bytes of each area, in their order in scratch; 0 for areas that a blocking does not need.

    left, right: packed blocks of the operands. sums: sums of tiles before they are converted to results. results: a
    rectangle of the result for the epilogue. sources, pointers: the addresses of the rows of a block, before and after
    packing; targets: those of their sums. sliver_sources: the addresses of the columns to be packed. runs, packed_runs:
    the distances of the runs of k in both operands, in the arrays, and as the micro-kernel reads them. lines: the lines
    of a chunk of rows. ranges: the exponent ranges of packed BF16.
    """

    left: int
    right: int
    sums: int
    results: int
    sources: int
    pointers: int
    targets: int
    sliver_sources: int
    runs: int
    packed_runs: int
    lines: int
    ranges: int

    @property
    def sizes(self) -> list[int]:
        """The bytes of all areas, in order."""
        return [getattr(self, field.name) for field in fields(self)]

    @property
    def offsets(self) -> list[int]:
        """The offset of each area in bytes; areas do not share cache lines."""
        sizes = self.sizes
        return [rounded_up(sum(sizes[:n]), _LINE) + _GAP * n for n in range(len(sizes))]

    @property
    def bytes(self) -> int:
        """The bytes of scratch for all areas."""
        return self.offsets[-1] + self.sizes[-1] + _GAP

    def pointers_in(self, fn: Function, scratch: Value) -> AreaPointers:
        """The addresses of all areas."""
        areas = zip(self.offsets, self.sizes, strict=True)
        return AreaPointers(*(within(fn, fn.at(scratch, I8, offset), size) for offset, size in areas))


@dataclass(slots=True)
class AreaPointers:
    """The address of each area."""

    left: Value
    right: Value
    sums: Value
    results: Value
    sources: Value
    pointers: Value
    targets: Value
    sliver_sources: Value
    runs: Value
    packed_runs: Value
    lines: Value
    ranges: Value


def make_areas(product: Product, blocking: Blocking, *, direct: bool, local_width: int, converted_rows: int) -> Areas:
    """The areas for a product.

    direct: sums of tiles are stored as results. local_width: the elements of a row of the epilogue's rectangle, 0
    without one. converted_rows: the number of rows converted to results at a time if there is one block of k.
    """
    engine = blocking.engine
    slivers = blocking.slivers(product)
    right = slivers * blocking.sliver_elements * (blocking.k_blocks if blocking.ahead else 1)
    left = blocking.mc * blocking.packed_kc * engine.parts
    rows = blocking.mc if blocking.k_blocks > 1 else min(blocking.mc, converted_rows)
    sums = slivers * (engine.nr if direct else rows * engine.nr * engine.parts)
    pointers = blocking.mc * 8
    lines = product.lines
    return Areas(
        left=left * engine.packed.bytes if blocking.packs[0] else 0,
        right=right * engine.packed.bytes if blocking.packs[1] and not blocking.packs_once else 0,
        sums=sums * engine.acc.bytes,
        results=min(blocking.mc, product.sizes[0]) * local_width * product.result.byte_width,
        sources=pointers,
        pointers=pointers if blocking.packs[0] else 0,
        targets=pointers,
        sliver_sources=slivers * engine.nr * 8 if blocking.packs[1] else 0,
        runs=blocking.runs * 16,
        packed_runs=blocking.runs * 16 if blocking.is_mixed else 0,
        lines=lines.most * lines.elements * element_bytes(product.lhs.kind) if lines is not None else 0,
        ranges=ranges_bytes(engine, blocking.k_blocks if blocking.ahead else 1),
    )
