"""Custom calls that a function of the process splits."""

import pytest
from split_programs import ROWS, check, module_of

import xlakit as xla
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import Sharding
from xlakit.passes.spmd import split_over
from xlakit.passes.spmd.operations import custom

PART = """HloModule part
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[2,8] parameter(0)
  z = f32[] constant(0)
  s = f32[8] reduce(x, z), dimensions={0}, to_apply=add
  ROOT r = f32[8] all-reduce(s), to_apply=add, channel_id=7, replica_groups={{0,1,2,3}}, use_global_device_ids=true
}"""
COLUMNS = "HloModule part ENTRY main { x = f32[8,2] parameter(0) ROOT r = f32[8,2] negate(x) }"
BY_ROWS = Sharding("OTHER", (4, 1), (0, 1, 2, 3))
BY_COLUMNS = Sharding("OTHER", (1, 4), (0, 1, 2, 3))
WHOLE = Sharding("REPLICATED")


def call(shape, rule):
    said = f'frontend_attributes={{xla.sdy.sharding_rule="#sdy.op_sharding_rule<{rule}>"}}'
    return (
        f"x = f32[8,8] parameter(0), sharding={ROWS} "
        f'y = {shape} custom-call(x), custom_call_target="by_hand", {said} ROOT r = {shape} copy(y)'
    )


def register(monkeypatch, text, operand, result):
    asked = []

    def partition(call, operands, results):
        asked.append((*operands, *results))
        return custom.SplitCall(xla.HloModule.from_text(text), [operand], [result])

    monkeypatch.setitem(custom.PARTITIONERS, "by_hand", partition)
    return asked


def test_the_program_of_one_partition_stands_in_the_place_of_a_call(monkeypatch):
    asked = register(monkeypatch, PART, BY_ROWS, WHOLE)
    body = call("f32[8]", "([i, j])->([j]) {i=8, j=8} reduction={i}")
    # What the call means as a whole is not known; that it is the sum of rows is said by its parts.
    split = split_over(module_of(body), 4)
    (reduced,) = [i for i in split.entry.instructions if i.opcode == "all-reduce"]
    assert reduced.op.replica_groups.groups == ((0, 1, 2, 3),)
    assert [[s.tile_dimensions for s in each] for each in asked] == [[(4, 1), ()]]


def test_operands_are_split_as_the_function_says(monkeypatch):
    register(monkeypatch, COLUMNS, BY_COLUMNS, BY_COLUMNS)
    split = split_over(module_of(call("f32[8,8]", "([i, j])->([i, j]) {i=8, j=8}")), 4)
    opcodes = [i.opcode for i in split.entry.instructions]
    assert opcodes.count("all-to-all") == 1
    assert opcodes.count("negate") == 1


@pytest.mark.parametrize(
    ("rule", "operands", "results"),
    [
        ("([i, j], [j, k])->([i, k]) {i=8, j=4, k=6} reduction={j}, custom", ((0, 1), (1, 2)), ((0, 2),)),
        ("([ik, j], [ikj])->([ikj]) {i=2, k=2, j=2} need_replication={k}", ((0, 1), (0,)), ((0,),)),
        ("([i, j])->([i], [j]) {i=2, j=2} need_replication={j}", ((0, None),), ((0,), (None,))),
        ("([], [z, z_1])->([z_1]) {z=2, z_1=4}", ((), (0, 1)), ((1,),)),
    ],
)
def test_factors_of_a_sharding_rule(rule, operands, results):
    def shape(dims):
        return f"f32[{','.join('8' for _ in dims)}]"

    given = " ".join(f"p{n} = {shape(d)} parameter({n})" for n, d in enumerate(operands))
    made = shape(results[0]) if len(results) == 1 else f"({', '.join(map(shape, results))})"
    names = ", ".join(f"p{n}" for n in range(len(operands)))
    text = f'ENTRY e {{ {given} ROOT r = {made} custom-call({names}), custom_call_target="by_hand" }}'
    root = xla.HloModule.from_text(text).entry.root
    factors = custom.rule_factors(f"#sdy.op_sharding_rule<{rule}>", root)
    assert (factors.operands, factors.results) == (operands, results)


def test_what_does_not_fit_together_is_refused(monkeypatch):
    register(monkeypatch, COLUMNS, BY_ROWS, BY_COLUMNS)
    with pytest.raises(ShapeError, match=r"operand parts are \[2, 8\] by their sharding, \[8, 2\] in the program"):
        split_over(module_of(call("f32[8,8]", "([i, j])->([i, j]) {i=8, j=8}")), 4)
    with pytest.raises(ShapeError, match="is for arrays of 1, 2 dimensions"):
        split_over(module_of(call("f32[8,8]", "([i])->([i, j]) {i=8, j=8}")), 4)
    register(monkeypatch, COLUMNS, BY_COLUMNS, Sharding("OTHER", (3, 1, 4), tuple(range(12))))
    with pytest.raises(ShapeError, match="over 12 devices in a program of 4 partitions"):
        split_over(module_of(call("f32[8,8]", "([i, j])->([i, j]) {i=8, j=8}")), 4)


def test_a_call_that_no_function_splits_is_refused():
    with pytest.raises(UnsupportedError, match="no custom call is registered as 'by_hand'"):
        check(call("f32[8,8]", "([i, j])->([i, j]) {i=8, j=8}"), {})
