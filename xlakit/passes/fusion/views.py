"""Views: the elements of an instruction that a loop nest reads, by which fusion estimates recomputation.

A nest iterates over the elements of its result and reads operands through slices, concatenations and so on: a view
gives the range of elements in each dimension. Uses of an instruction through one view share the computed value; it is
computed once for each different view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from xlakit.ir.attributes import WindowDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.dot import Dot
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow


class Span(NamedTuple):
    """The elements ``start + stride * i`` of a dimension, where ``i`` is below ``length`` and counted by ``loop``.

    start: None if it is known only at run time, or is not one number.
    """

    start: int | None
    stride: int
    length: int
    loop: Hashable


View = tuple[Span, ...]
Views = tuple[View, ...]


class Part(NamedTuple):
    """A part of a loop from iteration ``first`` on: a nest of its own, with a fixed set of views."""

    loop: Hashable
    first: int


class Loop:
    """A loop that is not over the results: of a reduction, or of indices that no other loop counts.

    reduces: whether it is a reduction's, or is inside of one: what is computed there is computed for each iteration.
    branches: whether it is over what an interior padding lies between, or is inside of one: the code is in a branch.
    """

    __slots__ = ("branches", "reduces")

    def __init__(self, *, reduces: bool, branches: bool) -> None:
        self.reduces = reduces
        self.branches = branches


class Loops:
    """The loops of a computation, with one object for each.

    What loops count stands in views, and which loop it is hangs on a view: written out, the name of a loop in a chain
    of reductions would be twice as long for each of them.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Hashable, ...], Loop] = {}

    def of(self, *key: Hashable, within: View = (), reduces: bool = False, branches: bool = False) -> Loop:
        """The loop with the key ``key`` below the view ``within``."""
        found = self._made.get((key, within))
        if found is None:
            found = Loop(reduces=reduces or is_in_reduction(within), branches=branches or is_in_branch(within))
            self._made[key, within] = found
        return found


def is_in_reduction(view: View) -> bool:
    """Whether what is seen is computed inside of the loops of a reduction, a window or a product."""
    return any(isinstance(loop, Loop) and loop.reduces for loop in map(_loop_of, view))


def is_in_branch(view: View) -> bool:
    """Whether what is seen is computed in the branch of an interior padding, of which nothing outside is the same."""
    return any(isinstance(loop, Loop) and loop.branches for loop in map(_loop_of, view))


def _loop_of(span: Span) -> Hashable:
    return span.loop.loop if isinstance(span.loop, Part) else span.loop


_ONE = Span(0, 0, 1, None)
_SINGLE = WindowDimension(size=1)


def whole(sizes: Sequence[int], loop: Hashable) -> View:
    """All elements of an array, by loops of their own."""
    return tuple(span(0, 1, size, (loop, d)) for d, size in enumerate(sizes))


def span(start: int | None, stride: int, length: int, loop: Hashable) -> Span:
    """A span; that of one element at a known index has no loop."""
    return Span(start, 0, 1, None) if length == 1 and start is not None else Span(start, stride, length, loop)


def elements(view: View) -> int:
    """The number of elements of a view."""
    return math.prod([s.length for s in view])


def borders(view: View) -> list[tuple[Hashable, int]]:
    """The cuts of loops between which a view is either always read or never: loops with iterations."""
    found: list[tuple[Hashable, int]] = []
    for s in view:
        if isinstance(s.loop, Part):
            loop, first = s.loop
            found += [(loop, first), (loop, first + s.length)]
    return found


def views_of_operand(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    """Through which views an operand is seen by a reader that sees ``user`` through ``view``; more than one, or none,
    where the elements come from several operands.
    """
    rule = _RULES.get(user.opcode)
    if rule is not None:
        return rule(user, number, view, loops)
    sizes = user.operands[number].shape.dimensions
    if sizes == user.shape.dimensions and len(view) == len(sizes):
        return (view,)
    return (whole(sizes, loops.of(user, number, within=view)),)


def reduced_size(user: Instruction, number: int) -> int:
    """The number of elements of an operand that are combined to one of ``user``; 1 where one is read."""
    sizes = user.operands[number].shape.dimensions
    if isinstance(user.op, Dot):
        return math.prod(sizes[d] for d in (user.op.lhs_contracting_dims, user.op.rhs_contracting_dims)[number])
    if number >= len(user.operands) // 2:
        return 1
    if isinstance(user.op, Reduce):
        return math.prod(sizes[d] for d in user.op.dimensions)
    return math.prod(d.size for d in user.op.window.dimensions) if isinstance(user.op, ReduceWindow) else 1


def _slice(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    ranges = user.op_as(Slice).slice
    return (
        tuple(
            Span(r.start + s.start * r.stride, s.stride * r.stride, s.length, s.loop)
            if s.start is not None
            else Span(None, s.stride * r.stride, s.length, loops.of(r.start, r.stride, within=(s,)))
            for s, r in zip(view, ranges, strict=True)
        ),
    )


def _reverse(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    turned = user.op_as(Reverse).dimensions
    sizes = user.shape.dimensions
    return (
        tuple(
            s
            if d not in turned
            else Span(sizes[d] - 1 - s.start, -s.stride, s.length, s.loop)
            if s.start is not None
            else Span(None, -s.stride, s.length, loops.of("reversed", within=(s,)))
            for d, s in enumerate(view)
        ),
    )


def _transpose(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    found = dict(zip(user.op_as(Transpose).dimensions, view, strict=True))
    return (tuple(found[d] for d in range(len(view))),)


def _broadcast(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    sizes = user.operands[0].shape.dimensions
    dimensions = user.op_as(Broadcast).dimensions
    return (tuple(view[d] if size != 1 else _ONE for d, size in zip(dimensions, sizes, strict=True)),)


def _reshape(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    sizes, others = user.shape.dimensions, user.operands[0].shape.dimensions
    own = [d for d, size in enumerate(sizes) if size != 1]
    proper = [d for d, size in enumerate(others) if size != 1]
    found = [_ONE] * len(others)
    # Dimensions that stay, from the front and from the back.
    while own and proper and sizes[own[0]] == others[proper[0]]:
        found[proper.pop(0)] = view[own.pop(0)]
    while own and proper and sizes[own[-1]] == others[proper[-1]]:
        found[proper.pop()] = view[own.pop()]
    if own:
        regrouped = [view[d] for d in own]
        run = _run([sizes[d] for d in own], regrouped, loops)
        if len(proper) == 1 and run is not None:
            found[proper[0]] = run
        else:
            for position, d in enumerate(proper):
                is_all = all(
                    s.start == 0 and s.stride == 1 and s.length == sizes[o] for s, o in zip(regrouped, own, strict=True)
                )
                names = (position,) if is_all else (user, position)
                found[d] = span(0, 1, others[d], loops.of(*names, within=tuple(regrouped)))
    return (tuple(found),)


def _run(sizes: Sequence[int], spans: Sequence[Span], loops: Loops) -> Span | None:
    """Where the elements lie in the dimensions joined to one, if that is one after the other."""
    first, *rest = spans
    if first.start is None or first.stride not in (0, 1):
        return None
    if any(s.start != 0 or s.length != size for s, size in zip(rest, sizes[1:], strict=True)):
        return None
    inner = math.prod(sizes[1:])
    loop = loops.of("joined", within=tuple(spans))
    return Span(first.start * inner, 1, first.length * inner, loop)


def _cut(s: Span, begin: int, end: int, loops: Loops) -> Span | None:
    """The part of a span that lies from ``begin`` to before ``end``, counted from ``begin``; None where none does."""
    if s.start is None:
        return Span(None, s.stride, s.length, loops.of("from", begin, within=(s,)))
    last = s.start + s.stride * (s.length - 1)
    if begin <= min(s.start, last) and max(s.start, last) < end:
        return Span(s.start - begin, s.stride, s.length, s.loop)
    if max(s.start, last) < begin or min(s.start, last) >= end or not s.stride:
        return None
    low, high = (begin, end - 1) if s.stride > 0 else (end - 1, begin)
    first = max(0, -(-(low - s.start) // s.stride))
    final = min(s.length - 1, (high - s.start) // s.stride)
    if first > final:
        return None
    loop, before = s.loop if isinstance(s.loop, Part) else (s.loop, 0)
    # A part of one iteration stays one: its border is still a border.
    return Span(s.start + s.stride * first - begin, s.stride, final - first + 1, Part(loop, before + first))


def _concatenate(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    dimension = user.op_as(Concatenate).dimension
    sizes = [o.shape.dimensions[dimension] for o in user.operands]
    begin = sum(sizes[:number])
    part = _cut(view[dimension], begin, begin + sizes[number], loops)
    return () if part is None else ((*view[:dimension], part, *view[dimension + 1 :]),)


def _pad(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    operand = user.operands[0].shape
    if number:
        return ((),)
    found: list[Span] = []
    for s, p, size in zip(view, user.op_as(Pad).padding, operand.dimensions, strict=True):
        if p.interior_padding:
            part: Span | None = Span(None, 1, min(s.length, size), loops.of(p, within=(s,), branches=True))
        else:
            part = _cut(s, p.edge_padding_low, p.edge_padding_low + size, loops)
        if part is None:
            return ()
        found.append(part)
    return (tuple(found),)


def _dynamic_slice(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    if number:
        return (whole(user.operands[number].shape.dimensions, loops.of(user, number)),)
    bounds, sizes = user.operands[0].shape.dimensions, user.shape.dimensions
    return (
        tuple(
            s if size == bound else Span(None, s.stride, s.length, loops.of(user, within=(s,)))
            for s, size, bound in zip(view, sizes, bounds, strict=True)
        ),
    )


def _update(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    """Only the elements that are written are computed."""
    return (whole(user.operands[number].shape.dimensions, loops.of(user, number)),)


def _gather(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    # As many elements of the operand as of the result, and no more indices than that.
    sizes, loop = user.operands[number].shape.dimensions, loops.of(user, within=view)
    if number:
        return (whole(sizes, loop),)
    first = Span(None, 1, elements(view), loop)
    return ((first, *[Span(None, 0, 1, loop)] * (len(sizes) - 1)) if sizes else (),)


def _dot(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    """The tracer opens loops for each view of the product; both operands are seen through them."""
    op = user.op_as(Dot)
    batches = (op.lhs_batch_dims, op.rhs_batch_dims)[number]
    contracted = (op.lhs_contracting_dims, op.rhs_contracting_dims)[number]
    sizes = user.operands[number].shape.dimensions
    known = dict(zip(batches, view, strict=False))
    known |= {d: span(0, 1, sizes[d], loops.of(user, k, within=view, reduces=True)) for k, d in enumerate(contracted)}
    of_lhs = user.operands[0].shape.rank - len(op.lhs_contracting_dims)
    free = iter(view[len(batches) : of_lhs] if number == 0 else view[of_lhs:])
    return (tuple([known[d] if d in known else next(free) for d in range(len(sizes))]),)


def _reduce(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    if number >= len(user.operands) // 2:
        return ((),)
    over = user.op_as(Reduce).dimensions
    kept = iter(view)
    sizes = user.operands[number].shape.dimensions
    return (
        tuple(
            [
                span(0, 1, size, loops.of(user, d, within=view, reduces=True)) if d in over else next(kept)
                for d, size in enumerate(sizes)
            ]
        ),
    )


def _window(user: Instruction, number: int, view: View, loops: Loops) -> Sequence[View]:
    if number >= len(user.operands) // 2:
        return ((),)
    dimensions = user.op_as(ReduceWindow).window.dimensions
    return (
        tuple(
            s if d == _SINGLE else Span(None, 1, s.length * d.size, loops.of(user, within=(s,), reduces=True))
            for s, d in zip(view, dimensions, strict=True)
        ),
    )


_RULES: dict[str, Callable[[Instruction, int, View, Loops], Sequence[View]]] = {
    "slice": _slice,
    "reverse": _reverse,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "concatenate": _concatenate,
    "pad": _pad,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _update,
    "gather": _gather,
    "dot": _dot,
    "reduce": _reduce,
    "reduce-window": _window,
}
