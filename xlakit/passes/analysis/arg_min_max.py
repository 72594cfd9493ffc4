"""Recognizes reducers of arg-min and arg-max: they choose the greater or lesser of two elements, and its position."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import Parameter, Tuple
from xlakit.ops.elementwise.binary import And, Maximum, Minimum, Or
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.select import Select
from xlakit.ops.elementwise.unary import Not


def arg_min_max_of(computation: Computation) -> Maximum | Minimum | None:
    """Maximum or Minimum if a reducer of two (element, position) pairs returns the pair of that element; else None.

    NaN wins over all other elements, and of equal elements the first. The reducer may only compare elements with
    elements and positions with positions, so evaluating it once for each order of two elements decides.
    """
    parameters = computation.parameters
    if len(parameters) != 4 or not isinstance(computation.root.op, Tuple) or not _only_compares(computation):
        return None
    kind = parameters[0].shape.element_type
    numbers: list[float] = [1.0, 2.0, math.nan] if kind.is_floating else [0, 1]
    for op in (Maximum(), Minimum()):
        if all(_picks(computation, op, a, b) for a, b in itertools.product(numbers, repeat=2)):
            return op
    return None


def _only_compares(computation: Computation) -> bool:
    elements, positions = set(computation.parameters[::2]), set(computation.parameters[1::2])
    for instruction in computation.instructions:
        if isinstance(instruction.op, Compare):
            if (
                instruction.op.type is ComparisonType.TOTALORDER
                or instruction.operands[0].shape.element_type.is_complex
            ):
                return False
            group = set(instruction.operands)
            if not (group <= elements or group <= positions):
                return False
        elif isinstance(instruction.op, (And, Or, Not)):
            if instruction.shape.element_type is not PrimitiveType.PRED:
                return False
        elif not isinstance(instruction.op, (Parameter, Select, Tuple)):
            return False
    return True


def _picks(computation: Computation, op: Maximum | Minimum, a: float, b: float) -> bool:
    first = math.isnan(a) or (not math.isnan(b) and (a >= b if isinstance(op, Maximum) else a <= b))
    parameter_values = dict(
        zip(computation.parameters, (("element", a), ("position", 0), ("element", b), ("position", 1)), strict=True)
    )
    values: dict[Instruction, tuple[str, float]] = {}
    for instruction in computation.instructions:
        if instruction in parameter_values:
            values[instruction] = parameter_values[instruction]
        elif not isinstance(instruction.op, Tuple):
            values[instruction] = _evaluated(instruction, values)
    selected = [values[o][1] for o in computation.root.operands]
    return _same(selected[0], a if first else b) and selected[1] == (0 if first else 1)


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _evaluated(instruction: Instruction, values: Mapping[Instruction, tuple[str, float]]) -> tuple[str, float]:
    operands = [values[o] for o in instruction.operands]
    numbers = [number for _, number in operands]
    if isinstance(instruction.op, Compare):
        return "truth", _COMPARISONS[instruction.op.direction](numbers[0], numbers[1])
    if isinstance(instruction.op, Select):
        return operands[1] if numbers[0] else operands[2]
    if isinstance(instruction.op, Not):
        return "truth", not numbers[0]
    both = numbers[0] and numbers[1] if isinstance(instruction.op, And) else numbers[0] or numbers[1]
    return "truth", both


_COMPARISONS = {
    ComparisonDirection.EQ: lambda a, b: a == b,
    ComparisonDirection.NE: lambda a, b: a != b,
    ComparisonDirection.GE: lambda a, b: a >= b,
    ComparisonDirection.GT: lambda a, b: a > b,
    ComparisonDirection.LE: lambda a, b: a <= b,
    ComparisonDirection.LT: lambda a, b: a < b,
}
