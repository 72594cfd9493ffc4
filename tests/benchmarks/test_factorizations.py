"""The command that compares factorizations with jaxlib's."""

import numpy as np
import pytest

from benchmarks import factorizations


def test_errors_of_every_factorization():
    for name in factorizations.NAMES:
        a = factorizations._matrix(name, "complex64", 12)
        found = factorizations._errors(name, a, factorizations._ours(name, a)())
        assert 0 < found[0] < factorizations.LARGEST_ERROR
        assert found[1] < factorizations.LARGEST_ERROR
        assert (found[1] > 0) == (name not in ("cholesky", "lu"))


@pytest.mark.parametrize(("fault", "status"), [(0, 0), (1e-3, 1)])
def test_the_table_and_its_status(monkeypatch, capsys, fault, status):
    ours = factorizations._ours
    monkeypatch.setattr(factorizations, "_ours", lambda name, a: lambda: [r + fault for r in ours(name, a)()])
    monkeypatch.setattr(factorizations, "_theirs", ours)
    assert factorizations.main(["qr", "--types", "f64", "--sizes", "4,8", "--seconds", "0"]) == status
    header, _, row = capsys.readouterr().out.splitlines()[-3:]
    assert header.count("|") == row.count("|") == 8
    assert row.startswith("| `qr` | f64 |")
    assert np.sign(float(row.split("|")[3]) - factorizations.LARGEST_ERROR) == (1 if status else -1)
