"""Views: the elements of an instruction that the loops of a fusion read; they tell how often it is recomputed.

The loops of a fusion run over the elements of its result. They read each instruction inside at indices that are
functions of the loop variables; a view describes these indices, with a span for each dimension.

    a = f32[8] exponential(x)
    low = f32[4] slice(a), slice={[0:4]}
    high = f32[4] slice(a), slice={[4:8]}
    ROOT sum = f32[4] add(low, high)

Here is one loop, ``i < 4``. It reads ``sum``, ``low`` and ``high`` at ``i``, but ``a`` through two views, at ``i`` and
at ``4 + i``: the code of the exponential is emitted twice. Readers with the same view share one computed value.

If indices are no linear function of a loop variable (gathers, joined dimensions), or if an operation loops over its
operand (reductions), the span has a loop of its own. Views are equal if their spans are equal, with the same loops.
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


class Loop:
    """The loop that counts the iterations of a span, compared by identity.

    dimension: the dimension of the results that it runs over; None for other loops.
    reduces: whether it is inside of a reduction, where each iteration computes the instruction again.
    branches: whether its code is in the conditional branch of an interior padding, which reads only some iterations.
    """

    __slots__ = ("branches", "dimension", "reduces")

    def __init__(self, dimension: int | None, *, reduces: bool, branches: bool) -> None:
        self.dimension = dimension
        self.reduces = reduces
        self.branches = branches


class Span(NamedTuple):
    """The elements ``start + stride * i`` of a dimension, where ``i`` is below ``length`` and counted by ``loop``.

    start: None if it is known only at run time, or is not one number.
    first: the first iteration that reads, if only a part of the loop does (as for an operand of a concatenation).
    """

    start: int | None
    stride: int
    length: int
    loop: Loop | None
    first: int | None = None


View = tuple[Span, ...]

# So many times fewer elements, adjacent or gathered, take less time than the whole array: an index that is computed for
# each of them is a quotient and a remainder, four operations (a product, its shifted half, a product, a difference).
_FEW = 4
_ONE = Span(0, 0, 1, None)
_SINGLE = WindowDimension(size=1)


class Loops:
    """The loops of a computation, each found by a key (such as an instruction and a number) and the view around it.

    An inner loop is identified by the view of its outer loops, an object, because a written-out key would double in
    length with each reduction of a chain.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[Hashable, ...], View], Loop] = {}

    def over_results(self, dimension: int) -> Loop:
        """The loop over a dimension of the results; all clusters share it, so that their views can be compared."""
        return self._made.setdefault((("results", dimension), ()), Loop(dimension, reduces=False, branches=False))

    def of(self, *key: Hashable, within: View = (), reduces: bool = False, branches: bool = False) -> Loop:
        """The loop with the key ``key`` below the view ``within``."""
        loop = self._made.get((key, within))
        if loop is None:
            loop = Loop(None, reduces=reduces or is_in_reduction(within), branches=branches or is_in_branch(within))
            self._made[key, within] = loop
        return loop

    def whole(self, sizes: Sequence[int], *key: Hashable, within: View = ()) -> View:
        """The view of all elements of an array, with separate loops, which count as outside of reductions."""
        view: list[Span] = []
        for d, size in enumerate(sizes):
            loop = self._made.setdefault(((*key, d), within), Loop(None, reduces=False, branches=False))
            view.append(span(0, size, loop))
        return tuple(view)


def span(start: int, length: int, loop: Loop) -> Span:
    """The span of ``length`` adjacent elements from a known index; a span of one element has no loop."""
    return Span(start, 0, 1, None) if length == 1 else Span(start, 1, length, loop)


def is_in_reduction(view: View) -> bool:
    """Whether the elements of a view are computed inside of the loops of a reduction, a window or a product."""
    return any(s.loop is not None and s.loop.reduces for s in view)


def is_in_branch(view: View) -> bool:
    """Whether the elements of a view are computed in the branch of an interior padding, and so shared with no code
    outside.
    """
    return any(s.loop is not None and s.loop.branches for s in view)


def elements(view: View) -> int:
    """The number of elements of a view."""
    return math.prod([s.length for s in view])


def borders(view: View) -> list[tuple[Loop, int]]:
    """The loops and iterations at which reading a view begins and ends."""
    parts = [(s.loop, s.first, s.length) for s in view]
    return [
        (loop, iteration)
        for loop, first, length in parts
        if loop is not None and first is not None
        for iteration in (first, first + length)
    ]


class _Read(NamedTuple):
    """The read of operand ``number`` by an instruction that is itself read through ``view``."""

    user: Instruction
    number: int
    view: View
    loops: Loops

    @property
    def sizes(self) -> tuple[int, ...]:
        """The dimensions of the operand."""
        return self.user.operands[self.number].shape.dimensions

    @property
    def is_initial(self) -> bool:
        """Whether the operand is an initial value of a reduction; these follow the arrays."""
        return self.number >= len(self.user.operands) // 2


def view_of_operand(user: Instruction, number: int, view: View, loops: Loops) -> View | None:
    """The view of operand ``number`` if ``user`` is read through ``view``; None if no element is read."""
    rule = _RULES.get(user.opcode)
    if rule is not None:
        return rule(_Read(user, number, view, loops))
    sizes = user.operands[number].shape.dimensions
    if sizes == user.shape.dimensions and len(view) == len(sizes):
        return view
    return loops.whole(sizes, user, number, within=view)


def _slice(read: _Read) -> View:
    return tuple(
        Span(r.start + s.start * r.stride, s.stride * r.stride, s.length, s.loop, s.first)
        if s.start is not None
        else Span(None, s.stride * r.stride, s.length, read.loops.of(r.start, r.stride, within=(s,)))
        for s, r in zip(read.view, read.user.op_as(Slice).slice, strict=True)
    )


def _reverse(read: _Read) -> View:
    spans = list(read.view)
    for d in read.user.op_as(Reverse).dimensions:
        s = spans[d]
        if s.start is not None:
            spans[d] = Span(read.sizes[d] - 1 - s.start, -s.stride, s.length, s.loop, s.first)
        else:
            spans[d] = Span(None, -s.stride, s.length, read.loops.of("reversed", within=(s,)))
    return tuple(spans)


def _transpose(read: _Read) -> View:
    spans = dict(zip(read.user.op_as(Transpose).dimensions, read.view, strict=True))
    return tuple(spans[d] for d in range(len(read.view)))


def _broadcast(read: _Read) -> View:
    dimensions = read.user.op_as(Broadcast).dimensions
    return tuple(read.view[d] if size != 1 else _ONE for d, size in zip(dimensions, read.sizes, strict=True))


def _reshape(read: _Read) -> View:
    """Dimensions that are unchanged, from the front and the back, keep their spans; those between get new ones."""
    view, sizes, operand_sizes = read.view, read.user.shape.dimensions, read.sizes
    result_dims = [d for d, size in enumerate(sizes) if size != 1]
    proper = [d for d, size in enumerate(operand_sizes) if size != 1]
    spans = [_ONE] * len(operand_sizes)
    while result_dims and proper and sizes[result_dims[0]] == operand_sizes[proper[0]]:
        spans[proper.pop(0)] = view[result_dims.pop(0)]
    while result_dims and proper and sizes[result_dims[-1]] == operand_sizes[proper[-1]]:
        spans[proper.pop()] = view[result_dims.pop()]
    if not result_dims or not proper:
        return tuple(spans)
    regrouped = tuple([view[d] for d in result_dims])
    joined = _joined([sizes[d] for d in result_dims], regrouped, read.loops)
    if len(proper) == 1 and joined is not None:
        spans[proper[0]] = joined
        return tuple(spans)
    if all((s.start, s.stride, s.length) == (0, 1, sizes[d]) for s, d in zip(regrouped, result_dims, strict=True)):
        for position, d in enumerate(proper):
            spans[d] = span(0, operand_sizes[d], read.loops.of(position, within=regrouped))
        return tuple(spans)
    # Indices that are quotients and remainders, or unknown: no loop can be cut where they leave a part of the operand.
    # The number of elements is in the dimension that is the last to be left out.
    count, whole = elements(regrouped), math.prod([operand_sizes[d] for d in proper])
    is_gathered = any(s.start is None for s in regrouped)
    if elements(view) * _FEW > math.prod(sizes) or not (is_gathered or joined is not None):
        # Elements that lie apart, or at indices that are computed for each, take as long as those between them.
        count = max(count, whole)
    loop, longest = read.loops.of(read.user, within=regrouped), max(proper, key=operand_sizes.__getitem__)
    for d in proper:
        spans[d] = Span(None, 1, count, loop) if d == longest else Span(None, 0, 1, loop)
    return tuple(spans)


def _joined(sizes: Sequence[int], spans: View, loops: Loops) -> Span | None:
    """The span of the elements in one dimension that joins several, if they are adjacent there; else None."""
    first, *rest = spans
    if first.start is None or first.stride not in (0, 1):
        return None
    if any(s.start != 0 or s.length != size for s, size in zip(rest, sizes[1:], strict=True)):
        return None
    inner = math.prod(sizes[1:])
    return Span(first.start * inner, 1, first.length * inner, loops.of("joined", within=spans))


def _part(s: Span, begin: int, end: int, loops: Loops) -> Span | None:
    """The part of a span in [begin, end), with indices relative to ``begin``; None if it is empty."""
    if s.start is None:
        return Span(None, s.stride, s.length, loops.of("from", begin, within=(s,)))
    last = s.start + s.stride * (s.length - 1)
    if begin <= min(s.start, last) and max(s.start, last) < end:
        return Span(s.start - begin, s.stride, s.length, s.loop, s.first)
    if max(s.start, last) < begin or min(s.start, last) >= end or not s.stride:
        return None
    low, high = (begin, end - 1) if s.stride > 0 else (end - 1, begin)
    first = max(0, -(-(low - s.start) // s.stride))
    final = min(s.length - 1, (high - s.start) // s.stride)
    if first > final:
        return None
    # A part of one iteration keeps its loop, unlike in span(): its borders cut the loop.
    return Span(s.start + s.stride * first - begin, s.stride, final - first + 1, s.loop, (s.first or 0) + first)


def _concatenate(read: _Read) -> View | None:
    dimension = read.user.op_as(Concatenate).dimension
    begin = sum(o.shape.dimensions[dimension] for o in read.user.operands[: read.number])
    part = _part(read.view[dimension], begin, begin + read.sizes[dimension], read.loops)
    return None if part is None else (*read.view[:dimension], part, *read.view[dimension + 1 :])


def _pad(read: _Read) -> View | None:
    if read.number:
        return ()
    spans: list[Span] = []
    for s, p, size in zip(read.view, read.user.op_as(Pad).padding, read.sizes, strict=True):
        if p.interior_padding:
            part = Span(None, 1, min(s.length, size), read.loops.of(p, within=(s,), branches=True))
        else:
            part = _part(s, p.edge_padding_low, p.edge_padding_low + size, read.loops)
        if part is None:
            return None
        spans.append(part)
    return tuple(spans)


def _dynamic_slice(read: _Read) -> View:
    user = read.user
    if read.number:
        return read.loops.whole(read.sizes, user, read.number)
    return tuple(
        s if size == bound else Span(None, s.stride, s.length, read.loops.of(user, within=(s,)))
        for s, size, bound in zip(read.view, user.shape.dimensions, read.sizes, strict=True)
    )


def _update(read: _Read) -> View:
    """The whole update operand: only the elements that are written are computed."""
    return read.loops.whole(read.sizes, read.user, read.number)


def _gather(read: _Read) -> View:
    """One element of the operand for each element of the result, at unknown indices."""
    if read.number:
        return read.loops.whole(read.sizes, read.user, within=read.view)
    loop = read.loops.of(read.user, within=read.view)
    first = Span(None, 1, elements(read.view), loop)
    return (first, *[Span(None, 0, 1, loop)] * (len(read.sizes) - 1)) if read.sizes else ()


def _dot(read: _Read) -> View:
    """Code generation makes loops over the contracted dimensions for each view of the product, shared by operands."""
    user, view, op = read.user, read.view, read.user.op_as(Dot)
    batches = (op.lhs_batch_dims, op.rhs_batch_dims)[read.number]
    contracted = (op.lhs_contracting_dims, op.rhs_contracting_dims)[read.number]
    known = dict(zip(batches, view, strict=False))
    for k, d in enumerate(contracted):
        known[d] = span(0, read.sizes[d], read.loops.of(user, k, within=view, reduces=True))
    of_lhs = user.operands[0].shape.rank - len(op.lhs_contracting_dims)
    free = iter(view[len(batches) : of_lhs] if read.number == 0 else view[of_lhs:])
    return tuple([known[d] if d in known else next(free) for d in range(len(read.sizes))])


def _reduce(read: _Read) -> View:
    if read.is_initial:
        return ()
    user, view, remaining = read.user, read.view, iter(read.view)
    over = user.op_as(Reduce).dimensions
    return tuple(
        [
            span(0, size, read.loops.of(user, d, within=view, reduces=True)) if d in over else next(remaining)
            for d, size in enumerate(read.sizes)
        ]
    )


def _window(read: _Read) -> View:
    if read.is_initial:
        return ()
    user = read.user
    return tuple(
        s if d == _SINGLE else Span(None, 1, s.length * d.size, read.loops.of(user, within=(s,), reduces=True))
        for s, d in zip(read.view, user.op_as(ReduceWindow).window.dimensions, strict=True)
    )


_RULES: dict[str, Callable[[_Read], View | None]] = {
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
