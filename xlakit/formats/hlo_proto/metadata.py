"""OpMetadata, OriginalValueProto, StatisticsViz: the annotations of instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlakit.errors import FormatError
from xlakit.ir.attributes import OpMetadata, OriginalArray, OriginalValue

_PLAIN = (
    "op_type",
    "op_name",
    "source_file",
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "deduplicated_name",
    "stack_frame_id",
    "scheduling_name",
    "size_of_generated_code_in_bytes",
    "size_of_memory_working_set_in_bytes",
)


def text_of(data: bytes) -> str:
    """A bytes field that HLO text shows as a string; bytes that are not UTF-8 survive as surrogates."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """The inverse of :func:`text_of`."""
    return text.encode("utf-8", "surrogateescape")


def read_payload(proto: Any, payloads: Sequence[bytes]) -> str:
    """A Payload, which holds its bytes or the number of an entry of the module's payloads. Raises FormatError."""
    if proto.WhichOneof("payload_source") != "id":
        return text_of(proto.value)
    if not 0 <= proto.id < len(payloads):
        raise FormatError(f"payload {proto.id} is not one of the module's {len(payloads)} payloads")
    return text_of(payloads[proto.id])


def read_metadata(proto: Any, payloads: Sequence[bytes] = ()) -> OpMetadata:
    """An OpMetadata from its proto. Raises FormatError."""
    fields = {descriptor.name: value for descriptor, value in proto.ListFields()}
    payload = fields.get("metadata_payload")
    return OpMetadata(
        **{name: fields[name] for name in _PLAIN if name in fields},
        profile_type=tuple(proto.profile_type),
        payload=read_payload(payload, payloads) if payload is not None else "",
    )


def write_metadata(metadata: OpMetadata, proto: Any) -> None:
    """Fill an OpMetadata proto."""
    for name in _PLAIN:
        value = getattr(metadata, name)
        if value:
            setattr(proto, name, value)
    proto.profile_type.extend(metadata.profile_type)
    if metadata.payload:
        proto.metadata_payload.value = bytes_of(metadata.payload)


def read_origin(proto: Any) -> OriginalValue:
    """An OriginalValue from its proto."""
    elements: list[tuple[tuple[int, ...], OriginalArray | None]] = []
    for element in proto.elements:
        array = element.original_array
        original = (array.instruction_name, tuple(array.shape_index)) if element.HasField("original_array") else None
        elements.append((tuple(element.shape_index), original))
    return OriginalValue(tuple(elements), proto.is_synthetic_call)


def write_origin(origin: OriginalValue, proto: Any) -> None:
    """Fill an OriginalValueProto."""
    proto.is_synthetic_call = origin.is_synthetic_call
    proto.SetInParent()
    for index, original in origin.elements:
        element = proto.elements.add(shape_index=index)
        if original is not None:
            element.original_array.instruction_name = original[0]
            element.original_array.shape_index.extend(original[1])
