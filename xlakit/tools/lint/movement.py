"""Lints of operations that move elements, and of arrays that are large or unused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import Constant, ElidedConstant, GetTupleElement
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.movement import Reverse, Transpose
from xlakit.passes.analysis.loops import counted_elements, loop_of
from xlakit.passes.core.matching import as_integer, uniform
from xlakit.tools.lint.registry import Found, lint
from xlakit.verifier.faults import Program

_HUGE: Final = 4 << 20


@lint("redundant-transpose", "a transpose that moves nothing, or that undoes the one before it")
def _redundant_transpose(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(Transpose):
        op = instruction.op_as(Transpose)
        inner = instruction.operands[0]
        if op.dimensions == tuple(range(len(op.dimensions))):
            # In dumps of optimized programs a pair of transposes may express a change of layout.
            if _same_layout(instruction.shape, inner.shape):
                hint = f"use {inner.name} itself"
                yield Found(computation, instruction, "the transpose leaves every dimension where it is", hint, inner)
        elif isinstance(inner.op, Transpose):
            both = tuple(inner.op.dimensions[d] for d in op.dimensions)
            source = inner.operands[0]
            if both == tuple(range(len(both))) and _same_layout(instruction.shape, source.shape):
                message = f"the transpose undoes its operand {inner.name}"
                yield Found(computation, instruction, message, f"use {source.name} itself", source)


@lint("redundant-reverse", "a reverse that undoes the one before it")
def _redundant_reverse(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(Reverse):
        op, inner = instruction.op_as(Reverse), instruction.operands[0]
        if not isinstance(inner.op, Reverse):
            continue
        if set(op.dimensions) == set(inner.op.dimensions):
            message = f"the reverse undoes its operand {inner.name}"
            source = inner.operands[0]
            yield Found(computation, instruction, message, f"use {source.name} itself", source)


def _same_layout(first: Shape, second: Shape) -> bool:
    return first.layout_or_default == second.layout_or_default


@lint("huge-constant", f"a constant of {_HUGE >> 20} MiB or more, which every copy of the program carries")
def _huge_constant(program: Program) -> Iterator[Found]:
    for computation, instruction in program.instructions(Constant, ElidedConstant):
        if instruction.shape.byte_size >= _HUGE:
            size = instruction.shape.byte_size / (1 << 20)
            yield Found(
                computation,
                instruction,
                f"the constant has {size:.1f} MiB",
                "give the array to the program as an argument (in JAX: of the jitted function, not from outside of it)",
            )


@lint("dead-parameter", "an argument of the program, or an element of one, that nothing reads")
def _dead_parameter(program: Program) -> Iterator[Found]:
    module = program.module
    entry = module.entry
    donated = {(a.parameter_number, a.parameter_index) for a in module.input_output_alias}
    donated |= {(d.parameter_number, d.parameter_index) for d in module.buffer_donor}
    read, wholes = _read_of_parameters(entry)
    for number, parameter in enumerate(entry.parameters):
        if parameter in wholes or parameter.shape.is_token or any(n == number for n, _ in donated):
            continue
        hint = "leave it out of the program (in JAX: jit with keep_unused=False)"
        if not parameter.shape.is_tuple or not read[parameter]:
            yield Found(entry, parameter, f"nothing reads argument {number}", hint)
            continue
        unread = [i for i in range(len(parameter.shape.tuple_shapes)) if i not in read[parameter]]
        if unread:
            elements = ", ".join(map(str, unread))
            yield Found(entry, parameter, f"nothing reads elements {elements} of argument {number}", hint)


def _read_of_parameters(entry: Computation) -> tuple[dict[Instruction, set[int]], set[Instruction]]:
    """The elements that are read of each parameter, and the parameters that are read as a whole."""
    read: dict[Instruction, set[int]] = {p: set() for p in entry.parameters}
    wholes = {entry.root} & set(read)
    for instruction in entry.instructions:
        for operand in instruction.operands:
            if operand in read:
                if isinstance(instruction.op, GetTupleElement):
                    read[operand].add(instruction.op.index)
                else:
                    wholes.add(operand)
    return read, wholes


@lint(
    "dynamic-slice-out-of-range",
    "a dynamic-slice or dynamic-update-slice whose start, a constant or a counter of a loop, does not fit the array",
)
def _dynamic_slice_out_of_range(program: Program) -> Iterator[Found]:
    counters = _counters(program)
    for computation, instruction in program.instructions():
        if isinstance(instruction.op, DynamicSlice):
            array, starts = instruction.operands[0].shape, instruction.operands[1:]
            sizes = instruction.op.dynamic_slice_sizes
        elif isinstance(instruction.op, DynamicUpdateSlice) and instruction.operands[0].shape.is_array:
            array, starts = instruction.operands[0].shape, instruction.operands[2:]
            sizes = instruction.operands[1].shape.dimensions
        else:
            continue
        # The older form has one array of all starts, which is rarely a constant.
        if len(starts) != array.rank or array.is_dynamic or not all(s.shape.is_scalar for s in starts):
            continue
        for d, start in enumerate(starts):
            first, last = counters.get(start) or _constant(start)
            room = array.dimensions[d] - sizes[d]
            if first is not None and last is not None and (first < 0 or last > room):
                values = f"is {first}" if first == last else f"goes from {first} to {last}"
                yield Found(
                    computation,
                    instruction,
                    f"the start of dimension {d}, {start.name}, {values}; only 0 to {room} fit, so it is clamped",
                    "correct the start, or write the clamp out",
                )


def _constant(start: Instruction) -> tuple[int | None, int | None]:
    number = as_integer(uniform(start))
    return number, number


def _counters(program: Program) -> dict[Instruction, tuple[int, int]]:
    """The least and the greatest value of what bodies of loops read of their counters."""
    ranges: dict[Instruction, tuple[int, int]] = {}
    for _, instruction in program.instructions():
        loop = loop_of(instruction)
        if loop is None:
            continue
        counted = counted_elements(loop)
        for inner in loop.body.instructions:
            number = loop.element(inner)
            if number is not None and number in counted:
                ranges[inner] = counted[number]
    return ranges
