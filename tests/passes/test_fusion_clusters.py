"""The examples of the pages on fusion: which members a cluster has, and through which views they are read."""

import pytest

import xlakit as xla
from xlakit.passes.fusion.cluster import Cluster
from xlakit.passes.fusion.fusible import Domain
from xlakit.passes.fusion.views import Loops, Span
from xlakit.passes.pipeline import run_pipeline


def _cluster(text, *joining):
    """A cluster of the root and what joins it, and the instructions by name."""
    entry = xla.HloModule.from_text(text).entry
    by_name = {i.name: i for i in entry.instructions}
    cluster = Cluster(entry.root, Loops(), {})
    for name in joining:
        users = [m for m in cluster.members if by_name[name] in m.operands]
        assert cluster.join(by_name[name], users, cluster.demand_of(users, by_name[name]))
    return cluster, by_name


_SLICES = """ENTRY main {
  x = f32[8] parameter(0)
  a = f32[8] exponential(x)
  low = f32[4] slice(a), slice={[0:4]}
  high = f32[4] slice(a), slice={[%d:%d]}
  ROOT sum = f32[4] add(low, high)
}"""


def test_what_is_read_through_two_views_is_emitted_twice():
    cluster, i = _cluster(_SLICES % (4, 8), "high", "low", "a")
    ((own,),) = cluster.members[i["sum"]].demand.views
    loop = own.loop
    assert (own, loop.dimension) == (Span(0, 1, 4, loop), 0)
    assert cluster.members[i["low"]].demand == cluster.members[i["sum"]].demand
    assert set(cluster.members[i["a"]].demand.views) == {(Span(0, 1, 4, loop),), (Span(4, 1, 4, loop),)}
    assert cluster.members[i["a"]].demand.emissions == 2


def test_readers_with_one_view_share_a_value():
    cluster, i = _cluster(_SLICES % (0, 4), "high", "low", "a")
    assert cluster.members[i["a"]].demand == cluster.members[i["sum"]].demand
    assert cluster.operands == {i["x"]}


def test_a_reduction_joins_what_reads_its_rows():
    text = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[8,128] parameter(0)
  zero = f32[] constant(0)
  top = f32[8] reduce(x, zero), dimensions={1}, to_apply=add
  wide = f32[8,128] broadcast(top), dimensions={0}
  ROOT below = f32[8,128] subtract(x, wide)
}"""
    cluster, i = _cluster(text, "wide", "top")
    domains = {name: cluster.members[i[name]].domain for name in ("below", "wide", "top")}
    assert domains == {"below": Domain.ELEMENT, "wide": Domain.ELEMENT, "top": Domain.ROW}
    assert (cluster.sizes, cluster.reduced, cluster.operands) == ((8, 128), {1}, {i["x"]})


_NESTED_SUMS = """
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
most {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }}
ENTRY main {{
  p = f32[{1},8] parameter(0)
  zero = f32[] constant(0)
  x = f32[{1},16,8] broadcast(p), dimensions={{0,2}}
  c = f32[16,8] parameter(1)
  y = f32[{1},16,8] broadcast(c), dimensions={{1,2}}
  d = f32[{1},16,8] subtract(x, y)
  z = f32[{1},16,8] {0}(d)
  sums = f32[{1},16] reduce(z, zero), dimensions={{2}}, to_apply=add
  ROOT r = f32[{1}] reduce(sums, zero), dimensions={{1}}, to_apply=most
}}"""


@pytest.mark.parametrize(("opcode", "points", "kernels"), [("abs", 5000, 1), ("abs", 100, 2), ("exponential", 5000, 2)])
def test_short_operations_of_large_arrays_are_written_more_often_inside_of_reductions(opcode, points, kernels):
    entry = run_pipeline(xla.HloModule.from_text(_NESTED_SUMS.format(opcode, points))).entry
    assert sum(i.opcode == "fusion" for i in entry.instructions) == kernels


def test_elements_behind_a_transpose_are_in_another_order_than_the_domain():
    text = """ENTRY main {
  x = f32[128,8] parameter(0)
  a = f32[128,8] exponential(x)
  moved = f32[8,128] transpose(a), dimensions={1,0}
  ROOT y = f32[8,128] negate(moved)
}"""
    cluster, i = _cluster(text, "moved", "a")
    assert cluster.members[i["moved"]].domain is Domain.ELEMENT
    assert cluster.members[i["a"]].domain is None


def test_functions_of_the_sums_of_many_short_rows_are_computed_apart():
    text = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[%d,%d] parameter(0)
  zero = f32[] constant(0)
  sum = f32[%d] reduce(x, zero), dimensions={1}, to_apply=add
  ROOT log = f32[%d] log(sum)
}"""
    for rows, length, joins in ((4096, 32, False), (8, 32, True), (4096, 1000, True)):
        cluster, i = _cluster(text % (rows, length, rows, rows))
        assert cluster.join(i["sum"], [i["log"]], cluster.demand_of([i["log"]], i["sum"])) == joins


_JOINED = """ENTRY main {
  x = f32[4096] parameter(0)
  i = s32[8192,1] parameter(1)
  a = f32[1,4096] exponential(f32[1,4096] reshape(x))
  b = f32[1,4096] tanh(f32[1,4096] reshape(x))
  both = f32[2,4096] concatenate(a, b), dimensions={0}
  line = f32[8192] reshape(both)
  ROOT r = %s
}"""
_GATHER = (
    "f32[8192] gather(line, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1}"
)


@pytest.mark.parametrize("root", [_GATHER, "f32[7000] slice(line), slice={[100:7100]}"])
def test_where_no_loop_is_cut_each_part_is_computed_for_all_elements(root):
    cluster, i = _cluster(_JOINED % root, "line", "both")
    assert [cluster.demand_of([i["both"]], i[name]).computed for name in "ab"] == [8192, 8192]


def test_where_loops_are_cut_each_part_is_computed_once():
    cluster, i = _cluster(_JOINED % "f32[8192] negate(line)", "line", "both")
    assert [cluster.demand_of([i["both"]], i[name]).computed for name in "ab"] == [4096, 4096]


def test_parts_that_a_gather_reads_are_stored_before_it():
    after = run_pipeline(xla.HloModule.from_text(_JOINED % _GATHER))
    assert sum(i.opcode == "fusion" for i in after.entry.instructions) == 2


def test_where_few_elements_are_gathered_so_many_are_computed():
    cluster, i = _cluster(_JOINED.replace("8192,1]", "40,1]") % _GATHER.replace("8192", "40"), "line", "both")
    assert [cluster.demand_of([i["both"]], i[name]).computed for name in "ab"] == [40, 40]


def test_elements_that_lie_apart_count_as_those_between_them():
    # An exponential that is computed for every other element takes as long as one of all of them.
    cluster, i = _cluster(
        """ENTRY main {
  x = f32[4096,128] parameter(0)
  y = f32[4096,128] exponential(x)
  pairs = f32[4096,64,2] reshape(y)
  even = f32[4096,64,1] slice(pairs), slice={[0:4096], [0:64], [0:1]}
  odd = f32[4096,64,1] slice(pairs), slice={[0:4096], [0:64], [1:2]}
  ROOT r = f32[4096,64,1] multiply(even, odd)
}""",
        "even",
        "odd",
        "pairs",
    )
    demand = cluster.demand_of([i["pairs"]], i["y"])
    assert (len(demand.views), demand.computed) == (2, 4096 * 128)


def test_what_a_collective_waits_for_is_not_computed_with_what_reads_it():
    # Both read x in one loop; merged they would need the collective, which needs one of them.
    after = run_pipeline(
        xla.HloModule.from_text(
            """
HloModule m, num_partitions=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY main {
  x = f32[64] parameter(0)
  w = f32[64] parameter(1)
  before = f32[64] negate(x)
  total = f32[64] all-reduce(w), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add,
    control-predecessors={before}
  ROOT r = f32[64] subtract(x, total)
}"""
        )
    )
    opcodes = [i.opcode for i in after.entry.instructions if i.opcode != "parameter"]
    assert opcodes == ["negate", "all-reduce", "subtract"]
