"""The formats in which JAX passes a program to the plugin, and gets it back when it asks for the program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from xlakit.dataclass import dataclass
from xlakit.errors import FormatError, UnsupportedError
from xlakit.jax.devices import MEMORY_SPACES
from xlakit.jax.wire import fields, written
from xlakit.runtime.layouts import with_layouts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xlakit.data.shape import Shape
    from xlakit.ir.instruction import HloModule

# Fields of HloModuleProtoWithConfig.
_MODULE, _CONFIG = 1, 2
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
    """The module in a HLO proto, without the layouts that say only how a conversion to HLO made its instructions."""
    # Protocol buffers' classes are slow to make, and most programs do without.
    from xlakit.formats.hlo_proto import read_module

    return read_module(program, layouts=False)


def names_memory(code: bytes) -> bool:
    """Whether a program in MLIR may say in which kinds of memory its arguments and results are."""
    return _MEMORY_KIND.encode() in code


def in_named_memory(module: HloModule, code: bytes) -> HloModule:
    """The module of a program in MLIR, whose entry's layouts say the kinds of memory that the program says."""
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
    """A program as JAX gets it back, in the format of :data:`DESCRIBED`, with the layouts of arguments and results.

    MLIR would say the same in a hundred times the time, since reading it needs a context with all of its dialects.
    """

    # A HLO proto, or the bytecode that JAX passed where no proto of it was needed.
    program: bytes
    # Its entry computes nothing. Whenever jaxlib has compiled a program or found it in a cache, it reads the program
    # four times, for the layouts and shardings of arguments and results.
    outline: bytes

    @property
    def whole(self) -> bytes:
        """The description with all that the program computes, of which JAX makes its text."""
        return self._with(_proto_of(self.program))

    @property
    def kept(self) -> bytes:
        """The description as files keep it, with the program as it came, for :func:`described_module`."""
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
    """The description of a program, with the layouts that the module says."""
    from xlakit.jax.outlines import config_of, outline_of

    return Description(program, written(_MODULE, outline_of(module)) + written(_CONFIG, config_of(module)))


def described_program(description: bytes) -> bytes:
    """The program in a description: a HLO proto or bytecode."""
    return _first_field(description)


def described_module(description: bytes) -> HloModule:
    """The module in a description, whose entry layout says the layouts that were described."""
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
