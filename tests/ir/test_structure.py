"""Modules are equal where they are the same program, whatever their names and where they come from."""

import numpy as np
import pytest

import xlakit as xla

TEXT = """HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

twice {
  x = f32[2]{0} parameter(0)
  ROOT sum = f32[2]{0} add(x, x)
}

ENTRY main {
  x = f32[2]{0} parameter(0)
  c = f32[2]{0} constant({0, nan})
  y = f32[2]{0} call(x), to_apply=twice
  ROOT z = f32[2]{0} subtract(y, c), frontend_attributes={a="b"}
}
"""


def module(text=TEXT):
    return xla.HloModule.from_text(text)


def test_names_and_metadata_do_not_count():
    renamed = TEXT.replace("twice", "double").replace("main", "entry").replace("HloModule m", "HloModule other")
    renamed = renamed.replace("sum =", "total =").replace("parameter(0)", 'parameter(0), metadata={op_name="x"}')
    assert module(renamed) == module()
    assert hash(module(renamed)) == hash(module())
    assert len({module(), module(renamed)}) == 1
    assert module() is not module()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add(x, x)", "multiply(x, x)"),
        ("subtract(y, c)", "subtract(c, y)"),
        ("{0, nan}", "{-0, nan}"),
        ("{0, nan}", "{0, 1}"),
        ('a="b"', 'a="c"'),
        ("HloModule m", "HloModule m, is_scheduled=true"),
        ("HloModule m", "HloModule m, replica_count=2"),
        ("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }"),
        ("ROOT z = f32[2]{0} subtract(y, c)", "ROOT z = f32[2]{0} subtract(y, c), control-predecessors={x}"),
        ("call(x), to_apply=twice", "call(x), to_apply=twice, backend_config={}"),
    ],
)
def test_what_counts(old, new):
    assert old in TEXT
    assert module(TEXT.replace(old, new)) != module()


def test_layouts_count_and_the_default_need_not_be_said():
    text = "ENTRY e { ROOT x = f32[2,3]%s parameter(0) }"
    assert module(text % "{0,1}") != module(text % "{1,0}")
    bare = xla.Instruction(module(text % "").entry.root.op, (), xla.Shape(xla.F32, (2, 3)), "x")
    built = xla.HloModule("e", xla.Computation.from_root("e", bare))
    assert built == module(text % "{1,0}")


def test_called_computations_are_compared_by_what_they_do():
    text = """
a { ROOT x = f32[] parameter(0) }
b { x = f32[] parameter(0)
  ROOT y = f32[] negate(x) }
ENTRY e { x = f32[] parameter(0)
  p = pred[] constant(true)
  ROOT y = f32[] conditional(p, x, x), true_computation=%s, false_computation=%s }
"""
    assert module(text % ("a", "b")) == module(text % ("a", "b"))
    assert module(text % ("a", "b")) != module(text % ("b", "a"))


def test_formats_give_equal_modules():
    builder = xla.XlaBuilder("b")
    x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (2, 3)))
    each = np.ones(3, np.float32)
    norm = xla.batch_norm_inference(x, each, each, each, each, epsilon=float("nan"), feature_index=1)
    built = builder.build(xla.reduce(norm, np.float32(0), xla.add, dimensions=[0])).to_module()
    assert xla.HloModule.from_text(built.to_text()) == built
    assert xla.HloModule.from_proto(built.to_proto()) == built
    assert built != 1
