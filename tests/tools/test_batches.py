"""Verbs on several programs and on folders, what --json prints of each, and the exit status of all."""

import errno
import gzip
import io
import json
import os
import sys

import numpy as np
import pytest
from google.protobuf import text_format

import xlakit as xla
from xlakit.data.literal import Literal
from xlakit.formats.hlo_proto import read_snapshot, schema
from xlakit.formats.hlo_proto.literals import encode_varints, write_literal
from xlakit.ir.instruction import HloModule
from xlakit.tools import cli
from xlakit.tools.commands.batch import programs_of, worse

GOOD = "HloModule good\n\nENTRY main {\n  x = f32[3] parameter(0)\n  ROOT r = f32[3] abs(x)\n}\n"
OTHER = GOOD.replace("abs", "negate").replace("good", "other")
FOREVER = """HloModule forever
body { ROOT i = s32[] parameter(0) }
condition { i = s32[] parameter(0) ROOT t = pred[] constant(true) }
ENTRY main { x = s32[] parameter(0) ROOT w = s32[] while(x), condition=condition, body=body }
"""
BAD = GOOD.replace("abs", "abz")


@pytest.fixture
def folder(tmp_path):
    for name, text in {"in/a.hlo": GOOD, "in/b.hlo": BAD, "in/c/d.txt": OTHER, "in/c/notes.md": "none"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "in"


def records(capsys):
    return [json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("verb", "keys"),
    [
        (["check"], {"module", "computations", "instructions", "faults", "warnings"}),
        (["inspect"], {"as", "hlo"}),
        (["inspect", "--as", "memory"], {"as", "memory"}),
        (["inspect", "--as", "cost"], {"as", "cost"}),
        (["inspect", "--as", "fallbacks"], {"as", "fallbacks"}),
        (["opt"], {"text"}),
        (["opt", "--diff"], {"diff"}),
        (["convert", "--to", "text"], {"text"}),
        (["convert", "--to", "proto"], {"proto"}),
        (["convert", "--to", "json"], {"json"}),
        (["convert", "--to", "json", "-o", "OUT"], {"output", "bytes"}),
        (["run"], {"outputs", "runs", "seconds"}),
        (["run", "--backend", "interpreter", "--compare", "interpreter"], {"outputs", "runs", "seconds", "comparison"}),
        (["run", "--trace"], {"first_nan", "first_infinity", "rows"}),
        (["run", "--against", "interpreter"], {"divergence"}),
        (["run", "-o", "OUT"], {"outputs", "runs", "seconds", "output"}),
        (["extract", "--instruction", "r", "-o", "OUT"], {"output", "instructions", "parameters"}),
        (["view", "--no-passes", "-o", "OUT"], {"output", "bytes"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_program_of_a_folder_has_a_record(folder, capsys, verb, keys):
    options = [str(folder.parent / "out") if word == "OUT" else word for word in verb]
    assert cli.main([options[0], str(folder), *options[1:], "--json"]) == 1
    good, bad, other = records(capsys)
    assert [own["file"] for own in (good, bad, other)] == [str(folder / name) for name in ("a.hlo", "b.hlo", "c/d.txt")]
    assert [own["status"] for own in (good, bad, other)] == [0, 1, 0]
    assert set(good) == set(other) == {"file", "status", *keys}
    if verb == ["check"]:
        assert bad["faults"][0]["line"] == 5
    else:
        assert set(bad) == {"file", "status", "error"}
        assert bad["error"]["type"] == "ParseError"
        assert bad["error"]["place"] == f"{folder / 'b.hlo'}:5:19"
        assert "abz" in bad["error"]["message"]


def test_a_file_is_no_place_for_several_programs(folder, capsys):
    (folder.parent / "out").write_text("")
    assert cli.main(["convert", "--to", "text", str(folder), "-o", str(folder.parent / "out")]) == 1
    assert "out is a file, and several programs are written into a folder" in capsys.readouterr().err


def test_texts_of_several_programs_have_titles(folder, capsys):
    assert cli.main(["opt", str(folder), "--short"]) == 1
    shown = capsys.readouterr()
    assert [line for line in shown.out.splitlines() if line.startswith("==>")] == [
        f"==> {folder / name} <==" for name in ("a.hlo", "b.hlo", "c/d.txt")
    ]
    assert shown.out.count("HloModule") == 2
    assert "abz" in shown.err
    assert cli.main(["opt", str(folder / "a.hlo")]) == 0
    text = capsys.readouterr().out
    assert "==>" not in text
    assert cli.main(["opt", str(folder / "a.hlo"), "-o", str(folder / "optimized.hlo")]) == 0
    assert not capsys.readouterr().out
    assert (folder / "optimized.hlo").read_text() == text


SEVERAL = f"// HloModule not\n{GOOD}\n// -----\n/* HloModule nor */\n{BAD.replace('good', 'bad')}{OTHER}"


def test_a_text_of_several_modules_is_as_several_programs(tmp_path, monkeypatch, capsys):
    (tmp_path / "tests.hlo").write_text(SEVERAL)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", "tests.hlo", "--json"]) == 1
    found = records(capsys)
    assert [(r["file"], r["module"]) for r in found] == [
        ("tests.hlo#1", "good"),
        ("tests.hlo#2", None),
        ("tests.hlo#3", "other"),
    ]
    # Lines are those of the file.
    line = SEVERAL.splitlines().index("  ROOT r = f32[3] abz(x)") + 1
    assert found[1]["faults"][0]["line"] == line
    assert cli.main(["convert", "tests.hlo", "--to", "text", "-o", "out"]) == 1
    assert sorted(os.listdir("out")) == ["tests-1.hlo", "tests-3.hlo"]
    capsys.readouterr()
    assert cli.main(["view", "tests.hlo#other", "--no-passes"]) == 0
    assert os.path.exists("tests-other.html")
    assert cli.main(["convert", "tests.hlo#1", "--to", "text", "-o", "tests.hlo"]) == 1
    assert "would replace the program" in capsys.readouterr().err
    assert cli.main(["check", "tests.hlo#4"]) == 1
    assert "it has 1 (good), 2 (bad), 3 (other)" in capsys.readouterr().err


def test_several_modules_of_standard_input_and_of_two_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((GOOD + OTHER).encode("utf-16"))))
    assert cli.main(["run", "-"]) == 0
    assert capsys.readouterr().out.count("==> -#") == 2
    (tmp_path / "a.hlo").write_text(GOOD + OTHER)
    (tmp_path / "b.hlo").write_text(GOOD + GOOD)
    (tmp_path / "c.hlo").write_text(GOOD)
    first, second, third = (str(tmp_path / f"{name}.hlo") for name in "abc")
    assert cli.main(["diff", first, second, "--json"]) == 1
    assert [(r["status"], r["second"]) for r in records(capsys)] == [(0, f"{second}#1"), (1, f"{second}#2")]
    assert cli.main(["diff", f"{first}#good", third]) == 0
    assert cli.main(["diff", first, third]) == 2
    assert f"name one of them: {first}#1 to {first}#2" in capsys.readouterr().err


def test_what_is_written_keeps_the_folders(folder, capsys):
    out = folder.parent / "out"
    assert cli.main(["convert", str(folder), "--to", "proto", "-o", str(out)]) == 1
    assert HloModule.from_proto((out / "c" / "d.pb").read_bytes()).name == "other"
    assert cli.main(["run", str(folder), "-o", str(out)]) == 1
    assert np.load(out / "a.npz")["result"].shape == (3,)
    assert cli.main(["view", str(folder), "--no-passes", "-o", str(out)]) == 1
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*.html")) == ["a.html", "c/d.html"]
    assert cli.main(["extract", str(folder), "--instruction", "r", "-o", str(out / "parts")]) == 1
    capsys.readouterr()
    assert cli.main(["run", str(out / "parts"), "--json"]) == 0
    assert [own["file"] for own in records(capsys)] == [str(out / "parts" / name) for name in ("a", "c/d")]


def test_folders_are_compared_by_names(folder, capsys):
    second = folder.parent / "second"
    (second / "c").mkdir(parents=True)
    (second / "a.hlo").write_text(GOOD)
    (second / "c" / "d.hlo").write_text(GOOD)
    assert cli.main(["diff", str(folder), str(second), "--ignore", "names", "--json"]) == 2
    found = records(capsys)
    assert [(own["first"], own["status"]) for own in found] == [
        (str(folder / "a.hlo"), 0),
        (str(folder / "b.hlo"), 2),
        (str(folder / "c" / "d.txt"), 1),
    ]
    assert found[1]["error"]["type"] == "ParseError"
    (folder / "b.hlo").write_text(GOOD)
    assert cli.main(["diff", str(folder), str(second)]) == 2
    assert f"{second / 'b.hlo'}: No such file" in capsys.readouterr().err
    assert cli.main(["view", str(folder), str(second), "-o", str(second / "pages")]) == 1
    assert sorted(str(p.relative_to(second / "pages")) for p in second.rglob("*.html")) == ["a.html", "c/d.html"]
    assert cli.main(["diff", str(folder), str(second / "a.hlo")]) == 2
    assert "one is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["reduce", "bisect"])
def test_a_search_goes_on_after_a_program_that_cannot_be_read(folder, capsys, verb):
    files = [str(folder / "b.hlo"), str(folder / "none.hlo")]
    assert cli.main([verb, *files, "--test", "true", "--json"]) == 1
    assert [own["error"]["type"] for own in records(capsys)] == ["ParseError", "FileNotFoundError"]


def test_reduce_has_one_output(folder):
    with pytest.raises(SystemExit) as exit:
        cli.main(["reduce", str(folder), "--test", "true", "-o", "x.hlo"])
    assert exit.value.code == 2


def test_a_fault_of_xlakit_is_told_and_stops_no_other_program(folder, capsys, monkeypatch):
    from xlakit.tools import opt

    monkeypatch.setattr(opt, "run_pipeline", lambda *_: {}["fault"])
    assert cli.main(["opt", str(folder / "a.hlo"), str(folder / "b.hlo"), "--json"]) == 1
    shown = capsys.readouterr()
    first, second = map(json.loads, shown.out.splitlines())
    assert (first["error"]["type"], second["error"]["type"]) == ("KeyError", "ParseError")
    assert "Traceback" in shown.err
    with pytest.raises(KeyError):
        cli.main(["opt", str(folder / "a.hlo")])


@pytest.mark.parametrize(
    "command",
    [
        ["run", "IN", "--profile", "--profile-output", "x.json"],
        ["convert", "IN", "--to", "proto"],
        ["view", "IN", "--serve"],
        ["view", "IN", "--port", "1"],
    ],
)
def test_options_of_one_program(folder, capsys, command):
    assert cli.main([str(folder) if word == "IN" else word for word in command]) == 2
    assert capsys.readouterr().err.count("xlakit: ") == 1


def test_a_reader_that_has_seen_enough_is_no_fault(folder, capsys, monkeypatch):
    class Closed(io.StringIO):
        def write(self, _):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        def fileno(self):
            return os.open(os.devnull, os.O_WRONLY)

    monkeypatch.setattr(sys, "stdout", Closed())
    assert cli.main(["inspect", str(folder / "a.hlo")]) == 0
    assert capsys.readouterr().err == ""


def test_the_machine_and_the_operations_in_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path))
    assert cli.main(["cache", "--json"]) == 0
    assert cli.main(["cache", "--clear", "--json"]) == 0
    shown, cleared = records(capsys)
    assert (shown["directory"], shown["entries"], cleared["removed"]) == (str(tmp_path), 0, 0)
    assert cli.main(["ops", "dot", "--json"]) == 0
    assert {"dot", "ragged-dot"} <= {own["opcode"] for own in records(capsys)}
    assert cli.main(["machine", "--json"]) == 0
    assert "processor" in records(capsys)[0]


def test_programs_have_names_of_their_own(tmp_path):
    for name in ("x.hlo", "x.txt.gz", "jit_f.step.before_optimizations.txt"):
        (tmp_path / name).write_text(GOOD)
    files = sorted(str(p) for p in tmp_path.iterdir())
    assert [own.name for own in programs_of(files)] == ["jit_f.step.before_optimizations", "x", "x-2"]
    assert [own.is_alone for own in programs_of(files[:1])] == [True]
    assert programs_of(["-"])[0].name == "stdin"


CALL = """HloModule call

ENTRY main {
  x = f32[3] parameter(0)
  ROOT r = f32[3] custom-call(x), custom_call_target="tests.batches.thrice"
}
"""


def test_a_program_that_does_not_end_has_its_time_and_stops_no_other(folder, capsys):
    (folder / "b.hlo").write_text(FOREVER)
    assert cli.main(["run", str(folder), "--json", "--timeout", "1", "--backend", "interpreter"]) == 1
    good, endless, other = records(capsys)
    assert [good["status"], endless["status"], other["status"]] == [0, 1, 0]
    assert endless["error"]["message"] == "the program is not done after 1 s"
    assert "--timeout" in endless["error"]["hint"]
    # Machine code asks for signals, too.
    assert cli.main(["run", str(folder / "b.hlo"), "--timeout", "0.5"]) == 1
    assert "the program is not done after 0.5 s" in capsys.readouterr().err


def test_what_xla_dumps_beside_modules_is_left_out(tmp_path):
    after = "module_0001.jit_f.cpu_after_optimizations"
    beside = ["-buffer-assignment.txt", "-buffer-assignment-values.txt", "-live-range.txt", "-memory-usage-report.txt"]
    names = [
        f"{after}{end}" for end in (".txt", *beside, "-memory-usage-report.pb", "-memory-usage-report.pb.gz", ".dot")
    ]
    names += ["module_0001.jit_f/module.mlir", "module_0001.jit_f/compile_options.pb", "module_0001.jit_f/topology.pb"]
    for name in (*names, "module_0001.jit_f.debug_options"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(GOOD)
    found = [program.name for program in programs_of([str(tmp_path)])]
    assert found == ["module_0001.jit_f/module", after]


def test_a_folder_of_all_kinds_of_files_stands_for_its_programs(tmp_path, capsys, monkeypatch):
    (tmp_path / "modules" / "x").mkdir(parents=True)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "a.hlo").write_text(GOOD)
    for name, data in {
        "LICENSE.txt": b"Permission is granted.\nEntry of computations = none.\n",
        "x/weights.pb": bytes(range(256)),
        "x/empty.txt": b"",
        "x/notes.md": GOOD.encode(),
        "x/mine.txt": b"// mine\n" + GOOD.encode(),
        "module_0001.before_optimizations.txt": b"HloMod",
    }.items():
        (tmp_path / "modules" / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "zero.hlo").symlink_to("/dev/zero")
    (tmp_path / "loop.hlo").symlink_to("loop.hlo")
    (tmp_path / "modules" / "x" / "up").symlink_to(tmp_path)
    list_folder = os.scandir

    def scandir(path):  # as for a user other than root
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [p.name for p in programs_of([str(tmp_path)])] == [
        "modules/module_0001.before_optimizations",
        "modules/x/mine",
    ]
    modules = tmp_path / "modules"
    assert capsys.readouterr().err.splitlines() == [
        f"xlakit: warning: 3 files in {tmp_path} left out, as they do not begin like a program: "
        f"{modules / 'LICENSE.txt'}, {modules / 'x' / 'empty.txt'}, {modules / 'x' / 'weights.pb'}",
        f"xlakit: warning: 1 folder in {tmp_path} cannot be read, left out: {tmp_path / 'closed'}",
    ]


@pytest.mark.parametrize("to", ["text", "proto", "json"])
@pytest.mark.parametrize("end", [".txt", ".pb", ".pbtxt"])
def test_programs_of_a_folder_are_found_by_how_they_begin(folder, tmp_path, to, end):
    out = tmp_path / f"out{end}"
    assert cli.main(["convert", "--to", to, str(folder / "a.hlo"), "-o", str(out)]) == 0
    programs = {"plain": out.read_bytes(), "packed": gzip.compress(out.read_bytes())}
    proto = schema.parse("HloModuleProto", HloModule.from_text(GOOD).to_proto())
    programs["proto"] = text_format.MessageToString(proto).encode()
    programs["wide"] = GOOD.encode("utf-16")
    programs["instructions"] = b"x = f32[3] parameter(0)\nROOT r = f32[3] abs(x)\n"
    (tmp_path / "found").mkdir()
    for name, data in programs.items():
        (tmp_path / "found" / f"{name}{end}").write_bytes(data)
    assert [p.name for p in programs_of([str(tmp_path / "found")])] == sorted(programs)


def test_custom_calls_get_a_meaning_from_a_file(tmp_path, capsys, monkeypatch):
    (tmp_path / "call.hlo").write_text(CALL)
    (tmp_path / "calls.py").write_text(
        'import xlakit\nxlakit.register_custom_call("tests.batches.thrice", lambda x: 3 * x)\n'
    )
    np.savez(tmp_path / "x.npz", x=np.float32([1, 2, 3]))
    file, given = str(tmp_path / "call.hlo"), ["--input", str(tmp_path / "x.npz")]
    assert cli.main(["run", file, *given]) == 1
    assert "register_custom_call" in capsys.readouterr().err
    calls = ["--custom-calls", str(tmp_path / "calls.py")]
    assert cli.main(["run", file, *given, *calls]) == 0
    assert capsys.readouterr().out == "[3. 6. 9.]\n"
    for verb in (["inspect"], ["opt"], ["diff", file, "--run"]):
        assert cli.main([*verb, file, *calls]) == 0


def snapshot(name, devices, result=None):
    message = schema.new(name)
    module = HloModule.from_text(GOOD.replace("good", "good, replica_count=2") if len(devices) == 2 else GOOD)
    inner = message.hlo.hlo_module if name == "HloSnapshot" else message.hlo_module
    inner.MergeFromString(module.to_proto())
    for arguments in devices:
        holder = message if name == "HloSnapshot" else message.partitions.add()
        for value in arguments:
            write_literal(Literal.from_numpy(np.float32(value)), holder.arguments.add())
    if result is not None:
        write_literal(Literal.from_numpy(np.float32(result)), message.result)
    return message.SerializeToString()


def as_text(name, data):
    return text_format.MessageToString(schema.parse(name, data, exact=True)).encode()


def as_raw(data):
    """An unoptimized snapshot with its arguments behind the proto, as XLA writes it where it writes no text."""
    message = schema.parse("HloUnoptimizedSnapshot", data)
    raw = b""
    for device in message.partitions:
        for literal in device.arguments:
            shape = literal.shape.SerializeToString()
            one = len(shape).to_bytes(8, "little") + shape + literal.f32s
            device.arguments_descriptors.add(argument_size_bytes=len(one))
            raw += one
        del device.arguments[:]
    proto = message.SerializeToString()
    return encode_varints(np.uint64([len(proto)])) + proto + raw


@pytest.mark.parametrize("form", ["proto", "text", "raw"])
@pytest.mark.parametrize("name", ["HloSnapshot", "HloUnoptimizedSnapshot"])
def test_a_snapshot_runs_on_its_arguments(tmp_path, capsys, name, form):
    path = tmp_path / "snapshot.pb"
    data = snapshot(name, [[[-1, 2, -3]]])
    if form == "raw" and name == "HloSnapshot":
        pytest.skip("XLA writes none")
    path.write_bytes(as_text(name, data) if form == "text" else as_raw(data) if form == "raw" else data)
    assert cli.main(["run", str(path)]) == 0
    assert capsys.readouterr().out == "[1. 2. 3.]\n"
    assert cli.main(["run", str(path), "--seed", "3"]) == 0
    assert capsys.readouterr().out != "[1. 2. 3.]\n"
    assert cli.main(["run", str(path), "--trace", "--json"]) == 0
    (row,) = [row for row in records(capsys)[0]["rows"] if row["instruction"] == "r"]
    assert (row["min"], row["max"]) == (1.0, 3.0)
    for verb in (["inspect"], ["convert", "--to", "text"], ["check"]):
        assert cli.main([*verb, str(path)]) == 0


# PRED as bits, and four bits of S4, as XLA has written them: the length of a shape's proto, the proto, the elements.
RAW = {
    "pred": ("1000000000000000 10011a010a2a060a0100800101320100", "cd01", [1, 0, 1, 1, 0, 0, 1, 1, 1, 0]),
    "s4": ("1000000000000000 10151a01052a060a0100800101320100", "25c00c", [5, 2, 0, -4, -4]),
    "bf16": ("1000000000000000 10101a01022a060a0100800101320100", "803f0040", [1, 2]),
}


@pytest.mark.parametrize("kind", RAW)
def test_raw_arguments_that_are_narrower_than_a_byte(kind):
    shape, elements, values = RAW[kind]
    raw = bytes.fromhex(shape.replace(" ", "") + elements)
    message = schema.new("HloUnoptimizedSnapshot")
    message.hlo_module.MergeFromString(HloModule.from_text(GOOD).to_proto())
    message.partitions.add().arguments_descriptors.add(argument_size_bytes=len(raw))
    proto = message.SerializeToString()
    data = encode_varints(np.uint64([len(proto)])) + proto + raw
    ((argument,),) = read_snapshot(data).arguments
    assert argument.shape.element_type.hlo_name == kind
    np.testing.assert_array_equal(argument.to_numpy().astype(int), values)
    # What is cut off, or goes on, is no snapshot.
    for other in (data[:-1], data + b"x"):
        with pytest.raises(xla.FormatError):
            read_snapshot(other)


def test_a_text_of_a_proto_that_is_at_fault(tmp_path, capsys):
    path = tmp_path / "snapshot.txt"
    path.write_text('hlo_module {\n  name: "x"\n  computations {\n')
    assert cli.main(["check", str(path)]) == 1
    assert "not a HloUnoptimizedSnapshot in protobuf's text format" in capsys.readouterr().err


def test_the_result_of_a_snapshot_is_compared(tmp_path, capsys):
    path = tmp_path / "snapshot.pb"
    for result, status in (([1, 2, 3], 0), ([1, 2, 4], 1)):
        path.write_bytes(snapshot("HloSnapshot", [[[-1, 2, -3]]], result))
        assert cli.main(["run", str(path), "--compare", "snapshot"]) == status
    assert "DIFFERS" in capsys.readouterr().out
    path.write_bytes(snapshot("HloSnapshot", [[[-1, 2, -3]]]))
    assert cli.main(["run", str(path), "--compare", "snapshot"]) == 1
    assert "has no result" in capsys.readouterr().err
    # What XLA writes for a program with several results.
    message = schema.parse("HloSnapshot", snapshot("HloSnapshot", [[[-1, 2, -3]]]))
    message.result.shape.SetInParent()
    message.result.shape.element_type = 13
    path.write_bytes(message.SerializeToString())
    assert cli.main(["run", str(path), "--compare", "snapshot"]) == 1
    assert "an empty tuple" in capsys.readouterr().err


def test_a_snapshot_of_several_devices(tmp_path, capsys):
    path = tmp_path / "snapshot.pb"
    path.write_bytes(snapshot("HloUnoptimizedSnapshot", [[[-1, 2, -3]], [[4, -5, 6]]]))
    assert cli.main(["run", str(path), "--replicas", "2"]) == 0
    out = capsys.readouterr().out
    assert "[1. 2. 3.]" in out
    assert "[4. 5. 6.]" in out
    assert cli.main(["run", str(path), "--replicas", "3"]) == 1
    said = capsys.readouterr().err
    assert "the program runs on 3 devices" in said
    assert "has arguments of 2" in said
    assert "--seed N" in said
    assert cli.main(["run", str(path), "--replicas", "3", "--seed", "1"]) == 0


def test_statuses_have_an_order():
    order = [0, 3, 1, 2]
    assert all(worse(a, b) == b and worse(b, a) == b for i, a in enumerate(order) for b in order[i:])
