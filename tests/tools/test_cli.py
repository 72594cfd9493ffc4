"""The command line, as a person meets it: in a process of its own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xlakit.tools import cli

ADD = """HloModule add

ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  ROOT sum = f32[3] add(x, y)
}
"""


@pytest.fixture
def add_file(tmp_path):
    path = tmp_path / "add.hlo"
    path.write_text(ADD)
    return str(path)


def test_run_prints_what_numpy_prints(add_file, tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=np.float32([1, 2, 3]), arg1=np.float32([10, 20, 30]))
    assert cli.main(["run", add_file, "--input", str(tmp_path / "x.npz")]) == 0
    assert capsys.readouterr().out == "[11. 22. 33.]\n"


def test_run_is_the_same_for_the_same_seed(add_file, capsys):
    outputs = []
    for seed in ("1", "1", "2"):
        assert cli.main(["run", add_file, "--seed", seed]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


def test_run_saves_results_and_times_iterations(add_file, tmp_path, capsys):
    output = tmp_path / "y.npz"
    assert cli.main(["run", add_file, "--iterations", "3", "--output", str(output)]) == 0
    assert np.load(output)["result"].shape == (3,)
    assert "median of 3 runs" in capsys.readouterr().err


@pytest.mark.parametrize("reference", ["interpreter", "jaxlib"])
def test_compare_prints_a_table(add_file, capsys, reference):
    assert cli.main(["run", add_file, "--compare", reference]) == 0
    out = capsys.readouterr().out
    assert "max abs error" in out
    assert "f32[3]" in out
    assert "ok" in out


def test_check_and_its_errors(add_file, tmp_path, capsys):
    assert cli.main(["check", add_file]) == 0
    assert "1 computation, 3 instructions" in capsys.readouterr().out
    bad = tmp_path / "bad.hlo"
    bad.write_text(ADD.replace("add(x, y)", "add(x, z)"))
    assert cli.main(["check", str(bad)]) == 1
    error = capsys.readouterr().err
    assert "bad.hlo:6:28" in error
    assert "^" in error
    assert "Traceback" not in error
    bad.write_text(ADD.replace("f32[3] parameter(1)", "f32[4] parameter(1)"))
    assert cli.main(["check", str(bad)]) == 1
    assert "sum" in capsys.readouterr().err


def test_convert_there_and_back(add_file, tmp_path, capsysbinary):
    proto, text = tmp_path / "add.pb", tmp_path / "again.hlo"
    assert cli.main(["convert", add_file, "--to", "proto", "--output", str(proto)]) == 0
    assert cli.main(["convert", str(proto), "--to", "text", "--output", str(text)]) == 0
    assert "add" in text.read_text()
    assert cli.main(["convert", str(text), "--to", "json"]) == 0
    assert b'"opcode"' in capsysbinary.readouterr().out


def test_missing_files_and_inputs_are_one_line(add_file, tmp_path, capsys):
    assert cli.main(["check", str(tmp_path / "none.hlo")]) == 1
    assert "No such file" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", x=np.float32([1, 2, 3]))
    assert cli.main(["run", add_file, "--input", str(tmp_path / "x.npz")]) == 1
    assert "arg1" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", x=np.float32([1, 2, 3]), y=np.float32([1, 2]))
    assert cli.main(["run", add_file, "--input", str(tmp_path / "x.npz")]) == 1
    assert "f32[3]" in capsys.readouterr().err


def test_traceback_on_request(add_file):
    with pytest.raises(Exception, match="No such file"):
        cli.main(["check", add_file + ".not", "--traceback"])


def test_usage_errors_exit_with_2(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["run"])
    assert exit.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_standard_input():
    done = subprocess.run(
        [sys.executable, "-m", "xlakit.tools.cli", "run", "-"], input=ADD.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"[")


def test_ops_lists_and_documents_are_up_to_date(capsys):
    assert cli.main(["ops", "reduce"]) == 0
    out = capsys.readouterr().out
    assert "reduce-window" in out
    assert "ReduceScatter" in out
    docs = Path(__file__).parents[2] / "docs"
    for page in ("operations", "support"):
        assert cli.main(["ops", "--markdown", page]) == 0
        assert capsys.readouterr().out == (docs / f"{page}.md").read_text(), f"write docs/{page}.md again"


def test_import_is_quick_and_loads_nothing():
    code = "import sys, time; t = time.time(); import xlakit; print(time.time() - t, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, numpy_loaded = done.stdout.split()
    assert float(seconds) < 0.15
    assert numpy_loaded == "False"
