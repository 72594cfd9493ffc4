"""Two programs in the viewer: the matching is that of xlakit diff, row by row."""

import json
import re

import pytest
from tools.view.programs import STEP, step

from benchmarks.viewer import chain
from xlakit.errors import ArgumentError
from xlakit.ir.instruction import HloModule
from xlakit.tools import cli
from xlakit.tools.diff.modules import diff_modules
from xlakit.tools.view.comparison import document_of_difference, view_difference

# The name of s is another, d has another precision, t is another operation, and one instruction is more.
OTHER = (
    STEP.replace("  s = f32", "  s2 = f32")
    .replace("dot(x, s)", "dot(x, s2)")
    .replace("rhs_contracting_dims={0}", "rhs_contracting_dims={0}, operand_precision={highest,highest}")
    .replace("ROOT t = f32[8,8]{1,0} tanh(d)", "e = f32[8,8]{1,0} exponential(d)\n  ROOT t = f32[8,8]{1,0} add(e, x)")
)
STATUSES = ["same", "changed", "moved", "only in A", "only in B"]


def other():
    return HloModule.from_text(OTHER)


def difference(first, second, ignore=()):
    return document_of_difference(first, second, ignore, ("a", "b"), "t").as_dict()


def rows(pair):
    runs = pair["runs"]
    for status, one, two, count in zip(*(runs[n::4] for n in range(4)), strict=True):
        for at in range(count):
            yield STATUSES[status], one + at if one >= 0 else -1, two + at if two >= 0 else -1


@pytest.mark.parametrize("ignore", [(), ("names",), ("order", "metadata")])
def test_rows_are_those_of_the_diff(ignore):
    for first, second in [(step(), other()), (other(), step()), (step(), step()), (chain(30), chain(20))]:
        diff = diff_modules(first, second, ignore=ignore)
        document = difference(first, second, ignore)["diff"]
        assert len(document["pairs"]) == len(diff.computations)
        for pair, computation in zip(document["pairs"], diff.computations, strict=True):
            found = list(rows(pair))
            assert len(found) == len(computation.instructions)
            for number, ((status, one, two), expected) in enumerate(zip(found, computation.instructions, strict=True)):
                assert status == expected.status
                assert (None if one < 0 else computation.first.instructions[one]) is expected.first
                assert (None if two < 0 else computation.second.instructions[two]) is expected.second
                assert pair["rows"].get(number, "") == ", ".join(expected.what)


def test_every_instruction_is_in_one_row():
    document = difference(step(), other())
    for side in (0, 1):
        for pair in document["diff"]["pairs"]:
            positions = sorted(row[1 + side] for row in rows(pair) if row[1 + side] >= 0)
            assert positions == list(range(len(positions)))


def test_what_is_the_same_is_one_run():
    (pair,) = difference(chain(1000), chain(1000))["diff"]["pairs"]
    assert pair["runs"] == [0, 0, 0, 1000]


def test_what_cannot_be_ignored():
    with pytest.raises(ArgumentError, match="'nonsense' cannot be ignored"):
        view_difference(step(), other(), ignore=["nonsense"])


def test_the_command(tmp_path, capsys):
    a, b = tmp_path / "a.hlo", tmp_path / "b.hlo"
    a.write_text(STEP)
    b.write_text(OTHER)
    assert cli.main(["view", str(a), str(b)]) == 0
    page = (tmp_path / "a-b.html").read_text()
    document = json.loads(re.search(r'id="document">(.*?)</script>', page)[1])
    assert document["title"] == "a.hlo and b.hlo"
    assert [s["name"] for s in document["steps"]] == ["A: a.hlo", "B: b.hlo"]
    assert document["diff"]["counts"]["only in B"] >= 1
    assert cli.main(["view", str(a), str(b), "--ignore", "all", "-o", str(tmp_path / "c.html")]) == 0
    for wrong, message in [
        ([str(b), "--memory"], "--memory is for one program"),
        ([str(b), "--no-passes"], "--no-passes is for one program"),
        (["--ignore", "names"], "--ignore is for two programs"),
        ([str(b), "--serve", "-o", "x.html"], "--output is for a page"),
    ]:
        assert cli.main(["view", str(a), *wrong]) == 2
        assert message in capsys.readouterr().err
