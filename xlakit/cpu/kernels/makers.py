"""Which kernel computes which operation, where it is not a loop nest."""

from __future__ import annotations

from collections.abc import Callable

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.kernel import Kernel, Phase
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.convolution import Convolution
from xlakit.ops.dot import Contraction
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.sort import Sort
from xlakit.ops.windows import SelectAndScatter
from xlakit.passes.analysis.cost_model import cost_model

# Each of these imports the kernel that it makes: a program has few kinds, and all of them take a while to load.
# None where a loop nest does it as well.
Maker = Callable[[Module, Instruction], "Kernel | None"]


def _dot(module: Module, instruction: Instruction) -> Kernel:
    from xlakit.cpu.kernels.gemm.dot import emit_dot, plan_dot

    lhs, rhs = (o.shape for o in instruction.operands)
    plan = plan_dot(instruction.op_as(Contraction), lhs, rhs, instruction.shape)
    function = emit_dot(module, plan)
    return Kernel((Phase(function.name, plan.tasks, plan.cost * cost_model().multiplication),))


def _convolution(module: Module, instruction: Instruction) -> Kernel:
    if len(instruction.operands) != 2:
        raise DeclinedError("a sparse convolution")
    from xlakit.cpu.kernels.conv.convolution import emit_convolution, plan_convolution

    lhs, rhs = (o.shape for o in instruction.operands)
    plan = plan_convolution(instruction.op_as(Convolution), lhs, rhs, instruction.shape)
    stages = emit_convolution(module, plan)
    each = cost_model().multiplication
    return Kernel(
        tuple(Phase(s.function.name, s.tasks, s.cost * each) for s in stages), scratch_bytes=plan.scratch_bytes
    )


def _reduce_window(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.scan.prefix_sum import emit_prefix_sum, plan_prefix_sum

    plan = plan_prefix_sum(instruction)
    return None if plan is None else emit_prefix_sum(module, plan)


def _cholesky(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.linalg.cholesky import emit_cholesky

    return emit_cholesky(module, instruction)


def _fft(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.fft.fft import emit_fft

    return emit_fft(module, instruction)


def _ragged_dot(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.gemm.ragged_dot import emit_ragged_dot

    return emit_ragged_dot(module, instruction)


def _rng(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.rng.random_numbers import emit_random_numbers

    return emit_random_numbers(module, instruction)


def _rng_bit_generator(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.rng.random_bits import emit_random_bits

    return emit_random_bits(module, instruction)


def _scatter(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.scatter.scatter import scatter_kernel

    return scatter_kernel(module, instruction)


def _select_and_scatter(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.scatter.select_and_scatter import select_and_scatter_kernel

    return select_and_scatter_kernel(module, instruction)


def _sort(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.sort.sort import sort_kernel

    return sort_kernel(module, instruction)


def _topk(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.sort.top_k import top_k_kernel

    return top_k_kernel(module, instruction)


def _triangular_solve(module: Module, instruction: Instruction) -> Kernel | None:
    from xlakit.cpu.kernels.linalg.triangular_solve import emit_triangular_solve

    return emit_triangular_solve(module, instruction)


MAKERS: dict[str, Maker] = {
    "cholesky": _cholesky,
    "convolution": _convolution,
    "dot": _dot,
    "fft": _fft,
    "ragged-dot": _ragged_dot,
    "reduce-window": _reduce_window,
    "rng": _rng,
    "rng-bit-generator": _rng_bit_generator,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "sort": _sort,
    "topk": _topk,
    "triangular-solve": _triangular_solve,
}


# -- fusions ---------------------------------------------------------------------------------------

# Of a fused computation and the name for its function; None where it is not of the kind.
FusionMaker = Callable[[Module, Computation, str], "Kernel | None"]


def _product_fusion(module: Module, computation: Computation, name: str) -> Kernel | None:
    from xlakit.cpu.kernels.product_fusion.fusion import emit_product_fusion

    return emit_product_fusion(module, computation, name)


def _padded_selection(module: Module, computation: Computation, name: str) -> Kernel | None:
    from xlakit.cpu.kernels.scatter.select_and_scatter import emit_padded_selection

    return emit_padded_selection(module, computation)


def _partial_sort(module: Module, computation: Computation, name: str) -> Kernel | None:
    from xlakit.cpu.kernels.sort.top_k import emit_partial_sort

    return emit_partial_sort(module, computation)


def _in_lanes(module: Module, computation: Computation, name: str) -> Kernel | None:
    from xlakit.cpu.kernels.linalg.lanes import emit_in_lanes

    return emit_in_lanes(module, computation)


# Fusions that are no loop nest, by an operation that each of them has; in the order in which they are tried.
OF_FUSIONS: tuple[tuple[tuple[type[Op], ...], FusionMaker], ...] = (
    ((Contraction, Convolution), _product_fusion),
    ((SelectAndScatter,), _padded_selection),
    ((Sort,), _partial_sort),
    ((Cholesky, TriangularSolve), _in_lanes),
)
