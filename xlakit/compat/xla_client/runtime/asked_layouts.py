"""The layouts of arguments and results that a program or its CompileOptions ask for, and arrays that lie so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xlakit.compat.xla_client.runtime.options import CompileOptions
from xlakit.compat.xla_client.shapes import Shape
from xlakit.data.layout import Layout
from xlakit.data.shape import ProgramShape, Shape as OurShape
from xlakit.errors import ArgumentError, ShapeError
from xlakit.ir.instruction import HloModule
from xlakit.runtime.layouts import asks_for_layouts, in_asked_layouts, with_layouts_of


def laid_out_program(program: object, module: HloModule, options: CompileOptions) -> HloModule:
    """The module whose entry layout says how its arguments and results lie: as ``mhlo.layout_mode`` or the options ask.

    program: what the module was read from. The layouts of instructions and parameters do not count, as in jaxlib.
    Raises ShapeError for shapes that are not those of the program, ArgumentError for another number of them.
    """
    made = with_layouts_of(module, ())
    code = program.encode() if isinstance(program, str) else program
    if isinstance(code, bytes) and asks_for_layouts(code):
        made = in_asked_layouts(made, code)
    given, result = options.argument_layouts, options.executable_build_options.result_layout
    if given is None and result is None:
        return made
    shape = made.program_shape
    parameters = shape.parameters if given is None else _of_arguments(given, shape.parameters)
    asked = shape.result if result is None else _compatible(result.wrapped, shape.result, "result of the computation")
    layout = ProgramShape(parameters, asked, shape.parameter_names)
    return made.replace(entry_computation_layout=layout)


def _of_arguments(given: Sequence[Shape], parameters: Sequence[OurShape]) -> tuple[OurShape, ...]:
    leaves = [leaf for parameter in parameters for _, leaf in parameter.leaves()]
    if len(given) != len(leaves):
        raise ArgumentError(
            f"CompileOptions specify {len(given)} argument layouts, but computation has {len(leaves)} arguments",
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
            f"Argument does not match {what}: want {own.without_layout()}, got {given.without_layout()}",
            hint="give the shapes of the program in argument_layouts and result_layout, or none",
        )
    return given


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
