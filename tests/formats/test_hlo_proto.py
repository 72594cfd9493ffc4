"""HLO protos: what is read, what is written, and what is refused."""

import dataclasses
import json
import re

import ml_dtypes
import numpy as np
import pytest
from proto_programs import PROGRAMS, constant_module, message, scalar_module

import xlakit as xla
from xlakit.data.layout import Layout
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_shape
from xlakit.errors import FormatError, UnsupportedError
from xlakit.formats.hlo_proto import module_from_json, module_to_json, read_module, schema, write_module
from xlakit.formats.hlo_proto.literals import decode_varints, encode_varints, read_literal, write_literal
from xlakit.formats.hlo_proto.shapes import read_shape, write_shape
from xlakit.formats.hlo_proto.shardings import read_sharding, write_sharding
from xlakit.formats.hlo_text import parse_shape
from xlakit.formats.unique_names import sanitized
from xlakit.ir.attributes import (
    Annotations,
    AxisRef,
    IotaTileAssignment,
    Mesh,
    NamedSharding,
    OpMetadata,
    OriginalValue,
    ReplicaGroups,
    Sharding,
)
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Constant, Parameter

F32 = PrimitiveType.F32


@pytest.fixture(params=PROGRAMS)
def module(request):
    return HloModule.from_text(PROGRAMS[request.param])


def test_what_is_written_is_read_again(module):
    data = write_module(module)
    again = read_module(data)
    assert write_module(again) == data
    assert module_without_names(again.to_text()) == module_without_names(module.to_text())
    assert again.is_scheduled == module.is_scheduled


def module_without_names(text):
    # Names that two computations share get numbers in the proto; the rest of the text must not change.
    return re.sub(r"%[\w.-]+|\b[a-z]\w?(\.\d+)?: ", "%", text.split("ENTRY")[-1].partition("{")[2])


def test_json_says_the_same(module):
    text = module_to_json(module)
    assert write_module(module_from_json(text)) == write_module(module)
    assert json.loads(text)["entry_computation_name"] == module.entry.name


def test_xla_reads_it_as_its_own_parser_reads_the_text(module):
    hlo = pytest.importorskip("jaxlib._hlo")
    text = module.to_text()
    expected = hlo.hlo_module_from_text(text).to_string()
    assert hlo.HloModule.from_serialized_hlo_module_proto(write_module(module)).to_string() == expected


def test_what_xla_writes_is_read(module):
    hlo = pytest.importorskip("jaxlib._hlo")
    theirs = hlo.hlo_module_from_text(module.to_text())
    ours = read_module(theirs.as_serialized_hlo_module_proto())
    ours.verify()
    again = hlo.HloModule.from_serialized_hlo_module_proto(write_module(ours))
    assert again.to_string() == theirs.to_string()


def test_an_outfeed_says_its_shape():
    text = "HloModule m ENTRY e { t = token[] after-all() x = f32[3] parameter(0) ROOT o = token[] outfeed(x, t) }"
    proto = message(HloModule.from_text(text))
    assert read_shape(proto.computations[0].instructions[2].outfeed_shape) == make_shape(F32, (3,))


# -- module fields -------------------------------------------------------------------------------


def test_counts_and_header_survive_where_xla_has_no_field_for_them():
    text = "HloModule m, replica_count=2, num_partitions=3, alias_passthrough_params=true\nENTRY e { ROOT x = f32[] "
    module = HloModule.from_text(text + "constant(1) }")
    again = read_module(write_module(module))
    assert (again.replica_count, again.num_partitions, again.header) == (2, 3, module.header)
    hlo = pytest.importorskip("jaxlib._hlo")
    hlo.HloModule.from_serialized_hlo_module_proto(write_module(module))


def test_a_config_beside_the_module_is_read():
    wrapper = schema.new("HloModuleProtoWithConfig")
    wrapper.hlo_module.ParseFromString(write_module(scalar_module()))
    wrapper.config.replica_count = 4
    wrapper.config.allow_spmd_sharding_propagation_to_output.extend([True, False])
    module = read_module(wrapper.SerializeToString())
    assert module.replica_count == 4
    assert module.header == (("allow_spmd_sharding_propagation_to_output", "{true,false}"),)


def test_fields_without_a_place_are_kept():
    proto = message(scalar_module())
    proto.device_type = "TPU"
    proto.is_dynamic = True
    proto.cross_program_prefetches.add(parameter=1, index=[2], offset=3)
    proto.device_assignment.replica_count = 2
    again = schema.parse("HloModuleProto", write_module(read_module(proto.SerializeToString())))
    assert again.device_type == "TPU"
    assert again.is_dynamic
    assert again.cross_program_prefetches[0].offset == 3
    assert again.device_assignment.replica_count == 2


@pytest.mark.parametrize("wrapper", ["HloProto", "HloUnoptimizedSnapshot", "HloModuleProtoWithConfig"])
def test_wrappers_of_a_module_are_read(wrapper):
    data = write_module(scalar_module())
    outer = schema.new(wrapper)
    outer.hlo_module.ParseFromString(data)
    assert write_module(read_module(outer.SerializeToString())) == data


def test_a_snapshot_is_read():
    data = write_module(scalar_module())
    outer = schema.new("HloSnapshot")
    outer.hlo.hlo_module.ParseFromString(data)
    assert write_module(read_module(outer.SerializeToString())) == data
    assert write_module(module_from_json('{"hlo": {"hloModule": ' + module_to_json(scalar_module()) + "}}")) == data


def test_the_entry_layout_keeps_its_layouts():
    module = HloModule.from_text(PROGRAMS["annotations"])
    again = read_module(write_module(module))
    assert again.entry_computation_layout == module.entry_computation_layout
    assert again.entry_computation_layout.parameters[0].layout == Layout((0, 1))


def test_names_become_unique_in_the_module():
    x = Instruction(Parameter(number=0), (), make_shape(F32, ()), "x")
    y = Instruction(Parameter(number=0), (), make_shape(F32, ()), "x")
    inner = Computation("f", (x,), x)
    call = HloModule.from_text("HloModule m f { ROOT p = f32[] parameter(0) } ENTRY e { ROOT p = f32[] parameter(0) }")
    proto = message(call.replace(computations=(inner,), entry=Computation("f", (y,), y)))
    assert [c.name for c in proto.computations] == ["f", "f.1"]
    assert [i.name for c in proto.computations for i in c.instructions] == ["x", "x.1"]


@pytest.mark.parametrize(
    ("name", "plain"),
    [("a.b-1", "a.b-1"), ("a b", "a_b"), ("1x", "_x"), ("f32", "f32_"), ("__x", "a_x"), ("__xla_x", "__xla_x")],
)
def test_names_are_made_fit_for_text(name, plain):
    assert sanitized(name) == plain


# -- ids -----------------------------------------------------------------------------------------


def test_ids_of_any_size_and_form_are_understood():
    proto = message(HloModule.from_text("HloModule m ENTRY e { x = f32[] parameter(0) ROOT y = f32[] negate(x) }"))
    computation = proto.computations[0]
    x, y = computation.instructions
    # Whole ids, local ids in the references, and ids that have nothing to do with the computation's.
    for ids, operand, root in [((5, 6), 5, 6), ((7 << 32 | 1, 7 << 32 | 2), 1, 2), ((2**63 - 1, 3), 2**63 - 1, 3)]:
        x.id, y.id = ids
        y.operand_ids[0], computation.root_id = operand, root
        module = read_module(proto.SerializeToString())
        assert module.entry.root.operands == (module.entry.instructions[0],)


def test_a_local_id_that_two_instructions_share_is_not_guessed():
    proto = message(HloModule.from_text("HloModule m ENTRY e { x = f32[] parameter(0) ROOT y = f32[] negate(x) }"))
    x, y = proto.computations[0].instructions
    x.id, y.id, proto.computations[0].root_id = 1 << 32 | 4, 2 << 32 | 4, 4
    y.operand_ids[0] = 1 << 32 | 4
    with pytest.raises(FormatError, match="root_id 4"):
        read_module(proto.SerializeToString())


# -- older protos --------------------------------------------------------------------------------


def test_old_comparison_opcodes_are_compare():
    proto = message(HloModule.from_text(PROGRAMS["elementwise"]))
    compare = next(i for i in proto.computations[0].instructions if i.opcode == "compare")
    compare.opcode, compare.comparison_direction, compare.comparison_type = "greater-than", "", ""
    module = read_module(proto.SerializeToString())
    op = next(i.op for i in module.entry.instructions if i.opcode == "compare")
    assert op.direction.name == "GT"


def test_groups_of_every_age_are_read():
    proto = message(HloModule.from_text(PROGRAMS["collectives"]))
    first, second = (i for i in proto.computations[-1].instructions if i.opcode == "all-reduce")
    # The list is in the old field and in the new one; either alone will do.
    assert [list(g.replica_ids) for g in first.replica_groups] == [[0, 1], [2, 3]]
    first.ClearField("replica_groups")
    second.ClearField("replica_groups")
    second.collective_device_list.iota_replica_group_list.CopyFrom(second.iota_collective_device_list)
    second.ClearField("channel_id")
    second.all_reduce_id = 9
    module = read_module(proto.SerializeToString())
    ops = [i.op for i in module.entry.instructions if i.opcode == "all-reduce"]
    assert ops[0].replica_groups == ReplicaGroups.from_lists([[0, 1], [2, 3]])
    assert ops[1].replica_groups.groups == ((0, 2), (1, 3))
    assert ops[1].channel_id == 9
    first.ClearField("replica_group_list")
    first.replica_groups.add(replica_ids=[0, 1, 2, 3])
    module = read_module(proto.SerializeToString())
    assert next(i.op for i in module.entry.instructions if i.opcode == "all-reduce").replica_groups.groups == (
        (0, 1, 2, 3),
    )


def test_groups_on_a_mesh_keep_their_form():
    mesh = Mesh((("x", 2), ("y", 4)))
    groups = ReplicaGroups.from_mesh(mesh, [AxisRef(1, (2, 2)), AxisRef(0)])
    assert groups.groups == ((0, 4, 1, 5), (2, 6, 3, 7))
    module = HloModule.from_text(PROGRAMS["collectives"])

    def change(old, operands):
        op = dataclasses.replace(old.op, replica_groups=groups) if old.opcode == "all-reduce" else old.op
        return old.replace(op=op, operands=operands)

    module = module.replace(entry=module.entry.rebuild(change))
    again = read_module(write_module(module))
    assert next(i.op for i in again.entry.instructions if i.opcode == "all-reduce").replica_groups == groups


def test_shared_payloads_are_looked_up():
    proto = message(HloModule.from_text(PROGRAMS["elementwise"]))
    proto.payloads.extend([b"first", b"second"])
    instruction = proto.computations[0].instructions[1]
    instruction.backend_config_payload.id = 1
    instruction.metadata.metadata_payload.id = 0
    read = read_module(proto.SerializeToString()).entry.instructions[1]
    assert read.annotations.backend_config == "second"
    assert read.annotations.metadata.payload == "first"
    instruction.backend_config_payload.id = 2
    with pytest.raises(FormatError, match="payload 2 is not one of the module's 2"):
        read_module(proto.SerializeToString())


# -- annotations ---------------------------------------------------------------------------------


def test_annotations_survive():
    annotations = Annotations(
        metadata=OpMetadata("t", "n", "f.py", 1, 2, 3, 4, (1, 2), "d", 5, "s", "p\udcff", 6, 7),
        sharding=Sharding("OTHER", (2, 2), (0, 1, 2, 3), last_tile_dims=("MANUAL",), shard_group=("LIKE", 4)),
        frontend_attributes=(("a", "1"), ("b", "2")),
        backend_config="bytes \udcff",
        statistics=(("s", 1.5),),
        statistics_visualized=1,
        origin=OriginalValue((((0,), ("i", (1,))), ((1,), None))),
        parameter_replication=(True, False),
    )
    again = read_module(write_module(scalar_module(annotations)))
    assert again.entry.root.annotations == annotations


@pytest.mark.parametrize(
    "sharding",
    [
        Sharding("REPLICATED", metadata=(OpMetadata(op_name="m"),)),
        Sharding("MAXIMAL", devices=(3,)),
        Sharding("OTHER", (2, 1, 2), iota=IotaTileAssignment((2, 1, 2), (2, 2), (1, 0)), shard_group=("AS", 1)),
        Sharding("TUPLE", elements=(Sharding("MANUAL"), Sharding("OTHER", (2,), (1, 0)))),
        Sharding("OTHER", named=NamedSharding(Mesh(device_ids=(2,)))),
        Sharding(
            "OTHER",
            named=NamedSharding(
                Mesh((("x", 2), ("y", 4)), (), IotaTileAssignment((2, 4), (4, 2), (1, 0))),
                (((AxisRef(0),), True), ((AxisRef(1, (1, 2)),), False)),
                unreduced_axes=(AxisRef(1, (2, 2)),),
                reduction_op="MAX",
            ),
            metadata=(OpMetadata(op_name="m"),),
        ),
    ],
)
def test_shardings_survive(sharding):
    proto = schema.new("OpSharding")
    write_sharding(sharding, proto)
    assert read_sharding(proto) == sharding


def test_a_sharding_on_one_device_is_replicated():
    proto = schema.new("OpSharding", exact=True)
    proto.type = 3
    proto.tile_assignment_dimensions.extend([1, 1])
    proto.tile_assignment_devices.append(0)
    assert read_sharding(proto) == Sharding("REPLICATED")


# -- shapes and literals -------------------------------------------------------------------------


def test_level_types_of_sparse_arrays():
    shape, proto = parse_shape("f32[2,3]{1,0:D(C+,H~)#(u32)}"), schema.new("ShapeProto")
    write_shape(shape, proto)
    assert [
        list(part) for part in (proto.layout.dim_level_types, proto.layout.dim_unique, proto.layout.dim_ordered)
    ] == [
        [1, 3],
        [False, True],
        [True, False],
    ]
    assert read_shape(proto) == shape
    # Without flags, the indices of a level are unique and sorted.
    for flags in (proto.layout.dim_unique, proto.layout.dim_ordered):
        del flags[:]
    assert read_shape(proto) == parse_shape("f32[2,3]{1,0:D(C,H)#(u32)}")
    proto.layout.dim_unique.append(True)
    with pytest.raises(FormatError, match="2 dim_level_types and flags of other numbers"):
        read_shape(proto)


def test_padded_layouts_survive():
    for kind, value in [(F32, 0), (F32, 1), (F32, float("-inf")), (PrimitiveType.S8, 127), (PrimitiveType.S8, None)]:
        shape = Shape(kind, (2, 3), Layout((0, 1), (3, 5), value))
        proto = schema.new("ShapeProto")
        write_shape(shape, proto)
        assert read_shape(proto) == shape
        assert list(proto.layout.padded_dimensions) == [3, 5]
    with pytest.raises(UnsupportedError, match="padding_value 7"):
        write_shape(Shape(F32, (2,), Layout((0,), (3,), 7)), proto)


ARRAYS = [kind for kind in PrimitiveType if kind.is_array]


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1)])
def test_literals_of_every_type_survive(kind, order):
    literal = Literal(make_shape(kind, (2, 3, 4), layout=order), every_kind_of_value(kind).reshape(2, 3, 4))
    proto = schema.new("LiteralProto")
    write_literal(literal, proto)
    data = proto.SerializeToString()
    assert read_literal(schema.parse("LiteralProto", data)) == literal
    # The bytes are those that protobuf makes of the message with the types of the .proto file.
    assert schema.canonical("LiteralProto", data) == data


def every_kind_of_value(kind):
    rng = np.random.default_rng(7)
    if kind is PrimitiveType.PRED:
        return rng.integers(0, 2, 24).astype(bool)
    if kind.is_integral:
        limits = ml_dtypes.iinfo(kind.dtype)
        values = [int(limits.min), int(limits.max), 0, 1] * 6
        return np.array(values, dtype=object).astype(kind.dtype)
    if kind.bit_width < 8:
        return np.arange(24, dtype=np.uint8).astype(np.float32).astype(kind.dtype)
    return rng.integers(0, 256, 24 * kind.byte_width, dtype=np.uint8).view(kind.dtype)


@pytest.mark.parametrize("kind", [k for k in ARRAYS if k.bit_width > 1 and not k.name.startswith("F6")])
def test_xla_reads_literals_of_every_type(kind):
    hlo = pytest.importorskip("jaxlib._hlo")
    values = np.arange(6).reshape(2, 3) % 2 if kind is PrimitiveType.PRED else np.array([[1, 2, 4], [0.5, 1, 4]])
    if kind is PrimitiveType.F8E8M0FNU:
        values = values.clip(0.5)
    with np.errstate(all="ignore"):
        array = values.astype(kind.dtype)
    shape = make_shape(kind, (2, 3), layout=(0, 1))
    root = Instruction(Constant(literal=Literal(make_shape(kind, (2, 3)), array)), (), shape, "c")
    module = HloModule("m", Computation("e", (root,), root))
    text = hlo.HloModule.from_serialized_hlo_module_proto(write_module(module)).to_string()
    assert text == hlo.hlo_module_from_text(module.to_text()).to_string()
    theirs = hlo.hlo_module_from_text(module.to_text()).as_serialized_hlo_module_proto()
    assert np.array_equal(read_module(theirs).entry.root.op.literal.array, array)


def test_dynamic_and_tuple_literals_survive():
    bounded = Shape(F32, (4, 3), Layout((0, 1)), (True, False))
    literal = Literal.make_tuple(
        [Literal(bounded, np.arange(6, dtype=np.float32).reshape(2, 3)), Literal.token(), Literal.make_tuple([])]
    )
    proto = schema.new("LiteralProto")
    write_literal(literal, proto)
    assert list(proto.tuple_literals[0].dynamic_sizes) == [2, 3]
    assert len(proto.tuple_literals[0].f32s) == 48
    assert read_literal(proto) == literal


def test_sub_byte_elements_are_read_with_any_upper_bits():
    proto = schema.new("LiteralProto")
    write_shape(make_shape(PrimitiveType.S4, (3,)), proto.shape)
    proto.s4s = bytes([0x0F, 0xFF, 0x78])
    assert read_literal(proto).array.astype(int).tolist() == [-1, -1, -8]


def test_numbers_in_unusual_encodings_are_read():
    proto = message(constant_module(np.array([1.0, 2.0], np.float32)))
    literal = proto.computations[0].instructions[0].literal
    # Two unpacked floats of field 8: legal, though no writer has produced them for years.
    unpacked = b"".join(b"\x45" + np.float32(v).tobytes() for v in (1.0, 2.0))
    literal.f32s = b""
    literal.MergeFromString(unpacked)
    module = read_module(proto.SerializeToString())
    assert module.entry.root.op.literal.array.tolist() == [1.0, 2.0]


def test_varints():
    values = np.array([0, 1, 127, 128, 300, 2**31, 2**63, 2**64 - 1], dtype=np.uint64)
    data = encode_varints(values)
    assert decode_varints(data).tolist() == values.tolist()
    assert encode_varints(np.array([300], np.uint64)) == b"\xac\x02"
    assert decode_varints(b"").size == 0
    with pytest.raises(ValueError, match="cut off"):
        decode_varints(b"\x01\x80")
    with pytest.raises(ValueError, match="10 bytes"):
        decode_varints(b"\xff" * 11 + b"\x01")


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_large_literals_survive(dtype):
    array = np.arange(-(1 << 20), 1 << 20).astype(dtype)
    again = read_module(write_module(constant_module(array)))
    assert np.array_equal(again.entry.root.op.literal.array, array)


def test_long_chains_are_read():
    shape = make_shape(F32, ())
    op = HloModule.from_text("HloModule m ENTRY e { x = f32[] parameter(0) ROOT y = f32[] negate(x) }").entry.root.op
    instructions = [Instruction(Parameter(number=0), (), shape, "x")]
    for number in range(20_000):
        instructions.append(Instruction(op, (instructions[-1],), shape, f"n.{number}"))
    module = HloModule("m", Computation("e", tuple(instructions), instructions[-1]))
    assert read_module(write_module(module)).instruction_count() == 20_001


def test_layouts_of_instructions_that_are_major_to_minor_can_be_left_out():
    module = HloModule.from_text("""HloModule m
ENTRY main {
  x = f32[2,3]{1,0} parameter(0)
  c = f32[2,3]{1,0} constant({{1,2,3},{4,5,6}})
  s = f32[2,3]{1,0} add(x, c)
  t = f32[2,3]{0,1} copy(s)
  given = f32[2,3]{1,0} custom-call(t), custom_call_target="f"
  ROOT r = (f32[2,3]{1,0}, (f32[2,3]{1,0}, f32[2,3]{0,1})) tuple(given, t)
}""")
    plain = read_module(module.to_proto(), layouts=False)
    assert plain == module
    found = {i.name: i for i in plain.entry.instructions}
    assert {name for name, i in found.items() if i.shape.is_array and i.shape.layout is None} == {"x", "c", "s"}
    assert found["c"].op_as(Constant).literal.shape.layout is None
    # All of a tuple's layouts are said, or none.
    assert found["r"].shape == module.entry.root.shape


CHANNELS = """HloModule m, num_partitions=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] collective-permute(x), channel_id=0, source_target_pairs={{0,1},{1,0}}
  ROOT z = f32[4] all-reduce(y), channel_id=7, replica_groups={{0}}, to_apply=add
}"""


def test_a_channel_of_number_zero_gets_an_unused_one_since_it_is_none_in_a_proto():
    module = HloModule.from_text(CHANNELS)
    again = HloModule.from_proto(module.to_proto())
    assert [i.op.channel_id for i in again.entry.instructions[1:]] == [8, 7]
    arguments = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
    expected, got = (
        xla.compile(m, backend="interpreter").execute_replicated([list(a) for a in arguments]) for m in (module, again)
    )
    np.testing.assert_array_equal(expected, got)


def test_what_a_text_leaves_out_or_says_twice_is_equal_after_a_proto():
    text = """HloModule m, allow_spmd_sharding_propagation_to_output=true
    ENTRY e {
      x = f32[4,4] parameter(0)
      t = token[] after-all()
      o = token[] outfeed(x, t)
      ROOT d = f32[4,4] dot(x, x), operand_precision={default,default}, lhs_contracting_dims={1},
        rhs_contracting_dims={0}
    }"""
    module = HloModule.from_text(text)
    assert HloModule.from_proto(module.to_proto()) == module
    assert HloModule.from_text(module.to_text()) == module
    assert HloModule.from_text(text.replace("operand_precision={default,default}, ", "")) == module


@pytest.mark.parametrize("field", ["name", "execution_thread"])
def test_names_of_computations_that_are_not_unicode_are_refused(field):
    module = scalar_module()
    entry = dataclasses.replace(module.entry, **{field: "a\udcff"})
    with pytest.raises(FormatError, match=r"computation .* cannot be written as a proto"):
        write_module(module.with_entry(entry))
