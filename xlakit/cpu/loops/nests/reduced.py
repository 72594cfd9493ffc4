"""What all kernels with reductions share: the reductions of a fusion, as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xlakit.cpu.llvm import Function
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.ir.nodes import Constant, Given, Node
from xlakit.cpu.loops.ir.tracer import Index, Tracer, as_kind
from xlakit.cpu.loops.ir.walking import simple_fold
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.memory import as_real, rounded
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.reduction import Reduce

# A result of a fusion: the instruction, which part of its tuple, and the part's shape.
Root = tuple[Instruction, int, Shape]


@dataclass(frozen=True, slots=True)
class Reduced:
    """The reductions of a fusion: they all take arrays of ``sizes`` and go over the dimensions ``over``."""

    reduces: tuple[Instruction, ...]
    sizes: tuple[int, ...]
    over: frozenset[int]
    roots: tuple[Root, ...]
    arrays: int

    @property
    def kept(self) -> tuple[int, ...]:
        """The sizes of the dimensions that stay."""
        return tuple(size for d, size in enumerate(self.sizes) if d not in self.over)

    @property
    def results(self) -> int:
        """How many elements each reduction gives."""
        return math.prod(self.kept)

    def levels(self) -> list[list[Instruction]]:
        """The reductions, those that need the results of others after them."""
        level: dict[Instruction, int] = {}
        members = set(self.reduces)
        found: list[list[Instruction]] = []
        for reduce in self.reduces:
            needed = [level[i] for i in _ancestors(reduce) if i in members and i is not reduce]
            level[reduce] = 1 + max(needed, default=-1)
            while len(found) <= level[reduce]:
                found.append([])
            found[level[reduce]].append(reduce)
        return found

    def roots_alike(self) -> bool:
        """Whether all results have the dimensions that the reductions give, maybe reshaped."""
        return all(shape.num_elements == self.results for _, _, shape in self.roots)


@dataclass(frozen=True, slots=True)
class Folding:
    """One reduction: the computation, what it takes in each turn, what it starts from."""

    instruction: Instruction
    computation: Computation
    inputs: tuple[Node, ...]
    initial: tuple[Node, ...]

    @property
    def kinds(self) -> tuple[PrimitiveType, ...]:
        """The element types of its results."""
        return tuple(node.kind for node in self.initial)

    def result(self, fn: Function, part: int, value: Scalar) -> Scalar:
        """What is folded in the end, as its type holds it."""
        kind = self.kinds[part]
        if kind.is_complex or simple_fold(self.computation) in ("maximum", "minimum"):
            return value
        return rounded(fn, kind, as_real(value))

    def starts_neutral(self) -> bool:
        """Whether it starts from what changes nothing, so that parts of it can be folded apart."""
        opcode = simple_fold(self.computation)
        if opcode is None or not isinstance(self.initial[0], Constant):
            return False
        return is_neutral(opcode, self.initial[0].value, self.initial[0].kind)


def folding(tracer: Tracer, reduce: Instruction, index: Index) -> Folding:
    """A reduction whose operands are read at an index."""
    count = len(reduce.operands) // 2
    inits = reduce.operands[count:]
    inputs = [
        as_kind(tracer.element(array, index), init.shape.element_type)
        for array, init in zip(reduce.operands[:count], inits, strict=True)
    ]
    initial = [tracer.element(init, ()) for init in inits]
    return Folding(reduce, reduce.op_as(Reduce).to_apply, tuple(inputs), tuple(initial))


def folded_once(emitter: Emitter, foldings: Sequence[Folding], running: Sequence[Scalar]) -> list[Scalar]:
    """One turn of several reductions: what follows ``running``, the values of all of them one after the other."""
    following: list[Scalar] = []
    for fold in foldings:
        place = len(following)
        values = [emitter.lane_values(n) for n in fold.inputs]
        following += emitter.combined(fold.computation, list(running[place : place + len(fold.initial)]), values)
    return following


def given_source(reduce: Instruction, index: Index, variables: frozenset[Any]) -> Callable[[Index, int], Node]:
    """A reduction's result, known to the emitter at just one index."""

    def source(asked: Index, part: int) -> Node:
        if asked != index:
            raise UnsupportedError("a reduction's result is needed at another place than where it is computed")
        return Given(part_kind(reduce, part), (reduce, part), variables)

    return source


def part_kind(reduce: Instruction, part: int) -> PrimitiveType:
    """The element type of part ``part`` of what a reduction gives."""
    shape = reduce.shape
    return shape.tuple_shapes[part].element_type if shape.is_tuple else shape.element_type


def _ancestors(instruction: Instruction) -> set[Instruction]:
    seen: set[Instruction] = set()
    stack = list(instruction.operands)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.operands)
    return seen


def is_neutral(opcode: str, value: Any, kind: PrimitiveType) -> bool:
    """Whether folding ``value`` into something by an operation changes nothing."""
    if kind.is_complex:
        return bool(opcode == "add" and value == 0)
    number = value.item() if hasattr(value, "item") else value
    return bool(number == neutral_number(opcode, kind))


def neutral_number(opcode: str, kind: PrimitiveType) -> float:
    """What changes nothing that it is folded into by an operation on real numbers."""
    if kind is PrimitiveType.PRED:
        return int(opcode in ("and", "multiply", "minimum"))
    if opcode in ("add", "or", "xor"):
        # 0 would make another zero of -0.
        return -0.0 if kind.is_floating else 0
    if opcode == "multiply":
        return 1
    if kind.is_floating:
        return -math.inf if opcode == "maximum" else math.inf
    if opcode == "and":
        return -1 if kind.is_signed else (1 << kind.bit_width) - 1
    least = -(1 << (kind.bit_width - 1)) if kind.is_signed else 0
    return least if opcode == "maximum" else least + (1 << kind.bit_width) - 1


def wide_kind(kind: PrimitiveType) -> PrimitiveType:
    """The element type that parts of a reduction are kept in: narrow floats are not rounded in between."""
    return PrimitiveType.F32 if kind.is_floating and kind.bit_width < 32 else kind
