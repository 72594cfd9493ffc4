"""Batch-minor form: the batch dimension of a program, and the shapes of arrays in which it is the last one.

JAX's ``vmap`` puts the dimension of the batch before the others, so a batch of rotations is ``f32[1024,3,3]``. Slices,
concatenations and small products then work on rows of three elements, which do not fill vectors. In *batch-minor form*
the array is ``f32[3,3,1024]``: the same operations work on vectors of the batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.options import knob
from xlakit.passes.core.computation_builder import ReplacementBuilder
from xlakit.passes.core.framework import programs

# Makes an instruction in batch-minor form; its operands are in that form if they have a batch dimension.
Maker = Callable[[Sequence[Instruction], ReplacementBuilder], Instruction]

# The fewest members of a batch, and the fewest arrays of a program that must have the batch dimension.
_FEWEST_MEMBERS = knob("batch_minor.fewest_members", 16, 2, 3)
_FEWEST_ARRAYS = knob("batch_minor.fewest_arrays", 24, 1)
# Longer rows fill vectors by themselves, and so do larger members, such as images.
_LONGEST_ROW = knob("batch_minor.longest_row", 32, 4, 1000)
_LARGEST_MEMBER = knob("batch_minor.largest_member", 2048, 16, 1 << 20)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: the size of its dimension, by which it is recognized."""

    size: int

    def dimension(self, shape: Shape) -> int | None:
        """The batch dimension of an array; None if no dimension, or more than one, has the size of the batch."""
        sizes = shape.dimensions
        if sizes.count(self.size) != 1 or shape.is_dynamic:
            return None
        found = sizes.index(self.size)
        member = sizes[found + 1 :]
        if not member:
            return found
        return found if member[-1] <= _LONGEST_ROW.value and math.prod(member) <= _LARGEST_MEMBER.value else None

    def is_moved(self, shape: Shape) -> bool:
        """Whether the batch-minor form of an array has its elements in another order."""
        dimension = self.dimension(shape)
        return dimension is not None and math.prod(shape.dimensions[dimension + 1 :]) > 1


def order(rank: int, dimension: int) -> tuple[int, ...]:
    """The dimensions of an array in the order of its batch-minor form."""
    return (*range(dimension), *range(dimension + 1, rank), dimension)


def minor_dimension(dimension: int, rank: int, batch: int) -> int:
    """The number of a dimension in batch-minor form."""
    return rank - 1 if dimension == batch else dimension - (dimension > batch)


def minor_shape(shape: Shape, dimension: int) -> Shape:
    """The shape of the batch-minor form."""
    sizes = shape.dimensions
    return shape.without_layout().with_dimensions([sizes[d] for d in order(len(sizes), dimension)])


def batch_of(computations: Iterable[Computation]) -> Batch | None:
    """The batch size that most arrays with short rows have; None if too few arrays share one."""
    counts = Counter[int]()
    longest_row, fewest_members = _LONGEST_ROW.value, _FEWEST_MEMBERS.value
    for computation in computations:
        for instruction in computation.instructions:
            shape = instruction.shape
            if not shape.is_array or shape.rank < 2 or shape.dimensions[-1] > longest_row:
                continue
            counts.update({n for n in shape.dimensions[:-1] if n >= fewest_members})
    if not counts:
        return None
    size, count = max(counts.items(), key=lambda item: (item[1], item[0]))
    return Batch(size) if count >= _FEWEST_ARRAYS.value else None


def batch_of_programs(module: HloModule) -> tuple[list[Computation], Batch | None]:
    """The computations of a module that run as programs, in its order, and their batch."""
    run_as_programs = programs(module)
    own = [c for c in module.computations if c in run_as_programs]
    return own, batch_of(own)


def has_batch(module: HloModule) -> bool:
    """Whether a module's programs have a batch."""
    return batch_of_programs(module)[1] is not None
