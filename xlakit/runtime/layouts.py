"""Arguments and results in layouts other than major to minor: ``jax.experimental.layout``.

JAX requests the layout of an argument or result by ``mhlo.layout_mode``: an order, or ``auto``; the entry layout of the
module has all of them. The compiler supports only major to minor arrays. So the compiled program takes and returns
arrays whose dimensions are permuted to the order of memory, and transposes them, which fusion turns into indexing:

    p = f32[2,3]{0,1} parameter(0)        m = f32[3,2] parameter(0)
                                          p = f32[2,3] transpose(m), dimensions={1,0}
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from xlakit.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xlakit.data.shape import Shape
    from xlakit.ir.instruction import HloModule, Instruction

_MODE: Final = "mhlo.layout_mode"
_AUTO: Final = "auto"
_DEFAULT: Final = ("", "default")


def requests_layouts(code: bytes) -> bool:
    """Whether a program in MLIR may specify layouts of its arguments and results."""
    return _MODE.encode() in code


def with_requested_layouts(module: HloModule, code: bytes) -> HloModule:
    """The module of a program in MLIR, with the layouts that the program requests in the entry layout.

    ``auto`` is major to minor for an argument. For a result it is the order in which nothing has to be transposed.
    Raises UnsupportedError for tiled layouts.
    """
    from xlakit.data.shape import ProgramShape
    from xlakit.formats.stablehlo import main_attributes

    requested_of_parameters, requested_of_results = main_attributes(code, _MODE)
    shape = module.program_shape
    orders: dict[Instruction, tuple[int, ...]] = {}
    parameters: list[Shape] = []
    for parameter, own, mode in zip(module.entry.parameters, shape.parameters, requested_of_parameters, strict=True):
        if own.is_array:
            orders[parameter] = _order(mode, own) or _major_to_minor(own)
            own = _laid_out(own, orders[parameter])
        parameters.append(own)
    modes, values = iter(requested_of_results), iter(_results(module.entry.root))

    def result(own: Shape) -> Shape:
        mode, value = next(modes), next(values)
        if not own.is_array:
            return own
        order = _natural_order(value, orders) if mode == _AUTO and value is not None else _order(mode, own)
        return _laid_out(own, order or _major_to_minor(own))

    layout = ProgramShape(tuple(parameters), shape.result.with_leaves(result), shape.parameter_names)
    return module.replace(entry_computation_layout=layout)


def with_layouts_of(module: HloModule, shapes: Sequence[Shape]) -> HloModule:
    """The module with the layouts of these shapes, of its arguments and then its result, as its entry layout.

    If there are no shapes, all are major to minor. Memory spaces are kept.
    """
    from xlakit.data.shape import ProgramShape

    program_shape = module.program_shape
    orders = iter([minor_to_major(leaf)[::-1] for shape in shapes for _, leaf in shape.leaves()])

    def laid_out(leaf: Shape) -> Shape:
        order = next(orders, ())
        return _laid_out(leaf, order or _major_to_minor(leaf)) if leaf.is_array else leaf

    parameters = tuple(parameter.with_leaves(laid_out) for parameter in program_shape.parameters)
    layout = ProgramShape(parameters, program_shape.result.with_leaves(laid_out), program_shape.parameter_names)
    return module.replace(entry_computation_layout=layout)


def in_memory_order(module: HloModule) -> HloModule:
    """The program on major to minor arrays whose memory is that of the entry layout's; see the module's docstring.

    Gives the same object if the entry layout is major to minor.
    """
    program = module.entry_computation_layout
    shapes = () if program is None else (*program.parameters, program.result)
    if program is None or all(_is_plain(leaf) for shape in shapes for _, leaf in shape.leaves()):
        return module
    # Few programs have other layouts.
    from xlakit.cpu.c_layouts import from_memory, shape_in_memory, to_memory
    from xlakit.ops.data import Parameter
    from xlakit.passes.core.computation_builder import ComputationCloner
    from xlakit.passes.core.framework import PassContext

    cloner = ComputationCloner(module.entry, PassContext())
    for old in module.entry.instructions:
        if isinstance(old.op, Parameter):
            shape = program.parameters[old.op.number]
            in_memory = cloner.append(old.replace(shape=shape_in_memory(shape)))
            cloner.substitute(old, from_memory(in_memory, shape, old, cloner))
        else:
            cloner.clone(old)
    root = module.entry.root
    entry = cloner.build(to_memory(cloner.clones[root], program.result, root, cloner))
    program_shape = entry.program_shape
    aliases = tuple(
        alias
        for alias in module.input_output_alias
        if program_shape.parameters[alias.parameter_number]
        .at(alias.parameter_index)
        .compatible(program_shape.result.at(alias.output_index))
    )
    return module.replace(entry=entry, entry_computation_layout=None, input_output_alias=aliases)


def minor_to_major(shape: Shape) -> tuple[int, ...]:
    """The order of an array in memory; empty if it is major to minor, or no array."""
    return () if _is_plain(shape) else shape.layout_or_default.minor_to_major


def _order(mode: str, shape: Shape) -> tuple[int, ...] | None:
    """The order that a mode requests, from the major dimension to the minor one; None if it requests none."""
    from xlakit.formats.hlo_text import parse_shape

    if mode in (*_DEFAULT, _AUTO) or not shape.rank:
        return None
    layout = parse_shape(f"{shape.to_string(with_layout=False)}{mode}").layout_or_default
    if layout.tiles:
        raise UnsupportedError(
            f"an array {shape.to_string(with_layout=False)} in the tiled layout {mode}",
            hint="processors have no tiled memory: leave the tiling out",
        )
    return layout.minor_to_major[::-1]


def _major_to_minor(shape: Shape) -> tuple[int, ...]:
    return tuple(range(shape.rank))


def _laid_out(shape: Shape, order: Sequence[int]) -> Shape:
    """The shape with a layout given by its dimensions from the major to the minor one; the memory space is kept."""
    layout = replace(shape.layout_or_default, minor_to_major=tuple(order)[::-1])
    # Most shapes have this layout already; keeping the object saves time in small programs.
    return shape if shape.layout == layout else shape.with_layout(layout)


def _is_plain(shape: Shape) -> bool:
    return not shape.is_array or shape.layout is None or shape.layout.is_monotonic_with_dim0_major


def _results(root: Instruction) -> list[Instruction | None]:
    """The instructions whose values the program returns, one for each array; None for elements of an opaque tuple."""
    from xlakit.ops.data import Tuple

    if not root.shape.is_tuple:
        return [root]
    if isinstance(root.op, Tuple):
        return [value for operand in root.operands for value in _results(operand)]
    return [None for _ in root.shape.leaves()]


def _natural_order(value: Instruction, orders: dict[Instruction, tuple[int, ...]]) -> tuple[int, ...]:
    """The order of dimensions, from the major one on, in which a value can be stored without transposing it.

    orders: of the parameters. An element-wise operation has the order of an operand; a transpose has the order of its
    operand, expressed in the dimensions of its result.
    """
    from xlakit.ir.traits import Elementwise
    from xlakit.ops.movement import Transpose

    permutation = list(range(value.shape.rank))  # Maps each dimension of ``value`` to the one of ``at``.
    at = value
    while at not in orders:
        if isinstance(at.op, Transpose):
            permutation = [at.op.dimensions[d] for d in permutation]
            at = at.operands[0]
            continue
        operand = next((o for o in at.operands if o.shape.same_dimensions(at.shape)), None)
        if not isinstance(at.op, Elementwise) or operand is None:
            break
        at = operand
    order = orders.get(at, tuple(range(at.shape.rank)))
    return tuple(permutation.index(d) for d in order)
