"""Which results of a kernel may share memory with an operand: those whose element is written where it was read."""

from __future__ import annotations

from xlakit.cpu.kernels.library import alone
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.control import Fusion
from xlakit.ops.data import Tuple


def in_place_pairs(instruction: Instruction) -> frozenset[tuple[int, int]]:
    """Pairs of a result's and an operand's number that may share memory, where each operand is an array."""
    if isinstance(instruction.op, Fusion):
        return _pairs(instruction.op.calls)
    if isinstance(instruction.op, Elementwise):
        return _pairs(alone(instruction))
    return frozenset()


def _pairs(computation: Computation) -> frozenset[tuple[int, int]]:
    """The pairs of results and parameters of a fusion, where all results have the same dimensions."""
    root = computation.root
    roots = list(root.operands) if isinstance(root.op, Tuple) else [root]
    if any(r.shape.is_tuple or r.shape.dimensions != roots[0].shape.dimensions for r in roots):
        return frozenset()
    dimensions = roots[0].shape.dimensions
    # The instructions whose element at an index is only needed for the results at that index.
    aligned: set[Instruction] = {root} if isinstance(root.op, Tuple) else set()
    for instruction in reversed(computation.instructions):
        if instruction in roots or instruction in aligned:
            if not isinstance(instruction.op, Tuple) and not _is_elementwise(instruction, dimensions):
                continue
            aligned.add(instruction)
            aligned.update(o for o in instruction.operands if o.shape.dimensions == dimensions)
    # What is needed at other indices needs its operands there, too.
    misaligned: set[Instruction] = set()
    for instruction in reversed(computation.instructions):
        plain = instruction in aligned and (instruction is root or _is_elementwise(instruction, dimensions))
        if instruction in misaligned or not plain:
            misaligned.update(instruction.operands)
    return frozenset(
        (result, operand)
        for operand, parameter in enumerate(computation.parameters)
        if parameter in aligned and parameter not in misaligned
        for result, r in enumerate(roots)
        if r.shape.element_type.byte_width == parameter.shape.element_type.byte_width
    )


def _is_elementwise(instruction: Instruction, dimensions: tuple[int, ...]) -> bool:
    return (
        isinstance(instruction.op, Elementwise)
        and instruction.shape.is_array
        and instruction.shape.dimensions == dimensions
    )
