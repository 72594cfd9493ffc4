"""fft: transforms one axis after the other, each in groups of many rows at once or as single long rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.fft.groups import emit_groups, group_cost
from xlakit.cpu.kernels.fft.plan import Axis, Storage, is_smooth
from xlakit.cpu.kernels.fft.points import LONGEST_CHIRP
from xlakit.cpu.kernels.fft.rows import are_long_rows, emit_long_rows, long_row_cost
from xlakit.cpu.llvm import F32, F64, Module
from xlakit.cpu.loops.emit.kernel import Kernel, Phase
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import FftType
from xlakit.ir.instruction import Instruction
from xlakit.ops.fft import Fft

# The tables of longer transforms would make programs too large.
_LONGEST = 1 << 24


def emit_fft(module: Module, instruction: Instruction) -> Kernel:
    """The kernel; its table has operand, result and scratch. Raises DeclinedError for sizes it does not handle."""
    op, operand = instruction.op_as(Fft), instruction.operands[0].shape
    lengths = op.fft_length
    if 0 in operand.dimensions or 0 in lengths or max(lengths) > _LONGEST:
        raise DeclinedError(f"no code is made for a transform of {operand} over {list(lengths)} points")
    scratch = 0
    phases: list[Phase] = []
    copy_bytes = operand.num_elements * operand.element_type.byte_width if _needs_copy(op) else 0
    for axis in _axes(op, operand.element_type, operand.dimensions):
        axis_phases, bytes = _emit_axis(module, axis, copy_bytes)
        phases.extend(axis_phases)
        scratch = max(scratch, bytes)
    return Kernel(tuple(phases), scratch_bytes=copy_bytes + scratch)


def _needs_copy(op: Fft) -> bool:
    return op.fft_type is FftType.IRFFT and len(op.fft_length) > 1


def _axes(op: Fft, kind: PrimitiveType, dimensions: Sequence[int]) -> list[Axis]:
    """The axes in the order of their transforms: the axis of real rows is first, or last in an inverse transform."""
    is_inverse = op.fft_type in (FftType.IFFT, FftType.IRFFT)
    reads_real, writes_real = op.fft_type is FftType.RFFT, op.fft_type is FftType.IRFFT
    part = F64 if kind in (PrimitiveType.F64, PrimitiveType.C128) else F32
    sizes = [*dimensions[:-1], op.fft_length[-1] // 2 + 1 if reads_real else dimensions[-1]]
    count = len(op.fft_length)
    order = list(range(count - 1, -1, -1))
    if writes_real:
        order = [*order[1:], count - 1]
    scale = 1 / math.prod(op.fft_length) if is_inverse else 1.0
    axes: list[Axis] = []
    for step, number in enumerate(order):
        dimension = len(sizes) - count + number
        is_first, is_last = step == 0, step == count - 1
        target = Storage(1) if not writes_real or is_last else Storage(2)
        axes.append(
            Axis(
                part,
                Storage(0) if is_first else axes[-1].target,
                target,
                math.prod(sizes[:dimension]),
                op.fft_length[number],
                math.prod(sizes[dimension + 1 :]),
                is_inverse,
                scale if is_last else 1.0,
                reads_real and is_first,
                writes_real and is_last,
            )
        )
    return axes


def _emit_axis(module: Module, axis: Axis, scratch: int) -> tuple[Sequence[Phase], int]:
    """The phases of one axis, and the bytes of scratch that they need after the first ``scratch`` bytes."""
    if not is_smooth(axis.points) and axis.points > LONGEST_CHIRP.value and are_long_rows(axis):
        return emit_long_rows(module, axis, scratch)
    long = long_row_cost(axis)
    if long is not None and long < group_cost(axis):
        return emit_long_rows(module, axis, scratch)
    return [emit_groups(module, axis)], 0
