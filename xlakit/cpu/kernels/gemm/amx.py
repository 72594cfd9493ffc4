"""Micro-tiles whose sums are in AMX's tile registers.

A register has 16 rows of 64 bytes. One instruction adds to 16 x 16 sums the products of 16 rows of the left operand and
16 columns of the right one, over 16 groups of steps of k: a group is two numbers of BF16, or four 8-bit integers.
Packed operands have the layout that the instruction reads:

                         k ->                         B0: 16 columns, a       B1: 16 more
      A0: 16 rows      [ 64 bytes: 16 groups ]            group of each       columns
      A1: 16 more rows [                     ]        k  [ 64 bytes ]         [ 64 bytes ]

      sums: A0 B0, A0 B1     A micro-tile has one or two registers of rows, and one or two of columns: up to four of
            A1 B0, A1 B1     sums. The registers are numbered here, not by LLVM.

The registers are usable only inside of :func:`configured`, within one call of one function: while a thread uses any,
the system saves 8 KiB more of its state.

Sums of BF16 have the bits of the instruction's: for 32 steps of k, the even and the odd steps are summed separately, in
order, by fused operations from zero on; the two sums are added to each other, and then to the total. The instruction
takes subnormal numbers for zero, and neither raises nor reads floating-point flags. :func:`write_sums_of_bf16` gives
the same bits, but keeps subnormal numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

from xlakit.cpu.kernels.gemm.engine import AMX_ROWS, Engine, acc_vector
from xlakit.cpu.llvm import I8, I16, I32, I64, PTR, VOID, Function, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN

# Writes the sums of a micro-tile, given a table of rows, the right operand, the number of groups of steps, and a
# buffer.
WriteSums = Callable[[Function, Engine, Value, Value, Value, Value], None]

_ROW_BYTES: Final = 64
# The first of the two registers of the left operand, and of the right one; the sums are in registers 0 to 3.
_LEFT, _RIGHT = 4, 6
# The number of rows whose sums the fused operations compute concurrently.
_ROWS_AT_ONCE: Final = 4
_PRODUCTS: Final = {"": "tdpbssd", "left": "tdpbusd", "right": "tdpbsud", "both": "tdpbuud"}


@contextmanager
def configured(fn: Function) -> Generator[None]:
    """Configures eight full tile registers within the block, and releases them after it."""
    # The fields: palette 1; the bytes of a row, and the rows, of 16 registers.
    table = struct.pack("<BB14x16H16B", 1, 0, *[_ROW_BYTES] * 8, *[0] * 8, *[AMX_ROWS] * 8, *[0] * 8)
    _instruction(fn, "ldtilecfg", fn.address(fn.module.shared_data("tile_registers", table)))
    yield
    _instruction(fn, "tilerelease")


def write_sums(fn: Function, engine: Engine, rows: Value, right: Value, groups: Value, buffer: Value) -> None:
    """Write the sums of a micro-tile to a buffer, row by row.

    rows: a table of pointers to rows, which are equally far apart. groups: the number of groups of steps of k.
    """
    first, second = (fn.load(PTR, fn.at(rows, PTR, n)).cast("ptrtoint", I64) for n in (0, 1))
    left, left_step = fn.load(PTR, rows), second - first
    down, across = range(engine.mr // AMX_ROWS), range(engine.vectors)
    sums = {(a, b): 2 * a + b for a in down for b in across}
    right_step = fn.i64(engine.vectors * _ROW_BYTES)
    for register in sums.values():
        _instruction(fn, "tilezero", register)
    product = _PRODUCTS[engine.unsigned] if engine.acc.is_int else "tdpbf16ps"
    with fn.loop(0, (groups + (AMX_ROWS - 1)) >> 4, hints=AS_WRITTEN) as step:
        from_left = fn.at(left, I8, step.index * _ROW_BYTES)
        from_right = fn.at(right, I8, step.index * (AMX_ROWS * engine.vectors * _ROW_BYTES))
        for b in across:
            _instruction(fn, "tileloadd64", _RIGHT + b, fn.at(from_right, I8, b * _ROW_BYTES), right_step)
        for a in down:
            _instruction(fn, "tileloadd64", _LEFT + a, fn.at(from_left, I8, left_step * (a * AMX_ROWS)), left_step)
            for b in across:
                _instruction(fn, product, sums[a, b], _LEFT + a, _RIGHT + b)
    row_bytes = engine.nr * engine.acc.bytes
    for (a, b), register in sums.items():
        target = fn.at(buffer, I8, a * AMX_ROWS * row_bytes + b * _ROW_BYTES)
        _instruction(fn, "tilestored64", register, target, fn.i64(row_bytes))


def _instruction(fn: Function, name: str, *operands: Value | int) -> None:
    """Call one of AMX's instructions; an int is the number of a register."""
    arguments = [fn.constant(I8, operand) if isinstance(operand, int) else operand for operand in operands]
    full = f"llvm.x86.{name}"
    fn.module.declare(full, VOID, [value.type for value in arguments])
    fn.call(full, VOID, *arguments)


def write_sums_of_bf16(fn: Function, engine: Engine, rows: Value, right: Value, groups: Value, buffer: Value) -> None:
    """As :func:`write_sums`, by fused operations, which keep subnormal numbers."""
    type = acc_vector(engine)
    none = [fn.constant(type, 0)] * (_ROWS_AT_ONCE * engine.vectors)
    with fn.loop(0, engine.mr, _ROWS_AT_ONCE, hints=AS_WRITTEN) as row:
        pointers = [fn.load(PTR, fn.at(rows, PTR, row.index + r)) for r in range(_ROWS_AT_ONCE)]
        with fn.loop(0, (groups + (AMX_ROWS - 1)) >> 4, carried=none, hints=AS_WRITTEN) as block:
            first = block.index * AMX_ROWS
            with fn.loop(first, first + AMX_ROWS, carried=none * 2, hints=AS_WRITTEN) as group:
                pairs = [fn.load(I32, fn.at(pointer, I32, group.index)) for pointer in pointers]
                start = fn.at(right, type, group.index * engine.vectors)
                other = [
                    fn.load(type.with_element(I32), fn.at(start, type, n), align=I16.bytes)
                    for n in range(engine.vectors)
                ]
                group.next(*_with_products(fn, engine, pairs, other, group.carried))
            even, odd = group.results[: len(none)], group.results[len(none) :]
            block.next(*(s + (a + b) for s, a, b in zip(block.carried, even, odd, strict=True)))
        for n, sums in enumerate(block.results):
            fn.store(sums, fn.at(buffer, type, row.index * engine.vectors + n), align=engine.acc.bytes)


def _with_products(
    fn: Function, engine: Engine, left: Sequence[Value], right: Sequence[Value], sums: Sequence[Value]
) -> list[Value]:
    """The sums of even and of odd steps, row by row, each with one more product."""
    new_sums: list[Value] = []
    count = len(sums) // 2
    for odd in (False, True):
        before = iter(sums[count:] if odd else sums[:count])
        across = [_numbers(value, odd=odd).bits_as(acc_vector(engine)) for value in right]
        for value in left:
            spread = fn.splat(_numbers(value, odd=odd).bits_as(engine.acc), engine.lanes)
            new_sums += [
                fn.intrinsic("llvm.fmuladd", s.type, spread, b, s) for b, s in zip(across, before, strict=False)
            ]
    return new_sums


def _numbers(pairs: Value, *, odd: bool) -> Value:
    """The first or the second number of pairs of BF16, as the bits of an F32."""
    return pairs & -0x10000 if odd else pairs << 16
