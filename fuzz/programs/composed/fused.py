"""Programs with fusions of another compiler: what it puts into one, and how, is not what ours does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.shape import make_tuple_shape
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.control import Fusion
from xlakit.ops.data import GetTupleElement, Parameter, Tuple

# So many instructions in a row become a fusion, so often.
_MOST = 6
_CHANCE = 0.8
# So often the row ends before the first instruction that does more than an operation on elements.
_ALIKE = 0.5
# So often a fusion is given a value as two operands, each read in some places; and one that several instructions read.
_TWICE = 0.3
_TWICE_READ_TWICE = 0.7
# So often an instruction has a name that passes give to what they make.
_PASSES_NAME = 0.3
_NAMES_OF_PASSES = [*(f"p{n}" for n in range(6)), "result", "fusion", "fusion.1", "alone", "copy", "constant", "values"]


def renamed(module: HloModule, rng: np.random.Generator) -> HloModule:
    """The program with instructions of its entry named as passes name what they make."""
    old = module.entry
    names = list(_NAMES_OF_PASSES)
    rng.shuffle(names)
    taken = {i.name for i in old.instructions}
    drawn = {i: names.pop() for i in old.instructions if names and rng.random() < _PASSES_NAME}

    def change(instruction: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        name = drawn.get(instruction, instruction.name)
        is_free = name == instruction.name or name not in taken
        return instruction.replace(operands=operands, name=name if is_free else instruction.name)

    return module.replace(entry=old.rebuild(change), computations=())


def fused(module: HloModule, rng: np.random.Generator) -> HloModule:
    """The program with instructions of its entry in fusions: any that stand in a row, results that are read outside.

    So there are results of different sizes, tuples, constants and loops inside, and floats of several types; and values
    that a fusion is given twice.
    """
    old = module.entry
    made: dict[Instruction, Instruction] = {}
    order: list[Instruction] = []
    rest = list(old.instructions)
    while rest:
        count = int(rng.integers(1, _MOST + 1))
        if rng.random() < _ALIKE:
            count = next((n for n, i in enumerate(rest[:count]) if not isinstance(i.op, Elementwise)), count) or count
        row, rest = rest[:count], rest[count:]
        if rng.random() < _CHANCE and all(_can_be_inside(i) for i in row):
            order += _fusion(row, old, made, f"fused.{len(rest)}", rng)
            continue
        for instruction in row:
            made[instruction] = instruction.replace(operands=[made[o] for o in instruction.operands])
            order.append(made[instruction])
    return module.replace(entry=Computation(old.name, tuple(order), made[old.root]), computations=())


def _can_be_inside(instruction: Instruction) -> bool:
    ordered = bool(instruction.control_predecessors)
    return instruction.opcode != "parameter" and not instruction.op.has_side_effect and not ordered


def _fusion(
    row: Sequence[Instruction],
    old: Computation,
    made: dict[Instruction, Instruction],
    name: str,
    rng: np.random.Generator,
) -> list[Instruction]:
    """The fusion of instructions in a row, and what takes its results apart; ``made`` then has these."""
    inside = set(row)
    given = list(dict.fromkeys(o for i in row for o in i.operands if o not in inside))
    read_twice = {o for o in given if sum(o in i.operands for i in row) > 1}
    given += [o for o in given if rng.random() < (_TWICE_READ_TWICE if o in read_twice else _TWICE)]
    parameters = [
        Instruction(Parameter(number=n), (), o.shape.without_layout(), f"{name}.p{n}") for n, o in enumerate(given)
    ]
    inner: dict[Instruction, Instruction] = {}

    def operand(outer: Instruction) -> Instruction:
        same = [p for o, p in zip(given, parameters, strict=True) if o is outer]
        return inner[outer] if outer in inner else same[int(rng.integers(len(same)))]

    body = list(parameters)
    for instruction in row:
        inner[instruction] = instruction.replace(operands=[operand(o) for o in instruction.operands])
        body.append(inner[instruction])
    read = {o for i in old.instructions if i not in inside for o in i.operands} | {old.root}
    results = [i for i in row if i in read] or [row[-1]]
    root = inner[results[0]]
    if len(results) > 1:
        shape = make_tuple_shape([i.shape for i in results])
        root = Instruction(Tuple(), [inner[i] for i in results], shape, f"{name}.results")
        body.append(root)
    kind = FusionKind.CUSTOM if rng.random() < 0.5 else FusionKind.LOOP
    op = Fusion(kind=kind, calls=Computation(f"{name}.of", tuple(body), root))
    whole = Instruction(op, [made[o] for o in given], root.shape, name)
    if len(results) == 1:
        made[results[0]] = whole
        return [whole]
    parts = [Instruction(GetTupleElement(index=n), (whole,), i.shape, f"{name}.{n}") for n, i in enumerate(results)]
    made.update(zip(results, parts, strict=True))
    return [whole, *parts]
