"""The machine's description: measured once, kept, read from a file, and what is chosen by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit import machine, target
from xlakit.cpu import measuring
from xlakit.cpu.cache.cache_key import program_key
from xlakit.cpu.kernels.dot.dot import dot_product
from xlakit.cpu.kernels.gemm.blocking import plan_gemm
from xlakit.machine import Machine
from xlakit.ops.dot import Dot
from xlakit.options import DEFAULT, compiling
from xlakit.tools import cli

P = xla.PrimitiveType
PRODUCT = """HloModule product
ENTRY e {{
  a = {kind}[{n},{n}] parameter(0)
  b = {kind}[{n},{n}] parameter(1)
  ROOT r = {kind}[{n},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""


def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "machine.json"
    path.write_text(replace(machine.own(), threads=4, measured={"cycle_nanoseconds": 0.75}).as_text())
    monkeypatch.setenv("XLAKIT_MACHINE", str(path))


def test_a_description_is_what_it_was_when_it_is_read_again():
    made = Machine(8, 1, 2, 3, processor="znver9", vector_bytes=64, unit_bytes=32)
    assert Machine.from_text(made.as_text(), "here") == made
    more = replace(made, wake_nanoseconds=5e3, extensions=("a", "b"), measured={"read_bytes_per_nanosecond_l1": 9.5})
    assert Machine.from_text(more.as_text(), "here") == more


def test_what_a_description_does_not_say_is_as_here():
    assert Machine.from_text('{"threads": 77, "caches": {"l1": 123}}', "here") == replace(
        machine.own(), threads=77, l1=123
    )


def test_what_was_not_measured_is_of_the_table():
    known = replace(machine.own(), measured={"cycle_nanoseconds": 0.5})
    assert known.cycle == 0.5
    assert known.rate("page_fault_nanoseconds") == machine.own().rate("page_fault_nanoseconds") > 0
    sizes = [known.l1, known.l2, known.l3, known.l3 + 1]
    rates = [known.bandwidth(size) for size in sizes]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"measured": 3}',
        '{"threads": 0}',
        '{"threads": "many"}',
        '{"caches": {"l1": -1}}',
        '{"caches": []}',
        '{"measured": {"a": "b"}}',
        '{"measured": {"cycle_nanoseconds": 0}}',
        '{"measured": {"cycle_nanoseconds": -1.0}}',
    ],
)
def test_what_is_no_description_is_refused(text):
    with pytest.raises(xla.FormatError, match="no description of a machine"):
        Machine.from_text(text, "there.json")


def test_a_file_that_is_not_there_is_an_error_before_anything_is_compiled(monkeypatch):
    monkeypatch.setenv("XLAKIT_MACHINE", "/nowhere/machine.json")
    module = xla.HloModule.from_text(PRODUCT.format(kind="f32", n=1024))
    with pytest.raises(xla.ArgumentError, match="XLAKIT_MACHINE names"):
        xla.compile(module, backend="cpu")


def test_the_command_prints_and_writes_the_description(tmp_path, monkeypatch, capsys):
    described(tmp_path, monkeypatch)
    assert cli.main(["machine"]) == 0
    assert Machine.from_text(capsys.readouterr().out, "output").cycle == 0.75
    path = tmp_path / "again.json"
    assert cli.main(["machine", "--describe", str(path)]) == 0
    assert Machine.from_text(path.read_text(), str(path)).threads == 4


def test_all_is_measured_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("XLAKIT_MACHINE", raising=False)
    small = {"_ROUNDS": 10, "_MOVED": 1 << 16, "_LARGE": (1 << 16, 1 << 16)}
    for name, value in small.items():
        monkeypatch.setattr(measuring, name, value)
    with compiling(DEFAULT):
        before = machine.current().text
        found = measuring.measure()
        assert found.wake_nanoseconds > 0
        assert all(number > 0 for number in found.measured.values())
        # All that has a place in the table is measured, if there are instructions for it.
        absent = set() if measuring._has_pairs() else {"bf16_products_per_nanosecond"}
        assert found.measured.keys() == machine._RATES["x86"].keys() - absent
        assert found.vector_bytes == target.host().vector_bytes
        assert found.extensions
        monkeypatch.setattr(machine, "_known", {})
        assert machine.current() == found
        assert found.text != before
    # What a file says is not measured over.
    described(tmp_path, monkeypatch)
    assert measuring.measure().measured == {"cycle_nanoseconds": 0.75}


def test_measured_times_are_of_this_machine(tmp_path, monkeypatch):
    """A chain of dependent operations takes a cycle for each: no processor has less than 1 GHz or more than 8."""
    assert 0.1 < measuring._cycle(measuring._code()) < 5.0


def test_this_machine_is_known():
    own = machine.own()
    assert own.threads >= 1
    assert 1 << 12 <= own.l1 <= own.l2 <= own.l3


PROGRAMS = {
    "product": PRODUCT.format(kind="f32", n=200),
    "batches": """HloModule batches
ENTRY e {
  a = f32[6,40,70] parameter(0)
  b = f32[6,70,50] parameter(1)
  d = f32[6,40,50] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  ROOT r = f32[50,40,6] transpose(d), dimensions={2,1,0}
}""",
    "columns": """HloModule columns
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
ENTRY e {
  a = f32[300,500] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[500] reduce(a, zero), dimensions={0}, to_apply=add
}""",
    "convolution": """HloModule convolution
ENTRY e {
  a = f32[2,14,15,9] parameter(0)
  b = f32[3,3,9,20] parameter(1)
  ROOT r = f32[2,14,15,20] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_wrong_descriptions_give_right_results(tmp_path, monkeypatch, name):
    module = xla.HloModule.from_text(PROGRAMS[name])
    rng = np.random.default_rng(7)
    arguments = [rng.integers(-3, 4, p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    expected = xla.compile(module, backend="interpreter")(*arguments)
    own = machine.own()
    half = {"l1": own.l1 // 2, "l2": own.l2 // 2, "l3": own.l3 // 2}
    for number, (caches, threads, wake) in enumerate(
        [(half, 2 * own.threads, 0.0), ({"l1": 1, "l2": 1, "l3": 1}, 64, 1.0), ({"l1": 1 << 30, "l2": 1 << 31}, 1, 1e8)]
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"threads": threads, "caches": caches, "wake_nanoseconds": wake}))
        monkeypatch.setenv("XLAKIT_MACHINE", str(path))
        np.testing.assert_array_equal(xla.compile(module, backend="cpu")(*arguments), expected)


def test_blocks_follow_the_caches_and_keys_the_description(tmp_path, monkeypatch):
    keys, sizes = set(), []
    module = xla.HloModule.from_text(PRODUCT.format(kind="f32", n=2048))
    root = module.entry.root
    for l1 in (16 << 10, 64 << 10):
        path = tmp_path / f"{l1}.json"
        path.write_text(json.dumps({"caches": {"l1": l1, "l2": 8 * l1}, "threads": 2}))
        monkeypatch.setenv("XLAKIT_MACHINE", str(path))
        keys.add(program_key(module, 1, 1))
        sizes.append(plan_gemm(dot_product(root.op_as(Dot), *(x.shape for x in root.operands), root.shape)))
    assert len(keys) == 2 or keys == {None}
    assert sizes[0].kc < sizes[1].kc
    assert sizes[0].mc * sizes[0].kc < sizes[1].mc * sizes[1].kc


@pytest.mark.parametrize(
    ("function", "unit_bytes", "iterations"),
    [
        ("exponential(x)", 0, 1),
        ("exponential(x)", 16, 4),
        ("exponential(tanh(log(x)))", 0, 2),
        ("exponential(tanh(log(x)))", 32, 2),
        ("exponential(tanh(x))", 16, 4),
        ("exponential(tanh(log(x)))", 16, 2),
        ("sine(tanh(x))", 16, 2),
    ],
)
def test_more_iterations_are_interleaved_where_units_take_part_of_a_vector(
    tmp_path, monkeypatch, function, unit_bytes, iterations
):
    text = f"HloModule m\nENTRY e {{ x = f32[4096] parameter(0)\n ROOT r = f32[4096] {function} }}"
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"unit_bytes": unit_bytes, "measured": {"cycle_nanoseconds": 0.3}}))
    monkeypatch.setenv("XLAKIT_MACHINE", str(path))
    with compiling(vector_bytes=32):
        code = xla.compile(xla.HloModule.from_text(text), backend="cpu").llvm_ir()
    assert f"load <{8 * iterations} x float>" in code
    assert f"load <{16 * iterations} x float>" not in code


def test_zen_processors_with_units_of_half_a_vector_are_known(monkeypatch):
    found = []
    for vendor, family, model in (("AuthenticAMD", 23, 1), ("AuthenticAMD", 23, 49), ("Intel", 6, 1), ("", "", "")):
        fields = {"vendor_id": vendor, "cpu family": str(family), "model": str(model)}
        monkeypatch.setattr(machine, "_identity", lambda fields=fields: fields)
        machine.own.cache_clear()
        found.append(machine.own().unit_bytes)
    monkeypatch.undo()
    machine.own.cache_clear()
    assert found == [16, 0, 0, 0]
