"""Rules for reshapes of padded arrays, which take the valid elements in row-major order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.ops.dynamic import CHECK_REGROUPING, CHECK_RESHAPE
from xlakit.ops.gather import Gather
from xlakit.ops.shared.regrouping import common_factors
from xlakit.passes.dynamic.padded_values import NoRuleError, Padded, PaddedRules, Padder, Size, array

REGROUPING = PaddedRules()
_rule = REGROUPING.rule

_MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Group:
    """Dimensions of the operand and of the result that hold the same elements: their bounds and their sizes."""

    bounds: tuple[int, ...]
    sizes: tuple[Size, ...]
    new_bounds: tuple[int, ...]
    new_sizes: tuple[Size, ...]

    @property
    def moves(self) -> bool:
        """Whether the reshape moves elements within the padded array."""
        return not (_is_prefix(self.bounds, self.sizes) and _is_prefix(self.new_bounds, self.new_sizes))


def _is_prefix(bounds: Sequence[int], sizes: Sequence[Size]) -> bool:
    """Whether the valid elements are a prefix of the memory: only the most major dimension has padding."""
    wide = [isinstance(size, int) for bound, size in zip(bounds, sizes, strict=True) if bound != 1]
    return all(wide[1:])


@_rule("reshape")
def reshape(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Each group of dimensions keeps its number of valid elements, which determines its one dynamic dimension."""
    (x,) = operands
    bounds, new_bounds = x.shape.dimensions, old.shape.dimensions
    marks = old.shape.dynamic_dimensions
    whole = tuple(make.size(x, d) for d in range(len(bounds)))
    if not any(marks):
        # A static result needs all elements, so no dimension may have padding: this is checked at run time.
        count, full = make.product(whole), x.shape.num_elements
        filled = make.compare(make.instruction(count), make.number(full), "EQ")
        _checked(filled, make.instruction(count), x, make)
        return Padded(make.at_bounds([x.value]))
    cuts = common_factors(bounds, new_bounds)
    pairs = list(itertools.pairwise(cuts))
    if any(_is_open(x, a, b) and not any(marks[a[1] : b[1]]) for a, b in pairs):
        # A dynamic size (such as one of bound 1) may have no dynamic dimension in its group of the result; then the
        # whole array becomes one group.
        pairs = [((0, 0), (len(bounds), len(new_bounds)))]
    groups: list[_Group] = []
    for (start, first), (end, last) in pairs:
        sizes = tuple(make.size(x, d) for d in range(start, end))
        new: tuple[Size, ...] = new_bounds[first:last]
        if not all(isinstance(size, int) for size in sizes):
            new = _sizes(make.product(sizes), new_bounds[first:last], marks[first:last], x, make)
        groups.append(_Group(bounds[start:end], sizes, new_bounds[first:last], new))
    return _regrouped(x.value, groups, make)


def _is_open(x: Padded, start: tuple[int, int], end: tuple[int, int]) -> bool:
    return any(d in x.dims for d in range(start[0], end[0]))


def _sizes(count: Size, bounds: Sequence[int], marks: Sequence[bool], x: Padded, make: Padder) -> tuple[Size, ...]:
    """The sizes of a group of dimensions that holds ``count`` elements of the operand ``x``."""
    dynamic = [d for d, mark in enumerate(marks) if mark]
    if len(dynamic) != 1:
        raise NoRuleError(f"a reshape that makes {len(dynamic)} dynamic dimensions out of one group of dimensions")
    fixed = math.prod(bound for bound, mark in zip(bounds, marks, strict=True) if not mark)
    sizes: list[Size] = list(bounds)
    if fixed:
        size = make.over(count, fixed)
        if fixed > 1 and x.shape.num_elements:
            rest = make.instruction(make.modulo(count, fixed))
            size = _checked(make.compare(rest, make.number(0), "EQ"), make.instruction(size), x, make)
        sizes[dynamic[0]] = size
    return tuple(sizes)


def _checked(holds: Instruction, size: Instruction, x: Padded, make: Padder) -> Instruction:
    """The size, after a run-time check of a condition on the sizes of the reshaped array ``x``."""
    own = make.row([make.size(x, d) for d in range(x.shape.rank)])
    result = make.old.shape
    known = [x.shape.dimensions, result.dimensions, result.dynamic_dimensions]
    facts = [make.constant(np.asarray(numbers, np.int32)) for numbers in known]
    return make.checked(holds, size, CHECK_REGROUPING, own, *facts)


@_rule("dynamic-reshape")
def dynamic_reshape(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The operands give the sizes of the result, which are checked at run time."""
    x, *given = operands
    bounds, marks = old.shape.dimensions, old.shape.dynamic_dimensions
    new: list[Size] = [n.value if mark else bound for n, bound, mark in zip(given, bounds, marks, strict=True)]
    sizes = tuple(make.size(x, d) for d in range(x.shape.rank))
    count, total = make.instruction(make.product(sizes)), make.instruction(make.product(new))
    holds = make.compare(count, total, "EQ")
    for size, bound in zip(new, bounds, strict=True):
        if not isinstance(size, int):
            holds = make.apply("and", holds, make.compare(size, make.number(0), "GE"))
            holds = make.apply("and", holds, make.compare(size, make.number(bound), "LE"))
    first = next((d for d, mark in enumerate(marks) if mark), None)
    facts = [count, make.row(new), make.row(bounds)]
    checked = make.checked(holds, count if first is None else make.instruction(new[first]), CHECK_RESHAPE, *facts)
    if first is not None:
        new[first] = checked
    return _regrouped(x.value, [_Group(x.shape.dimensions, sizes, bounds, tuple(new))], make)


def _regrouped(value: Instruction, groups: Sequence[_Group], make: Padder) -> Padded:
    """The array with the old dimensions of each group replaced by the new ones."""
    result = tuple(bound for group in groups for bound in group.new_bounds)
    if value.shape.num_elements:
        before = 1
        for group in groups:
            count = math.prod(group.bounds)
            if group.moves:
                flat = make.reshape(value, (before, count, value.shape.num_elements // (before * count)))
                value = _gathered(flat, _sources(group, make), make)
            before *= count
    sizes = [size for group in groups for size in group.new_sizes]
    dims = {d: size for d, size in enumerate(sizes) if not isinstance(size, int)}
    return array(make.reshape(value, result), dims)


def _gathered(x: Instruction, positions: Instruction, make: Padder) -> Instruction:
    """The elements at ``positions`` along the middle dimension; positions outside are clamped."""
    before, _, after = x.shape.dimensions
    gather = Gather(
        offset_dims=(0, 2),
        collapsed_slice_dims=(1,),
        start_index_map=(1,),
        index_vector_dim=1,
        slice_sizes=(before, 1, after),
    )
    return make.add(gather, x, positions)


def _sources(group: _Group, make: Padder) -> Instruction:
    """For each position of the group's result the position in its operand that the element comes from.

    Position -> number among the valid elements -> position in the operand.
    """
    count = math.prod(group.bounds)
    if count > _MOST_ELEMENTS:
        raise NoRuleError(f"a reshape of {count:,} elements, more than an s32 counts")

    position = make.positions((count,), 0)
    number = _renumbered(position, group.new_bounds, group.new_sizes, make)
    return _renumbered(number, group.sizes, group.bounds, make)


def _renumbered(number: Instruction, old: Sequence[Size], new: Sequence[Size], make: Padder) -> Instruction:
    """Row-major indices into dimensions of sizes ``old``, converted to row-major indices into sizes ``new``."""
    total: Instruction | None = None
    for d in range(len(old)):
        index = number
        step = make.product(old[d + 1 :])
        if step != 1:
            index = make.apply("divide", index, _spread(make.most(1, step), number, make))
        if d:
            index = make.apply("remainder", index, _spread(make.most(1, old[d]), number, make))
        stride = make.product(new[d + 1 :])
        if stride != 1:
            index = make.apply("multiply", index, _spread(stride, number, make))
        total = index if total is None else make.apply("add", total, index)
    return number if total is None else total


def _spread(size: Size, like: Instruction, make: Padder) -> Instruction:
    return make.broadcast(make.instruction(size), like.shape.dimensions)
