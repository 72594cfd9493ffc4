"""Correspondences: the dimensions of operands and results that should be split alike, for sharding propagation.

They extend the factors of an operation: a slice of a split array should be split, too, although its parts are fetched
from neighbors. Operations propagate in the order that Shardy uses, so that results without a sharding are split as by
XLA:

0. elementwise operations, reshapes and transposes in both directions; dynamic slices and updates forwards;
1. dimensions that operations leave alone, in both directions; those of broadcasts backwards;
2. all others: sums, dimensions that are moved along or needed whole, and broadcasts forwards.

Custom calls of JAX's ``custom_partitioning`` have a sharding rule of their own.
"""

from __future__ import annotations

from typing import Final

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.fft import Fft
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Slice, Transpose
from xlakit.ops.scatter import Scatter
from xlakit.ops.sort import Sort, TopK
from xlakit.ops.windows import ReduceWindow, SelectAndScatter
from xlakit.passes.spmd.shardings.factors import Dims, factors_of
from xlakit.passes.spmd.shardings.rules import sharding_rule

# The orders in which operations propagate, from the first to the last.
ORDERS: Final = range(3)
FORWARDS: Final = frozenset({"forwards"})
BACKWARDS: Final = frozenset({"backwards"})
BOTH_WAYS: Final = FORWARDS | BACKWARDS

# Operations whose dimensions correspond although the operation works along them: those of all operands that have the
# rank of the result, or those of the first operand.
_OF_ALL: Final = (Concatenate, Fft, ReduceWindow, SelectAndScatter, Slice, Sort, TopK)
_OF_FIRST: Final = (DynamicUpdateSlice, Pad, Scatter)
# Those whose correspondences propagate as early as dimensions that operations leave alone, as in Shardy's rules.
_SOON: Final = (DynamicUpdateSlice, Fft, Scatter, TopK)
# Those of them that need equal sizes.
_OF_ONE_SIZE: Final = (Fft, TopK)
# The offset from the number of a dimension to its additional factor.
_ALONG: Final = 1 << 16


@dataclass(frozen=True)
class Correspondence:
    """The factors of the dimensions of operands and results, and those that are among the last to propagate."""

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    last: frozenset[int] = frozenset()
    first: frozenset[str] = frozenset()
    is_broadcast: bool = False
    is_reshape: bool = False

    def acts(self, order: int) -> bool:
        """Whether some factor propagates in an order."""
        return order > ORDERS[0] or bool(self.first)

    def ways(self, factor: int, order: int) -> frozenset[str]:
        """The directions in which a factor propagates in an order."""
        if order == ORDERS[-1]:
            return BOTH_WAYS
        if order == ORDERS[0] or factor in self.last:
            return self.first
        return BACKWARDS if self.is_broadcast else BOTH_WAYS


def alike(rank: int) -> Correspondence:
    """The correspondence of two values that must be split alike, such as a loop's initial state and its result."""
    dims = tuple(range(rank))
    return Correspondence((dims,), (dims,), first=BOTH_WAYS)


def correspondence_of(x: Instruction) -> Correspondence | None:
    """The correspondence of an instruction's operands and results; None if it has none."""
    rule = sharding_rule(x) if isinstance(x.op, CustomCall) else None
    if rule is not None:
        return Correspondence(*rule.tied(), rule.late, is_reshape=rule.is_reshape)
    factors = factors_of(x)
    if factors is None:
        return None
    operands, results, last = list(factors.operands), list(factors.results), set(factors.summed)
    if isinstance(x.op, Convolution):
        found = _space(x, operands, results)
        last |= found
    elif isinstance(x.op, (*_OF_ALL, *_OF_FIRST)):
        found = _along(x, operands, results)
        last |= set[int]() if isinstance(x.op, _SOON) else found
    of_operands = {f for dims in operands for f in dims}
    last |= {f for dims in results for f in dims if f is not None and f not in of_operands}
    return Correspondence(
        tuple(operands),
        tuple(results),
        frozenset(last),
        _first(x),
        isinstance(x.op, Broadcast),
        isinstance(x.op, Reshape),
    )


def _first(x: Instruction) -> frozenset[str]:
    if x.is_pointwise or isinstance(x.op, (Reshape, Transpose)):
        return BOTH_WAYS
    return FORWARDS if isinstance(x.op, (DynamicSlice, DynamicUpdateSlice)) else frozenset()


def _along(x: Instruction, operands: list[Dims], results: list[Dims]) -> set[int]:
    """Let dimensions that have no factor correspond by their numbers; gives the factors."""
    sizes = next(leaf.dimensions for _, leaf in x.shape.leaves())
    if isinstance(x.op, Sort) and all(n == 1 or d == x.op.dimension for d, n in enumerate(sizes)):
        return set()
    count = 1 if isinstance(x.op, _OF_FIRST) else len(operands)
    own = x.operands[0].shape.dimensions
    found: set[int] = set()

    def filled(dims: Dims) -> Dims:
        if len(dims) != len(own):
            return dims
        for d, factor in enumerate(dims):
            if factor is None and not (isinstance(x.op, _OF_ONE_SIZE) and own[d] != sizes[d]):
                found.add(_ALONG + d)
        return tuple(_ALONG + d if f is None and _ALONG + d in found else f for d, f in enumerate(dims))

    operands[:count] = map(filled, operands[:count])
    results[:] = map(filled, results)
    return found


def _space(x: Instruction, operands: list[Dims], results: list[Dims]) -> set[int]:
    """Let the spatial dimensions of a convolution's image correspond to those of the result; gives their factors.

    Where windows are longer than what they are moved by, as in gradients of kernels, they correspond to the kernel's:
    the image is summed over.
    """
    op = x.op_as(Convolution)
    labels = op.dim_labels
    image, kernel, result = list(operands[0]), list(operands[1]), list(results[0])
    for number, window in enumerate(op.window.dimensions):
        of_result = labels.output_spatial_dimensions[number]
        image[labels.input_spatial_dimensions[number]] = _ALONG + number
        if x.shape.dimensions[of_result] * window.stride < window.dilated_size:
            kernel[labels.kernel_spatial_dimensions[number]] = _ALONG + number
        else:
            result[of_result] = _ALONG + number
    operands[:2], results[0] = [tuple(image), tuple(kernel)], tuple(result)
    return {_ALONG + number for number in range(len(op.window.dimensions))}
