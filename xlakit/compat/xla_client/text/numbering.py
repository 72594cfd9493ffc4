"""The names and the order that XLA's builder gives to computations and instructions.

All computations and instructions of a program are numbered together, and the number ends the name: ``add.3``. A
computation that is called is copied for each call, and numbered before the instruction that calls it.
Source: XlaBuilder.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.attributes import AliasEntry
from xlakit.ir.instruction import Computation, HloModule, Instruction, computations_callees_first, post_order
from xlakit.ir.rebuilding import rebuilt
from xlakit.ops.data import Parameter

_NUMBER = re.compile(r"\.\d+$")


def base_name(name: str) -> str:
    """A name without the number that ends it."""
    return _NUMBER.sub("", name)


class NameUniquer:
    """Makes names that no other builder of the process has: ``add``, ``add__1``. Source: NameUniquer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, with characters that HLO has no place for replaced, and another number where it is taken."""
        stem = sanitized(name) or "name"
        if stem in _ELEMENT_TYPES:
            stem += "_"
        number = 0
        numbered = re.fullmatch(r"(.+)__(\d+)", stem)
        if numbered is not None:
            stem, number = numbered[1], int(numbered[2])
        with self._lock:
            used = self._used.setdefault(stem, set())
            if number in used:
                number = self._next.get(stem, 0)
                while number in used:
                    number += 1
                self._next[stem] = number + 1
            used.add(number)
        return f"{stem}__{number}" if number or numbered is not None else stem


_ELEMENT_TYPES = {kind.name.lower() for kind in PrimitiveType} - {"tuple"}
BUILDER_NAMES = NameUniquer()


def sanitized(name: str) -> str:
    """A name of letters, digits, ``_``, ``.`` and ``-`` that begins with a letter or ``_``."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return name if not name or name[0].isalpha() or name[0] == "_" else "_" + name[1:]


def numbered_module(
    name: str, instructions: Sequence[Instruction], root: Instruction, aliases: Sequence[AliasEntry], first: int = 1
) -> HloModule:
    """The module of a builder's instructions, in the order in which they were added, with XLA's names.

    first: the first number, which is not 1 where the builder has built before.
    """
    numbers, embedded = count(first), list[Computation]()
    made: dict[Instruction, Instruction] = {}
    for old in instructions:
        copies: dict[Computation, list[Computation]] = {}
        for called in old.op.called_computations:
            copies.setdefault(called, []).append(_imported(called, numbers, embedded))
        stem = (sanitized(base_name(old.name)) if isinstance(old.op, Parameter) else "") or old.opcode
        made[old] = _renamed(old, made, f"{stem}.{next(numbers)}", lambda called, copies=copies: copies[called].pop(0))
    full = f"{name}.{next(numbers)}"
    entry = Computation(full, tuple(made.values()), made[root])
    return HloModule(full, entry, computations=tuple(embedded), input_output_alias=tuple(aliases))


def converted_module(module: HloModule) -> HloModule:
    """A module that was MLIR with the names that XLA's converter gives: ``Arg_0.1``, ``add.3``, ``region_0.5``."""
    # Parameters are numbered first. Sorting is stable.
    named = rebuilt(
        module, lambda _, i: i.replace(name=_converted_name(i)), lambda c: sorted(c.instructions, key=_parameter_number)
    )
    numbered = numbered_module("main", named.entry.instructions, named.entry.root, named.input_output_alias)
    kept = numbered.computations[:-1]
    return module.replace(entry=numbered.entry, computations=kept, input_output_alias=numbered.input_output_alias)


def _parameter_number(old: Instruction) -> float:
    return old.op.number if isinstance(old.op, Parameter) else math.inf


def _converted_name(old: Instruction) -> str:
    if not isinstance(old.op, Parameter):
        return f"{old.opcode}.0"
    return old.name if old.name.startswith("arg_tuple") else f"Arg_{old.op.number}.0"


def number_of(name: str) -> int:
    """The number that ends a name."""
    return int(name.rpartition(".")[2])


def unnamed(module: HloModule) -> HloModule:
    """The module with names that say positions only, so that modules which differ in names alone are equal."""
    numbers = count()
    made = rebuilt(module, lambda _, i: i.replace(name=f"i{next(numbers)}"), name=lambda _: f"c{next(numbers)}")
    return made.replace(name="m")


def compiled_module(module: HloModule) -> HloModule:
    """A module of the compiler as XLA's are: scheduled in the order that it has, every array with its layout."""
    layout = module.entry_computation_layout
    if layout is not None:
        parameters = tuple(parameter.with_implied_layouts() for parameter in layout.parameters)
        layout = replace(layout, parameters=parameters, result=layout.result.with_implied_layouts())
    made = rebuilt(module, lambda _, i: i.replace(shape=i.shape.with_implied_layouts()))
    return made.replace(entry_computation_layout=layout, is_scheduled=True)


def _imported(called: Computation, numbers: Iterator[int], embedded: list[Computation]) -> Computation:
    """A copy of a computation and of those that it calls, with the next numbers."""
    copies: dict[Computation, Computation] = {}
    for computation in computations_callees_first([called]):
        name = f"{_stem(computation.name)}.{next(numbers)}"
        made: dict[Instruction, Instruction] = {}
        for old in computation.instructions:
            made[old] = _renamed(old, made, f"{_stem(old.name)}.{next(numbers)}", copies.__getitem__)
        root = made[computation.root]
        copies[computation] = Computation(name, tuple(made.values()), root, computation.execution_thread)
        embedded.append(copies[computation])
    return copies[called]


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def _renamed(
    old: Instruction,
    made: Mapping[Instruction, Instruction],
    name: str,
    copy_of: Callable[[Computation], Computation],
) -> Instruction:
    return old.replace(
        op=old.op.map_computations(copy_of) if old.op.called_computations else old.op,
        operands=[made[operand] for operand in old.operands],
        name=name,
        control_predecessors=[made[predecessor] for predecessor in old.control_predecessors],
    )


def in_print_order(module: HloModule) -> HloModule:
    """The module with its instructions in the order in which XLA prints those that have no schedule.

    From the instructions without users, in their order, each follows its operands, the first operand first.
    """
    return module if module.is_scheduled else rebuilt(module, lambda _, i: i, _in_print_order)


def _in_print_order(computation: Computation) -> Iterator[Instruction]:
    used = {operand for i in computation.instructions for operand in (*i.operands, *i.control_predecessors)}
    return post_order([i for i in computation.instructions if i not in used])
