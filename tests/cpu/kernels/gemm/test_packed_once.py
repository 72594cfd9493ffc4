"""Products whose right operand is packed before all tasks, which share it."""

from __future__ import annotations

import numpy as np
import pytest

import xlakit as xla
from xlakit import machine
from xlakit.cpu.kernels.dot.dot import plan_dot
from xlakit.cpu.kernels.gemm.bf16_range import ranges_bytes
from xlakit.ops.dot import Dot
from xlakit.options import compiling

P = xla.PrimitiveType
# One thread has nothing to share. Other numbers of threads need a runtime of their own, which takes seconds to compile.
pytestmark = pytest.mark.skipif(machine.own().threads < 2, reason="one processor")
# Small products are divided as large ones are.
KNOBS = {"gemm.task_products": 64, "gemm.sliver_bytes": 1 << 10, "gemm.together": 0.0, "gemm.least_tiles": 1}


def text(kinds, sizes, *, turned, epilogue):
    kind, result = kinds
    rows, depth, columns = sizes
    shape = f"{result}[{rows},{columns}]"
    right = f"{columns},{depth}" if turned else f"{depth},{columns}"
    dot = f"dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{int(turned)}}}"
    alias = ", input_output_alias={ {}: (2, {}) }" if epilogue else ""
    return f"""HloModule product{alias}
ENTRY e {{
  a = {kind}[{rows},{depth}] parameter(0)
  b = {kind}[{right}] parameter(1)
  c = {shape} parameter(2)
  d = {shape} {dot}
  ROOT r = {shape} {"add(d, c)" if epilogue else "copy(d)"}
}}"""


def blocking_of(module):
    dot = next(i for i in module.entry.instructions if isinstance(i.op, Dot))
    lhs, rhs = (o.shape for o in dot.operands)
    return plan_dot(dot.op_as(Dot), lhs, rhs, dot.shape, once=True).blocking


@pytest.mark.parametrize("kinds", [("f32", "f32"), ("s8", "s32"), ("bf16", "f32")])
@pytest.mark.parametrize(("most", "turned", "epilogue"), [(64, False, False), (0, True, True)])
def test_results(kinds, most, turned, epilogue):
    module = xla.HloModule.from_text(text(kinds, (130, 141, 150), turned=turned, epilogue=epilogue))
    rng = np.random.default_rng(5)
    shapes = [p.shape for p in module.entry.parameters]
    values = [rng.integers(-3, 4, shape.dimensions).astype(shape.element_type.dtype) for shape in shapes]
    with compiling(knobs={**KNOBS, "gemm.most_columns": most}):
        blocking = blocking_of(module)
        assert blocking is not None
        # The engines of processors with instructions for BF16 keep ranges for what each task packs.
        assert blocking.packs_once is not bool(ranges_bytes(blocking.engine, 1))
        assert blocking.k_blocks > 1
        assert blocking.row_tasks > 1 or not blocking.packs_once
        executable = xla.compile(module, backend="cpu", cache=False)
    wanted = xla.compile(module, backend="interpreter")(*values)
    # Packing comes first and writes scratch memory only, so results may be in the memory of what is added to them.
    memory = np.zeros(values[2].nbytes + 64, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :][: values[2].nbytes].view(values[2].dtype).reshape(values[2].shape)
    memory[...] = values[2]
    found = executable(*values[:2], memory, donate=(2,))
    assert (found is memory) is epilogue
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("size", "once"), [(48, False), (1024, True)])
def test_what_takes_longer_than_a_phase_is_packed_once(size, once):
    plan = plan_dot(
        Dot(lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)), *[xla.make_shape(P.F32, (size, size))] * 3, once=True
    )
    assert plan.blocking is not None
    assert plan.blocking.packs_once is once
