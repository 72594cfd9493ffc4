"""Loops over a rectangle of a product's results: epilogues over its elements, or over its rows.

A result's index has many dimensions, and a product has three: batch, row, column. The loop variables of the result's
dimensions are bound from the position in the product's dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.loops.emit.kernel import emitter_of, hints_for, store_all, write_all_iterations
from xlakit.cpu.loops.emit.lanes import lanes_of
from xlakit.cpu.loops.emit.levels import Level, Output
from xlakit.cpu.loops.ir.index import Affine, Variable, linear, of
from xlakit.cpu.loops.ir.nodes import indices_of
from xlakit.cpu.loops.ir.space import merged
from xlakit.cpu.loops.nests.rows import Plan, lanes_of_rows, write_row
from xlakit.data.layout import row_major_strides
from xlakit.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LocalIndex:
    """Variables in an index into a local rectangle: the row, from the first row on, and the first column."""

    row: Variable
    first: Variable


@dataclass(frozen=True, slots=True)
class Bounds:
    """The position of a rectangle: its batch, its rows and its columns, each as first and end.

    factor: a number that divides the number of columns.
    """

    batch: Value
    rows: tuple[Value, Value]
    columns: tuple[Value, Value]
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Directions:
    """The variables of an array's dimensions, major to minor, of which a product's batch, row and column are made."""

    batch: tuple[Variable, ...]
    rows: tuple[Variable, ...]
    columns: tuple[Variable, ...]

    @property
    def outer(self) -> frozenset[Variable]:
        """The variables that are the same along a row."""
        return frozenset((*self.batch, *self.rows))


# A direction through an array: (size, stride) of each step, the fastest last.
Dims = Sequence[tuple[int, int]]


def directions(dims: Sequence[Dims], sizes: Sequence[int], variables: Sequence[Sequence[Variable]]) -> Directions:
    """The variables of an array's dimensions over which the steps of batch, row and column go."""
    strides = row_major_strides(sizes)
    found: list[tuple[Variable, ...]] = []
    for direction in dims:
        own: list[Variable] = []
        for size, stride in direction:
            inside = [d for d, s in enumerate(strides) if sizes[d] > 1 and stride <= s < stride * size]
            if math.prod(sizes[d] for d in inside) != size:
                raise DeclinedError("a step of a product is not made of dimensions of its result")
            own += [variable for d in inside for variable in variables[d]]
        found.append(tuple(own))
    batch, rows, columns = found
    return Directions(batch, rows, columns)


def write_elements(
    fn: Function,
    arrays: Sequence[Value],
    where: Directions,
    bounds: Bounds,
    local: LocalIndex,
    outputs: Sequence[Output],
) -> None:
    """Write a function that computes and stores an elementwise epilogue for a rectangle."""
    nodes = [n for o in outputs for n in o.nodes]
    indices = indices_of(nodes, [o.offset for o in outputs])
    (first_row, last_row), (first_column, last_column) = bounds.rows, bounds.columns
    groups = merged(where.columns, indices)
    emitter = emitter_of(fn, arrays, lanes_of(groups[0], nodes, outputs) if len(groups) == 1 else 1)
    with emitter.scope():
        emitter.bind(local.first, first_column)
        emitter.bind_groups(merged(where.batch, indices), bounds.batch)
        emitter.hoist(nodes, frozenset((*where.batch, local.first)))
        with fn.loop(0, last_row - first_row) as row, emitter.scope():
            emitter.bind(local.row, row.index)
            emitter.bind_groups(merged(where.rows, indices), first_row + row.index)
            emitter.hoist(nodes, where.outer | {local.row, local.first})
            if emitter.lanes > 1:
                level = Level(groups[0], first_column, last_column, factor=bounds.factor)
                write_all_iterations(emitter, level, nodes, outputs)
            else:
                hints = hints_for(nodes)
                with fn.loop(first_column, last_column, independent=True, hints=hints) as column, emitter.scope():
                    emitter.bind_groups(merged(where.columns, indices), column.index)
                    store_all(emitter, outputs)


def local_index(local: LocalIndex, where: Directions, width: int) -> Affine:
    """The position of an element in a local rectangle, whose rows are ``width`` apart."""
    column = linear([of(v) for v in where.columns], tuple(v.extent for v in where.columns))
    return of(local.row, width) + column + of(local.first, -1)


def write_rows(
    fn: Function, arrays: Sequence[Value], where: Directions, bounds: Bounds, local: LocalIndex, plan: Plan
) -> None:
    """Compute and store an epilogue over rows, for a rectangle of whole rows."""
    stores = [o for stage in plan.stages for o in stage.stores] + plan.row_stores
    nodes = plan.nodes + [n for stage in plan.stages for f in stage.reducers for n in f.initial]
    indices = indices_of(nodes, [o.offset for o in stores])
    inner = merged(plan.inner_variables, indices)
    emitter = emitter_of(fn, arrays, lanes_of_rows(plan, nodes, inner))
    with emitter.scope():
        emitter.bind_groups(merged(where.batch, indices), bounds.batch)
        with fn.loop(0, bounds.rows[1] - bounds.rows[0]) as row, emitter.scope():
            emitter.bind(local.row, row.index)
            emitter.bind_groups(merged(where.rows, indices), bounds.rows[0] + row.index)
            write_row(emitter, plan, inner)
