"""When the sources of the compiler are looked at: whether they have changed since the process started."""

from types import SimpleNamespace

import xlakit as xla
from xlakit.cpu.cache import cache_key


def test_sources_are_looked_at_once_a_second(monkeypatch):
    seconds, changed = [100.0], [0]
    looks = []
    monkeypatch.setattr(cache_key, "_looked", [])
    monkeypatch.setattr(cache_key, "_sources", lambda: looks.append(None) or [("a.py", 1, changed[0])])
    monkeypatch.setattr(cache_key, "time", SimpleNamespace(perf_counter=lambda: seconds[0]))
    monkeypatch.setattr(cache_key, "_start", lambda: 50.0)
    assert [cache_key.compiler_has_changed() for _ in range(3)] == [False] * 3 and len(looks) == 1
    changed[0] = 60 * 10**9
    assert not cache_key.compiler_has_changed()
    seconds[0] += 1
    assert cache_key.compiler_has_changed() and len(looks) == 2


def test_compiling_does_not_ask_the_clock_that_programs_under_test_replace(monkeypatch):
    """JAX's own tests give time.monotonic as many answers as JAX asks for."""

    def asked():
        raise AssertionError("time.monotonic is called")

    monkeypatch.setattr(cache_key, "_looked", [])
    client = xla.Client()
    monkeypatch.setattr("time.monotonic", asked)
    assert cache_key.compiler_has_changed() in (False, True)
    module = "HloModule m ENTRY e { p = f32[] parameter(0) c = f32[] constant(1.8125) ROOT r = f32[] add(p, c) }"
    client.compile(xla.HloModule.from_text(module))
