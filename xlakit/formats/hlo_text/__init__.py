"""HLO text: the language in which XLA prints programs, read and written.

Source: what OpenXLA's parser takes and its printer gives today.
"""

from __future__ import annotations

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.formats.hlo_text import literals, shapes, sharding
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.formats.hlo_text.literals import print_literal
from xlakit.formats.hlo_text.parser import parse_module
from xlakit.formats.hlo_text.printer import PrintOptions, print_computation, print_instruction, print_module
from xlakit.formats.hlo_text.sharding import print_sharding
from xlakit.ir.attributes import Sharding


def parse_shape(text: str) -> Shape:
    """A shape: ``f32[2,<=3]{1,0}``, ``(s32[], token[])``. Raises ParseError."""
    lexer = Lexer(text)
    shape = shapes.parse_shape(lexer)
    lexer.expect_end()
    return shape


def parse_literal(shape: Shape, text: str) -> Literal:
    """A literal of a shape: ``{{1, 2}, {3, nan}}``. Raises ParseError."""
    lexer = Lexer(text)
    literal = literals.parse_literal(lexer, shape)
    lexer.expect_end()
    return literal


def parse_sharding(text: str) -> Sharding:
    """A sharding: ``{devices=[2,1]0,1}``, ``{replicated}``. Raises ParseError."""
    lexer = Lexer(text)
    result = sharding.parse_sharding(lexer)
    lexer.expect_end()
    return result


__all__ = [
    "PrintOptions",
    "parse_literal",
    "parse_module",
    "parse_shape",
    "parse_sharding",
    "print_computation",
    "print_instruction",
    "print_literal",
    "print_module",
    "print_sharding",
]
