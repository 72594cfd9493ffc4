"""Which kernel computes which operation, where it is not a loop nest."""

from __future__ import annotations

from collections.abc import Callable

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.conv.convolution import emit_convolution, plan_convolution
from xlakit.cpu.kernels.fft.fft import emit_fft
from xlakit.cpu.kernels.gemm.dot import MULTIPLICATION, emit_dot, plan_dot
from xlakit.cpu.kernels.gemm.ragged_dot import emit_ragged_dot
from xlakit.cpu.kernels.linalg.cholesky import emit_cholesky
from xlakit.cpu.kernels.linalg.triangular_solve import emit_triangular_solve
from xlakit.cpu.kernels.rng.random_bits import emit_random_bits
from xlakit.cpu.kernels.rng.random_numbers import emit_random_numbers
from xlakit.cpu.kernels.scan.prefix_sum import emit_prefix_sum, plan_prefix_sum
from xlakit.cpu.kernels.scatter.scatter import scatter_kernel
from xlakit.cpu.kernels.scatter.select_and_scatter import select_and_scatter_kernel
from xlakit.cpu.kernels.sort.sort import sort_kernel
from xlakit.cpu.kernels.sort.top_k import top_k_kernel
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.kernel import Emitted, Phase
from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.dot import Contraction

# None where a loop nest does it as well.
Maker = Callable[[Module, Instruction], "Emitted | None"]


def _dot(module: Module, instruction: Instruction) -> Emitted:
    lhs, rhs = (o.shape for o in instruction.operands)
    plan = plan_dot(instruction.op_as(Contraction), lhs, rhs, instruction.shape)
    function = emit_dot(module, plan)
    return (Phase(function.name, plan.tasks, plan.cost * MULTIPLICATION),), {}, 0


def _convolution(module: Module, instruction: Instruction) -> Emitted:
    if len(instruction.operands) != 2:
        raise DeclinedError("a sparse convolution")
    lhs, rhs = (o.shape for o in instruction.operands)
    plan = plan_convolution(instruction.op_as(Convolution), lhs, rhs, instruction.shape)
    stages = emit_convolution(module, plan)
    return tuple(Phase(s.function.name, s.tasks, s.cost * MULTIPLICATION) for s in stages), {}, plan.scratch_bytes


def _reduce_window(module: Module, instruction: Instruction) -> Emitted | None:
    plan = plan_prefix_sum(instruction)
    return None if plan is None else emit_prefix_sum(module, plan)


MAKERS: dict[str, Maker] = {
    "cholesky": emit_cholesky,
    "convolution": _convolution,
    "dot": _dot,
    "reduce-window": _reduce_window,
    "fft": emit_fft,
    "ragged-dot": emit_ragged_dot,
    "rng": emit_random_numbers,
    "rng-bit-generator": emit_random_bits,
    "scatter": scatter_kernel,
    "select-and-scatter": select_and_scatter_kernel,
    "sort": sort_kernel,
    "topk": top_k_kernel,
    "triangular-solve": emit_triangular_solve,
}
