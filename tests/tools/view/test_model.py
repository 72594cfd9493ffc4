"""The viewer's functions that know nothing of the page, run by node where there is one."""

import json
import shutil
import subprocess
from importlib.resources import files

import pytest
from tools.view.programs import STEP, step

from xlakit.ir.instruction import HloModule
from xlakit.tools.view.comparison import document_of_difference
from xlakit.tools.view.page import packed
from xlakit.tools.view.stages import document_of

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node to run JavaScript with")
MODEL = files("xlakit.tools.view").joinpath("static", "model.js")


def evaluate(script, **values):
    """What a script gives, which is run with Model and these values."""
    text = (
        f"const Model = require({json.dumps(str(MODEL))});"
        "const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        f"const run = (given) => {{ {script} }};"
        "process.stdout.write(JSON.stringify(run(given)));"
    )
    done = subprocess.run([NODE, "-e", text], input=json.dumps(values), capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("program", [STEP, "HloModule m\nENTRY main { ROOT x = f32[2] parameter(0) }"])
def test_pages_have_all_of_a_document(program):
    packing = json.dumps(str(MODEL.parent / "packing.js"))
    given = json.loads(json.dumps(document_of(HloModule.from_text(program)).as_dict()))
    script = (
        f"const {{ lines, ...rest }} = require({packing}).unpacked(given.page);"
        + """
        const plain = ([field, values]) => [field, ArrayBuffer.isView(values) ? Array.from(values) : values];
        return { ...rest, lines: Object.fromEntries(Object.entries(lines).map(plain)) };
    """
    )
    assert evaluate(script, page=packed(given)) == given


def test_a_page_of_many_lines_is_half_as_large():
    lines = "\n".join(f"  v{n} = f32[16] multiply(v{n - 1}, v{n // 2})" for n in range(1, 2000))
    module = HloModule.from_text(f"HloModule m\nENTRY main {{\n  v0 = f32[16] parameter(0)\n{lines}\n}}\n")
    document = document_of(module, passes=False).as_dict()
    sizes = [len(json.dumps(d["lines"], separators=(",", ":"))) for d in (document, packed(document))]
    assert sizes[1] < sizes[0] / 2


@pytest.fixture(scope="module")
def document():
    return document_of(step()).as_dict()


START = "const program = new Model.Program(given.document); const { entry } = program.steps[0];"
NAMES = "const name = ([c, p]) => `${program.computationName(c)}/${program.field(program.linesOf(c)[p], 'name')}`;"


def test_lines_are_written_as_hlo(document):
    lines = evaluate(START + "return Array.from(program.linesOf(entry), (l) => program.text(l));", document=document)
    assert lines[4] == "s = f32[8,8]{1,0} call(same), to_apply=square"
    assert lines[1] == "one = f32[] constant(1)"


def test_operands_and_users(document):
    found = evaluate(START + "return [program.operandsOf(entry, 5), program.usersOf(entry, 0)];", document=document)
    assert found == [[0, 4], [3, 5]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", []),
        ("op:dot", ["main/d"]),
        ("source:model.py:13", ["main/s"]),
        ("name:s shape:f32[8,8]", ["main/ones", "main/same", "main/s"]),
        ("SQUARE", ["main/s"]),
        ("a", ["main/same", "main/s", "main/t", "square/a", "square/b"]),
        ("op:nothing", []),
        ("model.py:12", ["main/x"]),
    ],
)
def test_search(document, query, names):
    found = evaluate(START + NAMES + "return program.search(0, given.query).map(name);", document=document, query=query)
    if query == "a":
        # Letters stand in opcodes and attributes, too; but each match is found once.
        assert set(names) <= set(found)
        assert len(found) == len(set(found))
    else:
        assert found == names


def test_rows_open_and_close(document):
    script = (
        START
        + """
      const show = (rows) => rows.map((r) => [r.depth, r.position, r.isOpen === undefined ? null : r.isOpen]);
      const toggled = new Set();
      const closed = show(program.rows(0, toggled));
      const callee = program.named(0, "square");
      const path = program.reveal(0, callee, toggled);
      const open = show(program.rows(0, toggled));
      toggled.add(`${entry}`);
      return { closed, open, path, entry, nothing: show(program.rows(0, toggled)) };
    """
    )
    found = evaluate(script, document=document)
    assert found["closed"][:2] == [[0, -1, True], [1, 0, None]]
    assert found["closed"][5] == [1, 4, False]
    assert len(found["closed"]) == 8
    assert found["open"][5:9] == [[1, 4, True], [2, -1, True], [3, 0, None], [3, 1, None]]
    assert found["path"] == f"{found['entry']}/4.0"
    assert found["nothing"] == [[0, -1, False]]


def test_changes_are_those_of_the_passes(document):
    script = (
        START
        + """
      const last = program.steps.length - 1;
      return { changes: program.steps.map((_, at) => program.changes(at)), last,
               kinds: program.comparison(0, last).map(({ rows }) => rows.map((r) => r.kind)),
               none: program.comparison(last, last).length,
               history: program.history("main", program.strings.indexOf("same")) };
    """
    )
    found = evaluate(script, document=document)
    steps = document["steps"]
    # A pass that counts no rewrite and has the same computations changes no line.
    for at, count in enumerate(found["changes"]):
        same = at == 0 or steps[at]["computations"] == steps[at - 1]["computations"]
        assert (count == 0) == same or count > 0
        assert not (same and count)
    assert sum(found["changes"]) > 0
    assert found["none"] == 0
    kind = {k: s for s, k in found["history"]}
    assert kind["new"] == 0
    assert steps[kind["gone"]]["name"] in {"dead-code", "simplify"}


def test_rules_of_lines(document):
    found = evaluate(
        """
        const program = new Model.Program(given.document);
        const at = program.steps.findIndex((step) => step.name === given.step);
        return given.lines.map((name) => {
          const rules = program.rulesOf(at, "main", program.strings.indexOf(name));
          return rules.map(([rule, own]) => `${rule} ${program.strings[own]}`);
        });
        """,
        document=document,
        step="simplify",
        lines=["same", "b", "d", "x"],
    )
    ((own,), user, unchanged, parameter) = found
    assert own.endswith(" same")
    # What the call became has another operand, for which the rule on it is the reason.
    assert own in user
    assert unchanged == parameter == []


def test_the_only_rule_of_a_pass_is_that_of_its_lines(document):
    script = """
      const program = new Model.Program(given.document);
      return program.steps.map((_, at) => at && program.rulesOf(at, "main", 0).map(([rule]) => rule));
    """
    for step_, found in zip(document["steps"][1:], evaluate(script, document=document)[1:], strict=True):
        if "rules" not in step_:
            rules = list(step_.get("rewrites", ()))
            assert found == (rules if len(rules) == 1 else [])


MERGED = "return Model.merged(given.left, given.right, given.partner, (a, b) => (a === b ? 'same' : 'changed'));"


@pytest.mark.parametrize(
    ("left", "right", "partner", "rows"),
    [
        ([1, 2, 3], [1, 2, 3], [0, 1, 2], [(1, 1, "same"), (2, 2, "same"), (3, 3, "same")]),
        ([1, 2], [1, 9], [0, 1], [(1, 1, "same"), (2, 9, "changed")]),
        ([1, 2, 3], [1, 3], [0, 2], [(1, 1, "same"), (2, -1, "removed"), (3, 3, "same")]),
        ([1, 3], [1, 2, 3], [0, -1, 1], [(1, 1, "same"), (-1, 2, "added"), (3, 3, "same")]),
        ([1, 2], [1, 7], [0, -1], [(1, 1, "same"), (2, 7, "replaced")]),
        ([1, 2, 3], [3, 1, 2], [2, 0, 1], [(-1, 3, "moved"), (1, 1, "same"), (2, 2, "same"), (3, -1, "moved")]),
        ([], [5], [-1], [(-1, 5, "added")]),
        ([5], [], [], [(5, -1, "removed")]),
    ],
)
def test_two_lists_side_by_side(left, right, partner, rows):
    found = evaluate(MERGED, left=left, right=right, partner=partner)
    assert [(r["left"], r["right"], r["kind"]) for r in found] == rows


def test_the_longest_increasing_subsequence():
    script = "return given.lists.map((numbers) => [...Model.increasing(numbers)].sort((a, b) => a - b));"
    lists = [[], [-1, -1], [0, 1, 2], [2, 0, 1], [5, 1, 6, 2, 7, 3], [3, -1, 4, 0, 5]]
    assert evaluate(script, lists=lists) == [[], [], [0, 1, 2], [1, 2], [1, 3, 5], [0, 2, 4]]


def test_folds():
    script = "return Model.folded(given.kinds.map((kind) => ({ kind })), 1).map((r) => r.fold || r.kind);"
    kinds = ["same", "same", "same", "added", "same", "same", "same", "same"]
    assert evaluate(script, kinds=kinds) == [2, "same", "added", "same", 3]
    assert evaluate(script, kinds=["same"] * 4) == [4]


def test_neighborhoods_are_cut(document):
    script = (
        START
        + """
      const all = program.neighborhood(entry, 5, 9, 9, 100);
      const near = program.neighborhood(entry, 5, 1, 0, 100);
      const few = program.neighborhood(entry, 5, 9, 9, 2);
      return { all, near, few };
    """
    )
    found = evaluate(script, document=document)
    assert found["all"]["nodes"] == [0, 1, 2, 3, 4, 5, 6]
    assert not found["all"]["isCut"]
    assert sorted(found["near"]["edges"]) == [[0, 5], [4, 5]]
    assert found["few"]["isCut"]
    assert len(found["few"]["nodes"]) == 2


def test_addresses_come_back():
    state = {"step": "3", "view": "graph", "at": "main/a.b&c=d", "q": "op:dot f32[8,8]{1,0} %"}
    found = evaluate("return Model.parseHash(Model.formatHash(given.state));", state=state)
    assert found == state


def test_amounts():
    script = "return given.numbers.map((n) => [Model.amount(n, 'B'), Model.amount(n, '')]);"
    assert evaluate(script, numbers=[0, 512, 2048, 3 << 30]) == [
        ["0 B", "0"],
        ["512 B", "512"],
        ["2.0 KiB", "2.0 k"],
        ["3.0 GiB", "3.2 G"],
    ]


def test_each_script_is_valid():
    for name in ("model.js", "rows.js", "texts.js", "panels.js", "drawings.js", "roofline.js", "viewer.js"):
        path = MODEL.parent / name
        done = subprocess.run([NODE, "--check", str(path)], capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr


def test_two_programs():
    first, second = (
        step(),
        HloModule.from_text(
            STEP.replace("tanh(d)", "exponential(d)").replace("one = ", "uno = ").replace("(one)", "(uno)")
        ),
    )
    document = document_of_difference(first, second, ("names",), ("a", "b"), "t").as_dict()
    found = evaluate(
        """
        const program = new Model.Program(given.document);
        const c = program.named(0, "main");
        const other = program.named(1, "main");
        const place = (name) => program.two.counterpart(0, c, program.positionOf(c, name));
        const name = ({ c, position }) => program.field(program.linesOf(c)[position], "name");
        const [pair] = program.comparison(0, 1);
        return {
          one: [place("one").kind, name(place("one"))],
          t: [place("t").kind, name(place("t")), place("t").what],
          back: program.two.counterpart(1, other, place("t").position).position === program.positionOf(c, "t"),
          header: program.two.counterpart(0, c, -1).c === other,
          kinds: pair.rows.map((row) => row.kind),
          place: program.two.place(pair.rows.find((row) => row.kind === "changed"), 1),
          t2: { c: other, position: program.positionOf(other, "t") },
        };
        """,
        document=document,
    )
    assert found["one"] == ["same", "uno"]
    assert found["t"][:2] == ["changed", "t"]
    assert found["t"][2]
    assert found["back"]
    assert found["header"]
    assert sorted(found["kinds"]) == ["changed"] + ["same"] * 6
    assert found["place"] == found["t2"]
