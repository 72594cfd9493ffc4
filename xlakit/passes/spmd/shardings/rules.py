"""Sharding rules that a program states for its custom calls, ``#sdy.op_sharding_rule<([i, j], [jk])->([i, k]) {...}>``.

Each dimension is one factor or the product of several, the major one first, and is split along the first of them.
Factors are named i to z, then z_1 and so on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.instruction import Instruction
from xlakit.passes.spmd.shardings.factors import Dims, Factors
from xlakit.passes.spmd.shardings.values import leaf_shapes

RULE: Final = "xla.sdy.sharding_rule"

_RULE: Final = re.compile(r"<\((?P<operands>.*?)\) *-> *\((?P<results>.*?)\) *\{[^}]*\}(?P<rest>.*)>")
_VALUE: Final = re.compile(r"\[([^\]]*)\]")
_FACTOR: Final = re.compile(r"z_\d+|[a-z]")
# Kinds of factors other than those that the operation leaves alone.
_KIND: Final = re.compile(r"(reduction|need_replication|permutation)=\{([^}]*)\}")

# The factors of each dimension of an array, by their numbers.
_Products = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ShardingRule:
    """The factors of each dimension of operands and results.

    late: the factors that the operation does not leave alone. replicated: those of them that it needs whole.
    """

    operands: tuple[_Products, ...]
    results: tuple[_Products, ...]
    late: frozenset[int]
    replicated: frozenset[int]

    @property
    def is_reshape(self) -> bool:
        """Whether one array becomes another one whose dimensions are other products of the same factors."""
        if len(self.operands) != 1 or len(self.results) != 1:
            return False
        (operand,), (result,) = self.operands, self.results
        return operand != result and sum(operand, ()) == sum(result, ())

    def factors(self) -> Factors:
        """By which factor each dimension may be split in the operation: one that is the major one wherever it is."""
        minor = {f for value in (*self.operands, *self.results) for product in value for f in product[1:]}
        kept = self.replicated | minor

        def dims(products: _Products) -> Dims:
            return tuple(p[0] if p and p[0] not in kept else None for p in products)

        return Factors(tuple(map(dims, self.operands)), tuple(map(dims, self.results)))

    def tied(self) -> tuple[tuple[Dims, ...], tuple[Dims, ...]]:
        """By which factor shardings spread to and from each dimension: other sizes only where it is a reshape."""
        most = None if self.is_reshape else 1

        def dims(products: _Products) -> Dims:
            return tuple(p[0] if p and len(p) <= (most or len(p)) else None for p in products)

        return tuple(map(dims, self.operands)), tuple(map(dims, self.results))


def sharding_rule(old: Instruction) -> ShardingRule | None:
    """The rule that is stated for an instruction."""
    text = dict(old.annotations.frontend_attributes).get(RULE, "")
    match = _RULE.search(text)
    if match is None:
        return None
    numbers: dict[str, int] = {}

    def products(value: str) -> _Products:
        dimensions = [_FACTOR.findall(d) for d in value.split(",") if d.strip()]
        return tuple(tuple(numbers.setdefault(f, len(numbers)) for f in d) for d in dimensions)

    operands = tuple(products(m[1]) for m in _VALUE.finditer(match["operands"]))
    results = tuple(products(m[1]) for m in _VALUE.finditer(match["results"]))
    _check(text, [*operands, *results], old)
    kinds = {m[1]: frozenset(numbers[f] for f in _FACTOR.findall(m[2])) for m in _KIND.finditer(match["rest"])}
    late = frozenset(number for numbers_of_kind in kinds.values() for number in numbers_of_kind)
    return ShardingRule(operands, results, late, kinds.get("need_replication", frozenset()))


def _check(text: str, values: Sequence[_Products], old: Instruction) -> None:
    ranks = [len(v) for v in values]
    if ranks != [s.rank for s in (*(o.shape for o in old.operands), *leaf_shapes(old.shape))]:
        raise ShapeError(
            f"the sharding rule {text} is for arrays of {', '.join(map(str, ranks))} dimensions",
            hint="give each dimension of each operand and result a factor",
        )
