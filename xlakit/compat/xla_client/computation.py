"""XlaBuilder, XlaOp and XlaComputation.

As in XLA, adding a malformed operation raises no error: the builder keeps the first error, and raises it when the
computation is built or the operation's shape is queried. The error names the line that added the operation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from xlakit.builder import XlaBuilder as OurBuilder, XlaComputation as OurComputation
from xlakit.compat.xla_client.binding import bound, no_constructor
from xlakit.compat.xla_client.errors import as_status, status_errors, with_status
from xlakit.compat.xla_client.hlo_module import HloModule, HloPrintOptions, module_of_proto
from xlakit.compat.xla_client.records import OpMetadata
from xlakit.compat.xla_client.shapes import ProgramShape, Shape
from xlakit.compat.xla_client.sharding import OpSharding
from xlakit.compat.xla_client.text.layouts import inferred_shape, with_inferred_layouts
from xlakit.compat.xla_client.text.numbering import BUILDER_NAMES, base_name, number_of, numbered_module, unnamed
from xlakit.errors import ArgumentError, FormatError, ShapeError, XlakitError
from xlakit.ir.attributes import OpMetadata as OurMetadata
from xlakit.ir.instruction import HloModule as OurModule
from xlakit.ops.data import Parameter
from xlakit.ops.handle import XlaOp as OurOp


class XlaOp:
    """An operation of a builder. ``wrapped`` is xlakit's operation, or None if the operation is malformed."""

    __slots__ = ("builder", "wrapped")

    builder: XlaBuilder
    wrapped: OurOp | None

    __init__ = no_constructor

    @classmethod
    def of(cls, builder: XlaBuilder, wrapped: OurOp | None) -> XlaOp:
        """The operation of a builder."""
        made = cls.__new__(cls)
        made.builder, made.wrapped = builder, wrapped
        return made

    def check_not_built(self) -> None:
        """Raises ArgumentError if the builder has built a computation since the operation was added."""
        if self.wrapped is not None and self.wrapped.builder is not self.builder.wrapped:
            raise ArgumentError(
                f"the operation belongs to a computation that '{self.builder.wrapped.name}' has built already",
                hint="add the operations again, or build once",
            )


class XlaComputation:
    """A built computation. Made by :meth:`XlaBuilder.build`, or of a serialized HloModuleProto, which is read later."""

    __slots__ = ("_module", "_serialized", "is_built")

    @bound
    def __init__(self, serialized_hlo_module_proto: bytes, /) -> None:
        self._module: OurModule | None = None
        self._serialized = serialized_hlo_module_proto
        # Whether a builder made the module, so that its shapes have the layouts of XLA's shape inference.
        self.is_built = False

    @property
    def wrapped(self) -> OurModule:
        """The module of xlakit. Raises XlaRuntimeError for bytes that are no HloModuleProto."""
        if self._module is None:
            self._module = module_of_proto(self._serialized)
        return self._module

    @staticmethod
    def of(module: OurModule, *, is_built: bool = False) -> XlaComputation:
        """The computation that is the entry of a module of xlakit."""
        made = XlaComputation.__new__(XlaComputation)
        made._module, made._serialized, made.is_built = module, b"", is_built
        return made

    def as_ours(self) -> OurComputation:
        """The computation as xlakit's class, for operations that call it."""
        return OurComputation(self.wrapped.entry, self.wrapped.input_output_alias)

    def to_module(self, *, replica_count: int = 1, num_partitions: int = 1) -> OurModule:
        """The module for xlakit, whose :func:`xlakit.compile` takes a computation as it is."""
        return self.wrapped.replace(replica_count=replica_count, num_partitions=num_partitions)

    def get_hlo_module(self) -> HloModule:
        """The module whose entry this is."""
        return HloModule.of(with_inferred_layouts(self.wrapped) if self.is_built else self.wrapped)

    as_hlo_module = get_hlo_module

    def name(self) -> str:
        """The name of the computation."""
        return self.wrapped.name

    def program_shape(self) -> ProgramShape:
        """The shapes of parameters and result."""
        shape = self.wrapped.program_shape
        return ProgramShape.of(replace(shape, parameter_names=self._parameter_names()))

    def _parameter_names(self) -> tuple[str, ...]:
        from xlakit.formats.hlo_proto import schema

        shape = self.wrapped.program_shape
        names = tuple(base_name(name) for name in shape.parameter_names)
        if self._serialized:
            with suppress(FormatError):  # a message around that of the module
                names = tuple(schema.parse("HloModuleProto", self._serialized).host_program_shape.parameter_names)
        # Those of a module have the names that XLA writes into its proto.
        return names if len(names) == len(shape.parameters) else tuple(f"p{n}" for n in range(len(shape.parameters)))

    @with_status
    def as_serialized_hlo_module_proto(self) -> bytes:
        """A serialized HloModuleProto."""
        from xlakit.formats.hlo_proto import write_module

        return write_module(self.wrapped, parameter_names=self._parameter_names())

    def as_hlo_text(self, print_large_constants: bool = False) -> str:
        """HLO text in its short form; constants of more than ten elements are ``{...}`` unless they are asked for."""
        options = HloPrintOptions.short_parsable()
        options.print_large_constants = print_large_constants
        return self.get_hlo_module().to_string(options)

    def as_hlo_dot_graph(self) -> str:
        """The graph of the computation in Graphviz's language."""
        return self.get_hlo_module().to_dot_graph()

    @with_status
    def hash(self) -> int:
        """A number that is the same for the same computation in all processes; names do not count."""
        text = unnamed(self.wrapped).to_text(metadata=False, large_constants=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


class FrontendAttributes:
    """Names and values for operations to carry; :meth:`XlaBuilder.set_frontend_attributes` takes them."""

    __slots__ = ("wrapped",)

    def __init__(self) -> None:
        self.wrapped: dict[str, str] = {}

    @bound
    def __setitem__(self, name: str, value: str, /) -> None:
        self.wrapped[name] = value


class XlaBuilder:
    """Collects the operations of one computation; the functions of ``ops`` add to it.

    Building empties the builder: operations that were added before belong to the built computation, and are errors as
    operands of later ones.
    """

    __slots__ = ("_aliases", "_first", "error", "wrapped")

    def __init__(self, name: str, /) -> None:
        self.wrapped = OurBuilder(BUILDER_NAMES.unique(name), source_metadata=False)
        # The first error of an operation.
        self.error: XlakitError | None = None
        # The number of the first operation of the next computation.
        self._first = 1
        # The arguments of setup_alias: output index, parameter number, and index in the parameter.
        self._aliases: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """The computation whose result is ``root``, by default the operation that was added last.

        Raises XlaRuntimeError with the first error of an operation.
        """
        self._raise_error()
        self._check_parameters()
        with status_errors():
            chosen = None if root is None else self._own(root)
            self._check_aliases(chosen)
            module = self.wrapped.build(chosen).to_module()
            instructions = self.wrapped.instructions
            last = instructions[-1] if chosen is None else chosen.instruction
            aliases, first = module.input_output_alias, self._first
            numbered = numbered_module(self.wrapped.name, instructions, last, aliases, first)
            built = XlaComputation.of(numbered, is_built=True)
        self._first = number_of(built.wrapped.name) + 1
        self.wrapped, self._aliases = self.wrapped.emptied(), []
        return built

    Build = build

    def get_shape(self, op: XlaOp, /) -> Shape:
        """The shape of an operation. Raises XlaRuntimeError with the first error of this builder."""
        self._raise_error()
        return Shape.of(inferred_shape(self._own(op).instruction))

    GetShape = get_shape

    def get_program_shape(self, root: XlaOp | None = None) -> ProgramShape:
        """The program shape that building the computation now would give."""
        self._raise_error()
        with status_errors():
            return ProgramShape.of(self.wrapped.get_program_shape(None if root is None else self._own(root)))

    def is_constant(self, op: XlaOp, /) -> bool:
        """Whether a value depends on constants only."""
        self._raise_error()
        with status_errors():
            return self.wrapped.is_constant(self._own(op))

    def set_op_metadata(self, metadata: OpMetadata, /) -> None:
        """Set the metadata of all operations that follow."""
        self.wrapped.set_op_metadata(
            OurMetadata(
                op_type=metadata.op_type or "",
                op_name=metadata.op_name or "",
                source_file=metadata.source_file or "",
                source_line=metadata.source_line or 0,
            )
        )

    def clear_op_metadata(self) -> None:
        """Give no metadata to the operations that follow."""
        self.wrapped.clear_op_metadata()

    @bound
    def set_sharding(self, sharding: OpSharding, /) -> None:
        """Give a sharding to all operations that follow."""
        self.wrapped.set_sharding(sharding.as_ours())

    def clear_sharding(self) -> None:
        """Give no sharding to the operations that follow."""
        self.wrapped.clear_sharding()

    @bound
    def set_frontend_attributes(self, attributes: FrontendAttributes, /) -> None:
        """Give frontend attributes to all operations that follow."""
        self.wrapped.set_frontend_attributes(attributes.wrapped)

    def clear_frontend_attributes(self) -> None:
        """Give no frontend attributes to the operations that follow."""
        self.wrapped.clear_frontend_attributes()

    @bound
    def setup_alias(
        self, output_index: Sequence[int], parameter_number: int, parameter_index: Sequence[int], /
    ) -> None:
        """Declare that an output may have the memory of a parameter."""
        self._aliases.append((tuple(output_index), parameter_number, tuple(parameter_index)))
        self.wrapped.setup_alias(tuple(output_index), parameter_number, tuple(parameter_index))

    def _check_aliases(self, root: OurOp | None) -> None:
        """Raise XlaRuntimeError, with jaxlib's status, for aliases of missing outputs, or of outputs with an alias."""
        instructions = self.wrapped.instructions
        if not self._aliases or not instructions:
            return
        result = (root.instruction if root is not None else instructions[-1]).shape
        outputs: set[tuple[int, ...]] = set()
        parameters = {i.op.number: i.shape for i in instructions if isinstance(i.op, Parameter)}
        for output, number, index in self._aliases:
            with status_errors():
                if number in parameters:
                    parameters[number].at(index)
                elif number >= 0:
                    raise ShapeError(f"an alias names parameter {number}", hint="declare it before build()")
            with status_errors("INTERNAL"):
                result.at(output)
                if number < 0 or output in outputs:
                    raise ShapeError(
                        f"output {output} cannot be aliased with parameter {number}",
                        hint="give each output one alias, with a parameter that there is",
                    )
                outputs.add(output)

    def keep_error(self, error: XlakitError) -> None:
        """Keep the error of an operation, if it is the first."""
        self.error = self.error or error

    def _check_parameters(self) -> None:
        numbers = [i.op.number for i in self.wrapped.instructions if isinstance(i.op, Parameter)]
        for number in numbers:
            if number >= len(numbers):
                error = ArgumentError(f"{len(numbers)} parameters are numbered {numbers}", hint="number them from 0")
                raise as_status(error, f"invalid parameter number: {number}", code="INTERNAL")

    def _raise_error(self) -> None:
        if self.error is not None:
            raise as_status(self.error) from self.error

    def _own(self, op: XlaOp) -> OurOp:
        if not isinstance(op, XlaOp):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"incompatible function arguments: the operation is an XlaOp, not {type(op).__name__}")
        if op.wrapped is None:
            op.builder._raise_error()
        with status_errors():
            op.check_not_built()
        if op.builder is not self or op.wrapped is None:
            raise as_status(
                ArgumentError(
                    f"the operation belongs to builder '{op.builder.wrapped.name}', not to '{self.wrapped.name}'",
                    hint="pass values into another computation as parameters",
                )
            )
        return op.wrapped
