"""Which programs a run has: so many of each opcode, the same for the same seed."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fuzz.programs.draft import FAMILIES, Draft, Family, Program
from fuzz.programs.operations import (
    algebra,
    collectives,
    contraction,
    control,
    elementwise,
    indexing,
    movement,
    reductions,
)

# The pages enter their families when they are loaded.
PAGES = (elementwise, movement, contraction, reductions, indexing, algebra, control, collectives)


@dataclass(frozen=True, slots=True)
class Entry:
    """A program by its name: opcode, seed and number."""

    opcode: str
    seed: int
    number: int

    def make(self) -> Program:
        """The program itself."""
        family = FAMILIES[self.opcode]
        name = zlib.crc32(self.opcode.encode())
        order = np.random.default_rng([self.seed, name]).permutation(len(family.cases))
        case = family.cases[int(order[self.number % len(order)])]
        return family.author(Draft(np.random.default_rng([self.seed, name, self.number])), case)

    def __str__(self) -> str:
        return f"--only {self.opcode} --seed {self.seed} --number {self.number}"


def plan(count: int, seed: int, only: str = "") -> list[Entry]:
    """At least ``count`` programs, by the weights of the opcodes; ``only`` one opcode's where it is given."""
    families = [f for f in FAMILIES.values() if not only or f.opcode == only]
    return [Entry(family.opcode, seed, i) for family, share in _shares(families, count) for i in range(share)]


def chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Entry]:
    """The programs that options ask for: ``--number`` of the operation ``--only``, or at least ``--count``."""
    if options.only and options.only not in FAMILIES:
        parser.error(f"no programs for '{options.only}'; there are: {', '.join(sorted(FAMILIES))}")
    if options.number is None:
        return plan(options.count, options.seed, options.only)
    if not options.only:
        parser.error("--number needs --only")
    return [Entry(options.only, options.seed, options.number)]


def _shares(families: list[Family], count: int) -> Iterator[tuple[Family, int]]:
    total = sum(f.weight for f in families)
    for family in families:
        yield family, -int(-count * family.weight // total)
