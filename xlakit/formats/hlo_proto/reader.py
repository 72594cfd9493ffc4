"""HloModuleProto to HloModule.

Every error names the computation, the instruction and the field. Nothing here recurses except through messages, and
protobuf refuses those that are nested more than 100 deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from xlakit.dataclass import dataclass
from xlakit.errors import FormatError, XlakitError
from xlakit.formats.hlo_proto.attributes import read_operation
from xlakit.formats.hlo_proto.metadata import bytes_of, read_metadata, read_origin, read_payload, text_of
from xlakit.formats.hlo_proto.module_fields import read_module_fields
from xlakit.formats.hlo_proto.shapes import read_plain_shape, read_shape
from xlakit.formats.hlo_proto.shardings import read_sharding
from xlakit.formats.unique_names import sanitized
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import ForeignMemory
from xlakit.ops.data import Constant, ElidedConstant
from xlakit.ops.registry import OPERATIONS

_LOCAL = (1 << 32) - 1

# Opcodes that compare has replaced.
_OLD_COMPARISONS = {
    "equal-to": "EQ",
    "not-equal-to": "NE",
    "greater-than-or-equal-to": "GE",
    "greater-than": "GT",
    "less-than-or-equal-to": "LE",
    "less-than": "LT",
}


def module_from_message(proto: Any, config: Any = None, *, layouts: bool = True) -> HloModule:
    """An HloModule of a HloModuleProto, and of the HloModuleConfigProto beside it where there is one.

    layouts: whether instructions keep layouts that are major to minor; an omitted layout means the same.

    Raises FormatError, ShapeError, UnsupportedError.
    """
    scheduled = proto.HasField("schedule")
    reading = _Reading(tuple(proto.payloads), dict(proto.schedule.sequences) if scheduled else {}, layouts)
    for computation in proto.computations:
        reading.computation(computation)
    entry = reading.computations.get(proto.entry_computation_id)
    if entry is None:
        raise FormatError(
            f"entry_computation_id {proto.entry_computation_id} is not a computation of module '{proto.name}'"
        )
    fields = read_module_fields(proto, config, module_from_message)
    return HloModule(
        proto.name,
        entry,
        tuple(reading.computations.values()),
        is_scheduled=scheduled,
        **fields,
    )


@dataclass
class _Reading:
    """State while one module is read: the objects that instructions refer to."""

    payloads: tuple[bytes, ...]
    sequences: dict[int, Any]
    layouts: bool
    computations: dict[int, Computation] = field(default_factory=dict[int, Computation])
    annotations: dict[bytes, Annotations] = field(default_factory=dict[bytes, Annotations])

    def computation(self, proto: Any) -> None:
        operation = f"computation '{proto.name}'"
        if not proto.name:
            raise FormatError(f"name of the computation with id {proto.id} is missing")
        if proto.id in self.computations:
            raise FormatError(
                f"id {proto.id} is already that of '{self.computations[proto.id].name}'", operation=operation
            )
        instructions = _Instructions()
        try:
            for instruction in proto.instructions:
                instructions.add(instruction.id, self.instruction(instruction, instructions, proto.name))
            root = instructions.find(proto.root_id)
            if root is None:
                raise FormatError(f"root_id {proto.root_id} is not an instruction of the computation")
            ordered = self.scheduled(proto, instructions)
        except XlakitError as error:
            raise error.at(operation=operation) from None
        thread = proto.execution_thread or "main"
        self.computations[proto.id] = Computation(sanitized(proto.name), ordered, root, thread)

    def scheduled(self, proto: Any, instructions: _Instructions) -> tuple[Instruction, ...]:
        """The instructions in the order of the schedule, if there is one for the computation."""
        listed = tuple(instructions.by_id.values())
        sequence = self.sequences.get(proto.id)
        if sequence is None:
            return listed
        ordered: dict[Instruction, None] = {}
        for number in sequence.instruction_ids:
            instruction = instructions.find(number)
            if instruction is None or instruction in ordered:
                problem = "names no instruction" if instruction is None else "appears twice"
                raise FormatError(f"schedule: instruction id {number} {problem}")
            for needed in (*instruction.operands, *instruction.control_predecessors):
                if needed not in ordered:
                    raise FormatError(f"schedule: {instruction.name} comes before {needed.name}")
            ordered[instruction] = None
        if len(ordered) != len(listed):
            raise FormatError(f"schedule has {len(ordered)} of {len(listed)} instructions")
        return tuple(ordered)

    def instruction(self, proto: Any, instructions: _Instructions, computation: str) -> Instruction:
        where = ""
        try:
            if not proto.name:
                raise FormatError(f"name is missing (id {proto.id})")
            _upgrade(proto, self.payloads)
            cls = OPERATIONS.get(proto.opcode)
            if cls is None:
                raise FormatError(f"opcode '{proto.opcode}' is not one of HLO")
            if cls is Constant and not proto.HasField("literal"):
                cls = ElidedConstant
            where = "shape"
            if not proto.HasField("shape"):
                raise FormatError("is missing")
            plain = not self.layouts and not issubclass(cls, ForeignMemory)
            shape = read_plain_shape(proto.shape) if plain else read_shape(proto.shape)
            where = "operand_ids"
            operands = instructions.find_all(proto.operand_ids)
            if cls.arity is not None and len(operands) != cls.arity:
                raise FormatError(f"{cls.opcode} takes {cls.arity} operands, got {len(operands)}")
            where = "control_predecessor_ids"
            predecessors = instructions.find_all(proto.control_predecessor_ids)
            where = "called_computation_ids"
            called = [self.called(number) for number in proto.called_computation_ids]
            where = ""
            op = read_operation(cls, proto, [operand.shape for operand in operands], called)
            if plain and isinstance(op, Constant):
                op = Constant(literal=op.literal.without_layout())
            annotations = read_annotations(proto, self.payloads, self.annotations)
            name = sanitized(proto.name)
            return Instruction(op, operands, shape, name, control_predecessors=predecessors, annotations=annotations)
        except XlakitError as error:
            if where:
                error.rule = f"{where}: {error.rule}"
            label = f"{proto.opcode or 'instruction'} '{proto.name}' in computation '{computation}'"
            raise error.at(operation=label) from None

    def called(self, number: int) -> Computation:
        computation = self.computations.get(number)
        if computation is None:
            raise FormatError(
                f"{number} is not the id of a computation before this one", hint="callees come before their callers"
            )
        return computation


class _Instructions:
    """The instructions of a computation so far, by their ids.

    Writers of today put the computation's id into the upper half of an instruction's id. References may or may not
    carry it, so the lower half decides where the whole does not match.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Instruction] = {}
        self._by_local_id: dict[int, Instruction | None] = {}

    def add(self, number: int, instruction: Instruction) -> None:
        if number in self.by_id:
            raise FormatError(f"id {number} is that of '{self.by_id[number].name}' and of '{instruction.name}'")
        self.by_id[number] = instruction
        local = number & _LOCAL
        self._by_local_id[local] = None if local in self._by_local_id else instruction

    def find(self, number: int) -> Instruction | None:
        return self.by_id.get(number) or self._by_local_id.get(number & _LOCAL)

    def find_all(self, numbers: Sequence[int]) -> list[Instruction]:
        found: list[Instruction] = []
        by_id = self.by_id
        for number in numbers:
            instruction = by_id.get(number) or self.find(number)
            if instruction is None:
                raise FormatError(
                    f"{number} is not the id of an instruction before this one",
                    hint="operands come before their users; a cycle cannot be written",
                )
            found.append(instruction)
        return found


def _upgrade(proto: Any, payloads: Sequence[bytes]) -> None:
    """Move the contents of fields of older writers to the current fields."""
    if proto.opcode in _OLD_COMPARISONS:
        proto.comparison_direction = _OLD_COMPARISONS[proto.opcode]
        proto.opcode = "compare"
    if proto.all_reduce_id > 0:
        if proto.channel_id > 0:
            raise FormatError("channel_id and all_reduce_id exclude each other")
        proto.channel_id = proto.all_reduce_id
    proto.channel_id = max(proto.channel_id, 0)
    if proto.is_cross_program_prefetch and not proto.HasField("cross_program_prefetch_index"):
        proto.cross_program_prefetch_index = 0
    if proto.HasField("backend_config_payload"):
        proto.backend_config = bytes_of(read_payload(proto.backend_config_payload, payloads))


def read_annotations(proto: Any, payloads: Sequence[bytes], known: dict[bytes, Annotations]) -> Annotations:
    """The annotations of a HloInstructionProto. Raises FormatError, ShapeError.

    known: the module's cache of annotations that consist of metadata alone, keyed by the bytes of the metadata. Most
    instructions have such annotations, and many have equal ones.
    """
    fields: dict[str, Any] = {}
    where = ""
    try:
        where = "metadata"
        data = proto.metadata.SerializeToString()
        metadata_only = known.get(data)
        # Some writers write empty messages.
        if metadata_only is not None:
            fields["metadata"] = metadata_only.metadata
        elif data:
            fields["metadata"] = read_metadata(proto.metadata, payloads)
            metadata_only = known[data] = Annotations(metadata=fields["metadata"])
        where = "sharding"
        if proto.HasField("sharding"):
            fields["sharding"] = read_sharding(proto.sharding)
        where = "original_value"
        if proto.HasField("original_value"):
            fields["origin"] = read_origin(proto.original_value)
    except XlakitError as error:
        error.rule = f"{where}: {error.rule}"
        raise
    if proto.HasField("frontend_attributes") and proto.frontend_attributes.map:
        fields["frontend_attributes"] = tuple(sorted(proto.frontend_attributes.map.items()))
    if proto.backend_config:
        fields["backend_config"] = text_of(proto.backend_config)
    if proto.HasField("statistics_viz") and proto.statistics_viz.ByteSize():
        if not all(s.stat_name for s in proto.statistics_viz.statistics):
            raise FormatError("statistics_viz: a statistic has no name")
        fields["statistics"] = tuple((s.stat_name, s.stat_val) for s in proto.statistics_viz.statistics)
        fields["statistics_visualized"] = proto.statistics_viz.stat_index_to_visualize
    if proto.HasField("parameter_replication") and proto.parameter_replication.replicated_at_leaf_buffers:
        fields["parameter_replication"] = tuple(proto.parameter_replication.replicated_at_leaf_buffers)
    if metadata_only is not None and len(fields) == 1:
        return metadata_only
    return Annotations(**fields) if fields else NO_ANNOTATIONS
