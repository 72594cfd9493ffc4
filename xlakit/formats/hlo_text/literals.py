"""Literals in HLO text: ``{ { 1, 2 }, { 3, nan(0x7) } }``, ``(1, {2, 3})``.

The memory that the reader allocates is proportional to the text: the declared shape only serves to check the number of
elements, and the array is made from the elements that were read.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

from xlakit.data.literal import Array, Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ParseError
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.formats.hlo_text.shapes import list_of, parse_shape
from xlakit.ops.shared.numerics import limits

# An element (with the parentheses of a NaN's payload, or of a complex number) or a brace, and the comma after it.
_SPACE = r"(?:\s++|/\*(?s:.*?)\*/|//[^\r\n]*+)*+"
_ITEM = re.compile(
    rf"{_SPACE}([{{}}]|[^\s{{}}(),/]+(?:\(0x[0-9a-fA-F]+\))?|\((?:[^(){{}}]|\([^(){{}}]*\))*\)){_SPACE}(,?)"
)
# The rest of a row of elements after its opening brace, where nothing but commas is between them.
_ROW = re.compile(rf"\s*+([^\s,{{}}()/]++(?:\s*+,\s*+[^\s,{{}}()/]++)*+\s*+)\}}{_SPACE}(,?)")
# Many numbers at once, a space after each.
_PLAIN = re.compile(r"(?:-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)? )*+")
_INTEGERS = re.compile(r"(?:-?\d+ )*+")
_HEXADECIMAL = re.compile(r"-?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d+")
_NAN = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]+)\))?")
_COMPLEX = re.compile(r"\(\s*([^\s,()]+(?:\([^()]*\))?)\s*,\s*([^\s,()]+(?:\([^()]*\))?)\s*\)")
# A text of few bytes must not make a constant of very many.
_MOST_FILLED = 1 << 30
_ELIDED = "the constant is elided: the dump says {...} where its elements should be"
_ELIDED_HINT = "constants are elided as a whole: constant({...})"
_COUNT_HINT = "make the declared shape and the elements agree"
_NESTING_HINT = "each dimension has its own braces: f32[2,3] is {{1, 2, 3}, {4, 5, 6}}"


class _BadElementError(Exception):
    """An element that cannot be read: its index and the rule that it breaks."""

    def __init__(self, index: int, rule: str) -> None:
        super().__init__(rule)
        self.index = index
        self.rule = rule


def parse_literal(lexer: Lexer, shape: Shape) -> Literal:
    """A literal of a declared shape. Raises ParseError."""
    if shape.is_tuple:
        return _tuple(lexer, shape)
    if shape.is_token:
        lexer.take(re.compile("token"), "'token'")
        return Literal.token()
    if not shape.is_array or shape.element_type is PrimitiveType.TOKEN:
        raise lexer.error(f"there are no constants of shape {shape}")
    return _array(lexer, shape)


def parse_typed_literal(lexer: Lexer) -> Literal:
    """A literal that says its own shape: ``s32[2]{0} {1, 2}``, ``(f32[] 1, s32[] 2)``. Raises ParseError."""
    if lexer.text != "(":
        return parse_literal(lexer, parse_shape(lexer))
    lexer.enter()
    elements = list_of(lexer, "(", ")", parse_typed_literal, "between the elements of a tuple")
    lexer.leave()
    return Literal.make_tuple(elements)


def _tuple(lexer: Lexer, shape: Shape) -> Literal:
    if lexer.text == "{" and lexer.peek() == "...":
        raise lexer.error(_ELIDED, hint=_ELIDED_HINT)
    lexer.enter()
    lexer.expect("(", "before the elements of a tuple")
    elements: list[Literal] = []
    for number, inner in enumerate(shape.tuple_shapes):
        if number:
            lexer.expect(",", f"after element {number - 1} of a tuple of {len(shape.tuple_shapes)}")
        elements.append(parse_literal(lexer, inner))
    lexer.expect(")", f"after the {len(shape.tuple_shapes)} elements of the tuple")
    lexer.leave()
    return Literal(shape, None, elements)


def _array(lexer: Lexer, shape: Shape) -> Literal:
    if lexer.kind == "shape" and shape.rank > 1:
        # Old texts repeat the shape before the elements, but not of rank 1, where the braces would read as a layout.
        lexer.advance()
    start = lexer.start
    reader = _Reader(lexer, shape)
    end = reader.read()
    try:
        values = _values(reader.items, shape.element_type)
    except _BadElementError as fault:
        raise lexer.error(fault.rule, _offset_of(lexer.source, start, fault.index)) from None
    lexer.move_to(end)
    if reader.is_lone:
        filled = np.zeros(shape.dimensions, dtype=values.dtype)
        filled.reshape(-1)[0] = values[0]
        return Literal(shape, filled)
    return Literal(shape, values.reshape([max(size, 0) for size in reader.sizes]))


class _Reader:
    """Collects the texts of an array's elements, and checks that braces and counts are as the shape says."""

    def __init__(self, lexer: Lexer, shape: Shape) -> None:
        self.lexer = lexer
        self.shape = shape
        self.items: list[str] = []
        # For each nesting level, the number of items so far in the open brace, and the number expected: -1 for a
        # dynamic dimension until its first brace closes.
        self.counts = [0] * shape.rank
        self.sizes = [-1 if d else n for n, d in zip(shape.dimensions, shape.dynamic_dimensions, strict=True)]
        self.depth = 0
        # Whether the text is one real number without braces: XLA reads it as the first element, and the rest as zeros.
        self.is_lone = False

    def read(self) -> int:
        """Read the whole literal; gives its end offset."""
        # Commas are optional, as in XLA: braces and counts determine the structure.
        source, position = self.lexer.source, self.lexer.start
        while True:
            match = _ITEM.match(source, position)
            if match is None:
                raise self._unexpected(position)
            text, comma = match.groups()
            start, position, end = match.start(1), match.end(), match.end(1)
            if text == "}":
                self._close(start)
            elif text == "{":
                self._open(start)
                row = self._whole_row(end)
                if row is not None:
                    text, comma, position, end = "}", *row
                elif comma:
                    raise self.lexer.error("expected an element or '}' after '{', got ','", match.start(2))
            else:
                self._element(start, text)
            if self.depth == 0:
                # A comma after the literal belongs to the enclosing construct.
                return end

    def _whole_row(self, position: int) -> tuple[str, int, int] | None:
        """Consume a row of plain elements at once; None for any other row, which is then read item by item."""
        level = self.depth - 1
        row = _ROW.match(self.lexer.source, position) if self.depth == len(self.sizes) else None
        if row is None or row[1].count(",") + 1 != self.sizes[level]:
            return None
        self.items.extend(map(str.strip, row[1].split(",")))
        self.depth -= 1
        return row[2], row.end(), row.end(1) + 1

    def _open(self, start: int) -> None:
        if self.depth == len(self.sizes):
            shape = self.shape.to_string(with_layout=False)
            rule = f"a literal of {shape} nests {len(self.sizes)} deep, not more"
            raise self.lexer.error(rule, start, hint=_NESTING_HINT)
        self._count(start)
        self.counts[self.depth] = 0
        self.depth += 1

    def _close(self, start: int) -> None:
        if self.depth == 0:
            raise self.lexer.error("unexpected '}' in a literal", start)
        self.depth -= 1
        seen = self.counts[self.depth]
        if self.sizes[self.depth] < 0:
            self.sizes[self.depth] = seen
        if seen != self.sizes[self.depth]:
            raise self.lexer.error(
                f"expected {self.sizes[self.depth]} elements in dimension {self.depth}{self._at_index()}, got {seen}",
                start,
                hint=_COUNT_HINT,
            )

    def _element(self, start: int, text: str) -> None:
        if text == "...":
            raise self.lexer.error(_ELIDED, start, hint=_ELIDED_HINT)
        if not self.depth and self.sizes and min(self.shape.dimensions) > 0 and not self.shape.element_type.is_complex:
            if self.shape.byte_size > _MOST_FILLED:
                raise self.lexer.error(f"{self.shape.byte_size} bytes are too many to fill from one number", start)
            self.is_lone = True
        elif self.depth < len(self.sizes):
            rank = len(self.sizes)
            raise self.lexer.error(
                f"expected '{{': a literal of rank {rank} nests {rank} deep, not {self.depth}",
                start,
                hint=_NESTING_HINT,
            )
        self._count(start)
        self.items.append(text)

    def _count(self, start: int) -> None:
        if not self.depth:
            return
        level = self.depth - 1
        self.counts[level] += 1
        bound = self.shape.dimensions[level]
        if self.counts[level] > bound >= 0:
            self.depth -= 1
            rule = f"expected {bound} elements in dimension {level}{self._at_index()}, got more"
            raise self.lexer.error(rule, start, hint=_COUNT_HINT)

    def _at_index(self) -> str:
        counts = self.counts[: self.depth]
        return f" at [{','.join(str(count - 1) for count in counts)}]" if counts else ""

    def _unexpected(self, position: int) -> ParseError:
        self.lexer.move_to(position)
        if self.depth:
            return self.lexer.expected("an element, ',' or '}' in a literal")
        return self.lexer.expected("'{' before the elements" if self.sizes else "a value")


def _offset_of(source: str, start: int, index: int) -> int:
    position = start
    while True:
        match = _ITEM.match(source, position)
        if match is None:
            return start
        if match.group(1) not in "{}":
            if index == 0:
                return match.start(1)
            index -= 1
        position = match.end()


# -- elements ----------------------------------------------------------------------------------------


def _values(items: list[str], kind: PrimitiveType) -> Array:
    if kind is PrimitiveType.PRED:
        return _booleans(items)
    if kind.is_complex:
        return _complexes(items, kind)
    return _integers(items, kind) if kind.is_integral else _floats(items, kind)


def _all(pattern: re.Pattern[str], items: list[str]) -> bool:
    """Whether ``pattern``, a repeated item with a space after it, matches all texts joined by spaces."""
    return pattern.fullmatch(" ".join([*items, ""])) is not None


def _booleans(items: list[str]) -> Array:
    known = {"true": True, "false": False, "1": True, "0": False}
    values: list[bool] = []
    for index, text in enumerate(items):
        if text not in known:
            raise _BadElementError(index, f"expected true, false, 1 or 0, got '{text[:40]}'")
        values.append(known[text])
    return np.array(values, dtype=np.bool_)


def _integers(items: list[str], kind: PrimitiveType) -> Array:
    if not _all(_INTEGERS, items):
        index = next(i for i, text in enumerate(items) if not _all(_INTEGERS, [text]))
        raise _BadElementError(index, f"expected an integer for {kind.hlo_name}, got '{items[index][:40]}'")
    low, high = limits(kind)
    # Longer texts than any 64-bit number's are out of range; int() of a huge one would be slow.
    values = [int(text) if len(text) <= 24 else high + 1 for text in items]
    if kind is PrimitiveType.U64:
        # XLA reads these as 64 bits with or without a sign.
        values = [value + (1 << 64) if -(1 << 63) <= value < 0 else value for value in values]
    if values and not low <= min(values) <= max(values) <= high:
        index = next(i for i, value in enumerate(values) if not low <= value <= high)
        raise _BadElementError(index, f"{items[index][:40]} is out of {kind.hlo_name}'s range [{low}, {high}]")
    return np.array(values, dtype=np.int64 if kind.is_signed else np.uint64).astype(kind.dtype)


def _floats(items: list[str], kind: PrimitiveType) -> Array:
    payloads: dict[int, tuple[bool, int]] = {}
    if _all(_PLAIN, items):
        wide = np.array([float(text) for text in items], dtype=np.float64)
    else:
        numbers: list[float] = []
        for index, text in enumerate(items):
            nan = _NAN.fullmatch(text)
            if nan is not None:
                payloads[index] = bool(nan[1]), int(nan[2], 16) if nan[2] else 0
            numbers.append(np.nan if nan is not None else _number(text, index))
        wide = np.array(numbers, dtype=np.float64)
    with np.errstate(all="ignore"):
        values = wide.astype(kind.dtype)
        back = values.astype(np.float64)
    lost = np.isinf(wide) if kind in _WITHOUT_INFINITY else np.zeros(wide.shape, dtype=np.bool_)
    lost |= np.isfinite(wide) & ~np.isfinite(back)
    if kind in _SATURATING:
        lost |= np.isfinite(wide) & (np.abs(wide) > _largest(kind))
    if lost.any():
        index = int(np.argmax(lost))
        raise _BadElementError(index, f"{items[index][:40]} is out of {kind.hlo_name}'s range")
    overflow = np.isinf(wide)
    for index in np.flatnonzero(overflow):
        if "inf" not in items[index]:
            raise _BadElementError(int(index), f"{items[index][:40]} is out of f64's range")
    for index, (negative, payload) in payloads.items():
        _set_nan(values, index, negative, payload, kind)
    return values


def _number(text: str, index: int) -> float:
    if text in ("inf", "-inf"):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text)
        except (ValueError, OverflowError):
            raise _BadElementError(index, f"{text[:40]} is no number that f64 holds") from None
    if not text or not _all(_PLAIN, [text]):
        raise _BadElementError(index, f"expected a number, got '{text[:40]}'")
    return float(text)


def _complexes(items: list[str], kind: PrimitiveType) -> Array:
    real: list[str] = []
    imaginary: list[str] = []
    for index, text in enumerate(items):
        match = _COMPLEX.fullmatch(text)
        if match is None:
            raise _BadElementError(index, f"expected a complex number '(real, imaginary)', got '{text[:40]}'")
        real.append(match[1])
        imaginary.append(match[2])
    values = np.empty(len(items), dtype=kind.dtype)
    values.real = _floats(real, kind.real_part)
    values.imag = _floats(imaginary, kind.real_part)
    return values


# The number of payload bits of a NaN, for the types whose payloads HLO text keeps.
_PAYLOAD_BITS = {
    PrimitiveType.F64: 52,
    PrimitiveType.F32: 23,
    PrimitiveType.F16: 10,
    PrimitiveType.BF16: 7,
    PrimitiveType.F8E5M2: 2,
    PrimitiveType.F8E4M3: 3,
    PrimitiveType.F8E3M4: 4,
}
_WITHOUT_NAN = {PrimitiveType.F4E2M1FN, PrimitiveType.F6E2M3FN, PrimitiveType.F6E3M2FN}
# Casts to these give the largest number instead of infinity or NaN.
_SATURATING = _WITHOUT_NAN
_WITHOUT_INFINITY = _WITHOUT_NAN | {
    PrimitiveType.F8E4M3FN,
    PrimitiveType.F8E4M3B11FNUZ,
    PrimitiveType.F8E4M3FNUZ,
    PrimitiveType.F8E5M2FNUZ,
    PrimitiveType.F8E8M0FNU,
}
_SIGNED_NAN = {*_PAYLOAD_BITS, PrimitiveType.F8E4M3FN}


def _largest(kind: PrimitiveType) -> float:
    return float(ml_dtypes.finfo(kind.dtype).max)


def _set_nan(values: Array, index: int, negative: bool, payload: int, kind: PrimitiveType) -> None:
    if kind in _WITHOUT_NAN:
        raise _BadElementError(index, f"{kind.hlo_name} has no NaN")
    bits = _PAYLOAD_BITS.get(kind, 0)
    if payload >> bits:
        rule = f"the largest NaN payload of {kind.hlo_name} is {(1 << bits) - 1:#x}" if bits else "has no payloads"
        raise _BadElementError(index, f"NaN payload {payload:#x} is out of range: {rule}")
    if kind not in _SIGNED_NAN:
        return
    width = values.dtype.itemsize * 8
    raw = values.view(f"u{values.dtype.itemsize}")
    if bits:
        exponent = (1 << width - 1 - bits) - 1 << bits
        raw[index] = exponent | (payload or 1 << bits - 1)
    if negative:
        raw[index] |= 1 << width - 1
    else:
        raw[index] &= (1 << width - 1) - 1


# -- printing ----------------------------------------------------------------------------------------


def print_literal(literal: Literal, *, with_shape: bool = False) -> str:
    """A literal on one line, as XLA prints it; ``with_shape`` puts each array's shape in front of it."""
    shape = literal.shape
    if shape.is_tuple:
        return "( " + ", ".join(print_literal(e, with_shape=with_shape) for e in literal.elements) + " )"
    if shape.is_token:
        return "token"
    array = literal.array
    text = _nested(element_texts(array, shape.element_type), array.shape)
    return f"{shape} {text}" if with_shape else text


def _nested(items: list[str], sizes: tuple[int, ...]) -> str:
    """Braces around the elements, from the innermost dimension outwards."""
    rank = len(sizes)
    if rank == 0:
        return items[0]
    for level in range(rank - 1, -1, -1):
        size = sizes[level]
        count = int(np.prod(sizes[:level], dtype=np.int64))
        rows = [", ".join(items[i * size : (i + 1) * size]) for i in range(count)]
        if rank == 1:
            items = ["{" + row + "}" for row in rows]
        elif level == rank - 1:
            pad = " " if size > 1 else ""
            items = [f"{{{pad}{row}{pad}}}" for row in rows]
        elif rank > 3 and level:
            gap = " " if size else ""
            above = sizes[level - 1]
            items = [f"{{ /*i{level - 1}={i % above}*/{gap}{row} }}" for i, row in enumerate(rows)]
        else:
            items = [f"{{ {row} }}" for row in rows]
    return items[0]


def element_texts(array: Array, kind: PrimitiveType) -> list[str]:
    """The elements of an array, as XLA prints them."""
    flat = array.reshape(-1)
    if kind is PrimitiveType.PRED:
        words = ("0", "1") if array.ndim else ("false", "true")
        return [words[bool(value)] for value in flat]
    if kind.is_integral:
        return [str(value) for value in flat.astype(np.int64 if kind.is_signed else np.uint64).tolist()]
    if kind.is_complex:
        real, imaginary = (_float_texts(np.asarray(part(flat)), kind.real_part) for part in (np.real, np.imag))
        return [f"({a}, {b})" for a, b in zip(real, imaginary, strict=True)]
    return _float_texts(flat, kind)


# The number of digits that distinguishes all values of a type, and the smaller one that is tried first, as in XLA.
_DIGITS: dict[PrimitiveType, tuple[int, int]] = {
    PrimitiveType.F64: (17, 15),
    PrimitiveType.F32: (9, 6),
    PrimitiveType.F16: (5, 5),
    PrimitiveType.BF16: (4, 4),
    PrimitiveType.F8E4M3: (3, 3),
    PrimitiveType.F8E4M3FN: (3, 3),
    PrimitiveType.F8E4M3B11FNUZ: (3, 3),
    PrimitiveType.F8E4M3FNUZ: (3, 3),
    PrimitiveType.F8E3M4: (3, 3),
    PrimitiveType.F6E2M3FN: (3, 3),
    PrimitiveType.F8E8M0FNU: (9, 2),  # two digits are not enough for the smallest, though XLA prints no more
}


def _float_texts(values: Array, kind: PrimitiveType) -> list[str]:
    enough, first = _DIGITS.get(kind, (2, 2))
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
    numbers: list[float] = wide.tolist()
    texts = [*map(f"%.{first}g".__mod__, numbers)]
    if first < enough:
        back = np.array(texts, dtype=np.float64).astype(values.dtype)
        for index in np.flatnonzero((back != values) & ~np.isnan(wide)).tolist():
            texts[index] = f"{numbers[index]:.{enough}g}"
    for index in np.flatnonzero(np.isnan(wide)).tolist():
        texts[index] = _nan_text(values, index, kind)
    return texts


def _nan_text(values: Array, index: int, kind: PrimitiveType) -> str:
    if kind is PrimitiveType.F8E8M0FNU:
        return "nan"  # it has no sign
    width = values.dtype.itemsize * 8
    raw: Any = np.ascontiguousarray(values[index : index + 1]).view(f"u{values.dtype.itemsize}")[0]
    sign = "-" if int(raw) >> width - 1 else ""
    bits = _PAYLOAD_BITS.get(kind, 0)
    payload = int(raw) & ((1 << bits) - 1)
    return f"{sign}nan" if not bits or payload == 1 << bits - 1 else f"{sign}nan({payload:#x})"
