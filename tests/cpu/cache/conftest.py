"""A compile cache of a test's own."""

import warnings

import pytest

from xlakit import compile_cache as cache
from xlakit.cpu import compiler
from xlakit.cpu.cache import cache_key
from xlakit.cpu.runtime import runtime


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of the test's own; no warning is expected."""
    path = tmp_path / "cache"
    runtime()
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(path))
    monkeypatch.delenv("XLAKIT_CACHE", raising=False)
    monkeypatch.setattr(cache, "_SAVES_PER_EVICTION", 1)
    monkeypatch.setattr(cache, "_next_eviction", 0)
    # The compiler's sources may be edited while its tests run.
    for module in (compiler, cache_key):
        monkeypatch.setattr(module, "compiler_has_changed", lambda: False)
    cache_key._of_compiler.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", cache.CacheWarning)
        yield path


@pytest.fixture
def compiles(monkeypatch):
    """A list that grows with each program that is really compiled."""
    done = []
    compile_now = compiler._compiled
    monkeypatch.setattr(compiler, "_compiled", lambda module, c: done.append(module) or compile_now(module, c))
    return done
