"""Which dimensions of a reshape belong together, and which of them are dynamic.

Source: the rules of OpenXLA's shape inference for reshape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ExecutionError, ShapeError, UnsupportedError


def common_factors(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Cut two lists of sizes of the same product into the smallest groups of equal products.

    Gives the positions of the cuts, from (0, 0) to (len(a), len(b)). Of neighboring sizes of 1 the
    earliest cut is taken.
    """
    if list(a) == list(b):
        return [(i, i) for i in range(len(a) + 1)]
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    ends = (len(a), len(b))
    cuts = [(i, i) for i in range(same)]
    if math.prod(a[same:]) != math.prod(b[same:]):
        return [(0, 0), ends]  # the common beginning has a zero, so the products are equal although the rest differs
    if math.prod(a[same:]) == 0:
        return [*cuts, (same, same), ends]
    i = j = same
    left = right = 1
    while True:
        if left == right and (not cuts or (i, j) != cuts[-1]):
            cuts.append((i, j))
        if (i, j) == ends:
            return cuts
        more_a, more_b = i < len(a), j < len(b)
        take_a = left < right or (more_a and (not more_b or (left == right and a[i] <= b[j])))
        take_b = right < left or (more_b and (not more_a or (left == right and b[j] <= a[i])))
        if take_a:
            left *= a[i]
            i += 1
        if take_b:
            right *= b[j]
            j += 1


def dynamic_dimensions_after_reshape(
    operand: Shape, sizes: Sequence[int], inferred_dimension: int = -1
) -> tuple[bool, ...]:
    """Which dimensions of ``sizes`` are dynamic when ``operand`` is reshaped to them.

    Raises UnsupportedError where a dynamic dimension is both split and merged, as XLA does.
    """
    marks = [False] * len(sizes)
    if not any(operand.dynamic_dimensions):
        return tuple(marks)
    if not -1 <= inferred_dimension < max(len(sizes), 1):
        raise ShapeError(
            f"inferred_dimension {inferred_dimension} is out of range for {len(sizes)} dimensions",
            hint=f"give -1, or a dimension from 0 to {max(len(sizes), 1) - 1}",
        )
    factors = common_factors(operand.dimensions, sizes)
    for dimension, dynamic in enumerate(operand.dynamic_dimensions):
        if dynamic:
            target = _target(operand, sizes, dimension, factors, inferred_dimension)
            if target is not None:
                marks[target] = True
    return tuple(marks)


def _target(
    operand: Shape, sizes: Sequence[int], dimension: int, factors: Sequence[tuple[int, int]], inferred: int
) -> int | None:
    """The dimension of the result that becomes dynamic for a dynamic one of the operand."""
    pairs = itertools.pairwise(factors)
    (start, first), (end, last) = next(p for p in pairs if p[0][0] <= dimension < p[1][0])
    if end - start > 1 and last - first > 1:
        raise UnsupportedError(
            f"dynamic dimension {dimension} of {operand} is both split and merged by a reshape to {list(sizes)}",
            hint="reshape in two steps",
        )
    # Adjacent dimensions of size 1 are candidates, too.
    first = min([first, *(j for i, j in factors if i == start)])
    last = max([last, *(j for i, j in factors if i == end)])
    if operand.dimensions[dimension] == 1 and sizes:
        if dimension == operand.rank - 1:
            return len(sizes) - 1
        if dimension == 0:
            return 0
        raise UnsupportedError(
            f"a reshape of {operand} with a dynamic dimension of size 1 in the middle",
            hint="move the dynamic dimension to the front or the end with transpose first",
        )
    if last - first == 1:
        return first
    if last - first > 1 and inferred != -1:
        return inferred
    return next((d for d in range(first, last) if sizes[d] != 1), None)


def check_same_count(operand: Shape, sizes: Sequence[int]) -> None:
    """Raise ShapeError unless ``sizes`` have as many elements as ``operand``."""
    count = math.prod(sizes)
    if count != operand.num_elements:
        rule = "the products of the dimensions must be equal"
        raise ShapeError(
            f"cannot reshape {operand} with {operand.num_elements} elements to {list(sizes)} with {count}",
            hint="x.reshape(..) finds the size for -1" if -1 in sizes else rule,
        )


def sizes_after_reshape(sizes: Sequence[int], bounds: Sequence[int], result: Shape) -> list[int]:
    """The current dimensions of a reshape's result, whose operand has these sizes now, and these bounds.

    Dimensions that are joined or split together are a group: its elements determine the size of the group's dynamic
    dimension in the result. If a dimension of bound 1 is now empty and has no counterpart there, all are one group.
    """
    current = list(result.dimensions)
    factors = (
        common_factors(bounds, result.dimensions) if UNBOUNDED not in bounds else [(0, 0), (len(bounds), result.rank)]
    )
    groups = [
        (math.prod(sizes[start:end]), range(first, last)) for (start, first), (end, last) in itertools.pairwise(factors)
    ]
    if all(_fill(current, dimensions, result, count) for count, dimensions in groups):
        return current
    current = list(result.dimensions)
    if not _fill(current, range(result.rank), result, math.prod(sizes)):
        raise ExecutionError(
            f"an array of current sizes {list(sizes)} cannot become {result}",
            hint="the elements that are there must fill exactly one dynamic dimension",
        )
    return current


def _fill(current: list[int], dimensions: range, result: Shape, count: int) -> bool:
    """Set the dynamic size among ``dimensions`` so that their product is ``count``; gives whether that is possible."""
    if count == math.prod(current[d] for d in dimensions):
        return True
    dynamic = [d for d in dimensions if result.dynamic_dimensions[d]]
    fixed = math.prod(current[d] for d in dimensions if d not in dynamic)
    if len(dynamic) != 1 or fixed == 0 or count % fixed:
        return False
    current[dynamic[0]] = count // fixed
    return True
