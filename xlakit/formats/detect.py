"""Detection of the format of a file from its content."""

from __future__ import annotations

import re
import zlib

from xlakit.errors import FormatError, Location, XlakitError
from xlakit.formats import hlo_proto, stablehlo
from xlakit.formats.hlo_proto import text_format
from xlakit.ir.instruction import HloModule

_GZIP_MAGIC = b"\x1f\x8b"
# The limit of protobuf, which also limits the size of decompressed files.
_MOST_BYTES = (1 << 31) - 1

# Text has no control characters but these; protos of any length have others.
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_SPACE = r"(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*"
_HLO = re.compile(_SPACE + r"(?:HloModule\b|ENTRY\b|%?[\w.-]+\s*(?:\(|\{|=))", re.DOTALL)
_MLIR = re.compile(
    _SPACE + r'(?:module\b|"?builtin\.module\b|func\.func\b|sdy\.mesh\b|#[\w.]+\s*=|![\w.]+\s*=)', re.DOTALL
)
# Other files that XLA dumps, by their beginnings.
_BESIDE_MODULES = (
    (re.compile(r"\s*(?:BufferAssignment:|Total bytes used:)"), "a buffer assignment"),
    (re.compile(r"\s*HloLiveRange\b"), "a list of live ranges"),
    (re.compile(r"\s*Memory Space:"), "a report of memory use"),
    (re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:xla_\w+:|executable_build_options\s*\{)"), "a list of options"),
    (re.compile(r"\s*platform_\w+:"), "a description of the devices"),
    (re.compile(r"\s*; ModuleID\b"), "code of LLVM"),
    (re.compile(r"\s*digraph\b"), "a drawing"),
    (re.compile(r"\s*<"), "a page with a drawing"),
)
# What PyTorch/XLA saves (XLA_SAVE_TENSORS_FILE): graphs between such lines, each after the calls that made it.
GRAPH = re.compile(r"^## BEGIN_GRAPH[ \r]*\n(.*?)(?:^Graph Hash:[^\n]*\s*)?^## END_GRAPH", re.DOTALL | re.MULTILINE)
_LAZY_TENSORS = re.compile(r"\s*IR \{")
# How lines of XLA's log begin, among which there may be a program.
_LOGGED = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^\s:]+:\d+\] ?", re.MULTILINE)
_HEADER = re.compile(r"HloModule\s+[\w.$-]")
# How texts in that encoding begin.
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# Binary files of other kinds that lie beside dumps, by bytes near their beginnings and where these are.
_OTHER_BINARIES = (
    (0, b"\x7fELF", "object code of a module", "give the module itself: ..before_optimizations.txt or its proto"),
    (0, b"\x93NUMPY", "an array of NumPy", "give the program, and the arrays with --input"),
    (0, b"<!doctype", "a page of HTML", "give the program that it shows"),
    (
        0,
        b"PK\x03\x04",
        "a zip archive, or arrays of NumPy",
        "unpack it; arrays are given with --input beside the program",
    ),
    (0, b"\xfd7zXZ", "a file compressed with xz", "unpack it"),
    (0, b"BZh", "a file compressed with bzip2", "unpack it"),
    (0, b"\x28\xb5\x2f\xfd", "a file compressed with zstd", "unpack it"),
    (257, b"ustar", "a tar archive", "unpack it, and give the folder"),
)
# What a program has near its beginning, in text of any format; and the bytes that come first in a proto: a name's, or a
# program's.
_SIGNS = re.compile(
    r"HloModule|^\s*ENTRY\b|=\s*\(?[a-z]\w*\[[\d,<=?]*\]|\bfunc\.func\b|\bstablehlo\."
    r"|\bmodule\s*(?:@|\{|attributes\b)"
    r"|hlo_?[mM]odule|entry_?[cC]omputation|\bcomputations\"?\s*[:{]|## BEGIN_GRAPH|^\s*IR \{",
    re.MULTILINE,
)
_FIRST_BYTES = (b"\x0a", b"\x12")
_PYTHON = re.compile(r"^(?:import \w|from [\w.]+ import |#!.*python)", re.MULTILINE)
_JSON = re.compile(r'\s*\{\s*(?:"|\})')


def load(data: bytes, name: str = "<data>") -> HloModule:
    """The module in a file's content, whatever its format.

    data: HLO text; a HloModuleProto, HloProto, HloSnapshot or HloUnoptimizedSnapshot, serialized or in protobuf's text
        format; a HloModuleProto in JSON; StableHLO as text or bytecode (with jaxlib); any of these, compressed with
        gzip; what JAX's ``Exported.serialize`` gives. Text may be lines of XLA's log.
    name: stands for the file in errors.

    Raises ParseError, FormatError, ShapeError, and UnsupportedError for StableHLO where jaxlib is not installed.
    """
    data = uncompressed(data, name)
    if not data.strip():
        raise FormatError(
            "the file is empty", location=Location(name, 1), hint="give HLO text, an HLO proto, or StableHLO"
        )
    if data.startswith(stablehlo.BYTECODE_MAGIC):
        return _load_bytecode(data, name)
    text = _as_text(data, name)
    exported = None if text is not None else _exported(data)
    if exported is not None:
        return _load_bytecode(exported, name)
    for place, sign, what, hint in _OTHER_BINARIES if text is None else ():
        if data[place : place + len(sign)].lower() == sign.lower():
            raise FormatError(f"this is {what}, and no program", location=Location(name, 1), hint=hint)
    if text is None and data.startswith(b"HloModule") and (control := _CONTROL.search(data)):
        raise FormatError(
            f"HLO text with the control character 0x{control[0][0]:02x} in it",
            location=Location(name, data.count(b"\n", 0, control.start()) + 1),
            hint="print it without colors (0x1b); otherwise the file is damaged: copy it again",
        )
    try:
        return hlo_proto.read_module(data) if text is None else _load_text(text, name)
    except XlakitError as error:
        raise error.at(location=Location(name, 1)) from None


def _load_bytecode(data: bytes, name: str) -> HloModule:
    from xlakit.formats.stablehlo.apart import read_bytecode

    return read_bytecode(data, name)


def _exported(data: bytes) -> bytes | None:
    """The program in what JAX's ``Exported.serialize`` gives: a FlatBuffer, in which bytes follow their length."""
    # The place of the table comes first.
    start = data.find(stablehlo.BYTECODE_MAGIC)
    if start < 8 or not 4 <= int.from_bytes(data[:4], "little") < len(data):
        return None
    length = int.from_bytes(data[start - 4 : start], "little")
    return data[start : start + length] if 0 < length <= len(data) - start else None


def may_be_program(head: bytes) -> bool:
    """Whether a file that begins so may be a program, and is read although only its folder was named.

    head: the first bytes of the file, some 64 KiB where it has so many.
    """
    if head.startswith(_GZIP_MAGIC):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, 1 << 16)
        except zlib.error:
            return False
    if stablehlo.BYTECODE_MAGIC in head:
        return True
    if _CONTROL.search(head) and not head.startswith(UTF_16):
        return head.startswith(_FIRST_BYTES)
    encoding = "utf-16" if head.startswith(UTF_16) else "utf-8"
    return _SIGNS.search(head.decode(encoding, "replace")) is not None


def snapshot_of(data: bytes, name: str = "<data>") -> hlo_proto.Snapshot | None:
    """The arguments and the result in a file that is a snapshot proto; None for any other. Raises as :func:`load`."""
    data = uncompressed(data, name)
    if not data.strip() or data.startswith(stablehlo.BYTECODE_MAGIC):
        return None
    text = _as_text(data, name)
    if text is None:
        return hlo_proto.read_snapshot(data)
    return hlo_proto.read_snapshot(text_format.serialized(text)) if text_format.is_text_format(text) else None


def hlo_text_of(data: bytes, name: str = "<data>") -> str | None:
    """The text in a file that is HLO text; None for any other format. Raises FormatError as :func:`load` does."""
    data = uncompressed(data, name)
    text = None if data.startswith(stablehlo.BYTECODE_MAGIC) else _as_text(data, name)
    return text if text is not None and is_hlo(text) else None


def refuse_other_texts(text: str) -> None:
    """Raise FormatError for text of a format that is known and is no HLO text."""
    _refuse_beside_modules(text)
    form = "StableHLO" if _MLIR.match(text) else "JSON" if _JSON.match(text) else "the text of a proto"
    if form != "the text of a proto" or text_format.is_text_format(text):
        raise FormatError(
            f"this is {form}, and no HLO text", hint="xlakit convert FILE --to text writes it as HLO text"
        )


def is_hlo(text: str) -> bool:
    """Whether a text is HLO, by its beginning."""
    if text_format.is_text_format(text) or any(begins.match(text) for begins, _ in _BESIDE_MODULES):
        return False
    return not _JSON.match(text) and not _MLIR.match(text) and _HLO.match(text) is not None


def _refuse_beside_modules(text: str) -> None:
    for begins, what in _BESIDE_MODULES:
        if begins.match(text):
            raise FormatError(
                f"this is {what} of a module, which XLA dumps beside it, and no program",
                hint="give the module itself: ..before_optimizations.txt or ..after_optimizations.txt",
            )


def _load_text(text: str, name: str) -> HloModule:
    _refuse_beside_modules(text)
    if _JSON.match(text):
        return hlo_proto.module_from_json(text)
    if text_format.is_text_format(text):
        return hlo_proto.read_module(text_format.serialized(text))
    if _MLIR.match(text):
        return stablehlo.read_stablehlo(text, name=name)
    if is_hlo(text):
        from xlakit.formats import hlo_text

        return hlo_text.parse_module(text, name=name)
    raise FormatError("none of the formats that are known", hint=_how_it_may_begin(text, name))


def _how_it_may_begin(text: str, name: str) -> str:
    """The hint for a text of unknown format, which may contain a program."""
    header = _HEADER.search(text)
    if (header is None or name.endswith(".py")) and _PYTHON.search(text):
        return "if it is Python, XLA_FLAGS=--xla_dump_to=DIR python FILE writes the programs that it runs into DIR"
    if header is None:
        return "HLO text begins with 'HloModule', StableHLO with 'module', JSON with '{'"
    line = text.count("\n", 0, header.start()) + 1
    before = text[text.rfind("\n", 0, header.start()) + 1 : header.start()].strip()
    if before in ("'", '"', "b'", 'b"'):
        return "this is a text as Python's repr shows it: print it, or write it to a file, instead"
    if before:
        return f"line {line} has 'HloModule' behind other words: take out what a log puts before each line"
    return f"a program begins in line {line}: take out what stands before it, and behind it"


def _graph_in(text: str, name: str) -> str:
    """The only graph in a file saved by PyTorch/XLA, with its line numbers kept; any other text unchanged.

    Raises FormatError where there are several graphs.
    """
    graphs = list(GRAPH.finditer(text)) if "## BEGIN_GRAPH" in text else []
    if len(graphs) > 1:
        spans = [(text.count("\n", 0, g.start(1)) + 1, text.count("\n", 0, g.end(1))) for g in graphs]
        lines = ", ".join(f"{first} to {last}" for first, last in spans[:10]) + (", .." if len(spans) > 10 else "")
        raise FormatError(
            f"the file has {len(graphs)} graphs of PyTorch/XLA, in lines {lines}",
            location=Location(name, spans[0][0]),
            hint="give one of them: on the command line FILE#1 is the first",
        )
    for graph in graphs:
        text = "\n" * text.count("\n", 0, graph.start(1)) + graph[1]
    if _LAZY_TENSORS.match(text):
        raise FormatError(
            "this is PyTorch/XLA's own representation, of which HLO is made",
            location=Location(name, text.count("\n", 0, text.index("IR")) + 1),
            hint="save it with XLA_SAVE_TENSORS_FMT=hlo",
        )
    return text


def _as_text(data: bytes, name: str) -> str | None:
    """The data as text, of several graphs the only one, or None where it is binary. Raises FormatError."""
    text = decoded(data, name)
    return None if text is None else _graph_in(text, name)


def decoded(data: bytes, name: str) -> str | None:
    """The data as text, or None where it is binary; raises FormatError for text in another encoding."""
    if _CONTROL.search(data) and not data.startswith(UTF_16):
        return None
    try:
        # PowerShell writes what a command prints in UTF-16.
        encoding = "utf-16" if data.startswith(UTF_16) else "utf-8-sig"
        return _without_log(data.decode(encoding))
    except UnicodeDecodeError as error:
        raise FormatError(
            f"text that is not UTF-8: {error.reason} 0x{data[error.start]:02x}",
            location=Location(name, data.count(b"\n", 0, error.start) + 1),
            hint="save the text as UTF-8",
        ) from None


def _without_log(text: str) -> str:
    """The text with the prefixes of log lines replaced by spaces, so that lines and columns stay the same."""
    if not _LOGGED.match(text.lstrip()):
        return text
    return _LOGGED.sub(lambda match: " " * len(match[0]), text)


def uncompressed(data: bytes, name: str) -> bytes:
    """The content of data that is compressed with gzip; any other data as it is."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    parts: list[bytes] = []
    size = 0
    while data.startswith(_GZIP_MAGIC):
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(data, _MOST_BYTES - size)
        except zlib.error as error:
            raise FormatError(
                f"damaged gzip data: {error}", location=Location(name, 1), hint="compress or copy it again"
            ) from None
        size += len(part)
        if member.unconsumed_tail or size >= _MOST_BYTES:
            raise FormatError(
                "more than 2 GiB when unpacked",
                location=Location(name, 1),
                hint="unpack it and take the module out of it",
            )
        if not member.eof:
            raise FormatError("gzip data is cut off", location=Location(name, 1), hint="compress or copy it again")
        parts.append(part)
        data = member.unused_data
    return b"".join(parts)
