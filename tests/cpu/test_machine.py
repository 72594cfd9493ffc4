"""The machine's description: measured once, kept, read from a file, and what is chosen by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu import machine
from xlakit.cpu.machine import Machine, Rates
from xlakit.options import DEFAULT, compiling
from xlakit.tools import cli

P = xla.PrimitiveType
PRODUCT = """HloModule product
ENTRY e {{
  a = {kind}[{n},{n}] parameter(0)
  b = {kind}[{n},{n}] parameter(1)
  ROOT r = {kind}[{n},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""


def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: float, blas: float) -> None:
    path = tmp_path / f"machine-{own}-{blas}.json"
    path.write_text(Machine("any", 32, 4, {"f32": Rates(own, blas)}).as_text())
    monkeypatch.setenv("XLAKIT_MACHINE", str(path))


def test_a_description_is_what_it_was_when_it_is_read_again():
    made = Machine("znver9", 64, 8, {"f32": Rates(30.5, 20.25), "f64": Rates(1.0, 2.0)})
    assert Machine.from_text(made.as_text(), "here") == made


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"processor": "x", "vector_bytes": 64, "threads": 1, "products": 3}']
)
def test_what_is_no_description_is_refused(text):
    with pytest.raises(xla.FormatError, match="no description of a machine"):
        Machine.from_text(text, "there.json")


def test_a_file_that_is_not_there_is_an_error_before_anything_is_compiled(monkeypatch):
    monkeypatch.setenv("XLAKIT_MACHINE", "/nowhere/machine.json")
    module = xla.HloModule.from_text(PRODUCT.format(kind="f32", n=1024))
    with pytest.raises(xla.ArgumentError, match="XLAKIT_MACHINE names"):
        xla.compile(module, backend="cpu")


def test_blas_is_called_where_it_is_faster(tmp_path, monkeypatch):
    module = xla.HloModule.from_text(PRODUCT.format(kind="f32", n=1024))
    a, b = np.random.default_rng(0).integers(-3, 4, (2, 1024, 1024)).astype(np.float32)
    for own, blas in [(10.0, 20.0), (20.0, 10.0)]:
        described(tmp_path, monkeypatch, own, blas)
        compiled = xla.compile(module, backend="cpu")
        assert ("sgemm" in compiled.llvm_ir(optimized=False)) == (blas > own)
        np.testing.assert_array_equal(compiled(a, b), a @ b)


def test_only_what_is_asked_for_is_measured_and_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("XLAKIT_MACHINE", raising=False)
    monkeypatch.setattr(machine, "_measured", {})
    monkeypatch.setattr(machine, "_SIZE", 128)
    asked = []

    def compile_text(text):
        asked.append(text)
        return lambda a, b: a @ b

    with compiling(DEFAULT):
        found = machine.measure({P.F64, P.S32}, compile_text)
        assert set(found.products) == {"f64"}
        assert len(asked) == 2
        assert machine.measure({P.F64}, compile_text) == found
        # Another process finds it.
        monkeypatch.setattr(machine, "_measured", {})
        assert machine.current() == found
    assert len(asked) == 2
    # Other options than the default say nothing of the machine.
    with compiling(DEFAULT, plain="llvm"):
        assert set(machine.measure({P.F32}, compile_text).products) == {"f64"}


def test_large_products_are_found_in_all_computations():
    small, large = (xla.HloModule.from_text(PRODUCT.format(kind=k, n=n)) for k, n in [("f32", 64), ("f64", 512)])
    assert machine.large_products(small) == set()
    assert machine.large_products(large) == {P.F64}


def test_the_command_prints_and_writes_the_description(tmp_path, monkeypatch, capsys):
    described(tmp_path, monkeypatch, 3.0, 4.0)
    assert cli.main(["machine"]) == 0
    assert Machine.from_text(capsys.readouterr().out, "output").products == {"f32": Rates(3.0, 4.0)}
    path = tmp_path / "again.json"
    assert cli.main(["machine", "--describe", str(path)]) == 0
    assert Machine.from_text(path.read_text(), str(path)).threads == 4


def test_a_process_measures_when_it_first_compiles_a_large_product(tmp_path):
    code = (
        "import xlakit\n"
        f"xlakit.compile(xlakit.HloModule.from_text({PRODUCT.format(kind='f32', n=512)!r}), backend='cpu')\n"
        "from xlakit.cpu import machine\n"
        "rates = machine.current().products['f32']\n"
        "assert rates.own > 0 and rates.blas > 0\n"
    )
    environment = {"PYTHONPATH": str(Path(xla.__file__).parents[1]), "XLAKIT_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
