"""Tilings: the part of an array that each member of a team holds.

Each dimension of an array is split independently. The split of a dimension gives for each member the number of the part
that it holds (parts are equal and numbered from 0), or is None if every member holds the whole dimension. A tiling has
a split for each dimension; it is proper if every tile is held by the same number of members, at least one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from xlakit.errors import InternalError

Split = tuple[int, ...]
Tiling = tuple[Split | None, ...]


def parts(split: Split | None) -> int:
    """The number of parts of a dimension."""
    return 1 if split is None else max(split) + 1


def split_of(numbers: Iterable[int]) -> Split | None:
    """The split with the part number of each member; None if all are 0."""
    split = tuple(numbers)
    return split if any(split) else None


def joint_split(splits: Iterable[Split], members: int) -> Split | None:
    """The split with a part for each combination of parts of several splits."""
    numbers = [0] * members
    for split in splits:
        numbers = [n * parts(split) + part for n, part in zip(numbers, split, strict=True)]
    return split_of(numbers)


def whole(rank: int) -> Tiling:
    """The tiling of an array that every member has all of."""
    return (None,) * rank


def is_whole(tiling: Tiling) -> bool:
    """Whether every member has the whole array."""
    return not any(tiling)


def is_proper(tiling: Sequence[Split | None]) -> bool:
    """Whether every tile is held by the same number of members, at least one."""
    splits = [s for s in tiling if s is not None]
    if not splits:
        return True
    count = math.prod(map(parts, splits))
    tiles: defaultdict[tuple[int, ...], int] = defaultdict(int)
    for tile in zip(*splits, strict=True):
        tiles[tile] += 1
    return len(tiles) == count and len(set(tiles.values())) == 1


def divides(tiling: Tiling, sizes: Sequence[int]) -> bool:
    """Whether all parts of an array of these sizes are equal."""
    return all(size % parts(split) == 0 for size, split in zip(sizes, tiling, strict=True))


def unequal_dims(tiling: Tiling, sizes: Sequence[int]) -> list[int]:
    """The dimensions of an array of these sizes whose parts are not equal."""
    return [d for d, (size, split) in enumerate(zip(sizes, tiling, strict=True)) if size % parts(split)]


def split_at(tiling: Tiling, dimension: int) -> Split:
    """The split of a dimension; raises InternalError if it is whole."""
    split = tiling[dimension]
    if split is None:
        raise InternalError(f"dimension {dimension} of tiling {tiling} is not split")
    return split


def are_as_many(own: Tiling, new: Tiling) -> bool:
    """Whether two tilings have the same total number of parts, so that all-to-alls can convert between them."""
    counts = [(parts(a), parts(b)) for a, b in zip(own, new, strict=True)]
    return math.prod(a for a, _ in counts) == math.prod(b for _, b in counts) and all(
        max(pair) % min(pair) == 0 for pair in counts
    )


def cut_alike(own: Tiling, new: Tiling) -> Tiling | None:
    """A tiling that refines ``own`` and has the sizes of ``new``, though on other members; None if there is none."""
    counts = [divmod(parts(after), parts(before)) for before, after in zip(own, new, strict=True)]
    if any(rest for _, rest in counts):
        return None
    made = tuple(
        after if before is None else split_of(a * n + b % n for a, b in zip(before, after or before, strict=True))
        for (n, _), before, after in zip(counts, own, new, strict=True)
    )
    return made if is_proper(made) else _cut(own, [n for n, _ in counts])


def _cut(own: Tiling, counts: Sequence[int]) -> Tiling | None:
    """A tiling that divides each part of a dimension in so many, among the members that have the same tile."""
    members = max((len(split) for split in own if split is not None), default=0)
    found: list[list[int]] = [[0] * members for _ in own]
    seen: defaultdict[tuple[int, ...], int] = defaultdict(int)
    for member in range(members):
        tile = tuple(0 if split is None else split[member] for split in own)
        number = seen[tile]
        seen[tile] += 1
        for d in reversed(range(len(own))):
            number, piece = divmod(number, counts[d])
            found[d][member] = tile[d] * counts[d] + piece
    made = tuple(map(split_of, found))
    has_all = all(parts(a) == n * parts(b) for a, n, b in zip(made, counts, own, strict=True))
    return made if has_all and is_proper(made) else None


def local_sizes(tiling: Tiling, sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of a part; if parts are unequal, those of the largest."""
    return tuple(-(-size // parts(split)) for size, split in zip(sizes, tiling, strict=True))


def with_split(tiling: Tiling, dimension: int, split: Split | None) -> Tiling:
    """The tiling with another split of one dimension."""
    return (*tiling[:dimension], split, *tiling[dimension + 1 :])


@lru_cache(maxsize=1 << 14)
def refines(fine: Split | None, coarse: Split | None) -> bool:
    """Whether each part of ``fine`` is a piece of the part of ``coarse`` that the same member has."""
    if coarse is None:
        return True
    if fine is None or parts(fine) % parts(coarse):
        return False
    factor = parts(fine) // parts(coarse)
    return all(f // factor == c for f, c in zip(fine, coarse, strict=True))


def coarser(split: Split) -> list[Split]:
    """The splits that a split refines, from the finest on; of one along several axes, those along the first axes."""
    count = parts(split)
    return [tuple(n // step for n in split) for step in range(2, count) if count % step == 0]


def subparts_of(fine: Split | None, coarse: Split | None) -> Split | None:
    """For each member the number of its piece within its part of ``coarse``, if ``fine`` refines ``coarse``."""
    if fine is None:
        return None
    factor = parts(fine) // parts(coarse)
    return split_of(part % factor for part in fine)


def same_teams(one: Split | None, other: Split | None) -> bool:
    """Whether two splits put the same members together, whatever the order of the parts."""
    if one is None or other is None:
        return one is other
    return [one.index(n) for n in one] == [other.index(n) for n in other]


def teams_over(split: Split, within: Sequence[Split | None]) -> list[list[int]]:
    """Groups of members, each with every part of ``split`` once and in order, and the same parts of all ``within``."""
    size = len(split)
    buckets: defaultdict[tuple[int, ...], defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for member in range(size):
        bucket = buckets[tuple(s[member] for s in within if s is not None)]
        bucket[split[member]].append(member)
    groups: list[list[int]] = []
    for bucket in buckets.values():
        groups.extend(list(group) for group in zip(*(bucket[part] for part in range(parts(split))), strict=True))
    return groups
