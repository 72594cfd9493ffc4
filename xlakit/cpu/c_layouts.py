"""Layouts at calls of C functions and of LAPACK: inserts transposes where an array's layout is not the callee's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from xlakit.cpu.kernels.c_call import is_ffi_call, is_plain, lies_major_to_minor, operand_shapes
from xlakit.data.layout import Layout
from xlakit.data.shape import Shape
from xlakit.execution.calls.lapack import batch_rank, transposed_target
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import GetTupleElement, Tuple
from xlakit.ops.movement import Transpose
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import ComputationPass, PassContext, inherited
from xlakit.passes.core.matching import permutation_inverse


class CCallLayouts(ComputationPass):
    """Transposes arrays of C function calls that are not laid out major to minor, if the call aliases no operands."""

    name = "c-call-layouts"

    def __init__(self, functions: Collection[str]) -> None:
        self._functions = functions

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the calls of one computation."""
        chosen = {i for i in computation.instructions if self._is_meant(i) and not lies_major_to_minor(i)}
        return with_calls(computation, chosen, _called, context)

    def _is_meant(self, instruction: Instruction) -> bool:
        op = instruction.op
        if not isinstance(op, CustomCall) or op.custom_call_target not in self._functions or is_ffi_call(op):
            # A handler of XLA's typed FFI gets the dimensions, in their own order.
            return False
        shapes = (*operand_shapes(instruction), instruction.shape)
        arrays = [leaf for shape in shapes for _, leaf in shape.leaves() if leaf.is_array]
        return not op.output_to_operand_aliasing and all(is_plain(a.layout_or_default) for a in arrays)


def with_calls(
    computation: Computation,
    chosen: Collection[Instruction],
    called: Callable[[Instruction, ComputationCloner], Instruction],
    context: PassContext,
) -> Computation:
    """The computation with ``called(instruction, cloner)`` for each of the chosen instructions."""
    if not chosen:
        return computation
    cloner = ComputationCloner(computation, context)
    for old in computation.instructions:
        if old in chosen:
            cloner.substitute(old, called(old, cloner))
        else:
            cloner.clone(old)
    return cloner.build()


def _called(old: Instruction, cloner: ComputationCloner) -> Instruction:
    """The call with row-major operands and result, and the inverse transpose of its result."""
    shapes = operand_shapes(old)
    op = dataclasses.replace(
        old.op_as(CustomCall), operand_layout_constraints=tuple(shape_in_memory(shape) for shape in shapes)
    )
    return call_in_memory(old, op, shapes, old.shape, cloner)


def call_in_memory(
    old: Instruction, op: CustomCall, operands: Sequence[Shape], result: Shape, cloner: ComputationCloner
) -> Instruction:
    """A call on arrays whose dimensions are in memory order, followed by the transpose of its result to the old shape.

    operands, result: the shapes of the old call, with the layouts that its arrays have in memory.
    """
    transposed = [
        to_memory(cloner.clones[operand], shape, old, cloner)
        for operand, shape in zip(old.operands, operands, strict=True)
    ]
    predecessors = [cloner.clones[p] for p in old.control_predecessors]
    call = old.replace(op=op, operands=transposed, shape=shape_in_memory(result), control_predecessors=predecessors)
    return from_memory(cloner.append(call), result, old, cloner)


def _order(shape: Shape) -> tuple[int, ...]:
    return shape.layout_or_default.minor_to_major[::-1]


def shape_in_memory(shape: Shape) -> Shape:
    """The row-major shape whose elements are in the same order in memory as those of ``shape`` with its layout."""

    def in_memory(leaf: Shape) -> Shape:
        if not leaf.is_array:
            return leaf
        sizes = tuple(leaf.dimensions[d] for d in _order(leaf))
        return leaf.without_layout().with_dimensions(sizes).with_default_layout()

    return shape.with_leaves(in_memory)


def to_memory(value: Instruction, shape: Shape, like: Instruction, cloner: ComputationCloner) -> Instruction:
    """The value transposed so that its dimensions are in the memory order that the layouts of ``shape`` state."""
    if shape.is_tuple:
        parts = [
            to_memory(cloner.at(like).element(value, n), s, like, cloner) for n, s in enumerate(shape.tuple_shapes)
        ]
        return cloner.at(like).tuple(*parts)
    if not shape.is_array or _order(shape) == tuple(range(shape.rank)):
        return value
    return _step(Transpose(dimensions=_order(shape)), value, shape_in_memory(shape), like, cloner)


def from_memory(value: Instruction, shape: Shape, like: Instruction, cloner: ComputationCloner) -> Instruction:
    """The inverse of :func:`to_memory`."""
    if shape.is_tuple:
        parts = [
            from_memory(_step(GetTupleElement(index=n), value, shape_in_memory(s), like, cloner), s, like, cloner)
            for n, s in enumerate(shape.tuple_shapes)
        ]
        return _step(Tuple(), parts, shape, like, cloner)
    if not shape.is_array or _order(shape) == tuple(range(shape.rank)):
        return value
    return _step(Transpose(dimensions=permutation_inverse(_order(shape))), value, shape, like, cloner)


def _step(
    op: Op, operands: Instruction | list[Instruction], shape: Shape, like: Instruction, cloner: ComputationCloner
) -> Instruction:
    operand_list = operands if isinstance(operands, list) else [operands]
    annotations = inherited(like.annotations, metadata_only=True)
    return cloner.append(Instruction(op, operand_list, shape, cloner.names.new(op.opcode), annotations=annotations))


# -- LAPACK ---------------------------------------------------------------------------------------


class TransposedMatrices(ComputationPass):
    """Transposes matrices around calls of LAPACK, which takes them column by column.

    The transposes fuse with other operations, and cancel between two calls. calls: the targets that LAPACK implements.
    """

    name = "lapack-layouts"

    def __init__(self, calls: Collection[str]) -> None:
        self._calls = calls

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the calls of one computation."""
        chosen = {i for i in computation.instructions if self._is_meant(i)}
        return with_calls(computation, chosen, _called_by_columns, context)

    def _is_meant(self, instruction: Instruction) -> bool:
        op = instruction.op
        if not isinstance(op, CustomCall) or op.custom_call_target not in self._calls:
            return False
        if not any(o.shape.is_array and o.shape.rank > 1 for o in instruction.operands):
            # A call without a matrix is invalid: it raises an error when it is executed.
            return False
        shapes = (*(o.shape for o in instruction.operands), instruction.shape)
        # Calls with dynamic dimensions are host calls: Python executes them with the sizes of the run.
        return all(s.is_array and not s.is_dynamic for shape in shapes for _, s in shape.leaves())


def _called_by_columns(old: Instruction, cloner: ComputationCloner) -> Instruction:
    op = old.op_as(CustomCall)
    shapes = [o.shape for o in old.operands]
    rank = batch_rank(s.rank for s in shapes) + 2
    transposed_call = dataclasses.replace(
        op,
        custom_call_target=transposed_target(op.custom_call_target) or "",
        # LAPACK's own routines determine which operand is overwritten.
        operand_layout_constraints=None,
        output_to_operand_aliasing=(),
    )
    columns = [_by_columns(shape, rank) for shape in shapes]
    return call_in_memory(
        old, transposed_call, columns, old.shape.with_leaves(lambda leaf: _by_columns(leaf, rank)), cloner
    )


def _by_columns(shape: Shape, rank: int) -> Shape:
    """The shape with each matrix stored column by column; a shape of another rank gets the default layout."""
    if shape.rank != rank:
        return shape.with_default_layout()
    *batch, rows, columns = range(rank)
    return shape.with_layout(Layout((rows, columns, *reversed(batch))))
