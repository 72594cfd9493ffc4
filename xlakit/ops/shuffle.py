"""Shuffle: the elements of an array in another order.

Source: the opcode ``shuffle`` of the newest HLO. Its mode that turns each slice by its own shift is not here, since
neither its text nor its proto is final.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import LowercaseEnum
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import XlaOp, building, emit
from xlakit.ops.shared.hints import below


class ShuffleMode(LowercaseEnum):
    """How shuffle reorders."""

    ROTATE = 1
    PERMUTE = 2


@operation("shuffle", arity=1)
class Shuffle(Op):
    """Reorder along ``dimensions``.

    ``rotate``: the element at i of dimension ``dimensions[k]`` is the operand's at i + ``shifts[k]``, going round.
    ``permute``: ``indices`` say for every element of the result where it comes from in ``dimensions``: one number, or
    in a last dimension one for each of them. Their dimensions of size 1 hold for all.
    """

    # The converter refuses shuffles: the number of the proto's field is not known yet.
    dimensions: tuple[int, ...] = attribute(Kind.INT64_LIST, always=True)
    mode: ShuffleMode = attribute(Kind.ENUM, enum=ShuffleMode, proto="shuffle_mode")
    shifts: tuple[int, ...] = attribute(Kind.INT64_LIST, default=(), proto="shuffle_mode.rotate.shifts")
    indices: Literal | None = attribute(Kind.LITERAL, default=None, proto="shuffle_mode.permute.indices")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        (operand,) = operands
        if not operand.is_array:
            raise ShapeError(
                f"takes an array, got {operand}", hint="take an array out of a tuple with get_tuple_element"
            )
        if len(set(self.dimensions)) != len(self.dimensions) or any(not 0 <= d < operand.rank for d in self.dimensions):
            raise ShapeError(
                f"dimensions {list(self.dimensions)} must be different numbers below {operand.rank}",
                hint=below(operand.rank) + ", each once",
            )
        if self.mode is ShuffleMode.ROTATE:
            if len(self.shifts) != len(self.dimensions) or self.indices is not None:
                raise ShapeError(
                    f"rotate takes one shift for each of the {len(self.dimensions)} dimensions",
                    hint=f"give {len(self.dimensions)} shifts and no indices",
                )
        else:
            self._check_indices(operand)
        return operand.without_layout()

    def _check_indices(self, operand: Shape) -> None:
        if self.indices is None or self.shifts:
            raise ShapeError("permute takes indices", hint="give indices and no shifts")
        indices = self.indices.shape
        if not indices.is_array or not indices.element_type.is_integral:
            raise ShapeError(f"indices are integers, got {indices}", hint="give a literal of s32 or s64")
        extra = indices.dimensions[operand.rank :]
        fits = all(i in (1, n) for i, n in zip(indices.dimensions, operand.dimensions, strict=False))
        if indices.rank < operand.rank or not fits or extra not in ((), (len(self.dimensions),)):
            raise ShapeError(
                f"indices {indices} do not say where {operand} comes from",
                hint=f"give indices of dimensions {list(operand.dimensions)}, 1 where all are moved alike",
            )
        if len(self.dimensions) > 1 and not extra:
            raise ShapeError(
                f"indices {indices} need a last dimension of {len(self.dimensions)} coordinates",
                hint=f"add a last dimension of {len(self.dimensions)}, one number for each of the dimensions",
            )
        for column, dimension in enumerate(self.dimensions):
            numbers = self.indices.array[..., column] if extra else self.indices.array
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < operand.dimensions[dimension]:
                raise ShapeError(
                    f"indices leave dimension {dimension} of {operand}",
                    hint=f"give indices from 0 to {operand.dimensions[dimension] - 1}",
                )

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        array: Array = operands[0]
        if self.mode is ShuffleMode.ROTATE or self.indices is None:
            return np.roll(array, [-shift for shift in self.shifts], self.dimensions) if self.dimensions else array
        indices = list(np.ogrid[tuple(slice(size) for size in array.shape)])
        numbers = self.indices.array
        for column, dimension in enumerate(self.dimensions):
            own = numbers[..., column] if numbers.ndim > array.ndim else numbers
            indices[dimension] = own.astype(np.int64)
        return array[tuple(np.broadcast_to(index, array.shape) for index in indices)]


@building
def shuffle_rotate(operand: XlaOp, dimensions: Sequence[int], shifts: Sequence[int]) -> XlaOp:
    """Turn an array: the element at i of ``dimensions[k]`` is the operand's at i + ``shifts[k]``, going round.

    Gives the shape of the operand. Raises ShapeError.
    """
    op = Shuffle(dimensions=tuple(dimensions), mode=ShuffleMode.ROTATE, shifts=tuple(shifts))
    return emit(op, operand)


@building
def shuffle_permute(operand: XlaOp, dimensions: Sequence[int], indices: object) -> XlaOp:
    """Take each element from where ``indices`` say, which number the elements along ``dimensions``.

    indices: an integer array of the operand's dimensions (1 where they hold for all), and, for more than one
        dimension, a last one that holds the coordinates.

    Gives the shape of the operand. Raises ShapeError.
    """
    op = Shuffle(dimensions=tuple(dimensions), mode=ShuffleMode.PERMUTE, indices=Literal.from_value(indices))
    return emit(op, operand)
