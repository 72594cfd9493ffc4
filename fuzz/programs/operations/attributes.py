"""Operations with attributes that are wrong, or nearly: a program of one operation, in which some number is another."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzz.programs.draft import FAMILIES
from fuzz.programs.plan import Entry
from xlakit.data.shape import Shape
from xlakit.errors import XlakitError
from xlakit.ir.instruction import Computation, HloModule, Instruction, infer_shape
from xlakit.ir.operation import Op
from xlakit.ops.data import Parameter

# Those that wait for other devices or for the host, or whose result is drawn.
_LEFT_OUT = frozenset(FAMILIES) & {
    *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute", "ragged-all-to-all"),
    *("reduce-scatter", "partition-id", "replica-id", "infeed", "outfeed", "send", "recv", "rng"),
    *("while", "conditional", "call", "custom-call", "constant", "parameter"),
    # A pair of shardings, which is not a list that may be shorter.
    "domain",
}
# Enough for every kernel to have a window or an index out of place, and nothing takes long.
_MOST_ELEMENTS = 1 << 14


@dataclass(frozen=True, slots=True)
class Trial:
    """An operation, the shapes of its operands, and the result that is declared for it."""

    op: Op
    operands: tuple[Shape, ...]
    declared: Shape

    def module(self) -> HloModule:
        """The program of this operation alone; raises XlakitError where that breaks a rule."""
        module = self._of(infer_shape(self.op, self.operands, self.declared))
        module.verify()
        return module

    def unchecked(self) -> HloModule:
        """The program with the result as it is declared, whether or not that breaks a rule."""
        return self._of(self.declared)

    def _of(self, shape: Shape) -> HloModule:
        parameters = [Instruction(Parameter(number=n), (), s, f"p{n}") for n, s in enumerate(self.operands)]
        root = Instruction(self.op, parameters, shape, "result")
        return HloModule("trial", Computation("e", (*parameters, root), root))

    @property
    def is_small(self) -> bool:
        """Whether neither operands nor result have many elements."""
        try:
            shapes = [*self.operands, infer_shape(self.op, self.operands, self.declared)]
        except XlakitError:
            return True
        leaves = [leaf for shape in shapes for _, leaf in shape.leaves() if leaf.is_array]
        return all(math.prod(leaf.dimensions) <= _MOST_ELEMENTS for leaf in leaves)


def trial(seed: int, number: int) -> Trial | None:
    """A program by its number: an operation with up to three changes; None where an operand is no array."""
    rng = np.random.default_rng([seed, number])
    opcodes = sorted(set(FAMILIES) - _LEFT_OUT)
    entry = Entry(opcodes[int(rng.integers(len(opcodes)))], seed, number)
    module = HloModule.from_text(entry.make().text)
    found = [i for i in module.entry.instructions if i.opcode == entry.opcode]
    if not found or not all(o.shape.is_array for o in found[0].operands):
        return None
    op, declared = found[0].op, found[0].shape.without_layout()
    operands = [o.shape.without_layout() for o in found[0].operands]
    for _ in range(int(rng.integers(1, 4))):
        choice = rng.random()
        if choice < 0.6:
            op = _changed(op, rng)
        elif choice < 0.85 and operands:
            place = int(rng.integers(len(operands)))
            operands[place] = _resized(operands[place], rng)
        elif declared.is_array:
            declared = _resized(declared, rng)
    return Trial(op, tuple(operands), declared)


def _resized(shape: Shape, rng: np.random.Generator) -> Shape:
    sizes = _another(shape.dimensions, rng)
    return shape.with_dimensions([abs(int(s)) for s in sizes]) if isinstance(sizes, tuple) else shape


def _changed(op: Op, rng: np.random.Generator) -> Op:
    """The operation with one number of its attributes changed, or a list of them cut, longer or in another order."""
    return _with_another(op, rng)


def _with_another(value: Any, rng: np.random.Generator) -> Any:
    if not dataclasses.is_dataclass(value):
        # A name, or a number that is no integer.
        return value
    fields = [f for f in dataclasses.fields(value) if f.init and _has_numbers(getattr(value, f.name))]
    if not fields:
        return value
    field = fields[int(rng.integers(len(fields)))]
    old = getattr(value, field.name)
    if old == () and "int" not in str(field.type):
        # What its elements would be is not known.
        return value
    return _with(value, field.name, _another(old, rng))


def _with(value: Any, name: str, field: Any) -> Any:
    try:
        return dataclasses.replace(value, **{name: field})
    except XlakitError:
        # Its own class refuses it, which is as good as a rule.
        return value


def _has_numbers(value: Any) -> bool:
    if isinstance(value, tuple):
        return True
    if dataclasses.is_dataclass(value) and not isinstance(value, Computation):
        return any(_has_numbers(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init)
    return isinstance(value, int)


def _another(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near: Sequence[int] = (value + 1, value - 1, 0, 1, 2, -1, value * 2, value + 7, 3)
        return near[int(rng.integers(len(near)))]
    if isinstance(value, tuple):
        return _another_list(list(value), rng)  # pyright: ignore[reportUnknownArgumentType]
    return _with_another(value, rng)


def _another_list(values: list[Any], rng: np.random.Generator) -> tuple[Any, ...]:
    if not values:
        return (int(rng.integers(0, 3)),)
    choice, place, other = rng.random(), int(rng.integers(len(values))), int(rng.integers(len(values)))
    if choice < 0.6:
        values[place] = _another(values[place], rng)
    elif choice < 0.75:
        values[place], values[other] = values[other], values[place]
    elif choice < 0.88:
        del values[place]
    else:
        values.insert(place, values[other])
    return tuple(values)
