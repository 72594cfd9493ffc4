"""Programs of mixed collectives, and a model of each in NumPy that gives the expected results.

The state of a program is a row of integers on each replica; a step is a collective in groups, of which a new row is
made. All arithmetic is on 32-bit integers that wrap around, so that results are exact in any order.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import xlakit as xla

Rows = npt.NDArray[np.int32]
Groups = tuple[tuple[int, ...], ...]

# The elements of a row; each divides by the size of any group.
SIZES = (8, 64, 1000, 8192, 65536)
_STEPS = 6
_SMALL_INTEGERS = 255


@dataclass(frozen=True)
class Kind:
    """A kind of collective: how a program emits it for its row, and a model of its effect on the rows of one group."""

    emit: Callable[[Any, Groups], Any]
    model: Callable[[Rows], Rows]


def _everybody(row: Rows, rows: Rows) -> Rows:
    return np.broadcast_to(row, rows.shape)


def _pair(x: Any, groups: Groups) -> Any:
    """Two arrays of floats in one collective; they are small integers, so their sums are exact."""
    half = x.shape.dimensions[0] // 2
    low = xla.convert_element_type(x & _SMALL_INTEGERS, xla.F32)
    others = xla.convert_element_type(xla.slice(x, [half], [2 * half], [1]) & _SMALL_INTEGERS, xla.F32)
    both = xla.all_reduce(xla.tuple_(low, others), xla.add, groups)
    first, second = (xla.convert_element_type(xla.get_tuple_element(both, i), xla.S32) for i in range(2))
    return first + xla.concat_in_dim([second, second], 0) * 3


def _pair_model(rows: Rows) -> Rows:
    sums = (rows & _SMALL_INTEGERS).sum(0, np.int32)
    return _everybody(sums + np.tile(sums[len(sums) // 2 :], 2) * np.int32(3), rows)


def _gather(x: Any, groups: Groups) -> Any:
    """Each ``count``-th of all elements of a group."""
    count, size = len(groups[0]), x.shape.dimensions[0]
    return xla.slice(xla.all_gather(x, 0, count, groups), [0], [count * size], [count])


def _exchange_model(rows: Rows) -> Rows:
    count, size = rows.shape
    return rows.reshape(count, count, size // count).swapaxes(0, 1).reshape(count, size)


def _exchange_tuple(x: Any, groups: Groups) -> Any:
    count, size = len(groups[0]), x.shape.dimensions[0] // len(groups[0])
    parts = [xla.slice(x, [i * size], [(i + 1) * size], [1]) for i in range(count)]
    given = xla.all_to_all_tuple(parts, groups)
    return xla.concat_in_dim([xla.get_tuple_element(given, i) for i in range(count)], 0)


def _scatter(x: Any, groups: Groups) -> Any:
    count = len(groups[0])
    return xla.concat_in_dim([xla.reduce_scatter(x, xla.add, 0, count, groups)] * count, 0)


def _scatter_model(rows: Rows) -> Rows:
    count, size = rows.shape
    parts = rows.sum(0, np.int32).reshape(count, size // count)
    return np.tile(parts, (1, count))


def _rotate(x: Any, groups: Groups) -> Any:
    """The row of the member before; the first of a group gets zeros."""
    return xla.collective_permute(x, [pair for g in groups for pair in itertools.pairwise(g)])


def _rotate_model(rows: Rows) -> Rows:
    return np.concatenate([np.zeros_like(rows[:1]), rows[:-1]])


KINDS = {
    "all-reduce sum": Kind(lambda x, g: xla.all_reduce(x, xla.add, g), lambda r: _everybody(r.sum(0, np.int32), r)),
    "all-reduce maximum": Kind(lambda x, g: xla.all_reduce(x, xla.max, g), lambda r: _everybody(r.max(0), r)),
    "all-reduce own": Kind(
        lambda x, g: xla.all_reduce(x, xla.xor, g),
        lambda r: _everybody(np.bitwise_xor.reduce(r, 0), r),
    ),
    "all-reduce tuple": Kind(_pair, _pair_model),
    "all-gather": Kind(_gather, lambda r: _everybody(r.reshape(-1)[:: len(r)], r)),
    "all-to-all": Kind(lambda x, g: xla.all_to_all(x, 0, 0, len(g[0]), g), _exchange_model),
    "all-to-all tuple": Kind(_exchange_tuple, _exchange_model),
    "reduce-scatter": Kind(_scatter, _scatter_model),
    "collective-permute": Kind(_rotate, _rotate_model),
    "collective-broadcast": Kind(
        xla.collective_broadcast, lambda r: _everybody(r[0], r)
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A collective in groups."""

    kind: str
    groups: Groups
    number: int

    def emit(self, x: Any) -> Any:
        """The row after it."""
        replica = xla.convert_element_type(xla.replica_id(x.builder), xla.S32)
        return KINDS[self.kind].emit(x, self.groups) * 5 + x + (replica + self.number)

    def model(self, rows: Rows) -> Rows:
        """The rows after it."""
        made = np.empty_like(rows)
        for group in map(list, self.groups):
            made[group] = KINDS[self.kind].model(rows[group])
        return made * np.int32(5) + rows + (np.arange(len(rows), dtype=np.int32)[:, None] + np.int32(self.number))


@dataclass(frozen=True)
class Program:
    """Steps that are repeated in a loop; with feeds each round begins with a number and ends with the row's sum."""

    replicas: int
    size: int
    rounds: int
    steps: tuple[Step, ...]
    is_fed: bool

    @property
    def collectives(self) -> int:
        """How many collectives one run holds; the groups of one are not counted apart."""
        return self.rounds * len(self.steps)

    def compile(self, backend: str, execution_context: xla.ExecutionContext | None = None) -> xla.Executable:
        """The program for a backend."""

        def body(state: Any) -> Any:
            count, x = (xla.get_tuple_element(state, i) for i in range(2))
            if self.is_fed:
                x = x + xla.infeed(x.builder, xla.make_shape(xla.S32))
            for step in self.steps:
                x = step.emit(x)
            if self.is_fed:
                xla.outfeed(xla.reduce_all(x, 0, xla.add))
            return count + 1, x

        builder = xla.XlaBuilder("stress")
        x = xla.parameter(builder, 0, xla.make_shape(xla.S32, (self.size,)))
        start = (xla.constant(builder, 0), x)
        state = xla.while_(lambda s: xla.get_tuple_element(s, 0) < self.rounds, body, start)
        computation = builder.build(xla.get_tuple_element(state, 1))
        return xla.compile(
            computation, backend=backend, num_replicas=self.replicas, execution_context=execution_context
        )

    def model(self, rows: Rows, feeds: Rows) -> tuple[Rows, Rows]:
        """The resulting rows, and the outfeeds by round and replica; ``feeds`` are the infeeds by round and replica."""
        fed = np.zeros_like(feeds)
        with np.errstate(over="ignore"):
            for number in range(self.rounds):
                if self.is_fed:
                    rows = rows + feeds[number][:, None]
                for step in self.steps:
                    rows = step.model(rows)
                fed[number] = rows.sum(1, np.int32)
        return rows, fed


def make_program(seed: int, replicas: int, rounds: int, size: int, *, is_fed: bool) -> Program:
    """A program made from a seed."""
    chooser = random.Random(f"{seed} {replicas} {size} {is_fed}")
    kinds = chooser.sample(sorted(KINDS), _STEPS)
    steps = tuple(Step(kind, _groups(chooser, replicas), number) for number, kind in enumerate(kinds))
    return Program(replicas, size, rounds, steps, is_fed)


def _groups(chooser: random.Random, replicas: int) -> Groups:
    """All replicas in any order, in groups of one size."""
    sizes = [n for n in range(2, replicas + 1) if replicas % n == 0 and 8 % n == 0] or [1]
    size: int = chooser.choice(sizes)
    order: Sequence[int] = chooser.sample(range(replicas), replicas)
    return tuple(tuple(order[i : i + size]) for i in range(0, replicas, size))
