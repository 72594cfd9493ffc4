import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.nests.pieces import emit_spread
from xlakit.execution.inputs import make_inputs
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling

VALUES = ("z = T[] parameter(1)", "z = T[] constant(1)")


def pad(kind, rows, size, low, high, interior, value=VALUES[0]):
    width = low + high + size + (size - 1) * interior
    return HloModule.from_text(
        f"""HloModule spread
    ENTRY e {{
        x = T[{rows},3,{size}] parameter(0)
        {value}
        ROOT y = T[{rows},3,{width}] pad(x, z), padding=0_0x0_0x{low}_{high}_{interior}
    }}""".replace("T[", f"{kind}[")
    )


@pytest.mark.parametrize("kind", ["f32", "bf16", "s8", "pred", "c64", "f64", "f8e4m3fn"])
@pytest.mark.parametrize("value", VALUES, ids=["parameter", "constant"])
@pytest.mark.parametrize("vector", [16, 64])
def test_rows_are_spread_in_vectors(kind, value, vector):
    if kind in ("pred", "c64"):
        value = value.replace("constant(1)", {"pred": "constant(true)", "c64": "constant((1, 2))"}[kind])
    for rows, size, low, high, interior in ((5, 3, 0, 0, 1), (40, 64, 0, 0, 1), (7, 33, 2, 5, 2), (3, 130, 1, 0, 3)):
        module = pad(kind, rows, size, low, high, interior, value)
        inputs = make_inputs(module.entry.program_shape, 0)
        expected = xla.compile(module, backend="interpreter")(*inputs)
        with compiling(vector_bytes=vector, knobs={"spread.task_bytes": 64}):
            assert emit_spread(Module("m"), "pad", module.entry) is not None
            found = xla.compile(module, cache=False)(*inputs)
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("kind", ["f32", "s8", "f64"])
@pytest.mark.parametrize("vector", [16, 32, 64])
def test_parts_of_one_row_are_tasks(kind, vector):
    for size, low, high, interior in ((3, 0, 0, 1), (200, 2, 1, 3), (333, 0, 7, 2)):
        width = low + high + size + (size - 1) * interior
        module = HloModule.from_text(
            f"""HloModule spread
        ENTRY e {{
            x = {kind}[{size}] parameter(0)
            z = {kind}[] constant(1)
            ROOT y = {kind}[{width}] pad(x, z), padding={low}_{high}_{interior}
        }}"""
        )
        inputs = make_inputs(module.entry.program_shape, 0)
        with compiling(vector_bytes=vector, knobs={"spread.task_bytes": 64}):
            phase = emit_spread(Module("m"), "pad", module.entry)
            assert phase is not None
            assert (phase.tasks > 1) == (size * np.asarray(inputs[0]).itemsize >= 2 * vector)
            found = xla.compile(module, cache=False)(*inputs)
        expected = xla.compile(module, backend="interpreter")(*inputs)
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def test_what_is_no_row_of_spread_elements_is_left_to_loops():
    others = (
        pad("f32", 4, 1, 0, 0, 1),
        pad("f32", 4, 9, -1, 0, 1),
        pad("f32", 4, 9, 1, 1, 0),
        pad("s4", 4, 9, 0, 0, 1),
    )
    for module in (*others, pad("f32", 4, 9, 0, 0, 100), pad("c128", 4, 9, 0, 0, 1)):
        assert emit_spread(Module("m"), "pad", module.entry) is None
    scalar = "HloModule m\nENTRY e { x = f32[] parameter(0) ROOT y = f32[] pad(x, x), padding= }"
    assert emit_spread(Module("m"), "pad", HloModule.from_text(scalar).entry) is None
