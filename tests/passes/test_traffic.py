"""What devices send each other: loops with their iterations, branches, groups, and what is printed of it."""

import pytest

import xlakit as xla
from xlakit.passes.analysis.traffic import as_text, traffic
from xlakit.tools.inspect import inspect

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"


def of(text):
    return xla.HloModule.from_text(f"HloModule m, num_partitions=4\n{ADD}\n{text}")


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add", 48),
        ("all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add", 32),
        ("collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3}}", 24),
        ("collective-permute(x), channel_id=1, source_target_pairs={{0,0},{1,2},{2,1},{3,3}}", 16),
    ],
)
def test_what_a_collective_sends(text, sent):
    (found,) = traffic(of(f"ENTRY e {{ x = f32[8] parameter(0) ROOT r = f32[8] {text} }}"))
    assert (found.total, found.times, found.shape) == (sent, 1, "f32[8]")


def test_loops_count_with_their_iterations():
    body = (
        "body { p = (s32[], f32[8]) parameter(0) n = s32[] get-tuple-element(p), index=0 one = s32[] constant(1) "
        "x = f32[8] get-tuple-element(p), index=1 m = s32[] add(n, one) "
        "s = f32[8] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add "
        "ROOT t = (s32[], f32[8]) tuple(m, s) }"
    )
    test = (
        "test { p = (s32[], f32[8]) parameter(0) n = s32[] get-tuple-element(p), index=0 c = s32[] constant(5) "
        "ROOT l = pred[] compare(n, c), direction=LT }"
    )
    entry = (
        "ENTRY e { x = f32[8] parameter(0) z = s32[] constant(0) t = (s32[], f32[8]) tuple(z, x) "
        "ROOT w = (s32[], f32[8]) while(t), condition=test, body=body }"
    )
    (found,) = traffic(of("\n".join([body, test, entry])))
    assert (found.sent, found.times, found.total) == (48, 5, 240)


def test_the_view_says_what_needs_a_collective():
    split = "x = f32[8,8] parameter(0), sharding={devices=[4,1]<=[4]} z = f32[] constant(0) "
    metadata = 'metadata={op_name="jit(f)/sum" source_file="a.py" source_line=7}'
    reduced = f"ROOT r = f32[8] reduce(x, z), dimensions={{0}}, to_apply=add, sharding={{replicated}}, {metadata}"
    text = inspect(of(f"ENTRY e {{ {split}{reduced} }}"), "collectives", {})
    assert "all-reduce" in text
    assert "jit(f)/sum" in text
    assert "a.py:7" in text
    assert text.endswith("a device sends 48 bytes in 1 collectives\n")
    assert as_text([]) == "devices send each other nothing"
