"""Rewrite rules, the tables that hold them, and the pass that applies a table.

A rule is a function that is called with an instruction whose operands are canonical, and gives its replacement, or
None. Its docstring is its law: ``x * 1 -> x``, and why that holds for -0, infinities and NaN if the numbers are floats.
Its pattern stands in the table: the operations that it is called for, and the operation that the first operand must be.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.registry import OPERATIONS
from xlakit.passes.core.framework import ComputationPass, PassContext
from xlakit.passes.core.rewriter import ANY, Rewriter, RuleIndex

# The function of a rule: gives the replacement of an instruction, or None if the rule does not apply.
Rewrite = Callable[[Instruction, Rewriter], Instruction | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A function that rewrites instructions of some opcodes (``ANY`` for all); ``table`` is the name of its table.

    of: the operation that the first operand must be; None for any.
    """

    name: str
    table: str
    opcodes: tuple[str, ...]
    rewrite: Rewrite
    of: type[Op] | None = None

    @property
    def law(self) -> str:
        """The law of the rule, in one line: the first line of its docstring."""
        return (inspect.getdoc(self.rewrite) or "").split("\n", 1)[0]


def opcodes_of(roots: Iterable[str | type]) -> tuple[str, ...]:
    """The opcodes named by opcodes, classes of operations and traits; a trait names all operations that have it."""
    opcodes: dict[str, None] = {}
    for root in roots:
        if isinstance(root, str):
            known = [root] if root in OPERATIONS or root == ANY else []
        else:
            known = _opcodes_by_class(len(OPERATIONS)).get(root, [])
        if not known:
            raise InternalError(f"a rule is entered for {root}, which is no operation")
        opcodes.update(dict.fromkeys(known))
    return tuple(opcodes)


@cache
def _opcodes_by_class(operations: int) -> dict[type, list[str]]:
    """For each class or trait the opcodes of the operations that inherit from it.

    operations: the number of registered operations, so that the cache is renewed when more are registered.
    """
    opcodes: dict[type, list[str]] = {}
    for opcode, op in OPERATIONS.items():
        for base in op.__mro__:
            opcodes.setdefault(base, []).append(opcode)
    return opcodes


class Rules:
    """A table of rules. ``+`` concatenates tables; rules are tried in the order of the table."""

    def __init__(self, name: str, rules: Sequence[Rule] = ()) -> None:
        self.name = name
        self.rules = list(rules)
        # Keyed by the number of rules and the names that are disabled.
        self._indices: dict[tuple[int, frozenset[str]], RuleIndex] = {}

    def rule(self, *roots: str | type, of: type[Op] | None = None) -> Callable[[Rewrite], Rewrite]:
        """A decorator that adds a function to the table, under its name, for these opcodes, classes or traits.

        of: the operation that the first operand must be, by default any: ``rule("reshape", of=Transpose)``.
        """
        opcodes = opcodes_of(roots)

        def enter(rewrite: Rewrite) -> Rewrite:
            name = rewrite.__name__.strip("_").replace("_", "-")
            self.rules.append(Rule(name, self.name, opcodes, rewrite, of))
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
        rule_index = self._indices.get(key)
        if rule_index is None:
            rule_index = self._indices[key] = _index(self.rules, disabled)
        return rule_index


def _index(rules: Sequence[Rule], disabled: frozenset[str]) -> RuleIndex:
    chosen = [r for r in rules if r.name not in disabled and r.table not in disabled]
    opcodes = {opcode for r in chosen for opcode in r.opcodes}
    return {
        opcode: tuple((r.name, r.of, r.rewrite) for r in chosen if opcode in r.opcodes or ANY in r.opcodes)
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
        """What the pass does, in one line."""
        return self._summary or f"apply the rules of {self.rules.name}"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Rewrite one computation."""
        index = self.rules.index(context.disabled)
        return Rewriter(computation, index, context).result()
