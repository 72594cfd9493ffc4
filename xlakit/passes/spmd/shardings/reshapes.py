"""Splits through reshapes: how the result of a reshape is split if no element leaves its device.

Dimensions that a reshape merges or splits hold one range of elements for each part as long as all dimensions before the
last split one have as many parts as elements. Such splits, of a batch along two axes that becomes a matrix of groups
with one axis each for instance, are those of the merged dimension, and can be given to other dimensions again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from xlakit.passes.spmd.shardings.tilings import Split, Tiling, divides, joint_split, parts, split_of


@lru_cache(maxsize=4096)
def through_reshape(tiling: Tiling, old: tuple[int, ...], new: tuple[int, ...]) -> Tiling | None:
    """The tiling of an array of sizes ``new`` that is made of one of sizes ``old`` by reshaping each part; None if the
    parts are no parts of the result.
    """
    if not divides(tiling, old):
        return None
    found: list[Split | None] = [None] * len(new)
    for before, after in _merged(old, new):
        splits = [tiling[d] for d in before]
        if not any(splits):
            continue
        joined = _joined(splits, [old[d] for d in before])
        made = None if joined is None else _divided(joined, [new[d] for d in after])
        if made is None:
            return None
        for d, split in zip(after, made, strict=True):
            found[d] = split
    return tuple(found)


def _merged(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[range, range]]:
    """The runs of dimensions of both sides that have the same elements, each as short as possible."""
    i = j = 0
    while i < len(old) and j < len(new) and 0 not in old:
        first, other = i, j
        left, right, i, j = old[i], new[j], i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        yield range(first, i), range(other, j)


def _joined(splits: Sequence[Split | None], sizes: Sequence[int]) -> Split | None:
    """The split of adjacent dimensions merged to one; None if a part of it is not one range, or it is not split."""
    found: list[Split] = []
    has_ended = False
    for split, size in zip(splits, sizes, strict=True):
        if has_ended and split is not None:
            return None
        has_ended = has_ended or parts(split) != size
        if split is not None:
            found.append(split)
    return joint_split(found, len(found[0])) if found else None


def _divided(split: Split, sizes: Sequence[int]) -> list[Split | None] | None:
    """The splits of the dimensions into which a split one is divided; None if a part would not be one range."""
    found: list[Split | None] = []
    left = parts(split)
    for size in sizes:
        count = min(size, left)
        if size % count or left % count:
            return None
        left //= count
        rest = left
        found.append(split_of(part // rest % count for part in split))
    return found
