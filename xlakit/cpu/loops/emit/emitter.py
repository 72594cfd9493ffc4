"""Writes nodes as code: each node is computed once, in the outermost loop in which it can be.

An emitter has a stack of scopes, which are blocks of the code that it writes: loops, branches, vectors of iterations. A
scope has the values that are known in it, and says how nodes are written there; both end with it. Nothing else about an
emitter changes while it writes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from xlakit.cpu.llvm import I1, I64, Function, Value, integer, vector
from xlakit.cpu.llvm.promises import REASSOCIATES
from xlakit.cpu.loops.emit.fused import product_and_sum, quotient, rotation
from xlakit.cpu.loops.emit.guards import UNROLLED, prefers_selects, reads
from xlakit.cpu.loops.emit.iterations import Iterations, VectorIterations
from xlakit.cpu.loops.emit.scope import Redirection, Scope
from xlakit.cpu.loops.ir.index import Affine, Node, Opaque, Variable
from xlakit.cpu.loops.ir.nodes import (
    Apply,
    Bound,
    ClampedIndex,
    Constant,
    Divided,
    Given,
    Guarded,
    GuardedReduction,
    JoinBits,
    Load,
    Part,
    Position,
    Reduction,
    SplitBits,
    indices_of,
    unconditional,
)
from xlakit.cpu.loops.ir.space import Group, Space, merged
from xlakit.cpu.loops.ir.tracer import Tracer
from xlakit.cpu.scalars import Scalar, apply, constant, load, register_type, select
from xlakit.cpu.scalars.convert import join_bits, split_bits
from xlakit.cpu.scalars.memory import (
    all_parts,
    as_real,
    element_type,
    from_parts,
    load_every,
    parts,
    regrouped,
    rounded,
)
from xlakit.cpu.scalars.real import BINARY
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError
from xlakit.ir.instruction import Computation
from xlakit.ops.elementwise.binary import Add, Multiply
from xlakit.ops.reduction import applied_op
from xlakit.options import knob
from xlakit.target import has_feature

# In code that calls math functions, reductions of at most this many iterations are not offered to LLVM's vectorizer.
_FEW_ITERATIONS = knob("emitter.few_iterations", 64, 0)
# The lanes of a vector whose condition is a register of AVX-512.
_WIDTHS_OF_MASKS = (8, 16, 32, 64)
# Each step of a reduction waits for the one before; four interleaved ones keep the processor busy.
INTERLEAVED = ('"llvm.loop.interleave.count", i32 4',)


class Emitter:
    """Writes nodes into a function. ``arrays`` are the pointers that loads refer to by number.

    lanes: the least number of lanes of vectors in innermost loops; 1 if LLVM is to vectorize the loops.
    """

    def __init__(self, fn: Function, arrays: Sequence[Value], lanes: int = 1) -> None:
        self.fn = fn
        self.arrays = list(arrays)
        self.lanes: Final = lanes
        self._scopes = [Scope({})]

    # -- scopes ----------------------------------------------------------------------------------

    @contextmanager
    def scope(self, **changes: Any) -> Generator[None]:
        """Forget at the end the values that are computed in the block, such as those of a loop or a branch.

        changes: fields of the scope that differ from those of the scope around it.
        """
        self._scopes.append(self._scopes[-1]._replace(values={}, **changes))
        yield
        self._scopes.pop()

    @contextmanager
    def redirecting(self, redirected: Mapping[int, Redirection]) -> Generator[None]:
        """Write some arrays, which are given by number, to buffers."""
        with self.scope(redirected={**self._scopes[-1].redirected, **redirected}):
            yield

    def bind(self, key: Any, value: Any) -> None:
        """Set the value of a variable, of a node, or of the key of a Given, until the scope ends."""
        self._scopes[-1].values[key] = value

    def bind_group(self, group: Group, index: Value) -> None:
        """Set the variables of a merged loop: the minor one to the index, the others to 0, as they are contiguous."""
        for variable in group.variables[:-1]:
            self.bind(variable, self.fn.i64(0))
        self.bind(group.variables[-1], index)

    def bind_groups(self, groups: Sequence[Group], number: Value) -> None:
        """Set the variables of nested loops, the last of which is the innermost, for an iteration of all of them."""
        for position, group in reversed(list(enumerate(groups))):
            self.bind_group(group, number.integer("urem", group.extent) if position else number)
            if position:
                number = number.integer("udiv", group.extent)

    def _find(self, key: Any) -> Any:
        for scope in reversed(self._scopes):
            if key in scope.values:
                return scope.values[key]
        return None

    # -- values ----------------------------------------------------------------------------------

    def value(self, node: Node) -> Scalar:
        """The scalar of a node, computed here if it is not known yet."""
        found = self._find(node)
        if found is None:
            found = self._compute(node)
            self._scopes[-1].values[node] = found
        return found

    @contextmanager
    def in_lanes(self, variable: Variable, width: int, stored: int = 0) -> Generator[None]:
        """Emit ``width`` iterations of the loop of a variable at once: nodes that depend on it are vectors inside.

        stored: the number of the first iterations whose results have been stored before, and are not stored again.
        """
        with self.scope(iterations=VectorIterations(variable, width, stored)):
            yield

    @property
    def _iterations(self) -> Iterations:
        return self._scopes[-1].iterations

    @property
    def width(self) -> int:
        """The number of iterations that are emitted at once: the lanes of vectors, or 1."""
        return self._iterations.width

    @property
    def stored(self) -> int:
        """The number of first iterations, of those emitted at once, whose results have been stored before."""
        return self._iterations.stored

    def lane_values(self, node: Node) -> Scalar:
        """The value of a node for each iteration that is emitted; a vector with all lanes if several are."""
        return self._iterations.everywhere(self, node)

    def step_of(self, offset: Affine) -> int:
        """The distance, in memory, between the elements that neighboring lanes write."""
        return self._iterations.step_of(offset)

    def _operand(self, node: Node, operand: Node) -> Scalar:
        return self._scopes[-1].iterations.operand(self, node, operand)

    def spread(self, node: Node, width: int) -> Scalar:
        """A vector with the value of a node in each lane."""
        found = self._find((node, width))
        if found is None:
            found = from_parts(tuple(self._spread(part, width) for part in parts(self.value(node))))
            self.bind((node, width), found)
        return found

    def _spread(self, one: Value, width: int) -> Value:
        if one.constant is not None:
            return self.fn.constant(vector(one.type, width), one.constant)
        if one.type is I1 and width in _WIDTHS_OF_MASKS and has_feature("avx512bw"):
            # Of a condition that is inserted into a vector and spread, LLVM negates the vector, and then spreads its
            # first lane by way of a vector register.
            return one.cast("sext", integer(width)).bits_as(vector(I1, width))
        return self.fn.splat(one, width)

    def index(self, affine: Affine) -> Value:
        """The value of an index; in vectors, the value of the first lane."""
        found = self._find(affine)
        if found is not None:
            return found
        total: Value | None = None
        for atom, factor in affine.terms:
            term = self._atom(atom)
            if term.constant == 0:
                continue
            scaled = term * factor
            total = scaled if total is None else total + scaled
        if total is None:
            total = self.fn.i64(affine.constant)
        elif affine.constant:
            total = total + affine.constant
        self._scopes[-1].values[affine] = total
        return total

    def address(self, array: int, offset: Affine) -> tuple[Value, Value]:
        """The address of an element, as a base pointer and a number of elements."""
        found = self._find((array, offset))
        if found is not None:
            base, variable, factor = found
            return base, self.variable(variable) * factor
        return self.arrays[array], self.index(offset)

    def is_redirected(self, array: int) -> bool:
        """Whether elements of an array are written to a buffer."""
        return array in self._scopes[-1].redirected

    def write_address(self, array: int, offset: Affine) -> tuple[Value, Value]:
        """As :meth:`address`, for an element that is written: it is in the buffer if the array is redirected."""
        target = self._scopes[-1].redirected.get(array)
        return self.address(array, offset) if target is None else (target.buffer, self.index(offset) - target.first)

    def anchor(self, array: int, kind: PrimitiveType, offset: Affine, group: Group) -> None:
        """Compute, before a loop over a group, the part of an element's address that is the same in all iterations."""
        rest = Affine(tuple(term for term in offset.terms if term[0] not in group.variables), offset.constant)
        base = self.fn.at(self.arrays[array], element_type(kind), self.index(rest))
        self.bind((array, offset), (base, group.variables[-1], offset.factor_of(group.variables[-1])))

    def _atom(self, atom: Variable | Opaque) -> Value:
        return as_real(self.value(atom.node)) if isinstance(atom, Opaque) else self.variable(atom)

    def variable(self, variable: Variable) -> Value:
        """The current value of a loop variable; raises InternalError outside of its loop."""
        found = self._find(variable)
        if found is None:
            raise InternalError(f"the loop of {variable} is not open")
        return found

    def is_open(self, variables: Iterable[Variable]) -> bool:
        """Whether code is emitted inside the loops of all these variables."""
        return all(self._find(v) is not None for v in variables)

    def _compute(self, node: Node) -> Scalar:
        """Emit the code of a node that has no value yet where code is being emitted."""
        fn = self.fn
        if isinstance(node, Load):
            return self._load(node)
        if isinstance(node, Apply):
            fused = product_and_sum(node)
            if fused is not None:
                values = [as_real(self._operand(node, n)) for n in fused]
                return fn.intrinsic("llvm.fmuladd", values[0].type, *values)
            rotated = rotation(node)
            if rotated is not None:
                number, places = as_real(self._operand(node, rotated[0])), rotated[1]
                return fn.intrinsic("llvm.fshl", number.type, number, number, fn.constant(number.type, places))
            operands = [self._operand(node, a) for a in node.arguments]
            made = quotient(node, operands)
            if made is None:
                made = apply(fn, node.op, [a.kind for a in node.arguments], node.kind, operands)
            self._iterations.check(node, made)
            return made
        if isinstance(node, Constant):
            return constant(fn, node.kind, node.value)
        if isinstance(node, Position):
            return self._iterations.position(fn, node, self.index(node.index).resized(register_type(node.kind)))
        if isinstance(node, Guarded):
            return self._guarded(node)
        if isinstance(node, Part):
            return self._reduction(node.reduction)[node.number]
        if isinstance(node, ClampedIndex):
            return self._clamped(node)
        if isinstance(node, Divided):
            return self.index(node.index).integer("urem" if node.is_remainder else "udiv", node.size)
        if isinstance(node, SplitBits):
            return split_bits(fn, node.source.kind, node.kind, self.value(node.source), self.index(node.number))
        if isinstance(node, JoinBits):
            return join_bits(fn, node.pieces[0].kind, node.kind, [self.value(p) for p in node.pieces])
        if isinstance(node, Given):
            found = self._find(node.key)
            if found is None:
                raise InternalError(f"{node.key} is not given")
            return found
        raise InternalError(f"no code is made for {type(node).__name__}")

    def _load(self, node: Load) -> Scalar:
        width, stride = self._iterations.width_of(node), self._iterations.stride_of(node)
        place = (
            self._clamped_address(node, width) if self._scopes[-1].selects else self.address(node.array, node.offset)
        )
        if stride == 1:
            return load(self.fn, node.kind, *place, width)
        ends = node.count is None or node.offset.bounds[1] + stride > node.count
        return load_every(self.fn, node.kind, place, stride, width, ends=ends)

    def _clamped(self, node: ClampedIndex) -> Value:
        fn, kind = self.fn, node.source.kind
        value = as_real(self.value(node.source))
        if kind.bit_width > 64 or not kind.is_integral:
            raise InternalError(f"an index of {kind.hlo_name}")
        wide = value.resized(I64, signed=kind.is_signed)
        limit = fn.constant(I64, node.limit)
        if kind.is_signed:
            return wide.smax(0).smin(limit)
        return wide.umin(limit)

    def within(self, bounds: Iterable[Bound]) -> Value | None:
        """A condition that indices are within their bounds; None if that is known at compile time."""
        condition: Value | None = None
        for affine, low, high, step in bounds:
            index = self.index(affine)
            least, greatest = affine.bounds
            tests: list[Value] = []
            if least < low:
                tests.append(index >= low)
            if greatest > high:
                tests.append(index <= high)
            if step > 1:
                tests.append((index - low).integer("srem", step).eq(0))
            for test in tests:
                condition = test if condition is None else condition & test
        return condition

    def _guarded(self, node: Guarded) -> Scalar:
        condition = self.within(node.bounds)
        if condition is None:
            return self._operand(node, node.inside)
        selects = self._scopes[-1].selects
        # Only nodes that read memory must not be computed where their condition does not hold.
        if selects or not (reads(node.inside) or reads(node.outside)):
            return self._selected(node, condition)
        # The outermost condition decides for all conditions below it.
        if selects is None and prefers_selects(node, self.width):
            # Outside of this scope, a load that is clamped here may be a plain one.
            with self.scope(selects=True):
                return self._selected(node, condition)

        def branch(one: Node) -> tuple[Value, ...]:
            with self.scope(selects=False):
                return parts(self._operand(node, one))

        return from_parts(self.fn.if_else(condition, lambda: branch(node.inside), lambda: branch(node.outside)))

    def _selected(self, node: Guarded, condition: Value) -> Scalar:
        return select(self.fn, condition, self._operand(node, node.inside), self._operand(node, node.outside))

    def _clamped_address(self, node: Load, width: int) -> tuple[Value, Value]:
        """The address of a load that may be out of bounds, clamped to the array; its value is not selected then."""
        low, high = node.offset.bounds
        # The bounds hold where the load's condition does. Elsewhere variables and clamped indices are within their
        # bounds too, but an index that is divided may be negative, and its quotient is then far beyond its extent.
        is_bounded = not any(isinstance(a, Opaque) and isinstance(a.node, Divided) for a, _ in node.offset.terms)
        if node.count is None or (is_bounded and low >= 0 and high + width <= node.count):
            return self.address(node.array, node.offset)
        index = self.index(node.offset)
        last = self.fn.constant(I64, node.count - width)
        index = index.smax(0)
        return self.arrays[node.array], index.smin(last)

    # -- reductions -----------------------------------------------------------------------------------

    def _reduction(self, reduction: Reduction) -> list[Scalar]:
        found = self._find(reduction)
        if found is None:
            initial = [self._operand(reduction, node) for node in reduction.initial]
            iterations = 1
            for variable in reduction.over:
                iterations *= variable.extent
            found = self.reduced(reduction, initial, unrolled=iterations <= UNROLLED.value)
            self.bind(reduction, found)
        return found

    def reduced(self, reduction: Reduction, initial: list[Scalar], *, unrolled: bool) -> list[Scalar]:
        """The results of a reduction, all of whose loops are emitted here."""
        bounds = reduction.bounds if isinstance(reduction, GuardedReduction) else ()
        if all(variable.extent for variable in reduction.over):
            self._hoist_bounds(bounds, self.bound_variables())
        if unrolled:
            running = self._unrolled(reduction, list(reduction.over), initial, bounds)
        else:
            groups = merged(reduction.over, indices_of(reduction.inputs, [b[0] for b in bounds]))
            known = self.bound_variables()
            running = self._looped(reduction, groups, initial, bounds, known)
        return [
            r if init.kind.is_complex else rounded(self.fn, init.kind, as_real(r))
            for init, r in zip(reduction.initial, running, strict=True)
        ]

    def bound_variables(self) -> set[Variable]:
        """The variables of all loops that are open."""
        return {key for scope in self._scopes for key in scope.values if isinstance(key, Variable)}

    def _unrolled(
        self, reduction: Reduction, over: list[Variable], running: list[Scalar], bounds: Sequence[Bound]
    ) -> list[Scalar]:
        if not over:
            return self._iteration(reduction, running, bounds)
        for number in range(over[0].extent):
            with self.scope():
                self.bind(over[0], self.fn.i64(number))
                running = self._unrolled(reduction, over[1:], running, bounds)
        return running

    def _looped(
        self,
        reduction: Reduction,
        groups: Sequence[Group],
        running: list[Scalar],
        bounds: Sequence[Bound],
        known: set[Variable],
    ) -> list[Scalar]:
        """Loops over the remaining groups of a reduction's variables; gives the running values after them."""
        if not groups:
            return self._iteration(reduction, running, bounds)
        group, *inner = groups
        independent = not inner and not (self.fn.calls_math and group.extent <= _FEW_ITERATIONS.value)
        hints = INTERLEAVED if independent else ()
        with (
            self.fn.loop(0, group.extent, carried=all_parts(running), independent=independent, hints=hints) as loop,
            self.scope(),
        ):
            self.bind_group(group, loop.index)
            known = known | set(group.variables)
            if not bounds:
                self.hoist(reduction.inputs, known)
            next_values = self._looped(reduction, inner, regrouped(loop.carried, running), bounds, known)
            loop.next(*all_parts(next_values))
        return regrouped(loop.results, running)

    def _iteration(self, reduction: Reduction, running: list[Scalar], bounds: Sequence[Bound]) -> list[Scalar]:
        """One iteration of all loops of a reduction; running values stay as they are where it is out of bounds."""

        def inside() -> list[Value]:
            with self.scope():
                values = [self._operand(reduction, n) for n in reduction.inputs]
                return all_parts(self.combined(reduction.computation, running, values))

        condition = self.within(bounds)
        made = inside() if condition is None else self.fn.if_else(condition, inside, lambda: all_parts(running))
        return regrouped(made, running)

    def combined(self, computation: Computation, running: list[Scalar], values: list[Scalar]) -> list[Scalar]:
        """One step of a reduction. Sums and products may reassociate, and narrow floats are not rounded in between."""
        op = applied_op(computation)
        kind = computation.parameters[0].shape.element_type
        if op is None or (kind.is_complex and not isinstance(op, Add)):
            return self.called(computation, [*running, *values])
        pairs = zip(parts(running[0]), parts(values[0]), strict=True)
        self.fn.fast_math = REASSOCIATES if isinstance(op, (Add, Multiply)) else ""
        made = [BINARY[op.opcode](self.fn, kind.real_part, a, b) for a, b in pairs]
        self.fn.fast_math = ""
        return [from_parts(tuple(made))]

    def called(self, computation: Computation, arguments: Sequence[Scalar]) -> list[Scalar]:
        """The results of a computation on scalars, emitted inline."""
        keys = list(computation.parameters)
        tracer = Tracer({p: (lambda _, __, p=p: Given(p.shape.element_type, p)) for p in keys}, Space({}))
        root = computation.root
        count = len(root.shape.tuple_shapes) if root.shape.is_tuple else 1
        nodes = [tracer.element(root, (), k) for k in range(count)]
        with self.scope():
            for key, argument in zip(keys, arguments, strict=True):
                self.bind(key, argument)
            return [self.value(node) for node in nodes]

    # -- hoisting --------------------------------------------------------------------------------

    def hoist(self, roots: Iterable[Node], known: set[Variable] | frozenset[Variable]) -> None:
        """Emit here, before an inner loop, the nodes below ``roots`` that depend on no variables but ``known``."""
        seen: set[Node] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in seen or self._find(node) is not None:
                continue
            seen.add(node)
            if node.variables <= known and not isinstance(node, (Constant, Given, Reduction)):
                self.value(node)
            else:
                stack.extend(unconditional(node))

    def _hoist_bounds(self, bounds: Iterable[Bound], known: set[Variable]) -> None:
        """Emit, before a loop, the computed parts of indices whose bounds its iterations check."""
        self.hoist((atom.node for index, *_ in bounds for atom, _ in index.terms if isinstance(atom, Opaque)), known)
