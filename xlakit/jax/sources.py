"""The formats in which JAX passes programs to the plugin, and in which the plugin returns them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from xlakit.dataclass import dataclass
from xlakit.errors import FormatError, UnsupportedError
from xlakit.jax.devices import MEMORY_SPACES
from xlakit.jax.wire import fields, packed, written
from xlakit.runtime.layouts import minor_to_major, with_layouts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xlakit.data.shape import Shape
    from xlakit.ir.attributes import Sharding
    from xlakit.ir.instruction import HloModule, Instruction

# Field numbers, a line for each message: HloModuleProtoWithConfig, HloModuleProto, HloComputationProto,
# HloInstructionProto, ProgramShapeProto, ShapeProto, LayoutProto and HloModuleConfigProto.
_MODULE, _CONFIG = 1, 2
_NAME, _ENTRY_NAME, _COMPUTATION, _PROGRAM_SHAPE, _RESULTS_SHARDING, _ARGUMENTS_SHARDING = 1, 2, 3, 4, 12, 14
_INSTRUCTION, _OWN_SHAPE, _ROOT = 2, 4, 6
_OPCODE, _SHAPE, _NUMBER, _TARGET, _ID, _SHARDING = 2, 3, 9, 28, 35, 40
_PARAMETERS, _RESULT, _PARAMETER_NAMES = 1, 2, 3
_ELEMENT_TYPE, _DIMENSIONS, _ELEMENTS, _LAYOUT, _DYNAMIC = 2, 3, 4, 5, 6
_ORDER, _MEMORY_SPACE, _ALIGNMENT = 1, 8, 16
_ENTRY_LAYOUT, _REPLICAS, _PARTITIONS = 1, 4, 5
_MEMORY_KIND: Final = "mhlo.memory_kind"


def read_program(code: bytes, format: str) -> bytes:
    """The HLO proto of a program in one of the interface's formats."""
    if format == "mlir":
        from jaxlib._jax import mlir

        computation = mlir.mlir_module_to_xla_computation(code, use_tuple_args=False, return_tuple=False)
        return computation.as_serialized_hlo_module_proto()
    if format == "hlo":
        return code
    raise UnsupportedError(f"a program in the format '{format}'", hint="JAX hands over 'mlir'")


def module_of(program: bytes) -> HloModule:
    """The module in a HLO proto, without the major to minor layouts of instructions, which a conversion to HLO adds."""
    # Imported on demand: the protocol buffer classes are slow to make, and most programs do not need them.
    from xlakit.formats.hlo_proto import read_module

    return read_module(program, layouts=False)


def names_memory(code: bytes) -> bool:
    """Whether a program in MLIR may specify memory kinds of its arguments and results."""
    return _MEMORY_KIND.encode() in code


def in_named_memory(module: HloModule, code: bytes) -> HloModule:
    """The module of a program in MLIR, with the memory kinds that the program specifies in the entry layout."""
    from xlakit.data.shape import ProgramShape
    from xlakit.formats.stablehlo import main_attributes

    def with_memory_spaces(shape: Shape, kinds: Iterator[str]) -> Shape:
        def leaf(own: Shape) -> Shape:
            space = MEMORY_SPACES.get(next(kinds), 0)
            return own.with_layout(replace(own.layout_or_default, memory_space=space)) if own.is_array else own

        return shape.with_leaves(leaf)

    arguments, results = map(iter, main_attributes(code, _MEMORY_KIND))
    shape = module.program_shape
    parameters = tuple(with_memory_spaces(parameter, arguments) for parameter in shape.parameters)
    layout = ProgramShape(parameters, with_memory_spaces(shape.result, results), shape.parameter_names)
    return module.replace(entry_computation_layout=layout)


@dataclass(frozen=True, slots=True)
class Description:
    """A program as it is returned to JAX, in the format :data:`DESCRIBED`, with the layouts of arguments and results.

    Returning MLIR instead would take a hundred times as long, since reading it needs a context with all dialects.
    """

    # A HLO proto, or the bytecode that JAX passed, if no proto of it was needed.
    program: bytes
    # The program without its instructions. jaxlib reads each compiled or cached program four times, only for the
    # layouts and shardings of its arguments and results.
    outline: bytes

    @property
    def whole(self) -> bytes:
        """The description with the whole program as a proto, of which JAX makes its text."""
        return self._with(_proto_of(self.program))

    @property
    def for_file(self) -> bytes:
        """The description for files, with the program as JAX passed it; read by :func:`described_module`."""
        return self._with(self.program)

    def _with(self, program: bytes) -> bytes:
        config = next(value for number, value in fields(self.outline) if number == _CONFIG)
        return written(_MODULE, program) + (written(_CONFIG, config) if isinstance(config, bytes) else b"")


def is_bytecode(program: bytes) -> bool:
    """Whether a program is StableHLO's bytecode, not a HLO proto."""
    from xlakit.formats.stablehlo.bytecode import MAGIC

    return program.startswith(MAGIC)


def _proto_of(program: bytes) -> bytes:
    return read_program(program, "mlir") if is_bytecode(program) else program


def describe_program(program: bytes, module: HloModule) -> Description:
    """The description of a program, with the module's layouts."""
    return Description(program, written(_MODULE, outline_of(module)) + written(_CONFIG, config_of(module)))


def described_program(description: bytes) -> bytes:
    """The program in a description: a HLO proto or bytecode."""
    return _first_field(description)


def described_module(description: bytes) -> HloModule:
    """The module in a description, with the description's layouts as its entry layout."""
    from xlakit.formats.hlo_proto.schema import parse
    from xlakit.formats.hlo_proto.shapes import read_program_shape
    from xlakit.formats.stablehlo.modules import try_to_read

    config = next(value for number, value in fields(description) if number == _CONFIG and isinstance(value, bytes))
    shape = read_program_shape(parse("ProgramShapeProto", _first_field(config)))
    program = described_program(description)
    module = try_to_read(program) if is_bytecode(program) else None
    module = module or module_of(_proto_of(program))
    return with_layouts_of(module, (*shape.parameters, shape.result))


def _first_field(message: bytes) -> bytes:
    _, value = next(fields(message))
    if not isinstance(value, bytes):
        raise FormatError("this does not describe a program: its first field is a number")
    return value


# -- outlines --------------------------------------------------------------------------------------
#
# An outline is a HLO proto with a program's arguments and results, and one call in place of all instructions. It is
# written without the protocol buffer classes, whose creation is a tenth of the time to a process's first program.


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
    computation_fields = written(_OWN_SHAPE, _program_shape(shapes, entry.root.shape)) + written(_ROOT, count)
    program = module.program_shape
    found = [
        written(_NAME, module.name.encode()),
        written(_ENTRY_NAME, name),
        written(_COMPUTATION, written(_NAME, name) + b"".join(computation) + computation_fields),
        written(_PROGRAM_SHAPE, _program_shape(program.parameters, program.result)),
    ]
    if module.spmd_output_sharding is not None:
        found.append(written(_RESULTS_SHARDING, _sharding(module.spmd_output_sharding)))
    found += [written(_ARGUMENTS_SHARDING, _sharding(each)) for each in module.spmd_parameters_shardings]
    return b"".join(found)


def config_of(module: HloModule) -> bytes:
    """A HloModuleConfigProto with the module's layouts."""
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
    # Imported on demand: programs for one device have no shardings.
    from xlakit.formats.hlo_proto.schema import new
    from xlakit.formats.hlo_proto.shardings import write_sharding

    proto = new("OpSharding")
    write_sharding(sharding, proto)
    return proto.SerializeToString()
