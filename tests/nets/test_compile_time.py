"""How compile time is measured, and the programs that it is measured on."""

import argparse

import pytest

from fuzz import compile_time
from fuzz.compile_time import Case, Finding, examine, exponents, glances, measured, too_slow, wrong_numbers
from fuzz.programs.composed.long import MIXED, PATTERNS, long_module
from fuzz.programs.composed.places import ENTRY, PLACES
from fuzz.programs.composed.steps import FAMILIES


def rows(cost):
    """Measurements that grow with the length as ``cost`` says."""
    return [{"length": n, "calls": cost(n), "lines": 0.0, "seconds": 0.0} for n in (1, 16, 32, 64)]


def test_what_grows_in_proportion_has_the_exponent_one_whatever_each_program_costs():
    assert exponents(rows(lambda n: 1e6 + 2e4 * n))["calls"] <= 1.0


def test_a_power_has_its_exponent():
    assert exponents(rows(lambda n: 50 * (n - 1) ** 2))["calls"] == pytest.approx(2.0)


def test_a_step_is_no_power():
    # Kernels come one after the other, each as long as many steps.
    assert exponents(rows(lambda n: 3e4 * (1 + n // 20)))["calls"] < 1.2


def test_what_is_little_says_nothing():
    assert not exponents(rows(lambda n: n * n))


def test_what_is_linear_may_be_too_slow():
    assert too_slow([{"length": 1, "seconds": 0.0}, {"length": 16, "seconds": 16.0}])
    assert not too_slow([{"length": 1, "seconds": 1.0}, {"length": 16, "seconds": 0.5}])


@pytest.mark.parametrize("name", [*FAMILIES, MIXED])
def test_every_family_makes_programs_of_every_pattern(name):
    for pattern in PATTERNS:
        module = long_module(name, pattern, 3, 3, seed=7)
        module.verify()
        assert len(module.entry.parameters) == 2


@pytest.mark.parametrize("place", [p for p in PLACES if p != ENTRY])
def test_chains_stand_in_every_place(place):
    """A ninth of the families in each place, so that all are in one."""
    for number, name in [*enumerate([*FAMILIES, MIXED])][[*PLACES].index(place) - 1 :: len(PLACES) - 1]:
        pattern = [*PATTERNS][number % len(PATTERNS)]
        module = long_module(name, pattern, 3, 3, 7, place)
        module.verify()
        assert len(module.entry.parameters) == 2
        assert module.entry.root.shape.is_array


def test_a_quick_run_looks_into_loops_with_thresholds_at_their_least():
    options = argparse.Namespace(only=None, pattern=None, size=None, place=None, forced=False, seed=3, quick=True)
    first = compile_time.cases(options)[:4]
    assert [case.place == ENTRY for case in first] == [True, True, False, False]
    assert first[2].forced
    assert first[2].options.knobs["loop_invariants.small"] == 0


def test_a_mixed_program_is_that_of_its_seed():
    texts = [long_module(MIXED, "carried", 6, 2, seed).to_text() for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


def test_a_chain_of_small_products_is_linear():
    few, many = (row["lines"] for row in measured(Case("newton-schulz", "diamonds", 2, 0), (8, 32)))
    assert many < 8 * few


def test_results_of_a_case_are_compared():
    assert not wrong_numbers(Case("stacks", "shared", 2, 0))
    assert not wrong_numbers(Case("reverses", "diamonds", 2, 0, "nested"))


def test_a_case_has_a_process_of_its_own_and_a_limit_that_it_may_break(monkeypatch):
    # How much longer the programs are that are measured then is another test's matter.
    monkeypatch.setattr(compile_time, "_LONGER", 2)
    finding = examine(Case("slices", "chain", 2, 0), (1, 12, 24), limit=0.5)
    assert len(finding.rows) == 3
    assert "calls grow with exponent" in finding.fault


def test_what_grows_up_to_a_bound_is_looked_at_in_longer_programs(monkeypatch):
    def found(growth):
        seen = []

        def examined(case, lengths, limit, seconds=60):
            seen.append(tuple(lengths))
            measured = [{"length": n, "calls": growth(n), "lines": 0.0, "seconds": 0.0} for n in lengths]
            steep = exponents(measured).get("calls", 0.0) > limit
            return Finding(case, measured, "calls grow with exponent" * steep)

        monkeypatch.setattr(compile_time, "_examined", examined)
        return examine(Case("clamps", "shared", 3, 0), (1, 16, 32, 64), 1.2).fault, seen

    bounded = found(lambda n: 1e4 * n * min(n, 200) ** 0.5)
    assert bounded == ("", [(1, 16, 32, 64), (1, 256, 512, 1024)])
    assert found(lambda n: 1e4 * n)[1] == [(1, 16, 32, 64)]
    assert found(lambda n: 1e3 * n**2)[0]


def test_what_fails_at_a_glance_is_told_and_the_others_follow():
    cases = [Case("norms", "chain", 2, 0), Case("unheard-of", "chain", 2, 0), Case("slices", "chain", 2, 0)]
    findings, done = glances(cases, 60.0)
    assert done == 3
    assert [f.case.family for f in findings] == ["unheard-of"]
    assert "unheard-of" in findings[0].fault
