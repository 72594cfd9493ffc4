"""Files of arrays of every type."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.formats.npz import read_arrays, write_arrays
from xlakit.tools import cli

_KINDS = [t for t in xla.PrimitiveType if t.is_array]


@pytest.mark.parametrize("kind", _KINDS, ids=lambda k: k.hlo_name)
@pytest.mark.parametrize("shape", [(), (3, 2), (0,)])
def test_arrays_are_read_as_they_are_written(kind, shape, tmp_path):
    array = np.ones(shape, kind.dtype)
    write_arrays(tmp_path / "arrays", {"x": array})
    (read,) = read_arrays(tmp_path / "arrays").values()
    assert read.shape == array.shape
    assert read.view(kind.dtype).tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", ["f8e5m2", "f8e4m3fn", "bf16", "s4", "f32", "pred", "c64"])
def test_results_are_arguments_of_another_run(kind, tmp_path, capsys):
    path, results = tmp_path / "m.hlo", str(tmp_path / "results.npz")
    text = (
        f"HloModule m\nENTRY e {{\n  x = {kind}[4] parameter(0)\n  ROOT r = {kind}[4] reverse(x), dimensions={{0}}\n}}"
    )
    path.write_text(text)
    assert cli.main(["run", str(path), "-o", results]) == 0
    arrays = read_arrays(tmp_path / "results.npz")
    write_arrays(tmp_path / "results.npz", {"x": arrays["result"]})
    assert cli.main(["run", str(path), "--input", results, "--compare", "interpreter"]) == 0
    assert "ok" in capsys.readouterr().out
