"""HLO protos that are damaged: what is refused, and how."""

import numpy as np
import pytest
from proto_programs import PROGRAMS, constant_module, message, scalar_module

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_shape, make_tuple_shape
from xlakit.errors import FormatError, ShapeError, XlakitError
from xlakit.formats.hlo_proto import module_from_json, read_module, schema, write_module
from xlakit.formats.hlo_proto.literals import encode_varints
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Parameter

F32 = PrimitiveType.F32


def _set(path, value):
    """A change of one field of the entry's instruction ``path[0]``."""

    def change(computation):
        target = computation.instructions[path[0]]
        for name in path[1:-1]:
            target = getattr(target, name)
        field = getattr(target, path[-1])
        if hasattr(field, "extend"):
            del field[:]
            field.extend(value)
        else:
            setattr(target, path[-1], value)

    return change


def _clear(index, name):
    return lambda computation: computation.instructions[index].ClearField(name)


def _broken_tiles(computation):
    computation.instructions[0].sharding.type = 3
    computation.instructions[0].sharding.tile_assignment_dimensions.append(-1)


DAMAGES = {
    "unknown opcode": (_set((0, "opcode"), "frobnicate"), "opcode 'frobnicate'"),
    "no opcode": (_set((1, "opcode"), ""), "opcode ''"),
    "no name": (_set((1, "name"), ""), "name is missing"),
    "no shape": (_clear(1, "shape"), "shape: is missing"),
    "element type": (_set((1, "shape", "element_type"), 99), "shape: element_type 99"),
    "negative size": (_set((0, "shape", "dimensions"), [-5, 2]), "shape: dimension size -5"),
    "huge sizes": (_set((0, "shape", "dimensions"), [2**62, 2**62]), "shape: .*more bytes"),
    "layout": (_set((0, "shape", "layout", "minor_to_major"), [0, 0]), "shape: minor_to_major"),
    "layout's rank": (_set((0, "shape", "layout", "minor_to_major"), [0]), "shape: layout"),
    "dynamic marks": (_set((0, "shape", "is_dynamic_dimension"), [True]), "is_dynamic_dimension has 1"),
    "operand": (_set((2, "operand_ids"), [0, 77]), "operand_ids: 77"),
    "itself as operand": (_set((2, "operand_ids"), [2, 1]), "operand_ids: 2"),
    "operand count": (_set((2, "operand_ids"), [0]), "operand_ids: pad takes 2 operands, got 1"),
    "predecessor": (_set((2, "control_predecessor_ids"), [9]), "control_predecessor_ids: 9"),
    "computation": (_set((2, "called_computation_ids"), [9]), "called_computation_ids: 9"),
    "no padding": (_clear(2, "padding_config"), "padding_config is missing"),
    "short data": (_set((1, "literal", "f32s"), b"123"), "literal: f32s holds 3 bytes, too few"),
    "much data": (_set((1, "literal", "f32s"), b"12345678"), "literal: f32s holds 2 elements"),
    "big promise": (_set((1, "literal", "shape", "dimensions"), [2**40]), "literal: "),
    "sharding": (_set((0, "sharding", "type"), 55), "sharding: type has no meaning for 55"),
    "tiles": (_broken_tiles, "sharding: .*do not hold 0 devices"),
    "same id": (_set((1, "id"), 0), "id 0 is that of"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(damage):
    module = HloModule.from_text(
        "HloModule m ENTRY main { x = f32[2,3] parameter(0) z = f32[] constant(1) ROOT p = f32[4,3] "
        "pad(x, z), padding=1_1x0_0 }"
    )
    proto = message(module)
    change, expected = DAMAGES[damage]
    change(proto.computations[0])
    with pytest.raises((FormatError, ShapeError), match=expected) as caught:
        read_module(proto.SerializeToString())
    assert "main" in caught.value.operation


_ANNOTATED = """HloModule m

negated {
  q = f32[4] parameter(0)
  ROOT n = f32[4] negate(q)
}

ENTRY main {
  i = s32[] parameter(0)
  p = (f32[4], f32[4]) parameter(1), origin={({"p" {0}}, {"p" {1}})}
  x = f32[4] get-tuple-element(p), index=0, statistics={visualizing_index=0,count=2}
  s = f32[4,4]{1,0:D(D,C)} parameter(2)
  c = f32[4] custom-call(x), custom_call_target="f", dim_labels=b0f_0io->b0f
  ROOT r = f32[4] conditional(i, c), branch_computations={negated}
}
"""


def _origin(indices):
    def change(instruction):
        elements = instruction.original_value.elements
        for element, index in zip(elements, indices, strict=True):
            del element.shape_index[:]
            element.shape_index.extend(index)

    return change


def _label(name, value):
    return lambda instruction: setattr(instruction.convolution_dimension_numbers, name, value)


_ANNOTATIONS = {
    "no branch": ("r", lambda r: r.ClearField("called_computation_ids"), "at least one branch"),
    "an index before": ("p", _origin([[1], [0]]), r"original_value: .*index \[0\] after \[1\]"),
    "an index twice": ("p", _origin([[0], [0]]), r"index \[0\] after \[0\]"),
    "a part of an array": ("p", _origin([[0], [0, 1]]), r"index \[0, 1\] after \[0\]"),
    "an index of no tuple": ("p", _origin([[0], [2**40]]), "original_value: .*index"),
    "a negative index": ("p", _origin([[-1], [0]]), "original_value: .*index"),
    "levels": ("s", lambda s: s.shape.layout.dim_level_types.__setitem__(0, 19), "dim_level_types has no meaning"),
    "a large dimension": (
        "c",
        _label("input_batch_dimension", 2**31 - 1),
        r"dimensions \[2147483647, 2, 1\] of the input",
    ),
    "a negative dimension": ("c", _label("kernel_output_feature_dimension", -1), r"\[1, -1, 0\] of the kernel"),
    "a dimension twice": ("c", _label("output_feature_dimension", 0), "stands twice in .* of the output"),
    "spatial dimensions": (
        "c",
        lambda c: c.convolution_dimension_numbers.ClearField("kernel_spatial_dimensions"),
        "different numbers of spatial",
    ),
    "no statistic": ("x", lambda x: x.statistics_viz.statistics[0].ClearField("stat_name"), "statistic has no name"),
}


@pytest.mark.parametrize("damage", _ANNOTATIONS)
def test_damaged_annotations_are_named(damage):
    proto = message(HloModule.from_text(_ANNOTATED))
    name, change, expected = _ANNOTATIONS[damage]
    change(next(i for i in proto.computations[-1].instructions if i.name == name))
    with pytest.raises((FormatError, ShapeError), match=expected):
        read_module(proto.SerializeToString()).verify()


def test_a_literal_that_promises_too_much_is_refused_before_memory_is():
    proto = message(constant_module(np.zeros(1, np.float32)))
    literal = proto.computations[0].instructions[0].literal
    literal.shape.dimensions[0] = 2**50
    with pytest.raises(FormatError, match=r"'c' in computation 'e': literal: f32s holds 4 bytes"):
        read_module(proto.SerializeToString())


@pytest.mark.parametrize("root", [-1, 12])
def test_a_missing_root_is_named(root):
    proto = message(scalar_module())
    proto.computations[0].root_id = root
    with pytest.raises(FormatError, match=f"computation 'e': root_id {root}"):
        read_module(proto.SerializeToString())


def test_a_missing_entry_is_named():
    proto = message(scalar_module())
    proto.entry_computation_id = 5
    with pytest.raises(FormatError, match="entry_computation_id 5"):
        read_module(proto.SerializeToString())


@pytest.mark.parametrize(
    ("order", "rule"),
    [([0, 0, 1], "twice"), ([1, 0, 2], "comes before"), ([0, 1], "2 of 3"), ([0, 1, 9], "names no instruction")],
)
def test_a_wrong_schedule_is_named(order, rule):
    text = "HloModule m, is_scheduled=true ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] "
    proto = message(HloModule.from_text(text + "negate(y) }"))
    sequence = proto.schedule.sequences[0].instruction_ids
    del sequence[:]
    sequence.extend(order)
    with pytest.raises(FormatError, match=f"schedule.*{rule}|schedule has {rule}"):
        read_module(proto.SerializeToString())


def test_a_schedule_orders_the_instructions():
    text = "HloModule m, is_scheduled=true ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) z = f32[] sine(x) ROOT "
    proto = message(HloModule.from_text(text + "w = f32[] add(y, z) }"))
    proto.schedule.sequences[0].instruction_ids[1:3] = [2, 1]
    module = read_module(proto.SerializeToString())
    assert [i.name for i in module.entry.instructions] == ["x", "z", "y", "w"]
    assert module.is_scheduled


def test_data_that_is_no_module_is_refused():
    for data in (b"", b"\xff\xff", b"\n\x05hello", write_module(scalar_module())[:-20], bytes(range(256))):
        with pytest.raises(FormatError):
            read_module(data)
    for text in ("", "{", "[]", "3", "{}", '{"computations": 1}', '{"a":' * 5000):
        with pytest.raises(FormatError, match="JSON"):
            module_from_json(text)


def test_shapes_nested_too_deep_are_refused():
    shape = make_shape(F32, ())
    for _ in range(300):
        shape = make_tuple_shape([shape])
    root = Instruction(Parameter(number=0), (), shape, "x")
    with pytest.raises(FormatError, match="module 'm': cannot be written"):
        write_module(HloModule("m", Computation("e", (root,), root)))
    shape = b"\x10\x0d"
    for _ in range(300):
        shape = b"\x10\x0d\x22" + encode_varints(np.array([len(shape)], np.uint64)) + shape
    with pytest.raises(FormatError, match="nested"):
        schema.parse("ShapeProto", shape)


def test_values_that_do_not_fit_their_field_are_refused():
    root = Instruction(Parameter(number=2**70), (), make_shape(F32, ()), "x")
    with pytest.raises(FormatError, match=r"parameter 'x' in computation 'e'.*out of range"):
        write_module(HloModule("m", Computation("e", (root,), root)))


@pytest.mark.parametrize("sizes", ["{{1}}", "{{1},{1,1},{1}}", "{{1,1},{1}}"])
def test_lists_that_readers_would_group_otherwise_are_refused(sizes):
    text = """ENTRY e {
      x = f32[4] parameter(0)
      y = f32[4,4] parameter(1)
      i = s32[] parameter(2)
      one = (s32[]) tuple(i)
      two = (s32[], s32[]) tuple(i, i)
      arrays = (f32[4], f32[4,4]) tuple(x, y)
      offsets = ((s32[]), (s32[], s32[])) tuple(one, two)
      ROOT p = (f32[4], f32[4,4]) collective-permute(arrays, arrays, offsets, offsets),
        source_target_pairs={{0,0}}, slice_sizes=SIZES
    }"""
    good = HloModule.from_text(text.replace("SIZES", "{{1},{1,1}}"))
    assert read_module(write_module(good)) == good
    with pytest.raises(FormatError, match=r"'p' in computation 'e': slice_sizes .* do not fit operand 0"):
        write_module(HloModule.from_text(text.replace("SIZES", sizes)))


def test_random_damage_gives_nothing_but_our_errors():
    rng = np.random.default_rng(3)
    originals = [write_module(HloModule.from_text(text)) for text in PROGRAMS.values()]
    for _ in range(600):
        data = bytearray(originals[rng.integers(len(originals))])
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        if rng.random() < 0.2:
            data = data[: rng.integers(len(data))]
        try:
            write_module(read_module(bytes(data)))
        except XlakitError as error:
            assert str(error)
