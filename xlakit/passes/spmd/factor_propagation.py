"""Spreads tilings between the values of a program, to a fixed point.

An operation spreads the split that its operands and results have in common for a factor to all of them. Two factors
conflict if they use the same partitions. First only splits without conflicts spread: a factor does not get partitions
that another factor uses anywhere in the operation. At that fixed point, each value takes the splits that fit into it,
those of the largest value first. Dimensions that operations leave alone do so at once, but wait for sums: a table
whose columns are split is read by column, while a batch meets weights that are split along what is summed. If a split
does not fit, its coarser forms are tried: for two axes the first of them.

Of the operations with something to spread, elementwise ones come in the order in which they got it, so that a value is
split as the nearest one; then all come in the order of the program. Queries and keys of one split sequence thus have
their splits when their product is settled, where these conflict, and the larger one decides for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush

from xlakit.dataclass import dataclass
from xlakit.passes.spmd.shardings.correspondences import BACKWARDS, FORWARDS, ORDERS, Correspondence
from xlakit.passes.spmd.shardings.factors import Dims
from xlakit.passes.spmd.shardings.reshapes import through_reshape
from xlakit.passes.spmd.shardings.tilings import (
    Split,
    Tiling,
    coarser,
    is_proper,
    joint_split,
    parts,
    refines,
    subparts_of,
    with_split,
)


@dataclass(frozen=True)
class Tie:
    """The values of an operation, by their nodes, and the correspondence of their dimensions.

    manual: where the result is the part of the operand that a team of a manual computation has, the splits into these.
    """

    operands: tuple[int, ...]
    results: tuple[int, ...]
    by: Correspondence
    manual: Tiling | None = None


class _Queue:
    """The numbers of ties that wait, each once: in the order of the program, or in that in which they came."""

    def __init__(self, *, in_program_order: bool) -> None:
        self.waiting: set[int] = set()
        self._in_program_order = in_program_order
        self._order: list[tuple[int, int]] = []
        self._came = 0

    def add(self, ties: Iterable[int]) -> None:
        """Add those that do not wait yet."""
        for number in ties:
            if number not in self.waiting:
                self.waiting.add(number)
                self._came += 1
                heappush(self._order, (0 if self._in_program_order else self._came, number))

    def next(self) -> int:
        """Take the first one."""
        _, number = heappop(self._order)
        self.waiting.discard(number)
        return number


class FactorPropagation:
    """The tilings of nodes, and the ties along which they spread."""

    def __init__(
        self,
        tilings: list[Tiling],
        sizes: Sequence[tuple[int, ...]],
        is_open: Sequence[tuple[bool, ...]],
        ties: Sequence[Tie],
        is_along_axes: Callable[[Split], bool],
    ) -> None:
        """``is_along_axes``: whether a split is along whole axes of a mesh, which coarser forms must be."""
        self._tilings = tilings
        self._sizes = sizes
        self._open = is_open
        self._ties = ties
        self._is_along_axes = is_along_axes
        self._forms: dict[Split, list[Split]] = {}
        # By order the ties of each node that spread something in it.
        self._tied: list[list[list[int]]] = [[[] for _ in tilings] for _ in ORDERS]
        for number, tie in enumerate(ties):
            nodes = dict.fromkeys((*tie.operands, *tie.results))
            for order in filter(tie.by.acts, ORDERS):
                for node in nodes:
                    self._tied[order][node].append(number)

    def propagate(self) -> None:
        """Spread all tilings: operations in their order, and in each order without conflicts first.

        What spreads late is spread by all earlier orders before the next operation.
        """
        stages = [(o, settle) for o in ORDERS for settle in (self._without_conflicts, self._with_conflicts)]
        queues: list[_Queue] = []
        for number, _ in stages:
            tied = self._tied[number]
            queues.append(_Queue(in_program_order=number != ORDERS[0]))
            queues[-1].add(t for n, own in enumerate(self._tilings) if any(own) for t in tied[n])
            while (stage := next((s for s, q in enumerate(queues) if q.waiting), None)) is not None:
                order, settle = stages[stage]
                tie = self._ties[queues[stage].next()]
                if tie.manual is not None:
                    changed = self._crossed(tie, tie.manual)
                else:
                    wanted = self._common(tie, order)
                    changed = settle(tie, wanted, order) if wanted else []
                    if tie.by.is_reshape:
                        changed += self._reshaped(tie)
                for node in changed:
                    for (late, _), queue in zip(stages, queues, strict=False):
                        queue.add(self._tied[late][node])

    def _crossed(self, tie: Tie, manual: Tiling) -> list[int]:
        """Spread splits between an array and a team's part of it, which other axes may split; gives changed nodes."""
        (outer,), (inner,) = tie.operands, tie.results
        changed: dict[int, None] = {}
        for d, by in enumerate(manual):
            own, part = self._tilings[outer][d], self._tilings[inner][d]
            if refines(own, by):
                subparts = subparts_of(own, by)
                if subparts is not None and self._fits(inner, d, subparts) and self._set(inner, d, subparts):
                    changed[inner] = None
            if part is not None:
                joined = joint_split([s for s in (by, part) if s is not None], len(part))
                if joined is not None and self._fits(outer, d, joined) and self._set(outer, d, joined):
                    changed[outer] = None
        return list(changed)

    def _reshaped(self, tie: Tie) -> list[int]:
        """Spread splits whose axes a reshape gives to several dimensions, or which it joins; gives changed nodes.

        Factors are of the major ones of such dimensions alone.
        """
        (operand,), (result,) = tie.operands, tie.results
        changed: dict[int, None] = {}
        for one, other in ((operand, result), (result, operand)):
            found = through_reshape(self._tilings[one], self._sizes[one], self._sizes[other]) or ()
            if all(self._is_along_axes(split) for split in found if split is not None):
                for d, split in enumerate(found):
                    if split is not None and self._set(other, d, split):
                        changed[other] = None
        return list(changed)

    def _fits(self, node: int, d: int, split: Split) -> bool:
        return self._sizes[node][d] % parts(split) == 0

    def _members(self, tie: Tie) -> list[tuple[int, Dims]]:
        nodes = (*tie.operands, *tie.results)
        return list(zip(nodes, (*tie.by.operands, *tie.by.results), strict=True))

    def _common(self, tie: Tie, order: int) -> dict[int, Split]:
        """For each factor the split that the values of an operation have in common, if some value lacks it."""
        found: dict[int, Split | None] = {}
        ended: set[int] = set()
        for way, nodes, dims in (
            (FORWARDS, tie.operands, tie.by.operands),
            (BACKWARDS, tie.results, tie.by.results),
        ):
            for node, factors in zip(nodes, dims, strict=True):
                for factor, split in zip(factors, self._tilings[node], strict=True):
                    if factor is None or split is None or not way <= tie.by.ways(factor, order):
                        continue
                    own = found.get(factor)
                    if factor not in ended and refines(split, own):
                        found[factor] = split
                    elif own is not None and not refines(own, split):
                        ended.add(factor)
                        found[factor] = next((s for s in self._coarser(own) if refines(split, s)), None)
        members = self._members(tie)
        return {f: split for f, split in found.items() if split and self._is_missing_somewhere(members, f, split)}

    def _is_missing_somewhere(self, members: list[tuple[int, Dims]], factor: int, split: Split) -> bool:
        """Whether some value of an operation does not have the split yet."""
        return any(factor in dims and self._tilings[node][dims.index(factor)] != split for node, dims in members)

    def _without_conflicts(self, tie: Tie, wanted: dict[int, Split], order: int) -> list[int]:
        """Spread splits without conflicts, or in the second order with those that spread in it; gives changed nodes."""
        members = self._members(tie)
        now = wanted.keys() - tie.by.last if order == ORDERS[1] else ()
        found: dict[int, Split] = {}
        for factor, split in wanted.items():
            fitting: Split | None = split
            for node, dims in members:
                pairs = zip(dims, self._tilings[node], strict=True)
                others = [s for f, s in pairs if s is not None and f not in (factor, *now)]
                fitting = self._fitting(fitting, others)
                if fitting is None:
                    break
                if factor in dims:
                    fitting = self._possible(tie, node, dims.index(factor), fitting)
            if fitting is not None:
                found[factor] = fitting
        return self._with_conflicts(tie, found, order)

    def _with_conflicts(self, tie: Tie, wanted: dict[int, Split], _: int) -> list[int]:
        """Spread to each value the splits that fit into it; gives the nodes that changed."""
        members = self._members(tie)
        largest = {
            factor: max(math.prod(self._sizes[node]) for node, dims in members if self._has(node, dims, factor, split))
            for factor, split in wanted.items()
        }
        changed: dict[int, None] = {}
        for factor in sorted(wanted, key=lambda f: -largest[f]):
            for node, dims in members:
                if factor not in dims:
                    continue
                d = dims.index(factor)
                possible = self._possible(tie, node, d, wanted[factor])
                others = [s for e, s in enumerate(self._tilings[node]) if s is not None and e != d]
                fitting = self._fitting(possible, others)
                if fitting is not None and self._set(node, d, fitting):
                    changed[node] = None
        return list(changed)

    def _has(self, node: int, dims: Dims, factor: int, split: Split) -> bool:
        return factor in dims and refines(self._tilings[node][dims.index(factor)], split)

    def _possible(self, tie: Tie, node: int, d: int, split: Split) -> Split | None:
        """The split, or its finest coarser form, that a dimension of a node may take; None if it may take none.

        Open dimensions may have unequal parts, except in reshapes.
        """
        own, size = self._tilings[node][d], self._sizes[node][d]
        is_free = self._open[node][d] and not tie.by.is_reshape
        if is_free:
            return split
        fits = [s for s in (split, *self._coarser(split)) if self._open[node][d] and size % parts(s) == 0]
        return next((s for s in (split, *self._coarser(split)) if s in fits or refines(own, s)), None)

    def _fitting(self, split: Split | None, others: Sequence[Split]) -> Split | None:
        """The split, or its finest coarser form, that uses no partitions of the other splits of an array."""
        if split is None:
            return None
        return next((s for s in (split, *self._coarser(split)) if _is_free(s, tuple(others))), None)

    def _coarser(self, split: Split) -> list[Split]:
        """The coarser forms of a split: those along the first of its axes."""
        found = self._forms.get(split)
        if found is None:
            found = self._forms[split] = [s for s in coarser(split) if self._is_along_axes(s)]
        return found

    def _set(self, node: int, d: int, split: Split) -> bool:
        own = self._tilings[node][d]
        if split == own or not refines(split, own) or not self._open[node][d]:
            return False
        after = with_split(self._tilings[node], d, split)
        if not is_proper(after):
            return False
        self._tilings[node] = after
        return True


@lru_cache(maxsize=4096)
def _is_free(split: Split, others: tuple[Split, ...]) -> bool:
    return is_proper((split, *others))
