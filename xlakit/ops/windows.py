"""ReduceWindow and SelectAndScatter: computations on the elements under a moving window.

Source: XLA's document "Operation semantics", sections ReduceWindow and SelectAndScatter. Padding and holes hold the
initial value, an identity of the reducer; as in XLA they are skipped, which is the same for identities.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType, same_type_family
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.errors import ShapeError
from xlakit.ir.attributes import Window, WindowDimension
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
from xlakit.ops.reduction import (
    Folder,
    as_declared,
    check_reducer,
    common_part,
    folder,
    reducer_and_operands,
    split_operands,
)
from xlakit.ops.shared.checks import need_array
from xlakit.ops.shared.hints import converted
from xlakit.ops.shared.numerics import convert
from xlakit.ops.shared.padding import Padding, make_padding
from xlakit.ops.shared.window_geometry import make_window, window_positions, window_shape

# From this many elements on, a window along one dimension is combined by doubling instead of one by one.
_LONG_WINDOW = 32


@operation("reduce-window", documents=("ReduceWindow",))
class ReduceWindow(Op):
    """Combine the elements under each placement of a window; operands are N arrays, then N initial values."""

    window: Window = attribute(Kind.WINDOW, default=Window())
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        arrays, inits = split_operands(operands)
        check_reducer(self.to_apply, [a.element_type for a in arrays], inits)
        shapes = [
            window_shape(array, self.window).with_element_type(init.element_type)
            for array, init in zip(arrays, inits, strict=True)
        ]
        return make_tuple_shape(shapes) if self.to_apply.program_shape.result.is_tuple else shapes[0]

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        count = len(operands) // 2
        fold = folder(context, self.to_apply)
        arrays, window = fold.widen(common_part(operands[:count])), self.window.dimensions
        sizes = arrays[0].shape
        outputs = [d.output_size(size) for d, size in zip(window, sizes, strict=True)]
        running = [np.full(outputs, init) for init in fold.widen(operands[count:])]
        axis = _long_axis(window)
        if axis is None:
            _combine_positions(fold, arrays, running, window)
        else:
            _combine_by_doubling(
                fold,
                [np.moveaxis(a, axis, 0) for a in arrays],
                [np.moveaxis(r, axis, 0) for r in running],
                window[axis],
            )
        return as_declared(fold.finish(running), context.shape)


def _combine_positions(
    fold: Folder, arrays: Sequence[Array], running: Sequence[Array], window: Sequence[WindowDimension]
) -> None:
    """Combine ``running`` with the elements of all outputs at one window position after another."""
    for outputs, elements in window_positions(arrays[0].shape, window):
        merged = fold.combine(*(r[outputs] for r in running), *(a[elements] for a in arrays))
        for target, value in zip(running, merged, strict=True):
            target[outputs] = value


def _long_axis(window: Sequence[WindowDimension]) -> int | None:
    """The only nontrivial dimension of a window, if the window is long there and the array has no holes; else None."""
    extended = [axis for axis, d in enumerate(window) if d != WindowDimension(1)]
    if len(extended) != 1:
        return None
    axis = extended[0]
    return axis if window[axis].size >= _LONG_WINDOW and window[axis].base_dilation == 1 else None


def _combine_by_doubling(
    fold: Folder, arrays: Sequence[Array], running: Sequence[Array], window: WindowDimension
) -> None:
    """Combine ``running`` with the windows along axis 0 in log2(n) steps, where n is the length of a window.

    Step k has, for every element, the combination of the 2^k elements that begin there (fewer at the end). A window
    whose length has bit k set combines one of these and advances by 2^k elements. Elements are combined in order.
    """
    size, step = arrays[0].shape[0], window.window_dilation
    start = np.arange(running[0].shape[0]) * window.stride - window.padding_low
    skipped = np.maximum(0, -(start // step))
    position = start + skipped * step
    # The number of elements of each window that are inside of the array.
    inside = np.maximum(0, -((position - size) // step))
    length = np.minimum(np.maximum(0, window.size - skipped), inside)
    blocks = list(arrays)
    reach = 1
    while (remaining := length >= reach).any():
        takes = np.flatnonzero(remaining & ((length & reach) != 0))
        if takes.size:
            merged = fold.combine(*(r[takes] for r in running), *(b[position[takes]] for b in blocks))
            for target, value in zip(running, merged, strict=True):
                target[takes] = value
            position[takes] += reach * step
        jump = reach * step
        if jump < size:
            joined = fold.combine(*(b[:-jump] for b in blocks), *(b[jump:] for b in blocks))
            blocks = [np.concatenate([j, b[-jump:]]) for j, b in zip(joined, blocks, strict=True)]
        reach *= 2


@building
def reduce_window(
    operands: OperandLike | Sequence[OperandLike],
    init_values: OperandLike | Sequence[OperandLike],
    computation: ComputationLike,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding | str | Sequence[tuple[int, int]],
    *,
    base_dilations: Sequence[int] = (),
    window_dilations: Sequence[int] = (),
) -> XlaOp:
    """Reduce the elements under each placement of a window.

    operands: N arrays of the same dimensions, of types T_0 .. T_{N-1}.
    init_values: N scalars of those types, an identity of ``computation``.
    computation: (T_0, .., T_{N-1}, T_0, .., T_{N-1}) -> T_0 for N = 1, or a tuple of N; or a Python function.
    window_dimensions, window_strides: one size and one step, at least 1, for each dimension.
    padding: "SAME", "VALID", or a pair (low, high) for each dimension.
    base_dilations, window_dilations: d puts d - 1 holes between the elements of arrays or window; 1 by default. Padding
        by name is that of the arrays and the window with their holes. They are given by name here: the document's table
        has them before the padding, but in its signature and its example the padding comes first; in the table's
        order ``reduce_window_with_general_padding`` takes them.

    Gives one element for each placement, or a tuple of N such arrays. Raises ShapeError.
    Source: Operation semantics, ReduceWindow.
    """
    if isinstance(padding, (Padding, str)):
        arrays = as_sequence(operands)
        first = as_op(common_builder(arrays), arrays[0])
        base = _with_holes(need_array(first.shape).dimensions, base_dilations)
        padding = make_padding(base, _with_holes(window_dimensions, window_dilations), window_strides, padding)
    return reduce_window_with_general_padding(
        operands, init_values, computation, window_dimensions, window_strides, base_dilations, window_dilations, padding
    )


def _with_holes(sizes: Sequence[int], dilations: Sequence[int]) -> list[int]:
    if dilations and len(dilations) != len(sizes):
        raise ShapeError(
            f"{len(dilations)} dilations are given for {len(sizes)} dimensions",
            hint=f"give {len(sizes)} dilations, or none",
        )
    known = zip(sizes, dilations or [1] * len(sizes), strict=True)
    return [(size - 1) * dilation + 1 if size > 0 else size for size, dilation in known]


@building
def reduce_window_with_general_padding(
    operands: OperandLike | Sequence[OperandLike],
    init_values: OperandLike | Sequence[OperandLike],
    computation: ComputationLike,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    base_dilations: Sequence[int],
    window_dilations: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> XlaOp:
    """``reduce_window`` with dilations (d - 1 holes between elements; empty for none) and explicit padding.

    Raises ShapeError. Source: Operation semantics, ReduceWindow.
    """
    called, all_operands = reducer_and_operands(operands, init_values, computation)
    window = make_window(window_dimensions, window_strides, padding, base_dilations, window_dilations)
    return emit(ReduceWindow(window=window, to_apply=called), *all_operands)


# -- select and scatter --------------------------------------------------------------------------


@operation("select-and-scatter", arity=3, documents=("SelectAndScatter",))
class SelectAndScatter(Op):
    """Select one element under each placement of a window, and combine the source into the selected positions.

    Operands: the array under the window, the source (one element for each placement), the initial value.
    """

    window: Window = attribute(Kind.WINDOW, default=Window())
    select: Computation = attribute(Kind.COMPUTATION)
    scatter: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        array, source, init = need_array(operands[0]), need_array(operands[1]), operands[2]
        program = self.select.program_shape
        if len(program.parameters) != 2:
            raise ShapeError(
                f"select takes 2 parameters, {self.select.name} takes {len(program.parameters)}",
                hint="give a computation of 2 scalars, such as that of ge",
            )
        if not program.result.is_scalar or program.result.element_type is not PrimitiveType.PRED:
            raise ShapeError(
                f"select must give a pred scalar, gives {program.result}",
                hint="end it with a comparison of its two parameters",
            )
        for parameter in program.parameters:
            if not parameter.is_scalar or not same_type_family(parameter.element_type, array.element_type):
                raise ShapeError(
                    f"select takes {parameter}, the elements are {array.element_type.hlo_name}",
                    hint=f"build it for {array.element_type.hlo_name} scalars",
                )
        check_reducer(self.scatter, [source.element_type], [init])
        placements = window_shape(array, self.window)
        if not source.same_dimensions(placements):
            raise ShapeError(
                f"the source has dimensions {list(source.dimensions)}, the window has "
                f"{list(placements.dimensions)} placements",
                hint=f"give a source of dimensions {list(placements.dimensions)}, or another window or padding",
            )
        if not same_type_family(source.element_type, array.element_type):
            raise ShapeError(
                f"a source of {source.element_type.hlo_name} does not fit {array}", hint=converted(array.element_type)
            )
        return array.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array, source, init = operands
        chosen = self._select(context, array, source.shape).reshape(-1)
        fold = folder(context, self.scatter)
        (updates,), (start,) = fold.widen([source.reshape(-1)]), fold.widen([init])
        result = np.full(array.size, start)
        # Placements that chose the same element are added in order: the first of each, then the second, ...
        order = np.argsort(chosen, kind="stable")
        order = order[np.searchsorted(chosen[order], 0) :]
        targets = chosen[order]
        starts = np.flatnonzero(np.concatenate([[True], targets[1:] != targets[:-1]])) if targets.size else targets
        counts = np.diff(np.append(starts, targets.size))
        for tap in range(int(counts.max(initial=0))):
            now = starts[counts > tap] + tap
            (result[targets[now]],) = fold.combine(result[targets[now]], updates[order[now]])
        return as_declared(fold.finish([result.reshape(array.shape)]), context.shape)

    def _select(self, context: Evaluation, array: Array, placements: Sequence[int]) -> Array:
        """The linear position of the element that each placement selects; -1 where it has none."""
        kind = self.select.parameters[0].shape.element_type
        values, positions = convert(array, kind), np.arange(array.size).reshape(array.shape)
        best, where = np.zeros(placements, dtype=kind.dtype), np.full(placements, -1)
        for outputs, elements in window_positions(array.shape, self.window.dimensions):
            kept = context.apply(self.select, best[outputs], values[elements])[0] & (where[outputs] >= 0)
            best[outputs] = np.where(kept, best[outputs], values[elements])
            where[outputs] = np.where(kept, where[outputs], positions[elements])
        return where


@building
def select_and_scatter(
    operand: XlaOp,
    select: ComputationLike,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding | str | Sequence[tuple[int, int]],
    source: OperandLike,
    init_value: OperandLike,
    scatter: ComputationLike,
) -> XlaOp:
    """Select an element under each placement of a window and scatter ``source`` to those elements.

    operand: an array of T under the window.
    select: (T, T) -> PRED, true where the first element (the earlier one) is selected; or a Python function.
    window_dimensions, window_strides: one size and one step, at least 1, for each dimension.
    padding: "SAME", "VALID", or a pair (low, high) for each dimension.
    source: an array of T with one element for each placement.
    init_value: a scalar of T with which the result begins.
    scatter: (T, T) -> T, combines an element of the result with one of the source; or a Python function.

    Gives an array of the operand's shape. Raises ShapeError. Source: Operation semantics, SelectAndScatter.
    """
    if isinstance(padding, (Padding, str)):
        padding = make_padding(need_array(operand.shape).dimensions, window_dimensions, window_strides, padding)
    return select_and_scatter_with_general_padding(
        operand, select, window_dimensions, window_strides, padding, source, init_value, scatter
    )


@building
def select_and_scatter_with_general_padding(
    operand: XlaOp,
    select: ComputationLike,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    source: OperandLike,
    init_value: OperandLike,
    scatter: ComputationLike,
) -> XlaOp:
    """``select_and_scatter`` with explicit padding: a pair (low, high) for each dimension.

    Raises ShapeError. Source: XlaBuilder::SelectAndScatterWithGeneralPadding.
    """
    builder = operand.builder
    kind = need_array(operand.shape).element_type
    sources = as_op(builder, source)
    op = SelectAndScatter(
        window=make_window(window_dimensions, window_strides, padding),
        select=builder.subcomputation(select, scalar_shapes([operand]) * 2),
        scatter=builder.subcomputation(scatter, scalar_shapes([sources]) * 2),
    )
    return emit(op, operand, sources, as_op(builder, init_value, kind))
