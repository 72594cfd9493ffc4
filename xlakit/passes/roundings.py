"""Roundings: which results of a program may differ by them from one way of compiling it to another.

Machine code rounds where HLO does, so most results are the same to the bit however they are computed. Two things
differ: the order in which floats are summed, in reductions, products, convolutions, transforms, scatters; and functions
of constants, which NumPy computes while the program is compiled. A result is inexact if it is such a number or made
from one, in loops and branches too, and where one decides how often a loop runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes

from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import GetTupleElement, Parameter
from xlakit.passes.fusion_cluster import ELEMENTARY

# Marks of the arrays in a value, by their places: what is inexact, and what varies with the arguments.
_Marks = frozenset[tuple[str, tuple[int, ...]]]

_INEXACT, _VARIES = "inexact", "varies"
_NONE: _Marks = frozenset()
# Sums by what they are; floats in them are added in an order that the compiler chooses.
_SUMS = frozenset(
    {"batch-norm-grad", "batch-norm-inference", "batch-norm-training", "cholesky", "convolution", "custom-call", "dot"}
    | {"fft", "ragged-dot", "scaled-dot", "triangular-solve"}
)
# Functions of floats that give one of them: in any order the same.
_CHOICES = frozenset({"constant", "copy", "get-tuple-element", "maximum", "minimum", "parameter", "select", "tuple"})


def inexact_results(module: HloModule) -> list[bool]:
    """For each array of the result, in order, whether it may differ by roundings."""
    entry = module.entry
    marks = _marks(entry, [_everything(p, _VARIES) for p in entry.parameters])
    return [(_INEXACT, tuple(path)) in marks for path, shape in entry.root.shape.leaves() if shape.is_array]


def largest_epsilon(module: HloModule) -> float:
    """The epsilon of the narrowest floating point type that the program computes in; 0 where there is none."""
    kinds = {
        shape.element_type.real_part
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode not in ("parameter", "constant")
        for _, shape in instruction.shape.leaves()
        if shape.is_array and (shape.element_type.is_floating or shape.element_type.is_complex)
    }
    return max([float(ml_dtypes.finfo(kind.dtype).eps) for kind in kinds], default=0.0)


def _marks(computation: Computation, given: Sequence[_Marks]) -> _Marks:
    """The marks of a computation's result, where its arguments have these."""
    found: dict[Instruction, _Marks] = {}
    for instruction in computation.instructions:
        found[instruction] = _of(instruction, [found[o] for o in instruction.operands], given)
    return found[computation.root]


def _of(instruction: Instruction, operands: Sequence[_Marks], given: Sequence[_Marks]) -> _Marks:
    op = instruction.op
    if isinstance(op, Parameter):
        return given[op.number]
    if isinstance(op, GetTupleElement):
        return frozenset((mark, path[1:]) for mark, path in operands[0] if path[0] == op.index)
    if op.opcode == "tuple":
        return frozenset((mark, (number, *path)) for number, own in enumerate(operands) for mark, path in own)
    if op.opcode in ("opt-barrier", "add-dependency"):
        return operands[0]
    if isinstance(op, (Call, Fusion)):
        return _marks(op.called_computations[0], operands)
    if isinstance(op, While):
        return _of_loop(op, instruction, operands[0])
    if isinstance(op, Conditional):
        branches = zip(op.branch_computations, operands[1:], strict=True)
        chosen = _NONE.union(*(_marks(branch, [own]) for branch, own in branches))
        return chosen.union(*(_everything(instruction, mark) for mark, _ in operands[0]))
    found = {mark for own in operands for mark, _ in own}
    if _sums_floats(instruction) or (_VARIES not in found and _is_elementary(instruction)):
        found.add(_INEXACT)
    return _NONE.union(*(_everything(instruction, mark) for mark in found))


def _of_loop(op: While, instruction: Instruction, state: _Marks) -> _Marks:
    while True:
        after = state | _marks(op.body, [state])
        decides = {mark for mark, _ in _marks(op.condition, [after])}
        after = after.union(*(_everything(instruction, mark) for mark in decides))
        if after == state:
            return state
        state = after


def _everything(instruction: Instruction, mark: str) -> _Marks:
    return frozenset((mark, tuple(path)) for path, shape in instruction.shape.leaves() if shape.is_array)


def _is_elementary(instruction: Instruction) -> bool:
    op = instruction.op
    called = any(i.opcode in ELEMENTARY for c in op.called_computations for i in c.instructions)
    return (op.opcode in ELEMENTARY or called) and any(map(_is_float, (instruction, *instruction.operands)))


def _sums_floats(instruction: Instruction) -> bool:
    op = instruction.op
    if op.opcode in _SUMS:
        return any(map(_is_float, (instruction, *instruction.operands)))
    return op.opcode not in ("map", "sort") and any(
        i.opcode not in _CHOICES and _is_float(i) for called in op.called_computations for i in called.instructions
    )


def _is_float(instruction: Instruction) -> bool:
    kinds = [shape.element_type for _, shape in instruction.shape.leaves() if shape.is_array]
    return any(kind.is_floating or kind.is_complex for kind in kinds)
