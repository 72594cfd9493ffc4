"""Resharding from one tiling to another by slices, all-to-alls, permutes and all-gathers."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

from xlakit.ir.instruction import Instruction
from xlakit.passes.spmd.pieces.emit import Emitter
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import (
    Split,
    Tiling,
    are_as_many,
    cut_alike,
    is_proper,
    parts,
    refines,
    split_of,
    subparts_of,
    teams_over,
    with_split,
)


def resharded(make: Emitter, value: Instruction, old: Tiling, new: Tiling, scope: Scope) -> Instruction:
    """An array in the tiling ``new``, given its part in the tiling ``old``. Both divide its sizes."""
    moving = _Moving(make, value, old, scope)
    moving.all_to_all(new)
    moving.cut(new)
    alike = cut_alike(moving.tiling, new)
    if alike is not None:
        # Slicing first makes the parts that members send smaller.
        moving.cut(alike)
    moving.permute(new)
    moving.exchange(new)
    alike = cut_alike(new, moving.tiling)
    if alike is not None:
        # Smaller parts are permuted to the members that then gather them.
        moving.permute(alike)
    for dimension, split in enumerate(new):
        own = moving.tiling[dimension]
        if own is not None and not refines(split, own):
            moving.gather(dimension, own, split if refines(own, split) else None)
    moving.cut(new, at_the_end=True)
    return moving.value


class _Moving:
    """An array during resharding."""

    def __init__(self, make: Emitter, value: Instruction, tiling: Tiling, scope: Scope) -> None:
        self.make = make
        self.value = value
        self.tiling = tiling
        self.scope = scope

    def cut(self, new: Tiling, *, at_the_end: bool = False) -> None:
        """Slice each dimension that ``new`` splits more finely than the value is split, without communication.

        A slice that would make a part of the value unavailable on all members is left for later, unless ``at_the_end``.
        """
        for dimension, split in enumerate(new):
            own = self.tiling[dimension]
            after = with_split(self.tiling, dimension, split)
            if own == split or not refines(split, own) or not (at_the_end or is_proper(after)):
                continue
            subparts = subparts_of(split, own)
            if subparts is not None:
                count = parts(split) // parts(own)
                self.value = self.make.part(self.value, dimension, count, subparts, self.scope)
            self.tiling = after

    def gather(self, dimension: int, own: Split, split: Split | None) -> None:
        """All-gather a dimension, from the split ``own`` to the coarser ``split``."""
        subparts = subparts_of(own, split)
        if subparts is not None:
            others = (*with_split(self.tiling, dimension, None), split)
            groups = self.scope.groups(teams_over(subparts, others))
            self.value = self.make.all_gather(self.value, dimension, groups)
        self.tiling = with_split(self.tiling, dimension, split)

    def all_to_all(self, new: Tiling) -> None:
        """Move a split from one dimension to another by an all-to-all, where ``new`` has it at the other one.

        Only the finer part of a split may move, and it may refine the split of the other dimension.
        """
        for source in range(len(new)):
            own = self.tiling[source]
            kept = new[source] if refines(own, new[source]) else None
            moved = subparts_of(own, kept)
            if moved is None or own == new[source]:
                continue
            for target, wanted in enumerate(new):
                there = self.tiling[target]
                fits = self.value.shape.dimensions[target] % parts(moved) == 0
                if source != target and fits and refines(wanted, there) and subparts_of(wanted, there) == moved:
                    self._all_to_all(source, target, moved)
                    self.tiling = with_split(with_split(self.tiling, source, kept), target, wanted)
                    break

    def exchange(self, new: Tiling) -> None:
        """Reach a tiling of the same number of parts, as for a transpose of an array that is split along both sides.

        All-to-alls move the surplus parts of one dimension to another; a permute brings the parts to the right members.
        """
        if self.tiling == new or not are_as_many(self.tiling, new):
            return
        for source, target in itertools.permutations(range(len(new)), 2):
            own, there = self.tiling[source], self.tiling[target]
            count = math.gcd(max(1, parts(own) // parts(new[source])), max(1, parts(new[target]) // parts(there)))
            if own is not None and count > 1:
                moved = tuple(part % count for part in own)
                self._all_to_all(source, target, moved)
                kept = split_of(part // count for part in own)
                finer = split_of(a * count + b for a, b in zip(there or (0,) * len(own), moved, strict=True))
                self.tiling = with_split(with_split(self.tiling, source, kept), target, finer)
        self.permute(new)

    def _all_to_all(self, source: int, target: int, split: Split) -> None:
        make, count = self.make, parts(split)
        sizes = list(self.value.shape.dimensions)
        sizes[target : target + 1] = [count, sizes[target] // count]
        blocks = make.reshape(self.value, sizes)
        rest = [d for d in range(len(sizes)) if d != target]
        blocks = make.transpose(blocks, [target, *rest])
        others = (*with_split(self.tiling, source, None), _coarser(self.tiling[source], split))
        blocks = make.all_to_all(blocks, self.scope.groups(teams_over(split, others)))
        # The blocks, in the order of their indices, are the pieces of the dimension that was split.
        order = list(range(1, len(sizes)))
        order.insert(source, 0)
        sizes = list(self.value.shape.dimensions)
        sizes[target] //= count
        sizes[source] *= count
        self.value = make.reshape(make.transpose(blocks, order), sizes)

    def permute(self, new: Tiling) -> None:
        """Collective-permute of tiles that have the right sizes but are on other devices."""
        if self.tiling == new or [parts(s) for s in self.tiling] != [parts(s) for s in new]:
            return
        holders: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for member in range(self.scope.size):
            holders[_tile(self.tiling, member)].append(member)
        sources = [holders[_tile(new, member)].pop(0) for member in range(self.scope.size)]
        pairs = [(team[s], team[m]) for team in self.scope.teams for m, s in enumerate(sources)]
        self.value = self.make.permute(self.value, pairs)
        self.tiling = new


def _tile(tiling: Tiling, member: int) -> tuple[int, ...]:
    return tuple(0 if split is None else split[member] for split in tiling)


def _coarser(own: Split | None, moved: Split) -> Split | None:
    """The split without its finer part ``moved``."""
    return None if own is None else tuple(part // parts(moved) for part in own)
