"""dot and convolution, with all their dimension numbers."""

from __future__ import annotations

import math

from fuzz.programs.draft import Draft, Program, family, join
from fuzz.programs.operations.window import draw_dimension, window_text
from fuzz.programs.values import EDGES, SMALL, is_complex, is_float
from fuzz.support.tolerances import EXACT, SUMS, Tolerance

_TYPES = ("f32", "f64", "bf16", "f16", "s32", "s64", "u8", "s8", "c64", "c128", "f8e4m3fn", "f8e5m2", "s4", "u32")
# The result type that may be asked for where it is not the operands' own.
_WIDER = {"bf16": "f32", "f16": "f32", "s8": "s32", "u8": "u32", "f8e4m3fn": "f32", "f8e5m2": "f32", "s4": "s32"}


def _result_type(draft: Draft, kind: str) -> str:
    return _WIDER[kind] if kind in _WIDER and draft.chance(0.6) else kind


def _exactness(kind: str) -> Tolerance:
    return SUMS if is_float(kind) or is_complex(kind) else EXACT


def _operand_style(kind: str) -> str:
    return SMALL if is_float(kind) or is_complex(kind) else EDGES


@family("dot", _TYPES, 8)
def dot(draft: Draft, case: str) -> Program:
    """Any batch and contracting dimensions, in any place."""
    batch = draft.integers(1, 3, draft.pick([0, 0, 1, 2]))
    contracted = draft.integers(1, 5, draft.pick([0, 1, 1, 1, 2]))
    if contracted and draft.chance(0.06):
        contracted[0] = 0
    sides: list[tuple[str, list[int], list[int]]] = []
    free: list[list[int]] = []
    for _ in range(2):
        own = draft.integers(1, 4, draft.pick([0, 1, 1, 2]))
        sizes = [*batch, *contracted, *own]
        order = draft.permutation(len(sizes))
        place = [order.index(i) for i in range(len(sizes))]
        name = draft.parameter(case, [sizes[i] for i in order], _operand_style(case))
        sides.append((name, place[: len(batch)], place[len(batch) : len(batch) + len(contracted)]))
        free.append([sizes[i] for i in order if i >= len(batch) + len(contracted)])
    parts = [f"dot({sides[0][0]}, {sides[1][0]})"]
    for side, (_, batch_dims, contracting_dims) in zip(("lhs", "rhs"), sides, strict=True):
        if batch:
            parts.append(f"{side}_batch_dims={{{join(batch_dims)}}}")
        parts.append(f"{side}_contracting_dims={{{join(contracting_dims)}}}")
    if draft.chance(0.2):
        parts.append(f"operand_precision={{{draft.pick(['highest', 'high'])},default}}")
    result = _result_type(draft, case)
    draft.emit(draft.shape(result, [*batch, *free[0], *free[1]]), ", ".join(parts))
    return draft.finish("dot", _exactness(case), f"{case} to {result}")


@family("convolution", tuple(k for k in _TYPES if k != "s4"), 8)
def convolution(draft: Draft, case: str) -> Program:
    """Strides, padding, both dilations, reversal, groups of features or batches, dimension numbers in any order."""
    rank = draft.pick([0, 1, 1, 2, 2, 2, 3])
    spatial = [
        draw_dimension(draft, dilated=True, negative=draft.chance(0.3), reversed_too=True, padding=3)
        for _ in range(rank)
    ]
    while len(spatial) > 1 and math.prod(d.base for d in spatial) > 60:
        spatial.pop()
    rank = len(spatial)
    groups = draft.pick(["none", "none", "none", "features", "batches"])
    count = draft.integer(2, 3) if groups != "none" else 1
    features, batch, outputs = draft.integer(1, 3), draft.integer(1, 3), draft.integer(1, 3)
    input_features, input_batch = features, batch
    if groups != "none":
        outputs *= count
    if groups == "features":
        input_features = features * count
    if groups == "batches":
        input_batch = batch * count
    letters = [str(i) for i in range(rank)]
    # Half of the time in the order of most programs: positions are neighbors, and rows or columns of products.
    usual = draft.chance(0.5)
    lhs_labels, lhs = _arrange(
        draft, ["b", "f", *letters], [input_batch, input_features, *(d.base for d in spatial)], stays=usual
    )
    rhs_labels, rhs = _arrange(draft, ["i", "o", *letters], [features, outputs, *(d.size for d in spatial)])
    out_labels, out = _arrange(draft, ["b", "f", *letters], [batch, outputs, *(d.output for d in spatial)], stays=usual)
    style = _operand_style(case)
    left, right = draft.parameter(case, lhs, style), draft.parameter(case, rhs, style)
    parts = [f"convolution({left}, {right})"]
    window = window_text(spatial)
    if window:
        parts.append(f"window={{{window}}}")
    parts.append(f"dim_labels={lhs_labels}_{rhs_labels}->{out_labels}")
    if groups != "none":
        parts.append(f"{'feature' if groups == 'features' else 'batch'}_group_count={count}")
    if draft.chance(0.1):
        # What a convolution is for changes nothing; "dgrad" would, but does not survive the conversion to StableHLO.
        parts.append(f"convolution_kind={draft.pick(['fprop', 'wgrad'])}")
    result = _result_type(draft, case)
    draft.emit(draft.shape(result, out), ", ".join(parts))
    return draft.finish("convolution", _exactness(case), f"{case} to {result}, groups: {groups}")


def _arrange(draft: Draft, labels: list[str], sizes: list[int], *, stays: bool = False) -> tuple[str, list[int]]:
    order = range(len(labels)) if stays else draft.permutation(len(labels))
    return "".join(labels[i] for i in order), [sizes[i] for i in order]


@family("ragged-dot", ("f32",), 0.2)
def ragged_dot(draft: Draft, case: str) -> Program:
    """Rows in groups, each with a matrix of its own."""
    rows, inner, columns, groups = draft.integer(1, 6), draft.integer(1, 4), draft.integer(1, 4), 2
    left, right = draft.parameter(case, [rows, inner], SMALL), draft.parameter(case, [groups, inner, columns], SMALL)
    sizes = draft.parameter("s32", [groups], SMALL)
    numbers = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
    draft.emit(f"{case}[{rows},{columns}]", f"ragged-dot({left}, {right}, {sizes}), {numbers}")
    return draft.finish("ragged-dot", SUMS, case)
