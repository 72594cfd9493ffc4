"""Texts of programs: names, numbers and order are what jaxlib 0.6.0 prints."""

import re

import numpy as np
import pytest
from compat import programs

from xlakit.compat import xla_client as xc

ops, xe, S = xc.ops, xc._xla, xc.Shape
VECTOR, SCALAR = xc.Shape("f32[4]"), xc.Shape("f32[]")


def scalars(name, function):
    builder = xc.XlaBuilder(name)
    function(ops.Parameter(builder, 0, SCALAR), ops.Parameter(builder, 1, SCALAR))
    return builder.build()


def test_one_sequence_of_numbers_and_operands_in_order():
    builder = xc.XlaBuilder("text_axpy")
    x, y = ops.Parameter(builder, 0, VECTOR), ops.Parameter(builder, 1, VECTOR, "y")
    ops.Add(ops.Mul(x, ops.Constant(builder, np.float32(2))), y)
    built = builder.build()
    assert built.as_hlo_text() == (
        """HloModule text_axpy.7, entry_computation_layout={(f32[4]{0}, f32[4]{0})->f32[4]{0}}

ENTRY text_axpy.7 {
  parameter.1 = f32[4]{0} parameter(0)
  constant.3 = f32[] constant(2)
  broadcast.4 = f32[4]{0} broadcast(constant.3), dimensions={}
  multiply.5 = f32[4]{0} multiply(parameter.1, broadcast.4)
  y.2 = f32[4]{0} parameter(1)
  ROOT add.6 = f32[4]{0} add(multiply.5, y.2)
}

"""
    )
    assert built.name() == built.get_hlo_module().name == "text_axpy.7"
    assert repr(built.program_shape()) == "(parameter: f32[4], y: f32[4]) -> f32[4]"
    signature = "ENTRY %text_axpy.7 (parameter.1: f32[4], y.2: f32[4]) -> f32[4] {"
    assert signature in built.get_hlo_module().to_string()
    assert "metadata" not in built.get_hlo_module().to_string()


def test_called_computations_are_copied_for_each_call():
    add = scalars("text_add", ops.Add)
    builder = xc.XlaBuilder("text_calls")
    x = ops.Parameter(builder, 0, xc.Shape("f32[2,3]"))
    zero = ops.Constant(builder, np.float32(0))
    ops.Tuple(builder, [ops.Reduce(builder, [x], [zero], add, [d]) for d in (0, 1)])
    built = builder.build()
    assert built.as_hlo_text().split("\n", 2)[2] == (
        """text_add.3 {
  parameter.4 = f32[] parameter(0)
  parameter.5 = f32[] parameter(1)
  ROOT add.6 = f32[] add(parameter.4, parameter.5)
}

text_add.8 {
  parameter.9 = f32[] parameter(0)
  parameter.10 = f32[] parameter(1)
  ROOT add.11 = f32[] add(parameter.9, parameter.10)
}

ENTRY text_calls.14 {
  parameter.1 = f32[2,3]{1,0} parameter(0)
  constant.2 = f32[] constant(0)
  reduce.7 = f32[3]{0} reduce(parameter.1, constant.2), dimensions={0}, to_apply=text_add.3
  reduce.12 = f32[2]{0} reduce(parameter.1, constant.2), dimensions={1}, to_apply=text_add.8
  ROOT tuple.13 = (f32[3]{0}, f32[2]{0}) tuple(reduce.7, reduce.12)
}

"""
    )
    again = xc.XlaComputation(built.as_serialized_hlo_module_proto())
    assert again.as_hlo_text() == built.as_hlo_text()


def test_the_body_of_a_loop_comes_before_its_condition():
    number = xc.Shape("s32[]")
    condition, body = xc.XlaBuilder("text_cond"), xc.XlaBuilder("text_body")
    ops.Lt(ops.Parameter(condition, 0, number), ops.Constant(condition, np.int32(10)))
    ops.Add(ops.Parameter(body, 0, number), ops.Constant(body, np.int32(1)))
    builder = xc.XlaBuilder("text_loop")
    ops.While(condition.build(), body.build(), ops.Constant(builder, np.int32(0)))
    text = builder.build().as_hlo_text()
    names = ["text_body.2 {", "text_cond.6 {", "ENTRY text_loop.11 {"]
    assert [line for line in text.split("\n") if line.endswith(" {")] == names
    assert "ROOT while.10 = s32[] while(constant.1), condition=text_cond.6, body=text_body.2" in text


def test_what_no_result_needs_is_kept():
    builder = xc.XlaBuilder("text_unused")
    x = ops.Parameter(builder, 0, VECTOR)
    root = ops.Neg(x)
    ops.Exp(x)
    lines = builder.build(root).as_hlo_text().split("\n")[3:6]
    assert [line.split()[0:2] for line in lines] == [["parameter.1", "="], ["ROOT", "negate.2"], ["exponential.3", "="]]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["ta", "ta", "ta__5", "ta"], ["ta.2", "ta__1.2", "ta__5.2", "ta__2.2"]),
        (["tb__3", "tb", "tb__3", "tb"], ["tb__3.2", "tb.2", "tb__1.2", "tb__2.2"]),
        (["t c", "t.d", "t.5"], ["t_c.2", "t.d.2", "t.5.2"]),
    ],
)
def test_builders_have_names_of_their_own(names, expected):
    made = []
    for name in names:
        builder = xc.XlaBuilder(name)
        ops.Constant(builder, np.float32(1))
        made.append(builder.build().name())
    assert made == expected


def test_operands_are_counted_only_in_long_text():
    builder = xc.XlaBuilder("text_many")
    ops.Tuple(builder, [ops.Constant(builder, np.int32(n)) for n in range(6)])
    built = builder.build()
    assert "constant.5, constant.6)" in built.as_hlo_text()
    assert "/*index=5*/s32[]" in built.as_hlo_text()
    assert "%constant.5, /*index=5*/%constant.6)" in built.get_hlo_module().to_string()


def test_programs_that_were_mlir_have_the_names_of_xlas_converter():
    text = mlir_text("reduction_of_two")
    converted = xc._xla.mlir.mlir_module_to_xla_computation(text).as_hlo_text()
    assert "ENTRY main.17 {\n  Arg_0.1 = f32[2,3]{1,0} parameter(0)\n  Arg_1.2 = " in converted
    assert "region_0.5 {\n  Arg_0.6 = f32[] parameter(0)\n  Arg_2.8 = " in converted
    assert "get-tuple-element.14 = f32[3]{0} get-tuple-element(reduce.13), index=0" in converted
    tupled = xc._xla.mlir.mlir_module_to_xla_computation(text, True, True).as_hlo_text()
    assert "arg_tuple.1 = (f32[2,3]{1,0}, s32[2,3]{1,0}) parameter(0)" in tupled


def mlir_text(name):
    return xc._xla.mlir.xla_computation_to_mlir_module(programs.build(xc, name))


def test_graphs_have_the_nodes_of_xla():
    inner = xc.XlaBuilder("graph_more")
    one = ops.Constant(inner, np.float32(1))
    more = inner.build(ops.Add(ops.Parameter(inner, 0, S("f32[]")), one))
    add = xc.XlaBuilder("graph_add")
    total = add.build(ops.Add(*[ops.Parameter(add, n, S("f32[]")) for n in range(2)]))
    builder = xc.XlaBuilder("graph")
    x, y = ops.Parameter(builder, 0, S("f32[2,3]")), ops.Parameter(builder, 1, S("(f32[], s32[2])"))
    first = ops.GetTupleElement(y, 0)
    parts = [ops.Reduce(builder, [x], [first], total, [0]), ops.Call(builder, more, [first])]
    parts.append(ops.Constant(builder, np.arange(9)))
    text = xe.hlo_module_to_dot_graph(builder.build(ops.Tuple(builder, parts)).as_hlo_module())
    labels = [re.sub(r"(?<=[a-z])[.]\d+", "", label) for label in re.findall(r"\[label=<(.*?)>, shape=rect", text)]
    assert labels == [
        "<b>Parameter 0</b><br/>f32[2,3]{1,0}",
        "<b>Parameter 1</b><br/>(f32[], s32[2])",
        "<b>reduce</b><br/>Subcomputation: <b>add</b><br/>dimensions={0}<br/>f32[3]<br/>"
        "<b>operand 1</b> = tuple-element 0 of parameter f32[]",
        "<b>Parameter 0</b><br/>f32[]",
        "<b>add</b><br/>f32[]<br/><b>operand 1</b> = f32[] 1",
        "<b>call</b><br/>f32[]<br/><b>operand</b> = tuple-element 0 of parameter f32[]",
        "<b>tuple</b><br/>(f32[3], f32[], s64[9])<br/><b>operand 2</b> = constant s64[9]",
    ]
    edges = [re.sub(r"[.]\d+", "", edge) for edge in re.findall(r'tooltip="(\S+ -> \S+)"', text)]
    assert edges == [
        *("parameter -> reduce", "parameter -> reduce", "graph_more -> call", "parameter -> add"),
        *("parameter -> call", "reduce -> tuple", "call -> tuple"),
    ]
