"""The search for smaller modules: the best so far, the candidates that were tried, and delta debugging over them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import Protocol

from xlakit.errors import XlakitError
from xlakit.formats.files import write_whole
from xlakit.ir.instruction import HloModule
from xlakit.tools.oracles.captured import Captured
from xlakit.tools.oracles.oracle import OutOfTime, Verdict

# Makes a candidate, when its turn comes; raises if the change does not fit the module.
Candidate = Callable[[], HloModule]
# Makes a candidate from a module, without the given items.
Removal = Callable[[HloModule, Sequence[str]], HloModule]


# The file of a search's folder with the best module.
BEST = "best.hlo"


class PropertyOracle(Protocol):
    """The interface of an oracle to the search: tells whether a module still has the property."""

    @property
    def claim(self) -> str:
        """What a module with the property does, to follow "it does"."""
        ...

    def begin(self, module: HloModule) -> Verdict:
        """The answer for the module as given, which decides what is the same property later."""
        ...

    @property
    def jobs(self) -> int:
        """How many questions may be open at a time."""
        ...

    def submit(self, module: HloModule) -> Future[Verdict]:
        """Ask of a module."""
        ...

    def captured(self, module: HloModule) -> Captured:
        """Values of a run of a module; none where it is not known what it is run with."""
        ...


@dataclass
class Search:
    """The smallest module so far with the property, and how it was found.

    progress: called after each answer. folder: where the best module is kept, for a search that goes on from there.
    """

    oracle: PropertyOracle
    best: HloModule
    deadline: float = float("inf")
    progress: Callable[[Search], None] = lambda _: None
    folder: Path | None = None
    step: str = ""
    # What was seen of the best module.
    seen: str = ""
    tries: int = 0
    successes: int = 0
    start: float = field(default_factory=time.monotonic)
    _seen: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self._seen.add(_key(self.best))

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.start

    def first(self, candidates: Iterable[Candidate]) -> int | None:
        """The number of the first candidate that has the property, which is the best module then; None if none has.

        Raises OutOfTime.
        """
        fresh = self._fresh(candidates)
        waiting: list[tuple[int, HloModule, Future[Verdict]]] = []
        while True:
            for number, module in islice(fresh, self.oracle.jobs - len(waiting)):
                waiting.append((number, module, self.oracle.submit(module)))
            if not waiting:
                return None
            number, module, answer = waiting.pop(0)
            verdict = answer.result()
            self.tries += 1
            if verdict.holds:
                for _, left, other in waiting:
                    # The answer is discarded, so the module may be tried again.
                    other.cancel()
                    self._seen.discard(_key(left))
                self.seen = verdict.seen
                self._accept(module)
            self.progress(self)
            if time.monotonic() > self.deadline:
                raise OutOfTime
            if verdict.holds:
                return number

    def captured(self) -> Captured:
        """Values of a run of the best module. Raises OutOfTime."""
        return self.oracle.captured(self.best)

    def try_one(self, candidate: Candidate) -> bool:
        """Whether a candidate has the property; it is the best module then."""
        return self.first([candidate]) is not None

    def _fresh(self, candidates: Iterable[Candidate]) -> Iterator[tuple[int, HloModule]]:
        """The well-formed candidates that were not tried yet, with their numbers."""
        for number, make in enumerate(candidates):
            try:
                module = make()
                key = _key(module)
                if key in self._seen:
                    continue
                self._seen.add(key)
                module.verify()
            except (XlakitError, KeyError, IndexError, ValueError, OverflowError):
                continue  # the change does not fit this module
            yield number, module

    def _accept(self, module: HloModule) -> None:
        self.best = module
        self.successes += 1
        if self.folder is not None:
            write_whole(self.folder / BEST, module.to_text())

    def minimize(self, items: Callable[[HloModule], Sequence[str]], remove: Removal) -> None:
        """Delta debugging: remove as many items as possible, in chunks of half of them, then of half of that.

        items: what there is in a module, by name. remove: a candidate without some of them.
        """
        left = list(items(self.best))
        size = len(left)
        while size and left:
            end = len(left)
            # From the last to the first item, as late items depend on earlier ones.
            while end > 0:
                chunks = [left[max(0, stop - size) : stop] for stop in range(end, 0, -size)]
                best = self.best
                number = self.first([partial(remove, best, chunk) for chunk in chunks])
                if number is None:
                    break
                end = max(0, end - size * (number + 1))
                present = set(items(self.best))
                removed = set(chunks[number])
                before = sum(1 for name in left[:end] if name in present and name not in removed)
                left = [name for name in left if name in present and name not in removed]
                end = before
            size = min(size, len(left) + 1) // 2

    def bisect(self, most: int, cut: Callable[[HloModule, int], HloModule]) -> None:
        """Cut as much as possible, where a larger cut usually fails if a smaller one does.

        cut: a candidate with a cut of a size from 1 to ``most``.
        """
        best, low, high = self.best, 0, most + 1
        while high - low > 1:
            # Large cuts first; they decide most.
            middle = (low + high + 1) // 2
            if middle > most:
                break
            if self.try_one(lambda m=middle: cut(best, m)):
                low = middle
            else:
                high = middle


def repeated(candidates: Callable[[HloModule], Iterable[Candidate]]) -> Callable[[Search], None]:
    """The step that takes the first candidate made from the best module that has the property, until none has it."""

    @wraps(candidates)
    def step(search: Search) -> None:
        while search.first(candidates(search.best)) is not None:
            pass

    return step


def _key(module: HloModule) -> int:
    """A hash of a module, which is another one where the same program has metadata."""
    described = any(i.annotations.metadata or i.annotations.origin for i in module.instructions)
    return hash((module, described))
