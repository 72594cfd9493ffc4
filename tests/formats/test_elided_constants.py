"""Constants whose elements the text leaves out, as XLA dumps large ones: read, written, checked and rewritten."""

import copy
import json
import pickle

import numpy as np
import pytest

import xlakit as xla
from xlakit.passes.pipeline import run_pipeline
from xlakit.tools.cli import main

TEXT = """
HloModule m, entry_computation_layout={(f32[2,3]{1,0})->(f32[2,3]{1,0}, s32[3]{0})}

ENTRY %main (x: f32[2,3]) -> (f32[2,3], s32[3]) {
  %x = f32[2,3]{1,0} parameter(0)
  %w = f32[3]{0} constant({...})
  %v = f32[3]{0} constant({...})
  %both = (f32[3]{0}, s32[3]{0}) constant({...})
  %i = s32[3]{0} get-tuple-element(%both), index=1
  %w.1 = f32[2,3]{1,0} broadcast(%w), dimensions={1}
  %v.1 = f32[2,3]{1,0} broadcast(%v), dimensions={1}
  %y = f32[2,3]{1,0} subtract(%w.1, %v.1)
  %z = f32[2,3]{1,0} add(%x, %y)
  ROOT %r = (f32[2,3]{1,0}, s32[3]{0}) tuple(%z, %i)
}

"""


@pytest.fixture
def module():
    return xla.HloModule.from_text(TEXT)


def test_text_is_written_as_it_was_read(module):
    assert module.to_text() == TEXT.lstrip()
    assert xla.HloModule.from_text(TEXT.replace("{...}", "{ ... }")) == module


def test_protos_without_a_literal(module):
    # As XLA's own reader takes them.
    assert xla.HloModule.from_proto(module.to_proto()).to_text() == module.to_text()


def test_copies_and_pickles(module):
    assert pickle.loads(pickle.dumps(module)).to_text() == module.to_text()
    assert copy.deepcopy(module) == module


def test_two_of_them_are_two_values(module):
    module.verify()
    text = run_pipeline(module).to_text()
    assert text.count("constant({...})") == 3, text
    assert "subtract" in text


def test_it_does_not_run(module):
    for backend in ("cpu", "interpreter"):
        with pytest.raises(xla.LiteralError, match="constant 'w': the constant is elided") as caught:
            xla.compile(module, backend=backend)
        assert "--fill-elided" in caught.value.hint


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_filled_with_zeros(module, backend):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, i = xla.compile(xla.fill_elided(module), backend=backend)(x)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(i, np.zeros(3, np.int32))


def test_filled_with_random_numbers(module):
    x = np.zeros((2, 3), np.float32)
    results = [xla.compile(xla.fill_elided(module, "random", seed=seed))(x)[0] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
    assert np.all(results[0] != 0), "two constants are the same"


def test_a_module_without_any_stays_itself(module):
    filled = xla.fill_elided(module)
    assert xla.fill_elided(filled, "random") is filled


@pytest.mark.parametrize(("arguments", "message"), [(("ones",), "no filling 'ones'"), (("random",), "seed -1")])
def test_wrong_arguments(module, arguments, message):
    with pytest.raises(xla.ArgumentError, match=message):
        xla.fill_elided(module, *arguments, seed=-1)


@pytest.mark.parametrize("rest", ["{...", "{...}, 1", "({...}, {1, 2, 3})"])
def test_what_is_no_elided_constant(rest):
    with pytest.raises(xla.ParseError):
        xla.HloModule.from_text(TEXT.replace("constant({...})", f"constant({rest})"))


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["check"], 0),
        (["convert", "--to", "text"], 0),
        (["convert", "--to", "json"], 0),
        (["opt"], 0),
        (["opt", "--diff"], 0),
        (["inspect", "--as", "hlo"], 0),
        (["inspect", "--as", "cost"], 0),
        (["inspect", "--as", "cost", "--json"], 0),
        (["inspect", "--as", "collectives"], 0),
        (["inspect", "--as", "cost", "--fill-elided", "random"], 0),
        (["inspect", "--as", "llvm", "--fill-elided", "random"], 0),
        (["run", "--fill-elided", "random"], 0),
        (["run", "--fill-elided", "zeros", "--compare", "interpreter"], 0),
        (["view", "-o", "OUT"], 0),
        (["view", "--memory", "--fill-elided", "zeros", "-o", "OUT"], 0),
        (["view", "--memory", "-o", "OUT"], 1),
        (["reduce", "--crash", "-o", "OUT"], 1),
        (["bisect", "--compare", "cpu,interpreter"], 1),
        (["run"], 1),
        (["inspect", "--as", "llvm"], 1),
        (["inspect", "--as", "memory"], 1),
        (["inspect", "--as", "fallbacks"], 1),
    ],
)
def test_the_command_line(command, status, tmp_path, capsys):
    path = tmp_path / "dump.hlo"
    path.write_text(TEXT)
    options = [str(tmp_path / "out") if word == "OUT" else word for word in command[1:]]
    assert main([command[0], str(path), *options]) == status
    told = capsys.readouterr()
    if status:
        assert "the constant is elided" in told.err
        assert "--fill-elided zeros or random" in told.err


def test_costs_are_those_of_an_argument_in_its_place(tmp_path, capsys):
    elided = TEXT.replace("subtract(%w.1, %v.1)", "sine(%w.1)")
    header = elided[: elided.index("ENTRY")]
    given = "HloModule m\n\n" + elided.removeprefix(header).replace(
        "(x: f32[2,3])", "(x: f32[2,3], w: f32[3])"
    ).replace("%w = f32[3]{0} constant({...})", "%w = f32[3]{0} parameter(1)")
    costs = []
    for name, text in (("elided.hlo", elided), ("given.hlo", given)):
        (tmp_path / name).write_text(text)
        assert main(["inspect", str(tmp_path / name), "--as", "cost", "--json"]) == 0
        costs.append(json.loads(capsys.readouterr().out)["cost"])
    assert costs[0]["transcendentals"] == costs[1]["transcendentals"] == 3
    assert costs[0]["flops"] == costs[1]["flops"]
    assert main(["inspect", str(tmp_path / "elided.hlo")]) == 0
    assert capsys.readouterr().out.startswith("// constants are elided, so it is not known what is not machine code\n")
