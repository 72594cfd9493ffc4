"""The micro-kernel of matrix products: a tile of sums in registers, to which one step of k after the other is added.

Rows of the left operand are read element by element, each replicated in a register; rows of the right operand are read
one register at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.gemm.engine import Engine, acc_vector, takes_pairs_of_bf16, vectors_of
from xlakit.cpu.kernels.shared.masked import masked_load
from xlakit.cpu.llvm import BF16, I8, I16, I32, Function, Type, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.dataclass import dataclass
from xlakit.target import has_feature

# The sums of a tile: for each row, for each register of columns, for each part.
Sums = list[list[tuple[Value, ...]]]

# In tiles with more rows, LLVM would load the left elements of all unrolled steps before it uses them, more than the
# registers hold, so that a step takes three times as long.
_FEW_ROWS = 8


@dataclass(slots=True)
class Rows:
    """The left operand of a tile: a pointer for each row, and the distance between steps of k, in elements.

    ``offset`` gives the number of elements to add to the pointers for a run of steps.
    """

    pointers: Sequence[Value]
    step: Value | int = 1
    offset: Callable[[Value], Value] | None = None


@dataclass(slots=True)
class Columns:
    """The right operand of a tile: the address of its first column, and the distance of steps of k, in elements."""

    pointer: Value
    step: Value | int
    offset: Callable[[Value], Value] | None = None
    # The distance between the real and the imaginary parts, in elements.
    part: int = 0
    # The type and the conversion of elements that are not packed; then all distances count elements of ``stored``.
    stored: Type | None = None
    convert: Callable[[Value], Value] | None = None
    # The mask of the lanes of the last register that are read; None if all are read.
    mask: Value | None = None


@dataclass(slots=True)
class Prefetches:
    """What a tile prefetches while it multiplies, little by little.

    A burst of prefetches takes all buffers for cache lines on their way, and the next steps of k wait for one.

    first: called with the number of each of the first ``count`` steps. pointer: the next address to prefetch into the
    second-level cache, which advances by ``advance`` bytes a step; None for none, or where there may be several runs.
    """

    count: int
    first: Callable[[Value], None]
    pointer: Value | None
    advance: Value


def zeros(fn: Function, engine: Engine, rows: int, width: int) -> Sums:
    """The sums before the first product."""
    return [
        [(fn.constant(acc_vector(engine, n), 0),) * engine.parts for _, n in vectors_of(engine, width)]
        for _ in range(rows)
    ]


def without_bias(fn: Function, engine: Engine, rows: int, width: int, terms: Value) -> Sums:
    """The sums before the first product, less what the bias of left elements adds; ``terms`` has it for each column."""
    each = acc_vector(engine)
    row = [
        (-fn.load(vector(engine.acc, n), fn.at(terms, each, number), align=engine.acc.bytes),)
        for number, (_, n) in enumerate(vectors_of(engine, width))
    ]
    return [row] * rows


def _width(sums: Sums) -> int:
    return sum(register[0].type.lanes for register in sums[0])


def flatten(sums: Sums) -> list[Value]:
    """The sums of a tile as a flat list."""
    return [part for row in sums for register in row for part in register]


def shaped(engine: Engine, flat: Sequence[Value], rows: int) -> Sums:
    """The inverse of :func:`flatten`."""
    registers = [tuple(flat[i : i + engine.parts]) for i in range(0, len(flat), engine.parts)]
    width = len(registers) // rows
    return [registers[i : i + width] for i in range(0, len(registers), width)]


def multiply(
    fn: Function,
    engine: Engine,
    left: Rows,
    right: Columns,
    sums: Sums,
    runs: Value,
    kc: Value | int,
    prefetches: Prefetches | None = None,
) -> Sums:
    """Add to the sums the products of ``runs`` runs of ``kc`` steps of k each (a step is a group of the engine).

    With a pointer to prefetch from there is one run.
    """
    if prefetches is not None and prefetches.pointer is not None:
        return shaped(engine, _run(fn, engine, left, right, sums, fn.i64(0), kc, prefetches), len(sums))
    rows = len(sums)
    with fn.loop(0, runs, carried=flatten(sums), hints=AS_WRITTEN) as outer:
        outer.next(*_run(fn, engine, left, right, shaped(engine, outer.carried, rows), outer.index, kc, prefetches))
    return shaped(engine, outer.results, rows)


def _run(
    fn: Function,
    engine: Engine,
    left: Rows,
    right: Columns,
    sums: Sums,
    run: Value,
    kc: Value | int,
    prefetches: Prefetches | None = None,
) -> list[Value]:
    """The sums as a flat list, with the products of one run of k added."""
    type = engine.packed
    parts = engine.parts
    pointers, columns = list(left.pointers), right.pointer
    if left.offset is not None:
        shift = left.offset(run) * parts
        pointers = [fn.at(p, type, shift) for p in pointers]
    stored = right.stored or type
    if right.offset is not None:
        columns = fn.at(columns, stored, right.offset(run) * parts)

    def step(k: Value, sums: Sums) -> Sums:
        across = k * (engine.group * parts) * left.step
        elements = [fn.at(p, type, across) for p in pointers]
        start = fn.at(columns, stored, k * (engine.group * parts) * right.step)
        return _products(fn, engine, elements, start, right, sums)

    rows = len(sums)
    if isinstance(kc, int) and kc <= (8 if rows == 1 else 4 if rows <= _FEW_ROWS else 1):
        for k in range(kc):
            sums = step(fn.i64(k), sums)
        return flatten(sums)
    steps = fn.i64(kc) if isinstance(kc, int) else kc
    if prefetches is not None:
        first = steps.smin(prefetches.count)
        first = first if run.constant == 0 else fn.select(run.ne(0), fn.i64(0), first)
        return _steps_with_prefetches(fn, engine, sums, (first, steps), prefetches, step)
    with fn.loop(0, steps, carried=flatten(sums), hints=AS_WRITTEN) as loop:
        loop.next(*flatten(step(loop.index, shaped(engine, loop.carried, rows))))
    return list(loop.results)


def _steps_with_prefetches(
    fn: Function,
    engine: Engine,
    sums: Sums,
    steps: tuple[Value, Value],
    prefetches: Prefetches,
    step: Callable[[Value, Sums], Sums],
) -> list[Value]:
    """The sums as a flat list after all steps of k; the first of them prefetch other lines than the rest."""
    first, kc = steps
    rows, flat = len(sums), flatten(sums)
    values = [*flat, *([] if prefetches.pointer is None else [prefetches.pointer])]
    for begin, end in ((fn.i64(0), first), (first, kc)):
        with fn.loop(begin, end, carried=values, hints=AS_WRITTEN) as loop:
            if end is first:
                prefetches.first(loop.index)
            advanced = loop.carried[len(flat) :]
            for pointer in advanced:
                fn.prefetch(pointer, level=2)
            new_sums = step(loop.index, shaped(engine, loop.carried[: len(flat)], rows))
            loop.next(*flatten(new_sums), *(fn.at(p, I8, prefetches.advance) for p in advanced))
        values = list(loop.results)
    return values[: len(flat)]


def _spread(fn: Function, engine: Engine, pointer: Value) -> tuple[Value, ...]:
    """The parts of one element of the left operand."""
    if engine.group > 1:
        return (fn.load(I32, pointer, align=engine.packed.bytes),)
    if engine.interleaved > 1:
        return (fn.load(vector(engine.packed, engine.interleaved), pointer, align=engine.packed.bytes),)
    return tuple(fn.load(engine.packed, fn.at(pointer, engine.packed, part)) for part in range(engine.parts))


def _products(fn: Function, engine: Engine, pointers: list[Value], start: Value, right: Columns, sums: Sums) -> Sums:
    """The sums with one step of k added for the whole tile."""
    width = _width(sums)
    across = [
        [
            _register(
                fn,
                vector(right.stored or engine.packed, lanes * engine.group),
                fn.at(start, right.stored or engine.packed, column * engine.group + part * right.part),
                right,
                right.mask if column + lanes == width else None,
            )
            for part in range(engine.parts)
        ]
        for column, lanes in vectors_of(engine, width)
    ]
    # Row by row, so that an element of the left operand occupies a register only briefly.
    new_sums: Sums = []
    for pointer, row in zip(pointers, sums, strict=True):
        element = _spread(fn, engine, pointer)
        new_sums.append([])
        for b, register in zip(across, row, strict=True):
            lanes = register[0].type.lanes
            spread = [_in_lanes(fn, e, lanes) for e in element]
            new_sums[-1].append(with_product(fn, engine, spread, b, register))
    return new_sums


def _in_lanes(fn: Function, element: Value, lanes: int) -> Value:
    """An element of the left operand in all lanes; elements of several products alternate."""
    count = element.type.lanes
    if count > 1:
        return fn.shuffle(element, element, [lane % count for lane in range(lanes)])
    return fn.splat(element, lanes) if lanes > 1 else element


def _register(fn: Function, type: Type, start: Value, right: Columns, mask: Value | None) -> Value:
    """Adjacent elements of the right operand; with a ``mask``, only its lanes are loaded."""
    if mask is None:
        loaded = fn.load(type, start, align=type.element.bytes)
    else:
        loaded = masked_load(fn, type, start, mask)
    return right.convert(loaded) if right.convert is not None else loaded


def with_product(
    fn: Function, engine: Engine, a: Sequence[Value], b: Sequence[Value], sums: tuple[Value, ...]
) -> tuple[Value, ...]:
    """The parts of sums with a product added; the parts of its factors are vectors of the same lanes."""
    if engine.parts == 2:
        real = _fused(fn, a[0], b[0], sums[0])
        imaginary = _fused(fn, a[0], b[1], sums[1])
        return _fused(fn, -a[1], b[1], real), _fused(fn, a[1], b[0], imaginary)
    if takes_pairs_of_bf16(engine):
        return (_with_pairs_of_bf16(fn, a[0], b[0], sums[0], flushes=engine.flushes),)
    if engine.group == 4:
        unsigned, signed = (b, a) if engine.unsigned == "right" else (a, b)
        return (with_fours(fn, unsigned[0], signed[0], sums[0]),)
    if engine.group == 2:
        return (sums[0] + _pairs(fn, a[0], b[0]),)
    if engine.acc.is_int:
        return (sums[0] + a[0] * b[0],)
    return (_fused(fn, a[0], b[0], sums[0]),)


def _fused(fn: Function, a: Value, b: Value, c: Value) -> Value:
    return fn.intrinsic("llvm.fmuladd", c.type, a, b, c)


def _pairs(fn: Function, a: Value, b: Value) -> Value:
    """For each lane a[2i] * b[2i] + a[2i+1] * b[2i+1], of 16-bit integers."""
    pairs = a.bits_as(b.type)
    lanes = b.type.lanes // 2
    wide = vector(I32, lanes)
    name, feature = {
        4: ("llvm.x86.sse2.pmadd.wd", "sse2"),
        8: ("llvm.x86.avx2.pmadd.wd", "avx2"),
        16: ("llvm.x86.avx512.pmaddw.d.512", "avx512bw"),
    }.get(lanes, ("", ""))
    if name and has_feature(feature):
        fn.module.declare(name, wide, [vector(I16, 2 * lanes)] * 2)
        return fn.call(name, wide, pairs, b)
    halves = [
        [fn.shuffle(x, x, range(odd, 2 * lanes, 2)).cast("sext", wide) for x in (pairs, b)]
        if lanes > 1
        else [fn.lane(x, odd).cast("sext", wide) for x in (pairs, b)]
        for odd in (0, 1)
    ]
    return halves[0][0] * halves[0][1] + halves[1][0] * halves[1][1]


def with_fours(fn: Function, unsigned: Value, signed: Value, sums: Value) -> Value:
    """The sums, with four products of 8-bit integers added in each lane."""
    type = sums.type
    name = f"llvm.x86.avx512.vpdpbusd.{8 * type.bytes}"
    # Older versions of LLVM take the four bytes of a lane as one integer; newer ones accept both forms.
    fn.module.declare(name, type, [type] * 3)
    return fn.call(name, type, sums, unsigned.bits_as(type), signed.bits_as(type))


def _with_pairs_of_bf16(fn: Function, a: Value, b: Value, sums: Value, *, flushes: bool) -> Value:
    """The sums, with a[2i+1] * b[2i+1] and then a[2i] * b[2i] added in lane i; operands are the bits of BF16.

    That is the order of the instruction, which also takes subnormal numbers for zero.
    """
    lanes = sums.type.lanes
    if flushes and lanes == 16:
        name, operand = "llvm.x86.avx512bf16.dpbf16ps.512", vector(BF16, 2 * lanes)
        fn.module.declare(name, sums.type, [sums.type, operand, operand])
        return fn.call(name, sums.type, sums, a.bits_as(operand), b.bits_as(operand))
    wide = sums.type.with_element(I32)
    both = [x.bits_as(wide) for x in (a, b)]
    odd, even = ([part(x).bits_as(sums.type) for x in both] for part in (lambda x: x & -0x10000, lambda x: x << 16))
    return _fused(fn, even[0], even[1], _fused(fn, odd[0], odd[1], sums))
