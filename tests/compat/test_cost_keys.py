"""Costs that xla_client tells, with those of each operand. What is expected is what jaxlib 0.6.0 answers."""

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

ops, xe = xc.ops, xc._xla


def cost(build, *shapes):
    builder = xc.XlaBuilder("cost_keys")
    build(builder, *(ops.Parameter(builder, number, xc.Shape(shape)) for number, shape in enumerate(shapes)))
    return xe.hlo_module_cost_analysis(xc.make_cpu_client(), builder.build().as_hlo_module())


def keys(total, out, *operands, **others):
    """The costs of bytes, and of pairs of bytes and utilization by operand."""
    found = {"bytes accessed": total, "bytes accessedout{}": out, **others}
    for number, (size, share) in enumerate(operands):
        found[f"bytes accessed{number}{{}}"], found[f"utilization{number}{{}}"] = size, share
    return pytest.approx({name: value for name, value in found.items() if value})


@pytest.mark.parametrize(
    ("build", "shapes", "expected"),
    [
        (lambda b, x: ops.Mul(x, x), ["s32[1]"], keys(12, 4, (4, 1), (4, 1), flops=1)),
        (lambda b, x: ops.Tuple(b, [ops.Exp(x), ops.Constant(b, np.int8(3))]), ["f32[2]"],
         keys(32, 24, (8, 2), (0, 1), transcendentals=2)),
        (lambda b, x: ops.Transpose(x, [1, 2, 0]), ["pred[3,5,1]"], keys(0, 0, (0, 1))),
        (lambda b, x: ops.Slice(x, [1, 2], [2, 3], [1, 3]), ["u32[3,3]"], keys(8, 4, (4, 1 / 9))),
        (lambda b, x, y, z, w: ops.DynamicSlice(x, [y, z, w], [3, 3, 1]), ["c128[4,3,2]", *["u64[]"] * 3],
         keys(296, 144, (144, 9 / 24), *[(8, 1)] * 3)),
        (lambda b, x, y, z: ops.DynamicUpdateSlice(x, y, [z]), ["u8[5]", "u8[1]", "s16[]"],
         keys(4, 1, (0, 0.8), (1, 1), (2, 1))),
        (lambda b, x: ops.Cholesky(x), ["f64[4,4]"], keys(128, 64, (64, 1), flops=21)),
        (lambda b, x, y: ops.TriangularSolve(x, y, True, False, False, ops.TriangularSolveOptions_Transpose.ADJOINT),
         ["f64[4,4]", "f64[4,2]"], keys(192, 64, (64, 1), (64, 1), flops=64)),
        (lambda b, x: ops.Fft(x, xc.FftType.IRFFT, [6, 6]), ["c128[6,4]"], keys(672, 288, (384, 1), flops=768)),
        (lambda b, x: ops.Sort(b, [x], dimension=1), ["u8[4,5,2]"], keys(80, 40, (40, 1), flops=240)),
        (lambda b, x: ops.BitcastConvertType(x, xc.PrimitiveType.S32), ["f32[5,2]"], keys(80, 40, (40, 1), flops=10)),
        (lambda b, x: ops.OptimizationBarrier(x), ["f32[1]"], keys(8, 4, (4, 1))),
        (lambda b, x: ops.Add(x, x), ["f32[0]"], keys(0, 0, (0, 1), (0, 1))),
    ],
)  # fmt: skip
def test_costs_of_single_instructions(build, shapes, expected):
    assert cost(build, *shapes) == expected


def test_costs_of_loops_and_branches():
    scalar = xc.Shape("s32[]")
    made = {}
    for name, function in (("less", lambda b, x: ops.Lt(x, ops.Constant(b, np.int32(20)))),
                           ("twice", lambda b, x: ops.Add(x, x)), ("minus", lambda b, x: ops.Neg(x))):  # fmt: skip
        builder = xc.XlaBuilder(name)
        function(builder, ops.Parameter(builder, 0, scalar))
        made[name] = builder.build()
    loop = cost(lambda b, x: ops.While(made["less"], made["twice"], x), "s32[]")
    assert loop == keys(21, 5, (8, 2), (8, 2), flops=2)
    branches = [made["twice"], made["minus"]]
    chosen = cost(lambda b, i, x: ops.Conditional(i, branches, [x, x]), "s32[]", "s32[]")
    assert chosen == keys(12, 4, (4, 1), (4, 1), flops=1)


def test_costs_of_a_fusion_are_those_of_its_operands():
    builder = xc.XlaBuilder("cost_fused")
    x = ops.Parameter(builder, 0, xc.Shape("f32[64]"))
    executable = xc.make_cpu_client().compile(builder.build(ops.Neg(ops.Add(x, ops.Exp(x)))))
    found = executable.cost_analysis()
    assert found == keys(512, 256, (256, 1), flops=128, transcendentals=64)
