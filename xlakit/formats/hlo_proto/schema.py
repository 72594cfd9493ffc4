"""The messages of HLO protos as Python classes.

The classes live in a descriptor pool of their own, so that they get along with other libraries in the process that
register messages of the same names (TensorFlow, torch_xla). They are built when first asked for.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, empty_pb2, message_factory
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from xlakit.errors import FormatError
from xlakit.formats.hlo_proto.messages import MESSAGES

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("int32", "int64", "uint32", "uint64", "bool", "string", "bytes", "float", "double")
}
_FIELD = re.compile(r"(\w+):([\w.]+|\{\w+,[\w.]+\})([*?]?)(?:\|(\w+))?=(\d+)")

# Packed repeated numbers and bytes look the same on the wire. Reading LiteralProto's numbers as bytes lets NumPy
# decode a weight of a gigabyte, where protobuf would make a Python object of each element.
_AS_BYTES = "LiteralProto"


def new(name: str, *, exact: bool = False) -> Any:
    """A new message; ``exact`` gives the types of the .proto files, also for the numbers of literals."""
    return _classes(exact)[name]()


def parse(name: str, data: bytes, *, exact: bool = False) -> Any:
    """The message in ``data``; raises FormatError where it is not one."""
    message = new(name, exact=exact)
    try:
        message.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise FormatError(
            f"not a {name}: {error}", hint="the data is cut off, damaged, nested more than 100 deep, or another format"
        ) from None
    return message


def is_message(data: bytes) -> bool:
    """Whether the data is a message of any kind: fields of known lengths, to its end."""
    try:
        fields = UnknownFieldSet(empty_pb2.Empty.FromString(data))
    except DecodeError:
        return False
    # Protobuf skips fields without a number, such as zero bytes, which no writer makes.
    return all(field.field_number for field in fields)


def canonical(name: str, data: bytes) -> bytes:
    """The same message in the encoding that every protobuf writer of today uses: numbers packed, in one piece."""
    return parse(name, data, exact=True).SerializeToString()


@cache
def _classes(exact: bool) -> dict[str, type[Message]]:
    pool = descriptor_pool.DescriptorPool()
    file = _file(exact)
    pool.AddSerializedFile(file.SerializeToString())
    names = [m.name for m in file.message_type]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"xla.{name}")) for name in names}


def _file(exact: bool) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="xlakit/hlo.proto", package="xla", syntax="proto3")
    entries = re.findall(r"^(enum|message) (\S+)\n((?:  .*\n)+)", MESSAGES, re.MULTILINE)
    kinds = {name: kind for kind, name, _ in entries}
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}
    for kind, name, body in entries:
        outer, _, leaf = name.rpartition(".")
        if kind == "enum":
            enum = (messages[outer].enum_type if outer else file.enum_type).add(name=leaf)
            for member, number in re.findall(r"(\w+)=(\d+)", body):
                enum.value.add(name=member, number=int(number))
            continue
        message = (messages[outer].nested_type if outer else file.message_type).add(name=leaf)
        messages[name] = message
        for field in _FIELD.findall(body):
            _add_field(message, name, field, kinds, exact or name != _AS_BYTES)
    return file


def _add_field(
    message: descriptor_pb2.DescriptorProto,
    scope: str,
    field: tuple[str, str, str, str, str],
    kinds: dict[str, str],
    exact: bool,
) -> None:
    name, type_name, mark, oneof, number = field
    proto = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if type_name.startswith("{"):
        key, value = type_name.strip("{}").split(",")
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        for number_in_entry, (part, part_type) in enumerate((("key", key), ("value", value)), start=1):
            part_field = entry.field.add(name=part, number=number_in_entry, label=_Field.LABEL_OPTIONAL)
            _set_type(part_field, scope, part_type, kinds)
        proto.label, proto.type, proto.type_name = (
            _Field.LABEL_REPEATED,
            _Field.TYPE_MESSAGE,
            f".xla.{scope}.{entry_name}",
        )
        return
    _set_type(proto, scope, type_name, kinds)
    if mark == "*":
        proto.label = _Field.LABEL_REPEATED
        # dynamic_sizes is short and wanted as numbers.
        if not exact and type_name in _SCALARS and name != "dynamic_sizes":
            proto.label, proto.type = _Field.LABEL_OPTIONAL, _Field.TYPE_BYTES
    if oneof or mark == "?":
        group = oneof or f"_{name}"
        names = [o.name for o in message.oneof_decl]
        if group not in names:
            message.oneof_decl.add(name=group)
            names.append(group)
        proto.oneof_index = names.index(group)
        proto.proto3_optional = mark == "?"


def _set_type(field: descriptor_pb2.FieldDescriptorProto, scope: str, type_name: str, kinds: dict[str, str]) -> None:
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
        return
    # As in .proto files, a name is looked for in the innermost message first.
    outer = scope
    while outer and f"{outer}.{type_name}" not in kinds:
        outer = outer.rpartition(".")[0]
    full = f"{outer}.{type_name}" if outer else type_name
    field.type = _Field.TYPE_ENUM if kinds[full] == "enum" else _Field.TYPE_MESSAGE
    field.type_name = f".xla.{full}"
