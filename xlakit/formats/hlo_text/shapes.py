"""Shapes and layouts in HLO text.

Printing is ``str(shape)``: the values know it themselves, since errors show shapes too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from xlakit.data.layout import COMBINED_DIMENSION, LEVEL_LETTERS, Layout, LevelKind, LevelType, SplitConfig, Tile
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import UNBOUNDED, Shape, make_tuple_shape
from xlakit.errors import ShapeError
from xlakit.formats.hlo_text.lexer import Lexer

_T = TypeVar("_T")

# Array shapes by their text. A program repeats few shapes many times, so the table is small; it is emptied when not.
_KNOWN: dict[str, Shape] = {}
_KNOWN_LIMIT = 10_000


def at_shape(lexer: Lexer) -> bool:
    """Whether a shape begins at the current word."""
    if lexer.kind == "shape" or lexer.text == "(":
        return True
    return lexer.kind == "name" and lexer.peek() == ("(" if lexer.text == "b" else "[")


def parse_shape(lexer: Lexer) -> Shape:
    """An array shape, a tuple in parentheses, or a buffer ``b(...)``; omitted layouts are the default ones.

    Raises ParseError.
    """
    if lexer.kind == "shape":
        text = lexer.text
        shape = _KNOWN.get(text)
        if shape is not None:
            lexer.advance()
            return shape
        shape = _array(lexer)
        if len(_KNOWN) >= _KNOWN_LIMIT:
            _KNOWN.clear()
        _KNOWN[text] = shape
        return shape
    if lexer.text == "(":
        return _tuple(lexer)
    if lexer.text == "b" and lexer.peek() == "(":
        return _buffer(lexer)
    if lexer.kind == "name" and lexer.peek() == "[":
        # Not a shape by its looks: this finds out why.
        return _array(lexer)
    raise lexer.expected("a shape")


def _tuple(lexer: Lexer) -> Shape:
    lexer.enter()
    shapes = list_of(lexer, "(", ")", parse_shape, "in a tuple shape")
    lexer.leave()
    return make_tuple_shape(shapes)


def _buffer(lexer: Lexer) -> Shape:
    start = lexer.start
    lexer.advance()
    lexer.enter()
    lexer.expect("(")
    inner = parse_shape(lexer)
    lexer.expect(")", "after the shape in a buffer")
    lexer.leave()
    if not inner.is_array:
        raise lexer.error(f"a buffer holds an array, not {inner}", start)
    return Shape(PrimitiveType.BUFFER, tuple_shapes=(inner,))


def _array(lexer: Lexer) -> Shape:
    start = lexer.start
    lexer.split_shapes(True)
    try:
        kind = PrimitiveType.from_name(lexer.text)
    except ShapeError as fault:
        raise lexer.error(f"unknown element type '{lexer.text}'", hint=fault.hint) from None
    lexer.advance()
    sizes = list_of(lexer, "[", "]", _size, "between dimension sizes")
    dimensions = tuple(size for size, _ in sizes)
    dynamic = tuple(mark for _, mark in sizes)
    layout = None
    if lexer.text == "{":
        after = lexer.peek()
        if after == ":" or after.isdigit():
            layout = _layout(lexer)
    lexer.split_shapes(False)
    if layout is None and kind.is_array:
        layout = Layout.default(len(dimensions))
    try:
        return Shape(kind, dimensions, layout, dynamic)
    except ShapeError as fault:
        raise lexer.error(fault.rule, start, hint=fault.hint) from None


def _size(lexer: Lexer) -> tuple[int, bool]:
    if lexer.accept("?"):
        return UNBOUNDED, True
    dynamic = lexer.accept("<=")
    size = lexer.expect_integer("a dimension size")
    return (UNBOUNDED, True) if dynamic and size == UNBOUNDED else (size, dynamic)


def _layout(lexer: Lexer) -> Layout:
    start = lexer.start
    lexer.expect("{")
    lexer.enter()
    order: list[int] = []
    while lexer.kind == "integer":
        order.append(lexer.expect_integer())
        if not lexer.accept(","):
            break
    if len(order) > 1000:
        raise lexer.error(f"a layout of {len(order)} dimensions", start)
    fields: dict[str, object] = {}
    if lexer.accept(":"):
        while lexer.text != "}":
            parse = _LAYOUT_FIELDS.get(lexer.text)
            if parse is None:
                raise lexer.expected("one of " + ", ".join(f"{name}(...)" for name in _LAYOUT_FIELDS) + " or '}'")
            lexer.advance()
            parse(lexer, fields)
    lexer.expect("}", "after the layout")
    lexer.leave()
    try:
        return Layout(tuple(order), **fields)  # pyright: ignore
    except ShapeError as fault:
        raise lexer.error(fault.rule, start, hint=fault.hint) from None


def _tiles(lexer: Lexer, fields: dict[str, object]) -> None:
    def dimension(lexer: Lexer) -> int:
        return COMBINED_DIMENSION if lexer.accept("*") else lexer.expect_integer("a tile size or '*'")

    tiles: list[Tile] = []
    while True:
        tiles.append(Tile(tuple(list_of(lexer, "(", ")", dimension, "between tile sizes"))))
        if lexer.text != "(":
            break
    fields["tiles"] = tuple(tiles)


def _split_configs(lexer: Lexer, fields: dict[str, object]) -> None:
    configs: list[SplitConfig] = []
    while True:
        lexer.expect("(")
        dimension = lexer.expect_integer("a dimension")
        indices = list_of(lexer, ":", ")", Lexer.expect_integer, "between split indices")
        configs.append(SplitConfig(dimension, tuple(indices)))
        if lexer.text != "(":
            break
    fields["split_configs"] = tuple(configs)


def _in_parentheses(field: str, parse: Callable[[Lexer], object]) -> Callable[[Lexer, dict[str, object]], None]:
    def read(lexer: Lexer, fields: dict[str, object]) -> None:
        lexer.expect("(")
        fields[field] = parse(lexer)
        lexer.expect(")")

    return read


def _unsigned_type(lexer: Lexer) -> PrimitiveType:
    start = lexer.start
    try:
        kind = PrimitiveType.from_name(lexer.expect_name("an unsigned integer type"))
    except ShapeError as fault:
        raise lexer.error(fault.rule, start) from None
    if not kind.is_unsigned:
        raise lexer.error(f"{kind.hlo_name} is not an unsigned integer type", start)
    return kind


def _inner_shape(lexer: Lexer) -> Shape:
    lexer.split_shapes(False)
    shape = parse_shape(lexer)
    lexer.split_shapes(True)
    return shape


def _level_types(lexer: Lexer, fields: dict[str, object]) -> None:
    def level(lexer: Lexer) -> LevelType:
        start, word = lexer.start, lexer.text
        if len(word) != 1 or word not in LEVEL_LETTERS:
            raise lexer.expected("one of the level types D, C, S, H")
        lexer.advance()
        repeats, unsorted = lexer.accept("+"), lexer.accept("~")
        try:
            return LevelType(LevelKind(LEVEL_LETTERS.index(word)), not repeats, not unsorted)
        except ShapeError as fault:
            raise lexer.error(fault.rule, start, hint=fault.hint) from None

    fields["level_types"] = tuple(list_of(lexer, "(", ")", level, "between level types"))


_LAYOUT_FIELDS: dict[str, Callable[[Lexer, dict[str, object]], None]] = {
    "T": _tiles,
    "L": _in_parentheses("tail_padding_alignment_in_elements", Lexer.expect_integer),
    "#": _in_parentheses("index_primitive_type", _unsigned_type),
    "*": _in_parentheses("pointer_primitive_type", _unsigned_type),
    "E": _in_parentheses("element_size_in_bits", Lexer.expect_integer),
    "S": _in_parentheses("memory_space", Lexer.expect_integer),
    "SC": _split_configs,
    "P": _in_parentheses("physical_shape", _inner_shape),
    "M": _in_parentheses("dynamic_shape_metadata_prefix_bytes", Lexer.expect_integer),
    "D": _level_types,
}


def parse_integers(lexer: Lexer) -> tuple[int, ...]:
    """``{0,1}``. Raises ParseError."""
    return tuple(list_of(lexer, "{", "}", Lexer.expect_integer, "between numbers"))


def list_of(lexer: Lexer, opening: str, closing: str, item: Callable[[Lexer], _T], where: str) -> list[_T]:
    """Items with commas between two marks; ``where`` says in errors what the commas separate."""
    lexer.expect(opening)
    items: list[_T] = []
    if lexer.accept(closing):
        return items
    while True:
        items.append(item(lexer))
        if lexer.accept(","):
            continue
        if lexer.accept(closing):
            return items
        raise lexer.expected(f"',' or '{closing}' {where}")
