"""Slices of concatenations: stencils over padded arrays send the rows at the edges of parts, and nothing else."""

import pytest
from split_programs import ROWS, check, collectives, module_of, sends

from xlakit.passes.core.framework import PassContext
from xlakit.passes.spmd.joined_slices import without_joined_slices

_PADDED = """pad { u = f32[16,6] parameter(0)
  first = f32[1,6] slice(u), slice={[0:1], [0:6]}
  f1 = f32[1,1,6] reshape(first)
  f2 = f32[1,6] reshape(f1)
  last = f32[1,6] slice(u), slice={[15:16], [0:6]}
  rows = f32[18,6] concatenate(f2, u, last), dimensions={0}
  left = f32[18,1] slice(rows), slice={[0:18], [0:1]}
  right = f32[18,1] slice(rows), slice={[0:18], [5:6]}
  ROOT p = f32[18,8] concatenate(left, rows, right), dimensions={1} }"""
_NEIGHBORS = """a = f32[16,6] slice(p), slice={[0:16], [1:7]}
  b = f32[16,6] slice(p), slice={[2:18], [1:7]}
  c = f32[16,6] slice(p), slice={[1:17], [0:6]}
  d = f32[16,6] slice(p), slice={[1:17], [2:8]}
  ab = f32[16,6] add(a, b)
  cd = f32[16,6] subtract(c, d)
  ROOT r = f32[16,6] add(ab, cd)"""
_X = f"x = f32[16,6] parameter(0), sharding={ROWS}"


def test_a_stencil_over_padded_edges_sends_one_row_each_way():
    split = check(f"{_X} p = f32[18,8] call(x), to_apply=pad {_NEIGHBORS}", None, _PADDED)
    assert set(collectives(split)) == {"collective-permute"}
    assert sends(split) == 2 * 3 * 6 / 4


@pytest.mark.parametrize(
    ("parts", "sent"),
    [
        # The array wraps around: every device sends a row.
        ("a = f32[1,6] slice(x), slice={[15:16], [0:6]} j = f32[17,6] concatenate(a, x), dimensions={0}", 6),
        # What is pushed in at the end.
        ("y = f32[1,6] constant({{1,2,3,4,5,6}}) j = f32[17,6] concatenate(y, x), dimensions={0}", 3 * 6 / 4),
    ],
)
def test_an_array_that_moves_on_by_a_row(parts, sent):
    split = check(f"{_X} {parts} ROOT r = f32[16,6] slice(j), slice={{[0:16], [0:6]}}", None)
    assert sends(split) == sent


@pytest.mark.parametrize(
    "body",
    [
        # A sharding of its own, another user, a stride, and slices as long as no piece.
        f"{_X} j = f32[32,6] concatenate(x, x), dimensions={{0}}, sharding={ROWS} "
        "ROOT r = f32[16,6] slice(j), slice={[8:24], [0:6]}",
        f"{_X} j = f32[32,6] concatenate(x, x), dimensions={{0}} n = f32[32,6] negate(j) "
        "a = f32[16,6] slice(j), slice={[8:24], [0:6]} ROOT r = (f32[32,6], f32[16,6]) tuple(n, a)",
        f"{_X} j = f32[32,6] concatenate(x, x), dimensions={{0}} ROOT r = f32[16,6] slice(j), "
        "slice={[0:32:2], [0:6]}",
        f"{_X} j = f32[32,6] concatenate(x, x), dimensions={{0}} ROOT r = f32[20,6] slice(j), "
        "slice={[8:28], [0:6]}",
        # A roll along both dimensions, of a row of something larger: by their form slices of it are known as a roll's.
        "y = f32[2,16,6] parameter(0), sharding={devices=[1,4,1]<=[4]} s = f32[1,16,6] slice(y), "
        "slice={[1:2], [0:16], [0:6]} x = f32[16,6] reshape(s) "
        "a = f32[15,6] slice(x), slice={[1:16], [0:6]} b = f32[1,6] slice(x), slice={[0:1], [0:6]} "
        "j = f32[16,6] concatenate(a, b), dimensions={0} c = f32[16,5] slice(j), slice={[0:16], [1:6]} "
        "d = f32[16,1] slice(j), slice={[0:16], [0:1]} ROOT r = f32[16,6] concatenate(c, d), dimensions={1}",
    ],
)  # fmt: skip
def test_other_concatenations_stay(body):
    module = module_of(body)
    changed = without_joined_slices(module, PassContext())
    assert [i.opcode for i in changed.entry.instructions] == [i.opcode for i in module.entry.instructions]
    check(body, None)
