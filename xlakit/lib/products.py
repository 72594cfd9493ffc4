"""Products of matrices and sums in Einstein's notation.

Source: ``xla/hlo/builder/lib/matrix.h``.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.ir.enums import Precision
from xlakit.lib.constants import scalar_like
from xlakit.lib.matrix import matrix_diagonal, maybe_transpose_in_minor_dims
from xlakit.ops.dot import DotDimensionNumbers, PrecisionConfig, dot_general
from xlakit.ops.elementwise.binary import add
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import transpose
from xlakit.ops.reduction import reduce

_DOTS = "..."


@building
def batch_dot(
    x: XlaOp,
    y: XlaOp,
    transpose_x: bool = False,
    transpose_y: bool = False,
    precision: Precision | str = Precision.DEFAULT,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """Products of matrices.

    x, y: matrices [.., r, c] of one type; one may have more batch dimensions before those that both have.
    transpose_x, transpose_y: whether matrices are transposed first.
    precision: how exactly backends should multiply. preferred_element_type: the type of the result, if another.

    Raises ShapeError. Source: BatchDot.
    """
    x, y = maybe_transpose_in_minor_dims(x, transpose_x), maybe_transpose_in_minor_dims(y, transpose_y)
    return einsum(x, y, "...mk,...kn->...mn", precision=precision, preferred_element_type=preferred_element_type)


@building
def einsum(
    x: XlaOp,
    y: XlaOp | None,
    einsum_config: str,
    precision: Precision | str = Precision.DEFAULT,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """Sums of products in Einstein's notation: ``einsum(x, y, "ab,cb->ac")``, ``einsum(x, None, "ab->ba")``.

    Each letter labels a dimension. A letter that is not behind the arrow is summed over; a letter that occurs twice in
    one operand selects a diagonal. ``...`` stands for all other dimensions. Without an arrow the result has the letters
    that occur once, in alphabetical order.
    precision: how exactly backends should multiply. preferred_element_type: the type of the result, if another.

    Raises ShapeError. Source: Einsum.
    """
    operands = [x] if y is None else [x, y]
    given, wanted = _labels(einsum_config, [o.shape.rank for o in operands])
    reduced: list[tuple[XlaOp, list[str]]] = []
    for i, operand in enumerate(operands):
        kept = set(wanted).union(*(g for k, g in enumerate(given) if k != i))
        reduced.append(_summed(*_without_repetition(operand, given[i]), kept))
    if y is not None:
        result, labels = _product(reduced[0], reduced[1], wanted, precision, preferred_element_type)
    else:
        result, labels = reduced[0]
        if preferred_element_type is not None:
            result = convert_element_type(result, preferred_element_type)
    order = [labels.index(label) for label in wanted]
    return result if order == list(range(len(order))) else transpose(result, order)


def _labels(config: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of the dimensions of both operands and of the result; numbers label those that ``...`` stands for."""
    text = config.replace(" ", "")
    before, arrow, after = text.partition("->")
    parts = before.split(",")
    if len(parts) != len(ranks):
        raise ShapeError(f"{config!r} is for {len(parts)} operands, {len(ranks)} are given", hint='write "ab,cb->ac"')
    given = [_spread(part, rank, config) for part, rank in zip(parts, ranks, strict=True)]
    named = [label for labels in given for label in labels]
    dots = max(
        (len(labels) - len(part.replace(_DOTS, "")) for labels, part in zip(given, parts, strict=True)), default=0
    )
    if not arrow:
        once = sorted(label for label in set(named) if named.count(label) == 1 and label.isalpha())
        return given, [*_numbers(dots), *once]
    wanted = _spread(after, len(after.replace(_DOTS, "")) + (dots if _DOTS in after else 0), config)
    if len(set(wanted)) != len(wanted) or not set(wanted) <= set(named):
        raise ShapeError(
            f"{config!r} gives {after!r}", hint="name each dimension of the result once, from the operands"
        )
    return given, wanted


def _spread(part: str, rank: int, config: str) -> list[str]:
    start, dots, end = part.partition(_DOTS)
    missing = rank - len(start) - len(end)
    fits = missing >= 0 if dots else missing == 0
    letters = start + end
    if not fits or (letters and not letters.isalpha()):
        raise ShapeError(
            f"{part!r} of {config!r} does not name {rank} dimensions",
            hint="give one letter for each, and ... for others",
        )
    return [*start, *(_numbers(missing) if dots else ()), *end]


def _numbers(count: int) -> list[str]:
    """Labels for ``count`` dimensions that ``...`` stands for; the last one is "0", so that operands align there."""
    return [str(i) for i in range(count - 1, -1, -1)]


def _without_repetition(x: XlaOp, labels: Sequence[str]) -> tuple[XlaOp, list[str]]:
    """The operand with dimensions of equal labels replaced by their diagonal."""
    labels = list(labels)
    for label in sorted(set(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape.dimensions[first] != x.shape.dimensions[second]:
                raise ShapeError(f"dimensions {label} of {x.shape} differ", hint="a diagonal has equal sizes")
            others = [d for d in range(len(labels)) if d not in (first, second)]
            moved = transpose(x, [*others, first, second])
            x = matrix_diagonal(moved) if x.shape.dimensions[first] else _first_of_none(moved)
            labels = [*(labels[d] for d in others), label]
    return x, labels


def _first_of_none(x: XlaOp) -> XlaOp:
    """The diagonal of matrices [.., 0, 0]."""
    return reduce(x, scalar_like(x, 0), add, [x.shape.rank - 1])


def _summed(x: XlaOp, labels: Sequence[str], kept: set[str]) -> tuple[XlaOp, list[str]]:
    """The operand summed over dimensions whose label occurs neither in the other operand nor in the result."""
    dropped = [d for d, label in enumerate(labels) if label not in kept]
    if not dropped:
        return x, list(labels)
    return reduce(x, scalar_like(x, 0), add, dropped), [label for label in labels if label in kept]


def _product(
    x: tuple[XlaOp, list[str]],
    y: tuple[XlaOp, list[str]],
    wanted: Sequence[str],
    precision: Precision | str,
    preferred_element_type: PrimitiveType | None,
) -> tuple[XlaOp, list[str]]:
    common = [label for label in x[1] if label in y[1]]
    batch, contracted = ([label for label in common if (label in wanted) is keep] for keep in (True, False))
    numbers = DotDimensionNumbers(
        lhs_batch_dimensions=[x[1].index(label) for label in batch],
        lhs_contracting_dimensions=[x[1].index(label) for label in contracted],
        rhs_batch_dimensions=[y[1].index(label) for label in batch],
        rhs_contracting_dimensions=[y[1].index(label) for label in contracted],
    )
    config = PrecisionConfig([precision, precision])
    labels = [*batch, *(label for side in (x[1], y[1]) for label in side if label not in common)]
    return dot_general(x[0], y[0], numbers, config, preferred_element_type), labels
