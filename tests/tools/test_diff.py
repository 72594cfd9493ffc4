"""``xlakit diff``: modules are matched by their structure, and every kind of difference is told."""

import json
from pathlib import Path

import pytest

import xlakit as xla
from xlakit.ir.instruction import HloModule
from xlakit.passes.pipeline import run_pipeline
from xlakit.tools import cli
from xlakit.tools.diff.matching import in_order

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "hlo").glob("*.hlo"))

A = """HloModule m

ENTRY main {
  x = f32[4,6] parameter(0)
  y = f32[4,6] parameter(1)
  a = f32[4,6] add(x, y)
  b = f32[4,6] tanh(a)
  c = f32[4,6] multiply(b, y), metadata={op_name="c"}
  n = f32[4,6] negate(x)
  ROOT t = (f32[4,6], f32[4,6]) tuple(c, n)
}
"""


def diff(first, second, *ignore):
    return xla.diff_modules(HloModule.from_text(first), HloModule.from_text(second), ignore=ignore)


def changes(found):
    """What is not the same: (status, name in A, name in B, what)."""
    return [
        (i.status, i.first and i.first.name, i.second and i.second.name, i.what)
        for c in found.computations
        for i in c.instructions
        if i.status != "same"
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_module_is_the_same_as_itself(path):
    module = HloModule.from_text(path.read_text())
    found = xla.diff_modules(module, HloModule.from_text(path.read_text()))
    assert found.is_same
    assert found.count("same") == module.instruction_count()


def test_names_metadata_and_layouts_count_unless_ignored():
    renamed = A.replace("tanh(a)", "tanh(q)").replace("a = f32", "q = f32")
    assert changes(diff(A, renamed)) == [("changed", "a", "q", ("name",))]
    assert diff(A, renamed, "names").is_same
    moved = A.replace('op_name="c"', 'op_name="d"')
    assert changes(diff(A, moved)) == [("changed", "c", "c", ("metadata",))]
    assert diff(A, moved, "metadata").is_same
    laid = A.replace("n = f32[4,6] negate", "n = f32[4,6]{0,1} negate")
    assert changes(diff(A, laid)) == [("changed", "n", "n", ("layout",))]
    assert diff(A, laid, "layouts").is_same
    # A layout that is not said is major to minor.
    assert diff(A, A.replace("n = f32[4,6] negate", "n = f32[4,6]{1,0} negate")).is_same
    with pytest.raises(xla.ArgumentError, match="'colors' cannot be ignored"):
        diff(A, A, "colors")


def test_attributes_of_the_module_have_their_names():
    first = xla.HloModule.from_text("HloModule m, is_scheduled=true\nENTRY e { ROOT x = f32[] parameter(0) }")
    second = xla.HloModule.from_text(
        "HloModule m, allow_spmd_sharding_propagation_to_output={true}\nENTRY e { ROOT x = f32[] parameter(0) }"
    )
    found = xla.diff_modules(first, second)
    assert found.header == ("is_scheduled", "allow_spmd_sharding_propagation_to_output")
    assert xla.diff_modules(second, second).is_same
    assert str(found).startswith("@@ module:")
    assert len(repr(found)) < 120


def test_an_operation_that_is_another_is_changed():
    assert changes(diff(A, A.replace("tanh", "sine"))) == [("changed", "b", "b", ("opcode",))]


def test_operands_attributes_and_shapes_that_are_others_are_changed():
    assert changes(diff(A, A.replace("multiply(b, y)", "multiply(b, x)"))) == [("changed", "c", "c", ("operands",))]
    constant = A.replace("negate(x)", "negate(k)").replace("  n =", "  k = f32[4,6] broadcast(l), dimensions={}\n  n =")
    constant = constant.replace("  k =", "  l = f32[] constant(1)\n  k =")
    assert changes(diff(constant, constant.replace("constant(1)", "constant(2)"))) == [
        ("changed", "l", "l", ("attributes",))
    ]
    wider = A.replace("f32[4,6]", "f32[4,8]")
    assert {status for status, *_ in changes(diff(A, wider))} == {"changed"}
    assert all("shape" in what for *_, what in changes(diff(A, wider)))


def test_what_only_one_has_is_told_and_what_reads_it():
    longer = A.replace("  n = f32[4,6] negate(x)", "  e = f32[4,6] exponential(x)\n  n = f32[4,6] negate(e)")
    assert changes(diff(A, longer)) == [("only in B", None, "e", ()), ("changed", "n", "n", ("operands",))]
    assert changes(diff(longer, A)) == [("only in A", "e", None, ()), ("changed", "n", "n", ("operands",))]


def test_what_stands_elsewhere_is_moved():
    line = "  n = f32[4,6] negate(x)\n"
    moved = A.replace(line, "").replace("  a = f32", f"{line}  a = f32")
    assert changes(diff(A, moved)) == [("moved", "n", "n", ())]
    assert diff(A, moved, "order").is_same
    assert not diff(A, moved).is_same


def test_computations_are_matched_by_who_calls_them():
    text = """HloModule m
    f { p = f32[3] parameter(0)  ROOT r = f32[3] sine(p) }
    g { p = f32[3] parameter(0)  ROOT r = f32[3] cosine(p) }
    ENTRY main { x = f32[3] parameter(0)  a = f32[3] call(x), to_apply=f  ROOT b = f32[3] call(a), to_apply=g }"""
    text = text.replace("  ROOT", "\n  ROOT").replace("{ ", "{\n").replace("  a =", "\n  a =").replace(" }", "\n}")
    swapped = text.replace("\n    f {", "\n    h {").replace("to_apply=f", "to_apply=h")
    found = diff(text, swapped)
    assert [(c.name, c.what) for c in found.computations if not c.is_same] == [("f -> h", ("name",))]
    assert diff(text, swapped, "names").is_same
    other = diff(text, text.replace("cosine", "tan"))
    assert changes(other) == [("changed", "r", "r", ("opcode",))]


@pytest.mark.parametrize("path", EXAMPLES[:8], ids=lambda path: path.stem)
def test_every_instruction_is_told_once(path):
    module = HloModule.from_text(path.read_text())
    optimized = run_pipeline(module)
    found = xla.diff_modules(module, optimized)
    firsts = [(c.first, i.first) for c in found.computations for i in c.instructions if i.first is not None]
    seconds = [(c.second, i.second) for c in found.computations for i in c.instructions if i.second is not None]
    assert len(set(firsts)) == len(firsts) == module.instruction_count()
    assert len(set(seconds)) == len(seconds) == optimized.instruction_count()
    # The order of the second is kept.
    for computation in found.computations:
        if computation.first is not None and computation.second is not None:
            listed = [i.second for i in computation.instructions if i.second is not None]
            assert listed == list(computation.second.instructions)


@pytest.mark.parametrize(
    ("positions", "kept"), [([], 0), ([3], 1), ([0, 1, 2], 3), ([2, 0, 1], 2), ([5, 4, 3], 1), ([0, 4, 1, 2, 3], 4)]
)
def test_longest_increasing_subsequence(positions, kept):
    found = in_order(positions)
    assert len(found) == kept
    chosen = [positions[place] for place in sorted(found)]
    assert chosen == sorted(chosen)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    first, second = tmp_path / "a.hlo", tmp_path / "b.hlo"
    first.write_text(A)
    second.write_text(A.replace("tanh", "sine"))
    return [str(first), str(second)]


def test_exit_status_and_text(files, capsys):
    assert cli.main(["diff", files[0], files[0]]) == 0
    assert capsys.readouterr().out == "instructions: 7 same, 0 changed, 0 moved, 0 only in A, 0 only in B\n"
    assert cli.main(["diff", *files, "--context", "1"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "@@ main",
        "  ...",
        "  a = f32[4,6]{1,0} add(x, y)",
        "- b = f32[4,6]{1,0} tanh(a)",
        "+ b = f32[4,6]{1,0} sine(a)   // opcode",
        "  c = f32[4,6]{1,0} multiply(b, y)",
        "instructions: 6 same, 1 changed, 0 moved, 0 only in A, 0 only in B",
    ]
    assert cli.main(["diff", *files, "--color", "always", "--ignore", "all"]) == 1
    assert "\x1b[31m- b = f32[4,6] tanh(a)\x1b[0m" in capsys.readouterr().out
    # Metadata is shown where it differs.
    Path(files[1]).write_text(A.replace('op_name="c"', 'op_name="d"'))
    assert cli.main(["diff", *files]) == 1
    out = capsys.readouterr().out
    assert '- %c = f32[4,6]{1,0} multiply(%b, %y), metadata={op_name="c"}' in out
    assert 'op_name="d"}   // metadata' in out


def test_json(files, capsys):
    assert cli.main(["diff", *files, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"same": 6, "changed": 1, "moved": 0, "only in A": 0, "only in B": 0}
    (one,) = told["instructions"]
    assert (one["status"], one["what"], one["computation"]) == ("changed", ["opcode"], "main")


def test_results_decide_where_both_run(files, capsys):
    assert cli.main(["diff", *files, "--run"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERS" in out
    same = Path(files[1])
    same.write_text(A.replace("add(x, y)", "add(y, x)"))
    assert cli.main(["diff", *files, "--run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [leaf["mismatches"] for leaf in told["results"]] == [0, 0]
    assert told["counts"]["changed"] == 1


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (None, [], "No such file"),
        (("tanh(a)", "tanh(q)"), [], "b.hlo:7:"),
        (("f32[4,6]", "f32[4,8]"), ["--run"], "compare programs of the same parameters"),
        (("", ""), ["--ignore", "colors"], "cannot be ignored"),
        (("", ""), ["--run", "--backend", "none"], "there is no backend 'none'"),
    ],
)
def test_errors_have_a_status_of_their_own(files, capsys, change, options, said):
    if change is None:
        Path(files[1]).unlink()
    else:
        Path(files[1]).write_text(A.replace(*change))
    try:
        status = cli.main(["diff", *files, *options])
    except SystemExit as exit:
        status = exit.code
    error = capsys.readouterr().err
    assert (status, said in error, "Traceback" in error) == (2, True, False), error
