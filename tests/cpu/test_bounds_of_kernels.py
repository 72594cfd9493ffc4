"""Bounds checks of kernels: for each family, each array that is said to be a byte shorter is left, and that is told."""

from __future__ import annotations

import numpy as np
import pytest
from cpu.agreeing import PIECES

import xlakit.cpu.loops.emit.guards as _knobs_of_guards
from xlakit import HloModule, compile as compile_program
from xlakit.cpu.debugging import sanitizer
from xlakit.cpu.entry import emit
from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.errors import InternalError
from xlakit.execution.inputs import make_inputs
from xlakit.options import compiling

LESS = "less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }\n"
ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"
MORE = "more { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=GE }\n"

KERNELS = {
    "elements": "a = f32[7,9] parameter(0)  b = f32[7,9] parameter(1)  ROOT r = f32[7,9] add(a, b)",
    "complex": "a = c64[13] parameter(0)  ROOT r = c64[13] multiply(a, a)",
    "halves": "a = bf16[37] parameter(0)  ROOT r = bf16[37] tanh(a)",
    "transpose": "a = f32[70,50] parameter(0)  ROOT r = f32[50,70] transpose(a), dimensions={1,0}",
    "rows": "a = f32[9,300] parameter(0)  z = f32[] constant(0)  ROOT r = f32[9] reduce(a, z), dimensions={1}, "
    "to_apply=add",
    "columns": "a = f32[90,70] parameter(0)  z = f32[] constant(0)  ROOT r = f32[70] reduce(a, z), dimensions={0}, "
    "to_apply=add",
    "gather": "a = f32[5,8] parameter(0)  i = s32[9,1] constant({{0},{1},{2},{3},{4},{4},{3},{2},{4}})  "
    "ROOT r = f32[9,8] gather(a, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1,8}",
    "scatter": "a = f32[5,8] parameter(0)  i = s32[3,1] constant({{0},{4},{2}})  u = f32[3,8] parameter(1)  "
    "ROOT r = f32[5,8] scatter(a, i, u), to_apply=add, update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1",
    "select-and-scatter": "a = f32[12] parameter(0)  s = f32[6] parameter(1)  z = f32[] constant(0)  "
    "ROOT r = f32[12] select-and-scatter(a, s, z), window={size=2 stride=2}, select=more, scatter=add",
    "sort": "a = f32[400] parameter(0)  ROOT r = f32[400] sort(a), dimensions={0}, to_apply=less",
    "long sort": "a = f32[9000] parameter(0)  ROOT r = f32[9000] sort(a), dimensions={0}, to_apply=less",
    "prefix sum": "a = f32[700] parameter(0)  z = f32[] constant(0)  ROOT r = f32[700] reduce-window(a, z), "
    "window={size=700 pad=699_0}, to_apply=add",
    "pool": "a = f32[30] parameter(0)  z = f32[] constant(0)  ROOT r = f32[10] reduce-window(a, z), "
    "window={size=3 stride=3}, to_apply=add",
    "small product": "a = f32[3,5] parameter(0)  b = f32[5,4] parameter(1)  ROOT r = f32[3,4] dot(a, b), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "product": "a = f32[97,131] parameter(0)  b = f32[131,103] parameter(1)  ROOT r = f32[97,103] dot(a, b), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "product of the transposed": "a = bf16[131,97] parameter(0)  b = bf16[103,131] parameter(1)  "
    "ROOT r = bf16[97,103] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
    "matrix and vector": "a = f32[97,131] parameter(0)  b = f32[131] parameter(1)  ROOT r = f32[97] dot(a, b), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution": "a = f32[2,9,9,8] parameter(0)  w = f32[3,3,8,16] parameter(1)  ROOT r = f32[2,9,9,16] "
    "convolution(a, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    "depthwise": "a = f32[2,9,9,8] parameter(0)  w = f32[3,3,1,8] parameter(1)  ROOT r = f32[2,7,7,8] "
    "convolution(a, w), window={size=3x3}, dim_labels=b01f_01io->b01f, feature_group_count=8",
    "transform": "a = c64[3,60] parameter(0)  ROOT r = c64[3,60] fft(a), fft_type=FFT, fft_length={60}",
    "cholesky": "a = f32[5,5] constant({{9,1,1,1,1},{1,9,1,1,1},{1,1,9,1,1},{1,1,1,9,1},{1,1,1,1,9}})  "
    "ROOT r = f32[5,5] cholesky(a), lower=true",
    "triangular solve": "a = f32[6,6] parameter(0)  b = f32[6,4] parameter(1)  ROOT r = f32[6,4] "
    "triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
    "update": "a = f32[40] parameter(0)  u = f32[8] parameter(1)  i = s32[] constant(32)  "
    "ROOT r = f32[40] dynamic-update-slice(a, u, i)",
    "random bits": "s = u64[2] parameter(0)  ROOT r = (u64[2], u32[99]) rng-bit-generator(s), algorithm=rng_philox",
}


def compiled(text: str) -> tuple[sanitizer.SanitizedExecutable, list[object]]:
    module = HloModule.from_text(f"HloModule m\n{LESS}{ADD}{MORE}ENTRY e {{ {text} }}")
    with compiling(sanitize=True):
        made = compile_program(module, backend="cpu", cache=False)
    assert isinstance(made, sanitizer.SanitizedExecutable)
    return made, make_inputs(module.entry.program_shape, 0)


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS)
def test_every_array_of_a_kernel_is_checked_to_its_end(text: str, monkeypatch: pytest.MonkeyPatch):
    executable, arguments = compiled(text)
    assert not executable.host_instructions
    note, said = sanitizer.note_bounds, []
    shorter = [-1]

    def noted(address: int, pointer: int, size: int) -> None:
        note(address, pointer, size - (len(said) == shorter[0]))
        said.append(size)

    monkeypatch.setattr(sanitizer, "note_bounds", noted)
    executable(*arguments)
    # Kernels are called twice, and twice for each pair that may share memory, with operands and results before scratch,
    # of which not all need be used.
    plan = executable.memory_plan()
    steps = [step for step in plan.steps if isinstance(step, sanitizer.KernelStep)]
    calls = {step: 2 * (1 + len(step.in_place)) for step in steps}
    assert steps and len(said) == sum(calls[step] * len(step.table) for step in steps)
    place = 0
    for step in steps:
        arrays = [*step.operands, *step.results]
        updated = [step.operands[operand] for operand in step.updates.values()]
        for number, array in enumerate(arrays, place):
            constant = array.instruction is not None and array.instruction.opcode == "constant" and array.bytes == 4
            # The code knows constant scalars; what is changed in place is accessed as the result.
            if constant or array in updated:
                continue
            said.clear()
            shorter[0] = number
            with pytest.raises(InternalError, match="leaves an array, that of "):
                executable(*arguments)
        place += calls[step] * len(step.table)


def test_an_index_that_is_not_chosen(monkeypatch: pytest.MonkeyPatch):
    # What is read there is not used: only the check sees it.
    monkeypatch.setattr(Emitter, "_clamped_address", lambda self, node, _: self.address(node.array, node.offset))
    a, p, b = (np.arange(n, dtype=np.float32) for n in (6, 256, 5))
    assert _knobs_of_guards
    with compiling(sanitize=True, knobs={"guards.little": 0, "guards.often": 0.0}):
        executable = compile_program(HloModule.from_text(PIECES), backend="cpu", cache=False)
    with pytest.raises(InternalError) as caught:
        executable(a, p.reshape(64, 4), b)
    text = str(caught.value)
    assert "'pieces': step 1 leaves an array, that of 'p': " in text
    assert "of an array of 1024 bytes (load " in text
    assert "fusion" in text and "model.py:7" in text


DEVICES = f"""
HloModule two, replica_count=2
{ADD}
ENTRY e {{
  a = f32[100] parameter(0)
  n = f32[100] negate(a), metadata={{source_file="model.py" source_line=8}}
  s = f32[100] all-reduce(n), replica_groups={{}}, to_apply=add
  ROOT c = f32[100] OPERATION
}}
"""


@pytest.mark.parametrize("operation", ["tanh(s)", 'custom-call(s), custom_call_target="same"'])
def test_programs_of_several_devices(operation: str, monkeypatch: pytest.MonkeyPatch):
    values = np.arange(100, dtype=np.float32) / 100
    module = HloModule.from_text(DEVICES.replace("OPERATION", operation))

    def run() -> object:
        with compiling(sanitize=True):
            calls = {"same": np.tanh}
            return compile_program(module, backend="cpu", cache=False, custom_calls=calls)(values)

    results = run()
    assert isinstance(results, list)
    np.testing.assert_allclose(results[0], np.tanh(-2 * values), rtol=1e-6)
    within = emit.within

    def shorter(fn: Function, pointer: Value, size: int) -> Value:
        return within(fn, pointer, size - 4)

    monkeypatch.setattr(emit, "within", shorter)
    with pytest.raises(
        # How wide the access is, and so where it begins, depends on the vectors of the machine.
        InternalError,
        match=r"hlo\.n accesses \d+ bytes at offset \d+ of an array of 396 bytes",
    ) as caught:
        run()
    assert "model.py:8" in str(caught.value)


def test_the_entry_is_run_too(monkeypatch: pytest.MonkeyPatch):
    within = emit.within

    def shorter(fn: Function, pointer: Value, size: int) -> Value:
        return within(fn, pointer, size - 4)

    monkeypatch.setattr(emit, "within", shorter)
    executable, arguments = compiled(KERNELS["elements"])
    with pytest.raises(InternalError, match="an access of the entry leaves an array"):
        executable(*arguments)


def test_keys_and_common_functions_know_of_checks():
    with compiling() as plain, compiling(sanitize=True) as checked:
        assert plain.text != checked.text and plain.tag != checked.tag
