"""Slices of concatenations, before a program is split.

A stencil pads an array by copies of its edges, and adds slices of that as large as the array itself. Along a split
dimension the padded array is of no use: its parts begin elsewhere than those of the array, so that all of it moves, and
once more for each slice. So the slices are taken of what is concatenated: parts that begin alike, and differ in the
rows that neighbors exchange.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.ir.attributes import SliceDimension
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call
from xlakit.ops.movement import Broadcast, Concatenate, Reshape, Slice
from xlakit.passes.canonicalize.inline_calls import InlineCalls
from xlakit.passes.core.framework import PassContext, change_computations
from xlakit.passes.core.matching import one_type
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rewrite
from xlakit.passes.simplify.movement import identity_reshape, reshape_twice
from xlakit.passes.simplify.slices import identity_slice, slice_broadcast, slice_reshape, slice_twice


def without_joined_slices(module: HloModule, context: PassContext) -> HloModule:
    """The module with slices of concatenations that are only sliced replaced by concatenations of slices.

    Functions that give a concatenation, as ``jnp.pad`` does, are inlined before.
    """
    computations = module.computations
    if not any(isinstance(i.op, Concatenate) for c in computations for i in c.instructions):
        return module
    if any(map(_gives_concatenation, (i for c in computations for i in c.calling_instructions))):
        module = InlineCalls(_gives_concatenation).run(module, context)
    return change_computations(module, lambda computation: _changed(computation, context))


def _gives_concatenation(call: Instruction) -> bool:
    """Whether an instruction is a call of a function without calls and shardings whose result is a concatenation."""
    if not isinstance(call.op, Call) or call.annotations.sharding is not None:
        return False
    callee = call.op.to_apply
    is_free = not callee.calling_instructions and all(i.annotations.sharding is None for i in callee.instructions)
    return isinstance(callee.root.op, Concatenate) and is_free


def _changed(computation: Computation, context: PassContext) -> Computation:
    sliced = _only_sliced(computation)
    if not sliced:
        return computation

    def is_free(x: Instruction) -> bool:
        return x.annotations.sharding is None and x.operands[0].annotations.sharding is None

    def slice_joined(x: Instruction, make: Rewriter) -> Instruction | None:
        return _slice_joined(x, make) if x.operands[0].name in sliced and is_free(x) else None

    given = {i.name for i in computation.instructions}

    def of_made(rule: Rewrite) -> Rewrite:
        # Slices of the program stay: the partitioner knows rolls and halos by their form.
        return lambda x, make: rule(x, make) if x.name not in given and is_free(x) else None

    def of_other(rule: Rewrite) -> Rewrite:
        return lambda x, make: rule(x, make) if is_free(x) else None

    # jnp.pad gives the edges a dimension of size 1 and takes it away, which hides that they are slices.
    reshapes = (
        ("identity-reshape", None, of_other(identity_reshape)),
        ("reshape-twice", Reshape, of_other(reshape_twice)),
    )
    slices = (
        ("identity-slice", None, of_made(identity_slice)),
        ("slice-twice", Slice, of_made(slice_twice)),
        ("slice-reshape", Reshape, of_made(slice_reshape)),
        ("slice-broadcast", Broadcast, of_made(slice_broadcast)),
        ("slice-joined", Concatenate, slice_joined),
    )
    return Rewriter(computation, {"slice": slices, "reshape": reshapes}, context).result()


def _only_sliced(computation: Computation) -> set[str]:
    """The names of the concatenations that slices alone use, or other ones that slices alone use."""
    users: dict[Instruction, list[Instruction]] = {}
    for instruction in computation.instructions:
        for operand in instruction.operands:
            users.setdefault(operand, []).append(instruction)
    found: set[Instruction] = set()
    for x in reversed(computation.instructions):
        if isinstance(x.op, Concatenate) and x is not computation.root and x.annotations.sharding is None:
            own = users.get(x, [])
            if own and all(isinstance(user.op, Slice) or user in found for user in own):
                found.add(x)
    return {x.name for x in found}


def _slice_joined(x: Instruction, make: Rewriter) -> Instruction | None:
    """slice(concatenate(x, y)) -> concatenate(slice(x), slice(y)), where it is as long as one of the pieces, or one."""
    (joined,) = x.operands
    dimension = joined.op_as(Concatenate).dimension
    ranges = x.op_as(Slice).slice
    part = ranges[dimension]
    if part.stride != 1 or not one_type(joined) or not x.shape.num_elements:
        return None
    pieces: list[Instruction] = []
    offset = 0
    fits = False
    for operand in joined.operands:
        size = operand.shape.dimensions[dimension]
        start, limit = max(part.start - offset, 0), min(part.limit - offset, size)
        if start < limit:
            pieces.append(make.slice(operand, _with(ranges, dimension, SliceDimension(start, limit))))
            fits = fits or size == x.shape.dimensions[dimension]
        offset += size
    if len(pieces) == 1:
        return pieces[0]
    return make.add(Concatenate(dimension=dimension), *pieces) if fits else None


def _with(ranges: Sequence[SliceDimension], dimension: int, part: SliceDimension) -> list[SliceDimension]:
    return [part if d == dimension else other for d, other in enumerate(ranges)]
