"""The command that runs JAX's own tests: what it makes of what its plugin has written down."""

import json

from proofs.jax_tests import Results, _cause, _read, report


def lines(path, *entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_a_test_that_ends_the_process_has_failed_and_one_without_time_has_not_run(tmp_path):
    entries = [("A::a", "begun", ""), ("A::a", "passed", ""), ("A::b", "begun", "")]
    crashed = _read(lines(tmp_path / "x", *entries), crashed=True, has_ended=True)
    assert crashed.tests == {"A::a": ("passed", ""), "A::b": ("failed", "the process ended")}
    late = _read(lines(tmp_path / "y", *entries), crashed=False, has_ended=False)
    assert late.tests == {"A::a": ("passed", "")}


def test_what_fails_here_alone_is_told_by_cause(capsys):
    ours = Results(
        {f"T::{n}": ("failed", f"ValueError: {n} is not 7") for n in range(3)} | {"T::9": ("failed", "both")}
    )
    theirs = Results({f"T::{n}": ("passed", "") for n in range(3)} | {"T::9": ("failed", "both")})
    assert report("lax", {"xlakit": ours, "cpu": theirs}) == 3
    said = capsys.readouterr().out
    assert "3  ValueError: # is not #" in said
    assert "both" not in said


def test_numbers_do_not_make_causes_different():
    assert _cause("AssertionError:\nMismatch 1.5e-3 at 12") == _cause("AssertionError:\nMismatch 2 at 3")
