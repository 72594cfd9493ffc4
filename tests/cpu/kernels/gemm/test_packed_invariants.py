"""The slivers in which a pass packs a loop's invariant matrices are those that the kernel of the product reads."""

import pytest

import xlakit as xla
from xlakit.cpu.kernels.dot.dot import plan_dot
from xlakit.ops.dot import Dot
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline

TEXT = """HloModule recurrence
body { s = (s32[], KIND[ROWS,128], KIND[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0 h = KIND[ROWS,128] get-tuple-element(s), index=1
  w = KIND[128,128] get-tuple-element(s), index=2 one = s32[] constant(1) j = s32[] add(i, one)
  d = KIND[ROWS,128] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (s32[], KIND[ROWS,128], KIND[128,128]) tuple(j, d, w) }
more { s = (s32[], KIND[ROWS,128], KIND[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0 n = s32[] constant(40) ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { h = KIND[ROWS,128] parameter(0) w = KIND[128,128] parameter(1) zero = s32[] constant(0)
  t = (s32[], KIND[ROWS,128], KIND[128,128]) tuple(zero, h, w)
  l = (s32[], KIND[ROWS,128], KIND[128,128]) while(t), condition=more, body=body
  ROOT r = KIND[ROWS,128] get-tuple-element(l), index=1 }"""


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("rows", [5, 8, 33])
def test_packed_matrices_are_read_in_place(rows, kind, width):
    text = TEXT.replace("KIND", kind).replace("ROWS", str(rows))
    with compiling(vector_bytes=width):
        module = run_pipeline(xla.HloModule.from_text(text), ["pack-invariants"])
        (dot,) = (i for c in module.computations for i in c.instructions if isinstance(i.op, Dot))
        lhs, rhs = (o.shape for o in dot.operands)
        assert rhs.rank == 3
        blocking = plan_dot(dot.op_as(Dot), lhs, rhs, dot.shape).blocking
    assert blocking is not None
    assert not blocking.packs[1]
