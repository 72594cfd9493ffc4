"""Reduce and Map: a computation applied across, or along, the elements of arrays.

Source: seed document "Operation semantics", sections Reduce and Map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.errors import ShapeError
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import (
    ComputationLike,
    OperandLike,
    XlaOp,
    as_op,
    as_sequence,
    building,
    common_builder,
    emit,
    scalar_shapes,
)


def check_reducer(computation: Computation, element_types: Sequence[PrimitiveType]) -> None:
    """Raise ShapeError unless ``computation`` maps 2N scalars of these N types to N of them.

    A reducer may accumulate in a wider type than its operands; XLA allows that, so only ranks and counts of the
    accumulated half are compared strictly.
    """
    program = computation.program_shape
    count = len(element_types)
    if len(program.parameters) != 2 * count:
        raise ShapeError(
            f"computation {computation.name} takes {len(program.parameters)} parameters, {2 * count} are needed",
            hint="for N operands it takes N running values, then N elements",
        )
    if not all(p.is_scalar for p in program.parameters):
        raise ShapeError(f"computation {computation.name} must take scalars, takes {program}")
    results = program.result.tuple_shapes if program.result.is_tuple else (program.result,)
    if len(results) != count or not all(r.is_scalar for r in results):
        raise ShapeError(f"computation {computation.name} must give {count} scalars, gives {program.result}")
    for i, result in enumerate(results):
        if program.parameters[i].element_type is not result.element_type:
            raise ShapeError(
                f"computation {computation.name} gives {result} for the running value {program.parameters[i]}"
            )


@operation("reduce", documents=("Reduce",))
class Reduce(Op):
    """Combine all elements along ``dimensions`` with ``to_apply``; operands are N arrays, then N initial values."""

    dimensions: tuple[int, ...] = attribute(Kind.INT64_LIST, always=True)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands or len(operands) % 2:
            raise ShapeError(f"takes N arrays and N initial values, got {len(operands)} operands")
        count = len(operands) // 2
        arrays, inits = operands[:count], operands[count:]
        for array in arrays[1:]:
            if not array.same_dimensions(arrays[0]):
                raise ShapeError("all arrays must have the same dimensions")
        for array, init in zip(arrays, inits, strict=True):
            if not init.is_scalar or init.element_type is not array.element_type:
                raise ShapeError(f"initial value {init} is not a scalar of {array.element_type.hlo_name}")
        rank = arrays[0].rank
        if len(set(self.dimensions)) != len(self.dimensions) or any(not 0 <= d < rank for d in self.dimensions):
            raise ShapeError(f"dimensions {list(self.dimensions)} must be different numbers from 0 to {rank - 1}")
        check_reducer(self.to_apply, [a.element_type for a in arrays])
        program = self.to_apply.program_shape.result
        results = program.tuple_shapes if program.is_tuple else (program,)
        kept = [d for d in range(rank) if d not in self.dimensions]
        shapes = [
            Shape(
                result.element_type,
                tuple(array.dimensions[d] for d in kept),
                None,
                tuple(array.dynamic_dimensions[d] for d in kept),
            )
            for array, result in zip(arrays, results, strict=True)
        ]
        return shapes[0] if count == 1 and not program.is_tuple else make_tuple_shape(shapes)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        count = len(operands) // 2
        arrays: list[Array] = list(operands[:count])
        kept = [d for d in range(arrays[0].ndim) if d not in self.dimensions]
        size = int(np.prod([arrays[0].shape[d] for d in self.dimensions], dtype=np.int64))
        # One axis of everything that is combined, in front.
        rows = [a.transpose(*sorted(self.dimensions), *kept).reshape(size, *(a.shape[d] for d in kept)) for a in arrays]
        results = reduce_rows(context, self.to_apply, rows, operands[count:])
        return results if context.shape.is_tuple else results[0]


def reduce_rows(
    context: Evaluation, computation: Computation, rows: Sequence[Array], inits: Sequence[Array]
) -> tuple[Array, ...]:
    """Combine axis 0 of ``rows`` in order: known computations by NumPy, others by halving.

    Halving pairs neighbours, so it needs associativity only, which is what the document asks for.
    """
    running = [np.broadcast_to(i, r.shape[1:]) for i, r in zip(inits, rows, strict=True)]
    current = list(rows)
    while current[0].shape[0] > 1:
        length = current[0].shape[0]
        even = length - length % 2
        merged = context.apply(computation, *(c[0:even:2] for c in current), *(c[1:even:2] for c in current))
        if even < length:
            merged = tuple(np.concatenate([m, c[even:]]) for m, c in zip(merged, current, strict=True))
        current = list(merged)
    if current[0].shape[0] == 0:
        return tuple(running)
    return context.apply(computation, *running, *(c[0] for c in current))


@building
def reduce(
    operands: OperandLike | Sequence[OperandLike],
    init_values: OperandLike | Sequence[OperandLike],
    computation: ComputationLike,
    dimensions: Sequence[int],
) -> XlaOp:
    """Reduce the ``dimensions`` of one or more arrays with a computation.

    operands: N arrays of the same dimensions, of types T_0 .. T_{N-1}.
    init_values: N scalars of those types, an identity of ``computation``.
    computation: (T_0, .., T_{N-1}, T_0, .., T_{N-1}) -> T_0 for N = 1, or a tuple of N; or a Python function such as
        ``xlakit.add``. It must be associative, roughly.
    dimensions: the dimension numbers to reduce, in any order.

    Gives an array of the remaining dimensions in their order, or a tuple of N of them.
    Raises ShapeError. Source: Operation semantics, Reduce.
    """
    arrays = as_sequence(operands)
    builder = common_builder(arrays)
    ops = [as_op(builder, a) for a in arrays]
    inits = [as_op(builder, i, o.shape.element_type) for i, o in zip(as_sequence(init_values), ops, strict=True)]
    called = builder.subcomputation(computation, scalar_shapes(ops) * 2)
    return emit(Reduce(dimensions=tuple(dimensions), to_apply=called), *ops, *inits)


@operation("map", documents=("Map",))
class Map(Op):
    """Apply a scalar computation to every element of N arrays of the same dimensions."""

    dimensions: tuple[int, ...] = attribute(Kind.INT64_LIST, default=(), always=True)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands:
            raise ShapeError("takes at least one array")
        for array in operands:
            if not array.same_dimensions(operands[0]):
                raise ShapeError("all arrays must have the same dimensions")
        if self.dimensions and list(self.dimensions) != list(range(operands[0].rank)):
            raise ShapeError(f"dimensions must be 0 .. {operands[0].rank - 1} in order, got {list(self.dimensions)}")
        program = self.to_apply.program_shape
        if len(program.parameters) != len(operands):
            raise ShapeError(f"computation takes {len(program.parameters)} parameters for {len(operands)} arrays")
        for parameter, array in zip(program.parameters, operands, strict=True):
            if not parameter.is_scalar or parameter.element_type is not array.element_type:
                raise ShapeError(f"parameter {parameter} does not take an element of {array}")
        if not program.result.is_scalar:
            raise ShapeError(f"computation must give a scalar, gives {program.result}")
        return operands[0].without_layout().with_element_type(program.result.element_type)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return context.apply(self.to_apply, *operands)[0]


@building
def map(
    operands: OperandLike | Sequence[OperandLike], computation: ComputationLike, dimensions: Sequence[int] | None = None
) -> XlaOp:
    """Apply a scalar computation to every element.

    operands: N arrays of the same dimensions, of types T_0 .. T_{N-1}.
    computation: (T_0, .., T_{N-1}) -> S on scalars, or a Python function.
    dimensions: all dimension numbers in order; the default.

    Gives an array of type S. Raises ShapeError. Source: Operation semantics, Map.
    """
    arrays = as_sequence(operands)
    builder = common_builder(arrays)
    ops = [as_op(builder, a) for a in arrays]
    called = builder.subcomputation(computation, scalar_shapes(ops))
    numbers = tuple(range(ops[0].shape.rank)) if dimensions is None else tuple(dimensions)
    return emit(Map(dimensions=numbers, to_apply=called), *ops)
