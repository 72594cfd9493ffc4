"""Copies of a convolution's operands in scratch: padded, with zeros between elements, or converted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit import machine
from xlakit.cpu.kernels.gemm.engine import Engine, stored_as_packed, to_packed
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.llvm import I1, I8, I64, PTR, VOID, Effort, Function, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.loops.emit.kernel import kernel_function
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.layout import row_major_strides
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.options import knob, times

# What a task writes fits half of the second-level cache.
_TASK_BYTES = knob(
    "convolution_pad.task_bytes", lambda: machine.current().l2 // 2, 64, 500, tries=(times(0.5), times(2))
)
# For lines of at least this many bytes, the time of the code around the copy of a line is negligible.
_LONG_LINE = knob("convolution_pad.long_line", 2048, 4)


@dataclass(frozen=True, slots=True)
class Padded:
    """A copy of an array of ``sizes``, of type ``kind``, with ``low`` and ``high`` zeros around each dimension.

    ``holes`` zeros come between elements. ``engine`` converts if the type changes, for a convolution of type
    ``result``. The last dimension is divided into ``groups``; in the copy each group is a separate array, one after the
    other. ``array`` is the operand's index in the table, ``first`` the offset of the copy in the scratch, in bytes.
    """

    source: PrimitiveType
    kind: PrimitiveType
    sizes: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    holes: tuple[int, ...]
    engine: Engine
    result: PrimitiveType
    groups: int = 1
    array: int = 0
    first: int = 0

    @property
    def padded(self) -> tuple[int, ...]:
        """The sizes of the copy."""
        dims = zip(self.sizes, self.low, self.high, self.holes, strict=True)
        return tuple(low + high + (max(0, (size - 1) * (hole + 1) + 1)) for size, low, high, hole in dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of the copy, within a group."""
        sizes = (*self.padded[:-1], self.padded[-1] // self.groups)
        return row_major_strides(sizes)

    @property
    def group_stride(self) -> int:
        """The distance from group to group."""
        return math.prod(self.padded) // self.groups

    @property
    def may_have_groups(self) -> bool:
        """Whether elements of the last dimension are copied unchanged, so that it can be divided into groups."""
        plain = self.source is self.kind and not self.kind.is_complex and not any(self.holes)
        return plain and self.line == len(self.sizes) - 2

    @property
    def bytes(self) -> int:
        """The size of the copy in whole cache lines, plus one line for vectors that reach past the end."""
        return -(-math.prod(self.padded) * self.kind.byte_width // 64) * 64 + 64

    @property
    def line(self) -> int:
        """The first dimension of a line, the last dimension with zeros; the copy is written line by line."""
        dims = zip(self.low, self.high, self.holes, strict=True)
        changed = [d for d, around in enumerate(dims) if any(around)]
        if changed:
            return changed[-1]
        rank, width = len(self.sizes), self.kind.byte_width
        return next((d for d in range(rank) if math.prod(self.sizes[d:]) * width <= _TASK_BYTES.value), rank - 1)

    @property
    def lines(self) -> int:
        """The number of lines."""
        return math.prod(self.padded[: self.line])

    @property
    def lines_per_task(self) -> int:
        """The number of lines of a task."""
        line = math.prod(self.padded[self.line :]) * self.kind.byte_width
        return max(1, _TASK_BYTES.value // max(1, line))

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return -(-self.lines // self.lines_per_task)


def emit_pad(module: Module, padded: Padded, scratch: int, name: str) -> Function:
    """A task function that writes a padded copy; ``scratch`` is its index in the table."""
    around = (padded.low, padded.high, padded.holes)
    require(
        f"an array of {padded.sizes} written out with zeros around",
        [
            ("each dimension has zeros before, after and between", all(len(n) == len(padded.sizes) for n in around)),
            ("no number of zeros is negative", min((n for dims in around for n in dims), default=0) >= 0),
            ("it begins at a cache line", padded.first % 64 == 0),
            ("only lines of elements have groups", padded.groups == 1 or padded.may_have_groups),
            ("groups have as many elements", padded.groups > 0 and padded.sizes[-1] % padded.groups == 0),
        ],
    )
    fn, table, begin, end = kernel_function(module, name)
    source = fn.load(PTR, fn.at(table, PTR, padded.array))
    into = fn.at(fn.load(PTR, fn.at(table, PTR, scratch)), I8, padded.first)
    each = padded.lines_per_task
    last = (end * each).smin(padded.lines)
    with fn.loop(begin * each, last, hints=AS_WRITTEN) as line:
        (_write_line if padded.groups == 1 else _write_groups)(fn, padded, source, into, line.index)
    return _ended(fn, padded)


def _ended(fn: Function, padded: Padded) -> Function:
    # Long lines are filled and copied by functions of the C library, so the code around them needs no optimization.
    line = math.prod(padded.padded[padded.line :]) * padded.kind.byte_width
    is_long = line >= _LONG_LINE.value and padded.source is padded.kind and not padded.holes[padded.line]
    if is_long and padded.groups == 1:
        fn.effort = Effort.LITTLE
    return fn


@dataclass(frozen=True, slots=True)
class ImageLines:
    """Writes the lines of a copy whose first two dimensions are images and lines; see gemm/product.py."""

    padded: Padded

    def emit_lines(self, module: Module) -> Function:
        """Write the function that copies a range of lines."""
        padded = self.padded
        fn = module.function("convolution_lines", VOID, [PTR, PTR, I64, I64])
        source, target, begin, end = fn.parameters
        each = math.prod(padded.padded[2 : padded.line])
        with fn.loop(begin * each, end * each, hints=AS_WRITTEN) as line:
            _write_line(fn, padded, source, target, line.index)
        return _ended(fn, padded)


def _write_line(fn: Function, padded: Padded, source: Value, into: Value, line: Value) -> None:
    """Write line ``line`` of the padded array: zeros, and the elements of the source's line, with holes between.

    A line that is entirely padding is all zeros.
    """
    d = padded.line
    inner = math.prod(padded.sizes[d + 1 :])
    length = math.prod(padded.padded[d:])
    parts = 2 if padded.kind.is_complex else 1
    type = memory_type(padded.kind)
    start = fn.at(into, type, line * (length * parts))
    inside, offset = source_line(fn, padded, line, d)
    row_bytes = inner * parts * type.bytes
    if padded.holes[d] or not padded.sizes[d]:
        fn.fill(start, 0, length * parts * type.bytes)
    else:
        low, high = padded.low[d] * row_bytes, padded.high[d] * row_bytes
        if low:
            with fn.if_(inside):
                fn.fill(start, 0, low)
        if high:
            with fn.if_(inside):
                fn.fill(fn.at(start, type, (padded.low[d] + padded.sizes[d]) * inner * parts), 0, high)
        with fn.if_(~inside):
            fn.fill(start, 0, length * parts * type.bytes)
    if not padded.sizes[d]:
        return
    target = fn.at(start, type, padded.low[d] * inner * parts)
    with fn.if_(inside):
        begin = fn.at(source, memory_type(padded.source), offset * (inner * parts))
        if padded.holes[d]:
            step = (padded.holes[d] + 1) * inner
            with fn.loop(0, padded.sizes[d], hints=AS_WRITTEN) as element:
                element_address = fn.at(begin, memory_type(padded.source), element.index * (inner * parts))
                _copy(fn, padded, element_address, fn.at(target, type, element.index * (step * parts)), inner * parts)
        else:
            _copy(fn, padded, begin, target, padded.sizes[d] * inner * parts)


def _write_groups(fn: Function, padded: Padded, source: Value, into: Value, line: Value) -> None:
    """Write a line of each group."""
    type = memory_type(padded.kind)
    d, every = padded.line, padded.sizes[-1]
    each = every // padded.groups
    row_bytes = each * type.bytes
    length, low, size = padded.padded[d], padded.low[d], padded.sizes[d]
    inside, offset = source_line(fn, padded, line, d)
    with fn.loop(0, padded.groups, hints=AS_WRITTEN) as group:
        start = fn.at(into, type, group.index * padded.group_stride + line * (length * each))
        with fn.if_(~inside):
            fn.fill(start, 0, length * row_bytes)
        with fn.if_(inside):
            fn.fill(start, 0, low * row_bytes)
            fn.fill(fn.at(start, type, (low + size) * each), 0, padded.high[d] * row_bytes)
            begin = fn.at(source, type, offset * every + group.index * each)
            with fn.loop(0, size, independent=True, hints=AS_WRITTEN) as element:
                row_address = fn.at(begin, type, element.index * every)
                fn.copy(fn.at(start, type, (element.index + low) * each), row_address, row_bytes)


def source_line(fn: Function, padded: Padded, line: Value, dimension: int) -> tuple[Value, Value]:
    """Whether a line along a dimension has elements of the source, and the index of its first row there."""
    inside, offset = fn.constant(I1, 1), fn.i64(0)
    scale = padded.sizes[dimension]
    for d in range(dimension - 1, -1, -1):
        extent = padded.padded[d]
        index = line if d == 0 else line.integer("urem", extent)
        line = line if d == 0 else line.integer("udiv", extent)
        if extent != padded.sizes[d]:
            index = index - padded.low[d]
            step = padded.holes[d] + 1
            if step > 1:
                inside = inside & (index >= 0) & index.integer("urem", step).eq(0)
                index = index.integer("sdiv", step)
            inside = inside & index.compare("ult", padded.sizes[d])
        offset = offset + index * scale
        scale *= padded.sizes[d]
    return inside, offset


def _copy(fn: Function, padded: Padded, source: Value, target: Value, count: int) -> None:
    """Copy parts of elements, and convert them."""
    if padded.source is padded.kind:
        fn.copy(target, source, count * memory_type(padded.kind).bytes)
        return
    of_source, of_target = memory_type(padded.source), memory_type(padded.kind)
    with fn.loop(0, count, independent=True) as k:
        value = fn.load(of_source, fn.at(source, of_source, k.index))
        if not stored_as_packed(padded.engine, padded.source):
            value = to_packed(fn, padded.engine, padded.source, padded.result, value)
        fn.store(value, fn.at(target, of_target, k.index))


def scratch_bytes(copies: Sequence[Padded]) -> int:
    """The size of a scratch that holds several padded copies."""
    return max((copy.first + copy.bytes for copy in copies), default=0)


def padded_dimensions(sizes: Sequence[int], around: dict[int, tuple[int, int, int]]) -> tuple[tuple[int, ...], ...]:
    """The low, high and hole counts of all dimensions, given those of the dimensions that have any."""
    counts = [around.get(d, (0, 0, 0)) for d in range(len(sizes))]
    return tuple(f[0] for f in counts), tuple(f[1] for f in counts), tuple(f[2] for f in counts)
