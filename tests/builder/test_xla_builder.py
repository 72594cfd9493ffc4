"""The builder itself: names, shapes, settings, roots, sub-computations, and errors at the call that made them."""

from pathlib import Path

import numpy as np
import pytest

import xlakit as xla

F32_2 = xla.make_shape(xla.F32, (2,))


def test_parameters_keep_their_names_and_instructions_are_numbered():
    builder = xla.XlaBuilder("names")
    x = xla.parameter(builder, 0, F32_2, "x")
    computation = builder.build(x + x + x).computation
    assert [i.name for i in computation.instructions] == ["x", "add.1", "add.2"]


def test_shapes_are_known_while_building():
    builder = xla.XlaBuilder("shapes")
    x = xla.parameter(builder, 0, F32_2, "x")
    y = xla.broadcast(x, [3])
    assert builder.get_shape(y) == y.shape == xla.make_shape(xla.F32, (3, 2))
    assert builder.get_program_shape(y).to_string(with_layout=False) == "(x: f32[2]) -> f32[3,2]"


def test_the_root_is_the_last_operation_or_a_chosen_one():
    builder = xla.XlaBuilder("root")
    x = xla.parameter(builder, 0, F32_2)
    doubled = x + x
    xla.neg(x)
    value = np.float32([1, 2])
    np.testing.assert_array_equal(xla.compile(builder.build())(value), -value)
    np.testing.assert_array_equal(xla.compile(builder.build(doubled))(value), 2 * value)


def test_is_constant():
    builder = xla.XlaBuilder("constants")
    x = xla.parameter(builder, 0, F32_2)
    one = xla.constant(builder, 1.0)
    assert builder.is_constant(one + 2.0)
    assert builder.is_constant(xla.reduce(xla.broadcast(one, [3]), 0.0, xla.add, [0]))
    assert not builder.is_constant(x + one)
    assert not builder.is_constant(xla.rng_uniform(one, one, F32_2))
    assert not builder.is_constant(xla.replica_id(builder))


def test_instructions_remember_the_line_that_made_them():
    builder = xla.XlaBuilder("lines")
    x = xla.parameter(builder, 0, F32_2)
    metadata = (x + x).instruction.annotations.metadata
    assert metadata.source_file == __file__
    assert "(x + x)" in Path(__file__).read_text().splitlines()[metadata.source_line - 1]


def test_metadata_sharding_and_frontend_attributes_hold_for_what_follows():
    builder = xla.XlaBuilder("settings")
    x = xla.parameter(builder, 0, F32_2)
    with builder.op_metadata(xla.OpMetadata(op_name="inner")), builder.frontend_attributes({"a": "b"}):
        with builder.sharding(xla.Sharding("REPLICATED")):
            y = x + x
        z = x + y
    after = x + z
    assert y.instruction.annotations.sharding == xla.Sharding("REPLICATED")
    assert z.instruction.annotations.sharding is None
    assert z.instruction.annotations.frontend_attributes == (("a", "b"),)
    assert z.instruction.annotations.metadata.op_name == "inner"
    assert after.instruction.annotations.frontend_attributes == ()
    builder.set_op_metadata(xla.OpMetadata(op_name="outer"))
    assert (x + x).instruction.annotations.metadata.op_name == "outer"
    builder.clear_op_metadata()
    assert (x + x).instruction.annotations.metadata.op_name == ""


def test_aliases_reach_the_module():
    builder = xla.XlaBuilder("alias")
    x = xla.parameter(builder, 0, F32_2)
    xla.tuple_(x + x)
    builder.setup_alias((0,), 0, (), must=True)
    module = builder.build().to_module()
    module.verify()
    assert "input_output_alias={ {0}: (0, {}, must-alias) }" in module.to_text()


def test_computations_from_python_functions_and_builders_are_the_same():
    def build(reducer):
        builder = xla.XlaBuilder("reduce")
        x = xla.parameter(builder, 0, F32_2)
        return xla.compile(builder.build(xla.reduce(x, 0.0, reducer, [0])))(np.float32([1, 2]))

    inner = xla.XlaBuilder("outer").create_sub_builder("sum")
    assert inner.name == "outer.sum"
    scalar = xla.make_shape(xla.F32)
    xla.add(xla.parameter(inner, 0, scalar), xla.parameter(inner, 1, scalar))
    assert build(xla.add) == build(inner.build()) == build(lambda a, b: a + b) == 3


def test_operators():
    builder = xla.XlaBuilder("operators")
    x = xla.parameter(builder, 0, xla.make_shape(xla.S32, (3,)))
    results = [
        x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 7 / x, x % 2, 7 % x, x**2, -x, abs(x), ~x,
        x & 1, x | 1, x ^ 1, x << 1, x >> 1, x < 2, x <= 2, x > 2, x >= 2, x == 2, x != 2,
    ]  # fmt: skip
    value = np.int32([1, 2, 3])
    expected = [
        value + 1, 1 + value, value - 1, 1 - value, value * 2, 2 * value, value // 2, 7 // value, value % 2, 7 % value,
        value**2, -value, abs(value), ~value, value & 1, value | 1, value ^ 1, value << 1, value >> 1,
        value < 2, value <= 2, value > 2, value >= 2, value == 2, value != 2,
    ]  # fmt: skip
    actual = xla.compile(builder.build(xla.tuple_(results)))(value)
    for got, want in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


def test_errors_name_operation_shapes_rule_and_line():
    builder = xla.XlaBuilder("errors")
    x = xla.parameter(builder, 0, F32_2)
    y = xla.parameter(builder, 1, xla.make_shape(xla.F32, (3, 2)))
    with pytest.raises(xla.ShapeError) as error:
        xla.add(y, x)
    text = str(error.value)
    assert text.startswith("add: ")
    assert "f32[3,2]" in text
    assert "broadcast_dimensions" in text
    assert __file__ in text
    with pytest.raises(xla.ShapeError, match=__file__):
        xla.get_tuple_element(x, 0)


def test_misuse_is_an_argument_error():
    builder, other = xla.XlaBuilder("a"), xla.XlaBuilder("b")
    x = xla.parameter(builder, 0, F32_2)
    y = xla.parameter(other, 0, F32_2)
    with pytest.raises(xla.ArgumentError, match="different builders, '"):
        x + y
    with pytest.raises(xla.ArgumentError, match="not known"):
        bool(x)
    with pytest.raises(xla.ArgumentError, match="no operations"):
        xla.XlaBuilder("empty").build()
    with pytest.raises(xla.ArgumentError):
        builder.build(y)
    with pytest.raises(xla.ShapeError, match="twice"):
        xla.parameter(builder, 0, F32_2)
    xla.parameter(builder, 5, F32_2)
    with pytest.raises(xla.ArgumentError, match="parameters"):
        builder.build()
    with pytest.raises(xla.ArgumentError, match="computation must be an XlaComputation"):
        xla.reduce(x, 0.0, "add", [0])
