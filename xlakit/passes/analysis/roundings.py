"""Rounding analysis: which results of a program may differ by rounding between two ways of compiling it.

Machine code rounds where HLO does, so most results have the same bits however they are computed. There are four
exceptions: the order in which floats are summed, in reductions, products, convolutions, transforms and scatters; the
sum of a product and a constant, which may be rounded once instead of twice; the sum of an exponential function or a
hyperbolic tangent and a constant, of which a rule makes a logistic function, unless it has other uses, which depend on
what is inlined; and constant folding, where NumPy computes elementary functions. Such a value is *inexact*, and so is
each value that depends on one, through loops and branches too; if an inexact value decides a trip count or a branch,
all results of the loop or conditional are inexact.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ir.traits import Expensive
from xlakit.ops.batch_norm import BatchNormGrad, BatchNormInference, BatchNormTraining
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.convolution import Convolution
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import AddDependency, Constant, Copy, GetTupleElement, OptimizationBarrier, Parameter, Tuple
from xlakit.ops.dot import Contraction
from xlakit.ops.elementwise.binary import Add, Maximum, Minimum, Multiply
from xlakit.ops.elementwise.elementary import Exponential, Tanh
from xlakit.ops.elementwise.select import Select
from xlakit.ops.fft import Fft
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.reduction import Map
from xlakit.ops.sort import Sort

# The inexact arrays of a value, each by its path of tuple indices.
_TupleIndices = frozenset[tuple[int, ...]]

_NONE: _TupleIndices = frozenset()
# Operations that add floats in an order that the compiler chooses.
_SUMS = (
    Contraction,
    Convolution,
    Fft,
    Cholesky,
    TriangularSolve,
    BatchNormTraining,
    BatchNormInference,
    BatchNormGrad,
    CustomCall,
)
# Operations that may be computed together with the addition of a constant.
_JOINED = (Multiply, Exponential, Tanh)
# The types in which machine code adds a constant to a product in one operation.
_FUSED_KINDS = (PrimitiveType.F32, PrimitiveType.F64)
# Operations that give one of their operands: a reduction by them has the same result in any order.
_CHOICES = (Constant, Copy, GetTupleElement, Maximum, Minimum, Parameter, Select, Tuple)


def inexact_results(module: HloModule, *, folds: bool = False) -> list[bool]:
    """For each array of the result, in order, whether it may differ by rounding.

    folds: whether elementary functions are inexact, too, because only one of the two ways folds constants.
    """
    entry = module.entry
    inexact = _Analysis(folds, entry).inexact(entry, [_NONE] * len(entry.parameters))
    return [tuple(path) in inexact for path, shape in entry.root.shape.leaves() if shape.is_array]


def largest_epsilon(module: HloModule) -> float:
    """The epsilon of the least precise floating point type that the program computes in; 0 if there is none."""
    kinds = {
        shape.element_type.real_part
        for instruction in module.instructions
        if not isinstance(instruction.op, (Parameter, Constant))
        for _, shape in instruction.shape.leaves()
        if shape.is_array and (shape.element_type.is_floating or shape.element_type.is_complex)
    }
    return max([float(ml_dtypes.finfo(kind.dtype).eps) for kind in kinds], default=0.0)


class _Analysis:
    """A dataflow analysis that propagates inexactness through computations."""

    def __init__(self, folds: bool, entry: Computation) -> None:
        self._folds = folds
        self._arguments = frozenset(entry.parameters)

    def inexact(self, computation: Computation, arguments: Sequence[_TupleIndices]) -> _TupleIndices:
        """The inexact arrays of a computation's result, given those of its arguments."""
        indices: dict[Instruction, _TupleIndices] = {}
        for instruction in computation.instructions:
            indices[instruction] = self._of(instruction, [indices[o] for o in instruction.operands], arguments)
        return indices[computation.root]

    def _of(
        self, instruction: Instruction, operands: Sequence[_TupleIndices], arguments: Sequence[_TupleIndices]
    ) -> _TupleIndices:
        op = instruction.op
        if isinstance(op, Parameter):
            return arguments[op.number]
        if isinstance(op, GetTupleElement):
            return frozenset(path[1:] for path in operands[0] if path[0] == op.index)
        if isinstance(op, Tuple):
            return frozenset((number, *path) for number, indices in enumerate(operands) for path in indices)
        if isinstance(op, (OptimizationBarrier, AddDependency)):
            return operands[0]
        if isinstance(op, (Call, Fusion)):
            return self.inexact(op.called_computations[0], operands)
        if isinstance(op, While):
            return self._of_loop(op, instruction, operands[0])
        if isinstance(op, Conditional):
            if operands[0]:
                return _everything(instruction)
            branches = zip(op.branch_computations, operands[1:], strict=True)
            return _NONE.union(*(self.inexact(branch, [indices]) for branch, indices in branches))
        rounds = _sums_floats(instruction) or self._may_round_once(instruction)
        rounds = rounds or (self._folds and _is_elementary(instruction))
        return _everything(instruction) if rounds or any(operands) else _NONE

    def _may_round_once(self, instruction: Instruction) -> bool:
        """Whether a sum with a constant may become one fused multiply-add in a loop nest, or a part of a function."""
        if not isinstance(instruction.op, Add) or instruction.shape.element_type not in _FUSED_KINDS:
            return False
        first, second = instruction.operands
        return any(
            self._is_one_of(x, *_JOINED) and self._is_one_of(y, Constant) for x, y in ((first, second), (second, first))
        )

    def _is_one_of(self, value: Instruction, *kinds: type[Op]) -> bool:
        """Whether a value may come from such operations through unary operations.

        A parameter of a called computation always may; a parameter of the entry may not.
        """
        while len(value.operands) == 1 and not isinstance(value.op, kinds):
            value = value.operands[0]
        return isinstance(value.op, kinds) or (isinstance(value.op, Parameter) and value not in self._arguments)

    def _of_loop(self, op: While, instruction: Instruction, state: _TupleIndices) -> _TupleIndices:
        while True:
            if self.inexact(op.condition, [state]):
                return _everything(instruction)
            after = state | self.inexact(op.body, [state])
            if after == state:
                return state
            state = after


def _everything(instruction: Instruction) -> _TupleIndices:
    return frozenset(tuple(path) for path, shape in instruction.shape.leaves() if shape.is_array)


def _is_elementary(instruction: Instruction) -> bool:
    op = instruction.op
    called = any(isinstance(i.op, Expensive) for c in op.called_computations for i in c.instructions)
    return (isinstance(op, Expensive) or called) and any(map(_is_float, (instruction, *instruction.operands)))


def _sums_floats(instruction: Instruction) -> bool:
    op = instruction.op
    if isinstance(op, _SUMS):
        return any(map(_is_float, (instruction, *instruction.operands)))
    return not isinstance(op, (Map, Sort)) and any(
        not isinstance(i.op, _CHOICES) and _is_float(i)
        for called in op.called_computations
        for i in called.instructions
    )


def _is_float(instruction: Instruction) -> bool:
    kinds = [shape.element_type for _, shape in instruction.shape.leaves() if shape.is_array]
    return any(kind.is_floating or kind.is_complex for kind in kinds)
