"""What is kept of processors is what LLVM says of them, and is asked for again where the processor is another."""

import platform
import sys

import pytest

from xlakit import compile_cache, target
from xlakit.machine_code import identification
from xlakit.machine_code.identification import Identification

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.machine() != "x86_64", reason="only there is it kept"
)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """How often LLVM is asked."""
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("XLAKIT_CACHE", raising=False)
    ask, times = target._asked, []

    def counted():
        times.append(1)
        return ask()

    monkeypatch.setattr(target, "_asked", counted)
    return times


def test_what_is_kept_is_what_llvm_says(asked):
    said = target._asked()
    asked.clear()
    assert [target._kept_or_asked() for _ in range(3)] == [said] * 3
    assert len(asked) == 1


def test_another_processor_is_asked_about(asked, monkeypatch):
    said = target._kept_or_asked()
    words = identification._words
    monkeypatch.setattr(identification, "_words", lambda *functions: words(*functions) + " 1")
    assert Identification.kept().known() is None
    target._kept_or_asked()
    assert len(asked) == 2
    # Both are kept from then on.
    assert Identification.kept().known() == said
    monkeypatch.undo()


def test_the_words_tell_of_the_features_that_linux_lists(asked):
    target._kept_or_asked()
    _, features = Identification.kept().known()
    with open("/proc/cpuinfo") as lines:
        flags = next(line for line in lines if line.startswith("flags")).split()
    for name in ("avx2", "fma", "avx512f", "bmi2"):
        assert (f"+{name}" in features.split(",")) == (name in flags)


def test_a_kept_entry_of_no_use_is_replaced(asked):
    said = target._kept_or_asked()
    entry = compile_cache.load(identification.key())
    compile_cache.save(identification.key(), compile_cache.Entry(entry.fields, {"image": b"no image"}))
    with pytest.warns(compile_cache.CacheWarning, match="tells of no processors"):
        assert target._kept_or_asked() == said
    assert Identification.kept().known() == said
