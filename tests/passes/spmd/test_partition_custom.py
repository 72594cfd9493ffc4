"""Custom calls that a function of the process splits."""

import dataclasses

import numpy as np
import pytest
from split_programs import BOTH, ROWS, boundary, check, collectives, module_of, run_split, with_mesh

import xlakit as xla
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import Sharding
from xlakit.passes.spmd import split_over
from xlakit.passes.spmd.operations import custom
from xlakit.passes.spmd.propagate import propagated
from xlakit.passes.spmd.shardings.annotations import Annotations, as_sharding
from xlakit.passes.spmd.shardings.rules import RULE, sharding_rule
from xlakit.passes.spmd.shardings.scopes import Scope

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
X_ROWS = Sharding("OTHER", (2, 1, 2), (0, 1, 2, 3), replicate_on_last_tile_dim=True)
WHOLE = Sharding("REPLICATED")


def said(rule):
    return f'frontend_attributes={{xla.sdy.sharding_rule="#sdy.op_sharding_rule<{rule}>"}}'


def call(shape, rule):
    return (
        f"x = f32[8,8] parameter(0), sharding={ROWS} "
        f'y = {shape} custom-call(x), custom_call_target="by_hand", {said(rule)} ROOT r = {shape} copy(y)'
    )


def register(monkeypatch, text, operand, result, inferred=None, taken=None):
    asked = []

    def partition(call, operands, results):
        asked.append((*operands, *results))
        return custom.SplitCall(xla.HloModule.from_text(text), [operand], [result])

    partitioner = custom.Partitioner(partition, lambda _, operands: inferred, lambda _, results: taken or results)
    monkeypatch.setitem(custom.PARTITIONERS, "by_hand", partitioner)
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
    # To its columns, and back to the rows that the rule gives the result.
    assert opcodes.count("all-to-all") == 2
    assert opcodes.count("negate") == 1


@pytest.mark.parametrize(
    ("inferred", "users", "taken", "wanted"),
    [
        (None, None, None, ()),
        (BY_ROWS, None, None, (4, 1)),
        # Two axes of the mesh, one of the operand's sharding and one of the user's, fit together.
        (None, "{devices=[1,4]<=[4]}", None, (1, 4)),
        (X_ROWS, "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}", None, (2, 2)),
        (BY_ROWS, "{devices=[1,4]<=[4]}", None, (1, 4)),
        (BY_ROWS, "{devices=[1,4]<=[4]}", X_ROWS, (4, 1)),
        (None, "{devices=[1,4]<=[4]}", BY_ROWS, (4, 1)),
    ],
)
def test_without_a_rule_results_are_split_as_functions_say(monkeypatch, inferred, users, taken, wanted):
    asked = register(monkeypatch, COLUMNS, BY_COLUMNS, BY_COLUMNS, inferred and [inferred], taken and [taken])
    by_users = f", sharding={users}" if users else ""
    split_over(module_of(call("f32[8,8]", "none") + by_users), 4)
    assert [[s.tile_dimensions[:2] for s in each] for each in asked] == [[(4, 1), wanted]]


def test_teams_of_partly_manual_computations_split_calls(monkeypatch):
    part = "HloModule part ENTRY main { x = f32[4,4] parameter(0) ROOT r = f32[4,4] negate(x) }"
    by_columns = Sharding("OTHER", (1, 2, 2), (0, 2, 1, 3), replicate_on_last_tile_dim=True)
    asked = register(monkeypatch, part, by_columns, by_columns)
    border = ('[{"a"}, {?}]',), '"a"'
    called = f'custom_call_target="by_hand", {said("([i, j])->([i, j]) {i=4, j=8}")}'
    inner = f"inner {{ p = f32[4,8] parameter(0) ROOT c = f32[4,8] custom-call(p), {called} }}"
    module = with_mesh(
        f"""ENTRY main {{
          x = f32[8,8] parameter(0), sharding={BOTH}
          {boundary("p", "f32[4,8]", "x", "GlobalToLocalShape", *border)}
          c = f32[4,8] call(p), to_apply=inner
          {boundary("e", "f32[8,8]", "c", "LocalToGlobalShape", *border)}
          ROOT r = f32[8,8] copy(e) }}""",
        inner,
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    found, split = run_split(module, x)
    np.testing.assert_array_equal(found, -x)
    assert collectives(split) == {}
    assert asked == [(by_columns, by_columns)]
    register(monkeypatch, part, BY_ROWS, BY_ROWS)
    with pytest.raises(UnsupportedError, match="along an axis over which the computation is manual"):
        split_over(module, 4)


@pytest.mark.parametrize(
    ("rule", "before", "after", "wanted"),
    [
        ("([i, j])->([i, j]) {i=8, j=8}", "[8,8]", "[8,8]", (4, 1)),
        ("([i, j])->([j]) {i=8, j=8} reduction={i}", "[8,8]", "[8]", ()),
        ("([ij, k])->([i, j, k]) {i=4, j=2, k=8}", "[8,8]", "[4,2,8]", (4, 1, 1)),
        ("([i, jk])->([i, k]) {i=8, j=4, k=2}", "[8,8]", "[8,2]", (4, 1)),
    ],
)
def test_shardings_spread_through_calls_by_their_rule(rule, before, after, wanted):
    body = (
        f"x = f32{before} parameter(0), sharding={ROWS} "
        f'y = f32{after} custom-call(x), custom_call_target="by_hand", {said(rule)} ROOT r = f32{after} negate(y)'
    )
    module = module_of(body)
    root = module.entry.root
    (tiling,) = propagated(module, Annotations(module, 4)).hints(root, Scope.of_all(4))
    assert as_sharding(tiling).tile_dimensions == wanted


@pytest.mark.parametrize(
    ("rule", "operands", "results"),
    [
        ("([i, j], [j, k])->([i, k]) {i=8, j=4, k=6} reduction={j}, custom", ((0, 1), (1, 2)), ((0, 2),)),
        ("([ik, j], [ikj])->([ikj]) {i=2, k=2, j=2} need_replication={k}", ((0, None), (0,)), ((0,),)),
        ("([ij, k])->([i, j, k]) {i=2, j=4, k=8}", ((0, 2),), ((0, None, 2),)),
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
    attributes = ((RULE, f"#sdy.op_sharding_rule<{rule}>"),)
    annotations = dataclasses.replace(root.annotations, frontend_attributes=attributes)
    factors = sharding_rule(root.replace(annotations=annotations)).factors()
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
