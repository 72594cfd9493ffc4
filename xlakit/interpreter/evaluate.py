"""Evaluation of computations: runs instructions in order and frees each value after its last use.

A computation is turned once into a plan (a flat list of steps over numbered slots). Computations on scalars that
reduce, map, sort or scatter call are run on whole arrays at a time where every instruction in them is pointwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from xlakit.data.shape import Shape, floating_types
from xlakit.errors import ExecutionError, ResourceError, XlakitError
from xlakit.ir.def_use import evaluated_instructions
from xlakit.ir.instruction import Computation, Instruction, located
from xlakit.ir.operation import Array, Value
from xlakit.ops.data import Constant, Parameter, literal_value
from xlakit.ops.elementwise.convert import is_bitcast_of_scalars
from xlakit.ops.shared.numerics import convert

if TYPE_CHECKING:
    from xlakit.execution.device import Device
    from xlakit.execution.program import Program
    from xlakit.ir.attributes import CollectiveGroups


class Step(NamedTuple):
    """One instruction: the slots of its operands and its result, and the slots that are released after it."""

    instruction: Instruction
    evaluate: Callable[..., Value]
    operands: tuple[int, ...]
    slot: int
    release: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A computation ready to run: the initial contents of slots, the slots of parameters, and the steps."""

    initial: tuple[Value, ...]
    parameters: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]
    root: int
    is_pointwise: bool
    # Parameters and constants, with their slots.
    sources: tuple[tuple[int, Instruction], ...]


def plan_of(program: Program, computation: Computation) -> Plan:
    """The plan of a computation of a program, created when it is first needed."""
    found: Plan | None = program.plans.get(computation)
    if found is None:
        found = program.plans[computation] = _make_plan(computation)
    return found


def _make_plan(computation: Computation) -> Plan:
    """The plan of a computation, without dead instructions: a slot for each value, released after its last use."""
    order = evaluated_instructions(computation)
    slots = {instruction: slot for slot, instruction in enumerate(order)}
    last_use: dict[int, int] = {}
    for slot, instruction in enumerate(order):
        for operand in instruction.operands:
            last_use[slots[operand]] = slot
    root = slots[computation.root]
    releases: list[list[int]] = [[] for _ in order]
    for value, user in last_use.items():
        if value != root:
            releases[user].append(value)
    steps = tuple(
        Step(
            instruction,
            evaluator(instruction),
            tuple(slots[o] for o in instruction.operands),
            slot,
            tuple(releases[slot]),
        )
        for slot, instruction in enumerate(order)
        if not isinstance(instruction.op, (Parameter, Constant))
    )
    initial = tuple(literal_value(i.op.literal) if isinstance(i.op, Constant) else None for i in order)
    parameters = tuple((slots[i], i.op.number) for i in order if isinstance(i.op, Parameter))
    sources = tuple((slots[i], i) for i in order if isinstance(i.op, (Parameter, Constant)))
    is_pointwise = all(i.is_pointwise or is_bitcast_of_scalars(i) for i in order)
    return Plan(initial, parameters, steps, root, is_pointwise, sources)


def evaluator(instruction: Instruction) -> Callable[..., Value]:
    """``Op.evaluate`` of an instruction, wrapped where its operands or result need adapting.

    Operands of a pointwise operation of which only some are dynamic are cut to their common sizes; a result that is
    declared in another floating point precision than the operands is converted.
    """
    result, shapes = instruction.shape, [o.shape for o in instruction.operands]
    marks = [s.dynamic_dimensions for s in shapes]
    meaning = evaluate = instruction.op.evaluate
    if instruction.op.pointwise and result.is_array and len(marks) > 1 and any(map(any, marks)):

        def evaluate(context: Context, *operands: Value) -> Value:
            return meaning(context, *_common_part(operands, marks))

    one_type = all(s.element_type is result.element_type for s in shapes)
    if one_type or len(floating_types([result, *shapes])) < 2:
        return evaluate
    return lambda context, *operands: _as_declared(evaluate(context, *operands), result)


def _as_declared(value: Value, shape: Shape) -> Value:
    """A value with its floating point arrays converted to the types that a shape declares."""
    if shape.is_tuple:
        return tuple(map(_as_declared, cast("tuple[Value, ...]", value), shape.tuple_shapes))
    return convert(cast("Array", value), shape.element_type) if shape.element_type.is_floating else value


def _common_part(operands: Sequence[Array], marks: Sequence[Sequence[bool]]) -> Sequence[Array]:
    """The operands cut to their common current sizes; a size of 1 is broadcast, as in NumPy."""
    rank = max(map(len, marks))
    # Operands of different ranks (scalars, arrays in place of scalars) are left to NumPy's broadcasting.
    alike = {*map(len, marks), *(a.ndim for a in operands)} == {rank}
    if not alike or len({a.shape for a in operands}) == 1:
        return operands
    sizes = [slice(None)] * rank
    for axis in range(rank):
        current = {a.shape[axis] for a, m in zip(operands, marks, strict=True) if m[axis]}
        if current:
            sizes[axis] = slice(min(current - {1}, default=1))
    return [a[tuple(sizes)] for a in operands]


class Context:
    """The interface of the running program to ``Op.evaluate``; see :class:`xlakit.ir.operation.Evaluation`."""

    __slots__ = ("_results", "device", "instruction")

    def __init__(self, device: Device, instruction: Instruction, results: Sequence[Array] = ()) -> None:
        """results: arrays that :meth:`new_result` gives out for the result, if the caller has fixed its location."""
        self.device = device
        self.instruction = instruction
        self._results = results

    def new_result(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory for an array of the result."""
        if number < len(self._results):
            result = self._results[number]
            if result.shape == shape and result.dtype == dtype:
                return result
        return np.empty(shape, dtype)

    @property
    def shape(self) -> Shape:
        """The declared shape of the instruction that runs."""
        return self.instruction.shape

    @property
    def replica_id(self) -> int:
        """The replica that runs it."""
        return self.device.replica_id

    @property
    def partition_id(self) -> int:
        """The partition that runs it."""
        return self.device.partition_id

    @property
    def num_replicas(self) -> int:
        """How many replicas run the program."""
        return self.device.program.grid.num_replicas

    @property
    def num_partitions(self) -> int:
        """How many partitions run the program."""
        return self.device.program.grid.num_partitions

    def draw(self) -> tuple[int, int]:
        """The source of the next random numbers of this device."""
        return self.device.random.draw()

    def advance_rng_state(self, delta: int) -> Array:
        """The 128-bit random state of this device, to which ``delta`` is added afterwards."""
        return self.device.random.advance(delta)

    def call(self, computation: Computation, *arguments: Value) -> Value:
        """Run a computation."""
        return run(self.device, computation, arguments, self.instruction)

    def apply(self, computation: Computation, *arrays: Array) -> tuple[Array, ...]:
        """Run a computation on scalars for every element of arrays that broadcast against each other."""
        dimensions = np.broadcast_shapes(*(a.shape for a in arrays))
        plan = plan_of(self.device.program, computation)
        if plan.is_pointwise:
            result = run_plan(self.device, plan, arrays)
            leaves: Sequence[Array] = result if isinstance(result, tuple) else (result,)  # pyright: ignore
            return tuple(np.broadcast_to(leaf, dimensions) for leaf in leaves)
        return self._apply_one_by_one(plan, computation, arrays, dimensions)

    def _apply_one_by_one(
        self, plan: Plan, computation: Computation, arrays: Sequence[Array], dimensions: tuple[int, ...]
    ) -> tuple[Array, ...]:
        result = computation.root.shape
        shapes = result.tuple_shapes_or_self
        outputs = tuple(np.empty(dimensions, dtype=s.element_type.dtype) for s in shapes)
        wide = [np.broadcast_to(a, dimensions) for a in arrays]
        for index in np.ndindex(*dimensions):
            value = run_plan(self.device, plan, [np.asarray(a[index]) for a in wide])
            for output, leaf in zip(outputs, value if isinstance(value, tuple) else (value,), strict=True):  # pyright: ignore
                output[index] = leaf
        return outputs

    def all_gather(self, groups: CollectiveGroups, payload: Value) -> tuple[list[Value], int]:
        """The payloads of all members of this device's group, and the index of this device."""
        return self.device.rendezvous.all_gather(self.instruction, groups, payload)

    def index_in_group(self, groups: CollectiveGroups) -> tuple[int, int]:
        """This device's index in its group, and the number of members."""
        return self.device.rendezvous.index_in_group(groups)

    def all_to_all(self, groups: CollectiveGroups, payloads: Sequence[Value]) -> list[Value]:
        """The payload that each member of this device's group has for this device."""
        return self.device.rendezvous.all_to_all(self.instruction, groups, payloads)

    def broadcast(self, groups: CollectiveGroups, payload: Value, root: int) -> Value:
        """The payload of the member of this device's group with index ``root``."""
        return self.device.rendezvous.broadcast(self.instruction, groups, payload, root)

    def reduce(self, groups: CollectiveGroups, arrays: Sequence[Array], computation: Computation) -> list[Array] | None:
        """The arrays of this device's group, combined in its order."""
        return self.device.rendezvous.reduce(self, groups, arrays, computation)

    def permute(
        self, pairs: Sequence[tuple[int, int]], payloads: Sequence[Value], *, channel_id: int | None = None
    ) -> dict[int, Value]:
        """Send values along source-target pairs; gives the values that arrived, by the number of the pair."""
        return self.device.rendezvous.permute(self.instruction, pairs, payloads, channel_id)

    def infeed(self, shape: Shape) -> Value:
        """The next value of this device's infeed queue."""
        return self.device.transfers.infeed(self.instruction, shape)

    def outfeed(self, value: Value, shape: Shape) -> None:
        """Append to this device's outfeed queue."""
        self.device.transfers.outfeed(self.instruction, value, shape)

    def start_send(self, channel_id: int | None, value: Value, *, is_host_transfer: bool) -> int:
        """Put a value into a channel; the number of the request."""
        return self.device.transfers.start_send(self.instruction, channel_id, value, is_host_transfer=is_host_transfer)

    def finish_send(self, request: int) -> None:
        """Wait until the value of the request has arrived at a recv."""
        self.device.transfers.finish_send(self.instruction, request)

    def start_recv(self, channel_id: int | None, shape: Shape, *, is_host_transfer: bool) -> int:
        """Ask for the next value of a channel; the number of the request."""
        return self.device.transfers.start_recv(self.instruction, channel_id, shape, is_host_transfer=is_host_transfer)

    def finish_recv(self, request: int) -> Value:
        """Wait for the value of a request."""
        return self.device.transfers.finish_recv(self.instruction, request)

    def custom_call(self, target: str, *operands: Value) -> Value:
        """The result of the function registered under a name."""
        return self.device.program.custom_calls.call(self, target, operands)


class Observer(Protocol):
    """Is called with each instruction that one device executes, in the order of execution.

    Observed are the parameters of the entry, and the constants and all other instructions of the entry and of the
    computations that loops, conditionals, calls and fusions run. Computations on scalars that a reduction, a sort or a
    scatter applies to elements are not observed: they are a part of that instruction.
    """

    def enter(self, caller: Instruction, computation: Computation) -> None:
        """``caller`` begins to run a computation; a loop does so in every iteration."""
        ...

    def leave(self) -> None:
        """The computation that was entered last has ended."""
        ...

    def observe(self, context: Context, evaluate: Callable[..., Value], operands: Sequence[Value]) -> Value:
        """The value that the run uses for ``context.instruction``: ``evaluate(context, *operands)``, or another."""
        ...


def run(
    device: Device, computation: Computation, arguments: Sequence[Value], caller: Instruction | None = None
) -> Value:
    """The result of a computation on a device; raises Stopped where another device has failed.

    caller: the instruction that calls it; None for the entry.
    """
    device.run.check()
    plan = plan_of(device.program, computation)
    if device.observer is None:
        return run_plan(device, plan, arguments)
    if caller is None:
        return _run_observed(device, device.observer, plan, arguments, is_entry=True)
    device.observer.enter(caller, computation)
    try:
        return _run_observed(device, device.observer, plan, arguments, is_entry=False)
    finally:
        device.observer.leave()


def run_plan(device: Device, plan: Plan, arguments: Sequence[Value]) -> Value:
    """The result of a plan; errors name the instruction."""
    values: list[Any] = list(plan.initial)
    for slot, number in plan.parameters:
        values[slot] = arguments[number]
    if not plan.steps:
        return values[plan.root]
    context = Context(device, plan.steps[0].instruction)
    try:
        for instruction, evaluate, operands, slot, release in plan.steps:
            context.instruction = instruction
            values[slot] = evaluate(context, *[values[i] for i in operands])
            for dead in release:
                values[dead] = None
    except (XlakitError, MemoryError, RecursionError) as error:
        raise located_error(error, device, context.instruction) from error.__cause__
    return values[plan.root]


def _run_observed(
    device: Device, observer: Observer, plan: Plan, arguments: Sequence[Value], *, is_entry: bool
) -> Value:
    """As :func:`run_plan`, with the observer called for each value and its result used as the value."""
    values: list[Any] = list(plan.initial)
    for slot, number in plan.parameters:
        values[slot] = arguments[number]
    context = Context(device, plan.sources[0][1] if plan.sources else plan.steps[0].instruction)
    try:
        for slot, instruction in plan.sources:
            if is_entry or isinstance(instruction.op, Constant):
                context.instruction = instruction
                values[slot] = observer.observe(context, partial(_known, values[slot]), ())
        for instruction, evaluate, operands, slot, release in plan.steps:
            context.instruction = instruction
            values[slot] = observer.observe(context, evaluate, [values[i] for i in operands])
            for dead in release:
                values[dead] = None
    except (XlakitError, MemoryError, RecursionError) as error:
        raise located_error(error, device, context.instruction) from error.__cause__
    return values[plan.root]


def _known(value: Value, context: Context) -> Value:
    return value


def run_instruction(
    device: Device, instruction: Instruction, operands: Sequence[Value], results: Sequence[Array] = ()
) -> Value:
    """The result of one instruction on a device, as in :func:`run`.

    results: arrays for the results, none of which overlaps an operand. An operation may write to some of them and
        ignore others, so the caller compares the arrays of the result with them.
    """
    device.run.check()
    try:
        return _evaluator_of(device.program, instruction)(Context(device, instruction, results), *operands)
    except (XlakitError, MemoryError, RecursionError) as error:
        raise located_error(error, device, instruction) from error.__cause__


def _evaluator_of(program: Program, instruction: Instruction) -> Callable[..., Value]:
    """The evaluator of an instruction that runs outside of a plan, made on first use."""
    found: Callable[..., Value] | None = program.evaluators.get(instruction)
    if found is None:
        found = program.evaluators[instruction] = evaluator(instruction)
    return found


def located_error(error: Exception, device: Device, instruction: Instruction) -> XlakitError:
    """An error of an instruction as the caller of the program sees it."""
    if isinstance(error, MemoryError):
        error = ResourceError("not enough memory for the result", hint="cut the arrays, or run with more memory")
    elif not isinstance(error, XlakitError):
        error = ExecutionError("computations call each other too deeply", hint="inline the calls, or loop with while")
    return located(error, device.program.module, instruction)
