"""Programs at the borders of what the partitioner's strategies can do: past these they would give other numbers."""

import numpy as np
import pytest
from split_programs import COLUMNS, ROWS, WHOLE, check, collectives, module_of, run_split, sends

import xlakit as xla
from fuzz.programs.shardings import join
from xlakit.passes.spmd import split_over

SPACE = "{devices=[1,4,1,1]<=[4]}"
CYCLE = """cycle { a = s32[] parameter(0) b = s32[] parameter(1) d = s32[] subtract(b, a) n = s32[] constant(6)
  e = s32[] add(d, n) m = s32[] constant(3) r = s32[] remainder(e, m) t = s32[] constant(2)
  ROOT l = pred[] compare(r, t), direction=LT }"""
GREATER = "ge { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }"
SUM = "sum { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }"

PROGRAMS = {
    "a scatter of several rows": f"""x = f32[8,4] parameter(0), sharding={ROWS}
        i = s32[1] parameter(1), sharding={WHOLE} u = f32[3,4] parameter(2), sharding={WHOLE}
        ROOT r = f32[8,4] scatter(x, i, u), update_window_dims={{0,1}},
        inserted_window_dims={{}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=0, to_apply=add""",
    "a gather of several rows": f"""x = f32[8,4] parameter(0), sharding={ROWS}
        i = s32[2,1] parameter(1), sharding={WHOLE}
        ROOT r = f32[2,3,4] gather(x, i), offset_dims={{1,2}}, collapsed_slice_dims={{}}, start_index_map={{0}},
        index_vector_dim=1, slice_sizes={{3,4}}""",
    "a kernel in parts, turned around": f"""x = f32[1,8,8,1] parameter(0), sharding={SPACE}
        y = f32[1,8,8,1] parameter(1), sharding={SPACE} ROOT r = f32[1,3,3,1] convolution(x, y),
        window={{size=8x8 pad=1_1x1_1 rhs_reversal=1x0}}, dim_labels=f01b_i01o->f01b""",
    "a kernel in parts, an image that is split otherwise": f"""
        x = f32[1,8,8,1] parameter(0), sharding={{devices=[1,4,1,1]<=[2,2]T(1,0)}}
        y = f32[1,8,8,1] parameter(1), sharding={SPACE} ROOT r = f32[1,3,3,1] convolution(x, y),
        window={{size=8x8 pad=1_1x1_1}}, dim_labels=f01b_i01o->f01b""",
    "windows that parts do not begin with": f"""x = s32[12,4] parameter(0), sharding={ROWS}
        s = s32[6,4] parameter(1), sharding={WHOLE} z = s32[] constant(0)
        ROOT r = s32[12,4] select-and-scatter(x, s, z), window={{size=2x1 stride=2x1}}, select=ge, scatter=sum""",
    "selection by what is no order": f"""x = s32[8,4] parameter(0), sharding={ROWS}
        s = s32[8,2] parameter(1), sharding={ROWS} z = s32[] constant(0) ROOT r = s32[8,4] select-and-scatter(x, s, z),
        window={{size=3x3 pad=2_0x0_0}}, select=cycle, scatter=sum""",
    "largest of no elements": f"""x = f32[4,0] parameter(0), sharding={ROWS} z = f32[] constant(3)
        ROOT r = f32[4] reduce(x, z), dimensions={{1}}, to_apply=max""",
    "sums and largest of no columns": f"""x = f32[8,0] parameter(0), sharding={ROWS} z = f32[] constant(3)
        ROOT r = (f32[0], f32[0]) reduce(x, x, z, z), dimensions={{0}}, to_apply=pair""",
    "first none of a row": f"""x = f32[4,64] parameter(0), sharding={COLUMNS}
        ROOT r = (f32[4,0], s32[4,0]) topk(x), k=0, largest=true""",
    "blocks of several lengths": f"""x = f32[16,2] parameter(0), sharding={ROWS}
        a = f32[3,2] slice(x), slice={{[13:16],[0:2]}} b = f32[13,2] slice(x), slice={{[2:15],[0:2]}}
        ROOT r = f32[16,2] concatenate(a, b), dimensions={{0}}""",
    "parts of sums that are reshaped in a loop": """x = f32[8,12] parameter(0), sharding={devices=[2,2]0,3,2,1}
        k = s32[] constant(0) z = f32[] constant(0) b = f32[2,6] broadcast(z), dimensions={}
        i = (s32[], f32[8,12], f32[2,6]) tuple(k, x, b)
        l = (s32[], f32[8,12], f32[2,6]) while(i), condition=thrice, body=reshaping
        ROOT r = f32[2,6] get-tuple-element(l), index=2""",
    "largest of partial sums in a loop": """x = f32[8,12] parameter(0), sharding={devices=[4,1]<=[4]}
        k = s32[] constant(0) z = f32[] constant(0) i = (s32[], f32[8,12], f32[]) tuple(k, x, z)
        l = (s32[], f32[8,12], f32[]) while(i), condition=twice, body=largest
        ROOT r = f32[] get-tuple-element(l), index=2""",
}
PAIR = """pair { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  s = f32[] add(a, c) m = f32[] maximum(b, d) ROOT r = (f32[], f32[]) tuple(s, m) }"""
MAXIMUM = "max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }"
THRICE = """thrice { p = (s32[], f32[8,12], f32[2,6]) parameter(0) i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3) ROOT r = pred[] compare(i, n), direction=LT }"""
RESHAPING = """reshaping { p = (s32[], f32[8,12], f32[2,6]) parameter(0) i = s32[] get-tuple-element(p), index=0
  x = f32[8,12] get-tuple-element(p), index=1 a = f32[2,6] get-tuple-element(p), index=2 z = f32[] constant(0)
  one = s32[] constant(1) k = s32[] add(i, one) s = f32[12] reduce(x, z), dimensions={0}, to_apply=add
  h = f32[4,3] reshape(s) v = f32[3,4] transpose(h), dimensions={1,0} w = f32[2,6] reshape(v)
  b = f32[2,6] add(a, w) ROOT r = (s32[], f32[8,12], f32[2,6]) tuple(k, x, b) }"""
TWICE = """twice { p = (s32[], f32[8,12], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2) ROOT r = pred[] compare(i, n), direction=LT }"""
LARGEST = """largest { p = (s32[], f32[8,12], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0
  x = f32[8,12] get-tuple-element(p), index=1 a = f32[] get-tuple-element(p), index=2 z = f32[] constant(0)
  one = s32[] constant(1) k = s32[] add(i, one) s = f32[12] reduce(x, z), dimensions={0}, to_apply=add
  m = f32[] reduce(s, z), dimensions={0}, to_apply=max b = f32[] add(a, m)
  ROOT r = (s32[], f32[8,12], f32[]) tuple(k, x, b) }"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    check(PROGRAMS[name], None, CYCLE, GREATER, SUM, MAXIMUM, THRICE, RESHAPING, PAIR, TWICE, LARGEST)


def test_a_corner_of_parts_of_both_dimensions():
    # One row of a part, and columns of two: the row alone would be added up, with other columns.
    split = check(
        """x = f32[16,16] parameter(0), sharding={devices=[4,2]<=[8]}
        ROOT r = f32[1,8] slice(x), slice={[3:4],[4:12]}""",
        None,
        partitions=8,
    )
    assert split.num_partitions == 8


# What slices of a padded array fetch: of the array, not of what it is in parts of when it is padded.
SLICES_OF_PADS = {
    "behind": ("pad(x, z), padding=1_1x0_0", 66, "[2:66], [0:4]", {"collective-permute": 1}, 7),
    "before": ("pad(x, z), padding=1_1x0_0", 66, "[0:64], [0:4]", {"collective-permute": 1}, 7),
    "the array": ("pad(x, z), padding=1_1x0_0", 66, "[1:65], [0:4]", {}, 0),
    "of more": ("pad(x, z), padding=0_64x0_0", 128, "[0:64], [0:4]", {}, 0),
    "columns, too": ("pad(x, z), padding=1_1x1_1", 66, "[0:64], [2:6]", {"collective-permute": 1}, 7),
    "less of it": ("pad(x, z), padding=-1_2x0_0", 65, "[1:65], [0:4]", {"collective-permute": 1}, 14),
}


@pytest.mark.parametrize("name", SLICES_OF_PADS)
def test_slices_of_padded_arrays_fetch_from_the_array(name):
    pad, rows, ranges, moves, sent = SLICES_OF_PADS[name]
    columns = 6 if "1_1x1_1" in pad else 4
    split = check(
        f"""x = f32[64,4] parameter(0), sharding={{devices=[8,1]<=[8]}} z = f32[] constant(3)
        p = f32[{rows},{columns}] {pad} ROOT r = f32[64,4] slice(p), slice={{{ranges}}}""",
        moves,
        partitions=8,
    )
    assert sends(split) == sent * 4 / 8


@pytest.mark.parametrize(
    ("pad", "rows", "ranges"),
    [
        ("padding=1_1x0_0", 66, "[1:65:3], [0:4]"),
        ("padding=1_1_1x0_0", 129, "[1:65], [0:4]"),
        ("padding=70_0x0_0", 134, "[0:68], [0:4]"),
        ("padding=0_70x0_0", 134, "[65:134], [0:4]"),
        ("padding=-3_8x0_0", 69, "[60:69], [0:4]"),
        ("padding=2_-60x0_0", 6, "[1:5], [0:4]"),
    ],
)
def test_slices_of_padded_arrays_that_are_no_other_padding_or_hardly(pad, rows, ranges):
    start, limit, *stride = (int(n) for n in ranges.split(",")[0].strip("[]").split(":"))
    taken = len(range(start, limit, *stride))
    check(
        f"""x = f32[64,4] parameter(0), sharding={{devices=[8,1]<=[8]}} z = f32[] constant(3)
        p = f32[{rows},4] pad(x, z), {pad} ROOT r = f32[{taken},4] slice(p), slice={{{ranges}}}""",
        None,
        partitions=8,
    )


def test_a_sum_is_sliced_where_its_parts_are():
    # One all-reduce of a part, and nothing for the slice of it, each part of which has its own.
    check(
        """x = f32[4,8] parameter(0), sharding={devices=[1,2,2]<=[4] last_tile_dim_replicate}
        y = f32[8,4] parameter(1), sharding={devices=[2,2]<=[4]}
        d = f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        c = f32[4,4] custom-call(d), custom_call_target="Sharding",
        sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
        ROOT r = f32[4,2] slice(c), slice={[0:4], [0:4:2]}""",
        {"all-reduce": 1},
    )


@pytest.mark.parametrize("kind", ["f8e8m0fnu", "f8e5m2", "f8e4m3fnuz", "s8", "s4", "f4e2m1fn"])
@pytest.mark.parametrize(
    "body", ["dynamic-slice(x, i, z), dynamic_slice_sizes={1,4}", "slice(x), slice={[9:10],[0:4]}"]
)
def test_rows_of_narrow_types_are_not_added_to_a_zero_that_there_is_not(kind, body):
    module = module_of(
        f"""x = {kind}[16,4] parameter(0), sharding={ROWS} i = s32[] parameter(1), sharding={WHOLE}
        z = s32[] constant(0) ROOT r = {kind}[1,4] {body}"""
    )
    x = (1 + np.arange(64) % 4).reshape(16, 4).astype(module.entry.parameters[0].shape.element_type.dtype)
    found, split = run_split(module, x, np.int32(9))
    np.testing.assert_array_equal(np.asarray(found).astype(np.float32), x[9:10].astype(np.float32))
    if kind == "f8e8m0fnu":
        assert "all-reduce" not in collectives(split)


def test_partial_sums_of_a_type_without_a_zero_are_refused():
    text = f"""x = f8e8m0fnu[4] parameter(0), sharding={WHOLE}
        ROOT r = f8e8m0fnu[4] copy(x), sharding={{unreduced}}"""
    with pytest.raises(xla.UnsupportedError, match="no zero"):
        run_split(module_of(text), np.ones(4).astype(xla.F8E8M0FNU.dtype))


def test_replicas_exchange_parts_as_they_would_the_whole():
    text = f"""HloModule m, replica_count=2, num_partitions=2
    {SUM.replace("s32", "f32")}
    ENTRY e {{ x = f32[4,4] parameter(0), sharding={{devices=[2,1]<=[2]}}
      s = f32[2,4] reduce-scatter(x), replica_groups={{{{0,1}}}}, dimensions={{0}}, to_apply=sum
      t = f32[4,4] all-to-all(x), replica_groups={{{{0,1}}}}, dimensions={{1}}
      u = f32[4,4] all-to-all(x), replica_groups={{{{0,1}}}}, dimensions={{0}}
      b = f32[4,4] collective-broadcast(x), replica_groups={{{{1,0}}}}
      p = f32[4,4] collective-permute(x), source_target_pairs={{{{0,1}},{{1,0}}}}
      ROOT r = (f32[2,4], f32[4,4], f32[4,4], f32[4,4], f32[4,4]) tuple(s, t, u, b, p) }}"""
    module = xla.HloModule.from_text(text)
    split = split_over(module, 2)
    split.verify()
    given = [np.arange(16, dtype=np.float32).reshape(4, 4) * (1 + r) for r in range(2)]
    results = xla.compile(split, backend="interpreter", num_replicas=2).execute_replicated(
        [[x[2 * p :][:2]] for x in given for p in range(2)]
    )
    one = xla.compile(module.replace(num_partitions=1), backend="interpreter", num_replicas=2).execute_replicated(
        [[x] for x in given]
    )
    for replica in range(2):
        for n, (said, wanted) in enumerate(zip(split.spmd_output_sharding.elements, one[replica], strict=True)):
            own = [np.asarray(r[n]) for r in results[2 * replica : 2 * replica + 2]]
            np.testing.assert_array_equal(join(own, said, np.shape(wanted)), wanted, err_msg=str(n))
