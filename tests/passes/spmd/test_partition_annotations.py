"""What is said of shardings: of HLO, in terms of meshes, by Shardy, wrongly, and in programs that are split already."""

import numpy as np
import pytest
from split_programs import ADD, ROWS, WHOLE, X_ROWS, boundary, check, module_of, run_split, with_mesh

import xlakit as xla
from xlakit.errors import ShapeError, UnsupportedError, VerificationError
from xlakit.ops.custom_call import MANUAL_BOUNDARIES
from xlakit.passes.spmd import is_to_be_split, split_over
from xlakit.passes.spmd.operations import inspection, manual

X = "x = f32[8,8] parameter(0)"
NAMED = 'mesh["a"=2,"b"=2]'


def of_parameter(sharding):
    return module_of(f"{X}, sharding={sharding} ROOT r = f32[8,8] add(x, x)")


def with_shardy(said, shape="f32[8,8]", target="Sharding", key="sharding"):
    said = said.replace('"', '\\"')
    attributes = f'xla.sdy.{key}="{said}",xla.sdy.manual_axes="#sdy<manual_axes{{\\"a\\"}}>"'
    call = f'y = {shape} custom-call(x), custom_call_target="{target}", frontend_attributes={{{attributes}}}'
    return with_mesh(f"ENTRY main {{ {X}, sharding={ROWS} {call} ROOT r = {shape} copy(y) }}")


@pytest.mark.parametrize("first", [None, '[{"a"}, {"b"}]'])
@pytest.mark.parametrize("is_tuple", [False, True])
def test_an_open_result_keeps_what_it_has_whatever_its_own_attribute_says(first, is_tuple):
    """JAX writes `sharding={replicated}` beside the sharding of Shardy, which is open."""

    def constraint(name, operand, said):
        text = f"#sdy.sharding_per_value<[<@m, {said}>]>".replace('"', '\\"')
        call = f'custom-call({operand}), custom_call_target="Sharding", sharding={{replicated}}'
        return f'{name} = f32[8,8] {call}, frontend_attributes={{xla.sdy.sharding="{text}"}} '

    body = f"{X}, sharding={ROWS} "
    if first is not None:
        body += constraint("s", "x", first)
    body += constraint("y" if is_tuple else "ROOT y", "x" if first is None else "s", "[{?}, {?}]")
    if is_tuple:
        body += "ROOT r = (f32[8,8]) tuple(y), sharding={{replicated}}"
    split = split_over(with_mesh(f"ENTRY main {{ {body} }}"), 4)
    shape = split.entry.root.shape
    assert (shape.at((0,)) if is_tuple else shape).dimensions == ((2, 8) if first is None else (4, 4))


@pytest.mark.parametrize(("rows", "local"), [(16, 4), (6, 3), (2, 1), (5, 5)])
@pytest.mark.parametrize("first", ["negate", "sort"])
def test_a_constraint_of_a_result_splits_it_along_the_axes_that_divide_it(rows, local, first):
    text = '#sdy.sharding_per_value<[<@m, [{"a", "b"}, {}]>]>'.replace('"', '\\"')
    call = 'custom-call(n), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}'
    more = ", dimensions={0}, to_apply=lt" if first == "sort" else ""
    body = f"x = f32[{rows},8] parameter(0) n = f32[{rows},8] {first}(x){more} "
    body += f'ROOT r = f32[{rows},8] {call}, frontend_attributes={{xla.sdy.sharding="{text}"}}'
    x = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    result, split = run_split(with_mesh(f"ENTRY main {{ {body} }}", LOOP[0]), x)
    np.testing.assert_array_equal(result, -x if first == "negate" else x)
    assert split.entry.root.shape.dimensions == (local, 8)


# -- in terms of a mesh ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharding", "sizes"),
    [
        (f'{{{NAMED},[{{"a"}},{{"b"}}]}}', (4, 4)),
        (f'{{{NAMED},[{{}},{{"b","a"}}]}}', (8, 2)),
        (f'{{{NAMED},[{{"a"}},{{}}], unreduced={{"b"}}}}', (4, 8)),
        (f"{{{NAMED},replicated}}", (8, 8)),
    ],
)
def test_shardings_in_terms_of_a_mesh(sharding, sizes):
    split = split_over(of_parameter(sharding), 4)
    assert split.entry.parameters[0].shape.dimensions == sizes


def test_an_open_dimension_keeps_what_it_has():
    said = f'{{{NAMED},[{{"a", ?}},{{}}]}}'
    body = f'{X}, sharding={ROWS} ROOT r = f32[8,8] custom-call(x), custom_call_target="Sharding", sharding={said}'
    check(body.replace("ROOT r", "y") + " ROOT r = f32[8,8] add(y, y)", {}, sizes=("add", (2, 8)))


def test_a_mesh_of_one_device_splits_nothing():
    one = '{mesh["a"=1],[{"a"},{}]}'
    body = f'{X}, sharding={ROWS} s = f32[8,8] custom-call(x), custom_call_target="Sharding", sharding={one} '
    check(body + "ROOT r = f32[8,8] add(s, s)", {"all-gather": 1}, sizes=("add", (8, 8)))
    assert split_over(of_parameter(one), 4).entry.parameters[0].shape.dimensions == (8, 8)


def test_what_is_manual_in_terms_of_a_mesh_is_what_a_team_has():
    body = (
        f'{X}, sharding={WHOLE} s = f32[8,8] custom-call(x), custom_call_target="Sharding", sharding={X_ROWS} '
        f'l = f32[4,8] custom-call(s), custom_call_target="SPMDFullToShardShape", '
        f'sharding={{{NAMED},[{{}},{{"b"}}], manual={{"a"}}}} z = f32[] constant(0) '
        "t = f32[8] reduce(l, z), dimensions={0}, to_apply=add b = f32[4,8] broadcast(t), dimensions={1} "
        f'ROOT r = f32[8,8] custom-call(b), custom_call_target="SPMDShardToFullShape", sharding={X_ROWS}'
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, _ = run_split(module_of(body), x)
    np.testing.assert_array_equal(result, np.repeat(x.reshape(2, 4, 8).sum(1), 4, axis=0))


# Devices in an order in which teams of the manual dimension are not those that a split of all would make.
TEAMS = "0,3,1,2"
LOOP = (
    "lt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }",
    "cond { p = (s32[], f32[4,8]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(2) "
    "ROOT r = pred[] compare(i, n), direction=LT }",
    "body { p = (s32[], f32[4,8]) parameter(0) i = s32[] get-tuple-element(p), index=0 o = s32[] constant(1) "
    "j = s32[] add(i, o) x = f32[4,8] get-tuple-element(p), index=1 n = f32[4,8] negate(x) "
    's = f32[4,8] custom-call(n), custom_call_target="Sharding", sharding={devices=[1,2,2]0,1,3,2 '
    "last_tile_dims={manual}} d = f32[4,8] sort(s), dimensions={1}, to_apply=lt "
    "ROOT r = (s32[], f32[4,8]) tuple(j, d) }",
    "choice { x = f32[4,8] parameter(0) "
    's = f32[4,8] custom-call(x), custom_call_target="Sharding", sharding={devices=[1,2,2]0,1,3,2 '
    "last_tile_dims={manual}} ROOT d = f32[4,8] sort(s), dimensions={1}, to_apply=lt }",
)


def test_loops_and_branches_between_older_borders_are_those_of_a_team():
    border = f"{{devices=[2,1,2]{TEAMS} last_tile_dim_replicate}}"
    body = (
        f'{X}, sharding={WHOLE} s = f32[8,8] custom-call(x), custom_call_target="Sharding", sharding={border} '
        'l = f32[4,8] custom-call(s), custom_call_target="SPMDFullToShardShape", '
        f"sharding={{devices=[1,1,2,2]{TEAMS} last_tile_dims={{manual, replicated}}}} z = s32[] constant(0) "
        "t = (s32[], f32[4,8]) tuple(z, l) w = (s32[], f32[4,8]) while(t), condition=cond, body=body "
        "v = f32[4,8] get-tuple-element(w), index=1 n = f32[4,8] negate(v) "
        "c = f32[4,8] conditional(z, n, n), branch_computations={choice, choice} "
        f'ROOT r = f32[8,8] custom-call(c), custom_call_target="SPMDShardToFullShape", sharding={border}'
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, _ = run_split(module_of(body, *LOOP), x)
    np.testing.assert_array_equal(result, np.sort(-x))


def to_shards(part, whole, sharding):
    """An array that becomes parts, which become an array again."""
    return module_of(
        f"x = f32[8,0] parameter(0), sharding={{devices=[4,1]<=[4]}} c = {part} custom-call(x), "
        f'custom_call_target="SPMDFullToShardShape", sharding={{manual}} n = {part} negate(c) '
        f'ROOT r = {whole} custom-call(n), custom_call_target="SPMDShardToFullShape", sharding={sharding}'
    )


def test_parts_without_elements_are_those_of_older_borders():
    result, _ = run_split(to_shards("f32[2,0]", "f32[8,0]", ROWS), np.zeros((8, 0), np.float32))
    assert result.shape == (8, 0)


def test_a_manual_result_is_each_partition_s_own():
    module = module_of(
        f'{X}, sharding={ROWS} c = f32[2,8] custom-call(x), custom_call_target="SPMDFullToShardShape", '
        "sharding={manual} ROOT t = (f32[2,8]) tuple(c), sharding={{manual}}"
    )
    (said,) = split_over(module, 4).spmd_output_sharding.elements
    assert said.kind == "MANUAL"


# -- wrongly -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharding", "error", "message"),
    [
        ("{devices=[2,1]<=[2]}", ShapeError, "parameter 'x': a sharding over 2 devices in a program of 4 partitions"),
        ("{devices=[4,1]0,1,2,9}", ShapeError, "devices 0, 1, 2, 9 in a program of 4"),
        ("{devices=[4,1]0,1,2,2}", VerificationError, "device 2 twice"),
        ("{devices=[4]<=[4]}", VerificationError, "tiles 1 dimensions"),
        ('{mesh["a"=2],[{"a"},{}]}', ShapeError, "parameter 'x': a mesh over 2 devices"),
        (f'{{{NAMED},[{{"a"}}]}}', ShapeError, "a sharding of 1 dimensions for an array of 2"),
        (f'{{{NAMED},[{{"a"}},{{"a"}}]}}', ShapeError, "some parts are nowhere"),
        (f'{{{NAMED},[{{"a"}},{{}}], unreduced=max{{"b"}}}}', UnsupportedError, "reduction is max"),
    ],
)
def test_shardings_that_cannot_be(sharding, error, message):
    with pytest.raises(error, match=message):
        split_over(of_parameter(sharding), 4)
    with pytest.raises(error, match=message):
        xla.compile(of_parameter(sharding))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (with_shardy("garbage"), "has 0 shardings for 1 values"),
        (with_shardy('<[<@m, [{"a"}]>]>'), "a sharding of 1 dimensions for an array of 2"),
        (with_shardy('<[<@q, [{"a"}, {}]>]>'), "there is no mesh 'q'"),
        (with_shardy('<[<@m, [{"c"}, {}]>]>'), "the mesh has no axis 'c'"),
        (with_shardy('<[<@m, [{"a"}]>]>', "f32[4,8]", "xla.sdy.GlobalToLocalShape", "in_shardings"), "of 1 dimensions"),
        (with_shardy("<[]>", "f32[4,8]", "xla.sdy.GlobalToLocalShape", "in_shardings"), "0 shardings for 1 values"),
        (with_shardy('<[<@m, [{"a"}, {}]>]>', "f32[3,8]", "xla.sdy.GlobalToLocalShape", "in_shardings"), "2, 1"),
        (with_shardy('<[<@m, [{"a"}]>]>', "f32[4]", "xla.sdy.GlobalToLocalShape", "in_shardings"), "cannot become"),
        (with_shardy('<[<@m, [{"a"}]>]>', "f32[32]", "SPMDFullToShardShape"), "cannot become f32.32."),
    ],
)
def test_what_shardy_says_and_cannot_be(module, message):
    with pytest.raises(ShapeError, match="custom-call 'y': .*" + message):
        split_over(module, 4)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            to_shards("f32[2,0]", "f32[16,0]", ROWS),
            "'r', f32.16,0., is in 4 x 1 parts, as its sharding says; .* f32.2,0",
        ),
        (to_shards("f32[2,0]", "f32[8,0]", WHOLE), "'r', f32.8,0., is in 1 x 1 parts"),
        (to_shards("f32[2,0]", "f32[2,0]", ROWS), "'r', f32.2,0., is in 4 x 1 parts"),
        (to_shards("f32[4,0]", "f32[8,0]", ROWS), "'x', f32.8,0., is in 4 x 1 parts"),
    ],
)
def test_parts_that_are_not_those_of_a_sharding_are_no_older_borders(module, message):
    with pytest.raises(ShapeError, match=message):
        split_over(module, 4)


# -- programs of one partition -------------------------------------------------------------------------------


def test_the_number_of_a_partition_is_refused_where_that_is_one_of_many():
    body = f"{X}, sharding={ROWS} i = u32[] partition-id() ROOT r = (f32[8,8], u32[]) tuple(x, i)"
    with pytest.raises(UnsupportedError, match="partition-id 'i': the number of a partition"):
        split_over(module_of(body), 4)


@pytest.mark.parametrize(
    "rest",
    [
        "g = f32[8,8] all-gather(x), dimensions={0}, channel_id=1, replica_groups={{0,1,2,3}}, "
        "use_global_device_ids=true ROOT r = f32[8,8] add(g, g)",
        "i = u32[] partition-id() ROOT r = (f32[2,8], u32[]) tuple(x, i)",
        "ROOT r = f32[2,8] collective-permute(x), channel_id=1, source_target_pairs={{0,1}}",
    ],
)
def test_what_xla_prints_after_splitting_is_not_split_again(rest):
    assert not is_to_be_split(module_of(f"x = f32[2,8] parameter(0), sharding={ROWS} {rest}"), 4)


def test_a_scheduled_program_is_that_of_one_partition():
    body = f"x = f32[2,8] parameter(0), sharding={ROWS} ROOT r = f32[2,8] add(x, x)"
    text = f"HloModule m, is_scheduled=true, num_partitions=4\n{ADD}\nENTRY main {{ {body} }}"
    module = xla.HloModule.from_text(text)
    assert not is_to_be_split(module, 4)
    assert is_to_be_split(module.replace(is_scheduled=False), 4)


def test_each_boundary_of_a_manual_computation_is_known_before_the_partitioner_is_loaded():
    assert manual.BOUNDARIES.keys() == MANUAL_BOUNDARIES


def test_manual_computations_may_meet():
    begin = boundary("l", "f32[4,8]", "x", "GlobalToLocalShape", ['[{"a"}, {}]'], '"a"')
    end = boundary("ROOT r", "f32[8,8]", "p", "LocalToGlobalShape", ['[{"a"}, {}]'], '"a"')
    meet = "p = f32[4,8] collective-permute(l), channel_id=1, source_target_pairs={{0,2},{2,0},{1,3},{3,1}}"
    module = with_mesh(f"ENTRY main {{ {X}, sharding={X_ROWS} {begin} {meet} {end} }}")
    assert is_to_be_split(module, 4)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(run_split(module, x)[0], np.concatenate([x[4:], x[:4]]))


@pytest.mark.parametrize("said", [ROWS, "{replicated}"])
def test_an_inspector_is_told_how_an_operand_is_split(said, monkeypatch):
    told = []
    monkeypatch.setattr(inspection, "_inspectors", [lambda config, sharding: told.append((config, sharding))])
    call = 'custom_call_target="InspectSharding", custom_call_has_side_effect=true, backend_config="c"'
    check(f"{X}, sharding={said} i = f32[8,8] custom-call(x), {call} ROOT r = f32[8,8] copy(i)", {})
    (expected,) = of_parameter(said).entry.parameters
    assert set(told) == {("c", expected.annotations.sharding)}
