"""The tables of kernels that are not loop nests: by opcode, and by the operations of a fusion."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

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

# Makes the kernel of an instruction; None if a loop nest computes it as well. Each maker imports its kernel when it is
# called, because a program has few kinds, and all of them take a while to import.
Maker = Callable[[Module, Instruction], "Kernel | None"]


def _dot(module: Module, instruction: Instruction) -> Kernel:
    from xlakit.cpu.kernels.dot.dot import emit_dot, plan_dot
    from xlakit.cpu.kernels.gemm.packed_once import emit_packing, packing_phase

    lhs, rhs = (o.shape for o in instruction.operands)
    plan = plan_dot(instruction.op_as(Contraction), lhs, rhs, instruction.shape, once=True)
    function = emit_dot(module, plan)
    phase = Phase(function.name, plan.tasks, plan.cost * cost_model().multiplication)
    if plan.blocking is None or not plan.blocking.packs_once:
        return Kernel((phase,))
    product, blocking = plan.product, plan.blocking
    packing = packing_phase(emit_packing(module, product, blocking).name, product, blocking)
    return Kernel((packing, phase), scratch_bytes=blocking.packed_once_bytes(product))


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


def _imported(path: str, takes: int = 2) -> Callable[..., Kernel | None]:
    """A function of a module in this folder, imported when called; it gets the first ``takes`` arguments."""
    module, name = path.split(":")

    def make(*arguments: object) -> Kernel | None:
        return getattr(import_module(f"xlakit.cpu.kernels.{module}"), name)(*arguments[:takes])

    return make


MAKERS: dict[str, Maker] = {
    "cholesky": _imported("linalg.cholesky:emit_cholesky"),
    "convolution": _convolution,
    "dot": _dot,
    "fft": _imported("fft.fft:emit_fft"),
    "ragged-dot": _imported("dot.ragged_dot:emit_ragged_dot"),
    "reduce-window": _reduce_window,
    "rng": _imported("rng.random_numbers:emit_random_numbers"),
    "rng-bit-generator": _imported("rng.random_bits:emit_random_bits"),
    "scatter": _imported("scatter.scatter:scatter_kernel"),
    "select-and-scatter": _imported("scatter.select_and_scatter:select_and_scatter_kernel"),
    "sort": _imported("sort.sort:sort_kernel"),
    "topk": _imported("sort.top_k:top_k_kernel"),
    "triangular-solve": _imported("linalg.triangular_solve:emit_triangular_solve"),
}

# Makes the kernel of a fused computation, given the name of its function; None if it is not of this kind.
FusionMaker = Callable[[Module, Computation, str], "Kernel | None"]

# Makers of fusions that are not loop nests, in the order in which they are tried. Each is tried for fusions that
# contain one of its operations.
OF_FUSIONS: tuple[tuple[tuple[type[Op], ...], FusionMaker], ...] = (
    ((Contraction, Convolution), _imported("product_fusion.fusion:emit_product_fusion", takes=3)),
    ((SelectAndScatter,), _imported("scatter.select_and_scatter:emit_padded_selection")),
    ((Sort,), _imported("sort.top_k:emit_partial_sort")),
    ((Cholesky, TriangularSolve), _imported("linalg.lanes:emit_in_lanes")),
)
