"""HLO protos: serialized HloModuleProto and its JSON form, to HloModule and back.

Source: ``hlo.proto`` and ``xla_data.proto`` of OpenXLA.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Error as ProtobufError

from xlakit.data.literal import Literal
from xlakit.dataclass import dataclass
from xlakit.errors import FormatError
from xlakit.formats.hlo_proto import schema
from xlakit.formats.hlo_proto.literals import MismatchError, read_literal
from xlakit.formats.hlo_proto.raw_snapshot import find_raw_snapshot, raw_arguments
from xlakit.formats.hlo_proto.reader import module_from_message
from xlakit.formats.hlo_proto.writer import module_to_message
from xlakit.ir.instruction import HloModule

__all__ = ["Snapshot", "module_from_json", "module_to_json", "read_module", "read_snapshot", "write_module"]

_MODULE = "HloModuleProto"
# Messages that contain a module, and the path to it. HloProto and HloUnoptimizedSnapshot have it in the same field as
# HloModuleProtoWithConfig.
_WRAPPERS = (("HloModuleProtoWithConfig", ("hlo_module",)), ("HloSnapshot", ("hlo", "hlo_module")))


def read_module(data: bytes, *, layouts: bool = True) -> HloModule:
    """The module of a serialized HloModuleProto, or of an HloProto or HloSnapshot around one.

    layouts: False omits the major to minor layouts of instructions, other than custom calls and infeeds; an omitted
    layout means major to minor.

    HloModuleProtoWithConfig and HloUnoptimizedSnapshot are read, too, the latter also as a file with raw arguments.
    Raises FormatError where the data is none of these or says something impossible, ShapeError for impossible shapes,
    UnsupportedError.
    """
    try:
        raw = find_raw_snapshot(data)
        if raw is not None:
            return module_from_message(raw.message.hlo_module, None)
        name, message, path = _message_with_module(data)
        try:
            return _module_of(message, path, layouts=layouts)
        except MismatchError as mismatch:
            # Repeated numbers may be in a legal encoding that current writers do not use.
            try:
                plain = schema.canonical(name, data)
            except FormatError:
                raise mismatch from None
            if plain == data:
                raise
            return _module_of(schema.parse(name, plain), path, layouts=layouts)
    except FormatError as error:
        raise error.at(hint="the proto is damaged, or of another XLA: write it again, or give HLO text") from None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The values in a snapshot: the arguments of each device, and the result, if it was recorded."""

    arguments: tuple[tuple[Literal, ...], ...]
    result: Literal | None


def read_snapshot(data: bytes) -> Snapshot | None:
    """The arguments and the result in a serialized HloSnapshot or HloUnoptimizedSnapshot; None in any other message,
    and where there are neither. Raises what :func:`read_module` raises.
    """
    raw = find_raw_snapshot(data)
    if raw is not None:
        arguments = raw_arguments(raw)
        return Snapshot(arguments, None) if any(arguments) else None
    name, message, _ = _message_with_module(data)
    if name == "HloModuleProtoWithConfig":
        # The arguments of HloUnoptimizedSnapshot have the field number of the config in HloModuleProtoWithConfig.
        name = "HloUnoptimizedSnapshot"
        try:
            message = schema.parse(name, data)
        except FormatError:
            return None
    if name not in ("HloSnapshot", "HloUnoptimizedSnapshot"):
        return None
    try:
        return _snapshot_of(message)
    except MismatchError:
        # Either repeated numbers in another encoding, or the field was a config and not arguments.
        try:
            return _snapshot_of(schema.parse(name, schema.canonical(name, data)))
        except FormatError:
            if name == "HloUnoptimizedSnapshot":
                return None
            raise


def _snapshot_of(message: Any) -> Snapshot | None:
    is_optimized = message.DESCRIPTOR.name == "HloSnapshot"
    devices = [message] if is_optimized else message.partitions
    arguments = tuple(tuple(read_literal(literal) for literal in device.arguments) for device in devices)
    result = read_literal(message.result) if is_optimized and message.HasField("result") else None
    return Snapshot(arguments, result) if any(arguments) or result is not None else None


def write_module(module: HloModule, *, parameter_names: Sequence[str] = ()) -> bytes:
    """A serialized HloModuleProto. Raises FormatError, UnsupportedError.

    parameter_names: those of the host's program, one for each parameter; by default ``p0``, ``p1`` and so on.
    """
    message = module_to_message(module)
    if parameter_names:
        message.host_program_shape.parameter_names[:] = parameter_names
    try:
        return message.SerializeToString(deterministic=True)
    except (ValueError, ProtobufError) as error:
        raise FormatError(
            f"cannot be written as a proto: {error}",
            operation=f"module '{module.name}'",
            hint="split large constants; a proto holds less than 2 GiB",
        ) from None


def module_to_json(module: HloModule) -> str:
    """A HloModuleProto in protobuf's JSON mapping, with the field names of the proto. Raises what writing raises."""
    # Imported on demand: json_format is slow to load and rarely needed.
    from google.protobuf import json_format

    exact = schema.parse(_MODULE, write_module(module), exact=True)
    return json_format.MessageToJson(exact, preserving_proto_field_name=True)


def module_from_json(text: str) -> HloModule:
    """The module of a HloModuleProto, an HloProto or an HloSnapshot in JSON. Raises what :func:`read_module` raises."""
    from google.protobuf import json_format

    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}", hint="give what json.loads reads") from None
    problem = "it has no instructions with opcodes" if isinstance(parsed, dict) else "it is not an object"
    for name, path in ((_MODULE, ()), *_WRAPPERS) if isinstance(parsed, dict) else ():
        message = schema.new(name, exact=True)
        try:
            json_format.ParseDict(parsed, message, ignore_unknown_fields=True)
        except (json_format.ParseError, RecursionError) as error:
            problem = str(error)
            continue
        if _looks_like_module(_at(message, path)):
            return read_module(message.SerializeToString())
    raise FormatError(
        f"not an HLO module in JSON: {problem}", hint="write it with protobuf's JSON mapping of HloModuleProto"
    )


def _message_with_module(data: bytes) -> tuple[str, Any, tuple[str, ...]]:
    """The name and the contents of the message in ``data``, and the path to its module.

    Serialized protos do not name their type, and the bytes of one type can often be parsed as another. The type is
    chosen under which there are computations that have instructions with opcodes.
    """
    for name, path in ((_MODULE, ()), *_WRAPPERS):
        try:
            message = schema.parse(name, data)
        except FormatError:
            continue
        if _looks_like_module(_at(message, path)):
            return name, message, path
    if schema.is_message(data):
        raise FormatError(
            "no HLO module: a proto, but no HloModuleProto, HloProto or HloSnapshot that has computations",
            hint="reports of memory use, compile options and topologies, which are dumped beside modules, have no "
            "program: give ..before_optimizations.hlo.pb, ..after_optimizations.hlo.pb or ..snapshot..pb; if it is "
            "one of these, it is damaged, or nested more than 100 deep",
        )
    raise FormatError(
        "no HLO module: binary data that is neither a proto nor StableHLO's bytecode",
        hint="give HLO text, an HLO proto, or StableHLO; one of these that is cut off or damaged: copy it again",
    )


def _looks_like_module(proto: Any) -> bool:
    computations = proto.computations
    # Memory reports have messages in the same fields, but without names.
    return any(c.name for c in computations) and all(i.opcode for c in computations for i in c.instructions[:1])


def _at(message: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        message = getattr(message, name)
    return message


def _module_of(message: Any, path: tuple[str, ...], *, layouts: bool) -> HloModule:
    with_config = message.DESCRIPTOR.name == "HloModuleProtoWithConfig" and message.HasField("config")
    return module_from_message(_at(message, path), message.config if with_config else None, layouts=layouts)
