"""The values of a program, instruction by instruction: their ranges, and where NaNs and infinities come from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xlakit.arguments import converting
from xlakit.data.text_table import aligned
from xlakit.errors import Location
from xlakit.interpreter.evaluate import Context
from xlakit.interpreter.executable import compile_module
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Array, Value
from xlakit.ops.data import Constant, GetTupleElement, Tuple
from xlakit.tools.inputs import options_of
from xlakit.tools.numerics.frames import ArrayRow, Frames, describe_path
from xlakit.tools.numerics.statistics import Statistics, statistics_of

# Rows of one instruction that are kept, where each iteration has one.
_MOST_ITERATIONS = 10_000


@dataclass(slots=True)
class TraceRow(ArrayRow):
    """What one instruction gave: in all its executions together, and where it was asked for in each.

    iterations: the iterations of the loops around it, outermost first, with the statistics of that execution; at most
    10,000.
    """

    statistics: Statistics
    iterations: list[tuple[tuple[int, ...], Statistics]] = field(
        default_factory=list[tuple[tuple[int, ...], Statistics]]
    )

    def add(self, other: Statistics, iteration: tuple[int, ...] | None) -> None:
        """One more execution."""
        self.executions += 1
        self.statistics = self.statistics.joined(other)
        self.note(other, iteration)

    def note(self, one: Statistics, iteration: tuple[int, ...] | None) -> None:
        """Keep the statistics of one execution, where iterations are asked for."""
        if iteration is not None and len(self.iterations) < _MOST_ITERATIONS:
            self.iterations.append((iteration, one))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        fields: dict[str, Any] = {
            **ArrayRow.as_dict(self),
            "shape": self.instruction.shape.to_string(with_layout=False),
            **self.statistics.as_dict(),
        }
        if self.iterations:
            fields["iterations"] = [{"iteration": list(i), **s.as_dict()} for i, s in self.iterations]
        return fields


@dataclass(frozen=True, slots=True)
class Origin:
    """The instruction that gave the first NaN, or the first infinity, out of operands that had none.

    element: the index of the first such element. operands: where the operands have the result's dimensions or are
    scalars, their elements that it was computed from. path: the iterations and calls that it happened in, as text.
    """

    what: str
    instruction: Instruction
    path: str
    element: tuple[int, ...]
    operands: tuple[float | complex | int | bool, ...] | None
    location: Location | None
    device: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON; numbers as text, since they may be complex or not finite."""
        return {
            "what": self.what,
            "instruction": self.instruction.name,
            "text": str(self.instruction).strip(),
            "path": self.path,
            "element": list(self.element),
            "operands": None if self.operands is None else self._operand_texts(self.operands),
            "location": None if self.location is None else str(self.location),
            "device": self.device,
        }

    def __str__(self) -> str:
        where = f", {self.path}" if self.path else ""
        line = f" at {self.location}" if self.location is not None else ""
        element = f"element [{','.join(map(str, self.element))}]" if self.element else "the scalar"
        operands_text = ""
        if self.operands:
            named = zip(self.instruction.operands, self._operand_texts(self.operands), strict=True)
            operands_text = " of " + ", ".join(f"%{operand.name} = {value}" for operand, value in named)
        what = f"first {self.what}: %{self.instruction.name} ({self.instruction.opcode}){where}{line}"
        return f"{what}\n  {element}{operands_text}"

    def _operand_texts(self, values: Sequence[float | complex | int | bool]) -> list[str]:
        """The operands with as many digits as their types have."""
        types = [operand.shape.element_type.dtype.type for operand in self.instruction.operands]
        return [str(kind(value)) for kind, value in zip(types, values, strict=True)]


@dataclass(frozen=True, slots=True)
class Trace:
    """What each instruction of a program gave, in the order of first execution; all devices together.

    Instructions that only bundle values (tuple, get-tuple-element) have no rows.
    """

    rows: tuple[TraceRow, ...]
    first_nan: Origin | None
    first_infinity: Origin | None
    results: tuple[Any, ...]

    def as_dict(self) -> dict[str, Any]:
        """The rows and origins, for JSON."""
        nan, infinity = (None if o is None else o.as_dict() for o in (self.first_nan, self.first_infinity))
        return {"first_nan": nan, "first_infinity": infinity, "rows": [row.as_dict() for row in self.rows]}

    def as_json(self) -> str:
        """The rows and origins as a JSON object."""
        return json.dumps(self.as_dict(), indent=1)

    def __str__(self) -> str:
        """A table with a row for each instruction, iterations below it where they were kept, and the origins."""
        table: list[tuple[str, ...]] = [("instruction", "type", "runs", "min", "max", "mean", "nan", "inf", "line")]
        for row in self.rows:
            table.extend(_cells(row))
        origins = [str(origin) for origin in (self.first_nan, self.first_infinity) if origin is not None]
        return "\n".join([aligned(table, right=range(2, 8)), *(f"\n{origin}" for origin in origins)])


def _cells(row: TraceRow) -> Iterator[tuple[str, ...]]:
    indent = "  " * len(row.callers)
    shape = row.instruction.shape
    for number in row.index:
        shape = shape.tuple_shapes[number]
    line = "" if row.location is None else str(row.location)
    kind = shape.to_string(with_layout=False)
    yield (indent + row.name, kind, str(row.executions), *_numbers(row.statistics), line)
    for iteration, statistics in row.iterations:
        yield (f"{indent}  [{','.join(map(str, iteration))}]", "", "", *_numbers(statistics), "")


def _numbers(statistics: Statistics) -> tuple[str, ...]:
    texts = [
        f"{v:.6g}" if statistics.finite else "-" for v in (statistics.minimum, statistics.maximum, statistics.mean)
    ]
    return (*texts, str(statistics.nans), str(statistics.infinities))


@converting
def trace_values(
    module: HloModule,
    *arguments: object,
    iterations: bool = False,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> Trace:
    """Run a program on the interpreter and report the values of every instruction.

    arguments: one for each parameter, as :class:`xlakit.Executable` takes them; where several devices run the program
    all get these, see :func:`trace_replicated`.
    iterations: whether the report has each iteration of loops as well as all together.
    seed, custom_calls: as :func:`xlakit.compile` has them.

    The report names the first instruction that gives a NaN (or an infinity) out of operands without one, with the
    iteration, the element, the operands' elements, and the line of the program that made it, where the module knows it.

    Raises what running the program raises.
    """
    count = module.replica_count * module.num_partitions
    return trace_replicated(module, [arguments] * count, iterations=iterations, seed=seed, custom_calls=custom_calls)


def trace_replicated(
    module: HloModule,
    arguments: Sequence[Sequence[object]],
    *,
    iterations: bool = False,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> Trace:
    """As :func:`trace_values`, with arguments for each device."""
    executable = compile_module(module, options_of(module, seed, custom_calls))
    tracers = [_Tracer(module, device, iterations=iterations) for device in range(executable.num_devices)]
    results = executable.call_observed(tracers.__getitem__, arguments)
    rows: dict[Any, TraceRow] = {}
    for tracer in tracers:
        for key, row in tracer.rows.items():
            first = rows.setdefault(key, row)
            if first is not row:
                first.executions += row.executions
                first.statistics = first.statistics.joined(row.statistics)
    return Trace(
        tuple(rows.values()),
        next((t.origins["NaN"] for t in tracers if "NaN" in t.origins), None),
        next((t.origins["infinity"] for t in tracers if "infinity" in t.origins), None),
        tuple(results),
    )


class _Tracer:
    """The observer of one device."""

    def __init__(self, module: HloModule, device: int, *, iterations: bool) -> None:
        self.rows: dict[Any, TraceRow] = {}
        self.origins: dict[str, Origin] = {}
        self._module = module
        self._device = device
        self._frames = Frames()
        self._iterations = iterations

    def enter(self, caller: Instruction, computation: Computation) -> None:
        self._frames.enter(caller, computation)

    def leave(self) -> None:
        self._frames.leave()

    def observe(self, context: Context, evaluate: Callable[..., Value], operands: Sequence[Value]) -> Value:
        instruction = context.instruction
        value = evaluate(context, *operands)
        if isinstance(instruction.op, (Tuple, GetTupleElement)):
            return value
        path = self._frames.path
        loops = tuple(frame.iteration for frame in path if frame.is_loop)
        is_constant = isinstance(instruction.op, Constant)
        for index, array in leaves_of(value):
            statistics = statistics_of(array)
            self._add(instruction, index, statistics, loops if self._iterations and not is_constant and loops else None)
            # NaNs and infinities in constants are intended: an empty mean, the initial value of a maximum.
            if statistics.nans and not is_constant:
                self._origin("NaN", np.isnan, instruction, array, operands)
            if statistics.infinities and not is_constant:
                self._origin("infinity", np.isinf, instruction, array, operands)
        return value

    def _add(
        self, instruction: Instruction, index: tuple[int, ...], statistics: Statistics, loops: tuple[int, ...] | None
    ) -> None:
        callers = self._frames.callers
        key = (callers, instruction, index)
        row = self.rows.get(key)
        if row is not None:
            row.add(statistics, loops)
            return
        row = TraceRow(instruction, index, callers, self._module.location_of(instruction), 1, statistics)
        row.note(statistics, loops)
        self.rows[key] = row

    def _origin(
        self,
        what: str,
        is_one: Callable[[Array], Array],
        instruction: Instruction,
        array: Array,
        operands: Sequence[Value],
    ) -> None:
        """Note where the first came from, unless it came in with an operand."""
        if what in self.origins:
            return
        if any(bool(is_one(_exact(a)).any()) for operand in operands for _, a in leaves_of(operand)):
            return
        element = tuple(int(i) for i in np.argwhere(is_one(_exact(array)))[0])
        self.origins[what] = Origin(
            what,
            instruction,
            describe_path(self._frames.path),
            element,
            _elements(operands, array.shape, element),
            self._module.location_of(instruction),
            self._device,
        )


def leaves_of(value: Value, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Array]]:
    """The arrays of a value with their indices; tokens have none."""
    if isinstance(value, tuple):
        for number, part in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield from leaves_of(part, (*index, number))
    elif isinstance(value, (np.ndarray, np.generic)):
        yield index, np.asarray(value)


def _exact(array: Array) -> Array:
    # NumPy's isnan knows nothing of some of the narrow types.
    return array.astype(np.float32) if array.dtype.isbuiltin != 1 else array


def _elements(operands: Sequence[Value], sizes: tuple[int, ...], element: tuple[int, ...]) -> tuple[Any, ...] | None:
    """The elements of the operands at an index, where all are arrays of these sizes or scalars."""
    elements: list[Any] = []
    for operand in operands:
        if not isinstance(operand, (np.ndarray, np.generic)):
            return None
        array = np.asarray(operand)
        if array.shape not in ((), sizes):
            return None
        elements.append(_exact(array)[element if array.shape else ()].item())
    return tuple(elements)
