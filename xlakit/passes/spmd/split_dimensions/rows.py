"""Rows of a split dimension by index: gather, scatter, dynamic slices and updates of single rows.

Each member has some of the rows. It subtracts the index of its first row, and reads or writes only its own rows. A read
is the sum over the members, where members without the row contribute -0, which changes no bit of a number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import InternalError
from xlakit.ir.instruction import Instruction
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.elementwise.binary import Add, And
from xlakit.ops.elementwise.select import Clamp, Select
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Concatenate
from xlakit.ops.reduction import Reduce, identity_element
from xlakit.ops.scatter import Scatter
from xlakit.ops.shared.numerics import limits
from xlakit.passes.core.computation_builder import binary_computation
from xlakit.passes.spmd.pieces.emit import Emitter
from xlakit.passes.spmd.pieces.local import local_op, splits_of
from xlakit.passes.spmd.shardings.factors import Factors, factors_of
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, divides, joint_split, local_sizes, parts
from xlakit.passes.spmd.shardings.values import Piece, array_of
from xlakit.passes.spmd.split_dimensions.splitter import Splitter

# The factors of dimensions that are split by rows come after those of the rule.
_ROWS = 1_000


def gather(s: Splitter) -> Piece | None:
    """A gather from a table that is split along indexed dimensions; None if gathering the table is cheaper."""
    old, op, (table, indices), rule = s.old, s.old.op_as(Gather), s.given, factors_of(s.old)
    rows = _split_rows(table, [d for d in op.start_index_map if op.slice_sizes[d] == 1], s.scope)
    if rule is None or not rows or not can_be_added(old.shape):
        return None
    operands, (tiling,) = s.pieces.tilings_for(old, _with_rows(rule, rows, results=False), s.given, s.scope, first=rows)
    _, (free,) = s.tilings(rule, {})
    if not _is_cheaper(old, table, tiling, rows, indices.shape.byte_size if operands[1] != indices.tiling else 0):
        return None
    make, sizes = s.make, table.shape.dimensions
    numbers = _vectors(make, s.at(indices, operands[1]), op.index_vector_dim)
    numbers = _clamped(make, numbers, [sizes[d] - op.slice_sizes[d] for d in op.start_index_map], op.index_vector_dim)
    along = list(op.start_index_map)
    numbers = _shifted(s, numbers, op.index_vector_dim, along, table, rows)
    has = _all_inside(make, numbers, op.index_vector_dim, along, table, rows)
    shape = old.shape.with_dimensions(local_sizes(tiling, old.shape.dimensions))
    local = [s.at(table, operands[0]), numbers]
    made = make.like(old, local_op(old, operands, [tiling]), local, shape)
    batch = [d for d in range(shape.rank) if d not in op.offset_dims]
    found = _read(s, made, make.broadcast(has, shape.dimensions, batch), tiling, rows)
    return s.pieces.retiled(found, free, s.scope) if free != tiling else found


def scatter(s: Splitter) -> Piece | None:
    """A scatter into a table that is split along indexed dimensions: each member changes its own rows.

    Indices of other members' rows are out of bounds of its part, so the scatter drops them.
    """
    old, hint, op, rule = s.old, s.hint, s.old.op_as(Scatter), factors_of(s.old)
    if rule is None:
        return None
    table, indices, updates = s.given
    single = [d for d in op.scatter_dims_to_operand_dims if d in op.inserted_window_dims]
    rows = _split_rows(table, single, s.scope)
    if (
        not rows
        and hint is not None
        and table.scope == s.scope
        and table.is_whole
        and divides(hint, table.shape.dimensions)
    ):
        rows = {_ROWS + d: split for d in single if (split := hint[d]) is not None}
    if not rows:
        return None
    factors = _with_rows(rule, rows, results=True)
    operands, _ = s.pieces.tilings_for(old, factors, s.given, s.scope, first=rows)
    if updates.tiling != operands[2] and updates.shape.byte_size > 2 * table.shape.byte_size:
        return None
    numbers = _vectors(s.make, s.at(indices, operands[1]), op.index_vector_dim)
    along = list(op.scatter_dims_to_operand_dims)
    split_table = dataclasses.replace(table, tiling=operands[0])
    numbers = _shifted(s, numbers, op.index_vector_dim, along, split_table, rows)
    tiling = (*operands[1], None)[: numbers.shape.rank]
    shifted = Piece(numbers, tiling, s.scope, numbers.shape)
    local = old.replace(op=dataclasses.replace(op, indices_are_sorted=False))
    if numbers.shape.rank > indices.shape.rank:
        dims = (*factors.operands[1], None)
        factors = dataclasses.replace(factors, operands=(factors.operands[0], dims, factors.operands[2]))
    return array_of(s.pieces.in_parts(local, [table, shifted, updates], s.scope, factors, splits_of(factors, operands)))


def dynamic_slice(s: Splitter) -> Piece | None:
    """A dynamic slice of a single row, or column."""
    old, rule, (table, *starts) = s.old, factors_of(s.old), s.given
    sizes = old.op_as(DynamicSlice).dynamic_slice_sizes
    rows = _split_rows(table, [d for d, size in enumerate(sizes) if size == 1], s.scope)
    if rule is None or not rows or not can_be_added(old.shape):
        return None
    operands, (tiling,) = s.pieces.tilings_for(old, _with_rows(rule, rows, results=False), s.given, s.scope, first=rows)
    if not _is_cheaper(old, table, tiling, rows, 0):
        return None
    numbers, has = _row(s, starts, table, rows)
    local = [s.at(table, operands[0]), *numbers]
    shape = old.shape.with_dimensions(local_sizes(tiling, old.shape.dimensions))
    made = s.make.like(old, local_op(old, operands, [tiling]), local, shape)
    return _read(s, made, s.make.broadcast(has, shape.dimensions), tiling, rows)


def dynamic_update_slice(s: Splitter) -> Piece | None:
    """A dynamic update of a single row: the member that has the row replaces it."""
    old, rule, (table, update, *starts) = s.old, factors_of(s.old), s.given
    rows = _split_rows(table, [d for d, size in enumerate(update.shape.dimensions) if size == 1], s.scope)
    if rule is None or not rows:
        return None
    operands, (tiling,) = s.pieces.tilings_for(old, _with_rows(rule, rows, results=True), s.given, s.scope, first=rows)
    numbers, has = _row(s, starts, table, rows)
    make, part, new = s.make, s.at(table, operands[0]), s.at(update, operands[1])
    present = make.add(DynamicSlice(dynamic_slice_sizes=new.shape.dimensions), part, *numbers)
    new = make.add(Select(), make.broadcast(has, new.shape.dimensions), new, present)
    made = make.like(old, DynamicUpdateSlice(), [part, new, *numbers], part.shape)
    return Piece(made, tiling, s.scope, old.shape)


# -- split rows and costs ----------------------------------------------------------------------------


def _split_rows(table: Piece, single: Sequence[int], scope: Scope) -> dict[int, Split]:
    """The splits of the dimensions along which single rows are indexed, by their factors."""
    if table.scope != scope or table.unreduced is not None:
        return {}
    sizes = table.shape.dimensions
    return {_ROWS + d: split for d in single if (split := table.tiling[d]) is not None and sizes[d] >= parts(split)}


def _with_rows(rule: Factors, rows: dict[int, Split], *, results: bool) -> Factors:
    """A rule with additional factors for the rows of the first operand and, with ``results``, of the result."""
    operand = tuple(_ROWS + d if _ROWS + d in rows else f for d, f in enumerate(rule.operands[0]))
    result = tuple(_ROWS + d if _ROWS + d in rows else f for d, f in enumerate(rule.results[0]))
    return dataclasses.replace(
        rule, operands=(operand, *rule.operands[1:]), results=(result,) if results else rule.results
    )


def _is_cheaper(old: Instruction, table: Piece, tiling: Tiling, rows: dict[int, Split], brought: int) -> bool:
    """Whether summing the results sends less than gathering the rows of the table; brought: additional bytes sent."""
    count = math.prod(parts(split) for split in rows.values())
    others = math.prod(map(parts, table.tiling)) // count
    result = math.prod(local_sizes(tiling, old.shape.dimensions)) * old.shape.element_type.byte_width
    return brought + 2 * result <= table.shape.byte_size // others


def can_be_added(shape: Shape) -> bool:
    """Whether a type has a number that changes no bit when added; some formats have no zero."""
    kind = shape.element_type
    return kind is not PrimitiveType.PRED and kind.bit_width >= 8 and identity_element(Add(), kind) is not None


def _read(s: Splitter, made: Instruction, has: Instruction, tiling: Tiling, rows: dict[int, Split]) -> Piece:
    """The partial sums of a read: each member has the rows that it read, and -0 for others."""
    make = s.make
    nothing = make.broadcast(make.additive_identity(made.shape.element_type), made.shape.dimensions)
    chosen = make.add(Select(), has, made, nothing)
    return Piece(chosen, tiling, s.scope, s.old.shape, unreduced=joint_split(rows.values(), s.scope.size))


# -- indices of rows ---------------------------------------------------------------------------------


def _vectors(make: Emitter, indices: Instruction, vector: int) -> Instruction:
    """Indices with a dimension for index vectors, of a type that holds the differences of row indices."""
    kind, sizes = indices.shape.element_type, indices.shape.dimensions
    if kind.bit_width < 32:
        indices = make.convert(indices, PrimitiveType.S32)
    return make.reshape(indices, (*sizes, 1)) if vector == len(sizes) else indices


def _along_vectors(make: Emitter, like: Instruction, vector: int, numbers: Sequence[int]) -> Instruction:
    """One number for each component of the index vectors, broadcast to the shape of ``like``, saturated to its type."""
    kind = like.shape.element_type
    _, largest = limits(kind)
    row = make.constant(np.asarray([min(n, largest) for n in numbers], kind.dtype))
    return make.broadcast(row, like.shape.dimensions, [vector])


def _clamped(make: Emitter, numbers: Instruction, highest: Sequence[int], vector: int) -> Instruction:
    """The indices clamped as by a gather from the whole table: those outside become the nearest inside."""
    low = _along_vectors(make, numbers, vector, [0] * len(highest))
    return make.add(Clamp(), low, numbers, _along_vectors(make, numbers, vector, highest))


def _shifted(
    s: Splitter, numbers: Instruction, vector: int, along: Sequence[int], table: Piece, rows: dict[int, Split]
) -> Instruction:
    """The indices relative to the first row of each member."""
    make, kind = s.make, numbers.shape.element_type
    lengths = local_sizes(table.tiling, table.shape.dimensions)
    firsts: list[Instruction] = []
    for d in along:
        split = rows.get(_ROWS + d)
        first = make.scalar(0, PrimitiveType.S32)
        if split is not None:
            first = make.number([part * lengths[d] for part in split], s.scope)
        firsts.append(make.reshape(make.convert(first, kind), (1,)))
    row = firsts[0] if len(firsts) == 1 else make.add(Concatenate(dimension=0), *firsts)
    return make.apply("subtract", numbers, make.broadcast(row, numbers.shape.dimensions, [vector]))


def _all_inside(
    make: Emitter, numbers: Instruction, vector: int, along: Sequence[int], table: Piece, rows: dict[int, Split]
) -> Instruction:
    """For each index vector whether a member has the rows, given indices that are inside of the table."""
    sizes = table.shape.dimensions
    lengths = [own if _ROWS + d in rows else sizes[d] for d, own in enumerate(local_sizes(table.tiling, sizes))]
    low = _along_vectors(make, numbers, vector, [0] * len(along))
    high = _along_vectors(make, numbers, vector, [lengths[d] for d in along])
    inside = make.add(And(), make.compare(numbers, low, "GE"), make.compare(numbers, high, "LT"))
    rest = [size for d, size in enumerate(inside.shape.dimensions) if d != vector]
    if len(along) == 1:
        return make.reshape(inside, rest)
    both = binary_computation("all-inside", And(), PrimitiveType.PRED, make.context)
    return make.add(Reduce(dimensions=(vector,), to_apply=both), inside, make.scalar(True, PrimitiveType.PRED))


def _row(
    s: Splitter, starts: Sequence[Piece], table: Piece, rows: dict[int, Split]
) -> tuple[list[Instruction], Instruction]:
    """The start indices of a row in a member's part, and whether the part has the row."""
    make, sizes = s.make, table.shape.dimensions
    lengths = local_sizes(table.tiling, sizes)
    found: list[Instruction] = []
    has: Instruction | None = None
    for d, piece in enumerate(starts):
        start, split = s.at(piece, ()), rows.get(_ROWS + d)
        kind = start.shape.element_type if start.shape.element_type.bit_width >= 32 else PrimitiveType.S32
        start = make.convert(start, kind)
        if split is None:
            found.append(start)
            continue
        zero = make.scalar(0, kind)
        start = make.add(Clamp(), zero, start, make.scalar(sizes[d] - 1, kind))
        first = make.convert(make.number([part * lengths[d] for part in split], s.scope), kind)
        start = make.apply("subtract", start, first)
        length = make.scalar(lengths[d], kind)
        own = make.add(And(), make.compare(start, zero, "GE"), make.compare(start, length, "LT"))
        has = own if has is None else make.add(And(), has, own)
        found.append(start)
    if has is None:
        raise InternalError("a row of a table that is not split along its rows")
    return found, has
