"""Machine code that comes with the package is that which would be compiled, unless its sources have changed."""

import pytest

from xlakit.compile_cache import Entry
from xlakit.cpu.cache import cache_key
from xlakit.cpu.runtime import library, runtime
from xlakit.jax.native.ready_made import main
from xlakit.machine_code import ready_made

_ENTRY = Entry({"names": ["f"]}, {"object": b"code"})


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the test's own, which has one source."""
    root = tmp_path / "xlakit"
    (root / "machine_code").mkdir(parents=True)
    (root / "source.py").write_text("a < b")
    monkeypatch.setattr(ready_made, "_PACKAGE", root)
    ready_made._digest.cache_clear()
    yield root
    ready_made._digest.cache_clear()


def _saved(package, monkeypatch, kind="kind"):
    class Loaded:
        __file__ = str(package / "source.py")

    with monkeypatch.context() as patch:
        patch.setattr(ready_made.sys, "modules", {"xlakit.source": Loaded, "builtins": object()})
        ready_made.save(package.parent, kind, _ENTRY)
    ready_made._digest.cache_clear()
    (file,) = (package / "machine_code").iterdir()
    return file


def test_it_comes_back_until_a_source_changes(package, monkeypatch):
    _saved(package, monkeypatch)
    found = ready_made.load("kind")
    assert found is not None
    assert found.fields == _ENTRY.fields
    assert bytes(found.sections["object"]) == b"code"
    assert ready_made.load("another kind") is None
    ready_made._digest.cache_clear()
    (package / "source.py").write_text("a > b")
    assert ready_made.load("kind") is None


def test_a_removed_source_has_changed(package, monkeypatch):
    _saved(package, monkeypatch)
    (package / "source.py").unlink()
    assert ready_made.load("kind") is None


def test_a_damaged_file_is_none(package, monkeypatch):
    file = _saved(package, monkeypatch)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert ready_made.load("kind") is None


def test_it_is_taken_before_code_is_compiled(package, monkeypatch, tmp_path):
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path / "cache"))
    _saved(package, monkeypatch)
    assert cache_key.process_code("kind", lambda: pytest.fail("it is compiled")).fields == _ENTRY.fields
    assert cache_key.process_code("another kind", lambda: Entry({}, {})).fields == {}


def test_what_is_made_is_what_a_process_compiles(tmp_path):
    (tmp_path / "xlakit" / "machine_code").mkdir(parents=True)
    runtime()
    main(tmp_path)
    files = list((tmp_path / "xlakit" / "machine_code").iterdir())
    assert len(files) >= 2
    name = ready_made._file_of(library.runtime_variant())
    (data,) = (file.read_bytes() for file in files if file.name == name)
    with cache_key.options.compiling(cpu=cache_key.target.lowest_level()):
        assert bytes(library.compiled_runtime().sections["object"]) in data
