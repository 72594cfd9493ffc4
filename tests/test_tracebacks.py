"""Tracebacks in IPython end at the person's line."""

import sys
import traceback
from types import SimpleNamespace

import pytest

import xlakit as xla


def _caught():
    builder = xla.XlaBuilder("b")
    x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (2,)))
    with pytest.raises(xla.ShapeError) as caught:
        xla.reduce(x, 0.0, lambda a, b: xla.reshape(a, [3]), dimensions=[0])
    return caught.value


def test_the_frames_of_the_package_are_left_out(monkeypatch):
    shown = SimpleNamespace(structured_traceback=traceback.format_exception)
    shell = SimpleNamespace(InteractiveTB=shown)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    error = _caught()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "xlakit/ops" in f.filename]
    assert frames
    text = "".join(error._render_traceback_())
    assert "xlakit/ops" not in text
    assert "xlakit/builder" not in text
    assert "lambda a, b: xla.reshape" in text
    assert "cannot reshape" in text


def test_ipython_prints_the_persons_lines(tmp_path):
    shells = pytest.importorskip("IPython.core.interactiveshell")
    script = tmp_path / "cell.py"
    script.write_text('import xlakit as xla\nxla.compile("no program")\n')
    shell = shells.InteractiveShell.instance()
    try:
        result = shell.run_cell(script.read_text())
        assert isinstance(result.error_in_exec, xla.ArgumentError)
        shell.showtraceback((type(result.error_in_exec), result.error_in_exec, result.error_in_exec.__traceback__))
        text = "".join(result.error_in_exec._render_traceback_())
    finally:
        shells.InteractiveShell.clear_instance()
    assert "no program" in text
    assert "api.py" not in text
