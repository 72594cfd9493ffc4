"""Rules: named functions from an instruction to a better one, in tables that add up, and the pass that applies them.

A rule looks at an instruction whose operands can no longer be improved, and gives its replacement, or None.
Its docstring is its law: ``x * 1 -> x``, and why that holds for -0, infinities and NaN where the numbers are floats.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.registry import OPERATIONS
from xlakit.passes.core.framework import ComputationPass, PassContext
from xlakit.passes.core.rewriter import ANY, Rewriter, RuleIndex

# What a rule gives: an instruction that replaces the one it was shown, or None.
Rewrite = Callable[[Instruction, Rewriter], Instruction | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A function that improves instructions of some opcodes (``ANY`` for all)."""

    name: str
    table: str
    opcodes: tuple[str, ...]
    rewrite: Rewrite

    @property
    def law(self) -> str:
        """What it says, in a line."""
        return (inspect.getdoc(self.rewrite) or "").split("\n", 1)[0]


def opcodes_of(roots: Iterable[str | type]) -> tuple[str, ...]:
    """The opcodes of what a rule is entered for: of a trait those of all operations that have it."""
    found: dict[str, None] = {}
    for root in roots:
        if isinstance(root, str):
            known = [root] if root in OPERATIONS or root == ANY else []
        else:
            known = _opcodes_by_class(len(OPERATIONS)).get(root, [])
        if not known:
            raise InternalError(f"a rule is entered for {root}, which is no operation")
        found.update(dict.fromkeys(known))
    return tuple(found)


@cache
def _opcodes_by_class(operations: int) -> dict[type, list[str]]:
    """For each class that operations inherit from, their opcodes; anew where there are more operations than before."""
    found: dict[type, list[str]] = {}
    for opcode, op in OPERATIONS.items():
        for base in op.__mro__:
            found.setdefault(base, []).append(opcode)
    return found


class Rules:
    """A table of rules. Tables add up with ``+``; rules that come first are tried first."""

    def __init__(self, name: str, rules: Sequence[Rule] = ()) -> None:
        self.name = name
        self.rules = list(rules)
        # By how many rules there were and which were switched off.
        self._indices: dict[tuple[int, frozenset[str]], RuleIndex] = {}

    def rule(self, *roots: str | type) -> Callable[[Rewrite], Rewrite]:
        """Enter a function into the table, under its own name, for these opcodes, classes or traits of operations."""
        opcodes = opcodes_of(roots)

        def enter(rewrite: Rewrite) -> Rewrite:
            name = rewrite.__name__.strip("_").replace("_", "-")
            self.rules.append(Rule(name, self.name, opcodes, rewrite))
            return rewrite

        return enter

    def __add__(self, other: Rules) -> Rules:
        return Rules(f"{self.name}+{other.name}", [*self.rules, *other.rules])

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def index(self, disabled: frozenset[str] = frozenset()) -> RuleIndex:
        """The rules by opcode, without those whose name, or whose table's name, is in ``disabled``."""
        key = len(self.rules), disabled
        found = self._indices.get(key)
        if found is None:
            found = self._indices[key] = _index(self.rules, disabled)
        return found


def _index(rules: Sequence[Rule], disabled: frozenset[str]) -> RuleIndex:
    chosen = [r for r in rules if r.name not in disabled and r.table not in disabled]
    opcodes = {opcode for r in chosen for opcode in r.opcodes}
    return {
        opcode: tuple((r.name, r.rewrite) for r in chosen if opcode in r.opcodes or ANY in r.opcodes)
        for opcode in opcodes
    }


class RulePass(ComputationPass):
    """Apply a table of rules until none applies."""

    def __init__(self, name: str, rules: Rules, summary: str = "") -> None:
        self.name = name
        self.rules = rules
        self._summary = summary

    def __add__(self, other: RulePass) -> RulePass:
        return RulePass(f"{self.name}+{other.name}", self.rules + other.rules)

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return self._summary or f"apply the rules of {self.rules.name}"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Rewrite one computation."""
        index = self.rules.index(context.disabled)
        return Rewriter(computation, index, context).result()
