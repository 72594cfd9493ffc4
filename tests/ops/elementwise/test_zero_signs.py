"""Maximum and minimum tell -0 from +0 in every operation that combines with them, whatever the order."""

from __future__ import annotations

import numpy as np
import pytest

import xlakit

_COMBINER = "c {{\n  x = {kind}[] parameter(0)\n  y = {kind}[] parameter(1)\n  ROOT r = {kind}[] {opcode}(x, y)\n}}\n"
_REDUCE = "ROOT r = {kind}[] reduce(p, z), dimensions={{0}}, to_apply=c"
_WINDOW = "ROOT r = {kind}[1] reduce-window(p, z), window={{size=3}}, to_apply=c"
_SCATTER = (
    "i = s32[3,1] constant({{ {{0}}, {{0}}, {{0}} }})\n  o = {kind}[1] broadcast(z), dimensions={{}}\n"
    "  ROOT r = {kind}[1] scatter(o, i, p), update_window_dims={{}}, inserted_window_dims={{0}}, "
    "scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=c"
)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("body", [_REDUCE, _WINDOW, _SCATTER], ids=["reduce", "reduce-window", "scatter"])
@pytest.mark.parametrize("values", [[0.0, -0.0, -0.0], [-0.0, 0.0, -0.0], [-0.0, -0.0, 0.0]])
def test_zeros_of_both_signs(kind, body, values):
    for opcode, start, negative in (("maximum", -np.inf, False), ("minimum", np.inf, True)):
        text = "HloModule m\n" + _COMBINER + "ENTRY e {{\n  p = {kind}[3] parameter(0)\n  z = {kind}[] parameter(1)\n"
        module = xlakit.HloModule.from_text((text + f"  {body}\n}}}}\n").format(kind=kind, opcode=opcode))
        dtype = module.entry.parameters[0].shape.element_type.dtype
        result = xlakit.compile(module)(np.array(values, dtype), np.array(start, dtype))
        assert np.signbit(result.astype(np.float64)).tolist() == (negative if result.ndim == 0 else [negative])
