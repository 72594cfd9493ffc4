"""Files are told apart by what is in them."""

import bz2
import gzip
import io
import lzma
import sys
import tarfile

import pytest

from xlakit.errors import FormatError, ParseError, UnsupportedError
from xlakit.formats import stablehlo
from xlakit.formats.detect import load, may_be_program
from xlakit.formats.hlo_proto import module_to_json, schema, write_module
from xlakit.ir.instruction import HloModule

TEXT = "HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }\n"
# As PyTorch/XLA saves it.
SAVED = f"""[ScheduleSyncTensorsGraph]
TensorsGraphInfo:
  <module> (train.py:71)

## BEGIN_GRAPH
{TEXT}
Graph Hash: f4a1b4a07d2bd4a7

## END_GRAPH

"""
STABLEHLO = """module @m { func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32>
  return %0 : tensor<2xf32> } }"""


def tarred(data):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("m.hlo")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def wrapped(name, data, *path):
    outer = schema.new(name)
    inner = outer
    for part in path:
        inner = getattr(inner, part)
    inner.ParseFromString(data)
    return outer.SerializeToString()


def forms():
    module = HloModule.from_text(TEXT)
    proto = write_module(module)
    return {
        "text": TEXT.encode(),
        "text with comments": b"// first\n/* second */\n" + TEXT.encode(),
        "text with a byte order mark": b"\xef\xbb\xbf" + TEXT.encode(),
        "text in UTF-16": TEXT.encode("utf-16"),
        "text without a header": b"ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }",
        "text that begins with a computation": b"f { ROOT p = f32[] parameter(0) }\n"
        + TEXT.encode().split(b"\n", 1)[1],
        "proto": proto,
        "HloProto": wrapped("HloProto", proto, "hlo_module"),
        "HloSnapshot": wrapped("HloSnapshot", proto, "hlo", "hlo_module"),
        "HloUnoptimizedSnapshot": wrapped("HloUnoptimizedSnapshot", proto, "hlo_module"),
        "HloModuleProtoWithConfig": wrapped("HloModuleProtoWithConfig", proto, "hlo_module"),
        "JSON": module_to_json(module).encode(),
        "JSON of an HloProto": b'{"hlo_module": ' + module_to_json(module).encode() + b', "bufferAssignment": {}}',
    }


@pytest.mark.parametrize("form", forms())
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_every_form_is_known(form, pack):
    module = load(pack(forms()[form]), "file")
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "negate"]


def test_the_one_graph_that_was_saved_keeps_its_lines():
    assert load(SAVED.encode()).entry.root.opcode == "negate"
    with pytest.raises(ParseError) as caught:
        load(SAVED.replace("negate", "negated").encode())
    assert caught.value.location.line == 7


def test_a_program_in_lines_of_a_log_keeps_its_places():
    lines = ["HloModule m", "ENTRY e {", "  p = f32[2] parameter(0)", "  ROOT r = f32[2] negate(p)", "}"]
    log = "\n".join(f"I0102 03:04:05.678901    1234 service.cc:186] {line}".rstrip() for line in lines)
    assert load(log.encode()).entry.root.opcode == "negate"
    with pytest.raises(ParseError) as caught:
        load(log.replace("negate", "negatee").encode(), "x.log")
    assert (caught.value.location.line, caught.value.location.column) == (4, 65)


def test_gzip_in_pieces():
    data = TEXT.encode()
    assert load(gzip.compress(data[:20], mtime=0) + gzip.compress(data[20:])).name == "m"


@pytest.mark.parametrize("start", ["", "// comment\n", '#loc = loc("f.py":1:1)\n'])
def test_stablehlo_is_known(start):
    pytest.importorskip("jaxlib._jax")
    module = load((start + STABLEHLO).encode())
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "negate"]


def test_portable_artifacts_are_known():
    mlir = pytest.importorskip("jaxlib._jax").mlir
    assert load(mlir.serialize_portable_artifact(STABLEHLO, "1.0.0")).entry.root.opcode == "negate"


def test_stablehlo_without_jaxlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxlib._jax", None)
    for data in (STABLEHLO.encode(), stablehlo.BYTECODE_MAGIC + b"xyz"):
        with pytest.raises(UnsupportedError, match="jaxlib"):
            load(data, "f.mlir")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "empty"),
        (b" \n ", "empty"),
        (b"hello world", "none of the formats"),
        (b"BufferAssignment:\nallocation 0: size 4", "this is a buffer assignment of a module"),
        (b"\nTotal bytes used: 8 (8B)\n", "this is a buffer assignment of a module"),
        (b"HloLiveRange (max 2):\n  InstructionSequence:", "this is a list of live ranges of a module"),
        (b"Memory Space: default (color=0)\n", "this is a report of memory use of a module"),
        (b"xla_cpu_enable_fast_min_max: false\n", "this is a list of options of a module"),
        (b"executable_build_options {\n  device_ordinal: -1\n}\n", "this is a list of options of a module"),
        (b'platform_id: 17\nplatform_name: "cpu"\n', "this is a description of the devices of a module"),
        (b"; ModuleID = '__compute_module'\n", "this is code of LLVM of a module"),
        (b"digraph G {\nrankdir = TB;\n", "this is a drawing of a module"),
        (b"<html>\n<head>", "this is a page with a drawing of a module"),
        (repr(TEXT).encode(), "Python's repr"),
        (b"I0000 00:00 1 service.cc:178] " + TEXT.encode(), "line 1 has 'HloModule' behind other words"),
        (b"WARNING: all\n\n" + TEXT.encode(), "a program begins in line 3"),
        (b"IR {\n  %0 = f32[] prim::Constant()\n}\n", "XLA_SAVE_TENSORS_FMT=hlo"),
        (2 * SAVED.encode(), "2 graphs of PyTorch/XLA, in lines 6 to 8, 18 to 20"),
        (TEXT.encode("utf-16") + b"\x00", "UTF-8"),
        (b"#!/usr/bin/env python\nprint(1)\n", "xla_dump_to"),
        (b"import jax\nprint(jax.devices())\n", "xla_dump_to"),
        (b"\x7fELF\x02\x01" + bytes(50), "object code"),
        (b"\x93NUMPY\x01\x00v\x00", "an array of NumPy"),
        (TEXT.replace("neg", "\x1b[31mneg").encode(), "control character 0x1b"),
        (TEXT.encode() + b"\x00\x00", "control character 0x00"),
        (b"PK\x03\x04" + bytes(50), "a zip archive"),
        (lzma.compress(TEXT.encode()), "compressed with xz"),
        (bz2.compress(TEXT.encode()), "compressed with bzip2"),
        (b"\x28\xb5\x2f\xfd" + bytes(50), "compressed with zstd"),
        (tarred(TEXT.encode()), "a tar archive"),
        (gzip.compress(tarred(TEXT.encode())), "a tar archive"),
        (b"[1, 2]", "none of the formats"),
        (b"HloModule caf\xe9\n", "UTF-8"),
        (b"{}", "JSON"),
        (b'{"name": 1}', "JSON"),
        (b"\x00\x01\x02", "neither a proto nor"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "neither a proto nor"),
        (write_module(HloModule.from_text(TEXT))[:-1], "neither a proto nor .*\n.*\n.*cut off"),
        # As reports of memory use begin, with a message where modules have their name, and topologies.
        (b"\x0a\x06\x08\xc0\x1c\x10\x00\x18", "a proto, but no HloModuleProto"),
        (b"\x08\x80\x01\x12\x03cpu", "a proto, but no HloModuleProto"),
        (b"\x1f\x8b", "cut off"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-4], "cut off"),
        (gzip.compress(TEXT.encode(), mtime=0)[:12] + b"\xff" * 30, "gzip"),
        (gzip.compress(b"", mtime=0), "empty"),
    ],
)
def test_what_is_nothing_is_refused(data, rule):
    with pytest.raises(FormatError, match=rule) as caught:
        load(data, "some.file")
    assert caught.value.location.file == "some.file"


@pytest.mark.parametrize(
    "rest", ["", "\n\nf (p: f32[2]) -> f32", "\nf {\n  x = f32[2] parameter(0)\n  y = f32[2] add(x,"]
)
def test_text_that_is_cut_off_is_told(rest):
    with pytest.raises(ParseError, match="the file ends inside of a program"):
        load(b"HloModule m, is_scheduled=true\n\n" + rest.encode(), "some.file")


def test_faults_of_hlo_text_keep_their_place():
    with pytest.raises(ParseError) as caught:
        load(b"HloModule m\nENTRY e { x = f32[2] frobnicate() }", "f.hlo")
    assert caught.value.location.line == 2


@pytest.mark.parametrize("name", forms())
def test_programs_of_all_forms_are_worth_reading(name):
    data = forms()[name]
    assert may_be_program(data)
    assert may_be_program(gzip.compress(data)[:200])


@pytest.mark.parametrize("data", [b"", b"numpy==2.0\n", b"an entry of a module\n", b"\x1f\x8bno", b"\x00\x01\x02"])
def test_other_files_are_not(data):
    assert not may_be_program(data)
