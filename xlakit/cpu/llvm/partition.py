"""Which functions of a module are compiled together, and which apart."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from xlakit.cpu.llvm.effort import Effort
from xlakit.cpu.llvm.function import Function
from xlakit.cpu.llvm.promises import ALWAYS_INLINE
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError

_NAME = re.compile(r"@([\w.$-]+)")
# About how long LLVM takes for a line, in microseconds, and for a part that has no lines.
_LINE_COSTS = {Effort.ALL: 200, Effort.TIDY: 80, Effort.CODE: 60, Effort.LITTLE: 14}
_PART_COST = 2_000
# More parts than threads keep all of them busy up to the end, as long as parts are worth what they cost.
_WORTHWHILE = 10 * _PART_COST
_MOST_FOR_A_THREAD = 4
# How long the text of a table may be that several parts have.
_LARGE_TABLE = 4096


@dataclass(slots=True)
class _Bin:
    """Functions that are compiled together."""

    effort: Effort
    cost: int = 0
    functions: dict[str, None] = field(default_factory=dict[str, None])


class Partition:
    """Functions of a module in parts.

    parts: for each, its effort and the names of its functions, dearest first. A function that is always inlined is in
    each part that calls it. shared: the functions that may be called from other parts.
    """

    def __init__(self, functions: Mapping[str, Function], data: Mapping[str, str], threads: int) -> None:
        texts = {name: function.text() for name, function in functions.items()}
        self._names = {name: set(_NAME.findall(text)) for name, text in texts.items()}
        self._lines = {name: text.count("\n") for name, text in texts.items()}
        self._functions = functions
        self._inlined = self._inlined_everywhere()
        variables = {name for name, text in data.items() if _is_written(text)}
        self._undivided = variables | {name for name, text in data.items() if len(text) > _LARGE_TABLE}
        self._order = {name: number for number, name in enumerate(functions)}
        groups: dict[Effort, list[list[str]]] = {effort: [] for effort in Effort}
        for effort in Effort:
            for group in self._groups([n for n, f in functions.items() if f.effort is effort]):
                groups[self._needed(effort, group)].append(group)
        costs = {effort: [self._cost(effort, group) for group in members] for effort, members in groups.items()}
        # What a thread has to do where all have the same.
        share = sum(map(sum, costs.values())) / threads
        bins = [
            filled
            for effort, members in groups.items()
            for filled in _bins(effort, members, costs[effort], share, threads)
        ]
        bins.sort(key=lambda filled: -filled.cost)
        self.parts = [(b.effort, sorted(b.functions, key=self._order.__getitem__)) for b in bins]
        self._check_undivided(variables)
        called = set[str]().union(*(self.names_in(members) - set(members) for _, members in self.parts))
        self.shared = called & functions.keys()
        # LLVM is not to see the callers of these, so that their code does not depend on the number of threads.
        self.shared |= {name for name, function in functions.items() if function.is_apart}

    def names_in(self, functions: Iterable[str]) -> set[str]:
        """What functions name."""
        return set[str]().union(*(self._names[name] for name in functions))

    def _check_undivided(self, variables: Collection[str]) -> None:
        """Raise InternalError for a variable that functions of several parts name: each part would have its own."""
        if not variables:
            return
        seen: set[str] = set()
        for _, members in self.parts:
            named = self.names_in(members).intersection(variables)
            if named & seen:
                raise InternalError(
                    f"functions of different efforts use the variable {min(named & seen)}, and each would get its own"
                )
            seen |= named

    def _inlined_everywhere(self) -> set[str]:
        """The functions that are always inlined, into functions of their own effort."""
        inlined = {name for name, f in self._functions.items() if ALWAYS_INLINE in f.attributes and f.linkage}
        for caller, names in self._names.items():
            effort = self._functions[caller].effort
            inlined -= {n for n in names if n in inlined and self._functions[n].effort is not effort}
        return inlined

    def _needed(self, effort: Effort, group: Sequence[str]) -> Effort:
        """The effort that is enough for functions that are compiled together."""
        if effort is Effort.ALL and not any(self._functions[name].has_independent_loops for name in group):
            return Effort.TIDY
        return effort

    def _cost(self, effort: Effort, group: Sequence[str]) -> int:
        return _LINE_COSTS[effort] * sum(self._lines[name] for name in group)

    def _groups(self, functions: Sequence[str]) -> list[list[str]]:
        """Functions that call each other, or use the same undivided data, with what is inlined into them."""
        # A union-find forest over names.
        parents: dict[str, str] = {}

        def representative(name: str) -> str:
            while (other := parents.get(name, name)) != name:
                name = other
            return name

        members = [name for name in functions if name not in self._inlined]
        reached = {name: self._with_inlined(name) for name in members}
        for name in members:
            for other in self.names_in(reached[name]):
                if other in self._undivided or (other in reached and not self._functions[other].is_apart):
                    parents[representative(other)] = representative(name)
        groups: dict[str, dict[str, None]] = {}
        for name in members:
            groups.setdefault(representative(name), {}).update(dict.fromkeys(reached[name]))
        return [list(group) for group in groups.values()]

    def _with_inlined(self, function: str) -> list[str]:
        """A function and what is inlined into it, directly or not."""
        names = [function]
        for name in names:
            names += [n for n in self._names[name] if n in self._inlined and n not in names]
        return names


def _bins(effort: Effort, groups: Sequence[list[str]], costs: Sequence[int], share: float, threads: int) -> list[_Bin]:
    """Groups of functions put together so that parts take about the same time.

    share: what a thread has to do. Functions that take less are one part: other threads have those of other efforts.
    """
    if not groups:
        return []
    whole = sum(costs)
    needed = min(threads, whole // _PART_COST) if whole > share else 1
    count = min(max(needed, whole // _WORTHWHILE), _MOST_FOR_A_THREAD * threads)
    count = max(1, min(count, len(groups))) if threads > 1 else 1
    bins = [_Bin(effort) for _ in range(count)]
    for cost, group in sorted(zip(costs, groups, strict=True), key=lambda pair: -pair[0]):
        least = min(bins, key=lambda filled: filled.cost)
        least.cost += cost
        least.functions.update(dict.fromkeys(group))
    return bins


def _is_written(text: str) -> bool:
    """Whether the text of a global is that of a variable, not of a constant."""
    return text.partition(" = ")[2].startswith("internal global")
