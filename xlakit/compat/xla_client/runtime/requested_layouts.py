"""The layouts of arguments and results that a program or its CompileOptions request, and arrays in these layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xlakit.compat.xla_client.runtime.options import CompileOptions
from xlakit.compat.xla_client.shapes import Shape
from xlakit.cpu.c_layouts import shape_in_memory
from xlakit.data.layout import Layout
from xlakit.data.shape import ProgramShape, Shape as OurShape, make_tuple_shape
from xlakit.errors import ArgumentError, ShapeError
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Parameter, Tuple
from xlakit.ops.elementwise.convert import Bitcast
from xlakit.runtime.layouts import requests_layouts, with_layouts_of, with_requested_layouts


def laid_out_program(program: object, module: HloModule, options: CompileOptions) -> HloModule:
    """The module with the entry layout that ``mhlo.layout_mode`` or the options request for arguments and results.

    program: what the module was read from. The layouts of instructions and parameters do not count, as in jaxlib.
    Raises ShapeError for shapes that are not those of the program, ArgumentError for another number of them.
    """
    made = with_layouts_of(module, ())
    code = program.encode() if isinstance(program, str) else program
    if isinstance(code, bytes) and requests_layouts(code):
        made = with_requested_layouts(made, code)
    given, result = options.argument_layouts, options.executable_build_options.result_layout
    if given is None and result is None:
        return made
    shape = made.program_shape
    parameters = shape.parameters if given is None else _of_arguments(given, shape.parameters)
    requested = (
        shape.result if result is None else _compatible(result.wrapped, shape.result, "result of the computation")
    )
    layout = ProgramShape(parameters, requested, shape.parameter_names)
    return made.replace(entry_computation_layout=layout)


def _of_arguments(given: Sequence[Shape], parameters: Sequence[OurShape]) -> tuple[OurShape, ...]:
    leaves = [leaf for parameter in parameters for _, leaf in parameter.leaves()]
    if len(given) != len(leaves):
        raise ArgumentError(
            f"argument_layouts has {len(given)} shapes, the computation has {len(leaves)} arguments",
            hint="give the shape of each array, or None",
        )
    chosen = iter(
        _compatible(shape.wrapped, leaf, f"shape of computation parameter {number}")
        for number, (shape, leaf) in enumerate(zip(given, leaves, strict=True))
    )
    return tuple(parameter.with_leaves(lambda _: next(chosen)) for parameter in parameters)


def _compatible(given: OurShape, own: OurShape, what: str) -> OurShape:
    if not given.compatible(own):
        raise ShapeError(
            f"the {what} is {own.without_layout()}, a layout is asked for of {given.without_layout()}",
            hint="give the shapes of the program in argument_layouts and result_layout, or none",
        )
    return given


def with_logical_shapes(module: HloModule, requested: ProgramShape) -> HloModule:
    """A compiled module whose entry takes and gives arrays of the program's shapes, with the layouts that it asks for.

    The compiler's own arrays have their dimensions in the order of memory. A bitcast stands between the two, which
    moves nothing. Parts of arrays that were split have other sizes, and stay as they are.
    """
    parameters = {
        old: requested.parameters[old.op.number]
        for old in module.entry.parameters
        if isinstance(old.op, Parameter) and _lies_as(old.shape, requested.parameters[old.op.number])
    }
    root = module.entry.root
    parts = root.operands if isinstance(root.op, Tuple) else (root,)
    wanted = (
        requested.result.tuple_shapes
        if isinstance(root.op, Tuple) and requested.result.is_tuple
        else (requested.result,)
    )
    results = dict(enumerate(wanted)) if len(parts) == len(wanted) else {}
    results = {number: shape for number, shape in results.items() if _lies_as(parts[number].shape, shape)}
    if not parameters and not results:
        return module
    instructions: list[Instruction] = []
    made: dict[Instruction, Instruction] = {}

    def append(instruction: Instruction) -> Instruction:
        instructions.append(instruction)
        return instruction

    def bitcast(of: Instruction, shape: OurShape, name: str) -> Instruction:
        return append(Instruction(Bitcast(), (of,), shape, f"{name}.bitcast"))

    for old in module.entry.instructions:
        if old in parameters:
            made[old] = bitcast(append(old.replace(shape=parameters[old])), old.shape, old.name)
        elif old is not root or not isinstance(root.op, Tuple):
            made[old] = append(old.replace(operands=[made[operand] for operand in old.operands]))
    given = [
        bitcast(made[part], results[number], f"{root.name}.{number}") if number in results else made[part]
        for number, part in enumerate(parts)
    ]
    if isinstance(root.op, Tuple):
        given = [append(root.replace(operands=given, shape=make_tuple_shape([part.shape for part in given])))]
    entry = Computation(module.entry.name, tuple(instructions), given[0], module.entry.execution_thread)
    others = [entry if computation is module.entry else computation for computation in module.computations]
    return module.replace(entry=entry, computations=others, entry_computation_layout=entry.program_shape)


def _lies_as(held: OurShape, requested: OurShape) -> bool:
    """Whether a compiler's array is the memory-order form of a program's array that is not row-major."""
    if not held.is_array or not requested.is_array or major_to_minor(requested.layout_or_default) is None:
        return False
    return shape_in_memory(requested).compatible(held)


def leaf_layouts(shapes: Sequence[OurShape]) -> list[Layout]:
    """The layouts of all arrays, with the bits of elements that are smaller than a byte."""
    found: list[Layout] = []
    for shape in shapes:
        for _, leaf in shape.leaves():
            if leaf.is_array:
                bits = leaf.element_type.bit_width
                packed = bits if bits < 8 and leaf.element_type.name != "PRED" else 0
                found.append(replace(leaf.layout_or_default, element_size_in_bits=packed))
    return found


def major_to_minor(layout: Layout) -> tuple[int, ...] | None:
    """The dimensions from the slowest varying to the fastest; None where they are in their order."""
    order = layout.minor_to_major[::-1]
    return None if order == tuple(range(len(order))) else order


def orders_of(shapes: Sequence[OurShape]) -> list[tuple[int, ...] | None]:
    """The dimensions of all arrays and tokens, from the slowest varying to the fastest; None where in their order."""
    leaves = [leaf for shape in shapes for _, leaf in shape.leaves()]
    return [major_to_minor(leaf.layout_or_default) if leaf.is_array else None for leaf in leaves]


def from_memory(array: np.ndarray[Any, Any], order: tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    """An array whose dimensions are in the order of memory with its own dimensions."""
    return array if order is None else array.transpose(np.argsort(order))


def in_memory(array: np.ndarray[Any, Any], order: tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    """An array with its dimensions in the order of memory, which lies major to minor."""
    return np.ascontiguousarray(array if order is None else array.transpose(order))
