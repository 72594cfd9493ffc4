"""The generated rows: their names are unique, and a sample of them agrees with XLA and is reported."""

import json

import pytest

pytest.importorskip("jax")

from benchmarks.breadth import __main__ as breadth
from benchmarks.breadth.families import FAMILIES


def test_rows_have_names_of_their_own():
    for name, rows in FAMILIES.items():
        names = [row.name for row in rows()]
        assert len(names) == len(set(names)) > 50, name


def test_rows_are_measured_sorted_and_measured_again(tmp_path, capsys):
    file = tmp_path / "rows.json"
    common = ["--rounds", "3", "--budget", "0.01", "--above", "0"]
    assert breadth.main(["--family", "integers,movement", "--only", "n* s32 tiny", *common, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())
    assert [row["name"] for row in rows] == ["negate s32 tiny", "not s32 tiny"]
    assert all(row["xla"] > 0 and row["ratio"] > 0 for row in rows)
    rows[0]["status"], rows[1]["ratio"] = "WRONG", 0.1
    file.write_text(json.dumps(rows))
    capsys.readouterr()
    assert breadth.main(["--family", "integers", "--again", str(file), *common[:-1], "0.5"]) == 0
    out = capsys.readouterr()
    assert "negate s32 tiny" in out.err
    assert "not s32" not in out.err


def test_families_that_do_not_exist_are_told():
    with pytest.raises(SystemExit, match="no family fruit"):
        breadth.main(["--family", "fruit", "--list"])
