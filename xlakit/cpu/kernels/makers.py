"""Which kernel computes which operation, where it is not a loop nest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.convolution import emit_convolution, plan_convolution
from xlakit.cpu.kernels.dot import emit_dot, plan_dot
from xlakit.cpu.kernels.sort import sort_kernel
from xlakit.cpu.kernels.top_k import emit_top_k, plan_top_k
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.kernel import Emitted, Phase
from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.dot import Contraction
from xlakit.ops.sort import TopK

Maker = Callable[[Module, Instruction], Emitted]

# Nanoseconds for a multiplication in a product of matrices, on one core.
_PRODUCT = 0.05


def _dot(module: Module, instruction: Instruction) -> Emitted:
    lhs, rhs = (o.shape for o in instruction.operands)
    plan = plan_dot(instruction.op_as(Contraction), lhs, rhs, instruction.shape)
    function = emit_dot(module, plan)
    return (Phase(function.name, plan.tasks, plan.cost * _PRODUCT),), {}, 0


def _convolution(module: Module, instruction: Instruction) -> Emitted:
    lhs, rhs = (o.shape for o in instruction.operands)
    plan = plan_convolution(instruction.op_as(Convolution), lhs, rhs, instruction.shape)
    stages = emit_convolution(module, plan)
    return tuple(Phase(s.function.name, s.tasks, s.cost * _PRODUCT) for s in stages), {}, plan.scratch_bytes


def _sort(module: Module, instruction: Instruction) -> Emitted:
    return sort_kernel(module, instruction)


def _top_k(module: Module, instruction: Instruction) -> Emitted:
    plan = plan_top_k(instruction.op_as(TopK), instruction.operands[0].shape)
    return _phases(emit_top_k(module, plan)), {}, plan.scratch_bytes


def _phases(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    return tuple(phases)


MAKERS: dict[str, Maker] = {"dot": _dot, "convolution": _convolution, "sort": _sort, "topk": _top_k}
