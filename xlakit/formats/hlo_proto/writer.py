"""HloModule to HloModuleProto, so that XLA reads what its own parser would make of the module's text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from google.protobuf.message import Error as ProtobufError

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.errors import FormatError, XlakitError
from xlakit.formats.hlo_proto import schema
from xlakit.formats.hlo_proto.attributes import write_operation
from xlakit.formats.hlo_proto.metadata import bytes_of, write_metadata, write_origin
from xlakit.formats.hlo_proto.module_fields import write_module_fields
from xlakit.formats.hlo_proto.shapes import write_program_shape, write_shape
from xlakit.formats.hlo_proto.shardings import write_sharding
from xlakit.formats.unique_names import unique_names
from xlakit.ir.attributes import Annotations
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.communication.transfer import Outfeed
from xlakit.ops.control import Fusion
from xlakit.ops.data import Constant


def module_to_message(module: HloModule) -> Any:
    """A HloModuleProto of a module. Raises FormatError, UnsupportedError."""
    proto = schema.new("HloModuleProto")
    try:
        proto.name = module.name
        write_module_fields(module, proto, module_to_message)
    except _REFUSALS as error:
        raise _explained(error, f"module '{module.name}'") from None
    writing = _Writing(module)
    for computation in module.computations:
        writing.computation(computation, proto.computations.add())
    proto.entry_computation_name = writing.computation_names[module.entry]
    proto.entry_computation_id = writing.ids[module.entry]
    if module.is_scheduled:
        writing.schedule(proto.schedule)
    return proto


class _Writing:
    """State while one module is written: the ids and names of its parts."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.ids = {computation: number for number, computation in enumerate(module.computations)}
        # The computation's id in the upper half makes the ids of instructions unique in the module.
        self.instruction_ids = {
            instruction: (number << 32) | position
            for computation, number in self.ids.items()
            for position, instruction in enumerate(computation.instructions)
        }
        self.computation_names = unique_names(module.computations)
        self.names = unique_names(module.instructions)
        channels = [getattr(i.op, "channel_id", None) or 0 for i in module.instructions]
        self.unused_channel = max(channels, default=0) + 1
        self.fused = {
            called
            for instruction in module.instructions
            if isinstance(instruction.op, Fusion)
            for called in instruction.op.called_computations
        }

    def computation(self, computation: Computation, proto: Any) -> None:
        try:
            proto.name = self.computation_names[computation]
            if computation.execution_thread != "main":
                proto.execution_thread = computation.execution_thread
        except _REFUSALS as error:
            raise _explained(error, f"computation '{computation.name}'") from None
        proto.id = self.ids[computation]
        for instruction in computation.instructions:
            self.instruction(instruction, proto.instructions.add(), computation)
        root = self.instruction_ids.get(computation.root)
        if root is None:
            raise FormatError("the root is not one of the instructions", operation=f"computation '{computation.name}'")
        proto.root_id = root
        shape = computation.program_shape
        write_program_shape(replace(shape, parameter_names=self.parameter_names(computation)), proto.program_shape)
        proto.is_fusion_computation = computation in self.fused

    def parameter_names(self, computation: Computation) -> tuple[str, ...]:
        return tuple(self.names[parameter] for parameter in computation.parameters)

    def instruction(self, instruction: Instruction, proto: Any, computation: Computation) -> None:
        label = f"{instruction.opcode} '{instruction.name}' in computation '{computation.name}'"
        try:
            proto.id = self.instruction_ids[instruction]
            proto.name = self.names[instruction]
            proto.opcode = instruction.opcode
            write_shape(instruction.shape, proto.shape)
            proto.operand_ids.extend(self.local(instruction.operands))
            proto.control_predecessor_ids.extend(self.local(instruction.control_predecessors))
            proto.called_computation_ids.extend(self.ids[called] for called in instruction.op.called_computations)
            write_annotations(instruction.annotations, proto)
            write_operation(self.spelled_out(instruction), proto, [operand.shape for operand in instruction.operands])
        except _REFUSALS as error:
            raise _explained(error, label) from None

    def spelled_out(self, instruction: Instruction) -> Op:
        """The operation as readers of the proto need it: with what HLO text infers, and a channel above 0."""
        op = instruction.op
        if isinstance(op, Constant):
            return Constant(literal=relaid(op.literal, instruction.shape))
        if isinstance(op, Outfeed) and op.outfeed_shape is None and instruction.operands:
            return replace(op, outfeed_shape=instruction.operands[0].shape)
        # In a proto channel 0 is none, which would be another operation.
        return replace(op, channel_id=self.unused_channel) if getattr(op, "channel_id", None) == 0 else op

    def local(self, needed: Iterable[Instruction]) -> list[int]:
        missing = [i.name for i in needed if i not in self.instruction_ids]
        if missing:
            raise FormatError(f"operand {missing[0]} is not in the module")
        return [self.instruction_ids[i] for i in needed]

    def schedule(self, proto: Any) -> None:
        for computation, number in self.ids.items():
            if computation not in self.fused:
                sequence = proto.sequences[number].instruction_ids
                sequence.extend(self.instruction_ids[i] for i in computation.instructions)


def write_annotations(annotations: Annotations, proto: Any) -> None:
    """Fill the annotations of a HloInstructionProto."""
    if annotations.metadata is not None:
        write_metadata(annotations.metadata, proto.metadata)
    if annotations.sharding is not None:
        write_sharding(annotations.sharding, proto.sharding)
    if annotations.origin is not None:
        write_origin(annotations.origin, proto.original_value)
    proto.frontend_attributes.map.update(dict(annotations.frontend_attributes))
    if annotations.backend_config:
        proto.backend_config = bytes_of(annotations.backend_config)
    for name, value in annotations.statistics:
        proto.statistics_viz.statistics.add(stat_name=name, stat_val=value)
    if annotations.statistics_visualized:
        proto.statistics_viz.stat_index_to_visualize = annotations.statistics_visualized
    proto.parameter_replication.replicated_at_leaf_buffers.extend(annotations.parameter_replication)


def relaid(literal: Literal, shape: Shape) -> Literal:
    """The literal laid out as the instruction's shape says; readers insist that the two agree."""
    if shape.is_tuple and literal.shape.is_tuple and len(shape.tuple_shapes) == len(literal.elements):
        return Literal.make_tuple([relaid(e, s) for e, s in zip(literal.elements, shape.tuple_shapes, strict=True)])
    if shape.is_array and literal.shape.is_array and shape.rank == literal.shape.rank:
        return literal.with_layout(shape.layout_or_default)
    return literal


# The exceptions of protobuf for a value that does not fit its field: range, type, encoding, nesting.
_REFUSALS = (ValueError, TypeError, ProtobufError, XlakitError)


_HINT = "verify() the module first; HLO text, from to_text(), has fewer limits than protos"


def _explained(error: Exception, operation: str) -> XlakitError:
    if isinstance(error, XlakitError):
        return error.at(operation=operation, hint=_HINT)
    return FormatError(f"cannot be written as a proto: {error}", operation=operation, hint=_HINT)
