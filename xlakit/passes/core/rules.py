"""Rewrite rules, the tables that hold them, and the pass that applies a table.

A rule is a function that is called with an instruction whose operands are canonical, and gives its replacement, or
None. Its docstring is its law: ``x * 1 -> x``, and why that holds for -0, infinities and NaN if the numbers are floats.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from importlib import import_module

from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.registry import OPERATIONS
from xlakit.passes.core.framework import ComputationPass, PassContext
from xlakit.passes.core.rewriter import ANY, NamedRewrites, Rewriter, RuleIndex

# The function of a rule: gives the replacement of an instruction, or None if the rule does not apply.
Rewrite = Callable[[Instruction, Rewriter], Instruction | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A function that rewrites instructions of some opcodes (``ANY`` for all); ``table`` is the name of its table."""

    name: str
    table: str
    opcodes: tuple[str, ...]
    rewrite: Rewrite

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
        self._rules = list(rules)
        # Keyed by the number of rules and the names that are disabled.
        self._indices: dict[tuple[int, frozenset[str]], RuleIndex] = {}

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules, in the order in which they are tried."""
        return self._rules

    def rule(self, *roots: str | type) -> Callable[[Rewrite], Rewrite]:
        """A decorator that adds a function to the table, under its name, for these opcodes, classes or traits."""
        opcodes = opcodes_of(roots)

        def enter(rewrite: Rewrite) -> Rewrite:
            name = rewrite.__name__.strip("_").replace("_", "-")
            self._rules.append(Rule(name, self.name, opcodes, rewrite))
            return rewrite

        return enter

    def __add__(self, other: Rules) -> Rules:
        return Rules(f"{self.name}+{other.name}", [*self.rules, *other.rules])

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def of(self, opcode: str) -> Sequence[Rule]:
        """The rules for instructions of an opcode; for ``ANY`` those for instructions of all opcodes."""
        return [r for r in self.rules if opcode in r.opcodes or ANY in r.opcodes]

    def index(self, disabled: frozenset[str] = frozenset()) -> RuleIndex:
        """The rules by opcode, without those whose name, or whose table's name, is in ``disabled``."""
        key = len(self._rules), disabled
        rule_index = self._indices.get(key)
        if rule_index is None:
            rule_index = self._indices[key] = RuleIndex(partial(self._enabled, disabled))
        return rule_index

    def _enabled(self, disabled: frozenset[str], opcode: str) -> NamedRewrites:
        chosen = self.of(opcode)
        return tuple([(r.name, r.rewrite) for r in chosen if r.name not in disabled and r.table not in disabled])


class DeferredRules(Rules):
    """Stands for a table of a module that is not imported before a program has one of the table's operations."""

    def __init__(self, name: str, module: str, *opcodes: str) -> None:
        """``name`` and ``opcodes`` must be those of the table, which the module has under this name in capitals."""
        super().__init__(name)
        self._module, self.opcodes = module, frozenset(opcodes)

    @cached_property
    def _loaded(self) -> Rules:
        return getattr(import_module(self._module), self.name.upper().replace("-", "_"))

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules of the table; imports its module."""
        return self._loaded.rules

    def of(self, opcode: str) -> Sequence[Rule]:
        """The rules for instructions of an opcode; the module is imported if there are any."""
        return self._loaded.of(opcode) if opcode in self.opcodes else ()


class JoinedRules(Rules):
    """Several tables as one, in their order."""

    def __init__(self, name: str, tables: Sequence[Rules]) -> None:
        super().__init__(name)
        self._tables = tables

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules of all tables."""
        return [rule for table in self._tables for rule in table.rules]

    def of(self, opcode: str) -> Sequence[Rule]:
        """The rules for instructions of an opcode, of all tables."""
        return [rule for table in self._tables for rule in table.of(opcode)]


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
