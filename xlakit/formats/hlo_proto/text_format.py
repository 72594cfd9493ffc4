"""Protos in protobuf's text format, as XLA dumps unoptimized snapshots with ``--xla_dump_hlo_as_text``."""

from __future__ import annotations

import re
from typing import Final

from xlakit.errors import FormatError
from xlakit.formats.hlo_proto import schema

_SPACE = r"(?:\s|#[^\n]*(?:\n|$))*"
# The first field of a message that has a module, or of a module, in the order of the .proto files. HLO text has no
# colon behind the first name of a computation.
_FIRST: Final = re.compile(
    rf"{_SPACE}(?:(?P<within>hlo_module|hlo)\s*:?\s*\{{{_SPACE}\w+\s*:?\s*[{{\"'\d]|name\s*:\s*[\"'])"
)


def is_text_format(text: str) -> bool:
    """Whether a text begins as a proto with a module does."""
    return _FIRST.match(text) is not None


def serialized(text: str) -> bytes:
    """The serialized HloModuleProto, HloSnapshot or HloUnoptimizedSnapshot that a text is. Raises FormatError."""
    # Imported on demand: text_format is slow to load and rarely needed.
    from google.protobuf import text_format

    first = _FIRST.match(text)
    within = None if first is None else first["within"]
    name = {"hlo": "HloSnapshot", "hlo_module": "HloUnoptimizedSnapshot"}.get(within or "", "HloModuleProto")
    message = schema.new(name, exact=True)
    try:
        text_format.Parse(text, message, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeError, RecursionError) as error:
        raise FormatError(
            f"not a {name} in protobuf's text format: {error}", hint="dump it again, or with --xla_dump_hlo_as_proto"
        ) from None
    return message.SerializeToString()
