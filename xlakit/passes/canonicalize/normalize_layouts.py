"""Layout normalization: every array inside the program gets the default layout, row-major (a shape without layout).

A layout does not affect the value of an instruction, with two exceptions: a bitcast reads memory in the operand's
layout and interprets it in its own; and custom calls and infeeds exchange memory with external code.
"""

from __future__ import annotations

import dataclasses
import math

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import UnsupportedError
from xlakit.ir.attributes import SliceDimension
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ir.traits import ForeignMemory
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, Parameter
from xlakit.ops.dynamic import AT_SIZES
from xlakit.ops.elementwise.convert import Bitcast, BitcastConvert
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import Pass, PassContext, change_computations, inherited
from xlakit.passes.core.hlo_builder import HloBuilder
from xlakit.passes.core.matching import permutation_inverse


class NormalizeLayouts(Pass):
    """Drop all layouts but the entry's, and replace bitcasts by transposes, reshapes and bitcast-converts.

    Bitcasts between tiles of different forms, of padded arrays, and others whose memory is not one element after the
    other, become calls of ``xlakit.AtSizes``, which the interpreter evaluates on a computation that keeps its layouts.
    Raises UnsupportedError for dynamic arrays.
    """

    name = "normalize-layouts"
    left_out_by = ""

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change all computations in one rewrite: either all layouts are dropped or none."""
        stale = sum(1 for i in module.instructions if _has_layout(i))
        if not stale or not context.spend("layout", stale):
            return module
        program = module.entry.program_shape
        layout = module.entry_computation_layout
        if layout is None and not all(map(_is_default, (*program.parameters, program.result))):
            layout = program
        shapes: dict[Shape, Shape] = {}

        def change(computation: Computation) -> Computation:
            return _Normalized(computation, context, shapes).result()

        return change_computations(module, change).replace(entry_computation_layout=layout)


def _with_layouts(shape: Shape) -> Shape:
    """The shape with its implied layouts written out."""
    if shape.tuple_shapes:
        return dataclasses.replace(shape, tuple_shapes=tuple(map(_with_layouts, shape.tuple_shapes)))
    return shape.with_layout(shape.layout_or_default) if shape.is_array else shape


def _is_default(shape: Shape) -> bool:
    return _with_layouts(shape) == shape.with_default_layout()


def _has_layout(instruction: Instruction) -> bool:
    if isinstance(instruction.op, Bitcast):
        return True
    if isinstance(instruction.op, ForeignMemory):
        return _reads_layouts(instruction)
    return _says_layout(instruction.shape)


def _reads_layouts(instruction: Instruction) -> bool:
    """Whether a custom call reads memory in the layouts of its operands, and does not say so itself."""
    op = instruction.op
    if not isinstance(op, CustomCall) or op.operand_layout_constraints:
        return False
    return not all(_is_default(operand.shape) for operand in instruction.operands)


def _says_layout(shape: Shape) -> bool:
    return shape.layout is not None or any(map(_says_layout, shape.tuple_shapes))


class _Normalized(ComputationCloner):
    """One computation with its layouts dropped."""

    def __init__(self, computation: Computation, context: PassContext, shapes: dict[Shape, Shape]) -> None:
        super().__init__(computation, context)
        # Shapes without layouts, shared by all computations: a program has few different shapes.
        self._shapes = shapes

    def result(self) -> Computation:
        """The new computation; the old one if it has no layouts."""
        old = self._computation
        if not any(map(_has_layout, old.instructions)):
            return old
        for instruction in old.instructions:
            made = self._bitcast(instruction) if isinstance(instruction.op, Bitcast) else self._plain(instruction)
            self.substitute(instruction, made)
        return self.build()

    def _plain(self, old: Instruction) -> Instruction:
        op: Op = old.op
        shape = self._without(old.shape)
        if isinstance(op, Constant) and shape is not old.shape:
            op = Constant(literal=op.literal.without_layout())
        elif isinstance(op, CustomCall):
            # The external function reads and writes memory in the declared layouts, so they stay.
            shape = old.shape
            if _reads_layouts(old):
                op = dataclasses.replace(op, operand_layout_constraints=tuple(o.shape for o in old.operands))
        elif isinstance(op, ForeignMemory):
            shape = old.shape
        operands = tuple(self.clones[o] for o in old.operands)
        predecessors = tuple(self.clones[p] for p in old.control_predecessors)
        if (
            op is old.op
            and shape is old.shape
            and operands == old.operands
            and predecessors == old.control_predecessors
        ):
            return self.append(old)
        return self.append(old.replace(op=op, operands=operands, shape=shape, control_predecessors=predecessors))

    def _without(self, shape: Shape) -> Shape:
        if not _says_layout(shape):
            return shape
        found = self._shapes.get(shape)
        if found is None:
            found = self._shapes[shape] = shape.without_layout()
        return found

    # -- bitcasts --------------------------------------------------------------------------------

    def _bitcast(self, old: Instruction) -> Instruction:
        """A bitcast as operations on arrays with default layouts.

        bitcast(x) -> transpose(reshape(bitcast-convert(transpose(x)))), without those that change nothing. The inner
        transpose brings the elements into the memory order of the operand's layout; the outer one goes from the memory
        order of the result's layout to row-major order.
        """
        source, result = old.operands[0].shape, old.shape
        operand = self.clones[old.operands[0]]
        if source.without_layout() == result.without_layout() and _with_layouts(source) == _with_layouts(result):
            return operand
        if not _is_plain(source, result):
            return self._by_python(old, operand)
        from_memory = source.layout_or_default.minor_to_major[::-1]
        to_memory = result.layout_or_default.minor_to_major[::-1]
        sizes = tuple(result.dimensions[d] for d in to_memory)
        make = self.at(old)
        value = make.transpose(operand, from_memory)
        value = _leading_elements(value, _bits(result) // source.element_type.bit_width, make)
        value = make.reshape(_as_type(value, result.element_type, make), sizes)
        value = make.transpose(value, permutation_inverse(to_memory))
        if value.name == operand.name or self._order[-1] is not value:
            return value
        named = value.replace(name=old.name, annotations=inherited(old.annotations))
        self._order[-1] = named
        return named

    def _by_python(self, old: Instruction, operand: Instruction) -> Instruction:
        """An ``xlakit.AtSizes`` call of a computation that is only the bitcast, with the original layouts."""
        parameter = Instruction(Parameter(number=0), (), old.operands[0].shape, "p0")
        root = old.replace(operands=(parameter,), control_predecessors=())
        call = CustomCall(custom_call_target=AT_SIZES, computations=(Computation(old.name, (parameter, root), root),))
        predecessors = tuple(self.clones[p] for p in old.control_predecessors)
        shape = old.shape.without_layout()
        return self.append(old.replace(op=call, operands=(operand,), shape=shape, control_predecessors=predecessors))


def _leading_elements(value: Instruction, count: int, make: HloBuilder) -> Instruction:
    """The first ``count`` elements in memory; a bitcast to a smaller array drops the others."""
    total = value.shape.num_elements
    return value if count == total else make.slice(make.reshape(value, (total,)), (SliceDimension(0, count),))


def _as_type(value: Instruction, kind: PrimitiveType, make: HloBuilder) -> Instruction:
    source = value.shape.element_type
    if source is kind:
        return value
    ratio = kind.bit_width // source.bit_width
    if ratio > 1:
        # Neighbors in memory make one wider element.
        value = make.reshape(value, (math.prod(value.shape.dimensions) // ratio, ratio))
    return make.add(BitcastConvert(), value, shape=value.shape.with_element_type(kind))


def _is_plain(source: Shape, result: Shape) -> bool:
    """Whether a bitcast can be written with reshapes: between dense arrays, or between arrays with the same tiles.

    Raises UnsupportedError for dynamic arrays, which have no fixed layout.
    """
    layouts = source.layout_or_default, result.layout_or_default
    for shape, layout in zip((source, result), layouts, strict=True):
        if shape.is_dynamic:
            raise UnsupportedError(f"a bitcast of the dynamic array {shape}", operation="bitcast")
        if layout.padded_dimensions:
            return False
    if any(layout.tiles for layout in layouts):
        return _has_same_tiles(source, result)
    a, b = source.element_type, result.element_type
    if _bits(result) > _bits(source) or _bits(result) % a.bit_width:
        return False
    return a is b or (
        a.is_complex == b.is_complex and (a.bit_width == b.bit_width or min(a.bit_width, b.bit_width) > 7)
    )


def _has_same_tiles(source: Shape, result: Shape) -> bool:
    """Whether what tiles cover, the minor dimensions, is the same in both: then blocks of it lie one behind the other.

    f32[2,4,5,6]{3,2,1,0:T(8,128)} -> f32[8,5,6]{2,1,0:T(8,128)}
    """
    if source.num_elements != result.num_elements or source.element_type is not result.element_type:
        return False
    covered = _covered_by_tiles(source)
    return source.num_elements == 1 or (covered is not None and covered == _covered_by_tiles(result))


def _covered_by_tiles(shape: Shape) -> tuple[object, ...] | None:
    """The tiles of an array, with the sizes of the dimensions that they cover; None where they cover something else.

    That are more dimensions than there are, or several that are taken together.
    """
    layout = shape.layout_or_default
    tiles = [tile.dimensions for tile in layout.tiles]
    while len(tiles) == 1 and tiles[0][:1] == (1,):
        # A tile of one element in a dimension leaves that as it is.
        tiles = [tiles[0][1:]]
    rank = len(tiles[0]) if tiles else 0
    if rank > shape.rank or any(len(tile) > rank or min(tile, default=1) < 1 for tile in tiles):
        return None
    sizes = [shape.dimensions[d] for d in layout.minor_to_major[:rank]]
    return (*filter(None, tiles), *sizes, layout.element_size_in_bits)


def _bits(shape: Shape) -> int:
    return shape.num_elements * shape.element_type.bit_width
