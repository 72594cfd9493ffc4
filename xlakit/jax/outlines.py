"""A program in outline, as a HLO proto: its arguments, its results, and one call that stands for what it computes.

It is written without protocol buffers' classes: they take a tenth of the time to a process's first program to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from xlakit.jax.wire import packed, written
from xlakit.runtime.layouts import minor_to_major

if TYPE_CHECKING:
    from xlakit.data.shape import Shape
    from xlakit.ir.attributes import Sharding
    from xlakit.ir.instruction import HloModule, Instruction

# Fields, by message: HloModuleProto, HloComputationProto, HloInstructionProto, ProgramShapeProto, ShapeProto,
# LayoutProto and HloModuleConfigProto.
_NAME, _ENTRY_NAME, _COMPUTATION, _PROGRAM_SHAPE, _RESULTS_SHARDING, _ARGUMENTS_SHARDING = 1, 2, 3, 4, 12, 14
_INSTRUCTION, _OWN_SHAPE, _ROOT = 2, 4, 6
_OPCODE, _SHAPE, _NUMBER, _TARGET, _ID, _SHARDING = 2, 3, 9, 28, 35, 40
_PARAMETERS, _RESULT, _PARAMETER_NAMES = 1, 2, 3
_ELEMENT_TYPE, _DIMENSIONS, _ELEMENTS, _LAYOUT, _DYNAMIC = 2, 3, 4, 5, 6
_ORDER, _MEMORY_SPACE, _ALIGNMENT = 1, 8, 16
_ENTRY_LAYOUT, _REPLICAS, _PARTITIONS = 1, 4, 5


def outline_of(module: HloModule) -> bytes:
    """The HloModuleProto of a module's outline, with the shardings of its arguments and results."""
    entry = module.entry
    name, count = entry.name.encode(), len(entry.parameters)
    instructions = [
        _instruction(old, f"argument.{n}", "parameter", n) + written(_NUMBER, n)
        for n, old in enumerate(entry.parameters)
    ]
    root = _instruction(entry.root, "results", "custom-call", count) + written(_TARGET, b"outline")
    computation = [written(_INSTRUCTION, each) for each in (*instructions, root)]
    shapes = [old.shape for old in entry.parameters]
    own = written(_OWN_SHAPE, _program_shape(shapes, entry.root.shape)) + written(_ROOT, count)
    program = module.program_shape
    found = [
        written(_NAME, module.name.encode()),
        written(_ENTRY_NAME, name),
        written(_COMPUTATION, written(_NAME, name) + b"".join(computation) + own),
        written(_PROGRAM_SHAPE, _program_shape(program.parameters, program.result)),
    ]
    if module.spmd_output_sharding is not None:
        found.append(written(_RESULTS_SHARDING, _sharding(module.spmd_output_sharding)))
    found += [written(_ARGUMENTS_SHARDING, _sharding(each)) for each in module.spmd_parameters_shardings]
    return b"".join(found)


def config_of(module: HloModule) -> bytes:
    """A HloModuleConfigProto with the layouts that the module says."""
    program = module.program_shape
    layout = _program_shape(program.parameters, program.result, with_memory=False)
    counts = written(_REPLICAS, module.replica_count) + written(_PARTITIONS, module.num_partitions)
    return written(_ENTRY_LAYOUT, layout) + counts


def _instruction(old: Instruction, name: str, opcode: str, id: int) -> bytes:
    found = written(_NAME, name.encode()) + written(_OPCODE, opcode.encode()) + written(_SHAPE, _shape(old.shape))
    sharding = old.annotations.sharding
    return found + written(_ID, id) + (b"" if sharding is None else written(_SHARDING, _sharding(sharding)))


def _program_shape(parameters: Sequence[Shape], result: Shape, *, with_memory: bool = True) -> bytes:
    each = [written(_PARAMETERS, _shape(shape, with_memory)) for shape in parameters]
    return b"".join((*each, written(_RESULT, _shape(result, with_memory)), written(_PARAMETER_NAMES, b"") * len(each)))


@lru_cache
def _shape(shape: Shape, with_memory: bool = True) -> bytes:
    found = written(_ELEMENT_TYPE, shape.element_type.value)
    if not shape.is_array:
        return found + b"".join(written(_ELEMENTS, _shape(each, with_memory)) for each in shape.tuple_shapes)
    order = minor_to_major(shape) or range(shape.rank)[::-1]
    layout = written(_ORDER, packed(order)) + written(_ALIGNMENT, 1)
    if with_memory:
        layout += written(_MEMORY_SPACE, shape.layout_or_default.memory_space)
    sizes = written(_DIMENSIONS, packed(shape.dimensions)) + written(_DYNAMIC, packed(shape.dynamic_dimensions))
    return found + sizes + written(_LAYOUT, layout)


def _sharding(sharding: Sharding) -> bytes:
    # Programs for one device have none.
    from xlakit.formats.hlo_proto.schema import new
    from xlakit.formats.hlo_proto.shardings import write_sharding

    proto = new("OpSharding")
    write_sharding(sharding, proto)
    return proto.SerializeToString()
