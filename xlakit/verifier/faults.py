"""Faults, and the users and callers of a program, for rules beyond one instruction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from xlakit.ir.def_use import users_of
from xlakit.ir.instruction import Computation, HloModule, Instruction


class Fault(NamedTuple):
    """A rule broken by an instruction of a computation."""

    computation: Computation
    instruction: Instruction
    rule: str
    hint: str = ""


class Program:
    """A module with its def-use chains and the callers of its computations, each computed on first use."""

    def __init__(self, module: HloModule) -> None:
        self.module = module

    def instructions(self, *kinds: type) -> Iterator[tuple[Computation, Instruction]]:
        """All instructions, or those whose operation is of these classes or has these traits."""
        for computation in self.module.computations:
            for instruction in computation.instructions:
                if not kinds or isinstance(instruction.op, kinds):
                    yield computation, instruction

    @cached_property
    def computation_of(self) -> dict[Instruction, Computation]:
        """The computation of each instruction."""
        return {instruction: computation for computation, instruction in self.instructions()}

    @cached_property
    def users(self) -> dict[Instruction, list[Instruction]]:
        """The instructions that use each instruction, each user once."""
        return users_of(instruction for _, instruction in self.instructions())

    @cached_property
    def callers(self) -> dict[Computation, list[Instruction]]:
        """The instructions that call each computation."""
        found: dict[Computation, list[Instruction]] = {}
        for caller in self.module.computations:
            for instruction in caller.calling_instructions:
                for computation in dict.fromkeys(instruction.op.called_computations):
                    found.setdefault(computation, []).append(instruction)
        return found
