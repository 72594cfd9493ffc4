"""F16 is computed as F32 and rounded after each operation, or in instructions for F16 with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import xlakit as xla
from xlakit import target
from xlakit.options import compiling

# All numbers, subnormal ones and NaNs of both kinds among them, meet the least, the greatest and some others.
ALL = np.arange(1 << 16, dtype=np.uint16)
SPECIAL = [0, 1, 2, 0x3FF, 0x400, 0x401, 0x1001, 0x3BFF, 0x3C00, 0x3C01, 0x3555, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF]
DRAWN = np.random.default_rng(7).integers(0, 1 << 16, 30)
OTHERS = np.concatenate([SPECIAL, np.array(SPECIAL) | 0x8000, DRAWN]).astype(np.uint16)


@pytest.mark.skipif(not target.host().has("avx512fp16"), reason="this processor has no instructions for F16")
def test_instructions_for_f16_give_the_same_bits():
    a, b = (x.ravel().view(np.float16) for x in np.meshgrid(ALL, OTHERS))
    array = f"f16[{a.size}]"
    module = xla.HloModule.from_text(f"""HloModule short
ENTRY e {{
  a = {array} parameter(0)
  b = {array} parameter(1)
  sum = {array} add(a, b)
  difference = {array} subtract(a, b)
  product = {array} multiply(a, b)
  cube = {array} multiply(product, a)
  chain = {array} add(cube, sum)
  quotient = {array} divide(chain, b)
  ROOT r = tuple(sum, difference, product, chain, quotient)
}}""")
    with compiling(cpu="native", vector_bytes=0):
        native = xla.compile(module, backend="cpu", cache=False)
        code = native.assembly()
    assert all(instruction in code for instruction in ("vaddph", "vsubph", "vmulph", "vdivps"))
    with compiling(cpu="x86-64-v4", vector_bytes=0):
        wide = xla.compile(module, backend="cpu", cache=False)
    for found, expected in zip(native(a, b), wide(a, b), strict=True):
        np.testing.assert_array_equal(np.asarray(found).view(np.uint16), np.asarray(expected).view(np.uint16))
