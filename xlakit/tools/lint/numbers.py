"""Lints of types and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import ml_dtypes
import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import ComparisonDirection
from xlakit.ir.instruction import Instruction
from xlakit.ops.data import Constant, Iota
from xlakit.ops.elementwise.binary import Add, Divide, Multiply, Remainder
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.reduction import Reduce
from xlakit.ops.shared.numerics import limits, to_double
from xlakit.passes.core.matching import as_integer, as_real, literal, uniform
from xlakit.tools.lint.registry import Found, lint
from xlakit.verifier.faults import Program

_DOUBLE: Final = (PrimitiveType.F64, PrimitiveType.C128)
# A sum of so many numbers of equal size in eight bits of mantissa has lost whole elements.
_MANY: Final = 1024


@lint("f64-by-accident", "a conversion to f64 or c128 in a program whose floating point arguments are all narrower")
def _f64_by_accident(program: Program) -> Iterator[Found]:
    leaves = (leaf for p in program.module.entry.parameters for _, leaf in p.shape.leaves())
    argument_types = {leaf.element_type for leaf in leaves if _is_inexact(leaf.element_type)}
    if not argument_types or not argument_types.isdisjoint(_DOUBLE):
        return
    for computation, instruction in program.instructions(Convert):
        kind = instruction.shape.element_type
        if kind in _DOUBLE:
            source = instruction.operands[0].shape.element_type
            if _is_inexact(source) and source not in _DOUBLE:
                yield Found(
                    computation,
                    instruction,
                    f"{source.hlo_name} is converted to {kind.hlo_name}, which no argument has: what follows is "
                    "computed in double precision",
                    "look for a number of NumPy or a Python float that made it so; give it the arguments' type",
                )


def _is_inexact(kind: PrimitiveType) -> bool:
    return kind.is_floating or kind.is_complex


@lint("convert-chain", "a conversion to a type that holds all values of the old one, and from there back")
def _convert_chain(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(Convert):
        middle = instruction.operands[0]
        if not isinstance(middle.op, Convert):
            continue
        source, last = middle.operands[0].shape.element_type, instruction.shape.element_type
        if source is last and _holds(middle.shape.element_type, source):
            yield Found(
                computation,
                instruction,
                f"{source.hlo_name} is converted to {middle.shape.element_type.hlo_name} and back",
                f"use {middle.operands[0].name} itself",
                middle.operands[0],
            )


def _holds(wide: PrimitiveType, narrow: PrimitiveType) -> bool:
    """Whether a type has all values of another one."""
    if wide.is_floating and narrow.is_floating:
        large, small = ml_dtypes.finfo(wide.dtype), ml_dtypes.finfo(narrow.dtype)
        return large.nmant >= small.nmant and large.nexp >= small.nexp and wide.bit_width >= 16
    if wide.is_integral and narrow.is_integral:
        (least, most), (low, high) = limits(narrow), limits(wide)
        return low <= least and most <= high
    return False


@lint("reduce-in-low-precision", f"a sum or product of {_MANY} elements or more that is kept in 16 bits or fewer")
def _reduce_in_low_precision(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(Reduce):
        op = instruction.op_as(Reduce)
        if not isinstance(op.to_apply.root.op, (Add, Multiply)):
            continue
        kind = op.to_apply.root.shape.element_type
        sizes = instruction.operands[0].shape.dimensions
        count = int(np.prod([sizes[d] for d in op.dimensions], dtype=np.float64))
        if kind.is_floating and kind.bit_width <= 16 and count >= _MANY:
            yield Found(
                computation,
                instruction,
                f"{count} elements are combined in {kind.hlo_name}, which loses those that are small beside the sum",
                "convert to f32 before the reduction, and back after it",
            )


@lint("inexact-iota", "numbers that count up past what their type can tell apart")
def _inexact_iota(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(Iota):
        op, kind = instruction.op_as(Iota), instruction.shape.element_type
        if kind.is_floating:
            exact = 1 << int(ml_dtypes.finfo(kind.dtype).nmant) + 1
        elif kind.is_integral:
            exact = limits(kind)[1]
        else:
            continue
        last = instruction.shape.dimensions[op.iota_dimension] - 1
        if last > exact:
            yield Found(
                computation,
                instruction,
                f"the numbers go up to {last}, and {kind.hlo_name} has all integers only up to {exact}",
                "count in s32, and convert the result of what is computed of it",
            )


@lint("division-by-zero", "a division or remainder by a constant zero")
def _division_by_zero(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(Divide, Remainder):
        divisor = uniform(instruction.operands[1])
        if as_integer(divisor) == 0 or as_real(divisor) == 0:
            yield Found(
                computation,
                instruction,
                f"{instruction.operands[1].name} is zero, by which everything is divided",
                "correct the constant; if the result is not used, leave the instruction out",
            )


@lint("comparison-with-nan", "a comparison with a constant NaN, whose result does not depend on the other operand")
def _comparison_with_nan(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(Compare):
        op = instruction.op_as(Compare)
        if op.type is not None and op.type.name == "TOTALORDER":
            continue
        for operand, other in (instruction.operands, instruction.operands[::-1]):
            real = as_real(uniform(operand))
            if real is not None and real != real:  # noqa: PLR0124
                result = "true" if op.direction is ComparisonDirection.NE else "false"
                yield Found(
                    computation,
                    instruction,
                    f"{operand.name} is NaN: the comparison is {result} for all elements of {other.name}",
                    f"to find NaN, compare {other.name} with itself, direction=NE",
                )
                break


@lint(
    "constant-nan",
    "a constant with a NaN in it; JAX marks by them what is out of bounds",
    is_default=False,
)
def _constant_nan(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions():
        count = _nans(instruction)
        if count:
            yield Found(
                computation,
                instruction,
                f"{count} of {instruction.shape.num_elements} elements are NaN",
                "look where the constant was computed",
            )


def _nans(instruction: Instruction) -> int:
    kind = instruction.shape.element_type
    array = literal(instruction) if isinstance(instruction.op, Constant) else None
    if array is None or not _is_inexact(kind):
        return 0
    return int(np.count_nonzero(np.isnan(to_double(array) if kind.is_floating else array)))
