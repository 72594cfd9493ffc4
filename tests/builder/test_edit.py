"""Editing programs: what is built is the program that was asked for, and runs."""

import numpy as np
import pytest
from evaluating import opcodes

import xlakit as xla

TEXT = """HloModule step, input_output_alias={ {1}: (0, {}, may-alias) }

scale {
  a = f32[4] parameter(0)
  two = f32[] constant(2)
  twos = f32[4] broadcast(two), dimensions={}
  ROOT scaled = f32[4] multiply(a, twos)
}

plus {
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT sum = f32[] add(l, r)
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  e = f32[4] exponential(x)
  s = f32[4] call(e), to_apply=scale
  z = f32[] constant(0)
  total = f32[] reduce(s, z), dimensions={0}, to_apply=plus
  kept = f32[4] add(x, y)
  ROOT out = (f32[], f32[4]) tuple(total, kept)
}
"""
X, Y = np.float32([0, 1, 2, 3]), np.float32([1, 1, 1, 1])


@pytest.fixture
def editor():
    return xla.edit(xla.HloModule.from_text(TEXT))


def run(module, *arguments, backend="interpreter"):
    return xla.compile(module, backend=backend)(*arguments)


def test_without_edits_it_is_the_same_program(editor):
    assert editor.build() == editor.module


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_an_instruction_is_replaced_by_builder_calls(editor, backend):
    module = editor.replace("e", lambda x: xla.max(x, 0.5) + 1.0).build()
    total, kept = run(module, X, Y, backend=backend)
    np.testing.assert_allclose(total, 2 * np.sum(np.maximum(X, 0.5) + 1))
    np.testing.assert_allclose(kept, X + Y)
    assert "exponential" not in opcodes(module)
    assert xla.HloModule.from_text(module.to_text()) == module


def test_other_values_can_be_used_and_the_instruction_itself(editor):
    module = editor.replace("e", lambda e, y: e * y, using=["e", "y"]).build()
    total, _ = run(module, X, 3 * Y)
    np.testing.assert_allclose(total, 2 * np.sum(np.exp(X) * 3), rtol=1e-6)


def test_a_call_is_inlined_and_what_is_not_called_goes(editor):
    module = editor.inline("s").build()
    assert "call" not in opcodes(module)
    assert [c.name for c in module.computations] == ["plus", "main"]
    np.testing.assert_array_equal(run(module, X, Y)[0], run(editor.module, X, Y)[0])


def test_a_built_computation_takes_the_place_of_an_instruction(editor):
    builder = xla.XlaBuilder("square")
    p = xla.parameter(builder, 0, xla.make_shape(xla.F32, (4,)), "x")
    module = editor.replace("e", builder.build(xla.mul(p, p))).build()
    np.testing.assert_allclose(run(module, X, Y)[0], 2 * np.sum(X * X))


def test_edits_inside_of_called_computations(editor):
    module = editor.replace("scaled", lambda a, twos: a - twos).build()
    np.testing.assert_allclose(run(module, X, Y)[0], np.sum(np.exp(X) - 2), rtol=1e-6)


def test_names_stay_unique(editor):
    module = editor.replace("e", xla.exp).replace("kept", xla.add).build()
    names = [i.name for i in module.entry.instructions]
    assert len(set(names)) == len(names)


def test_shapes_of_what_follows_are_inferred(editor):
    shape = xla.make_shape(xla.F32, (7,))
    module = editor.replace("s", lambda e: e * 2.0).set_shape("x", shape).set_shape("y", shape).build()
    x = np.arange(7, dtype=np.float32)
    total, kept = run(module, x, x)
    np.testing.assert_allclose(total, 2 * np.sum(np.exp(x)), rtol=1e-6)
    assert kept.shape == (7,) and module.program_shape.parameters[0].dimensions == (7,)


def test_what_does_not_fit_any_more_is_named(editor):
    with pytest.raises(xla.ShapeError, match="add 'kept' in computation main"):
        editor.replace("s", lambda e: e * 2.0).set_shape("x", xla.make_shape(xla.F32, (7,))).build()


def test_results_are_added_and_removed_with_their_aliases(editor):
    module = editor.set_results("e", *editor.results).build()
    assert [alias.output_index for alias in module.input_output_alias] == [(2,)]
    np.testing.assert_allclose(run(module, X, Y)[0], np.exp(X), rtol=1e-6)
    alone = xla.edit(module).set_results("total").build()
    assert alone.input_output_alias == () and alone.entry.root.shape.dimensions == ()
    assert "y" in {i.name for i in alone.entry.instructions} and "kept" not in {
        i.name for i in alone.entry.instructions
    }
    np.testing.assert_array_equal(run(alone, X, Y), run(module, X, Y)[1])


def test_a_program_may_have_no_result(editor):
    none = editor.set_results().build()
    assert none.entry.root.shape == xla.make_tuple_shape([]) and none.input_output_alias == ()
    assert run(none, X, Y) == ()
    again = xla.edit(none)
    assert again.results == ()
    assert again.set_results(*again.results).build() == none
    np.testing.assert_array_equal(run(xla.edit(none).set_results("x").build(), X, Y), X)


def test_shardings_are_changed_and_removed(editor):
    sharding = xla.HloModule.from_text(
        "ENTRY e { ROOT p = f32[4] parameter(0), sharding={devices=[2]0,1} }"
    ).entry.root.annotations.sharding
    module = editor.set_sharding("x", sharding).build()
    assert module.entry.parameters[0].annotations.sharding == sharding
    plain = xla.edit(module).set_sharding("x", None).build()
    assert plain == editor.module


def test_a_sharding_of_what_is_replaced_goes_to_what_replaces_it(editor):
    replicated = xla.HloModule.from_text(
        "ENTRY e { ROOT p = f32[4] parameter(0), sharding={replicated} }"
    ).entry.root.annotations.sharding
    module = editor.replace("e", xla.sin).set_sharding("e", replicated).build()
    (sine,) = [i for i in module.entry.instructions if i.opcode == "sine"]
    assert sine.annotations.sharding == replicated


@pytest.mark.parametrize(
    "change, rule",
    [
        (lambda e: e.replace("nothing", lambda: 1), "has no instruction 'nothing'"),
        (lambda e: e.replace("e", 3), "cannot replace e"),
        (lambda e: e.replace("e", lambda x, s: x, using=["x", "s"]), "s is not defined before e"),
        (lambda e: e.replace("e", lambda x: x).replace("e", lambda x: x), "edited already"),
        (lambda e: e.inline("e"), "not a call or a fusion"),
        (lambda e: e.set_shape("e", xla.make_shape(xla.F32, (3,))), "not a parameter of the entry"),
        (lambda e: e.set_results("a"), "not in the entry"),
        (lambda e: e.replace("e", e.module.computations[0], using=["x", "y"]).build(), "parameters"),
        (lambda e: e.replace("e", lambda x: xla.parameter(xla.XlaBuilder("o"), 0, x.shape)).build(), "another builder"),
    ],
)
def test_what_cannot_be_edited_is_told(editor, change, rule):
    with pytest.raises(xla.ArgumentError, match=rule):
        change(editor)


def test_a_replacement_of_another_shape_is_an_error_at_its_user(editor):
    with pytest.raises(xla.ShapeError, match="'s'"):
        editor.replace("e", lambda x: xla.slice(x, [0], [2], [1])).build()


def test_a_name_of_several_computations_needs_its_computation():
    text = TEXT.replace("a = f32[4]", "x = f32[4]").replace("multiply(a", "multiply(x")
    editor = xla.edit(xla.HloModule.from_text(text))
    with pytest.raises(xla.ArgumentError, match="2 computations have an instruction 'x'"):
        editor.set_sharding("x", None)
    assert editor.find("x", computation="scale").shape.dimensions == (4,)


def test_an_instruction_with_control_predecessors_is_not_replaced():
    text = TEXT.replace("add(x, y)", "add(x, y), control-predecessors={e}")
    editor = xla.edit(xla.HloModule.from_text(text))
    with pytest.raises(xla.UnsupportedError, match="control predecessors"):
        editor.replace("kept", lambda x, y: x)
    module = editor.replace("e", xla.sin).build()
    (kept,) = [i for i in module.entry.instructions if i.name == "kept"]
    assert [p.opcode for p in kept.control_predecessors] == ["sine"]
