"""The document that the viewer shows: every line of every step is in it, and little more."""

import json
import re
from collections import Counter
from functools import cache
from itertools import accumulate, combinations

import pytest
from tools.view.programs import step

from benchmarks.viewer import chain
from xlakit.cpu.compiler import compile_module
from xlakit.errors import ArgumentError
from xlakit.formats.hlo_text import PrintOptions, print_instruction
from xlakit.ir.instruction import HloModule
from xlakit.passes.pipeline import PIPELINE, new_context, run_pipeline
from xlakit.tools import cli
from xlakit.tools.view.document import Document, runs_of
from xlakit.tools.view.memory import memory_of
from xlakit.tools.view.profiles import seconds_of
from xlakit.tools.view.stages import document_of, view_module

SHORT = PrintOptions(short=True, large_constants=False)


def texts(document, computation, starts):
    """The lines of a computation of a document, as the viewer writes them."""
    strings, lines = document["strings"], document["lines"]
    name, root, _, runs = document["computations"][computation]
    found = []
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        for line in range(first, first + count):
            operands = lines["operands"][starts[line] : starts[line] + lines["operand_counts"][line]]
            rest = strings[lines["rest"][line]]
            inside = "(" + ", ".join(strings[o] for o in operands) if rest.startswith(")") else ""
            head, opcode = (strings[lines[f][line]] for f in ("name", "opcode"))
            found.append(f"{head} = {strings[lines['shape'][line]]} {opcode}{inside}{rest}")
    return strings[name], root, found


def printed(computation):
    """The name of a computation, the number of its root, and what the printer makes of its lines."""
    # Operands are not numbered in the viewer; elements of tuples' shapes are.
    plain = re.compile(r"/\*index=\d+\*/")
    root = computation.instructions.index(computation.root)
    return computation.name, root, [_line(i, plain) for i in computation.instructions]


def _line(instruction, plain):
    text = print_instruction(instruction, SHORT)
    shape = instruction.shape.to_string(with_layout=True)
    head = f"{instruction.name} = {shape} "
    assert text.startswith(head)
    return head + plain.sub("", text.removeprefix(head))


@pytest.mark.parametrize("example", ["mlp_train_step", "while", "conditional", "sort", "random"])
def test_every_step_has_all_lines(example):
    with open(f"examples/hlo/{example}.hlo", encoding="utf-8") as file:
        module = HloModule.from_text(file.read())
    modules = [module]
    run_pipeline(module, dump=lambda number, name, before, after: modules.append(after))
    document = json.loads(json.dumps(document_of(module).as_dict()))
    starts = [0, *accumulate(document["lines"]["operand_counts"])]
    assert [s["number"] for s in document["steps"]] == list(range(len(PIPELINE) + 1))
    # Most passes change nothing: steps share computations.
    of_viewer, of_printer = cache(lambda number: texts(document, number, starts)), cache(printed)
    for own, expected in zip(document["steps"], modules, strict=True):
        shown = {name: (root, lines) for name, root, lines in map(of_viewer, own["computations"])}
        assert shown == {name: (root, lines) for name, root, lines in map(of_printer, expected.computations)}
        assert of_viewer(own["entry"])[0] == expected.entry.name


def test_rules_that_were_applied_are_counted_with_their_laws():
    document = document_of(step()).as_dict()
    simplify = next(s for s in document["steps"] if s["name"] == "simplify")
    assert simplify["rewrites"]
    assert set(document["laws"]) >= set(simplify["rewrites"])
    assert all(document["laws"][rule] for rule in simplify["rewrites"])


def rules_by_line(document, name):
    """The rules of a step's lines, by the names of the computation and of the instruction."""
    strings = document["strings"]
    found = next(s for s in document["steps"] if s["name"] == name)["rules"]
    return {
        (strings[c], strings[line]): [strings[rule] for rule in rules]
        for c, lines in found.items()
        for line, rules in lines.items()
    }


def test_rules_are_known_by_line():
    document = document_of(step()).as_dict()
    simplify = next(s for s in document["steps"] if s["name"] == "simplify")
    found = rules_by_line(document, "simplify")
    (rule,) = found["main", "same"]
    assert "1" in document["laws"][rule]
    assert {rule for rules in found.values() for rule in rules} <= set(simplify["rewrites"])
    assert ("main", "d") not in found


def test_instructions_that_a_rule_makes_have_it():
    text = """HloModule m

ENTRY main {
  x = f32[4]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  n = f32[4]{0} negate(x)
  p = f32[4]{0} add(x, y)
  q = f32[4]{0} add(y, x)
  a = f32[4]{0} subtract(y, n)
  ROOT t = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(a, p, q)
}
"""
    document = document_of(HloModule.from_text(text)).as_dict()
    merged = rules_by_line(document, "common-subexpressions")
    assert set(merged) == {("main", "q")}
    assert merged["main", "q"] == ["equal-instruction"]


@pytest.mark.parametrize("example", ["mlp_train_step", "while", "sort"])
def test_what_is_told_of_rewrites_changes_none(example):
    with open(f"examples/hlo/{example}.hlo", encoding="utf-8") as file:
        text = file.read()
    context, told = new_context(), []
    context.observer = lambda rule, computation, names: told.append((rule, computation, list(names)))
    seen = run_pipeline(HloModule.from_text(text), context=context)
    assert seen.to_text() == run_pipeline(HloModule.from_text(text)).to_text()
    counts = {}
    for _, counted in context.statistics:
        for rule, count in counted.items():
            counts[rule] = counts.get(rule, 0) + count
    assert told
    by_rule = Counter(rule for rule, _, _ in told)
    assert all(counts[rule] == count for rule, count in by_rule.items())
    assert all(names and all(names) for _, _, names in told)


def test_lines_have_sources_calls_and_costs():
    document = document_of(step(), passes=False).as_dict()
    strings, lines = document["strings"], document["lines"]
    names = [strings[n] for n in lines["name"]]
    s, d = names.index("s"), names.index("d")
    assert strings[lines["source"][s]] == "model.py:13"
    assert strings[lines["op_name"][s]] == "f/square"
    assert [strings[n] for n in document["lines"]["calls"][s]] == ["square"]
    assert lines["flops"][d] == 2 * 8 * 8 * 8
    assert lines["bytes"][d] == 3 * 8 * 8 * 4


def test_steps_that_change_nothing_take_no_lines():
    one = document_of(chain(1000), passes=False).as_dict()
    document = Document("twice")
    module = chain(1000)
    for name in ("a", "b", "c"):
        document.add_step(module, name)
    many = document.as_dict()
    assert len(many["lines"]["name"]) == len(one["lines"]["name"]) == 1000
    assert many["computations"] == one["computations"]
    assert many["computations"][0][3] == [0, 1000]


def test_runs():
    assert runs_of([]) == []
    assert runs_of([4, 5, 6, 2, 3, 9]) == [4, 3, 2, 2, 9, 1]


def test_passes_can_be_left_out():
    document = document_of(step(), until="inline-calls", disabled=["control-dependencies"]).as_dict()
    names = [s["name"] for s in document["steps"]]
    assert names[0] == "input"
    assert names[-1] == "inline-calls"
    assert "control-dependencies" not in names
    with pytest.raises(ArgumentError, match="no pass and no rule 'nonsense'"):
        document_of(step(), disabled=["nonsense"])


def test_a_program_that_is_refused_is_shown_with_the_reason():
    module = step()
    wrong = module.entry.root.replace(shape=module.entry.instructions[1].shape)
    entry = type(module.entry)("main", (*module.entry.instructions[:-1], wrong), wrong)
    document = document_of(module.replace(entry=entry)).as_dict()
    (only,) = document["steps"]
    assert "tanh" in only["note"]


def test_memory_is_the_plan_of_the_compiler():
    page = view_module(chain(50), memory=True).html
    memory = json.loads(re.search(r'id="document">(.*?)</script>', page)[1])["memory"]
    assert set(memory) == {"arena_bytes", "points", "slices"}
    for own in memory["slices"]:
        assert 0 <= own["offset"] <= own["offset"] + own["size"] <= memory["arena_bytes"]
        assert own["first"] <= own["last"] <= memory["points"]
        assert own["values"]


def test_slices_that_are_in_use_together_do_not_overlap():
    with open("examples/hlo/mlp_train_step.hlo", encoding="utf-8") as file:
        module = HloModule.from_text(file.read())
    slices = memory_of(compile_module(module).memory_plan())["slices"]
    assert len(slices) > 3
    # Steps have two points each, so that a slice may end at the step at which the next one begins.
    for one, other in combinations(slices, 2):
        apart_in_time = one["last"] <= other["first"] or other["last"] <= one["first"]
        apart = one["offset"] + one["size"] <= other["offset"] or other["offset"] + other["size"] <= one["offset"]
        assert apart_in_time or apart


def test_the_report_of_a_profile_gives_seconds(tmp_path):
    report = json.dumps({"runs": 4, "instructions": [{"instruction": "d", "nanoseconds": 8000}]})
    assert seconds_of(report, "p.json") == {"d": pytest.approx(2e-6)}
    for wrong in ("", "[]", '{"runs": 1}', '{"runs": 1, "instructions": [3]}', '{"runs": "x", "instructions": []}'):
        with pytest.raises(ArgumentError, match=r"p\.json is no report of a profile"):
            seconds_of(wrong, "p.json")


def test_a_report_that_the_command_prints_is_read(tmp_path, capsys):
    path = "examples/hlo/mlp_train_step.hlo"
    assert cli.main(["run", path, "--profile", "--json"]) == 0
    seconds = seconds_of(capsys.readouterr().out, "report")
    with open(path, encoding="utf-8") as file:
        document = document_of(HloModule.from_text(file.read())).as_dict()
    last = [
        texts(document, c, [0, *accumulate(document["lines"]["operand_counts"])])
        for c in document["steps"][-1]["computations"]
    ]
    names = {line.split(" = ")[0] for _, _, lines in last for line in lines}
    assert seconds
    assert set(seconds) <= names
