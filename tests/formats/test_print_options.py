"""What of a program is printed, and what parses again."""

from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.formats.unique_names import WORDS
from xlakit.ir.instruction import HloModule
from xlakit.tools.cli import main

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "hlo").glob("*.hlo"))


def program():
    builder = xla.XlaBuilder("sums")
    x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (2, 11), layout=(0, 1)), "x")
    shift = xla.constant(builder, np.arange(11, dtype=np.float32))
    positive = xla.gt(xla.reduce(x, 0.0, xla.add, dimensions=[0, 1]), 0.0)
    chosen = xla.conditional(positive, x, lambda y: y, x, xla.neg)
    return builder.build(xla.add(chosen, shift, broadcast_dimensions=[1])).to_module()


def test_printing_a_module_prints_its_text():
    module = program()
    assert str(module) == module.to_text()
    assert "add(" in str(module.entry)
    assert str(module.entry.parameters[0]).startswith("%x = f32[2,11]{0,1} parameter(0), metadata=")
    computation = xla.XlaComputation(module.entry)
    assert str(computation) == computation.to_text()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_short_text_is_the_same_program(path):
    module = xla.HloModule.from_text(path.read_text())
    short = module.to_text(short=True)
    assert "%" not in short
    assert "metadata=" not in short
    assert xla.HloModule.from_text(short) == module


def test_short_text_has_no_shapes_of_computations():
    short = program().to_text(short=True)
    assert "ENTRY sums {" in short
    assert "true_computation=%" not in short
    assert xla.HloModule.from_text(short) == program()


def test_metadata_is_left_out():
    text = program().to_text(metadata=False)
    assert "metadata=" not in text
    assert "%x" in text
    assert xla.HloModule.from_text(text) == program()


def test_layouts_are_left_out():
    text = program().to_text(layouts=False)
    assert "]{" not in text
    assert "entry_computation_layout={(f32[2,11])->f32[2,11]}" in text


def test_large_constants_are_left_out():
    text = program().to_text(large_constants=False)
    assert "constant({...})" in text
    assert "constant(0)" in text
    assert xla.HloModule.from_text(text).to_text() == text


@pytest.mark.parametrize("command", [["convert", "--to", "text"], ["opt"], ["inspect"]])
def test_the_options_on_the_command_line(command, tmp_path, capsys):
    path = tmp_path / "sums.hlo"
    path.write_text(program().to_text())
    assert main([command[0], str(path), *command[1:], "--short", "--no-layouts", "--no-large-constants"]) == 0
    printed = capsys.readouterr().out
    assert "ENTRY sums {" in printed
    assert "%" not in printed
    assert "f32[2,11] parameter(0)" in printed
    assert "constant({...})" in printed


def test_reprs_show_values_and_numbers():
    module = program()
    found = [repr(i) for i in module.entry.instructions]
    assert "<x = f32[2,11]{0,1} parameter(0)>" in found
    assert any("constant(0)>" in text for text in found)
    assert any("constant({...})>" in text for text in found)
    assert any("to_apply=" in text for text in found)
    assert repr(xla.Literal.from_value((1, [1.5, 2.0]))) == "Literal((s32[], f32[2]{0}) (1, [1.5, 2. ]))"
    assert "..." in repr(xla.Literal.from_value(np.zeros(11, np.float32)))


@pytest.mark.parametrize("word", sorted(WORDS))
@pytest.mark.parametrize("short", [False, True])
def test_words_of_the_text_are_read_back_as_names(word, short):
    body = f"(p: f32[]) -> f32[] {{ %{word} = f32[] parameter(0) ROOT %r = f32[] negate(%{word}) }}"
    call = f"%p = f32[] parameter(0) ROOT %c = f32[] call(%p), to_apply=%{word}"
    module = HloModule.from_text(f"HloModule m\n%{word} {body}\nENTRY %e {{ {call} }}").replace(name=word)
    text = module.to_text(short=short)
    again = HloModule.from_text(text)
    assert again == module
    assert again.to_text(short=short) == text
    assert again.name == f"{word}_"
    assert f"%{word} = " in text or short
