"""Sort and TopK.

Source: XLA's document "Operation semantics", section Sort; TopK from XlaBuilder::TopK.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import UNBOUNDED, Shape, make_tuple_shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ir.instruction import Computation, Instruction, post_order
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.data import Parameter
from xlakit.ops.elementwise.compare import Compare, lt_total_order
from xlakit.ops.handle import (
    ComputationLike,
    OperandLike,
    XlaOp,
    as_op,
    as_sequence,
    building,
    common_builder,
    emit,
)
from xlakit.ops.shared.checks import check_dimension
from xlakit.ops.shared.numerics import to_double, total_order_key
from xlakit.ops.shared.padding import zero_extend


@operation("sort", documents=("Sort",))
class Sort(Op):
    """N arrays sorted together along one dimension, by a computation that says whether one element goes before."""

    dimension: int = attribute(Kind.SINGLE_DIMENSION, text="dimensions", proto="dimensions", always=True)
    is_stable: bool = attribute(Kind.BOOL, default=False)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands:
            raise ShapeError("takes at least one array", hint="give the array of keys first")
        for operand in operands:
            if not operand.same_dimensions(operands[0]):
                raise ShapeError(
                    "all operands must be arrays of the same dimensions",
                    hint=f"broadcast or slice all to {list(operands[0].dimensions)}",
                )
        check_dimension("dimension", self.dimension, operands[0])
        self._check_comparator(operands)
        shapes = [o.without_layout() for o in operands]
        return shapes[0] if len(shapes) == 1 else make_tuple_shape(shapes)

    def _check_comparator(self, operands: Sequence[Shape]) -> None:
        name, program = self.to_apply.name, self.to_apply.program_shape
        if len(program.parameters) != 2 * len(operands):
            raise ShapeError(
                f"comparator {name} takes {len(program.parameters)} parameters, {2 * len(operands)} are needed",
                hint="parameters 2k and 2k+1 are the two elements of operand k",
            )
        for i, parameter in enumerate(program.parameters):
            kind, taken = operands[i // 2].element_type, parameter.element_type
            if not parameter.is_scalar or (kind is not taken and not (kind.is_floating and taken.is_floating)):
                raise ShapeError(
                    f"parameter {i} of comparator {name} is {parameter}, not a {kind.hlo_name} scalar",
                    hint="build it for two scalars of each operand's element type",
                )
        if not program.result.is_scalar or program.result.element_type is not PrimitiveType.PRED:
            raise ShapeError(
                f"comparator {name} must give pred[], gives {program.result}",
                hint="end it with a comparison of two scalars",
            )

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        moved: list[Array] = [np.moveaxis(o, self.dimension, -1) for o in operands]
        rows = [m.reshape(-1, m.shape[-1]) if m.size else m.reshape(0, m.shape[-1]) for m in moved]
        order = sort_order(context, self.to_apply, rows)
        results = tuple(
            np.moveaxis(np.take_along_axis(r, order, axis=-1).reshape(m.shape), -1, self.dimension)
            for r, m in zip(rows, moved, strict=True)
        )
        return results if context.shape.is_tuple else results[0]


# Whether the elements at (row, position) of the first pair go before those of the second.
GoesBefore: TypeAlias = Callable[[tuple[Array, Array], tuple[Array, Array]], Array]


def sort_order(context: Evaluation, comparator: Computation, rows: Sequence[Array]) -> Array:
    """For each row the positions of its elements in sorted order; equal elements keep theirs.

    A comparator that compares the same function of both its elements sorts by that function's values. Any other one
    drives a merge sort.
    """
    types = [p.element_type.dtype for p in comparator.program_shape.parameters]
    columns = [r.astype(t, copy=False) for r, t in zip(rows, types[::2], strict=True)]
    keys = _sort_keys(context, comparator, columns)
    if keys is not None:
        return np.argsort(keys, axis=-1, kind="stable")
    used = {i.op.number for i in post_order([comparator.root]) if isinstance(i.op, Parameter)}  # pyright: ignore

    def goes_before(first: tuple[Array, Array], second: tuple[Array, Array]) -> Array:
        arguments: list[Array] = []
        for k, column in enumerate(columns):
            nothing = np.zeros((), column.dtype)
            arguments.append(column[first] if 2 * k in used else nothing)
            arguments.append(column[second] if 2 * k + 1 in used else nothing)
        return np.broadcast_to(context.apply(comparator, *arguments)[0], first[0].shape)

    count, length = columns[0].shape
    order = np.broadcast_to(np.arange(length), (count, length)).copy()
    width = 1
    while width < length and count:
        order = _merge_runs(order, width, goes_before)
        width *= 2
    return order


def _merge_runs(order: Array, width: int, goes_before: GoesBefore) -> Array:
    """Merge each pair of neighboring sorted runs of ``width``, in all rows at once.

    Each element of a left run moves right by the number of elements of the right run that go before it, which a
    binary search finds; the right run fills the gaps. Even an inconsistent comparator gives a permutation this way.
    """
    count, length = order.shape
    positions = np.arange(length)
    left = positions[(positions // width % 2 == 0) & (positions // width * width + width < length)]
    begin = left // width * width + width
    rows = np.broadcast_to(np.arange(count)[:, None], (count, len(left)))
    low = np.broadcast_to(begin, rows.shape).copy()
    high = np.broadcast_to(np.minimum(begin + width, length), rows.shape).copy()
    elements = order[:, left]
    for _ in range(width.bit_length()):
        searching = low < high
        middle = (low + high) // 2
        probe = order[rows, np.minimum(middle, length - 1)]
        before = goes_before((rows, probe), (rows, elements)) & searching
        low = np.where(before, middle + 1, low)
        high = np.where(before, high, np.where(searching, middle, high))
    # Within a run the counts of a consistent comparator never fall.
    counts = low - begin
    runs = counts.reshape(count, len(left) // width, width)
    target = left + np.maximum.accumulate(runs, axis=-1).reshape(counts.shape)
    merged = np.empty_like(order)
    taken = np.zeros(order.shape, dtype=np.bool_)
    taken[rows, target] = True
    merged[rows, target] = elements
    others = np.delete(positions, left)
    merged[~taken] = order[:, others].reshape(-1)
    return merged


def _sort_keys(context: Evaluation, comparator: Computation, columns: Sequence[Array]) -> Array | None:
    """Keys whose ascending order is the comparator's, where it compares the same function of both its elements."""
    found = _key_function(comparator)
    if found is None:
        return None
    key, total, descending = found
    (values,) = context.apply(key, *(c for c in columns for _ in range(2)))
    return comparison_keys(np.broadcast_to(values, columns[0].shape), total, descending=descending)


@functools.lru_cache(maxsize=256)
def _key_function(comparator: Computation) -> tuple[Computation, bool, bool] | None:
    """For a comparator ``f(x) < f(y)`` or ``f(x) > f(y)``: f, whether the order is total, and whether it is descending.

    None for all other comparators.
    """
    root = comparator.root
    compare = root.op
    if not isinstance(compare, Compare) or compare.direction not in (ComparisonDirection.LT, ComparisonDirection.GT):
        return None
    if not _mirrored(*root.operands):
        return None
    first = root.operands[0]
    numbers = [i.op.number for i in post_order([first]) if isinstance(i.op, Parameter)]  # pyright: ignore
    descending = (compare.direction is ComparisonDirection.GT) is (numbers[0] % 2 == 0)
    key = Computation.from_root(f"{comparator.name}.key", first)
    return key, compare.type is ComparisonType.TOTALORDER, descending


def _mirrored(first: Instruction, second: Instruction) -> bool:
    """Whether two instructions are the same function of parameters 2k and 2k+1, one of the even, one of the odd."""
    parity: set[int] = set()
    stack, seen = [(first, second)], set[tuple[Instruction, Instruction]]()
    while stack:
        pair = stack.pop()
        if pair in seen:
            continue
        seen.add(pair)
        a, b = pair
        if isinstance(a.op, Parameter) and isinstance(b.op, Parameter):
            numbers: tuple[int, int] = (a.op.number, b.op.number)  # pyright: ignore
            if numbers[0] ^ 1 != numbers[1]:
                return False
            parity.add(numbers[0] % 2)
        elif a.op != b.op or a.shape != b.shape or len(a.operands) != len(b.operands) or not a.is_pointwise:
            return False
        stack.extend(zip(a.operands, b.operands, strict=True))
    return len(parity) == 1


def comparison_keys(values: Array, total: bool, *, descending: bool = False) -> Array | None:
    """Keys of a NumPy type whose order is XLA's order of ``values``; None if they have NaN, which is unordered.

    In the total order of floating-point values -NaN < -Inf < .. < -0 < 0 < .. < Inf < NaN.
    """
    kind = PrimitiveType.from_dtype(values.dtype)
    if kind.is_complex:
        return None
    if kind is PrimitiveType.PRED:
        keys = values.astype(np.uint8)
    elif kind.is_integral:
        keys = values.astype(np.int8 if kind.is_signed else np.uint8) if kind.bit_width < 8 else values
    elif total:
        keys = total_order_key(values)
    else:
        keys = to_double(values)
        if np.isnan(keys).any():
            return None
        return -keys if descending else keys
    return ~keys if descending else keys


@building
def sort(
    operands: OperandLike | Sequence[OperandLike],
    comparator: ComputationLike | None = None,
    dimension: int = -1,
    is_stable: bool = False,
) -> XlaOp:
    """Sort one array, or several arrays together by one order.

    operands: N arrays of the same dimensions.
    comparator: 2N scalars -> PRED, or a Python function: whether the element of parameters 0, 2, .. goes before that
        of parameters 1, 3, ..; by default "less than" on the first operand, floating point in total order.
    dimension: the dimension to sort along, each row for itself; the last by default, negative from the end.
    is_stable: whether elements that the comparator holds equal must keep their order; here they always do.

    Gives an array like the operand, or a tuple of N. Raises ShapeError. Source: Operation semantics, Sort.
    """
    arrays = as_sequence(operands)
    builder = common_builder(arrays)
    ops = [as_op(builder, a) for a in arrays]
    scalars = [Shape(o.shape.element_type) for o in ops for _ in range(2)]
    called = builder.subcomputation(_less_than if comparator is None else comparator, scalars)
    if not ops[0].shape.rank:
        raise ShapeError("a scalar cannot be sorted; it has no dimension", hint="reshape it to [1]")
    op = Sort(dimension=ops[0].shape.dimension_number(dimension), is_stable=is_stable, to_apply=called)
    return emit(op, *ops)


def _less_than(first: XlaOp, second: XlaOp, *rest: XlaOp) -> XlaOp:
    return lt_total_order(first, second)


@operation("topk", arity=1, documents=("TopK",))
class TopK(Op):
    """The ``k`` first elements of each row in sorted order, and where they were."""

    k: int = attribute(Kind.INT64, always=True)
    largest: bool = attribute(Kind.BOOL, default=True, always=True)
    # None where it is omitted, as in programs older than this attribute; the order is stable in any case.
    is_stable: bool | None = attribute(Kind.BOOL, default=None)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        (operand,) = operands
        if not operand.is_array or operand.rank == 0:
            raise ShapeError(f"takes an array of rank 1 or more, got {operand}", hint="reshape a scalar to [1]")
        if operand.element_type.is_complex:
            raise ShapeError(
                f"complex numbers have no order, the operand is {operand}",
                hint="take the parts with real and imag, or abs",
            )
        bound = operand.dimensions[-1]
        if self.k < 0 or (bound != UNBOUNDED and self.k > bound):
            raise ShapeError(
                f"k={self.k} must be from 0 to the size {bound} of the last dimension", hint=f"give at most {bound}"
            )
        dynamic = (*operand.dynamic_dimensions[:-1], False)
        values = operand.with_dimensions((*operand.dimensions[:-1], self.k), dynamic)
        return make_tuple_shape([values, values.with_element_type(PrimitiveType.S32)])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        operand: Array = operands[0]
        # None is for complex numbers alone, which are refused above.
        keys = cast("Array", comparison_keys(operand, True, descending=self.largest))
        order = np.argsort(keys, axis=-1, kind="stable")[..., : self.k]
        results = np.take_along_axis(operand, order, axis=-1), order.astype(np.int32)
        # A dynamic dimension may have fewer than k elements; the result is padded with zeros to k.
        return tuple(zero_extend(result, (*operand.shape[:-1], self.k)) for result in results)


@building
def top_k(operand: OperandLike, k: int, largest: bool = True) -> XlaOp:
    """The ``k`` largest (or smallest) elements of the last dimension, in order, and their positions.

    operand: an array of rank 1 or more; floating-point values are in total order, so NaN is the largest.
    k: how many, at most the size of the last dimension.
    largest: whether the largest elements are wanted, largest first; otherwise the smallest, smallest first.

    Gives a tuple: the values, and their positions as S32; of equal elements the one at the lower position goes first.
    Raises ShapeError. Source: XlaBuilder::TopK.
    """
    return emit(TopK(k=k, largest=largest), as_op(common_builder([operand]), operand))
