"""The matrix of JAX's versions: environments are made once, and failures are the status."""

import sys
from pathlib import Path

import pytest

from fuzz import jax_versions


def test_the_tests_of_a_version_run_in_its_environment(tmp_path, monkeypatch, capsys):
    made = []

    def environment(folder, version):
        made.append((folder, version))
        if version == "0.9.2":
            raise OSError("no network")
        return Path(sys.executable)

    monkeypatch.setattr(jax_versions, "environment", environment)
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text("import xlakit\n\n\ndef test_it():\n    assert xlakit\n")
    bad.write_text("def test_it():\n    assert 0\n")
    given = ["--environments", str(tmp_path)]
    assert jax_versions.main([*given, "--version", "0.10.2", "--tests", str(good)]) == 0
    assert jax_versions.main([*given, "--version", "0.10.2", "--version", "0.9.2", "--tests", str(bad)]) == 1
    assert made == [(tmp_path, "0.10.2"), (tmp_path, "0.10.2"), (tmp_path, "0.9.2")]
    table = capsys.readouterr().out
    assert "assert 0" in table and "no environment: no network" in table


def test_a_version_is_named():
    with pytest.raises(SystemExit):
        jax_versions.main([])
