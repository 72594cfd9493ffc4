import gc
import sys
from types import ModuleType

import pytest

import xlakit as xla
from xlakit.collector import collecting_less
from xlakit.cpu import compiler

_MODULE = "HloModule m\nENTRY e { p = f32[4] parameter(0)\n ROOT r = f32[4] add(p, p) }"


@pytest.fixture
def thresholds():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
def test_the_collector_is_as_before_behind_the_last():
    with collecting_less():
        assert gc.get_threshold()[0] > 700
        with collecting_less():
            pass
        assert gc.get_threshold()[0] > 700
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.usefixtures("thresholds")
def test_what_is_set_meanwhile_stays():
    with pytest.raises(ZeroDivisionError), collecting_less():
        gc.set_threshold(5, 6, 7)
        raise ZeroDivisionError
    assert gc.get_threshold() == (5, 6, 7)


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize("seldom", [(0, 0, 0), (10**7, 5, 5)])
def test_a_collector_that_is_off_stays_off(seldom):
    gc.set_threshold(*seldom)
    with collecting_less():
        assert gc.get_threshold() == seldom
    assert gc.get_threshold() == seldom


@pytest.mark.usefixtures("thresholds")
def test_compiling_leaves_the_collector_as_it_was(monkeypatch):
    seen = []
    generate = compiler._generated
    monkeypatch.setattr(compiler, "_generated", lambda *given: seen.append(gc.get_threshold()) or generate(*given))
    xla.compile(xla.HloModule.from_text(_MODULE), cache=False)
    assert seen[0][0] > 700
    assert gc.get_threshold() == (700, 10, 10)


@pytest.fixture
def unfrozen():
    """Nothing is frozen, as where a program begins; what the tests' run has frozen is frozen again afterwards."""
    gc.unfreeze()
    yield
    gc.freeze()


def _is_old(value):
    return any(found is value for found in gc.get_objects(generation=2))


@pytest.mark.usefixtures("thresholds", "unfrozen")
@pytest.mark.parametrize("modules", [0, 30])
def test_what_is_imported_counts_as_old(monkeypatch, modules):
    gc.disable()
    before = gc.get_freeze_count()
    try:
        with collecting_less():
            value = [[]]
            for number in range(modules):
                monkeypatch.setitem(sys.modules, f"made_for_this_test_{number}", ModuleType("made"))
        assert _is_old(value) == (modules > 0)
        assert gc.get_freeze_count() <= before
    finally:
        gc.enable()


@pytest.mark.usefixtures("thresholds", "unfrozen")
def test_what_is_frozen_stays_frozen(monkeypatch):
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collecting_less():
            for number in range(30):
                monkeypatch.setitem(sys.modules, f"made_for_this_test_{number}", ModuleType("made"))
        # Some of them are gone meanwhile.
        assert gc.get_freeze_count() > frozen // 2 > 0
    finally:
        gc.unfreeze()
