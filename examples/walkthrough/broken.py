"""A fault planted in the compiler, for ``--load``: a square is taken for its operand."""

from xlakit.passes.core.rules import Rule
from xlakit.passes.pipeline import PASSES


def square_is_self(instruction, rewriter):
    """x * x -> x (wrong)."""
    left, right = instruction.operands
    return left if left is right else None


PASSES["simplify"].rules.rules.insert(0, Rule("square-is-self", "broken", ("multiply",), square_is_self))
