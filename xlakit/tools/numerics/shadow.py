"""The rounding errors of a program: every instruction beside its value in F64 ("shadow values").

Each array that a program computes has a shadow: its value in F64 (complex: C128). An instruction is evaluated three
times: as in the program; in F64 on the shadows of its operands, which gives the shadow of its result, and so the
accumulated error; and in F64 on the program's operands, which gives the error that the instruction itself adds.
Decisions (comparisons, indices, integers, the order of a sort) are those of the program, so that the program and its
shadow take the same branches.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from xlakit.arguments import converting
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.data.text_table import aligned
from xlakit.errors import ArgumentError
from xlakit.interpreter.evaluate import Context, evaluator
from xlakit.interpreter.executable import compile_module
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Array, Op, Value
from xlakit.ir.traits import Done, Start
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple
from xlakit.ops.elementwise.convert import Bitcast, BitcastConvert, ReducePrecision
from xlakit.ops.random import Rng
from xlakit.ops.shared.calling import Calling
from xlakit.ops.shared.numerics import convert
from xlakit.ops.sort import Sort, sort_order
from xlakit.tools.inputs import options_of
from xlakit.tools.numerics.errors import ErrorSize, error_size, ulps, unit_roundoff
from xlakit.tools.numerics.frames import ArrayRow, Frames, describe_path
from xlakit.tools.numerics.promotion import Promotion, promoted_type
from xlakit.tools.numerics.trace import leaves_of

# Operations whose result has no shadow value of its own: it comes from elsewhere, or consists of bits.
_OPAQUE: tuple[type[Op] | type, ...] = (Start, Done, Rng, BitcastConvert)
# Operations whose devices exchange shadows as they exchange values.
_EXCHANGING = (Collective, Permuting)
_SHOWN = 20


@dataclass(slots=True)
class ShadowRow(ArrayRow):
    """The error of one array that an instruction gives, the largest of all its executions.

    error: relative to the shadow (:class:`ErrorSize`). born: what the instruction itself adds, in units in the last
    place of its type; None for one that computes nothing itself (a loop, a call). amplification: its error over the
    largest of its operands', or over a rounding if that is larger. path: the iteration and calls of the largest error.
    """

    error: ErrorSize
    born: float | None
    amplification: float
    path: str

    @property
    def adds(self) -> bool:
        """Whether the instruction adds an error of its own, or makes one larger."""
        return self.born is not None and (self.born > 0 or self.amplification > 1)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: text stands for it."""
        numbers = {
            "relative_error": self.error.relative,
            "absolute_error": self.error.absolute,
            "born_ulps": self.born,
            "amplification": self.amplification,
        }
        return {
            **ArrayRow.as_dict(self),
            **{name: v if v is None or np.isfinite(v) else str(v) for name, v in numbers.items()},
            "path": self.path,
        }


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """The errors of all arrays of floating point numbers that a program computes, the largest first.

    results: for each device what the program gives, and shadows: what it gives in F64.
    """

    rows: tuple[ShadowRow, ...]
    results: tuple[Any, ...]
    outputs: tuple[tuple[str, ErrorSize], ...]

    def as_dict(self) -> dict[str, Any]:
        """The rows, for JSON."""
        return {"rows": [row.as_dict() for row in self.rows]}

    def as_json(self) -> str:
        """The rows as a JSON object."""
        return json.dumps(self.as_dict(), indent=1)

    def most_born(self, count: int = 5) -> list[ShadowRow]:
        """The instructions that add most themselves, beginning with the largest; at least 2 units in the last place."""
        rows = [row for row in self.rows if row.born is not None and row.born >= 2]
        return sorted(rows, key=lambda row: -(row.born or 0.0))[:count]

    def most_amplified(self, count: int = 5) -> list[ShadowRow]:
        """The instructions that make their operands' errors at least twice as large, beginning with the largest."""
        rows = [row for row in self.rows if row.amplification >= 2]
        return sorted(rows, key=lambda row: -row.amplification)[:count]

    def __str__(self) -> str:
        """Tables: the largest errors, where errors are born, where they are amplified, and those of the results."""
        rows = [row for row in self.rows if row.adds]
        title = "largest errors, without instructions that only pass them on"
        parts = [_table(title, rows[:_SHOWN]) if rows else "no instruction adds an error"]
        if len(rows) > _SHOWN:
            parts.append(f"({len(rows) - _SHOWN} smaller ones are in the report as JSON)")
        for title, rows in (("errors born", self.most_born()), ("errors amplified", self.most_amplified())):
            if rows:
                parts.append(_table(title, rows))
        lines = [f"  {name}: {error}" for name, error in self.outputs]
        return "\n\n".join([*parts, "\n".join(["results", *lines])])


def _table(title: str, rows: Sequence[ShadowRow]) -> str:
    table = [("instruction", "operation", "runs", "error", "born (ulp)", "amplified", "largest", "line")]
    for row in rows:
        born = "-" if row.born is None else f"{row.born:.3g}"
        amplified = f"{row.amplification:.3g} x" if row.amplification else "-"
        line = "" if row.location is None else str(row.location)
        error = f"{row.error.relative:.3g}"
        table.append((row.name, row.instruction.opcode, str(row.executions), error, born, amplified, row.path, line))
    return f"{title}\n{aligned(table, right=range(2, 6))}"


@converting
def shadow_errors(
    module: HloModule, *arguments: object, seed: int = 0, custom_calls: dict[str, object] | None = None
) -> ShadowReport:
    """Run a program on the interpreter, and beside it in F64; report the error of every instruction.

    arguments: one for each parameter, as :class:`xlakit.Executable` takes them; several devices all get these, see
    :func:`shadow_replicated`. seed, custom_calls: as :func:`xlakit.compile` has them.

    Arguments and constants count as exact. What does not follow from the program's numbers (send and recv, custom
    calls of functions, random numbers, feeds, bits converted to numbers, the elements that a scan takes and stacks) has
    no shadow: there errors begin again from zero.

    Raises ArgumentError where the program computes nothing in a type narrower than F64, and what running it raises.
    """
    count = module.replica_count * module.num_partitions
    return shadow_replicated(module, [arguments] * count, seed=seed, custom_calls=custom_calls)


def shadow_replicated(
    module: HloModule,
    arguments: Sequence[Sequence[object]],
    *,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> ShadowReport:
    """As :func:`shadow_errors`, with arguments for each device."""
    if not any(_is_narrow(i.shape) for i in module.instructions):
        raise ArgumentError(
            f"{module.name} has no floating point type narrower than f64: its shadow would be itself",
            hint="shadow values are for programs in f32, bf16, f16, f8 or c64",
        )
    executable = compile_module(module, options_of(module, seed, custom_calls))
    # Shared, since devices meet at the same instruction.
    promotion = Promotion()
    promotion.computation(module.entry)
    shadows = [_Shadow(module, promotion) for _ in range(executable.num_devices)]
    results = executable.call_observed(shadows.__getitem__, arguments)
    rows: dict[Any, ShadowRow] = {}
    for shadow in shadows:
        for key, row in shadow.rows.items():
            first = rows.setdefault(key, row)
            if first is not row:
                _join(first, row)
    ranked = sorted(rows.values(), key=lambda row: -row.error.relative)
    outputs = tuple(
        (_output_name(index, device, len(shadows)), error)
        for device, shadow in enumerate(shadows)
        for index, error in shadow.outputs
    )
    return ShadowReport(tuple(ranked), tuple(results), outputs)


def _output_name(index: tuple[int, ...], device: int, count: int) -> str:
    name = ".".join(map(str, index)) or "result"
    return f"device {device}: {name}" if count > 1 else name


def _is_narrow(shape: Shape) -> bool:
    return any(x.is_array and promoted_type(x.element_type) is not x.element_type for _, x in shape.leaves())


def _join(row: ShadowRow, other: ShadowRow) -> None:
    """Count the executions of another device, or another iteration, in."""
    row.executions += other.executions
    if other.error.relative > row.error.relative:
        row.error, row.path = other.error, other.path
    if other.born is not None:
        row.born = max(row.born or 0.0, other.born)
    row.amplification = max(row.amplification, other.amplification)


class _Shadow:
    """The observer of one device: it keeps the shadows of the arrays that are alive."""

    def __init__(self, module: HloModule, promotion: Promotion) -> None:
        self.rows: dict[Any, ShadowRow] = {}
        self.outputs: list[tuple[tuple[int, ...], ErrorSize]] = []
        self._module = module
        self._frames = Frames()
        self._promotion = promotion
        # Keyed by id(array); the weak reference removes an entry when its array is freed.
        self._shadows: dict[int, tuple[weakref.ref[Array], Array]] = {}
        # What is being run within what, by its last instruction; and what the last one of them that ended has given.
        self._entered: list[tuple[Instruction, Instruction]] = []
        self._given: tuple[Instruction, Value] | None = None

    def enter(self, caller: Instruction, computation: Computation) -> None:
        self._frames.enter(caller, computation)
        # Custom calls of others' backends enter computations that the module does not have.
        self._promotion.computation(computation)
        self._entered.append((caller, computation.root))

    def leave(self) -> None:
        self._frames.leave()
        self._entered.pop()

    def observe(self, context: Context, evaluate: Callable[..., Value], operands: Sequence[Value]) -> Value:
        instruction = context.instruction
        # NumPy sometimes gives scalars instead of arrays of rank 0; as arrays they can be keys by their ids.
        value = _map_leaves(evaluate(context, *operands), np.asarray)
        if isinstance(instruction.op, CustomCall) and self._given is not None and self._given[0] is instruction:
            self._pass_on(self._given[1], value)
        if self._entered and self._entered[-1][1] is instruction:
            self._given = self._entered[-1][0], value
        computes = not isinstance(instruction.op, (Constant, GetTupleElement, Parameter, Tuple))
        if computes and any(_is_narrow_array(array) for _, array in leaves_of(value)):
            self._compare(context, instruction, operands, value)
        if instruction is self._module.entry.root and not self._frames.path:
            self.outputs = [(i, error_size(a, self.shadow_of(a))) for i, a in leaves_of(value) if _is_narrow_array(a)]
        return value

    def shadow_of(self, array: Array) -> Array:
        """What the array would be in F64; itself where nothing is known."""
        entry = self._shadows.get(id(array))
        if entry is not None and entry[0]() is array:
            return entry[1]
        return _promoted(array)

    def _compare(self, context: Context, instruction: Instruction, operands: Sequence[Value], value: Value) -> None:
        """Compute the shadow of a result from the operands' shadows, and note the error.

        The error that this instruction itself adds is found from its result in F64 on the program's operands. Results
        of other operations (calls, custom calls) get their shadows within the called computation, or have none.
        """
        arrays = list(leaves_of(value))
        unrounded: list[Array] | None = None
        if _is_computed(instruction):
            operand_shadows = [_map_leaves(operand, _promoted) for operand in operands]
            unrounded = [
                leaf for _, leaf in leaves_of(self._evaluated(context, instruction, operands, operand_shadows))
            ]
            exact = [_map_leaves(operand, self.shadow_of) for operand in operands]
            shadows = leaves_of(self._evaluated(context, instruction, operands, exact))
            for (_, array), (_, shadow) in zip(arrays, shadows, strict=True):
                self._attach(array, shadow)
        narrow = [array for operand in operands for _, array in leaves_of(operand) if _is_narrow_array(array)]
        before = max((error_size(array, self.shadow_of(array)).relative for array in narrow), default=0.0)
        for number, (index, array) in enumerate(arrays):
            if _is_narrow_array(array):
                self._add(instruction, index, array, None if unrounded is None else unrounded[number], before)

    def _add(
        self, instruction: Instruction, index: tuple[int, ...], array: Array, unrounded: Array | None, before: float
    ) -> None:
        """Note the error of one array of a result; before: the largest error of the operands."""
        error = error_size(array, self.shadow_of(array))
        row = ShadowRow(
            instruction,
            index,
            self._frames.callers,
            self._module.location_of(instruction),
            1,
            error,
            None if unrounded is None else ulps(array, unrounded),
            _amplification(error.relative, before, array) if unrounded is not None else 0.0,
            describe_path(self._frames.path),
        )
        first = self.rows.setdefault((row.callers, instruction, index), row)
        if first is not row:
            _join(first, row)

    def _pass_on(self, given: Value, value: Value) -> None:
        """The shadows of what the computation that means a custom call gave, for the copies that the call gives."""
        for (_, source), (_, copy) in zip(leaves_of(given), leaves_of(value), strict=False):
            if copy.dtype == source.dtype and np.array_equal(copy, source, equal_nan=True):
                self._attach(copy, self.shadow_of(source))

    def _attach(self, array: Array, shadow: Array) -> None:
        if not _is_narrow_array(array):
            return
        key = id(array)
        self._shadows[key] = (weakref.ref(array, lambda _: self._shadows.pop(key, None)), shadow)

    def _evaluated(
        self, context: Context, instruction: Instruction, operands: Sequence[Value], promoted: Sequence[Value]
    ) -> Value:
        """What the instruction gives in F64 for promoted operands."""
        if isinstance(instruction.op, ReducePrecision):
            return promoted[0]
        if isinstance(instruction.op, Sort):
            return _sorted(context, instruction, instruction.op, operands, promoted)
        new = self._promotion.instruction(instruction)
        return evaluator(new)(Context(context.device, new), *promoted)


def _amplification(error: float, before: float, array: Array) -> float:
    """How much larger than before an error is, and than a rounding; 0 where it was none before, or infinite."""
    return error / max(before, unit_roundoff(array)) if 0 < before < np.inf else 0.0


def _is_computed(instruction: Instruction) -> bool:
    """Whether the operation computes the result from operands, as numbers rather than bits."""
    op = instruction.op
    if isinstance(op, _EXCHANGING):
        return True
    # Bits read as another type.
    bits = isinstance(op, Bitcast) and instruction.operands[0].shape.element_type is not instruction.shape.element_type
    return not (isinstance(op, (*_OPAQUE, Calling)) or op.has_side_effect or bits)


def _sorted(
    context: Context, instruction: Instruction, op: Sort, operands: Sequence[Value], promoted: Sequence[Value]
) -> Value:
    """Promoted operands in the order that the operands have when they are sorted."""
    rows = [np.moveaxis(operand, op.dimension, -1) for operand in operands]
    flat = [row.reshape(-1, row.shape[-1]) if row.size else row.reshape(0, row.shape[-1]) for row in rows]
    order = sort_order(context, op.to_apply, flat).reshape(rows[0].shape)
    results = tuple(
        np.moveaxis(np.take_along_axis(np.moveaxis(array, op.dimension, -1), order, axis=-1), -1, op.dimension)
        for array in promoted
    )
    return results if instruction.shape.is_tuple else results[0]


def _promoted(array: Array) -> Array:
    return convert(array, promoted_type(PrimitiveType.from_dtype(array.dtype)))


def _is_narrow_array(array: Array) -> bool:
    kind = PrimitiveType.from_dtype(array.dtype)
    return promoted_type(kind) is not kind


def _map_leaves(value: Value, change: Callable[[Array], Array]) -> Value:
    """The value with other arrays; an unchanged array stays the same object."""
    if isinstance(value, tuple):
        return tuple(_map_leaves(part, change) for part in value)  # pyright: ignore[reportUnknownVariableType]
    return change(cast("Array", value)) if isinstance(value, (np.ndarray, np.generic)) else value
