"""Ways to damage HLO text and protos. Each takes a seed's text or bytes, and a generator that it draws from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

_TOKEN = re.compile(r'\s+|"[^"]*"|[A-Za-z_][\w.-]*|-?\d[\w.]*|.', re.DOTALL)

_NUMBERS = (
    *("0", "-1", "1", "2", "7", "63", "64", "65", "-9223372036854775808", "9223372036854775807"),
    *("18446744073709551616", "4294967296", "-2147483649", "1000000007", "9" * 60, "1e999", "0x10", "1.5", "-0", "007"),
)
_WORDS = (
    *(
        "f32",
        "s4",
        "pred",
        "token",
        "tuple",
        "opaque",
        "c128",
        "bf16",
        "f8e8m0fnu",
        "u1",
        "parameter",
        "constant",
        "add",
    ),
    *(
        "while",
        "fusion",
        "custom-call",
        "sort",
        "scatter",
        "reduce-window",
        "async-start",
        "ROOT",
        "ENTRY",
        "HloModule",
    ),
    *("true", "nan", "-inf", "replicated", "maximal", "manual", "devices=", "to_apply=", "calls=", "dimensions={0}"),
    *("sharding={replicated}", 'metadata={op_name="x"}', "/*", "*/", "//", "->", "<=", "...", "?", "%", "@", "\\", '"'),
    *("{", "}", "(", ")", "[", "]", ",", "=", "<", "x", "_", "\x00", "\u00e9", "\U0001f600", "\n", "\t", "-", "T(1,0)"),
)


def tokens_of(text: str) -> list[str]:
    """The text in pieces, blanks included."""
    return _TOKEN.findall(text)


def mutate_text(text: str, rng: np.random.Generator) -> str:
    """A damaged text: one to a few of the ways below, one after the other."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 3, 8]))):
        text = _TEXT_WAYS[int(rng.integers(len(_TEXT_WAYS)))](text, rng)
    return text


def _edit_tokens(change: Callable[[list[str], int, np.random.Generator], None]) -> Callable[..., str]:
    def way(text: str, rng: np.random.Generator) -> str:
        pieces = tokens_of(text)
        places = [i for i, piece in enumerate(pieces) if not piece.isspace()]
        if places:
            change(pieces, places[int(rng.integers(len(places)))], rng)
        return "".join(pieces)

    return way


def _delete(pieces: list[str], place: int, rng: np.random.Generator) -> None:
    del pieces[place : place + int(rng.choice([1, 1, 1, 3, 10]))]


def _duplicate(pieces: list[str], place: int, rng: np.random.Generator) -> None:
    span = pieces[place : place + int(rng.choice([1, 2, 5, 20]))]
    pieces[place:place] = span * int(rng.choice([1, 1, 2, 50]))


def _swap(pieces: list[str], place: int, rng: np.random.Generator) -> None:
    other = int(rng.integers(len(pieces)))
    pieces[place], pieces[other] = pieces[other], pieces[place]


def _insert(pieces: list[str], place: int, rng: np.random.Generator) -> None:
    pieces.insert(place, _word(rng))


def _replace(pieces: list[str], place: int, rng: np.random.Generator) -> None:
    pieces[place] = _word(rng)


def _take_from_elsewhere(pieces: list[str], place: int, rng: np.random.Generator) -> None:
    other = int(rng.integers(len(pieces)))
    pieces[place : place + 1] = pieces[other : other + int(rng.choice([1, 4, 12]))]


def _word(rng: np.random.Generator) -> str:
    words = _NUMBERS if rng.random() < 0.3 else _WORDS
    return words[int(rng.integers(len(words)))]


def _change_number(text: str, rng: np.random.Generator) -> str:
    found = list(re.finditer(r"-?\d+", text))
    if not found:
        return text
    match = found[int(rng.integers(len(found)))]
    number = _NUMBERS[int(rng.integers(len(_NUMBERS)))]
    if rng.random() < 0.5:
        # Near the old one: what only the shape rules can tell.
        number = str(int(match.group()) + int(rng.integers(-2, 3)))
    return text[: match.start()] + number + text[match.end() :]


def _change_same_kind(text: str, rng: np.random.Generator) -> str:
    """A word for another word of the text: what keeps the most programs whole enough for the later checks."""
    found = list(re.finditer(r"[A-Za-z][\w-]*", text))
    if not found:
        return text
    first, second = (found[int(rng.integers(len(found)))] for _ in range(2))
    return text[: first.start()] + second.group() + text[first.end() :]


def _truncate(text: str, rng: np.random.Generator) -> str:
    return text[: int(rng.integers(len(text) + 1))]


def _lines(text: str, rng: np.random.Generator) -> str:
    lines = text.split("\n")
    i, j = int(rng.integers(len(lines))), int(rng.integers(len(lines)))
    way = int(rng.integers(3))
    if way == 0:
        del lines[i]
    elif way == 1:
        lines.insert(i, lines[j])
    else:
        lines[i], lines[j] = lines[j], lines[i]
    return "\n".join(lines)


def _characters(text: str, rng: np.random.Generator) -> str:
    place = int(rng.integers(len(text) + 1))
    character = chr(int(rng.choice([rng.integers(32, 127), rng.integers(0, 32), rng.integers(128, 0xD7FF)])))
    return text[:place] + character + text[place + int(rng.integers(2)) :]


def _nest(text: str, rng: np.random.Generator) -> str:
    """Brackets in brackets, closed again or not."""
    pairs = ("()", "{}", "[]")
    opening, closing = pairs[int(rng.integers(3))]
    depth = int(rng.choice([3, 50, 2000, 20000]))
    place = int(rng.integers(len(text) + 1))
    inner = "f32[2]" if rng.random() < 0.5 else ""
    closed = closing * depth if rng.random() < 0.7 else ""
    return text[:place] + opening * depth + inner + closed + text[place:]


_TEXT_WAYS: tuple[Callable[[str, np.random.Generator], str], ...] = (
    *(_edit_tokens(way) for way in (_delete, _duplicate, _swap, _insert, _replace, _take_from_elsewhere)),
    _change_number,
    _change_number,
    _change_same_kind,
    _change_same_kind,
    _truncate,
    _lines,
    _characters,
    _nest,
)


def mutate_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Damaged bytes: flipped, deleted, doubled, inserted, cut off."""
    for _ in range(int(rng.choice([1, 1, 2, 4, 16]))):
        place, span = int(rng.integers(len(data) + 1)), int(rng.choice([1, 1, 2, 8, 40]))
        way = int(rng.integers(6))
        noise = rng.bytes(span)
        if way == 0:
            data = data[:place] + noise + data[place + span :]
        elif way == 1:
            data = data[:place] + data[place + span :]
        elif way == 2:
            data = data[:place] + data[place : place + span] * 2 + data[place + span :]
        elif way == 3:
            data = data[:place] + noise + data[place:]
        elif way == 4:
            # The longest varint: minus one as an int64, and as a length more than there can be.
            data = data[:place] + b"\xff" * 9 + b"\x01" + data[place:]
        elif rng.random() < 0.2:
            data = data[:place]
    return data


def mutate_message(message: Any, rng: np.random.Generator) -> None:
    """Damage a protobuf message in place, field by field, so that it stays a message."""
    for _ in range(int(rng.choice([1, 1, 2, 4]))):
        inner = _pick_message(message, rng)
        fields = inner.DESCRIPTOR.fields
        set_fields = [field for field, _ in inner.ListFields()]
        known = set_fields if set_fields and rng.random() < 0.8 else list(fields)
        if known:
            _change_field(inner, known[int(rng.integers(len(known)))], rng)


def _pick_message(message: Any, rng: np.random.Generator) -> Any:
    """The message itself, or one somewhere inside."""
    while rng.random() < 0.85:
        inside: list[Any] = []
        for field, value in message.ListFields():
            if field.message_type is None or field.message_type.GetOptions().map_entry:
                continue
            inside.extend(value if _is_repeated(message, field) else [value])
        if not inside:
            break
        message = inside[int(rng.integers(len(inside)))]
    return message


def _is_repeated(message: Any, field: Any) -> bool:
    return hasattr(getattr(message, field.name), "__delitem__")


def _change_field(message: Any, field: Any, rng: np.random.Generator) -> None:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value.clear()
    elif _is_repeated(message, field):
        _change_repeated(value, field, rng)
    elif field.message_type is not None:
        if rng.random() < 0.5:
            message.ClearField(field.name)
        else:
            value.SetInParent()
    else:
        setattr(message, field.name, _scalar(field, rng))


def _change_repeated(values: Any, field: Any, rng: np.random.Generator) -> None:
    way = int(rng.integers(5))
    if way == 0 and len(values):
        del values[int(rng.integers(len(values)))]
    elif way == 4:
        del values[:]
    elif way == 1 and len(values):
        again = values[int(rng.integers(len(values)))]
        values.append(again)
    elif field.message_type is not None:
        values.add()
    elif way == 2 and len(values):
        values[int(rng.integers(len(values)))] = _scalar(field, rng)
    else:
        values.append(_scalar(field, rng))


def _scalar(field: Any, rng: np.random.Generator) -> Any:
    kinds = {1: (32, True), 2: (64, True), 3: (32, False), 4: (64, False)}
    if field.cpp_type in kinds:
        bits, signed = kinds[field.cpp_type]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        near = [0, 1, 2, 3, 5, 100, high, low, high - 1, 1 << 20, low + 1]
        return near[int(rng.integers(len(near)))]
    if field.cpp_type in (5, 6):
        return float(rng.choice([0.0, -1.0, np.inf, np.nan, 1e30]))
    if field.cpp_type == 7:
        return bool(rng.integers(2))
    if field.cpp_type == 8:
        numbers = [v.number for v in field.enum_type.values]
        return int(rng.choice([*numbers, 99]))
    if field.type == field.TYPE_BYTES:
        return rng.bytes(int(rng.integers(20)))
    words = ("", "add", "tuple", "while", "no-such-op", "x" * 1000, "a b", "\u00e9", "ENTRY", "EQ", "{}", "0")
    return words[int(rng.integers(len(words)))]
