"""Proofs that a kernel may write a result into the memory of an operand.

For a loop nest, the access maps prove it. The kernel is traced again here, independently of how it is emitted, and
every operand element that a result element depends on must be at the address of that result element. The proof relies
on what all emitted loops have in common: an element is stored once, after all loads for the results at its index, and
different iterations, lanes and tasks have different indices. So no later load reads the overwritten element.

Inside of a fusion, an operation that is not element-wise (a product, a sort) may read its operands at any index and at
any time, so a result never shares their memory. Its own results have loops of their own: of two products, the first
one's are stored before the second one is computed, and where the second one's rows lie in another order, blocks of them
are stored before all of the first one's. So a result shares the memory of an operand only if all results that are
computed from it are computed of the same products and sorts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.library import alone
from xlakit.cpu.kernels.shared.fingerprint import fingerprint
from xlakit.cpu.loops.emit.kernel import Phase
from xlakit.cpu.loops.ir.index import Affine, Node, linear
from xlakit.cpu.loops.ir.nodes import Constant, Load, walk
from xlakit.cpu.loops.ir.space import Space, with_splits
from xlakit.cpu.loops.ir.tracer import Source, Tracer, is_traced
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import Computation, Instruction, post_order
from xlakit.ir.traits import Elementwise
from xlakit.memory.steps import CollectiveStep, HostStep, KernelStep
from xlakit.ops.control import Fusion
from xlakit.ops.data import Parameter, Tuple
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicUpdateSlice

# Kernels that are not loop nests and update an operand in place, with the reason why the result may be in the operand's
# slice. No other operand of the step may be in that slice.
UPDATES = {
    "scatter": "the operand is not read at all: its elements are read from the result, combined, and written back",
    "cholesky": "the matrices are not read: the result starts as a copy of them, which is factored",
    "triangular-solve": "the right-hand sides are not read: the result starts as a copy of them, which is solved",
    "custom-call": "the program says by output_to_operand_aliasing that the function works in place, on one pointer",
}
# Collectives whose result may be in the slice of the operand of the same number, with the reason.
COLLECTIVES = {
    "all-reduce": "an element of all operands is combined, then written to all results; each task has its own elements",
}
_WHY_PHASES = "the kernel has phases or scratch, and may read in a later one"


class Refusals:
    """Decides which results of kernels may be in the memory of operands, and caches the proofs of identical kernels."""

    def __init__(self) -> None:
        self._maps: dict[Any, _AccessMaps | str] = {}

    def refusal(self, step: KernelStep | CollectiveStep | HostStep, result: int, operand: int) -> str:
        """The reason why a result may not be in the memory of an operand, by number; empty if it provably may."""
        instruction = step.instruction
        if isinstance(step, HostStep):
            # The program says by output_to_operand_aliasing that the function works in place.
            return "" if step.updates.get(result) == operand else "a function of others may read when it has written"
        if isinstance(step, CollectiveStep):
            opcode = instruction.opcode.removesuffix("-start")
            return "" if opcode in COLLECTIVES and result == operand else f"{opcode} moves elements"
        if step.updates.get(result) == operand and instruction.opcode in UPDATES:
            return ""
        if not writes_last(step.phases, bool(step.scratch)):
            return _WHY_PHASES
        key = fingerprint(instruction)
        maps = self._maps.get(key)
        if maps is None:
            maps = self._maps[key] = _maps_of(instruction)
        return maps if isinstance(maps, str) else maps.refusal(result, operand)


# The offset of an access in elements, and the size of an element in bytes.
_Access = tuple[Affine, int]


class _Result(NamedTuple):
    """A result's store, the nodes that are computed for it, and the operations that it comes after."""

    store: _Access
    nodes: tuple[Node, ...]
    after: frozenset[Instruction] = frozenset()


class _AccessMaps:
    """The access maps of a loop nest: where it stores each result, and which elements of which operands it loads."""

    def __init__(self, results: Sequence[_Result], anywhere: frozenset[int]) -> None:
        self._results = results
        self._anywhere = anywhere
        self._read: dict[int, set[_Access]] = {}
        self._read_after: dict[int, set[frozenset[Instruction]]] = {}
        for after in {result.after for result in results}:
            for node in walk([n for result in results if result.after == after for n in result.nodes]):
                if isinstance(node, Load):
                    self._read.setdefault(node.array, set()).add((node.offset, node.kind.byte_width))
                    self._read_after.setdefault(node.array, set()).add(after)

    def refusal(self, result: int, operand: int) -> str:
        if operand in self._anywhere:
            return "an operation in the fusion reads it at other indices"
        (written, width), after = self._results[result].store, self._results[result].after
        if self._read_after.get(operand, {after}) != {after}:
            return "it is read for the results of another product or sort, maybe when this result has been stored"
        for other, bytes in self._read.get(operand, ()):
            if other != written or bytes != width:
                return f"element {other} of {bytes} bytes is read where element {written} of {width} bytes is written"
        return ""


def _maps_of(instruction: Instruction) -> _AccessMaps | str:
    """The access maps of a kernel, or the reason why there are none."""
    if isinstance(instruction.op, Fusion):
        computation = instruction.op.calls
    elif is_traced(instruction.opcode) or isinstance(instruction.op, DynamicUpdateSlice):
        computation = alone(instruction)
    else:
        return f"the kernel of {instruction.opcode} is no loop nest, and nothing is stated of it"
    try:
        return with_splits(lambda space: _traced(computation, space))
    except (DeclinedError, UnsupportedError) as error:
        return f"its access maps are not known: {error}"


def _traced(computation: Computation, space: Space) -> _AccessMaps:
    """The access maps of a fusion, or of one dynamic-update-slice, traced over ``space``.

    An operation that is not element-wise may read any element of the operands that it depends on. Raises DeclinedError
    where no maps exist.
    """
    root = computation.root
    roots = [(o, 0, o.shape) for o in root.operands] if isinstance(root.op, Tuple) else []
    shapes = root.shape.tuple_shapes_or_self
    roots = roots or [(root, part, shape) for part, shape in enumerate(shapes)]
    sources: dict[Instruction, Source] = {
        p: (lambda index, _, p=p, n=n: Load(p.shape.element_type, n, linear(index, p.shape.dimensions)))
        for n, p in enumerate(computation.parameters)
    }
    is_update = len(roots) == 1 and isinstance(root.op, DynamicUpdateSlice)
    anywhere: set[int] = set()
    for instruction in computation.instructions:
        if not _is_element_wise(instruction) and not (is_update and instruction is root):
            sources[instruction] = _unknown(instruction)
            read = set(post_order(instruction.operands))
            anywhere.update(n for n, p in enumerate(computation.parameters) if p in read)
    if is_update:
        return _update(root, sources, space, anywhere)
    if any(shape.num_elements != roots[0][2].num_elements for _, _, shape in roots):
        raise DeclinedError("results of different numbers of elements")
    tracer = Tracer(sources, space)
    dimensions = roots[0][2].dimensions
    index = tuple(space.axis(size).index for size in dimensions)
    after = _operations_before(computation)
    results: list[_Result] = []
    for instruction, part, shape in roots:
        node = tracer.element(instruction, tracer.reindexed(index, dimensions, shape.dimensions), part)
        store = linear(index, dimensions), shape.element_type.byte_width
        results.append(_Result(store, (node,), after[instruction]))
    return _AccessMaps(results, frozenset(anywhere))


def _operations_before(computation: Computation) -> dict[Instruction, frozenset[Instruction]]:
    """By instruction, the operations that are not element-wise of which it is computed."""
    before: dict[Instruction, frozenset[Instruction]] = {}
    for instruction in computation.instructions:
        own = () if _is_element_wise(instruction) else (instruction,)
        before[instruction] = frozenset(own).union(*(before[o] for o in instruction.operands))
    return before


def _update(root: Instruction, sources: dict[Instruction, Source], space: Space, anywhere: set[int]) -> _AccessMaps:
    """The access maps of a dynamic-update-slice that writes only the slice, into its operand."""
    target, update, *starts = root.operands
    tracer = Tracer(sources, space)
    index = tuple(space.axis(size).index for size in update.shape.dimensions)
    offsets = tracer.starts(starts, target.shape, update.shape.dimensions)
    offset = linear([i + o for i, o in zip(index, offsets, strict=True)], target.shape.dimensions)
    node = tracer.element(update, index)
    opaque = Load(node.kind, -1, offset)
    width = root.shape.element_type.byte_width
    return _AccessMaps([_Result((offset, width), (node, opaque))], frozenset(anywhere))


def _is_element_wise(instruction: Instruction) -> bool:
    """Whether a fusion's loops compute an element of the instruction on demand."""
    return isinstance(instruction.op, Parameter) or (
        is_traced(instruction.opcode) and not isinstance(instruction.op, Dot)
    )


def _unknown(instruction: Instruction) -> Source:
    """A source for an operation that no loop nest computes: its elements are zeros, since only loads matter."""
    shapes = instruction.shape.tuple_shapes_or_self
    zeros = [Constant(s.element_type, np.zeros((), s.element_type.dtype)) for s in shapes]
    return lambda _, part: zeros[part]


def writes_last(phases: Sequence[Phase], has_scratch: bool) -> bool:
    """Whether the last phase alone writes results, and reads no scratch memory that it writes itself.

    The phases before it have read what they need when the first result is written, so what holds for a kernel of one
    phase holds for the last one. A kernel of several other phases may read an operand after it has written a result.
    Results without elements are written by no phase.
    """
    if not phases:
        return False
    return all(phase.prepares for phase in phases[:-1]) and (len(phases) > 1 or not has_scratch)


def in_place_pairs(instruction: Instruction) -> frozenset[tuple[int, int]]:
    """The pairs (result, operand), by number, that may share memory; every operand must be an array."""
    if isinstance(instruction.op, Fusion):
        return _pairs(instruction.op.calls)
    if isinstance(instruction.op, Elementwise):
        return _pairs(alone(instruction))
    return frozenset()


def _pairs(computation: Computation) -> frozenset[tuple[int, int]]:
    """The pairs (result, parameter) of a fusion whose results all have the same dimensions."""
    root = computation.root
    roots = list(root.operands) if isinstance(root.op, Tuple) else [root]
    if any(r.shape.is_tuple or r.shape.dimensions != roots[0].shape.dimensions for r in roots):
        return frozenset()
    dimensions = roots[0].shape.dimensions
    # Instructions of which an element is needed for the results at the same index.
    aligned: set[Instruction] = {root} if isinstance(root.op, Tuple) else set()
    for instruction in reversed(computation.instructions):
        if instruction in roots or instruction in aligned:
            if not isinstance(instruction.op, Tuple) and not _is_elementwise(instruction, dimensions):
                continue
            aligned.add(instruction)
            aligned.update(o for o in instruction.operands if o.shape.dimensions == dimensions)
    # Instructions of which elements are needed for results at other indices; their operands are among them.
    misaligned: set[Instruction] = set()
    for instruction in reversed(computation.instructions):
        plain = instruction in aligned and (instruction is root or _is_elementwise(instruction, dimensions))
        if instruction in misaligned or not plain:
            misaligned.update(instruction.operands)
    after = _operations_before(computation)
    read_after: dict[Instruction, set[frozenset[Instruction]]] = {}
    for r in roots:
        for instruction in post_order([r]):
            read_after.setdefault(instruction, set()).add(after[r])
    return frozenset(
        (result, operand)
        for operand, parameter in enumerate(computation.parameters)
        if parameter in aligned and parameter not in misaligned
        for result, r in enumerate(roots)
        if r.shape.element_type.byte_width == parameter.shape.element_type.byte_width
        and read_after[parameter] == {after[r]}
    )


def _is_elementwise(instruction: Instruction, dimensions: tuple[int, ...]) -> bool:
    return (
        isinstance(instruction.op, Elementwise)
        and instruction.shape.is_array
        and instruction.shape.dimensions == dimensions
    )
