"""Each lint warns of what it is for, and not of the nearest program that is right."""

import re
from pathlib import Path

import pytest

import xlakit as xla
from xlakit.errors import ArgumentError
from xlakit.ir.instruction import HloModule
from xlakit.tools.lint.linter import chosen, table
from xlakit.tools.lint.registry import LINTS

PAGE = (Path(xla.__file__).parents[1] / "docs" / "workbench.md").read_text()

# A loop that counts i to TO, with what it carries beside it and does with that.
LOOP = """HloModule m
cond {
  p = (s32[], f32[128,128], f32[128,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=COUNTER
  n = s32[] constant(TO)
  ROOT less = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], f32[128,128], f32[128,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[128,128] get-tuple-element(p), index=1
  w = f32[128,128] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  b = f32[128,128] DO
  ROOT next = (s32[], f32[128,128], f32[128,128]) tuple(NEXT, b, w)
}
ENTRY main {
  x = f32[128,128] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[128,128], f32[128,128]) tuple(zero, x, x)
  ROOT loop = (s32[], f32[128,128], f32[128,128]) while(init), condition=cond, body=body
}
"""


def loop(*, to="9", do="multiply(a, w)", then="j"):
    return LOOP.replace("COUNTER", "0").replace("TO", to).replace("DO", do).replace("NEXT", then)


def entry(body, header="HloModule m", others=""):
    return f"{header}\n{others}\nENTRY main {{\n{body}\n}}"


TRANSPOSES = "x = f32[4,5,6] parameter(0)\n t = f32[6,4,5] transpose(x), dimensions={2,0,1}\n ROOT r = "
REVERSED = "x = f32[4,4] parameter(0)\n t = f32[4,4] reverse(x), dimensions={0}\n"
REVERSED += "ROOT r = f32[4,4] reverse(t), dimensions="
ADD = "add { a = KIND[] parameter(0)\n b = KIND[] parameter(1)\n ROOT c = KIND[] OP(a, b) }"


def reduction(kind, count, op="add"):
    body = f"x = {kind}[{count}] parameter(0)\n z = {kind}[] constant(0)\n"
    body += "ROOT r = KIND[] reduce(x, z), dimensions={0}, to_apply=add".replace("KIND", kind)
    return entry(body, others=ADD.replace("KIND", kind).replace("OP", op))


def collective(groups, header="HloModule m, replica_count=4"):
    body = f"x = f32[4] parameter(0)\n ROOT r = f32[4] all-reduce(x), replica_groups={groups}, to_apply=add"
    return entry(body, header, ADD.replace("KIND", "f32").replace("OP", "add"))


def slices(start, to=9):
    do = f"dynamic-update-slice(a, row, {start}, zero)"
    text = loop(do=do, to=str(to))
    row = "row = f32[4,128] slice(w), slice={[0:4], [0:128]}"
    return text.replace("  b = f32", f"  {row}\n  far = s32[] constant(125)\n  b = f32")


def sharded(sharding):
    body = "x = f32[8192,8192] parameter(0)SHARDING\n y = f32[8,8] parameter(1), sharding={devices=[2,1]0,1}\n"
    body += "ROOT t = (f32[8192,8192], f32[8,8]) tuple(x, y)"
    return entry(body.replace("SHARDING", sharding), "HloModule m, num_partitions=2")


def double(kind):
    body = f"x = f32[4] parameter(0)\n y = {kind}[4] parameter(1)\n d = f64[4] convert(x)\n"
    return entry(body + f"e = {kind}[4] abs(y)\n ROOT t = (f64[4], {kind}[4]) tuple(d, e)")


def chain(source, middle):
    body = f"x = {source}[4] parameter(0)\n m = {middle}[4] convert(x)\n ROOT r = {source}[4] convert(m)"
    return entry(body)


def constant_of(shape):
    return entry(f"x = {shape} parameter(0)\n c = {shape} constant({{...}})\n ROOT r = {shape} add(x, c)")


def ratio(kind, divisor):
    body = f"x = {kind}[4] parameter(0)\n c = {kind}[] constant({divisor})\n"
    return entry(body + f"b = {kind}[4] broadcast(c), dimensions={{}}\n ROOT r = {kind}[4] divide(x, b)")


def comparison(value):
    body = f"x = f32[] parameter(0)\n c = f32[] constant({value})\n ROOT r = pred[] compare(x, c), direction=EQ"
    return entry(body)


# Name, the instruction that is warned of, a text with the fault, and one without.
CASES = [
    (
        "redundant-transpose",
        "r",
        entry(TRANSPOSES + "f32[4,5,6] transpose(t), dimensions={1,2,0}"),
        entry(TRANSPOSES + "f32[5,6,4] transpose(t), dimensions={2,0,1}"),
    ),
    (
        "redundant-transpose",
        "r",
        entry("x = f32[4,5]{1,0} parameter(0)\n ROOT r = f32[4,5]{1,0} transpose(x), dimensions={0,1}"),
        entry("x = f32[4,5]{1,0} parameter(0)\n ROOT r = f32[4,5]{0,1} transpose(x), dimensions={0,1}"),
    ),
    (
        "redundant-reverse",
        "r",
        entry(REVERSED + "{0}"),
        entry(REVERSED + "{1}"),
    ),
    ("f64-by-accident", "d", double("bf16"), double("f64")),
    ("convert-chain", "r", chain("bf16", "f32"), chain("f32", "bf16")),
    ("convert-chain", "r", chain("u8", "s32"), chain("u8", "s8")),
    ("convert-chain", "r", chain("f16", "f32"), chain("f16", "bf16")),
    ("huge-constant", "c", constant_of("f32[1048576]"), constant_of("f32[1048575]")),
    ("unsharded-large-array", "x", sharded(", sharding={replicated}"), sharded(", sharding={devices=[2,1]0,1}")),
    ("unsharded-large-array", "x", sharded(""), sharded(", sharding={maximal device=0}")),
    ("sharding-of-other-devices", "x", sharded(", sharding={devices=[2,1]0,5}"), sharded(", sharding={replicated}")),
    ("sharding-of-other-devices", "x", sharded(", sharding={devices=[4,1]<=[4]}"), sharded("")),
    (
        "sharding-of-other-devices",
        "x",
        sharded(", sharding={devices=[1,2]0,2}").replace(", num_partitions=2", ""),
        sharded(", sharding={devices=[1,2]1,0}").replace(", num_partitions=2", ""),
    ),
    (
        "sharding-of-other-devices",
        "x",
        sharded(", sharding={maximal device=2}"),
        sharded(", sharding={maximal device=1}"),
    ),
    ("all-reduce-of-one", "r", collective("{{0},{1},{2},{3}}"), collective("{{0,1},{2,3}}")),
    ("all-reduce-of-one", "r", collective("{}", "HloModule m"), collective("{}")),
    (
        "loop-invariant-not-hoisted",
        "b",
        loop(do="dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        loop(do="dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ),
    ("loop-without-end", "loop", loop(then="i"), loop()),
    (
        "loop-without-end",
        "loop",
        loop().replace("ROOT less = pred[] compare(i, n), direction=LT", "ROOT less = pred[] constant(true)"),
        loop().replace("direction=LT", "direction=NE"),
    ),
    ("loop-never-runs", "loop", loop(to="0"), loop(to="1")),
    ("while-without-trip-count", "loop", loop().replace("add(i, one)", "multiply(i, one)"), loop()),
    ("dynamic-slice-out-of-range", "b", slices("far"), slices("one")),
    ("dynamic-slice-out-of-range", "b", slices("i", to=126), slices("i", to=125)),
    (
        "dead-parameter",
        "y",
        entry("x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT r = f32[] abs(x)"),
        comparison("1"),
    ),
    (
        "dead-parameter",
        "x",
        entry("x = (f32[], f32[]) parameter(0)\n ROOT r = f32[] get-tuple-element(x), index=1"),
        entry("x = (f32[], f32[]) parameter(0)\n ROOT r = ((f32[], f32[])) tuple(x)"),
    ),
    ("reduce-in-low-precision", "r", reduction("bf16", 1024), reduction("bf16", 1023)),
    ("reduce-in-low-precision", "r", reduction("f16", 9999), reduction("f16", 9999, "maximum")),
    (
        "inexact-iota",
        "r",
        entry("ROOT r = bf16[258] iota(), iota_dimension=0"),
        entry("ROOT r = bf16[257] iota(), iota_dimension=0"),
    ),
    (
        "inexact-iota",
        "r",
        entry("ROOT r = u8[257] iota(), iota_dimension=0"),
        entry("ROOT r = u8[256] iota(), iota_dimension=0"),
    ),
    ("division-by-zero", "r", ratio("s32", "0"), ratio("s32", "2")),
    ("division-by-zero", "r", ratio("f32", "0"), ratio("f32", "inf")),
    ("comparison-with-nan", "r", comparison("nan"), comparison("inf")),
    ("constant-nan", "c", comparison("nan"), comparison("-inf")),
]


def warned(text, name):
    found = xla.lint(HloModule.from_text(text), enable=[name], disable=["all"])
    assert all(w.name == name and w.hint and w.message for w in found)
    return [w.instruction.name for w in found]


@pytest.mark.parametrize(("name", "where", "wrong", "right"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_lints_warn_of_what_they_are_for_only(name, where, wrong, right):
    assert warned(wrong, name) == [where]
    assert not warned(right, name)


def test_every_lint_has_a_case():
    assert {case[0] for case in CASES} == set(LINTS)


def test_warnings_are_in_the_order_of_the_program_and_tell_the_line():
    line = ', metadata={source_file="model.py" source_line=7}'
    module = HloModule.from_text(loop(do="add(w, w)" + line, then="i"))
    assert [w.name for w in xla.lint(module)] == ["loop-invariant-not-hoisted", "loop-without-end"]
    found = xla.lint(module, disable=["loop-without-end"])
    assert [str(w).splitlines() for w in found] == [
        [
            "add 'b' in computation body: every iteration of loop computes the same, with 192 KiB read and written "
            "[loop-invariant-not-hoisted]",
            "  at: model.py:7",
            "  hint: compute it before the loop, and carry it",
        ]
    ]


def test_lints_are_switched_by_name():
    names = {lint.name for lint in chosen()}
    assert names == {name for name, lint in LINTS.items() if lint.is_default} < set(LINTS)
    assert {lint.name for lint in chosen(enable=["all"])} == set(LINTS)
    assert names - {lint.name for lint in chosen(disable=["huge-constant"])} == {"huge-constant"}
    with pytest.raises(ArgumentError, match="there is no lint huge-constants") as raised:
        chosen(enable=["huge-constants"])
    assert raised.value.hint.startswith("did you mean huge-constant")


def test_the_page_has_the_table_of_lints():
    assert table() in PAGE
    assert re.search(r"`xlakit check FILE` \| `xlakit.lint`", PAGE)


def test_the_examples_have_nothing_to_warn_of():
    paths = sorted((Path(xla.__file__).parents[1] / "examples" / "hlo").glob("*.hlo"))
    assert paths
    assert {p.name: xla.lint(HloModule.from_text(p.read_text())) for p in paths} == {p.name: [] for p in paths}
