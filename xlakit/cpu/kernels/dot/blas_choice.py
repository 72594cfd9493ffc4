"""The choice between xlakit's kernels and BLAS for a product, which depends on the processor.

The rates of both are measured when a program first has a large product (:mod:`xlakit.cpu.measuring`), and are stored in
the machine's description. Without measurements (the compile cache is off, or options differ from the defaults) the
width of vectors decides.
"""

from __future__ import annotations

import math
from typing import Final

from xlakit import machine, target
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.data import Parameter, Tuple
from xlakit.ops.dot import Dot
from xlakit.options import knob

# Multiplications of a product for which the choice of the kernel may matter: where something else is computed, with
# which it may be fused, and where nothing is.
_LARGE: Final = 1 << 25
_LARGE_ALONE: Final = 1 << 28
UNBOUNDED: Final = 1 << 62
# For more products than this BLAS is called if it is faster on this machine, since its blocks suit the largest caches;
# for fewer, if the layout of the left operand suits it better.
OWN_PRODUCTS = knob("machine.own_products", 1 << 29, 0, tries=(0, UNBOUNDED))
OWN_TRANSPOSED_PRODUCTS = knob("machine.own_transposed_products", _LARGE_ALONE, 0, tries=(0, UNBOUNDED))
KINDS: Final = {PrimitiveType.F32: "f32", PrimitiveType.F64: "f64"}


def large_products(module: HloModule) -> set[PrimitiveType]:
    """The element types of a module's products that are so large that BLAS might be called for them.

    Measuring takes longer than compiling them.
    """
    operations = [type(i.op) for computation in module.computations for i in computation.instructions]
    is_alone = operations.count(Dot) == 1 and all(kind in (Dot, Parameter, Tuple) for kind in operations)
    least = _LARGE_ALONE if is_alone else _LARGE
    return {
        i.shape.element_type
        for computation in module.computations
        for i in computation.instructions
        if isinstance(i.op, Dot) and i.shape.element_type in KINDS and _products(i, i.op) >= least
    }


def _products(instruction: Instruction, op: Dot) -> int:
    lhs = instruction.operands[0].shape.dimensions
    return instruction.shape.num_elements * math.prod(lhs[d] for d in op.lhs_contracting_dims)


def has_faster_blas(kind: PrimitiveType) -> bool:
    """Whether BLAS is faster than own kernels for large products of an element type."""
    return machine.current().has_faster_blas(KINDS.get(kind, ""), target.vector_bytes())


def most_own_products(kind: PrimitiveType, *, transposed: bool) -> int:
    """The largest product of real numbers that own kernels compute although BLAS could; ``transposed``: whether the
    rows of the left operand are not contiguous.
    """
    limit = OWN_TRANSPOSED_PRODUCTS if transposed else OWN_PRODUCTS
    return limit.value if limit.is_set or has_faster_blas(kind) else UNBOUNDED
