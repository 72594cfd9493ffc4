"""Annotations of instructions in HLO text: metadata, frontend attributes and so on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from xlakit.formats.hlo_text.lexer import MAX_DEPTH, Lexer, quote, quote_or_json
from xlakit.formats.hlo_text.shapes import list_of, parse_integers
from xlakit.ir.attributes import OpMetadata, OriginalArray, OriginalValue

NUMBER = re.compile(r"-?(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")


def parse_number(lexer: Lexer) -> float:
    """A number, whole or not. Raises ParseError."""
    return float(lexer.take(NUMBER, "a number"))


def print_number(value: float) -> str:
    """The shortest text that gives the number again; whole numbers without a point."""
    text = repr(float(value))
    return text.removesuffix(".0")


def _int32(lexer: Lexer) -> int:
    start = lexer.start
    value = lexer.expect_integer()
    if not -(2**31) <= value < 2**31:
        raise lexer.error(f"{value} does not fit a 32-bit integer", start)
    return value


# Fields by their names in text: the name of the value, and what reads it.
Fields: TypeAlias = dict[str, tuple[str, Callable[[Lexer], object]]]

# The fields of OpMetadata that text shows.
_METADATA: Fields = {
    "op_type": ("op_type", Lexer.expect_string),
    "op_name": ("op_name", Lexer.expect_string),
    "source_file": ("source_file", Lexer.expect_string),
    "source_line": ("source_line", _int32),
    "source_end_line": ("source_end_line", _int32),
    "source_column": ("source_column", _int32),
    "source_end_column": ("source_end_column", _int32),
    "profile_type": ("profile_type", parse_integers),
    "deduplicated_name": ("deduplicated_name", Lexer.expect_string),
    "scheduling_name": ("scheduling_name", Lexer.expect_string),
    "stack_frame_id": ("stack_frame_id", _int32),
    "metadata_payload": ("payload", Lexer.expect_string),
}


def parse_fields(lexer: Lexer, known: Fields, what: str) -> dict[str, object]:
    """``{name=value name=value}``, commas between them or not. Raises ParseError."""
    fields: dict[str, object] = {}
    lexer.expect("{", f"before {what}")
    while lexer.text != "}":
        lexer.accept(",")
        start = lexer.start
        name = lexer.expect_name(f"a field of {what} or '}}'")
        if name not in known:
            raise lexer.error(f"unknown field '{name}' in {what}", start, hint="known: " + ", ".join(known))
        field, parse = known[name]
        if field in fields:
            raise lexer.error(f"field '{name}' stands twice in {what}", start)
        lexer.expect("=", f"after '{name}'")
        fields[field] = parse(lexer)
    lexer.advance()
    return fields


# The usual case: strings without escapes, and numbers that surely fit.
_PLAIN = re.compile(r'\{(?:[ ,]*[a-z_]+=(?:"[^"\\]*"|\d{1,9}(?![\w.])))*+[ ]*\}')
_PLAIN_FIELD = re.compile(r'([a-z_]+)=(?:"([^"]*)"|(\d+))')
_STRINGS = frozenset(field for field, parse in _METADATA.values() if parse is Lexer.expect_string)
_NUMBERS = frozenset(field for field, parse in _METADATA.values() if parse is _int32)


def _plain_metadata(text: str) -> OpMetadata | None:
    """Metadata by one regular expression; None if it needs the full parser."""
    fields: dict[str, Any] = {}
    for name, string, number in _PLAIN_FIELD.findall(text):
        field = "payload" if name == "metadata_payload" else name
        if field in fields or field not in (_NUMBERS if number else _STRINGS):
            return None
        fields[field] = int(number) if number else string
    return OpMetadata(**fields)


def parse_metadata(lexer: Lexer) -> OpMetadata:
    """``{op_name="..." source_line=3}``. Raises ParseError."""
    match = _PLAIN.match(lexer.source, lexer.start)
    metadata = _plain_metadata(match.group()) if match is not None else None
    if match is not None and metadata is not None:
        lexer.move_to(match.end())
        return metadata
    return OpMetadata(**parse_fields(lexer, _METADATA, "metadata"))  # pyright: ignore


def print_metadata(metadata: OpMetadata) -> str:
    """The fields that are set, without the braces."""
    parts: list[str] = []
    for name, (field, _) in _METADATA.items():
        value = getattr(metadata, field)
        if value:
            parts.append(f"{name}={_metadata_value(value)}")
    return " ".join(parts)


def _metadata_value(value: object) -> str:
    if isinstance(value, str):
        return quote(value)
    return "{" + ",".join(map(str, value)) + "}" if isinstance(value, tuple) else str(value)  # pyright: ignore


def parse_frontend_attributes(lexer: Lexer) -> tuple[tuple[str, str], ...]:
    """``{name="value",name={"a": 1}}``, sorted by name. Raises ParseError."""

    def one(lexer: Lexer) -> tuple[str, str]:
        name = lexer.expect_name("a frontend attribute's name")
        lexer.expect("=", f"after '{name}'")
        return name, lexer.expect_string_or_json()

    return tuple(sorted(dict(list_of(lexer, "{", "}", one, "between frontend attributes")).items()))


def print_frontend_attributes(attributes: Sequence[tuple[str, str]]) -> str:
    """Frontend attributes in braces, sorted by name."""
    return "{" + ",".join(f"{name}={quote_or_json(value)}" for name, value in sorted(attributes)) + "}"


def parse_statistics(lexer: Lexer) -> tuple[int, tuple[tuple[str, float], ...]]:
    """``{visualizing_index=0,name=1.5}``: the index of the statistic to show, and all of them. Raises ParseError."""
    lexer.expect("{", "before statistics")
    if lexer.accept("}"):
        return 0, ()
    lexer.expect("visualizing_index")
    lexer.expect("=")
    shown = lexer.expect_integer()
    statistics: list[tuple[str, float]] = []
    while lexer.accept(","):
        name = lexer.expect_name("a statistic's name")
        lexer.expect("=", f"after '{name}'")
        statistics.append((name, parse_number(lexer)))
    lexer.expect("}", "after statistics")
    return shown, tuple(statistics)


def print_statistics(shown: int, statistics: Sequence[tuple[str, float]]) -> str:
    """Statistics in braces."""
    return f"{{visualizing_index={shown}" + "".join(f",{n}={print_number(v)}" for n, v in statistics) + "}"


def parse_shape_index(lexer: Lexer) -> tuple[int, ...]:
    """``{0,1}``. Raises ParseError."""
    return tuple(list_of(lexer, "{", "}", Lexer.expect_integer, "in a shape index"))


def print_shape_index(index: Sequence[int]) -> str:
    """A shape index in braces."""
    return "{" + ",".join(map(str, index)) + "}"


def parse_origin(lexer: Lexer) -> OriginalValue:
    """``{({"name" {0}}, {"other"})}`` or ``{[synthetic_call]}``. Raises ParseError."""
    lexer.expect("{", "before an original value")
    if lexer.accept("["):
        lexer.expect("synthetic_call")
        lexer.expect("]")
        lexer.expect("}")
        return OriginalValue(is_synthetic_call=True)
    elements: list[tuple[tuple[int, ...], OriginalArray | None]] = []
    index: list[int] = []
    while lexer.text != "}":
        if lexer.accept("("):
            index.append(0)
            if len(index) > MAX_DEPTH:
                raise lexer.error(f"nested deeper than {MAX_DEPTH} levels", hint="leave origin={...} out")
        elif lexer.text == ")" and index:
            lexer.advance()
            index.pop()
        elif lexer.text == "," and index:
            lexer.advance()
            index[-1] += 1
        elif lexer.text == "{":
            elements.append((tuple(index), parse_original_array(lexer)))
        else:
            raise lexer.expected("an original value in braces, or a tuple of them in parentheses")
    lexer.advance()
    return OriginalValue(tuple(elements))


def parse_original_array(lexer: Lexer) -> OriginalArray | None:
    """``{"name" {0}}``, or ``{}`` for none. Raises ParseError."""
    lexer.expect("{")
    if lexer.accept("}"):
        return None
    name = lexer.expect_string("an instruction's name in quotes")
    index = parse_shape_index(lexer) if lexer.text == "{" else ()
    lexer.expect("}", "after an original value")
    return name, index


def print_origin(origin: OriginalValue) -> str:
    """An original value in braces."""
    if origin.is_synthetic_call:
        return "{[synthetic_call]}"
    return "{" + _print_part(origin.elements, 0) + "}"


def _print_part(elements: Sequence[tuple[tuple[int, ...], OriginalArray | None]], depth: int) -> str:
    """Elements whose indices agree in their first ``depth`` numbers; an index that none has is an empty tuple's."""
    if len(elements) == 1 and len(elements[0][0]) == depth:
        array = elements[0][1]
        return "{}" if array is None else print_original_array(array)
    parts: list[str] = []
    for position, inside in groupby(elements, key=lambda element: element[0][depth]):
        parts += ["()"] * (position - len(parts))
        parts.append(_print_part(list(inside), depth + 1))
    return "(" + ", ".join(parts) + ")"


def print_original_array(array: OriginalArray) -> str:
    """A value of the original program in braces."""
    name, index = array
    return "{" + quote(name) + (f" {print_shape_index(index)}" if index else "") + "}"
