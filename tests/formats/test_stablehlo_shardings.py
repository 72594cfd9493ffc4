"""Programs of several devices in StableHLO's bytecode: read without jaxlib, they are split as jaxlib's HLO is."""

import pytest

from xlakit.formats.hlo_proto import read_module
from xlakit.formats.stablehlo import _context
from xlakit.formats.stablehlo.bytecode import ForeignProgram
from xlakit.formats.stablehlo.modules import read_artifact
from xlakit.ir.attributes import Sharding
from xlakit.passes.analysis.traffic import traffic
from xlakit.passes.spmd import split_over
from xlakit.passes.spmd.shardings.annotations import Annotations, of_leaves

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
lax = pytest.importorskip("jax.lax")
mlir = pytest.importorskip("jaxlib._jax").mlir
dialect = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
ir = pytest.importorskip("jaxlib.mlir.ir")

DEVICES = 8
VERSION = dialect.get_current_version()
P = jax.sharding.PartitionSpec
MESH = jax.sharding.AbstractMesh((4, 2), ("x", "y"), (jax.sharding.AxisType.Auto,) * 2)


def placed(*axes):
    return jax.sharding.NamedSharding(MESH, P(*axes))


def constrained(a, b):
    a = lax.with_sharding_constraint(a, placed("x", P.UNCONSTRAINED))
    return a @ b, lax.with_sharding_constraint(a.T.T + 1, placed(("y", "x")))


def manual(a, b):
    def part(a, b):
        def body(n, y):
            return lax.ppermute(lax.psum(y, "x"), "x", [(0, 1), (1, 2)]) + n

        blocks = lax.all_to_all(a, "x", 0, 1, tiled=True), lax.all_to_all(a, "x", 1, 0, tiled=True)
        sums = lax.psum_scatter(b, "x", tiled=True), lax.pmax(b, ("x", "y")), lax.all_gather(b, "y", axis=1, tiled=True)
        return lax.fori_loop(0, 3, body, a) * lax.axis_index("x"), blocks, sums

    out = P("x"), (P("x"), P("x")), (P("x", "y"), P(), P("x"))
    return jax.shard_map(part, mesh=MESH, in_specs=(P("x"), P("x", "y")), out_specs=out, check_vma=False)(a, b)


def manual_in_part(a, b):
    def part(a):
        return lax.psum(a, "y")

    return jax.shard_map(part, mesh=MESH, in_specs=P("y"), out_specs=P(), axis_names={"y"})(a + b)


def made_inside(a, b):
    made = jax.shard_map(
        lambda: (jnp.ones((2, 8)), jnp.zeros(3)), mesh=MESH, in_specs=(), out_specs=(P("x"), P()), check_vma=False
    )()
    return made, a, b


def with_nothing(a, b):
    """Empty parts of a concatenation, and a transpose of a transpose that partial sums pass."""
    product = jnp.concatenate([a[:0], a.T @ b, b[:0]])
    return lax.with_sharding_constraint(product.T.T + a, placed())


def lowered(function, **options):
    argument = jax.ShapeDtypeStruct((32, 32), jnp.float32, sharding=placed("x"))
    traced = jax.jit(function, **options).trace(argument, argument)
    module = traced.lower(lowering_platforms=("cpu",)).compiler_ir()
    return dialect.serialize_portable_artifact(module, VERSION, True)


def by_jaxlib(data):
    computation = mlir.mlir_module_to_xla_computation(data, use_tuple_args=False, return_tuple=False)
    return read_module(computation.as_serialized_hlo_module_proto(), layouts=False)


def outline(module):
    """What a device sends, and how arguments and results are split."""
    module.verify()
    split = split_over(module, DEVICES, 1)
    moved = sorted((t.opcode, str(t.shape), t.sent, t.times) for t in traffic(split))
    shapes = split.entry.program_shape
    return moved, shapes.parameters, shapes.result, split.spmd_parameters_shardings, split.spmd_output_sharding


@pytest.mark.parametrize("function", [constrained, manual, manual_in_part, made_inside, with_nothing])
@pytest.mark.parametrize("results", [None, placed("y"), placed(("x", "y"))])
def test_a_program_is_split_as_the_one_of_jaxlib(function, results):
    if results is not None and function in (manual, made_inside):
        pytest.skip("its results have several ranks")
    data = lowered(function, donate_argnums=0, **({} if results is None else {"out_shardings": results}))
    ours = read_artifact(data)
    assert ours.num_partitions == DEVICES
    assert outline(ours) == outline(by_jaxlib(data))
    assert ours.buffer_donor == by_jaxlib(data).buffer_donor


TEXT = """module @m attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  sdy.mesh @"an other" = <["x"=4, "y"=2], device_ids=[0, 2, 1, 3, 4, 5, 6, 7]>
  sdy.mesh @one = <[], device_ids=[3]>
  func.func public @main(
      %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(2)2, ?}p2, {}], replicated={"y"}>},
      %b: tensor<8x8xi8> {sdy.sharding = #sdy.sharding<@"an other", [{}, {"y", "x"}]>},
      %c: tensor<8x8xcomplex<f32>> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {}], unreduced={"x", "y"}>},
      %d: tensor<8x8xi1> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}], unreduced={"y"}>},
      %e: tensor<8x8xf32>) -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {?}], unreduced={"x"}>},
      tensor<8x8xi8>, tensor<8x8xf32>) {
    sdy.sharding_group %a group_id=21 : tensor<8x8xf32>
    %0 = sdy.propagation_barrier %a allowed_direction=BACKWARD : tensor<8x8xf32>
    %1:2 = stablehlo.custom_call @own(%0) {sdy.sharding = #sdy.sharding_per_value<[<@one, []>, <@one, []>]>}
      : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xi8>)
    return %1#0, %1#1, %e : tensor<8x8xf32>, tensor<8x8xi8>, tensor<8x8xf32>
  }
}
"""


def said(module):
    """Meshes, and by instruction what is said of its sharding: as text, and as devices with their parts."""
    annotations = Annotations(module, DEVICES)

    def parts(sharding: Sharding | None, rank: int):
        return sharding and (sharding.kind, annotations.splits(sharding, rank), annotations.unreduced(sharding))

    found = [
        (i.opcode, str(i.op), i.annotations.frontend_attributes, [parts(s, 2) for s in of_leaves(i)])
        for i in module.entry.instructions
        if i.opcode not in ("get-tuple-element", "reshape")
    ]
    return dict(module.frontend_attributes)["xla.sdy.meshes"], sorted(found, key=str)


def test_all_that_shardy_says_is_read():
    data = mlir.serialize_portable_artifact(ir.Module.parse(TEXT, _context()), VERSION, True)
    ours, theirs = said(read_artifact(data)), said(by_jaxlib(data))
    assert ours == theirs


def test_replicas_exchange_what_they_have():
    text = """module @m attributes {mhlo.num_replicas = 4 : i32} {
  func.func public @main(%a: tensor<2xf32>) -> tensor<8xf32> {
    %0 = "stablehlo.all_gather"(%a)
      <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}>
      : (tensor<2xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""
    data = mlir.serialize_portable_artifact(ir.Module.parse(text, _context()), VERSION, True)
    module = read_artifact(data)
    assert module.replica_count == 4
    assert module.entry.root.op == by_jaxlib(data).entry.root.op


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "a sharding of vhlo.add",
            '%0 = stablehlo.add %a, %a {sdy.sharding = #sdy.sharding_per_value<[<@m, [{"x"}]>]>}',
        ),
        ("mhlo.sharding", '%0 = stablehlo.custom_call @own(%a) {mhlo.sharding = "{replicated}"}'),
    ],
)
def test_other_shardings_are_left_to_jaxlib(what, said):
    text = f"""module @m attributes {{mhlo.num_partitions = 8 : i32}} {{
  sdy.mesh @m = <["x"=8]>
  func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
    {said} : {"(tensor<8xf32>) -> tensor<8xf32>" if "call" in said else "tensor<8xf32>"}
    return %0 : tensor<8xf32>
  }}
}}
"""
    data = mlir.serialize_portable_artifact(ir.Module.parse(text, _context()), VERSION, True)
    with pytest.raises(ForeignProgram, match=what):
        read_artifact(data)
