"""The command line's streams: what is closed, has few letters, or is interrupted."""

import contextlib
import io
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from xlakit.errors import ExecutionError
from xlakit.tools import cli, warned
from xlakit.tools.commands.time_limit import time_limit


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_closed_streams_are_told(add_file, monkeypatch, capsys, stream):
    monkeypatch.setattr(sys, stream, None)
    assert cli.main(["check", "-" if stream == "stdin" else add_file]) == 1
    assert "is closed" in capsys.readouterr().err
    assert cli.main(["run", "-" if stream == "stdin" else add_file]) == 1
    assert capsys.readouterr().err.count("is closed") == 1
    # In a process of its own: the server takes over the streams.
    code = f"import sys; sys.{stream} = None; from xlakit.tools import cli; sys.exit(cli.main(['lsp']))"
    child = subprocess.run(
        [sys.executable, "-c", code], input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert (child.returncode, "Traceback" in child.stderr) == (1, False)
    assert "is closed" in child.stderr


def test_faults_are_not_printed_among_results_where_standard_error_is_closed(add_text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    assert cli.main(["check", str(tmp_path / "none.hlo")]) == 1
    (tmp_path / "bad.hlo").write_text(add_text.replace("add(", "ad("))
    assert cli.main(["check", str(tmp_path / "bad.hlo")]) == 1
    assert capsys.readouterr().out == ""


def test_terminals_without_the_letters_of_a_program_get_escapes(tmp_path, monkeypatch):
    path = tmp_path / "a.hlo"
    path.write_text('ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] tanh(x), metadata={source_file="grö→ße.py"} }')
    for options in ("--trace", "--profile"):
        terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
        monkeypatch.setattr("sys.stdout", terminal)
        assert cli.main(["run", str(path), options]) == 0
        assert "grö\\u2192ße.py".encode("latin-1") in terminal.buffer.getvalue()


@pytest.mark.usefixtures("observed_here")
@pytest.mark.parametrize(
    ("verb", "begin"),
    [
        (["run"], b"PK"),
        (["convert", "--to", "text"], b"HloModule"),
        (["convert", "--to", "proto"], b"\n"),
        (["opt"], b"HloModule"),
        (["view", "--no-passes"], b"<!doctype"),
        (["reduce", "--test", "true"], b"HloModule"),
    ],
)
def test_a_dash_is_standard_output(add_file, tmp_path, monkeypatch, verb, begin):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", stream)
    assert cli.main([*verb, add_file, "-o", "-"]) == 0
    stream.flush()
    assert stream.buffer.getvalue().startswith(begin)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        (["run"], "is a terminal"),
        (["convert", "--to", "proto"], "is a terminal"),
        (["run", "--json"], "both write to standard output"),
        (["view", "--json"], "both write to standard output"),
        (["reduce", "--test", "true", "--input", "x.npz"], "no place for the arguments"),
        (["bisect", "--crash", "--reduce"], "has the report"),
        (["extract", "--instruction", "x"], "name a folder"),
    ],
)
def test_what_is_no_output_for_a_dash_is_refused(add_file, tmp_path, monkeypatch, capsys, verb, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with contextlib.suppress(SystemExit):
        assert cli.main([*verb, add_file, "-o", "-"]) == 2
    shown = capsys.readouterr()
    assert says in shown.out + shown.err
    assert not (tmp_path / "-").exists()


class _SlowEnd:
    """An object whose end, of which Python drops exceptions, lasts until a time limit has passed."""

    def __del__(self):
        time.sleep(0.3)


def test_a_time_limit_interrupts_again_where_python_drops_it(capsys):
    started = time.monotonic()
    with pytest.raises(ExecutionError, match=r"not done after 0\.1 s"), time_limit(0.1):
        _SlowEnd()
        while time.monotonic() < started + 20:
            time.sleep(0.001)
    assert time.monotonic() < started + 10
    assert capsys.readouterr().err == ""


def test_interrupted(add_file, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("xlakit.tools.run.run", interrupt)
    assert cli.main(["run", add_file]) == 130
    assert capsys.readouterr().err == "xlakit: interrupted\n"


def test_interrupted_while_it_is_imported(tmp_path):
    # In place of one of the first modules that the command line needs; the first test has the interruption later.
    (tmp_path / "argparse.py").write_text("raise KeyboardInterrupt\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "xlakit", "run", "-"],
        input="",
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "xlakit: interrupted\n")


def test_standard_input(add_text):
    done = subprocess.run(
        [sys.executable, "-m", "xlakit.tools.cli", "run", "-"],
        input=add_text.encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"[")


@pytest.mark.parametrize("verb", ["check", "diff"])
def test_pipes_that_have_names(add_text, tmp_path, verb):
    """A pipe can be read once only; a reader that opens it again waits forever, or finds nothing."""
    pipes = [tmp_path / "one", tmp_path / "two"][: 1 + (verb == "diff")]
    for pipe in pipes:
        os.mkfifo(pipe)
    writers = [threading.Thread(target=pipe.write_text, args=(add_text,), daemon=True) for pipe in pipes]
    for writer in writers:
        writer.start()
    words = [sys.executable, "-m", "xlakit", verb, *map(str, pipes)]
    done = subprocess.run(words, capture_output=True, check=False, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_standard_input_has_a_name(add_text):
    words = [sys.executable, "-m", "xlakit", "check", "/dev/stdin"]
    done = subprocess.run(words, input=add_text, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_warnings_are_lines_and_come_once(add_file, tmp_path):
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "XLAKIT_CACHE_DIR": str(tmp_path / "file"), "XLAKIT_THREAD": "2", "XLAKIT_MINE": "1"}
    words = [sys.executable, "-m", "xlakit", "run", add_file]
    done = subprocess.run(words, env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "xlakit: warning: nothing reads XLAKIT_THREAD",
        "  hint: did you mean XLAKIT_THREADS?",
        f"xlakit: warning: the compile cache: nothing can be stored in {tmp_path / 'file'}: File exists; "
        "XLAKIT_CACHE_DIR names another folder, XLAKIT_CACHE=off does without",
    ]


@pytest.mark.parametrize("verb", [["run"], ["inspect", "--as", "assembly"]])
def test_warnings_that_are_to_be_errors_are_lines(add_file, tmp_path, verb):
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "XLAKIT_CACHE_DIR": str(tmp_path / "file" / "below"), "PYTHONWARNINGS": "error"}
    words = [sys.executable, "-m", "xlakit", *verb, add_file]
    done = subprocess.run(words, env=environment, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"xlakit: {add_file}: the compile cache: nothing can be stored in {tmp_path}/file/below: Not a directory; "
        "XLAKIT_CACHE_DIR names another folder, XLAKIT_CACHE=off does without",
    ]


def test_the_variables_that_are_known_are_those_that_are_read():
    package = Path(warned.__file__).parents[1]
    texts = (path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    read = {name for text in texts for name in re.findall(r'"XLAKIT_(\w+)"', text)}
    assert read == set(warned.VARIABLES)


def test_names_of_files_that_are_no_text(add_text, tmp_path):
    file = os.fsencode(tmp_path) + b"/\xff.hlo"
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(add_text)
    assert cli.main(["view", os.fsdecode(file), "--no-passes"]) == 0
    assert os.path.getsize(os.fsencode(tmp_path) + b"/\xff.html") > 0
