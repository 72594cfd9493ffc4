"""Smaller programs that still fail: results left out, and instructions replaced by operands or constants.

What is tried is a list of rewrites of a module; each is kept where the program still fails, until none is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.shape import make_tuple_shape
from xlakit.errors import XlakitError
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Constant, Tuple
from xlakit.ops.movement import Broadcast
from xlakit.passes.core.framework import PassContext, with_callees, with_computations
from xlakit.passes.pipeline import PIPELINE

_CLEANERS = ("dead-code", "while-elements", "inline-calls")
_KEPT = ("parameter", "tuple", "constant", "broadcast")


def shrink(module: HloModule, fails: Callable[[HloModule], bool], seconds: float = 120.0) -> HloModule:
    """The smallest module found in a time that ``fails`` still says is wrong."""
    end, found = time.monotonic() + seconds, True
    while found and time.monotonic() < end:
        found = False
        for candidate in _candidates(module):
            if time.monotonic() > end:
                break
            if _size(candidate) < _size(module) and fails(candidate):
                module, found = candidate, True
                break
    return module


def _size(module: HloModule) -> tuple[int, int]:
    """The size of a module for its reader; instructions that compute nothing count least."""
    listed = [i for c in module.computations for i in c.instructions]
    trivial = sum(i.opcode in (*_KEPT, "get-tuple-element") for i in listed)
    return 4 * (len(listed) - trivial) + trivial, len(module.computations)


def _candidates(module: HloModule) -> Iterator[HloModule]:
    for name in _CLEANERS:
        cleaner = next(p for p in PIPELINE if p.name == name)
        try:
            yield cleaner.run(module, PassContext())
        except XlakitError:
            continue
    root = module.entry.root
    if root.opcode == "tuple":
        for operand in root.operands:
            alone = Computation.from_root(module.entry.name, operand, module.entry.parameters)
            yield _cleaned(module, module.entry, alone)
        for place in range(len(root.operands)):
            rest = [o for i, o in enumerate(root.operands) if i != place]
            if rest:
                yield _cleaned(module, module.entry, _rooted(module.entry, rest))
    for computation in reversed(module.computations):
        for instruction in reversed(computation.instructions):
            for other in _replacements(instruction):
                yield _cleaned(module, computation, _replaced(computation, instruction, other))


def _rooted(entry: Computation, results: list[Instruction]) -> Computation:
    shape = entry.root.shape
    parts = tuple(shape.tuple_shapes[entry.root.operands.index(r)] for r in results)
    root = Instruction(Tuple(), tuple(results), make_tuple_shape(parts), entry.root.name)
    return Computation.from_root(entry.name, root, entry.parameters)


def _replacements(instruction: Instruction) -> Iterator[Instruction | list[Instruction]]:
    """The candidates to replace an instruction: operands of its shape, and constants."""
    if instruction.opcode in ("parameter", "constant"):
        return
    for operand in instruction.operands:
        if operand.shape == instruction.shape:
            yield operand
    shape = instruction.shape
    if instruction.opcode in _KEPT or not shape.is_array or shape.is_dynamic:
        return
    for number in (0, 1):
        literal = Literal.from_numpy(np.asarray(number).astype(shape.element_type.dtype))
        scalar = Instruction(Constant(literal=literal), (), literal.shape, f"{instruction.name}.is")
        whole = Instruction(Broadcast(), (scalar,), shape, f"{instruction.name}.are") if shape.rank else scalar
        yield [scalar, whole] if shape.rank else scalar


def _replaced(computation: Computation, old: Instruction, new: Instruction | list[Instruction]) -> Computation:
    made: dict[Instruction, Instruction] = {}
    listed: list[Instruction] = []
    for instruction in computation.instructions:
        if instruction is old:
            added = new if isinstance(new, list) else [new]
            listed += [a for a in added if a not in made and a not in made.values()]
            made[old] = made.get(added[-1], added[-1])
            continue
        own = instruction.replace(operands=[made.get(o, o) for o in instruction.operands], control_predecessors=())
        made[instruction] = own
        listed.append(own)
    root = made[computation.root]
    return Computation(computation.name, tuple(listed), root, computation.execution_thread)


def _cleaned(module: HloModule, old: Computation, new: Computation) -> HloModule:
    made: dict[Computation, Computation] = {}
    for computation in module.computations:
        made[computation] = with_callees(new if computation is old else computation, made)
    changed = with_computations(module, [made[c] for c in module.computations])
    changed = changed.replace(input_output_alias=()) if new is not old and old is module.entry else changed
    return next(p for p in PIPELINE if p.name == "dead-code").run(changed, PassContext())
