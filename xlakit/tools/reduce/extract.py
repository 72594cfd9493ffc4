"""``extract``: a part of a program as a program of its own, with the arguments that it had in a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xlakit.arguments import converting
from xlakit.data.shape import ProgramShape
from xlakit.errors import ArgumentError, meant
from xlakit.execution.inputs import make_inputs
from xlakit.interpreter.evaluate import Context
from xlakit.interpreter.executable import compile_module
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Array, Value
from xlakit.ir.traits import Done, Start
from xlakit.ops.communication.asynchronous import AsyncUpdate
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.communication.collectives import PartitionId, ReplicaId
from xlakit.ops.control import Call, Fusion, While
from xlakit.ops.data import AfterAll, Constant, Parameter
from xlakit.tools.dumps import given_values, write_dump
from xlakit.tools.inputs import options_of
from xlakit.tools.numerics.trace import leaves_of
from xlakit.tools.shards import on_devices, without_shardings
from xlakit.tools.stand_ins import stand_ins

# Operations that depend on the device that runs them, or on values of other devices.
_AMONG_DEVICES = (Collective, Permuting, PartitionId, ReplicaId)


@dataclass(frozen=True, slots=True)
class Extraction:
    """A part of a program.

    module: the part as a program. device_arguments: for each of its devices what its parameters were in the run, one
    for each, elements of tuples as tuples. results: for each device what the part gave there.
    """

    module: HloModule
    device_arguments: tuple[tuple[Any, ...], ...]
    results: tuple[Any, ...]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the first device, which is the only one of most programs."""
        return self.device_arguments[0]

    @property
    def result(self) -> Any:
        """What the part gave on the first device."""
        return self.results[0]

    @property
    def arrays(self) -> list[list[Array]]:
        """For each device the arrays of its arguments, in order."""
        return [[array for value in values for _, array in leaves_of(value)] for values in self.device_arguments]


@converting
def extract_instruction(
    module: HloModule,
    name: str,
    *arguments: object,
    depth: int = 0,
    iteration: int = 0,
    device: int | None = None,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> Extraction:
    """An instruction as a program, with its operands' values in a run of the whole program as arguments.

    name: of the instruction, in the entry or in any computation that the entry calls; ``%`` may stand before it.
    arguments: one for each parameter of the whole program; where several devices run it, all get these. depth: how many
    instructions before it, from operand to operand, are part of the program; 0 for none, but for the start of an
    operation that it ends. iteration: which run of the computation that it is in, counted from 0 over the whole
    program: of a loop's body the iteration. device: of a program of several devices the one whose values the part has,
    which is a program of one device then; by default the part is a program of all devices, each with its own values.
    seed, custom_calls: as :func:`xlakit.compile` has them.

    The program runs on the interpreter. Raises ArgumentError where there is no such instruction or device, where it
    does not run so often, or where a part for one device exchanges values with others; and what running the program
    raises.
    """
    run = _Run(_same_on_all_devices(module, arguments), iteration, device, seed, custom_calls)
    return _extract_instruction(module, name, depth, run)


@converting
def extract_computation(
    module: HloModule,
    name: str,
    *arguments: object,
    iteration: int = 0,
    device: int | None = None,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> Extraction:
    """A computation as a program, such as a fusion's or a loop's body, with the values of its parameters in a run.

    name: of the computation, or of a call, fusion or loop (``while``), which stands for what it calls, a loop for its
    body; ``%`` may stand before it. iteration: which run of it, counted from 0 over the whole program. Otherwise as
    :func:`extract_instruction`.
    """
    return _extract_computation(
        module, name, _Run(_same_on_all_devices(module, arguments), iteration, device, seed, custom_calls)
    )


def extract_file(
    module: HloModule,
    *,
    output: str,
    instruction: str | None,
    computation: str | None,
    depth: int,
    iteration: int,
    device: int | None,
    input_path: str | None,
    seed: int,
) -> Extraction:
    """``xlakit extract``: write a part of a program into a folder."""
    devices, values = given_values(on_devices(module), input_path, seed)
    run = _Run(devices.arguments(values), iteration, device, seed, None)
    if instruction is not None:
        extraction = _extract_instruction(devices.module, instruction, depth, run)
    else:
        extraction = _extract_computation(devices.module, computation or "", run)
    write_dump(output, extraction.module, extraction.arrays, seed)
    return extraction


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a program: the arguments of each device, and which of its values are captured."""

    arguments: Sequence[Sequence[object]]
    iteration: int
    device: int | None
    seed: int
    custom_calls: dict[str, object] | None

    def __post_init__(self) -> None:
        if self.iteration < 0:
            raise ArgumentError(f"iteration is {self.iteration}", hint="count from 0")
        if self.device is not None and not 0 <= self.device < len(self.arguments):
            raise ArgumentError(
                f"there is no device {self.device}: {len(self.arguments)} run the program", hint="count from 0"
            )

    @property
    def devices(self) -> Sequence[int]:
        """The devices whose values the part has."""
        return range(len(self.arguments)) if self.device is None else (self.device,)


def _same_on_all_devices(module: HloModule, arguments: Sequence[object]) -> list[Sequence[object]]:
    return [arguments] * (module.replica_count * module.num_partitions)


def _extract_instruction(module: HloModule, name: str, depth: int, run: _Run) -> Extraction:
    if depth < 0:
        raise ArgumentError(f"depth is {depth}", hint="give a number from 0")
    computation, target = _find(module, name)
    if isinstance(target.op, (Start, AsyncUpdate)):
        raise ArgumentError(
            f"%{target.name} is the start of an operation, of which nothing but the end has a value",
            hint="name the instruction that ends it; the start comes with it",
        )
    entry, sources = _cut(computation, _before(target, depth), target)
    captured = _captured(module, computation, {*sources, target}, run, last=target)
    if any(target not in values for values in captured):
        raise ArgumentError(
            f"%{target.name} does not run: nothing that the program gives needs it",
            hint="name an instruction that the root of its computation needs",
        )
    device_arguments = [[values[source] for source in sources] for values in captured]
    return _extraction(module, entry, device_arguments, [values[target] for values in captured], run)


def _extract_computation(module: HloModule, name: str, run: _Run) -> Extraction:
    computation = _computation(module, name)
    captured = _captured(module, computation, {*computation.parameters, computation.root}, run)
    if any(computation.root not in values for values in captured):
        raise ArgumentError(
            f"%{computation.name} gives back a parameter and computes nothing",
            hint="extract the instruction that calls it",
        )
    # Parameters that no instruction reads were not captured; any value will do.
    device_arguments = [
        [values[p] if p in values else _unread(p) for p in computation.parameters] for values in captured
    ]
    return _extraction(module, computation, device_arguments, [values[computation.root] for values in captured], run)


# -- what is extracted -------------------------------------------------------------------------------


def _find(module: HloModule, name: str) -> tuple[Computation, Instruction]:
    target = name.removeprefix("%")
    for computation in reversed(module.computations):
        for instruction in computation.instructions:
            if instruction.name == target:
                if isinstance(instruction.op, Parameter):
                    raise ArgumentError(f"%{target} is a parameter", hint="name an instruction that computes something")
                return computation, instruction
    names = (i.name for i in module.instructions)
    raise ArgumentError(
        f"{_named(module)} has no instruction %{target}", hint=meant(target, names, _where_names_are(module))
    )


def _named(module: HloModule) -> str:
    return module.name + (f", of one of {module.num_partitions} devices," if module.num_partitions > 1 else "")


def _where_names_are(module: HloModule) -> str:
    if module.num_partitions > 1:
        # What the partitioner has made of an instruction has another name.
        return "xlakit opt FILE --passes partition has all names of the program of one device"
    return "xlakit convert FILE --to text has all names"


def _computation(module: HloModule, name: str) -> Computation:
    target = name.removeprefix("%")
    for computation in module.computations:
        if computation.name == target:
            return computation
    for instruction in module.instructions:
        if instruction.name == target and isinstance(instruction.op, While):
            return instruction.op.body
        if instruction.name == target and isinstance(instruction.op, (Call, Fusion)):
            return instruction.op.called_computations[0]
    loops = [i.name for i in module.instructions if isinstance(i.op, While)]
    names = [*(computation.name for computation in module.computations), *loops]
    shown = (
        f"its loops: {', '.join(loops[:10])}{', ..' if len(loops) > 10 else ''}" if loops else _where_names_are(module)
    )
    if any(i.name == target for c in module.computations for i in c.instructions):
        shown = f"it is an instruction: --instruction {target}" + (f"; {shown}" if loops else "")
        raise ArgumentError(f"%{target} of {module.name} is no computation and no loop", hint=shown)
    raise ArgumentError(f"{_named(module)} has no computation and no loop %{target}", hint=meant(target, names, shown))


def _before(target: Instruction, depth: int) -> set[Instruction]:
    """An instruction, and those before it that are so near."""
    inside, edge = {target}, [target]
    for _ in range(depth):
        edge = [o for i in edge for o in i.operands if o not in inside and not isinstance(o.op, Parameter)]
        inside.update(edge)
    # A done or an update is only valid with its start, so that is included.
    ends = [i for i in inside if isinstance(i.op, (Done, AsyncUpdate))]
    while ends:
        start = ends.pop().operands[0]
        if not isinstance(start.op, Parameter):
            inside.add(start)
            ends += [start] if isinstance(start.op, (Done, AsyncUpdate)) else []
    return inside


def _cut(
    computation: Computation, inside: Collection[Instruction], target: Instruction
) -> tuple[Computation, list[Instruction]]:
    """The instructions inside as a computation, and the ones whose values its parameters are."""
    new: dict[Instruction, Instruction] = {}
    sources: list[Instruction] = []
    for old in computation.instructions:
        if old in inside:
            before = [new[p] for p in old.control_predecessors if p in inside]
            new[old] = old.replace(operands=[new[o] for o in old.operands], control_predecessors=before)
        elif any(old in i.operands for i in inside):
            if isinstance(old.op, Constant):
                new[old] = old
            elif old.shape.is_token:
                new[old] = Instruction(AfterAll(), (), old.shape, old.name)
            else:
                new[old] = Instruction(Parameter(number=len(sources)), (), old.shape, old.name)
                sources.append(old)
    return Computation(computation.name, tuple(new.values()), new[target]), sources


def _extraction(
    module: HloModule, entry: Computation, device_arguments: Sequence[Sequence[Any]], results: Sequence[Any], run: _Run
) -> Extraction:
    named = module.replace(name=f"{module.name}.{entry.root.name}")
    extracted = named if entry is module.entry else named.with_entry(entry)
    if len(run.arguments) > 1:
        extracted = _of_parts(extracted, run.device)
    extracted.verify()
    return Extraction(extracted, tuple(map(tuple, device_arguments)), tuple(results))


def _of_parts(module: HloModule, device: int | None) -> HloModule:
    """A part of the program of one partition without shardings, which say how whole arrays were split."""
    bare = without_shardings(module)
    if device is None:
        return bare
    for instruction in bare.instructions:
        if isinstance(instruction.op, _AMONG_DEVICES):
            raise ArgumentError(
                f"%{instruction.name} ({instruction.opcode}) has no meaning on one device",
                hint="extract the part for all devices: leave --device out (in Python: device=None)",
            )
    return bare.replace(replica_count=1, num_partitions=1)


def _unread(parameter: Instruction) -> Any:
    """A value for a parameter that nothing reads."""
    return make_inputs(ProgramShape((parameter.shape,), parameter.shape), 0)[0]


# -- values of a run -------------------------------------------------------------------------------


def _captured(
    module: HloModule,
    computation: Computation,
    wanted: Collection[Instruction],
    run: _Run,
    last: Instruction | None = None,
) -> list[dict[Instruction, Any]]:
    """The values of some instructions in one run of their computation, on each of the devices of the run.

    last: the one of them that runs last; None for the end of the computation.
    """
    is_entry, is_alone = computation is module.entry, len(run.arguments) == 1
    observers = [
        _Capture(computation, run.iteration, frozenset(wanted), is_entry=is_entry, is_alone=is_alone, last=last)
        for _ in run.arguments
    ]
    # The part may not need a custom call that has no meaning here; one that runs is an error then.
    custom_calls = {**stand_ins(module), **(run.custom_calls or {})}
    executable = compile_module(module, options_of(module, run.seed, custom_calls))
    with suppress(_AllCapturedError):
        executable.call_observed(observers.__getitem__, run.arguments)
    for device in run.devices:
        runs, where = observers[device].runs, f" on device {device}" if len(observers) > 1 else ""
        if any(i.shape.is_array and np.ndim(v) != i.shape.rank for i, v in observers[device].values.items()):
            runs = 0  # It is applied to whole arrays.
        if runs <= run.iteration:
            raise ArgumentError(
                f"%{computation.name} has no run {run.iteration}{where}: it runs {runs} time{'s' * (runs != 1)}",
                hint="runs are counted from 0; what reduces, maps or sorts is applied to whole arrays and has none",
            )
    return [observers[device].values for device in run.devices]


class _AllCapturedError(Exception):
    """Ends a run: what comes after the part may take long, have no end, or fail."""


@dataclass(slots=True)
class _Capture:
    """An observer of a run that keeps copies of the wanted values, and on one device ends the run when it has them."""

    computation: Computation
    iteration: int
    wanted: frozenset[Instruction]
    is_entry: bool
    is_alone: bool
    last: Instruction | None
    values: dict[Instruction, Any] = field(default_factory=dict[Instruction, Any])
    # How often the computation has begun, and for each computation that runs, whether it is the run that is wanted.
    runs: int = 0
    _stack: list[bool] = field(default_factory=list[bool])

    def __post_init__(self) -> None:
        self._stack.append(self.is_entry and self.iteration == 0)
        self.runs += self.is_entry

    def enter(self, caller: Instruction, computation: Computation) -> None:
        is_one = computation is self.computation
        self._stack.append(is_one and self.runs == self.iteration)
        self.runs += is_one

    def leave(self) -> None:
        # A root that computes nothing is an error, which the whole run precedes.
        if self._stack.pop() and self.is_alone and self.computation.root in self.values:
            raise _AllCapturedError

    def observe(self, context: Context, evaluate: Callable[..., Value], operands: Sequence[Value]) -> Value:
        instruction, is_wanted = context.instruction, self._stack[-1]
        if is_wanted:
            for operand, value in zip(instruction.operands, operands, strict=False):
                self._keep(operand, value)
        value = evaluate(context, *operands)
        if is_wanted:
            self._keep(instruction, value)
            if self.is_alone and instruction is self.last:
                raise _AllCapturedError
        return value

    def _keep(self, instruction: Instruction, value: Value) -> None:
        if instruction in self.wanted and instruction not in self.values:
            self.values[instruction] = _copied(value)


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_copied(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
    return np.array(value) if isinstance(value, (np.ndarray, np.generic)) else value
