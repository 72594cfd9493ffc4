"""Reduce and Map: a computation applied across, or along, the elements of arrays.

Source: XLA's document "Operation semantics", sections Reduce and Map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType, same_type_family
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ir.traits import Associative, Commutative
from xlakit.ops.elementwise.binary import Add, And, Maximum, Minimum, Multiply, Or, Xor
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
from xlakit.ops.shared.checks import check_distinct, need_array
from xlakit.ops.shared.numerics import convert, greater, highest, lesser, lowest, wrap


def check_reducer(
    computation: Computation, element_types: Sequence[PrimitiveType], init_values: Sequence[Shape] = ()
) -> tuple[Shape, ...]:
    """The scalars that ``computation`` accumulates; raises ShapeError unless it reduces arrays of these types.

    It must map 2N scalars to N: running values, then elements; ``init_values``, if given, are the first running values.
    A reducer may accumulate in another floating point precision than that of its operands, so two floating point types
    are taken as equal.
    """
    program = computation.program_shape
    count = len(element_types)
    if len(program.parameters) != 2 * count:
        raise ShapeError(
            f"computation {computation.name} takes {len(program.parameters)} parameters, {2 * count} are needed",
            hint="for N operands it takes N running values, then N elements",
        )
    if not all(p.is_scalar for p in program.parameters):
        raise ShapeError(
            f"computation {computation.name} must take scalars, takes {program}",
            hint="apply it to scalars; it is called for single elements",
        )
    results = program.result.tuple_shapes_or_self
    if len(results) != count or not all(r.is_scalar for r in results):
        raise ShapeError(
            f"computation {computation.name} must give {count} scalars, gives {program.result}",
            hint=f"give one value for each of the {count} operands, as a tuple where there are several",
        )
    for i, result in enumerate(results):
        kind, running, element = result.element_type, program.parameters[i], program.parameters[count + i]
        if running.element_type is not kind:
            raise ShapeError(
                f"computation {computation.name} gives {result} for the running value {running}",
                hint=f"give {running}, which the next call takes",
            )
        if not same_type_family(element_types[i], element.element_type) or not same_type_family(
            kind, element.element_type
        ):
            raise ShapeError(
                f"computation {computation.name} takes elements {element} for arrays of "
                f"{element_types[i].hlo_name} and gives {result}",
                hint=f"build it for {element_types[i].hlo_name} scalars",
            )
    for init, result in zip(init_values, results, strict=False):
        if not init.is_scalar or not same_type_family(result.element_type, init.element_type):
            raise ShapeError(
                f"initial value {init} is not a scalar of {result.element_type.hlo_name}",
                hint=f"give a scalar constant of {result.element_type.hlo_name}",
            )
    return results


# -- the operation of a reducer --------------------------------------------------------------------

_UFUNCS: dict[type[Op], np.ufunc] = {
    Add: np.add,
    Multiply: np.multiply,
    Maximum: np.maximum,
    Minimum: np.minimum,
    And: np.bitwise_and,
    Or: np.bitwise_or,
    Xor: np.bitwise_xor,
}


def reducer_op(computation: Computation) -> Op | None:
    """The operation of a computation that only applies an associative and commutative one to its two parameters.

    All three are of one type. None for any other computation.
    """
    op = applied_op(computation)
    kinds = {i.shape.element_type for i in (computation.root, *computation.parameters)}
    return op if len(kinds) == 1 and computation.root.shape.is_scalar else None


def applied_op(computation: Computation) -> Op | None:
    """As :func:`reducer_op`, for parameters and results of different types, as of a reducer in another precision."""
    root, parameters = computation.root, computation.parameters
    if not isinstance(root.op, Associative) or not isinstance(root.op, Commutative) or len(parameters) != 2:
        return None
    return root.op if len(root.operands) == 2 and {*root.operands} == {*parameters} else None


def identity_of(computation: Computation, kind: PrimitiveType) -> Array | None:
    """The identity of a reducer that is a known operation of one type; else None."""
    op = reducer_op(computation)
    if op is None or computation.root.shape.element_type is not kind:
        return None
    return identity_element(op, kind)


def identity_element(op: Op, kind: PrimitiveType) -> Array | None:
    """The identity of an operation on a type: combined with any number it gives that number. None if there is none.

    That of a sum of floats is -0: 0 + -0 is 0. Complex products have none: an infinity times 1 has a NaN in its other
    part. Narrow formats without an infinity have none of maximum and minimum.
    """
    if isinstance(op, Maximum):
        return lowest(kind)
    if isinstance(op, Minimum):
        return highest(kind)
    if isinstance(op, And):
        return wrap(np.asarray(-1), kind.dtype) if kind.is_integral else np.asarray(True)
    number: complex = 0
    if isinstance(op, Multiply):
        if kind.is_complex:
            return None
        number = 1
    elif isinstance(op, Add) and not kind.is_integral and kind is not PrimitiveType.PRED:
        number = complex(-0.0, -0.0) if kind.is_complex else -0.0
    found = np.asarray(number).astype(kind.dtype)
    # Some formats have no zero.
    return found if found == number else None


@dataclass(frozen=True, slots=True)
class Folder:
    """How running values are combined: ``combine(*running, *elements)`` on arrays of the types in ``wide``.

    ``ufunc`` is NumPy's function where the reducer is a known one. Known ones on floats of 32 bits and fewer run in
    float64, so that the final conversion to ``narrow`` rounds once.
    """

    combine: Callable[..., tuple[Array, ...]]
    wide: tuple[PrimitiveType, ...]
    narrow: tuple[PrimitiveType, ...]
    ufunc: np.ufunc | None = None

    @property
    def blurs_zeros(self) -> bool:
        """Whether ``ufunc`` takes -0 and +0 for equal, which ``combine`` does not."""
        return self.ufunc in (np.maximum, np.minimum) and self.wide[0].is_floating

    def widen(self, arrays: Sequence[Array]) -> list[Array]:
        """The arrays in the types that are combined."""
        return [convert(a, kind) for a, kind in zip(arrays, self.wide, strict=True)]

    def finish(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """The arrays in the reducer's own types."""
        return tuple(convert(a, kind) for a, kind in zip(arrays, self.narrow, strict=True))


def folder(context: Evaluation, computation: Computation) -> Folder:
    """How to combine values with a reducer."""
    result = computation.program_shape.result
    kinds = tuple(s.element_type for s in result.tuple_shapes_or_self)
    op = None if result.is_tuple else reducer_op(computation)
    if op is None:
        return Folder(lambda *values: context.apply(computation, *values), kinds, kinds)
    ufunc, wide = _UFUNCS[type(op)], kinds[0]
    if wide.is_floating:
        wide = PrimitiveType.F64
    elif wide.is_complex:
        wide = PrimitiveType.C128
    elif wide.is_integral and wide.bit_width < 8:
        # NumPy has no functions of integers narrower than a byte; the result in a wider type is equal modulo the width.
        wide = PrimitiveType.S64

    function: Callable[[Array, Array], Array] = ufunc
    if wide.is_floating:
        function = greater if isinstance(op, Maximum) else lesser if isinstance(op, Minimum) else ufunc

    def combine(running: Array, element: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return (function(running, element),)

    return Folder(combine, (wide,), kinds, ufunc)


@operation("reduce", documents=("Reduce",))
class Reduce(Op):
    """Combine all elements along ``dimensions`` with ``to_apply``; operands are N arrays, then N initial values."""

    dimensions: tuple[int, ...] = attribute(Kind.INT64_LIST, always=True)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        arrays, inits = split_operands(operands)
        rank = arrays[0].rank
        check_distinct("dimensions", self.dimensions, rank)
        results = check_reducer(self.to_apply, [a.element_type for a in arrays], inits)
        kept = [d for d in range(rank) if d not in self.dimensions]
        sizes = tuple(arrays[0].dimensions[d] for d in kept)
        dynamic = tuple(arrays[0].dynamic_dimensions[d] for d in kept)
        shapes = [Shape(result.element_type, sizes, None, dynamic) for result in results]
        return make_tuple_shape(shapes) if self.to_apply.program_shape.result.is_tuple else shapes[0]

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        count = len(operands) // 2
        results = reduce_arrays(context, self.to_apply, operands[:count], operands[count:], self.dimensions)
        return as_declared(results, context.shape)


def as_declared(results: Sequence[Array], shape: Shape) -> Value:
    """Results in the declared element types, as a tuple where the shape is one."""
    leaves = shape.tuple_shapes_or_self
    arrays = tuple(convert(r, leaf.element_type) for r, leaf in zip(results, leaves, strict=True))
    return arrays if shape.is_tuple else arrays[0]


def split_operands(operands: Sequence[Shape]) -> tuple[Sequence[Shape], Sequence[Shape]]:
    """N arrays of the same dimensions, and N initial values; raises ShapeError."""
    if not operands or len(operands) % 2:
        raise ShapeError(
            f"takes N arrays and N initial values, got {len(operands)} operands",
            hint="give the arrays first, then one initial value for each",
        )
    count = len(operands) // 2
    for array in operands[:count]:
        if not need_array(array).same_dimensions(operands[0]):
            raise ShapeError(
                f"all arrays must have the same dimensions, got {list(operands[0].dimensions)} and "
                f"{list(array.dimensions)}",
                hint=f"broadcast or slice all to {list(operands[0].dimensions)}",
            )
    return operands[:count], operands[count:]


def common_part(arrays: Sequence[Array]) -> Sequence[Array]:
    """The arrays cut to their smallest current size along each dimension; they may differ in dynamic dimensions."""
    if len({array.shape for array in arrays}) <= 1:
        return arrays
    both = tuple(slice(min(sizes)) for sizes in zip(*(array.shape for array in arrays), strict=True))
    return [array[both] for array in arrays]


def reduce_arrays(
    context: Evaluation,
    computation: Computation,
    arrays: Sequence[Array],
    inits: Sequence[Array],
    dimensions: Sequence[int],
) -> tuple[Array, ...]:
    """Combine the elements along ``dimensions``, in order, and the initial values.

    Known reducers are NumPy's; others combine neighbors, half of them at a time, which needs associativity only.
    """
    fold = folder(context, computation)
    arrays = common_part(arrays)
    starts, values = fold.widen(inits), fold.widen(arrays)
    kept = [d for d in range(arrays[0].ndim) if d not in dimensions]
    sizes = [arrays[0].shape[d] for d in kept]
    count = math.prod(arrays[0].shape[d] for d in dimensions)
    if count == 0:
        return fold.finish([np.broadcast_to(start, sizes) for start in starts])
    if fold.ufunc is not None:
        with np.errstate(all="ignore"):
            # The sum starts with -0: with NumPy's 0, a sum of -0 would become 0.
            start = {"initial": -values[0].dtype.type(0)} if fold.ufunc is np.add and fold.wide[0].is_floating else {}
            total = fold.ufunc.reduce(values[0], axis=tuple(dimensions), dtype=fold.wide[0].dtype, **start)
        if not fold.blurs_zeros or np.all(total):
            return fold.finish(fold.combine(starts[0], total))
    # The reduced dimensions become one axis in front.
    rows = [v.transpose(*sorted(dimensions), *kept).reshape(count, *sizes) for v in values]
    return fold.finish(fold.combine(*starts, *halve(fold, rows)))


def halve(fold: Folder, rows: Sequence[Array]) -> list[Array]:
    """Combine axis 0, of at least one element, by combining neighbors until one is left."""
    current = list(rows)
    while (length := current[0].shape[0]) > 1:
        even = length - length % 2
        merged = fold.combine(*(c[0:even:2] for c in current), *(c[1:even:2] for c in current))
        if even < length:
            merged = tuple(np.concatenate([m, c[even:]]) for m, c in zip(merged, current, strict=True))
        current = list(merged)
    return [c[0] for c in current]


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
    called, all_operands = reducer_and_operands(operands, init_values, computation)
    return emit(Reduce(dimensions=tuple(dimensions), to_apply=called), *all_operands)


def reducer_and_operands(
    operands: OperandLike | Sequence[OperandLike],
    init_values: OperandLike | Sequence[OperandLike],
    computation: ComputationLike,
) -> tuple[Computation, list[XlaOp]]:
    """The reducer as a computation; the arrays and, after them, their initial values. Raises ShapeError."""
    arrays = as_sequence(operands)
    builder = common_builder(arrays)
    ops = [as_op(builder, a) for a in arrays]
    values = as_sequence(init_values)
    if len(values) != len(ops):
        raise ShapeError(
            f"{len(ops)} arrays have {len(values)} initial values",
            hint=f"give one initial value for each of the {len(ops)} arrays",
        )
    inits = [as_op(builder, i, o.shape.element_type) for i, o in zip(values, ops, strict=True)]
    return builder.subcomputation(computation, scalar_shapes(ops) * 2), [*ops, *inits]


@building
def reduce_all(operand: OperandLike, init_value: OperandLike, computation: ComputationLike) -> XlaOp:
    """``reduce`` over all dimensions of one array, to a scalar. Raises ShapeError. Source: XlaBuilder::ReduceAll."""
    array = as_op(common_builder([operand, init_value]), operand)
    return reduce(array, init_value, computation, range(need_array(array.shape).rank))


@operation("map", documents=("Map",))
class Map(Op):
    """Apply a scalar computation to every element of N arrays of the same dimensions."""

    dimensions: tuple[int, ...] = attribute(Kind.INT64_LIST, default=(), always=True)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands:
            raise ShapeError("takes at least one array", hint="give the arrays that the computation is mapped over")
        # Scalars may be mixed with arrays of any dimensions.
        whole = next((a for a in operands if need_array(a).rank), operands[0])
        for array in operands:
            if not need_array(array).is_scalar and not array.same_dimensions(whole):
                raise ShapeError(
                    "all arrays must have the same dimensions",
                    hint=f"broadcast or slice all to {list(whole.dimensions)}",
                )
        if self.dimensions and list(self.dimensions) != list(range(whole.rank)):
            raise ShapeError(
                f"dimensions must be 0 .. {whole.rank - 1} in order, got {list(self.dimensions)}",
                hint="leave dimensions out; all are mapped over",
            )
        program = self.to_apply.program_shape
        if len(program.parameters) != len(operands):
            raise ShapeError(
                f"computation takes {len(program.parameters)} parameters for {len(operands)} arrays",
                hint=f"give a computation of {len(operands)} scalars",
            )
        for parameter, array in zip(program.parameters, operands, strict=True):
            if not parameter.is_scalar or not same_type_family(parameter.element_type, array.element_type):
                raise ShapeError(
                    f"parameter {parameter} does not take an element of {array}",
                    hint=f"build it for {array.element_type.hlo_name} scalars",
                )
        if not program.result.is_scalar:
            raise ShapeError(
                f"computation must give a scalar, gives {program.result}",
                hint="give one scalar; map once for each value that is wanted",
            )
        return whole.without_layout().with_element_type(program.result.element_type)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        kinds = [p.shape.element_type for p in self.to_apply.parameters]
        arrays = [convert(o, kind) for o, kind in zip(operands, kinds, strict=True)]
        return as_declared(context.apply(self.to_apply, *arrays), context.shape)


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
