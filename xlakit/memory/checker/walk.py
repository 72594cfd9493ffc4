"""The checker: walks through HLO and the lowered steps side by side, and tracks the values in each slice of memory.

It is modeled on the checker of a register allocator (regalloc2's): the plan says where values are, HLO says which value
each step reads, and a symbolic run shows whether they agree. The walk visits the instructions in the order of their
computation, together with the steps that compute them. It has no analysis of live ranges or aliases: a step that
overwrites a value too early is found when a later step reads that value.

A loop is walked until the contents before an iteration reach a fixed point: the intersection of the contents before the
first and after every iteration. After a conditional, the contents are the intersection of those of all branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.memory.checker.contents import NOTHING, ConstantValues, Contents, Tree, Value, arrays, new_tree
from xlakit.memory.checker.faults import MemoryPlanError
from xlakit.memory.checker.memory import Actor, Memory, Slice
from xlakit.memory.steps import (
    CollectiveStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    NumberStep,
    RandomStep,
    Step,
    WhileStep,
)
from xlakit.memory.values import HloValue
from xlakit.ops.communication.async_pairs import DONES, TUPLE_STARTS
from xlakit.ops.communication.asynchronous import AsyncStart, AsyncUpdate
from xlakit.ops.communication.collective_pairs import (
    AllReduceDone,
    AllReduceStart,
)
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.custom_call import is_unwritten
from xlakit.ops.data import (
    AddDependency,
    AfterAll,
    Constant,
    Copy,
    GetTupleElement,
    OptimizationBarrier,
    Parameter,
    Tuple,
)
from xlakit.ops.elementwise.convert import Bitcast
from xlakit.ops.movement import Reshape
from xlakit.ops.random import Rng

_SAME = (Reshape, Bitcast, Copy, OptimizationBarrier, AddDependency, AsyncUpdate, AllReduceDone)
# The result is the second element of the start's tuple; the first is the operand.
_DONES = tuple(DONES[start] for start in TUPLE_STARTS)

# The slice of a value, or of its first bytes if a number is given.
SliceOf = Callable[[HloValue, int | None], Slice]
# The reason why a kernel may not write result ``i`` over operand ``j``, given (step, i, j); empty if it may.
Refusal = Callable[[KernelStep | CollectiveStep | HostStep, int, int], str]
# Whether a collective's result is its operand on every device.
IsIdentity = Callable[[Instruction], bool]


@dataclass(slots=True)
class _Cursor:
    """A list of steps, and the position in it."""

    steps: Sequence[Step]
    next: int = 0

    def step(self) -> Step | None:
        """The next step."""
        return self.steps[self.next] if self.next < len(self.steps) else None


@dataclass(slots=True)
class _Frame:
    """One call of a computation."""

    arguments: Sequence[Tree]
    values: dict[Instruction, Tree] = field(default_factory=dict[Instruction, Tree])
    # states: the random state that an instruction draws from. started: for each async pair the step of its start, which
    # the step of its done must match.
    states: dict[Instruction, Value] = field(default_factory=dict[Instruction, Value])
    started: dict[Instruction, tuple[CollectiveStep, Actor]] = field(
        default_factory=dict[Instruction, tuple[CollectiveStep, Actor]]
    )
    # The starts whose results Python holds until their dones.
    kept: set[Instruction] = field(default_factory=set[Instruction])


class Walk:
    """Walks through a program's steps."""

    def __init__(self, slice_of: SliceOf, constants: ConstantValues, refusal: Refusal, is_identity: IsIdentity) -> None:
        self.memory = Memory()
        self._slice_of = slice_of
        self._constants = constants
        self._refusal = refusal
        self._is_identity = is_identity
        self._live: dict[Computation, frozenset[Instruction]] = {}

    def run(self, computation: Computation, arguments: Sequence[Tree], steps: Sequence[Step]) -> Tree:
        """Walk a computation that has its own list of steps; gives the value of its root."""
        cursor, before = _Cursor(steps), self.memory.pending
        value = self._computation(computation, arguments, cursor)
        self._copies(cursor)
        step = cursor.step()
        if step is not None:
            raise _fault("stands where no instruction of HLO asks for it", _actor(step))
        if self.memory.pending != before:
            rule = "is not awaited where its computation ends"
            raise _fault(rule, Actor(f"an asynchronous operation of {computation.name}", None))
        return value

    # -- computations ----------------------------------------------------------------------------

    def _computation(self, computation: Computation, arguments: Sequence[Tree], cursor: _Cursor) -> Tree:
        """Walk through HLO and steps side by side: an instruction consumes the next step if that implements it."""
        frame = _Frame(arguments)
        live = self._live_in(computation)
        for instruction in computation.instructions:
            self._copies(cursor)
            step = cursor.step()
            if step is not None and _is_for(step, instruction):
                frame.values[instruction] = self._value_of_step(instruction, frame, cursor)
            elif instruction in live:
                frame.values[instruction] = self._value_without_step(instruction, frame, cursor)
        if frame.kept:
            raise _fault("is not awaited where its computation ends", Actor(f"{frame.kept.pop().name}", None))
        return frame.values[computation.root]

    def _live_in(self, computation: Computation) -> frozenset[Instruction]:
        """The instructions that the result or an effect needs; only these have steps."""
        found = self._live.get(computation)
        if found is None:
            live: set[Instruction] = set()
            stack = [computation.root, *(i for i in computation.instructions if i.op.has_side_effect)]
            while stack:
                instruction = stack.pop()
                if instruction not in live:
                    live.add(instruction)
                    stack.extend(instruction.operands)
            found = self._live[computation] = frozenset(live)
        return found

    def _value_without_step(self, instruction: Instruction, frame: _Frame, cursor: _Cursor) -> Tree:
        """The value of an instruction without a step: a name of another value, or the result of a computation."""
        op = instruction.op
        if isinstance(op, Parameter):
            return frame.arguments[op.number]
        if isinstance(op, Constant):
            return self.constant(op.literal)
        operands = [frame.values[o] for o in instruction.operands]
        if isinstance(op, GetTupleElement):
            return _part(operands[0], op.index)
        if isinstance(op, Tuple):
            return tuple(operands)
        if isinstance(op, AfterAll):
            return None
        if isinstance(op, _SAME):
            return operands[0]
        if isinstance(op, _DONES):
            return _part(operands[0], 1)
        if isinstance(op, Call):
            return self._computation(op.to_apply, operands, cursor)
        if isinstance(op, Fusion):
            return self._computation(op.calls, operands, cursor)
        collective, inputs = _collective(instruction, operands)
        if self._is_identity(collective):
            return _started(instruction, operands, tuple(inputs) if _result_of(collective).is_tuple else inputs[0])
        step = cursor.step()
        rule = f"stands where HLO has {op.opcode} %{instruction.name}, which has no step"
        raise MemoryPlanError(rule, step=str(_actor(step)) if step else "the end", instruction=instruction)

    def constant(self, literal: Literal) -> Tree:
        """The value of a literal."""
        if literal.shape.is_tuple:
            return tuple(map(self.constant, literal.elements))
        return self._constants.of(literal.array) if literal.shape.is_array else None

    # -- steps -----------------------------------------------------------------------------------

    def _copies(self, cursor: _Cursor) -> None:
        step = cursor.step()
        while isinstance(step, CopyStep):
            target = self._slice_of(step.target, None)
            self.memory.copy(self._slice_of(step.source, target.end - target.begin), target, _actor(step))
            cursor.next += 1
            step = cursor.step()

    def _value_of_step(self, instruction: Instruction, frame: _Frame, cursor: _Cursor) -> Tree:
        """The value of an instruction that the next step computes."""
        step = cursor.steps[cursor.next]
        cursor.next += 1
        actor = _actor(step)
        if isinstance(step, RandomStep) and isinstance(instruction.op, Rng):
            state = frame.states[instruction] = Value(step.state.bytes, instruction, (), "the state for")
            self._write(step.state, state, actor)
            return self._value_of_step(instruction, frame, cursor)
        operands = [frame.values[o] for o in instruction.operands]
        if isinstance(step, WhileStep):
            return self._while(step, operands[0])
        if isinstance(step, ConditionalStep):
            return self._conditional(step, operands)
        if isinstance(step, CollectiveStep):
            return self._collective(step, operands, frame, actor)
        value = new_tree(instruction.shape, instruction)
        if isinstance(step, KernelStep):
            self._kernel(step, operands, value, frame.states.get(instruction), actor)
        elif isinstance(step, HostStep) and step.part:
            self._host_part(step, operands, value, frame, actor)
        elif isinstance(step, HostStep):
            self._each(step.operands, operands, actor, self._read)
            # Python copies the operands before it writes; an external function works on the slices themselves.
            if step.function:
                self._check_sharing(step, self._slices(step.operands), self._slices(step.results), (), actor)
            self._each(step.results, [value], actor, self._write)
        elif isinstance(step, (RandomStep, NumberStep)):
            self._each((step.state if isinstance(step, RandomStep) else step.result,), [value], actor, self._write)
        return value

    def _host_part(self, step: HostStep, operands: Sequence[Tree], value: Tree, frame: _Frame, actor: Actor) -> None:
        """One step of an async pair in Python: a start copies its operands, and a done writes the results."""
        if step.part == "start":
            self._each(step.operands, operands, actor, self._read)
            self._each(step.results, (), actor, self._write)
            frame.kept.add(step.instruction)
            return
        start = step.instruction.operands[0]
        if start not in frame.kept:
            raise _fault("is the done of an async pair that no step has started", actor)
        frame.kept.remove(start)
        self._each(step.results, [value], actor, self._write)

    def _read(self, hlo_value: HloValue, value: Value, actor: Actor) -> None:
        self.memory.read(self._slice_of(hlo_value, value.bytes), value, actor)

    def _write(self, hlo_value: HloValue, value: Value, actor: Actor) -> None:
        self.memory.write(self._slice_of(hlo_value, value.bytes), frozenset((value,)), actor)

    def _each(
        self,
        planned: Sequence[HloValue],
        trees: Sequence[Tree],
        actor: Actor,
        act: Callable[[HloValue, Value, Actor], None],
    ) -> None:
        values = list(arrays(tuple(trees)))
        if len(values) != len(planned):
            raise _fault(f"has slices for {len(planned)} arrays instead of {len(values)}", actor)
        for hlo_value, value in zip(planned, values, strict=True):
            act(hlo_value, value, actor)

    # -- kernels ---------------------------------------------------------------------------------

    def _kernel(
        self, step: KernelStep, operands: Sequence[Tree], value: Tree, state: Value | None, actor: Actor
    ) -> None:
        operand_values, result_values = list(arrays(tuple(operands))), list(arrays(value))
        if (len(step.operands), len(step.results)) != (len(operand_values), len(result_values)):
            raise _fault(
                f"has slices for other arrays than {len(operand_values)} operands and {len(result_values)} results",
                actor,
            )
        sources = [self._slice_of(own, value.bytes) for own, value in zip(step.operands, operand_values, strict=True)]
        targets = [self._slice_of(own, value.bytes) for own, value in zip(step.results, result_values, strict=True)]
        spare = self._slices(step.scratch)
        runs = any(p.tasks for p in step.phases)
        for own, read in zip(sources, operand_values, strict=True) if runs else ():
            self.memory.read(own, read, actor)
        needs_code = not is_unwritten(step.instruction)
        if not runs and needs_code and any(v.bytes for n, v in enumerate(result_values) if n not in step.updates):
            raise _fault("has no code that writes its results", actor)
        for result, operand in step.updates.items():
            self.memory.read(targets[result], operand_values[operand], actor, "changes a part of")
        if spare and isinstance(step.instruction.op, Rng):
            if state is None:
                raise _fault("draws without a state", actor)
            self.memory.read(spare[0], state, actor)
        self._check_sharing(step, sources, targets, spare, actor)
        for own in (*spare, *targets):
            self.memory.write(own, NOTHING, actor)
        for own, written in zip(targets, result_values, strict=True):
            self.memory.write(own, frozenset((written,)), actor)

    def _check_sharing(
        self,
        step: KernelStep | CollectiveStep | HostStep,
        sources: Sequence[Slice],
        targets: Sequence[Slice],
        spare: Sequence[Slice],
        actor: Actor,
    ) -> None:
        """Check that results and scratch overlap nothing, except results that the kernel may write over operands."""
        written = [*targets, *spare]
        for number, target in enumerate(written):
            for other in written[:number]:
                if target.overlaps(other):
                    raise _fault(f"writes to {target.text} and to {other.text}, which overlap", actor)
            for operand, source in enumerate(sources):
                if not target.overlaps(source):
                    continue
                refusal = "they are not the same slice"
                if number < len(targets) and target.is_at(source):
                    refusal = self._refusal(step, number, operand)
                if refusal:
                    rule = f"writes to {target.text} while it reads operand {operand} in {source.text}: {refusal}"
                    raise _fault(rule, actor)

    # -- collectives -----------------------------------------------------------------------------

    def _collective(self, step: CollectiveStep, operands: Sequence[Tree], frame: _Frame, actor: Actor) -> Tree:
        instruction = step.instruction
        if step.part == "done":
            return self._await(step, frame, actor)
        collective, inputs = _collective(instruction, operands)
        self._each(step.operands, inputs, actor, self._read)
        result = new_tree(_result_of(collective), instruction)
        self._check_sharing(step, self._slices(step.operands), self._slices(step.results), (), actor)
        if step.part == "start":
            frame.started[instruction] = step, actor
            self.memory.begin(self._slices(step.operands), actor, is_written=False)
            self.memory.begin(self._slices(step.results), actor, is_written=True)
            arrival = frame.states[instruction] = Value(step.arrival[0].bytes, instruction, (), "the arrival of")
            self._write(step.arrival[0], arrival, actor)
        else:
            self._each(step.results, [result], actor, self._write)
        return _started(instruction, operands, result)

    def _slices(self, values: Sequence[HloValue]) -> list[Slice]:
        return [self._slice_of(value, value.bytes) for value in values]

    def _await(self, step: CollectiveStep, frame: _Frame, actor: Actor) -> Tree:
        start = step.instruction.operands[0]
        while isinstance(start.op, AsyncUpdate):
            start = start.operands[0]
        found = frame.started.pop(start, None)
        if found is None:
            raise _fault("is the done of an async pair that no step has started", actor)
        first, poster = found
        for one, other in (
            (step.operands, first.operands),
            (step.results, first.results),
            (step.arrival, first.arrival),
        ):
            if [s.begin for s in self._slices(one)] != [s.begin for s in self._slices(other)]:
                raise _fault("is the done of an async pair that was started on other memory", actor)
        self._read(step.arrival[0], frame.states[start], actor)
        self.memory.end(poster)
        value = frame.values[start]
        result = value if isinstance(start.op, AllReduceStart) else _part(value, 1)
        self._each(step.results, [result], actor, self._write)
        return result

    # -- control ---------------------------------------------------------------------------------

    def _while(self, step: WhileStep, initial: Tree) -> Tree:
        """Walk condition and body until the contents before an iteration are those of every iteration."""
        op, memory, actor = step.instruction.op_as(While), self.memory, _actor(step)
        carried = new_tree(step.instruction.shape, step.instruction, "the state of")
        state = list(arrays(carried))
        memory.contents.also(_names(arrays(initial), state))
        head = memory.contents
        while True:
            memory.contents = head.copy()
            holds = self.run(op.condition, [carried], step.condition)
            self._each((step.predicate,), [holds], actor, self._read)
            after = memory.contents.copy()
            result = self.run(op.body, [carried], step.body)
            memory.contents.also(_names(arrays(result), state), without=state)
            if not head.meet(memory.contents):
                break
        memory.contents = after
        return carried

    def _conditional(self, step: ConditionalStep, operands: Sequence[Tree]) -> Tree:
        index, *arguments = operands
        computations = step.instruction.op_as(Conditional).branch_computations
        self._each((step.index,), [index], _actor(step), self._read)
        if len(step.branches) != len(computations):
            raise _fault(f"has {len(step.branches)} branches instead of {len(computations)}", _actor(step))
        value = new_tree(step.instruction.shape, step.instruction)
        before, ends = self.memory.contents, list[Contents]()
        for computation, argument, steps in zip(computations, arguments, step.branches, strict=True):
            self.memory.contents = before.copy()
            result = self.run(computation, [argument], steps)
            self.memory.contents.also(_names(arrays(result), list(arrays(value))))
            ends.append(self.memory.contents)
        self.memory.contents, *others = ends
        for other in others:
            self.memory.contents.meet(other)
        return value


def _names(values: Sequence[Value] | object, names: Sequence[Value]) -> dict[Value, list[Value]]:
    """Maps each value to the names that it gets."""
    found: dict[Value, list[Value]] = {}
    for value, name in zip(values, names, strict=True):  # pyright: ignore
        found.setdefault(value, []).append(name)
    return found


def _is_for(step: Step, instruction: Instruction) -> bool:
    return not isinstance(step, CopyStep) and step.instruction is instruction


def _part(tree: Tree, number: int) -> Tree:
    if not isinstance(tree, tuple):
        raise TypeError(f"element {number} of a value that is no tuple")
    return tree[number]


def _collective(instruction: Instruction, operands: Sequence[Tree]) -> tuple[Instruction, Sequence[Tree]]:
    """The collective that an instruction is, or starts, and its operands."""
    op = instruction.op
    if not isinstance(op, AsyncStart):
        return instruction, operands
    collective = op.calls.root
    numbers = [o.op.number for o in collective.operands if isinstance(o.op, Parameter)]
    return collective, [operands[number] for number in numbers]


def _result_of(collective: Instruction) -> Shape:
    return collective.shape.tuple_shapes[1] if isinstance(collective.op, TUPLE_STARTS) else collective.shape


def _started(instruction: Instruction, operands: Sequence[Tree], result: Tree) -> Tree:
    """The value of a collective: its result, or for a start the tuple of operands, result and contexts."""
    if not isinstance(instruction.op, TUPLE_STARTS):
        return result
    one = len(operands) == 1 and not isinstance(instruction.op, AsyncStart)
    contexts = [new_tree(s, instruction, "a context of") for s in instruction.shape.tuple_shapes[2:]]
    return (operands[0] if one else tuple(operands), result, *contexts)


def _actor(step: Step) -> Actor:
    if isinstance(step, CopyStep):
        return Actor(f"the copy of {step.source} to {step.target}", None)
    kind = type(step).__name__.removesuffix("Step").lower()
    part = f" ({step.part})" if isinstance(step, (CollectiveStep, HostStep)) and step.part else ""
    return Actor(f"the {kind} step of {step.instruction.opcode} %{step.instruction.name}{part}", step.instruction)


def _fault(rule: str, actor: Actor) -> MemoryPlanError:
    return MemoryPlanError(rule, step=str(actor), instruction=actor.instruction)
