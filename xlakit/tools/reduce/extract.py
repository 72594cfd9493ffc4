"""``extract``: a part of a program as a program of its own, with the arguments that it had in a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xlakit.arguments import converting
from xlakit.data.shape import ProgramShape
from xlakit.errors import ArgumentError, UnsupportedError
from xlakit.execution.inputs import make_inputs
from xlakit.execution.options import ExecutionOptions
from xlakit.interpreter.evaluate import Context
from xlakit.interpreter.executable import compile_module
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Array, Value
from xlakit.ops.communication.asynchronous import AsyncDone, AsyncStart, AsyncUpdate
from xlakit.ops.control import While
from xlakit.ops.data import AfterAll, Constant, Parameter
from xlakit.tools.dumps import given_values, write_dump
from xlakit.tools.numerics.trace import leaves_of
from xlakit.tools.reduce.edits import with_entry
from xlakit.tools.shards import on_devices
from xlakit.verifier.pairs import DONES, STARTS

_ENDS = (*STARTS, AsyncDone, AsyncUpdate)


@dataclass(frozen=True, slots=True)
class Extraction:
    """A part of a program.

    module: the part as a program of one device. arguments: what its parameters were in the run, one for each, elements
    of tuples as tuples. result: what it gave there.
    """

    module: HloModule
    arguments: tuple[Any, ...]
    result: Any

    @property
    def arrays(self) -> list[Array]:
        """The arrays of the arguments, in order."""
        return [array for value in self.arguments for _, array in leaves_of(value)]


@converting
def extract_instruction(
    module: HloModule,
    name: str,
    *arguments: object,
    depth: int = 0,
    iteration: int = 0,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> Extraction:
    """An instruction as a program, with its operands' values in a run of the whole program as arguments.

    name: of the instruction, in the entry or in any computation that the entry calls; ``%`` may stand before it.
    arguments: one for each parameter of the whole program. depth: how many instructions before it, from operand to
    operand, are part of the program; 0 for none, but for the start of an operation that it ends. iteration: which run
    of the computation that it is in, counted from 0 over the whole program: of a loop's body the iteration. seed,
    custom_calls: as :func:`xlakit.compile` has them.

    The program runs on the interpreter. Raises ArgumentError where there is no such instruction, or where it does not
    run so often; UnsupportedError for a program of several devices; and what running the program raises.
    """
    if depth < 0 or iteration < 0:
        raise ArgumentError(f"depth is {depth}, iteration is {iteration}", hint="give numbers from 0")
    computation, target = _find(module, name)
    if isinstance(target.op, (*DONES, AsyncStart, AsyncUpdate)):
        raise ArgumentError(
            f"%{target.name} is the start of an operation, of which nothing but the end has a value",
            hint="name the instruction that ends it; the start comes with it",
        )
    inside = _before(target, depth)
    entry, sources = _cut(computation, inside, target)
    values = _captured(module, computation, iteration, {*sources, target}, arguments, seed, custom_calls)
    if target not in values:
        raise ArgumentError(
            f"%{target.name} does not run: nothing that the program gives needs it",
            hint="name an instruction that the root of its computation needs",
        )
    return _extraction(module, entry, [values[i] for i in sources], values[target])


@converting
def extract_computation(
    module: HloModule,
    name: str,
    *arguments: object,
    iteration: int = 0,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> Extraction:
    """A computation as a program, such as a fusion's or a loop's body, with the values of its parameters in a run.

    name: of the computation, or of a loop (a ``while`` instruction), which stands for its body; ``%`` may stand before
    it. iteration: which run of it, counted from 0 over the whole program. Otherwise as :func:`extract_instruction`.
    """
    if iteration < 0:
        raise ArgumentError(f"iteration is {iteration}", hint="count from 0")
    computation = _computation(module, name)
    wanted = {*computation.parameters, computation.root}
    values = _captured(module, computation, iteration, wanted, arguments, seed, custom_calls)
    if computation.root not in values:
        raise ArgumentError(
            f"%{computation.name} gives back a parameter and computes nothing",
            hint="extract the instruction that calls it",
        )
    # What no instruction reads has no effect on the result.
    given = [values[p] if p in values else _unread(p) for p in computation.parameters]
    return _extraction(module, computation, given, values[computation.root])


def extract_file(
    module: HloModule,
    *,
    output: str,
    instruction: str | None,
    computation: str | None,
    depth: int,
    iteration: int,
    input_path: str | None,
    seed: int,
) -> Extraction:
    """``xlakit extract``: write a part of a program into a folder."""
    devices, values = given_values(on_devices(module), input_path, seed)
    if devices.count > 1:
        raise _of_several(devices.module)
    if instruction is not None:
        made = extract_instruction(devices.module, instruction, *values, depth=depth, iteration=iteration, seed=seed)
    else:
        made = extract_computation(devices.module, computation or "", *values, iteration=iteration, seed=seed)
    write_dump(output, made.module, made.arrays, seed)
    return made


# -- what is extracted -------------------------------------------------------------------------------


def _find(module: HloModule, name: str) -> tuple[Computation, Instruction]:
    wanted = name.removeprefix("%")
    for computation in reversed(module.computations):
        for instruction in computation.instructions:
            if instruction.name == wanted:
                if isinstance(instruction.op, Parameter):
                    raise ArgumentError(f"%{wanted} is a parameter", hint="name an instruction that computes something")
                return computation, instruction
    raise ArgumentError(
        f"{module.name} has no instruction %{wanted}", hint="xlakit convert FILE --to text has all names"
    )


def _computation(module: HloModule, name: str) -> Computation:
    wanted = name.removeprefix("%")
    for computation in module.computations:
        if computation.name == wanted:
            return computation
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.name == wanted and isinstance(instruction.op, While):
                return instruction.op.body
    raise ArgumentError(
        f"{module.name} has no computation and no loop %{wanted}", hint="xlakit convert FILE --to text has all names"
    )


def _before(target: Instruction, depth: int) -> set[Instruction]:
    """An instruction, and those before it that are so near."""
    inside, edge = {target}, [target]
    for _ in range(depth):
        edge = [o for i in edge for o in i.operands if o not in inside and not isinstance(o.op, Parameter)]
        inside.update(edge)
    # What ends an operation can have nothing but its start as operand.
    ends = [i for i in inside if isinstance(i.op, _ENDS)]
    while ends:
        start = ends.pop().operands[0]
        if not isinstance(start.op, Parameter):
            inside.add(start)
            ends += [start] if isinstance(start.op, _ENDS) else []
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


def _extraction(module: HloModule, entry: Computation, arguments: Sequence[Any], result: Any) -> Extraction:
    made = with_entry(module.replace(name=f"{module.name}.{entry.root.name}"), entry)
    made.verify()
    return Extraction(made, tuple(arguments), result)


def _unread(parameter: Instruction) -> Any:
    """A value for a parameter that nothing reads."""
    return make_inputs(ProgramShape((parameter.shape,), parameter.shape), 0)[0]


# -- values of a run -------------------------------------------------------------------------------


def _captured(
    module: HloModule,
    computation: Computation,
    iteration: int,
    wanted: Collection[Instruction],
    arguments: Sequence[object],
    seed: int,
    custom_calls: dict[str, object] | None,
) -> dict[Instruction, Any]:
    """What some instructions of a computation were in one of its runs."""
    if module.replica_count * module.num_partitions > 1:
        raise _of_several(module)
    observer = _Capture(computation, iteration, frozenset(wanted), is_entry=computation is module.entry)
    executable = compile_module(module, ExecutionOptions(seed=seed, custom_calls=custom_calls))
    executable.call_observed(lambda _: observer, [arguments])
    if observer.runs <= iteration:
        raise ArgumentError(
            f"%{computation.name} has no run {iteration}: it runs {observer.runs} time{'s' * (observer.runs != 1)}",
            hint="runs are counted from 0; what reduces, maps or sorts is applied to whole arrays and has none",
        )
    return observer.values


def _of_several(module: HloModule) -> UnsupportedError:
    count = module.replica_count * module.num_partitions
    return UnsupportedError(f"{module.name} runs on {count} devices", hint="extract from a program of one device")


@dataclass(slots=True)
class _Capture:
    """Sees all values of a run, and keeps copies of those that are wanted."""

    computation: Computation
    iteration: int
    wanted: frozenset[Instruction]
    is_entry: bool
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
        self._stack.pop()

    def observe(self, context: Context, evaluate: Callable[..., Value], operands: Sequence[Value]) -> Value:
        instruction, is_wanted = context.instruction, self._stack[-1]
        if is_wanted:
            for operand, value in zip(instruction.operands, operands, strict=False):
                self._keep(operand, value)
        value = evaluate(context, *operands)
        if is_wanted:
            self._keep(instruction, value)
        return value

    def _keep(self, instruction: Instruction, value: Value) -> None:
        if instruction in self.wanted and instruction not in self.values:
            self.values[instruction] = _copied(value)


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_copied(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
    return np.array(value) if isinstance(value, (np.ndarray, np.generic)) else value
