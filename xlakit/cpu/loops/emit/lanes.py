"""Innermost loops in vectors: several iterations are emitted as one, each value a vector with a lane for each of them.

Most loops over elements are simple enough: they read and write neighbors, and compute without branches. LLVM would
vectorize them in the same way, but takes more time for it than for the rest of a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from xlakit.cpu.llvm import Function, Value, vector
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.ir.index import Affine, Node, Opaque
from xlakit.cpu.loops.ir.nodes import (
    Apply,
    Bound,
    Given,
    Guarded,
    GuardedReduction,
    Load,
    Part,
    Position,
    Reduction,
    unconditional,
    walk,
)
from xlakit.cpu.loops.ir.reducer import neutral_number
from xlakit.cpu.scalars import Scalar, memory_type, register_type
from xlakit.cpu.scalars.division import divides_vectors
from xlakit.cpu.scalars.memory import PICKED, as_real
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError
from xlakit.ir.traits import Expensive, Transcendental
from xlakit.ops.elementwise.binary import Add, Divide, Mulhi, Power, Remainder
from xlakit.ops.elementwise.convert import BitcastConvert, StochasticConvert
from xlakit.ops.elementwise.elementary import Rsqrt, Sqrt
from xlakit.ops.elementwise.unary import Abs, Sign
from xlakit.ops.reduction import applied_op
from xlakit.options import is_plain, knob
from xlakit.target import vector_bytes

if TYPE_CHECKING:
    from xlakit.cpu.loops.emit.levels import Level, Output
    from xlakit.cpu.loops.ir.reducer import Reducer
    from xlakit.cpu.loops.ir.space import Group

# Writes one iteration of a loop: it stores outputs, and gives the next running values of reductions.
Body = Callable[[Sequence[Scalar]], Sequence[Scalar]]

# Operations that processors execute for one element at a time, or by a call.
_ALONE = (StochasticConvert, Mulhi)
_ALONE_OF_INTEGERS = (Power,)
_DIVISIONS = (Divide, Remainder)
# Fewer iterations than this do not pay for a vector of their own at the end of a loop.
LEAST_LANES = 4
# The most elementary functions that are left to LLVM to vectorize, which takes up to 0.1 s for each: where elements lie
# apart, its code takes half the time of vectors that are made of them one by one. A power counts as several.
_MOST_FUNCTIONS = knob("lanes.most_functions", 100, 0, 1 << 12)
_OF_POWER = 3
_ALONE_OF_COMPLEX = (BitcastConvert, StochasticConvert)


# -- which loops -----------------------------------------------------------------------------------


def lanes_of(
    group: Group, nodes: Sequence[Node], outputs: Sequence[Output], reducers: Sequence[Reducer] = (), times: int = 1
) -> int:
    """The lanes of the vectors of a loop that computes nodes and stores outputs; 1 if it has no vectors.

    times: how often the code would be written without vectors.
    """
    if is_plain("llvm"):
        return 1
    lane = group.variables[-1]
    all_nodes = list(walk(nodes))
    varying = [n for n in all_nodes if lane in n.variables]
    if any(isinstance(n, Reduction) and lane not in n.variables for n in all_nodes):
        return 1
    is_long = has_long_code(varying, times)
    if not all(_fits(n, group) or (is_long and isinstance(n, Load) and _is_apart(n.offset, group)) for n in varying):
        return 1
    if any(isinstance(n, Guarded) for n in all_nodes) and any(
        isinstance(n, Load) and not _is_along(n.offset, group) for n in varying
    ):
        # The address of a load that is not selected is clamped for vectors of neighbors.
        return 1
    if not all(_is_along(o.offset, group) or (is_long and _is_apart(o.offset, group)) for o in outputs):
        return 1
    if not all(_reduces_by_lanes(f) for f in reducers):
        return 1
    kinds = {o.kind for o in outputs} | {k for f in reducers for k in f.kinds}
    # A vector of elements as in memory fits one register, and a vector of elements as computed fits two.
    kinds |= {n.kind for n in varying if isinstance(n, Load)}
    if not kinds:
        return 1
    # Small integers are divided as F32, in at most two registers, as BF16 is.
    divided = {n.kind for n in varying if isinstance(n, Apply) and isinstance(n.op, _DIVISIONS)}
    kinds |= {k if k.is_integral and k.bit_width == 64 else PrimitiveType.BF16 for k in divided}
    # Operations on C64 other than sums and products are computed in F64.
    kinds |= {PrimitiveType.C128 for n in varying if isinstance(n, Apply) and _is_wide(n)}
    lanes = vector_bytes() // max(max(memory_type(k).bytes, register_type(k).bytes // 2) for k in kinds)
    # The vectors of short loops fill a half or a quarter of a register.
    while lanes > max(group.extent, LEAST_LANES):
        lanes //= 2
    return lanes if lanes <= group.extent else 1


def has_long_code(nodes: Iterable[Node], times: int = 1) -> bool:
    """Whether LLVM would not vectorize the code of nodes, written so many times, or take too long for it.

    Such vectors are better made of elements that lie apart.
    """
    found = [n for n in walk(nodes) if isinstance(n, Apply)]
    return any(map(_is_scalar_in_llvm, found)) or times * sum(map(_length, found)) > _MOST_FUNCTIONS.value


def _is_scalar_in_llvm(node: Apply) -> bool:
    kind = node.arguments[0].kind
    if isinstance(node.op, _DIVISIONS):
        return not kind.is_floating or isinstance(node.op, Remainder)
    return kind.is_complex and isinstance(node.op, Transcendental)


def _length(node: Apply) -> int:
    """The length of the code of an operation on real numbers, in elementary functions."""
    if isinstance(node.op, Power):
        return _OF_POWER
    return int(isinstance(node.op, Transcendental) and not isinstance(node.op, (Sqrt, Rsqrt)))


def picks(group: Group, nodes: Iterable[Node]) -> bool:
    """Whether vectors of a loop that has them pick elements from neighbors."""
    return any(isinstance(n, Load) and n.offset.factor_of(group.variables[-1]) > 1 for n in walk(nodes))


def _fits(node: Node, group: Group) -> bool:
    """Whether a node that differs between iterations can be computed in vectors."""
    if isinstance(node, Load):
        return _is_along(node.offset, group) or _is_picked(node, group)
    if isinstance(node, Position):
        return _is_regular(node.index, group)
    if isinstance(node, Apply):
        op, kind = node.op, node.arguments[0].kind
        alone = isinstance(op, _ALONE) or (isinstance(op, _ALONE_OF_INTEGERS) and not kind.is_floating)
        if isinstance(op, _DIVISIONS):
            calls = isinstance(op, Remainder) and kind is PrimitiveType.F64
            alone = calls if kind.is_floating else not divides_vectors(kind)
        if kind.is_complex or node.kind.is_complex:
            return not isinstance(op, _ALONE_OF_COMPLEX)
        return not alone
    if isinstance(node, Reduction):
        if isinstance(node, GuardedReduction) and not _are_fixed(node.bounds, group):
            return False
        op = applied_op(node.computation)
        return isinstance(op, Add) if any(i.kind.is_complex for i in node.inputs) else op is not None
    if isinstance(node, Guarded):
        return _are_fixed(node.bounds, group)
    return isinstance(node, (Given, Part))


def _is_wide(node: Apply) -> bool:
    """Whether an operation on complex numbers is computed in F64."""
    return node.arguments[0].kind.is_complex and isinstance(node.op, (Expensive, Abs, Sign))


def _are_fixed(bounds: Sequence[Bound], group: Group) -> bool:
    """Whether the bounds hold in all iterations of a loop, or in none."""
    return all(
        _is_regular(index, group) and not any(index.factor_of(v) for v in group.variables) for index, *_ in bounds
    )


def _is_along(offset: Affine, group: Group) -> bool:
    """Whether the elements of consecutive iterations of a loop are adjacent in memory."""
    return offset.factor_of(group.variables[-1]) == 1 and _is_regular(offset, group)


def _is_apart(offset: Affine, group: Group) -> bool:
    """Whether the elements of consecutive iterations of a loop are equally far apart in memory."""
    return offset.factor_of(group.variables[-1]) != 0 and _is_regular(offset, group)


def _is_picked(node: Load, group: Group) -> bool:
    """Whether consecutive iterations of a loop read elements that are one of few neighbors each."""
    is_near = node.offset.factor_of(group.variables[-1]) in PICKED
    return is_near and not node.kind.is_complex and _is_regular(node.offset, group)


def _is_regular(index: Affine, group: Group) -> bool:
    """Whether an index depends on a loop's variables linearly, and not through computed terms."""
    own = set(group.variables)
    return not any(isinstance(atom, Opaque) and atom.node.variables & own for atom, _ in index.terms)


def _reduces_by_lanes(reducer: Reducer) -> bool:
    """Whether the lanes of a vector may be reduced separately."""
    return applied_op(reducer.computation) is not None and not reducer.kinds[0].is_complex


# -- loops -----------------------------------------------------------------------------------------


class _VectorLoop:
    """The division of the iterations of a loop into vectors.

    origin: the number that is added to all numbers below. begin, whole: the range of the loop of vectors, which have
    ``width`` lanes each. pieces: the single vectors after this loop: where each begins, and its number of lanes. rest,
    end: the range of iterations that fill no vector; ``rest`` is None if there are none.
    """

    def __init__(self, emitter: Emitter, level: Level, wanted: int, least: int) -> None:
        """``least``: the lanes of the narrowest of the single vectors."""
        fn, lanes = emitter.fn, emitter.lanes
        begin, end = (fn.i64(n) if isinstance(n, int) else n for n in (level.begin, level.end))
        self.origin, self.begin, self.end = fn.i64(0), begin, end
        self.pieces: list[tuple[Value, int]] = []
        self.width = wanted
        if level.iterations:
            self._known(fn, begin, level.iterations, lanes, least)
            return
        while self.width > lanes and level.factor % self.width and level.factor % lanes == 0:
            self.width //= 2
        self.rest: Value | None = None
        self.whole = end
        if level.factor % self.width:
            self.rest = self.whole = end - ((end - begin) & (self.width - 1))

    def _known(self, fn: Function, begin: Value, count: int, lanes: int, least: int) -> None:
        self.origin, self.begin, self.end = begin, fn.i64(0), fn.i64(count)
        while self.width > max(lanes, count):
            self.width //= 2
        position = count - count % self.width
        self.whole = fn.i64(position)
        width = self.width // 2
        while width >= least:
            if position + width <= count:
                self.pieces.append((fn.i64(position), width))
                position += width
            width //= 2
        self.rest = fn.i64(position) if position < count else None


def _repeated(
    emitter: Emitter,
    span: tuple[Value, Value, int],
    running: Sequence[Value],
    iteration: Callable[[Value, Sequence[Value]], Sequence[Value]],
) -> Sequence[Value]:
    """A loop over the range (begin, end, step) of ``span``; without a loop if it has at most one iteration."""
    begin, end, step = span
    if begin.constant is not None and end.constant is not None and end.constant - begin.constant <= step:
        return iteration(begin, running) if begin.constant < end.constant else running
    with emitter.fn.loop(begin, end, step, carried=running) as loop, emitter.scope():
        loop.next(*iteration(loop.index, loop.carried))
    return loop.results


def _prepare(emitter: Emitter, group: Group, width: int, nodes: Iterable[Node], outputs: Sequence[Output]) -> None:
    """Hoist addresses, and numbers spread to lanes, that the vectors of a loop need and that do not change in it."""
    lane = group.variables[-1]
    always = set(walk(nodes, unconditional))
    for node in walk(nodes):
        if lane in node.variables:
            # A loop inside hoists values that change in the loops around it.
            if isinstance(node, Load) and emitter.is_open(node.variables - set(group.variables)):
                emitter.anchor(node.array, node.kind, node.offset, group)
            elif isinstance(node, Apply) and node in always:
                for argument in node.arguments:
                    if lane not in argument.variables and emitter.is_open(argument.variables):
                        emitter.spread(argument, width)
    for output in outputs:
        if not emitter.is_redirected(output.array):
            emitter.anchor(output.array, output.kind, output.offset, group)


def write_iterations(
    emitter: Emitter, level: Level, nodes: Sequence[Node], outputs: Sequence[Output], width: int, body: Body
) -> None:
    """A loop that computes nodes and stores outputs, as ``body`` does for one iteration."""
    reduce_iterations(emitter, level, (), nodes, outputs, width, body)


def reduce_iterations(
    emitter: Emitter,
    level: Level,
    running: Sequence[tuple[Reducer, Scalar]],
    nodes: Sequence[Node],
    outputs: Sequence[Output],
    width: int,
    body: Body,
    streams: int = 1,
) -> list[Scalar]:
    """Write a loop that combines the values of each iteration with running values, as ``body`` does for one iteration.

    running: each reduction, and its value before the loop; the values after the loop are given back. If there are
    outputs or running values, the body stores only ``outputs``, by code that leaves out :attr:`Emitter.stored` lanes.
    width: the number of lanes of its vectors. LLVM divides vectors longer than a register into several, which do not
    wait for one another. streams: the number of parts of the range that the loop reads side by side, each with its
    share of the lanes.
    """
    group = level.group

    def vectors(width: int, known: int = 0) -> Callable[[Value, Sequence[Value]], Sequence[Value]]:
        def iteration(index: Value, carried: Sequence[Value]) -> Sequence[Value]:
            with emitter.in_lanes(group.variables[-1], width, known):
                emitter.bind_group(group, split.origin + index)
                return [as_real(v) for v in body(carried)]

        return iteration

    def single(index: Value, carried: Sequence[Value]) -> Sequence[Value]:
        with emitter.scope():
            emitter.bind_group(group, split.origin + index)
            return [as_real(v) for v in body(carried)]

    reducers = [reducer for reducer, _ in running]
    results: Sequence[Value] = [as_real(before) for _, before in running]
    with emitter.scope():
        # The last iterations are a vector that overlaps others, or narrower vectors.
        overlaps = bool(running or outputs) and level.iterations >= emitter.lanes
        split = _VectorLoop(emitter, level, width, emitter.lanes if overlaps else min(emitter.lanes, LEAST_LANES))
        streams = streams if split.width == width else 1
        _prepare(emitter, group, split.width // streams, nodes, outputs)
        rest = split.rest
        last: list[Value] = []
        # The overlapping vector is computed first: if a result is in the memory of an operand, a load of elements that
        # two stores have just written would wait until both are in the cache, in each row.
        if rest is not None and overlaps:
            count = level.iterations - int(rest.constant or 0)
            lanes = min(emitter.lanes, max(LEAST_LANES, 1 << (count - 1).bit_length()))
            last = _last(emitter, level.iterations, reducers, vectors(lanes, lanes - count), (lanes, lanes - count))
            rest = None
        sums = _in_streams(emitter, split, reducers, streams, vectors)
        for position, lanes in split.pieces:
            made = vectors(lanes)(position, [_neutral(emitter, f, lanes) for f in reducers])
            sums = [_wider(emitter, f, a, b) for f, a, b in zip(reducers, sums, made, strict=True)]
        if last:
            sums = [_wider(emitter, f, a, b) for f, a, b in zip(reducers, sums, last, strict=True)]
        results = [_reduced_with(emitter, f, r, s) for f, r, s in zip(reducers, results, sums, strict=True)]
        if rest is not None:
            results = _repeated(emitter, (rest, split.end, 1), results, single)
    return list(results)


def _in_streams(
    emitter: Emitter,
    split: _VectorLoop,
    reducers: Sequence[Reducer],
    streams: int,
    vectors: Callable[[int], Callable[[Value, Sequence[Value]], Sequence[Value]]],
) -> Sequence[Value]:
    """The loop of whole vectors, which takes a vector from each of some equal parts of its range at a time."""
    lanes, count = split.width // streams, len(reducers)
    length = (split.whole - split.begin).integer("udiv", streams)

    def iteration(index: Value, carried: Sequence[Value]) -> Sequence[Value]:
        made: list[Value] = []
        for n in range(streams):
            made += vectors(lanes)(index + length * n, carried[n * count : (n + 1) * count])
        return made

    start = [_neutral(emitter, f, lanes) for f in reducers] * streams
    sums = list(_repeated(emitter, (split.begin, split.begin + length, lanes), start, iteration))
    while len(sums) > count:
        half = len(sums) // 2
        pairs = zip(sums[:half], sums[half:], strict=True)
        sums = [_both(emitter, reducers[n % count], a, b) for n, (a, b) in enumerate(pairs)]
    return sums


def _last(
    emitter: Emitter,
    count: int,
    reducers: Sequence[Reducer],
    iteration: Callable[[Value, Sequence[Value]], Sequence[Value]],
    size: tuple[int, int],
) -> list[Value]:
    """The values of the last iterations, from one vector; lanes that other vectors compute are set to the identity.

    size: the number of lanes, and how many of them other vectors compute: these are neither stored nor reduced.
    """
    fn, (lanes, known) = emitter.fn, size
    neutral = [_neutral(emitter, f, lanes) for f in reducers]
    made = iteration(fn.i64(count - lanes), neutral)
    return [
        fn.shuffle(new, nothing, [n + lanes * (n < known) for n in range(lanes)])
        for new, nothing in zip(made, neutral, strict=True)
    ]


def _neutral(emitter: Emitter, reducer: Reducer, lanes: int) -> Value:
    """A vector of the reducer's identity."""
    kind = reducer.kinds[0]
    op = applied_op(reducer.computation)
    if op is None:
        raise InternalError(f"{reducer.computation.name} is reduced in vectors, but is no operation with an identity")
    return emitter.fn.constant(vector(register_type(kind), lanes), neutral_number(op, kind))


def _both(emitter: Emitter, reducer: Reducer, a: Value, b: Value) -> Value:
    return as_real(emitter.combined(reducer.computation, [a], [b])[0])


def _narrowed(emitter: Emitter, reducer: Reducer, sums: Value, lanes: int) -> Value:
    """A vector whose lanes are reduced to ``lanes`` lanes, at least two."""
    while sums.type.lanes > lanes:
        half = sums.type.lanes // 2
        sums = _both(emitter, reducer, *(emitter.fn.shuffle(sums, sums, range(k, k + half)) for k in (0, half)))
    return sums


def _wider(emitter: Emitter, reducer: Reducer, sums: Value, more: Value) -> Value:
    """Two vectors reduced to one, which has the lanes of the narrower one."""
    lanes = min(sums.type.lanes, more.type.lanes)
    return _both(emitter, reducer, *(_narrowed(emitter, reducer, v, lanes) for v in (sums, more)))


def _reduced_with(emitter: Emitter, reducer: Reducer, running: Value, sums: Value) -> Value:
    """The running value and all lanes of a vector, reduced to one value."""
    pair = _narrowed(emitter, reducer, sums, 2)
    first, second = (emitter.fn.lane(pair, number) for number in (0, 1))
    return _both(emitter, reducer, running, _both(emitter, reducer, first, second))
